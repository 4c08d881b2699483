//! What the parts of the engine share: a call on its way, what all may use, and the news they send the pool.
//!
//! Decides nothing: the pool does.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::aside::aside;
use crate::call::{Call, Time};
use crate::clock::Clock;
use crate::config::LocalConfig;
use crate::environment::Environment;
use crate::error::EngineError;
use crate::event::{CallId, ExitReason};
use crate::launcher::Launcher;
use crate::listener::{Listener, Streams};
use crate::outcome::{Exit, FirstRun, Outcome};
use crate::protocol::launcher::{Shared, Step};
use crate::sandbox::Means;
use crate::scratch::{ScratchDir, ScratchRoot};
use crate::spill::{SpillDir, SpillPolicy};
use crate::zygote::Warm;

/// How a call is answered for.
pub type Answer = Result<Outcome, EngineError>;

/// A submitted call and whom to answer.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) id: CallId,
    pub(crate) call: Box<Call>,
    pub(crate) listener: Box<dyn Listener>,
    pub(crate) streams: Streams,
    pub(crate) submitted_ns: u64,
    /// When it has waited too long.
    pub(crate) queue_deadline: Option<Instant>,
    /// Times a worker took it and did not acknowledge.
    pub(crate) unacknowledged: u32,
    /// A worker would not have it behind another call: it waits for one without.
    pub(crate) goes_alone: bool,
    /// Times no process could be had for it.
    pub(crate) failed_spawns: u32,
    /// How it fared before, if it is now run again: alone on a processor, or without others.
    pub(crate) first: Option<Box<FirstRun>>,
    /// It failed beside other calls, perhaps for want of this: it is run again when no other call runs.
    pub(crate) lacked: Option<Shared>,
    /// Times it ran so.
    pub(crate) alone_runs: u32,
}

/// A call runs alone at most so often.
const MOST_ALONE: u32 = 2;

impl Dispatch {
    /// Whether it is to have a processor to itself.
    pub(crate) fn runs_alone(&self) -> bool {
        // Without other calls it has all of them.
        self.first.is_some() && self.lacked.is_none()
    }

    /// Keeps how it fared when it ran for the first time.
    pub(crate) fn keep_first(&mut self, outcome: Outcome) {
        let Outcome {
            verdict,
            metrics,
            tried_alone,
            ..
        } = outcome;
        let this = || Box::new(FirstRun { verdict, metrics });
        self.first = Some(tried_alone.unwrap_or_else(this));
    }

    /// Whether it may be run again if its time-out was in doubt.
    pub(crate) fn can_run_again(&self) -> bool {
        self.call.time == Time::Cpu && self.alone_runs < MOST_ALONE && self.is_unseen()
    }

    /// Whether nobody would notice another run but by its outcome: nobody has seen what the call wrote, or taken what it
    /// was given, and it leaves no changes to a tree.
    pub(crate) fn is_unseen(&self) -> bool {
        let call = &self.call;
        let streams = &self.streams;
        call.has_its_own_worker()
            && streams.input.is_none()
            && streams.output.is_none()
            && call.workspace.is_none()
            && !call.as_caller
    }
}

/// A worker process, in the engine's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WorkerNumber(pub(crate) u64);

/// What everybody on the engine's thread may use.
pub(crate) struct Context {
    pub(crate) config: LocalConfig,
    pub(crate) environment: Environment,
    pub(crate) means: Arc<Means>,
    pub(crate) clock: Clock,
    pub(crate) spill: SpillDir,
    pub(crate) scratch: RefCell<ScratchRoot>,
    pub(crate) next_scratch: Cell<u64>,
    /// Untouched directories of calls whose processes are gone.
    pub(crate) spare_scratch: RefCell<Vec<ScratchDir>>,
    /// Removals of scratch directories under way.
    pub(crate) removals: RefCell<JoinSet<()>>,
    pub(crate) news: mpsc::UnboundedSender<PoolNews>,
}

/// What workers and zygotes tell the pool.
#[derive(Debug)]
pub(crate) enum PoolNews {
    /// A process exists.
    WorkerStarted { worker: WorkerNumber, pid: u32 },
    /// It acknowledged its call.
    Began { worker: WorkerNumber, call: CallId },
    /// A fresh worker replied and is being killed.
    Replied { worker: WorkerNumber },
    /// A call is over.
    Finished(Box<Finished>),
    /// A call was not begun and can be given to somebody else.
    Unstarted {
        worker: WorkerNumber,
        dispatch: Dispatch,
        why: Unstarted,
    },
    /// Calls that a worker had ahead and did not begin.
    GivenBack {
        worker: WorkerNumber,
        dispatches: Vec<Dispatch>,
    },
    /// A worker skipped all that was taken back from it.
    CanSendAhead { worker: WorkerNumber },
    /// A worker is gone; it had no call any more.
    Gone {
        worker: WorkerNumber,
        reason: ExitReason,
        status: Option<Exit>,
        stale_frames: u64,
    },
    /// A zygote is warm.
    ZygoteReady { zygote: u64, warm: Warm },
    /// A zygote is gone, or never was.
    ZygoteGone { zygote: u64, why: ZygoteEnd },
    /// The launcher is gone.
    LauncherLost,
    /// A part of the engine panicked.
    Broken,
}

