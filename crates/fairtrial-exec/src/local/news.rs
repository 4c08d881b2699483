//! What workers and zygotes tell the pool, and what it makes of that. Which call starts next is `slots.rs`'s business.

use std::collections::BTreeMap;
use std::io;

use tokio::time::Instant;

use super::interpreters::ZygoteState;
use super::member::recycle;
use super::pool::{
    ADVICE, OVERDUE_TRIES, Pool, SPAWN_PAUSE, SPAWN_TRIES, START_FAILURES, cancelled,
};
use super::queue::Lane;
use crate::call::Work;
use crate::dispatch::{Answer, Dispatch, Finished, PoolNews, Unstarted, WorkerNumber};
use crate::error::EngineError;
use crate::event::{CallId, Event, ExitReason};
use crate::outcome::{ErrorReport, Outcome};
use crate::protocol::launcher::{Shared, Step};
use crate::reach::out_of_reach;
use crate::sandbox::{in_force, is_lasting};
use crate::verdict::Verdict;
use crate::worker::Mode;
use crate::worker::judge::words::exit_name;
use crate::zygote::setup_error;

impl Pool {
    pub(super) async fn hear(&mut self, news: PoolNews) {
        match news {
            PoolNews::WorkerStarted { worker, pid } => self.worker_started(worker, pid),
            PoolNews::Began { worker, call } => self.began(worker, call),
            PoolNews::Replied { worker } => {
                if let Some(member) = self.workers.get(&worker) {
                    let (lane, terms) = (member.lane, member.terms.clone());
                    self.keep_spare(lane, terms);
                }
            }
            PoolNews::Finished(finished) => self.finished(*finished),
            PoolNews::Unstarted {
                worker,
                dispatch,
                why,
            } => self.unstarted(worker, dispatch, why),
            PoolNews::Gone {
                worker,
                reason,
                status,
                stale_frames,
            } => {
                let member = self.workers.remove(&worker);
                if let Some(member) = member.filter(|member| member.told) {
                    self.observers.tell(Event::WorkerExit {
                        worker_id: member.id,
                        reason,
                        status,
                        stale_frames,
                    });
                }
            }
            PoolNews::GivenBack { worker, dispatches } => {
                dispatches
                    .into_iter()
                    .for_each(|dispatch| self.come_back(worker, dispatch));
            }
            PoolNews::CanSendAhead { worker } => {
                if let Some(member) = self.workers.get_mut(&worker) {
                    member.skipping = false;
                }
            }
            PoolNews::ZygoteReady { zygote, warm } => self.zygote_ready(zygote, warm),
            PoolNews::ZygoteGone { zygote, why } => self.zygote_gone(zygote, why),
            PoolNews::LauncherLost => self.launcher_lost().await,
            PoolNews::Broken => self.broken = true,
        }
    }

    fn worker_started(&mut self, worker: WorkerNumber, pid: u32) {
        let Some(member) = self.workers.get_mut(&worker) else {
            return;
        };
        member.told = true;
        let warm = match &self.lanes[&member.lane].zygote {
            ZygoteState::Ready { warm, .. } => Some(warm),
            _ => None,
        };
        self.observers.tell(Event::WorkerStart {
            worker_id: member.id.clone(),
            pid,
            zygote_threads: warm.map(|warm| warm.threads),
            closed_fds: warm.map_or_else(BTreeMap::new, |warm| warm.closed_fds.clone()),
        });
    }

    pub(super) fn began(&mut self, worker: WorkerNumber, call: CallId) {
        if let Some(member) = self.workers.get_mut(&worker) {
            member.since = Instant::now();
            let worker_id = member.id.clone();
            self.observers.tell(Event::Start { call, worker_id });
        }
    }

