//! The loop that waits for a worker: turns socket, pipes, timers and the launcher's word into events, performs actions.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ahead::Ahead;
use super::call_frame::{CallFrame, call_frame};
use super::judge::{self, Facts, Measured};
use super::link::Link;
use super::pipes::{Input, Output};
use super::{Action, Ending, Event, Mode, Payload, Reply, State, step};
use crate::call::{Call, Work};
use crate::clock::now_ns;
use crate::dispatch::{Dispatch, PoolNews, Site, Unstarted, WorkerNumber};
use crate::error::EngineError;
use crate::event::{CallId, ExitReason};
use crate::launcher::News;
use crate::linux::cpu_clock::process_cpu_ns;
use crate::linux::proc_files::ProcFiles;
use crate::linux::proc_status::{Stat, resident_bytes};
use crate::protocol::launcher::{Cause, End, FromLauncher, TaskId, ToLauncher, Watch};
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
    own_scratch: Vec<ScratchDir>,
    pub(crate) ahead: Ahead,
    pub(crate) state: State,
    pub(crate) current: Option<Current>,
    pub(crate) pid: Option<u32>,
    pub(crate) proc_files: Option<ProcFiles>,
    pub(crate) start_rss_bytes: Option<u64>,
    /// The kernel's high-water mark is an earlier call's.
    pub(crate) peak_is_stale: bool,
    pub(crate) stale_frames: u64,
    pub(crate) closed_at: Option<Instant>,
}

