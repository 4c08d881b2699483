//! The loop that waits for a worker: turns socket, pipes, timers and the launcher's word into events, performs actions.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::judge::{self, Facts};
use super::link::Link;
use super::pipes::{Input, Output};
use super::{Action, Ending, Event, Mode, Payload, Reply, State, step};
use crate::call::Call;
use crate::clock::now_ns;
use crate::dispatch::{Dispatch, PoolNews, Site, Unstarted, WorkerNumber};
use crate::error::EngineError;
use crate::event::ExitReason;
use crate::launcher::News;
use crate::linux::cpu_clock::{CpuTimes, process_cpu};
use crate::linux::proc_files::ProcFiles;
use crate::linux::proc_status::{Stat, resident_bytes};
use crate::protocol::launcher::{Cause, End, FromLauncher, Step, TaskId, ToLauncher, Watch};
use crate::protocol::{INLINE_BYTES, Kind};
use crate::scratch::ScratchDir;
use crate::spill::{ResultFile, SettleError, Writers};

/// The signal that makes a worker write its stacks over its socket.
pub(crate) const STACK_SIGNAL: i32 = 42;

/// A process that closed its socket gets this long to be seen dead before it counts as misbehaving.
const CLOSING_GRACE: Duration = Duration::from_millis(20);

/// What the pool says to a worker.
#[derive(Debug)]
pub(crate) enum ToWorker {
    /// Run this.
    Assign {
        dispatch: Dispatch,
        generation: u32,
        frame: CallFrame,
    },
    /// Stop the call you have.
    Cancel,
    /// End; nobody needs you.
    Retire(ExitReason),
}

/// A call as the worker reads it.
#[derive(Debug, Default)]
pub(crate) struct CallFrame {
    pub(crate) payload: Vec<u8>,
    pub(crate) body: Option<OwnedFd>,
    pub(crate) scratch: Option<ScratchDir>,
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
    pub(crate) scratch: Option<ScratchDir>,
    pub(crate) state: State,
    pub(crate) current: Option<Current>,
    pub(crate) pid: Option<u32>,
    pub(crate) proc_files: Option<ProcFiles>,
    pub(crate) start_rss_bytes: Option<u64>,
    pub(crate) stale_frames: u64,
    pub(crate) closed_at: Option<Instant>,
}

/// The call a worker has.
pub(crate) struct Current {
    pub(crate) dispatch: Dispatch,
    pub(crate) generation: u32,
    pub(crate) ack_by: Instant,
    pub(crate) began_ns: Option<u64>,
    pub(crate) finished_ns: Option<u64>,
    pub(crate) usage_before: Option<CpuTimes>,
    pub(crate) base_rss_bytes: Option<u64>,
    pub(crate) file: Option<ResultFile>,
    pub(crate) failure: Option<EngineError>,
    pub(crate) stacks: Vec<u8>,
    pub(crate) armed: bool,
}

impl Current {
    pub(crate) fn new(dispatch: Dispatch, generation: u32, ack_timeout: Duration) -> Self {
        Self {
            dispatch,
            generation,
            ack_by: Instant::now() + ack_timeout,
            began_ns: None,
            finished_ns: None,
            usage_before: None,
            base_rss_bytes: None,
            file: None,
            failure: None,
            stacks: Vec::new(),
            armed: false,
        }
    }

    fn call(&self) -> &Call {
        &self.dispatch.call
    }

    /// Past its deadline: the launcher stops it, if it has not yet.
    fn is_overdue(&self) -> bool {
        let began = self.call().timeout.zip(self.began_ns);
        began.is_some_and(|(timeout, began_ns)| {
            u128::from(now_ns().saturating_sub(began_ns)) >= timeout.as_nanos()
        })
    }
}

