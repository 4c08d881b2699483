//! The loop that waits for a worker: turns socket, pipes, timers and the launcher's word into events, performs actions.
//!
//! Decides nothing: `step` does.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ahead::Ahead;
use super::call_frame::SaidBefore;
use super::current::Current;
use super::initialize::Initializer;
use super::link::Link;
use super::pipes::{Input, Output};
use super::{Action, Ending, Event, Mode, State, step};
use crate::call::Time;
use crate::clock::Alarm;
use crate::dispatch::{Dispatch, PoolNews, Site, Unstarted, WorkerNumber};
use crate::error::EngineError;
use crate::event::{CallId, ExitReason};
use crate::launcher::News;
use crate::linux::cpu_clock::process_cpu_ns;
use crate::linux::monotonic::now_ns;
use crate::linux::proc_files::ProcFiles;
use crate::linux::proc_status::{Stat, resident_bytes};
use crate::linux::run_delay::run_delay_ns;
use crate::protocol::launcher::{Cause, CpuTimeout, TaskId, ToLauncher, Watch};
use crate::protocol::{INLINE_BYTES, Kind};
use crate::scratch::ScratchDir;
use crate::spill::ResultFile;

/// The signal that makes a worker write its stacks over its socket.
pub(crate) const STACK_SIGNAL: i32 = 42;

/// A process that closed its socket gets this long to be seen dead before it counts as misbehaving.
const CLOSING_GRACE: Duration = Duration::from_millis(20);

/// What the pool says to a worker.
#[derive(Debug)]
pub(crate) enum ToWorker {
    /// Run this.
    Assign { dispatch: Dispatch, generation: u32 },
    /// Run this after what you have.
    Ahead { dispatch: Dispatch, generation: u32 },
    /// Give back what you have not begun.
    TakeBack,
    /// Stop this call.
    Cancel(CallId),
    /// End; nobody needs you.
    Retire(ExitReason),
}

/// A worker and all the engine holds of it.
pub(crate) struct Worker {
    pub(crate) site: Site,
    pub(crate) number: WorkerNumber,
    pub(crate) id: String,
    pub(crate) mode: Mode,
    pub(crate) task: TaskId,
    pub(crate) news: mpsc::UnboundedReceiver<News>,
    pub(crate) mailbox: mpsc::UnboundedReceiver<ToWorker>,
    pub(crate) link: Option<Link>,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pub(crate) stdin: Option<Input>,
    /// Untouched directories that only this worker's next calls may have, for it lives.
    pub(crate) own_scratch: Vec<ScratchDir>,
    pub(crate) ahead: Ahead,
    pub(crate) initializer: Initializer,
    pub(crate) state: State,
    pub(crate) current: Option<Current>,
    pub(crate) pid: Option<u32>,
    pub(crate) proc_files: Option<ProcFiles>,
    pub(crate) start_rss_bytes: Option<u64>,
    pub(crate) last_rss_bytes: Option<u64>,
    /// The kernel's high-water mark is an earlier call's.
    pub(crate) peak_is_stale: bool,
    /// Messages that belonged to no dispatch it had then.
    pub(crate) stale_frames: u64,
    pub(crate) closed_at: Option<Instant>,
    pub(crate) alarm: Alarm,
    pub(crate) said_before: Option<SaidBefore>,
}

impl Worker {
    /// A worker without a call, and where to tell it what to do. The caller has its process made.
    pub(crate) fn new(
        site: &Site,
        mode: Mode,
        number: WorkerNumber,
        id: String,
        stdout: Output,
        stderr: Output,
    ) -> (mpsc::UnboundedSender<ToWorker>, Self) {
        let (news_sender, news) = mpsc::unbounded_channel();
        let (mailbox_sender, mailbox) = mpsc::unbounded_channel();
        let worker = Self {
            site: site.clone(),
            number,
            id,
            mode,
            task: site.launcher.open(news_sender),
            news,
            mailbox,
            link: None,
            stdout,
            stderr,
            stdin: None,
            own_scratch: Vec::new(),
            ahead: Ahead::default(),
            initializer: Initializer::None,
            state: State::Idle,
            current: None,
            pid: None,
            proc_files: None,
            start_rss_bytes: None,
            last_rss_bytes: None,
            peak_is_stale: false,
            stale_frames: 0,
            closed_at: None,
            alarm: Alarm::default(),
            said_before: None,
        };
        (mailbox_sender, worker)
    }