    fn finished(&mut self, finished: Finished) {
        let Finished {
            worker,
            dispatch,
            answer,
            lives,
            in_doubt,
            lacked,
            rss_growth,
        } = finished;
        self.running.remove(&dispatch.id);
        self.room.call_ended();
        self.no_longer_alone(dispatch.id);
        if let Some(member) = self.workers.get_mut(&worker) {
            member.calls.retain(|call| *call != dispatch.id);
            member.since = Instant::now();
            member.served += 1;
            member.leaving |= !lives;
            if let Ok(outcome) = &answer {
                member.learn(outcome);
            }
            let ok = answer
                .as_ref()
                .is_ok_and(|outcome| outcome.verdict == Verdict::Ok);
            // One such call is its own fault; at the second an earlier one may have spoilt the worker for all.
            let blames = blames_setup(&answer);
            member.spoilt |= lives && member.served > 2 && blames && member.blamed;
            member.blamed = blames;
            if member.spoilt && lives {
                self.retire_spoilt(worker);
            } else if let Some(reason) =
                recycle(&self.config, member, ok, rss_growth).filter(|_| lives)
            {
                self.retire(worker, reason);
            }
        }
        if (blames_setup(&answer) || matches!(answer, Err(EngineError::Scratch { .. })))
            && self.had_no_scratch(worker)
        {
            let lane = self.lane(&dispatch);
            return self.try_with_new_scratch(lane, dispatch);
        }
        let unwanted = self.unwanted.remove(&dispatch.id);
        let lacked = lacked.filter(|_| !unwanted && dispatch.lacked.is_none());
        match (answer, lacked) {
            (answer, Some(lacked)) => self.run_without_others(dispatch, answer, lacked),
            (Ok(outcome), None) if in_doubt && !unwanted => self.run_again(dispatch, outcome),
            (answer, None) => self.resolve(dispatch, answer),
        }
    }

    /// Something that calls share was short: what the call comes to when no other takes any counts.
    fn run_without_others(&mut self, mut dispatch: Dispatch, answer: Answer, lacked: Shared) {
        if !std::mem::replace(&mut self.told_of_shortage, true) {
            let what = match lacked {
                Shared::Memory => "the host ran out of memory and ended a call".to_owned(),
                lacked => format!(
                    "a call failed while calls ran out of what they share ({})",
                    lacked.name()
                ),
            };
            log::warn!(target: ADVICE, "{what}: such calls are run again, each without others");
        }
        dispatch.lacked = Some(lacked);
        if let Ok(outcome) = answer {
            dispatch.keep_first(outcome);
        }
        dispatch.queue_deadline = None; // it has had its turn
        let lane = self.lane(&dispatch);
        self.enqueue(lane, dispatch);
    }

    /// It timed out while others used the processors, or its own: what it comes to alone counts.
    fn run_again(&mut self, mut dispatch: Dispatch, outcome: Outcome) {
        dispatch.keep_first(outcome);
        dispatch.alone_runs += 1;
        dispatch.queue_deadline = None; // it has had its turn
        let lane = self.lane(&dispatch);
        self.enqueue(lane, dispatch);
    }

    fn unstarted(&mut self, worker: WorkerNumber, dispatch: Dispatch, why: Unstarted) {
        self.running.remove(&dispatch.id);
        self.no_longer_alone(dispatch.id);
        let had_no_scratch = self.had_no_scratch(worker);
        if let Some(member) = self.workers.get_mut(&worker) {
            member.calls.retain(|call| *call != dispatch.id);
            member.leaving = true;
        }
        if matches!(why, Unstarted::Spawn { .. } | Unstarted::LauncherLost) {
            self.workers.remove(&worker); // it never was
        }
        let lane = self.lane(&dispatch);
        match why {
            Unstarted::Spawn {
                step: Step::Chdir | Step::Landlock | Step::Mounts,
                ..
            } if had_no_scratch => self.try_with_new_scratch(lane, dispatch),
            Unstarted::Spawn {
                step: step @ (Step::Exec | Step::Chdir),
                errno,
            } => {
                let mut report = cannot_start(&dispatch, step, errno);
                let denied = errno == libc::EACCES;
                let in_force = || in_force(&dispatch.call, Mode::Command, &self.means);
                if let Some(hint) = denied
                    .then(|| out_of_reach(&dispatch.call, &in_force()))
                    .flatten()
                {
                    report.message += &format!(" (hint: {hint})");
                }
                self.resolve_unstarted(dispatch, Verdict::SetupFailed, report);
            }
            Unstarted::Spawn {
                step: Step::Zygote,
                errno: 0,
            }
            | Unstarted::LauncherLost => self.requeue(lane, dispatch),
            Unstarted::Spawn { step, errno }
                if (step.confines() || step == Step::Rlimits) && !is_shortage(step, errno) =>
            {
                let problem = io::Error::from_raw_os_error(errno);
                let missing = dispatch.call.workspace.as_ref();
                let missing = missing.filter(|_| step == Step::Tree && errno == libc::ENOENT);
                let missing = missing.and_then(|workspace| workspace.missing());
                let which =
                    missing.map_or_else(String::new, |path| format!(" `{}`", path.display()));
                let step = step.name();
                let report = setup_error(format!("cannot confine it: {step}{which}: {problem}"));
                self.resolve_unstarted(dispatch, Verdict::SetupFailed, report);
            }
            Unstarted::Spawn { step, errno } => {
                let source = io::Error::from_raw_os_error(errno);
                self.try_again(lane, dispatch, step.name().into(), source);
            }
            Unstarted::Killed => self.killed_unbegun(lane, dispatch),
            Unstarted::Died => {
                self.unacknowledged(lane, dispatch, START_FAILURES, "died before they began it")
            }
            Unstarted::Uninitialized(exit) => {
                let last = exit_name(exit);
                let what = format!("ended in their initializer, the last with {last}");
                self.unacknowledged(lane, dispatch, START_FAILURES, &what);
            }
            Unstarted::Overdue => {
                let limit = self.config.ack_timeout;
                let what = format!("did not begin it within {limit:?}");
                self.unacknowledged(lane, dispatch, OVERDUE_TRIES, &what);
            }
        }
    }