impl Worker {
    /// Until nothing is left of the process.
    pub(crate) async fn drive(mut self) {
        while !matches!(self.state, State::Gone) {
            let timer = self.next_timer();
            tokio::select! {
                biased;
                news = self.news.recv() => self.hear_launcher(news.unwrap_or(News::Lost)),
                message = self.mailbox.recv() => match message {
                    Some(message) => self.hear_pool(message),
                    None => self.apply(Event::Retire(ExitReason::Shutdown)),
                },
                // What it says is heard once it is known who it is: the counters at the ack are read by its number.
                () = turn(&mut self.link), if self.pid.is_some() => self.read_frames(),
                () = self.stdout.fill() => self.check_output(),
                () = self.stderr.fill() => self.check_output(),
                done = feed(&mut self.stdin) => if done { self.stdin = None },
                () = until(timer) => self.timer(),
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let ack = match (&self.state, &self.current) {
            (State::Sent { .. }, Some(current)) if self.mode != Mode::Command => {
                Some(current.ack_by)
            }
            // Stopped before the zygote forked: that it forks at all is still waited for.
            (State::Ending(_), Some(current)) if self.pid.is_none() => Some(current.ack_by),
            _ => None,
        };
        [ack, self.closed_at.map(|at| at + CLOSING_GRACE)]
            .into_iter()
            .flatten()
            .min()
    }

    fn timer(&mut self) {
        if let Some(closed) = self.closed_at.take() {
            if self.pid.is_some_and(is_exiting) {
                self.closed_at = Some(closed.max(Instant::now())); // it is on its way out; its end will be told
            } else {
                self.apply(Event::Malformed(
                    "it closed its socket and went on running".into(),
                ));
            }
            return;
        }
        if let (State::Ending(_), Some(current)) = (&self.state, &mut self.current) {
            current.ack_by = Instant::now() + self.site.context.config.ack_timeout;
            return self.kill(Cause::Misbehaved);
        }
        self.apply(Event::AckOverdue);
    }

    fn hear_pool(&mut self, message: ToWorker) {
        match message {
            ToWorker::Assign {
                dispatch,
                generation,
                frame,
            } => {
                let cap = dispatch.call.capture_bytes;
                self.stdout.drain(u64::MAX);
                self.stderr.drain(u64::MAX); // what it wrote between calls is nobody's
                self.stdout.take(cap);
                self.stderr.take(cap);
                self.current = Some(Current::new(
                    dispatch,
                    generation,
                    self.site.context.config.ack_timeout,
                ));
                self.apply(Event::Assigned { generation });
                self.send_call(frame);
            }
            ToWorker::Cancel => self.apply(Event::Stop(Cause::Cancelled)),
            ToWorker::Retire(reason) => self.apply(Event::Retire(reason)),
        }
    }

    pub(crate) fn send_call(&mut self, frame: CallFrame) {
        if let (Some(link), Some(current)) = (&mut self.link, &self.current) {
            link.send(Kind::Call, current.generation, &frame.payload, frame.body);
            self.scratch = frame.scratch;
        }
    }

    fn hear_launcher(&mut self, news: News) {
        if !matches!(news, News::Said(FromLauncher::Spawned { .. })) {
            // It may be the end: a call that was given meanwhile must not go with the mailbox, nor a cancellation.
            while let Ok(message) = self.mailbox.try_recv() {
                self.hear_pool(message);
            }
        }
        match news {
            News::Said(FromLauncher::Spawned { pid, at_ns, .. }) => self.spawned(pid, at_ns),
            News::Said(FromLauncher::Failed { step, errno, .. }) => {
                self.never_was(Unstarted::Spawn { step, errno })
            }
            News::Said(FromLauncher::Hit {
                generation, cause, ..
            }) => {
                self.stamp_end();
                self.apply(Event::Hit { generation, cause });
            }
            News::Said(FromLauncher::Exited { end, .. }) => self.exited(end),
            News::Said(FromLauncher::Ready { .. }) => {}
            News::Lost => self.launcher_lost(),
        }
    }

    fn spawned(&mut self, pid: u32, at_ns: u64) {
        self.pid = Some(pid);
        self.tell(PoolNews::WorkerStarted {
            worker: self.number,
            pid,
        });
        if matches!(self.state, State::Ending(_)) {
            // The kill that was asked for found nobody: the zygote had not forked yet.
            self.kill(Cause::Cancelled);
        }
        if let (Mode::Command, Some(current)) = (self.mode, &mut self.current) {
            current.began_ns = Some(at_ns);
            let generation = current.generation;
            self.apply(Event::Began { generation });
        }
    }

    fn never_was(&mut self, why: Unstarted) {
        let why = match std::mem::replace(&mut self.state, State::Gone) {
            State::Ending(Ending::Stopped(_)) => Unstarted::Cancelled,
            State::Ending(Ending::NoAck) => Unstarted::Spawn {
                step: Step::Zygote,
                errno: libc::ETIMEDOUT,
            },
            _ => why,
        };
        self.clean_up();
        if self.pid.is_some() {
            self.tell(PoolNews::Gone {
                worker: self.number,
                reason: ExitReason::Crashed,
                status: None,
            });
        }
        if let Some(current) = self.current.take() {
            self.tell(PoolNews::Unstarted {
                worker: self.number,
                dispatch: current.dispatch,
                why,
            });
        }
    }

    fn launcher_lost(&mut self) {
        // As before any death is judged: an acknowledged call is never run again.
        if let Some(link) = &mut self.link {
            link.drain();
        }
        self.read_frames();
        let current = self.current.as_ref();
        let began = current.is_some_and(|current| current.began_ns.is_some());
        if !began {
            return self.never_was(Unstarted::LauncherLost);
        }
        self.state = State::Gone;
        self.clean_up();
        let (worker, lives, rss_growth) = (self.number, false, None);
        if let Some(Current { dispatch, .. }) = self.current.take() {
            let answer = Err(EngineError::LauncherLost);
            self.tell(PoolNews::Finished {
                worker,
                dispatch,
                answer,
                lives,
                rss_growth,
            });
        }
        self.tell(PoolNews::Gone {
            worker,
            reason: ExitReason::Crashed,
            status: None,
        });
    }

    /// The tree is gone: what it sent before counts, so it is read first.
    fn exited(&mut self, end: End) {
        if let Some(link) = &mut self.link {
            link.drain();
        }
        self.read_frames();
        self.closed_at = None;
        if let Some(current) = &mut self.current {
            current.finished_ns = current.finished_ns.or(Some(end.at_ns));
        }
        self.apply(Event::Exited(end));
    }

    fn read_frames(&mut self) {
        while let Some(link) = &mut self.link {
            if matches!(self.state, State::Ending(Ending::Stopped(Cause::Timeout))) {
                // From here on the socket carries the stacks of a call that hung.
                let text = link.take_rest();
                if let Some(current) = &mut self.current {
                    let room = usize::try_from(current.call().capture_bytes).unwrap_or(usize::MAX);
                    let keep = room.saturating_sub(current.stacks.len()).min(text.len());
                    current.stacks.extend_from_slice(&text[..keep]);
                }
                return;
            }
            if matches!(self.state, State::Ending(_) | State::Gone) {
                link.take_rest(); // late news of a decided call
                return;
            }
            match link.next() {
                Ok(Some(frame)) => {
                    self.hear_frame(frame.header.kind, frame.header.generation, frame.payload)
                }
                Ok(None) => break,
                // The stacks of a call that hung can be here before the launcher's word that it did.
                Err(_) if self.current.as_ref().is_some_and(Current::is_overdue) => break,
                Err(bad) => self.apply(Event::Malformed(bad.to_string())),
            }
        }
        if let Some(link) = &self.link {
            if link.closed
                && self.closed_at.is_none()
                && !matches!(self.state, State::Ending(_) | State::Gone)
            {
                self.closed_at = Some(Instant::now());
            }
        }
    }

    fn hear_frame(&mut self, kind: Kind, generation: u32, payload: Vec<u8>) {
        let event = match (kind, payload.len()) {
            (Kind::Ack, 0) => {
                self.stamp_begin();
                Event::Began { generation }
            }
            (Kind::Run, 0) => Event::RunsUserCode { generation },
            (Kind::Need, 8) => Event::Needs {
                generation,
                bytes: u64_at(&payload, 0),
            },
            (Kind::Value, _) => {
                self.stamp_end();
                Event::Replied {
                    generation,
                    reply: Reply::Value(Payload::Inline(payload)),
                    blames_setup: false,
                }
            }
            (Kind::Error, _) => {
                self.stamp_end();
                let blames_setup = blames_setup(&payload);
                Event::Replied {
                    generation,
                    reply: Reply::Error(Payload::Inline(payload)),
                    blames_setup,
                }
            }
            (Kind::Filed, 9) => {
                self.stamp_end();
                self.filed(generation, payload[0], u64_at(&payload, 1))
            }
            (kind, length) => Event::Malformed(format!(
                "a frame of kind {kind:?} with {length} bytes is out of place"
            )),
        };
        self.apply(event);
    }

    fn filed(&self, generation: u32, kind: u8, bytes: u64) -> Event {
        let has_file = self
            .current
            .as_ref()
            .is_some_and(|current| current.file.is_some());
        match Kind::from_byte(kind) {
            Some(Kind::Value) if has_file => Event::Replied {
                generation,
                reply: Reply::Value(Payload::Filed(bytes)),
                blames_setup: false,
            },
            Some(Kind::Error) if has_file => Event::Replied {
                generation,
                reply: Reply::Error(Payload::Filed(bytes)),
                blames_setup: false,
            },
            _ => Event::Malformed("it says that an answer is in a file it was not given".into()),
        }
    }

    fn stamp_begin(&mut self) {
        if let (State::Sent { .. }, Some(current)) = (&self.state, &mut self.current) {
            current.began_ns = Some(now_ns());
        }
    }

    fn stamp_end(&mut self) {
        if let (State::Running { .. }, Some(current)) = (&self.state, &mut self.current) {
            current.finished_ns = current.finished_ns.or(Some(now_ns()));
        }
    }

    fn check_output(&mut self) {
        let Some(limit) = self
            .current
            .as_ref()
            .and_then(|current| current.call().limits.output_bytes)
        else {
            return;
        };
        if self.stdout.total() + self.stderr.total() > limit {
            self.stamp_end();
            self.apply(Event::Stop(Cause::OutputLimit));
        }
    }

    /// Takes a step and does what it says.
    fn apply(&mut self, event: Event) {
        let state = std::mem::replace(&mut self.state, State::Gone);
        let (state, action) = step(self.mode, state, event);
        self.state = state;
        match action {
            Action::Wait | Action::Send => {}
            Action::Stale => self.stale_frames += 1,
            Action::Begin => self.begin(),
            Action::Provide(bytes) => self.provide(bytes),
            Action::Answer(reply) => self.answer(reply),
            Action::Kill(cause) => {
                self.stamp_end();
                self.kill(cause);
            }
            Action::Judge { ending, began, end } => self.judge(ending, began, &end),
        }
    }

    fn kill(&self, cause: Cause) {
        let task = self.task;
        let kill = ToLauncher::Kill { task, cause };
        self.site.launcher.send(kill, Vec::new());
    }

    fn begin(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        let began_ns = *current.began_ns.get_or_insert_with(now_ns);
        if let Some(pid) = self.pid {
            current.base_rss_bytes = resident_bytes(pid).ok();
            if self.mode == Mode::Reuse {
                current.usage_before = process_cpu(pid).ok();
                self.start_rss_bytes = self.start_rss_bytes.or(current.base_rss_bytes);
            }
        }
        let watch = watch(&current.dispatch.call, began_ns, self.mode);
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
        self.tell(PoolNews::Began {
            worker: self.number,
        });
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
        let policy = self.site.spill_policy(current.call());
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

    /// A `reuse` worker answered and lives on.
    fn answer(&mut self, reply: Reply) {
        let Some(mut current) = self.current.take() else {
            return;
        };
        if current.armed {
            self.site
                .launcher
                .send(ToLauncher::Disarm { task: self.task }, Vec::new());
        }
        // Disarmed too late, the launcher may be about to kill: no further call is to suffer for this one.
        let lives = !current.is_overdue();
        let most = current.call().limits.output_bytes.unwrap_or(u64::MAX);
        self.stdout.drain(most);
        self.stderr.drain(most);
        let reply = settle(reply, current.file.take(), Writers::MayLive);
        self.clean_up();
        let usage = self.measure(&current);
        let rss_now = usage.rss_bytes;
        let answer = self.conclude(
            current,
            |facts| judge::replied(facts, reply),
            |facts| facts.measured = usage,
        );
        let rss_growth = rss_now
            .zip(self.start_rss_bytes)
            .map(|(now, start)| now.saturating_sub(start));
        let (dispatch, answer) = answer;
        self.tell(PoolNews::Finished {
            worker: self.number,
            dispatch,
            answer,
            lives,
            rss_growth,
        });
        if !lives {
            self.apply(Event::Retire(ExitReason::Timeout));
        }
    }

    fn measure(&mut self, current: &Current) -> judge::Measured {
        let Some(pid) = self.pid else {
            return judge::Measured::default();
        };
        let before = current.usage_before;
        judge::Measured::of_living(pid, before, &mut self.proc_files)
    }

    /// The process and its tree are gone: everything is known.
    fn judge(&mut self, ending: Option<Ending>, began: bool, end: &End) {
        self.stdout.drain(u64::MAX);
        self.stderr.drain(u64::MAX);
        self.clean_up();
        let worker = self.number;
        let reason = judge::exit_reason(ending.as_ref(), self.current.is_some(), self.mode);
        if let Some(mut current) = self.current.take() {
            let stopped = matches!(ending, Some(Ending::Stopped(_) | Ending::Misbehaved(_)));
            if (began && current.began_ns.is_some()) || stopped {
                let ending = match ending {
                    Some(Ending::Replied(reply)) => {
                        Some(Ok(settle(reply, current.file.take(), Writers::Dead)))
                    }
                    Some(other) => Some(Err(other)),
                    None => None,
                };
                let (dispatch, answer) = self.conclude(
                    current,
                    |facts| judge::ended(facts, ending, end),
                    |facts| facts.measured = judge::Measured::of_dead(end),
                );
                self.tell(PoolNews::Finished {
                    worker,
                    dispatch,
                    answer,
                    lives: false,
                    rss_growth: None,
                });
            } else {
                let overdue = matches!(ending, Some(Ending::NoAck));
                let why = if overdue {
                    Unstarted::Overdue
                } else {
                    Unstarted::Died
                };
                self.tell(PoolNews::Unstarted {
                    worker,
                    dispatch: current.dispatch,
                    why,
                });
            }
        }
        self.tell(PoolNews::Gone {
            worker,
            reason,
            status: Some(judge::exit_of(end.status)),
        });
    }

    /// Puts together all that is known of a call and has it judged.
    fn conclude(
        &mut self,
        mut current: Current,
        verdict: impl FnOnce(Facts<'_>) -> crate::dispatch::Answer,
        measured: impl FnOnce(&mut Facts<'_>),
    ) -> (Dispatch, crate::dispatch::Answer) {
        if let Some(failure) = current.failure.take() {
            return (current.dispatch, Err(failure));
        }
        let mut facts = Facts {
            call: &current.dispatch.call,
            mode: self.mode,
            clock: self.site.context.clock,
            submitted_ns: current.dispatch.submitted_ns,
            began_ns: current.began_ns,
            finished_ns: current.finished_ns,
            base_rss_bytes: current.base_rss_bytes,
            worker_pid: self.pid,
            worker_id: &self.id,
            node_id: &self.site.context.config.node_id,
            stdout: self.stdout.take(0),
            stderr: self.stderr.take(0),
            stacks: &current.stacks,
            measured: judge::Measured::default(),
        };
        measured(&mut facts);
        let answer = verdict(facts);
        (current.dispatch, answer)
    }

    fn clean_up(&mut self) {
        if let Some(scratch) = self.scratch.take() {
            self.site.context.remove_scratch(scratch);
        }
    }

    fn tell(&self, news: PoolNews) {
        self.site.context.news.send(news).ok(); // the pool outlives its workers but for a dropped backend
    }
}

/// What the launcher watches while a call runs.
fn watch(call: &Call, began_ns: u64, mode: Mode) -> Watch {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let Some(timeout) = call.timeout else {
        return Watch {
            grace_ns: 0,
            dump_signal: None,
            deadline_ns: None,
            ..limits(call)
        };
    };
    Watch {
        deadline_ns: Some(began_ns.saturating_add(ns(timeout))),
        grace_ns: ns(call.term_grace),
        dump_signal: (mode != Mode::Command).then_some(STACK_SIGNAL),
        ..limits(call)
    }
}

fn limits(call: &Call) -> Watch {
    Watch {
        memory_bytes: call.limits.memory_bytes,
        cpu_ns: call
            .limits
            .cpu
            .map(|cpu| u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX)),
        processes: call.limits.processes,
        ..Watch::default()
    }
}

/// Makes an answer's bytes safe to read.
fn settle(reply: Reply, file: Option<ResultFile>, writers: Writers) -> Result<Reply, SettleError> {
    let settle = |payload| match (payload, file) {
        (Payload::Filed(size), Some(file)) => file.settle(size, writers).map(Payload::Settled),
        (payload, _) => Ok(payload),
    };
    match reply {
        Reply::Value(payload) => settle(payload).map(Reply::Value),
        Reply::Error(payload) => settle(payload).map(Reply::Error),
    }
}

fn blames_setup(record: &[u8]) -> bool {
    judge::record_verdict(record) == Some("setup_failed".into())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(
        bytes[at..at + 8]
            .try_into()
            .expect("the length was checked"),
    )
}

async fn turn(link: &mut Option<Link>) {
    match link {
        Some(link) => link.turn().await,
        None => std::future::pending().await,
    }
}

async fn feed(input: &mut Option<Input>) -> bool {
    match input {
        Some(input) => input.feed().await,
        None => std::future::pending().await,
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Gone, a zombie, or past its last instruction.
fn is_exiting(pid: u32) -> bool {
    Stat::read(pid).map_or(true, |stat| stat.is_exiting())
}