    /// Until nothing is left of the process.
    pub(crate) async fn drive(mut self) {
        while !matches!(self.state, State::Gone) {
            if self.peak_is_stale && matches!(self.state, State::Idle) {
                tokio::task::yield_now().await; // whoever waits for the answer comes first
                self.reset_peak();
            }
            let timer = self.next_timer();
            tokio::select! {
                biased;
                news = self.news.recv() => self.hear_launcher(news.unwrap_or(News::Lost)),
                message = self.mailbox.recv() => match message {
                    Some(message) => self.hear_pool(message),
                    None => self.apply(Event::Retire(ExitReason::Shutdown)),
                },
                () = turn(&mut self.link), if self.may_listen() => self.read_frames(),
                () = self.stdout.fill() => self.check_output(),
                () = self.stderr.fill() => self.check_output(),
                done = feed(&mut self.stdin, self.current.as_ref()) => if done { self.stdin = None },
                () = self.alarm.until(timer) => self.timer(),
            }
        }
        self.give_back_all();
        // A call that was on its way to a worker that is gone.
        self.mailbox.close();
        while let Ok(message) = self.mailbox.try_recv() {
            if let ToWorker::Assign { dispatch, .. } | ToWorker::Ahead { dispatch, .. } = message {
                let (worker, why) = (self.number, Unstarted::Killed);
                self.tell(PoolNews::Unstarted {
                    worker,
                    dispatch,
                    why,
                });
            }
        }
    }

    /// A worker that is kept is heard once it is known who it is: its counters at the ack are read by its number.
    fn may_listen(&self) -> bool {
        self.mode != Mode::Reuse || self.pid.is_some()
    }

    fn next_timer(&self) -> Option<Instant> {
        let ack = match (&self.state, &self.current) {
            (State::Sent { .. }, Some(current)) if self.is_timed() => Some(current.ack_by),
            // Stopped before the zygote forked: that it forks at all is still waited for.
            (State::Ending(_), Some(current)) if self.pid.is_none() => Some(current.ack_by),
            _ => None,
        };
        let closed = self.closed_at.map(|at| at + CLOSING_GRACE);
        let queue = self.queue_deadline();
        [ack, closed, queue].into_iter().flatten().min()
    }

    /// A program acknowledges by being there, and an initializer takes the time that it takes.
    fn is_timed(&self) -> bool {
        self.mode != Mode::Command && self.initializer != Initializer::Runs
    }

    fn timer(&mut self) {
        if self.next_timer().is_none_or(|at| at > Instant::now()) {
            return; // it rang for something that is past
        }
        if self.closed_at.take().is_some() {
            if self.pid.is_some_and(is_exiting) {
                self.closed_at = Some(Instant::now()); // it is on its way out; its end will be told
            } else if matches!(self.state, State::Sent { .. }) {
                self.apply(Event::AckOverdue); // all it sent is read: it did not begin, and cannot say so any more
            } else {
                self.apply(Event::Malformed(
                    "it closed its socket and went on running".into(),
                ));
            }
        } else if let (State::Ending(_), Some(current)) = (&self.state, &mut self.current) {
            current.ack_by = Instant::now() + self.site.context.config.ack_timeout;
            self.kill(Cause::Misbehaved);
        } else if self.queue_deadline().is_some_and(|at| at <= Instant::now()) {
            self.apply(Event::QueueOverdue);
        } else {
            self.apply(Event::AckOverdue);
        }
    }