    /// A worker was killed from outside before the call began: another one may take it, until so many were.
    fn killed_unbegun(&mut self, lane: Lane, mut dispatch: Dispatch) {
        dispatch.unacknowledged += 1;
        let times = dispatch.unacknowledged;
        if times < START_FAILURES {
            return self.requeue(lane, dispatch);
        }
        let what = "the worker of the call".into();
        self.resolve(dispatch, Err(EngineError::Killed { what, times }));
    }

    /// A worker took the call and did not begin it: another one may, until so many did not.
    fn unacknowledged(&mut self, lane: Lane, mut dispatch: Dispatch, most: u32, what: &str) {
        dispatch.unacknowledged += 1;
        let times = dispatch.unacknowledged;
        if times < most {
            return self.requeue(lane, dispatch);
        }
        let report = setup_error(format!("{times} workers {what}"));
        self.resolve_unstarted(dispatch, Verdict::SetupFailed, report);
    }

    pub(super) fn requeue(&mut self, lane: Lane, dispatch: Dispatch) {
        if self.unwanted.remove(&dispatch.id) {
            return self.resolve_unstarted(dispatch, Verdict::Cancelled, cancelled());
        }
        if dispatch
            .queue_deadline
            .is_some_and(|at| at <= Instant::now())
        {
            return self.queue_timed_out(dispatch);
        }
        self.enqueue(lane, dispatch);
    }

    /// Processes or descriptors were short. Beside other calls it waits for the end of one, with fewer slots from then
    /// on; alone it has a few more tries.
    pub(super) fn try_again(
        &mut self,
        lane: Lane,
        mut dispatch: Dispatch,
        step: String,
        source: io::Error,
    ) {
        if self.running.is_empty() {
            dispatch.failed_spawns += 1;
        }
        // Also for the calls behind one that is given up: nothing else may wake the engine for them.
        self.not_before = Some(Instant::now() + SPAWN_PAUSE);
        if dispatch.failed_spawns >= SPAWN_TRIES {
            return self.resolve(dispatch, Err(EngineError::Spawn { step, source }));
        }
        self.retire_idle(ExitReason::Idle, |_| true);
        if self.room.shrink(self.busy()) {
            let slots = self.room.slots();
            log::warn!(
                target: ADVICE,
                "no room for more calls ({step}: {source}): {slots} at a time for now"
            );
        }
        self.requeue(lane, dispatch);
    }
}

fn blames_setup(answer: &Answer) -> bool {
    let outcome = answer.as_ref().ok();
    outcome.is_some_and(|outcome| outcome.verdict == Verdict::SetupFailed)
}

fn cannot_start(dispatch: &Dispatch, step: Step, errno: i32) -> ErrorReport {
    let problem = io::Error::from_raw_os_error(errno);
    let program = match &dispatch.call.work {
        Work::Command(work) => work.argv[0].to_string_lossy(),
        _ => "the worker".into(),
    };
    match (step, &dispatch.call.cwd) {
        (Step::Chdir, Some(cwd)) => {
            setup_error(format!("cannot enter cwd `{}`: {problem}", cwd.display()))
        }
        _ => setup_error(format!("cannot run `{program}`: {problem}")),
    }
}

/// What may be there a moment later.
fn is_shortage(step: Step, errno: i32) -> bool {
    // Said of namespaces also where none is allowed at all.
    let lasts = step == Step::Namespaces && is_lasting(errno);
    !lasts
        && matches!(
            errno,
            libc::ENOSPC
            | libc::ENOMEM
            | libc::EAGAIN
            | libc::EMFILE
            | libc::ENFILE
            | libc::ETIMEDOUT
            | libc::ETOOMANYREFS // descriptors that the user's processes have sent and not yet received
            | libc::EDQUOT
        )
}