/// The call a worker has.
pub(crate) struct Current {
    pub(crate) dispatch: Dispatch,
    pub(crate) generation: u32,
    pub(crate) frame: Option<CallFrame>,
    pub(crate) scratch: Option<ScratchDir>,
    /// It was sent while another ran.
    pub(crate) ahead: bool,
    /// Processor time as the worker read it.
    pub(crate) usage: Option<(u64, u64)>,
    pub(crate) ack_by: Instant,
    pub(crate) began_ns: Option<u64>,
    pub(crate) finished_ns: Option<u64>,
    pub(crate) cpu_before_ns: Option<u64>,
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
            frame: None,
            scratch: None,
            ahead: false,
            usage: None,
            ack_by: Instant::now() + ack_timeout,
            began_ns: None,
            finished_ns: None,
            cpu_before_ns: None,
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
            state: State::Idle,
            current: None,
            pid: None,
            proc_files: None,
            start_rss_bytes: None,
            peak_is_stale: false,
            stale_frames: 0,
            closed_at: None,
        };
        (mailbox_sender, worker)
    }

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
                () = turn(&mut self.link) => self.read_frames(),
                () = self.stdout.fill() => self.check_output(),
                () = self.stderr.fill() => self.check_output(),
                done = feed(&mut self.stdin) => if done { self.stdin = None },
                () = until(timer) => self.timer(),
            }
        }
        self.give_back_all();
        // A call that was on its way to a worker that is gone.
        self.mailbox.close();
        while let Ok(message) = self.mailbox.try_recv() {
            if let ToWorker::Assign { dispatch, .. } | ToWorker::Ahead { dispatch, .. } = message {
                let (worker, why) = (self.number, Unstarted::Died);
                self.tell(PoolNews::Unstarted {
                    worker,
                    dispatch,
                    why,
                });
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let ack = match (&self.state, &self.current) {
            (State::Sent { .. }, Some(current)) if self.mode != Mode::Command => {
                Some(current.ack_by)
            }
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
        self.apply(Event::AckOverdue);
    }

    fn hear_pool(&mut self, message: ToWorker) {
        match message {
            ToWorker::Assign {
                dispatch,
                generation,
            } => self.assigned(dispatch, generation),
            ToWorker::Ahead {
                dispatch,
                generation,
            } => self.send_ahead(dispatch, generation),
            ToWorker::TakeBack => self.take_back(),
            ToWorker::Cancel(id) => match &self.current {
                Some(current) if current.dispatch.id == id => {
                    self.apply(Event::Stop(Cause::Cancelled))
                }
                _ => self.cancel_ahead(id),
            },
            ToWorker::Retire(reason) => self.apply(Event::Retire(reason)),
        }
    }

    /// A Python call for a worker that waits for one.
    pub(crate) fn assigned(&mut self, dispatch: Dispatch, generation: u32) {
        match self.prepare(&dispatch) {
            Ok((frame, scratch)) => {
                self.reset_peak();
                self.take(dispatch, generation, Some(frame), scratch);
            }
            Err(error) => self.refuse(dispatch, error),
        }
    }

    /// A call's frame, and its scratch directory if it is to have one.
    pub(crate) fn prepare(
        &mut self,
        dispatch: &Dispatch,
    ) -> Result<(CallFrame, Option<ScratchDir>), EngineError> {
        let scratch = match (&dispatch.call.work, self.own_scratch.pop()) {
            (Work::Source(_), Some(scratch)) => Some(scratch),
            (Work::Source(_), None) => Some(self.site.context.make_scratch()?),
            (_, unused) => {
                self.own_scratch.extend(unused);
                None
            }
        };
        let frame = call_frame(
            &self.site,
            &dispatch.call,
            &self.id,
            self.mode,
            scratch.as_ref(),
        )?;
        Ok((frame, scratch))
    }

    /// Makes a call this worker's own.
    pub(crate) fn take(
        &mut self,
        dispatch: Dispatch,
        generation: u32,
        frame: Option<CallFrame>,
        scratch: Option<ScratchDir>,
    ) {
        // What it wrote between calls is nobody's.
        self.stdout.drain(u64::MAX);
        self.stderr.drain(u64::MAX);
        self.stdout.take(dispatch.call.capture_bytes);
        self.stderr.take(dispatch.call.capture_bytes);
        let ack_timeout = self.site.context.config.ack_timeout;
        let current = Current::new(dispatch, generation, ack_timeout);
        self.current = Some(Current {
            frame,
            scratch,
            ..current
        });
        self.apply(Event::Assigned { generation });
    }

    fn send_call(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        if let (Some(link), Some(frame)) = (&mut self.link, current.frame.take()) {
            link.send(Kind::Call, current.generation, &frame.payload, frame.body);
        }
    }

    pub(crate) fn refuse(&mut self, dispatch: Dispatch, error: EngineError) {
        let (worker, lives, rss_growth) = (self.number, true, None);
        self.tell(PoolNews::Finished {
            worker,
            dispatch,
            answer: Err(error),
            lives,
            rss_growth,
        });
    }

    /// A worker that served before starts the next call with its present size as the peak (EX-83).
    fn reset_peak(&mut self) {
        if let Some(files) = self.proc_files.as_ref().filter(|_| self.peak_is_stale) {
            // If it cannot be reset it is not exact, and `measure` says so by leaving it out.
            self.peak_is_stale = files.reset_peak().is_err();
        }
    }

    fn hear_launcher(&mut self, news: News) {
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
        let Some(current) = &mut self.current else {
            return;
        };
        if self.mode == Mode::Command {
            current.began_ns = Some(at_ns);
            let generation = current.generation;
            self.apply(Event::Began { generation });
        } else if current.began_ns.is_some() {
            current.base_rss_bytes = resident(pid); // its acknowledgement was quicker than the launcher's word
        }
    }

    fn never_was(&mut self, why: Unstarted) {
        self.state = State::Gone;
        self.clean_up();
        let worker = self.number;
        match self.current.take() {
            Some(Current { dispatch, .. }) => self.tell(PoolNews::Unstarted {
                worker,
                dispatch,
                why,
            }),
            None => self.tell(PoolNews::Gone {
                worker,
                reason: ExitReason::Crashed,
                status: None,
            }),
        }
    }

    fn launcher_lost(&mut self) {
        let began = matches!(self.state, State::Running { .. } | State::Ending(_));
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
        if self.mode == Mode::Command {
            if let Some(current) = &mut self.current {
                current.finished_ns = current.finished_ns.or(Some(end.at_ns));
            }
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
            (Kind::Skipped, 0) => return self.skipped(),
            (Kind::Usage, 16) => {
                return self.used(generation, u64_at(&payload, 0), u64_at(&payload, 8));
            }
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

    fn used(&mut self, generation: u32, user_ns: u64, system_ns: u64) {
        if let Some(current) = self
            .current
            .as_mut()
            .filter(|current| current.generation == generation)
        {
            current.usage = Some((user_ns, system_ns));
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
    pub(crate) fn apply(&mut self, event: Event) {
        let state = std::mem::replace(&mut self.state, State::Gone);
        let (state, action) = step(self.mode, state, event);
        self.state = state;
        match action {
            Action::Wait => {}
            Action::Send => self.send_call(),
            Action::Stale => self.stale_frames += 1,
            Action::Begin => self.begin(),
            Action::Provide(bytes) => self.provide(bytes),
            Action::Answer(reply) => self.answer(reply),
            Action::Kill(cause) => {
                self.stamp_end();
                self.site.launcher.send(
                    ToLauncher::Kill {
                        task: self.task,
                        cause,
                    },
                    Vec::new(),
                );
            }
            Action::Judge { ending, began, end } => self.judge(ending, began, &end),
        }
    }

    fn begin(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        let call_id = current.dispatch.id;
        let began_ns = *current.began_ns.get_or_insert_with(now_ns);
        if let Some(pid) = self.pid {
            current.base_rss_bytes = resident(pid);
            if self.mode == Mode::Reuse {
                current.cpu_before_ns = process_cpu_ns(pid).ok();
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
        let most = current.call().limits.output_bytes.unwrap_or(u64::MAX);
        self.stdout.drain(most);
        self.stderr.drain(most);
        let reply = settle(reply, current.file.take(), Writers::MayLive);
        self.keep_scratch(current.scratch.take());
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
            lives: true,
            rss_growth,
        });
        self.advance();
    }

    fn measure(&mut self, current: &Current) -> Measured {
        let Some(pid) = self.pid else {
            return Measured::default();
        };
        if current.ahead || !self.ahead.is_empty() {
            // The next call has begun by now: what the kernel says is no longer this one's alone.
            self.peak_is_stale = true;
            return Measured::by_worker(current.usage);
        }
        if self.proc_files.is_none() {
            self.proc_files = ProcFiles::open(pid).ok(); // what cannot be read is reported as not measured
        }
        let Some(files) = &mut self.proc_files else {
            return Measured::default();
        };
        let mut measured = Measured::of_living(pid, current.cpu_before_ns, files);
        if std::mem::replace(&mut self.peak_is_stale, true) {
            measured.peak = None;
        }
        measured
    }

    /// The process and its tree are gone: everything is known.
    fn judge(&mut self, ending: Option<Ending>, began: bool, end: &End) {
        self.stdout.drain(u64::MAX);
        self.stderr.drain(u64::MAX);
        self.clean_up();
        if let Some(current) = &mut self.current {
            current.finished_ns = current.finished_ns.or(Some(end.at_ns)); // it ended by itself
        }
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
                    |facts| facts.measured = Measured::of_dead(end),
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
            measured: Measured::default(),
        };
        measured(&mut facts);
        let answer = verdict(facts);
        (current.dispatch, answer)
    }

    /// Takes back a call's directory: an untouched one for the next call, others go.
    pub(crate) fn keep_scratch(&mut self, scratch: Option<ScratchDir>) {
        match scratch {
            Some(scratch) if scratch.is_pristine() => self.own_scratch.push(scratch),
            Some(scratch) => self.site.context.remove_scratch(scratch),
            None => {}
        }
    }

    /// The processes are gone: their directories can be anybody's.
    fn clean_up(&mut self) {
        let current = self
            .current
            .as_mut()
            .and_then(|current| current.scratch.take());
        for scratch in self.own_scratch.drain(..).chain(current) {
            self.site.context.return_scratch(scratch);
        }
    }

    pub(crate) fn tell(&self, news: PoolNews) {
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

/// Resident bytes of a process; none of one that has already ended.
fn resident(pid: u32) -> Option<u64> {
    resident_bytes(pid).ok().filter(|bytes| *bytes > 0)
}

/// Gone, a zombie, or past its last instruction.
fn is_exiting(pid: u32) -> bool {
    Stat::read(pid).map_or(true, |stat| stat.is_exiting())
}