    fn hear_pool(&mut self, message: ToWorker) {
        if !matches!(message, ToWorker::Ahead { .. }) {
            self.flush_ahead();
        }
        match message {
            ToWorker::Assign {
                dispatch,
                generation,
            } => {
                // What an earlier call left in the socket is found before this one could be blamed for it.
                if matches!(self.state, State::Idle) {
                    self.catch_up();
                }
                self.assigned(dispatch, generation);
            }
            ToWorker::Ahead {
                dispatch,
                generation,
            } => {
                self.send_ahead(dispatch, generation);
                if self.mailbox.is_empty() {
                    self.flush_ahead();
                }
            }
            ToWorker::TakeBack => self.take_back(),
            ToWorker::Cancel(id) => {
                self.settle(); // it may be at another call by now
                match &self.current {
                    // Whoever cancels again waits for no grace.
                    Some(current) if current.dispatch.id == id && self.is_in_grace() => {
                        self.end_grace();
                    }
                    Some(current) if current.dispatch.id == id => {
                        self.apply(Event::Stop(Cause::Cancelled));
                    }
                    _ => self.cancel_ahead(id),
                }
            }
            ToWorker::Retire(reason) => self.apply(Event::Retire(reason)),
        }
    }

    /// Hears all that has been said.
    pub(super) fn catch_up(&mut self) {
        if let Some(link) = &mut self.link {
            link.drain();
            self.read_frames();
        }
    }

    /// Makes certain which call a worker is at, before it is ended for the sake of one: from here on it begins no other,
    /// and if it had begun another its answer to the one before has been read.
    pub(super) fn settle(&mut self) {
        if self.mode == Mode::Reuse {
            self.take_back();
            self.catch_up();
        }
    }

    /// Takes a step and does what it says.
    pub(crate) fn apply(&mut self, event: Event) {
        let state = std::mem::replace(&mut self.state, State::Gone);
        let (state, action) = step(self.mode, state, event);
        self.state = state;
        match action {
            Action::Wait => {}
            Action::Send => self.send_call(),
            Action::GiveBack => self.give_back_unsent(),
            Action::Stale => self.stale_frames += 1,
            Action::Begin => self.begin(),
            Action::Provide(bytes) => self.provide(bytes),
            Action::Answer(reply) => self.answer(reply),
            Action::Confirm(generation) => {
                let task = self.task;
                self.site
                    .launcher
                    .send(ToLauncher::Confirm { task, generation }, Vec::new());
            }
            Action::Kill(cause) => {
                self.take_back(); // before it could begin another
                self.stamp_end();
                self.kill(cause);
                if matches!(cause, Cause::Done | Cause::Failed) {
                    self.tell(PoolNews::Replied {
                        worker: self.number,
                    });
                }
            }
            Action::Judge { ending, began, end } => self.judge(ending, began, &end),
        }
    }

    fn kill(&self, cause: Cause) {
        let task = self.task;
        let grace = match (&self.current, cause) {
            (Some(current), Cause::Cancelled) => current.call().cancel_grace,
            _ => Duration::ZERO,
        };
        let message = match grace {
            Duration::ZERO => ToLauncher::Kill { task, cause },
            grace => ToLauncher::End {
                task,
                grace_ns: nanoseconds(grace),
            },
        };
        self.site.launcher.send(message, Vec::new());
    }

    /// A call that was asked to end has done so, or is to end at once: the rest of its grace is nobody's.
    pub(super) fn end_grace(&self) {
        if self.is_in_grace() {
            let (task, cause) = (self.task, Cause::Cancelled);
            let kill = ToLauncher::Kill { task, cause };
            self.site.launcher.send(kill, Vec::new());
        }
    }

    fn is_in_grace(&self) -> bool {
        matches!(self.state, State::Ending(Ending::Stopped(Cause::Cancelled)))
    }