/// A call that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) worker: WorkerNumber,
    pub(crate) dispatch: Dispatch,
    pub(crate) answer: Answer,
    /// Whether the worker can have another call.
    pub(crate) lives: bool,
    /// The answer is not believed: it timed out while others used the processors.
    pub(crate) in_doubt: bool,
    /// What it may have failed for want of, where nobody would notice another run.
    pub(crate) lacked: Option<Shared>,
    /// Since the worker's first call.
    pub(crate) rss_growth: Option<u64>,
}

/// Why a call was not begun.
#[derive(Debug)]
pub(crate) enum Unstarted {
    /// No process could be made.
    Spawn { step: Step, errno: i32 },
    /// The worker died before it acknowledged.
    Died,
    /// Somebody else killed the worker before it acknowledged.
    Killed,
    /// The worker died in its initializer.
    Uninitialized(Exit),
    /// The worker took too long to acknowledge, and was killed.
    Overdue,
    /// The launcher died.
    LauncherLost,
}

/// Why there is no zygote.
#[derive(Debug)]
pub(crate) enum ZygoteEnd {
    /// It said what is wrong: trying again would not help.
    Refused(crate::outcome::ErrorReport),
    /// It ended without a word.
    Died(String),
    /// Somebody else killed it before it was ready.
    Killed,
    /// It was shut down on purpose or with the launcher.
    Ended,
    /// No process could be made.
    Spawn { step: Step, errno: i32 },
}

/// A context shared on the engine's thread, with the launcher of the moment.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) context: Rc<Context>,
    pub(crate) launcher: Launcher,
}

/// Tells the pool of a panic that drops it.
struct Tripwire(mpsc::UnboundedSender<PoolNews>);

impl Drop for Tripwire {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send(PoolNews::Broken).ok(); // it may be the pool's own panic
        }
    }
}

impl Context {
    /// Runs a part of the engine as a task. Should it panic the engine ends: nobody else knows what that part knew.
    pub(crate) fn spawn(&self, part: impl Future<Output = ()> + 'static) {
        let tripwire = Tripwire(self.news.clone());
        tokio::task::spawn_local(async move {
            let _tripwire = tripwire;
            part.await;
        });
    }

    /// A directory for a call: 0700 and empty.
    pub(crate) fn make_scratch(&self) -> Result<ScratchDir, EngineError> {
        if let Some(spare) = self.spare_scratch.borrow_mut().pop() {
            return Ok(spare);
        }
        let number = self.next_scratch.replace(self.next_scratch.get() + 1);
        let root = self.scratch.borrow();
        root.make(number).map_err(|source| EngineError::Scratch {
            dir: root.path().to_owned(),
            source,
        })
    }

    /// Takes back the directory of a call whose processes are gone.
    pub(crate) fn return_scratch(&self, mut scratch: ScratchDir) {
        let mut spare = self.spare_scratch.borrow_mut();
        let is_ours = scratch.is_in(&self.scratch.borrow());
        if is_ours && spare.len() < self.config.max_workers && scratch.is_pristine() {
            spare.push(scratch);
        } else {
            self.remove_scratch(scratch);
        }
    }

    /// Whether directories of calls that ended are still there.
    pub(crate) fn is_removing(&self) -> bool {
        let mut removals = self.removals.borrow_mut();
        while removals.try_join_next().is_some() {}
        !removals.is_empty()
    }

    /// Off the calls' path: a stranger's directory may take long to remove.
    pub(crate) fn remove_scratch(&self, scratch: ScratchDir) {
        let mut removals = self.removals.borrow_mut();
        while removals.try_join_next().is_some() {}
        removals.spawn_local(aside(move || {
            if let Err(error) = scratch.remove() {
                log::warn!("cannot remove a scratch directory: {error}");
            }
        }));
    }
}

impl Site {
    /// Where large values of a call go.
    pub(crate) fn spill_policy(&self, call: Option<&Call>) -> SpillPolicy {
        SpillPolicy {
            dir: self.context.spill.clone(),
            memfd_cap_bytes: self.context.config.memfd_cap_bytes.unwrap_or(u64::MAX),
            memory_limit_bytes: call.and_then(|call| call.limits.memory_bytes),
        }
    }
}