    fn begin(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        let call_id = current.dispatch.id;
        current.call().beginning.set();
        let began_ns = *current.began_ns.get_or_insert_with(now_ns);
        match (self.pid, self.mode) {
            (Some(pid), Mode::Reuse) => {
                if self.proc_files.is_none() {
                    self.proc_files = ProcFiles::open(pid).ok(); // what cannot be read is reported as not measured
                }
                let resident =
                    |files: &mut ProcFiles| files.resident().ok().filter(|bytes| *bytes > 0);
                if !current.ahead {
                    self.last_rss_bytes = self.proc_files.as_mut().and_then(resident);
                }
                // Of a call sent ahead it is the size at the ack of the first of its row.
                current.base_rss_bytes = self.last_rss_bytes;
                self.start_rss_bytes = self.start_rss_bytes.or(current.base_rss_bytes);
                if !current.ahead {
                    current.cpu_before_ns = process_cpu_ns(pid).ok(); // likewise
                    current.waited_before_ns = run_delay_ns(pid);
                }
            }
            (Some(pid), _) => {
                current.base_rss_bytes = resident(pid);
                current.waited_before_ns = run_delay_ns(pid);
            }
            (None, _) => {}
        }
        let watch = watch(current, began_ns, self.mode);
        if watch != Watch::default() {
            current.armed = true;
            let (task, generation) = (self.task, current.generation);
            self.site.launcher.send(
                ToLauncher::Arm {
                    task,
                    generation,
                    watch,
                },
                Vec::new(),
            );
        }
        if current.dispatch.first.is_some() {
            return; // it has been told before
        }
        current.dispatch.listener.began(&self.id);
        let (worker, call) = (self.number, call_id);
        self.tell(PoolNews::Began { worker, call });
    }

    fn provide(&mut self, bytes: u64) {
        let Some(current) = &mut self.current else {
            return;
        };
        if current
            .call()
            .limits
            .file_bytes
            .is_some_and(|limit| bytes > limit)
        {
            return self.apply(Event::Stop(Cause::DiskLimit));
        }
        if current.file.is_some() || bytes <= INLINE_BYTES {
            return self.apply(Event::Malformed(format!(
                "it asks for a file of {bytes} bytes out of turn"
            )));
        }
        let policy = self.site.spill_policy(Some(current.call()));
        let file = ResultFile::create(bytes, &policy).and_then(|file| {
            file.fd()
                .try_clone_to_owned()
                .map(|fd| (file, fd))
                .map_err(EngineError::io("handing down a file"))
        });
        match (file, &mut self.link) {
            (Ok((file, fd)), Some(link)) => {
                link.send(Kind::File, current.generation, &[], Some(fd));
                current.file = Some(file);
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                current.failure = Some(error);
                self.apply(Event::Stop(Cause::DiskLimit));
            }
        }
    }

    pub(crate) fn tell(&self, news: PoolNews) {
        self.site.context.news.send(news).ok(); // the pool outlives its workers but for a dropped backend
    }
}

/// What the launcher watches while a call runs.
fn watch(current: &Current, began_ns: u64, mode: Mode) -> Watch {
    let call = current.call();
    let limits = Watch {
        memory_bytes: call.limits.memory_bytes,
        cpu_ns: call.limits.cpu.map(nanoseconds),
        processes: call.limits.processes,
        ..Watch::default()
    };
    let Some(timeout) = call.timeout else {
        return limits;
    };
    let limit_ns = nanoseconds(timeout);
    let most_ns = match current.can_run_again && current.dispatch.first.is_none() {
        true => limit_ns.saturating_add(limit_ns / 2),
        false => limit_ns,
    };
    Watch {
        deadline_ns: Some(began_ns.saturating_add(nanoseconds(call.guard().unwrap_or(timeout)))),
        cpu_timeout: (call.time == Time::Cpu).then_some(CpuTimeout {
            limit_ns,
            most_ns,
            before_ns: current.cpu_before_ns.filter(|_| mode != Mode::Reuse),
        }),
        confirm: mode == Mode::Reuse,
        grace_ns: nanoseconds(call.term_grace),
        dump_signal: (mode != Mode::Command).then_some(STACK_SIGNAL),
        ..limits
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

async fn turn(link: &mut Option<Link>) {
    match link {
        Some(link) => link.turn().await,
        None => std::future::pending().await,
    }
}

async fn feed(input: &mut Option<Input>, current: Option<&Current>) -> bool {
    match (input, current) {
        (Some(input), Some(current)) => input.feed(current.call().stdin()).await,
        _ => std::future::pending().await,
    }
}

/// Resident bytes of a process; none of one that has already ended.
pub(super) fn resident(pid: u32) -> Option<u64> {
    resident_bytes(pid).ok().filter(|bytes| *bytes > 0)
}

/// Gone, a zombie, or past its last instruction.
fn is_exiting(pid: u32) -> bool {
    Stat::read(pid).map_or(true, |stat| stat.is_exiting())
}
