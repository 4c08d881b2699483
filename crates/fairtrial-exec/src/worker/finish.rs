//! The end of a call: its answer made safe to read, its counters read, its directory taken back, the pool told.

use super::current::Current;
use super::drive::Worker;
use super::initialize::Initializer;
use super::judge::{self, Facts};
use super::measured::Measured;
use super::pipes::has_output;
use super::{Ending, Payload, Reply};
use crate::dispatch::{Answer, Dispatch, Finished, PoolNews, Unstarted};
use crate::event::ExitReason;
use crate::outcome::Exit;
use crate::protocol::launcher::{End, ToLauncher};
use crate::scratch::ScratchDir;
use crate::spill::{ResultFile, SettleError, Writers};

/// The kernel's largest pipe for users without privileges.
const MAX_PIPE_BYTES: u64 = 1 << 20;

impl Worker {
    /// A `reuse` worker answered and lives on.
    pub(super) fn answer(&mut self, reply: Reply) {
        let Some(mut current) = self.current.take() else {
            return;
        };
        if current.armed {
            let task = self.task;
            self.site
                .launcher
                .send(ToLauncher::Disarm { task }, Vec::new());
        }
        // No more than a pipe ever holds: a worker that lives could keep us reading.
        let most = current
            .call()
            .limits
            .output_bytes
            .unwrap_or(MAX_PIPE_BYTES)
            .min(MAX_PIPE_BYTES);
        if has_output(&self.stdout, &self.stderr) {
            self.stdout.drain(most);
            self.stderr.drain(most);
        }
        let reply = settle(reply, current.file.take(), Writers::MayLive);
        self.keep_scratch(current.scratch.take());
        let measured = self.measure(&current);
        let rss_growth = measured.rss_bytes.zip(self.start_rss_bytes);
        let rss_growth = rss_growth.map(|(now, start)| now.saturating_sub(start));
        let (dispatch, answer) =
            self.conclude(current, measured, |facts| judge::replied(facts, reply));
        self.tell_finished(dispatch, answer, true, rss_growth);
        self.advance();
    }

    pub(super) fn tell_finished(
        &self,
        dispatch: Dispatch,
        answer: Answer,
        lives: bool,
        rss_growth: Option<u64>,
    ) {
        let worker = self.number;
        let finished = Finished {
            worker,
            dispatch,
            answer,
            lives,
            in_doubt: false,
            lacked: None,
            rss_growth,
        };
        self.tell(PoolNews::Finished(Box::new(finished)));
    }

    pub(super) fn tell_gone(&self, reason: ExitReason, status: Option<Exit>) {
        self.tell(PoolNews::Gone {
            worker: self.number,
            reason,
            status,
            stale_frames: self.stale_frames,
        });
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
    pub(super) fn judge(&mut self, ending: Option<Ending>, began: bool, end: &End) {
        self.stdout.drain(u64::MAX);
        self.stderr.drain(u64::MAX);
        self.clean_up();
        let reason = judge::exit_reason(ending.as_ref(), self.current.is_some(), self.mode);
        if let Some(current) = self.current.take() {
            let decided = matches!(
                ending,
                Some(Ending::Stopped(_) | Ending::Misbehaved(_) | Ending::Unprepared(_))
            );
            if (began && current.began_ns.is_some()) || decided {
                self.judge_call(current, ending, end);
            } else {
                let why = match (ending, self.initializer) {
                    (Some(Ending::NoAck), _) => Unstarted::Overdue,
                    (_, Initializer::Runs) => Unstarted::Uninitialized(judge::exit_of(end.status)),
                    _ if judge::was_killed_from_outside(end) => Unstarted::Killed,
                    _ => Unstarted::Died,
                };
                self.tell(PoolNews::Unstarted {
                    worker: self.number,
                    dispatch: current.dispatch,
                    why,
                });
            }
        }
        self.tell_gone(reason, Some(judge::exit_of(end.status)));
    }

    fn judge_call(&mut self, mut current: Current, ending: Option<Ending>, end: &End) {
        current.finished_ns = current.finished_ns.or(Some(end.at_ns)); // it ended by itself
        // An acknowledgement that was read after the end was sent before it.
        current.began_ns = current.began_ns.map(|began_ns| began_ns.min(end.at_ns));
        let ending = ending.map(|ending| match ending {
            Ending::Replied(reply) | Ending::Unprepared(reply) => {
                Ok(settle(reply, current.file.take(), Writers::Dead))
            }
            other => Err(other),
        });
        // Without a control group the kernel's SIGKILL looks like any other, and only another run could tell.
        let without_doubt;
        let end = match end.host_memory && !current.unseen {
            true => {
                without_doubt = End {
                    host_memory: false,
                    ..end.clone()
                };
                &without_doubt
            }
            false => end,
        };
        let measured = Measured::of_dead(end);
        let (can_run_again, unseen) = (current.can_run_again, current.unseen);
        let (dispatch, answer) =
            self.conclude(current, measured, |facts| judge::ended(facts, ending, end));
        let in_doubt = can_run_again && judge::is_in_doubt(&dispatch.call, &answer, end);
        let lacked = judge::lacked(&dispatch.call, &answer, end).filter(|_| unseen);
        self.tell(PoolNews::Finished(Box::new(Finished {
            worker: self.number,
            dispatch,
            answer,
            lives: false,
            in_doubt,
            lacked,
            rss_growth: None,
        })));
    }

    /// Puts together all that is known of a call and has it judged.
    fn conclude(
        &mut self,
        mut current: Current,
        measured: Measured,
        verdict: impl FnOnce(Facts<'_>) -> Answer,
    ) -> (Dispatch, Answer) {
        // What it writes from now on is nobody's, and a tap ends with its call.
        self.stdout.lead_to(None);
        self.stderr.lead_to(None);
        if let Some(failure) = current.failure.take() {
            return (current.dispatch, Err(failure));
        }
        let facts = Facts {
            call: &current.dispatch.call,
            mode: self.mode,
            means: &self.site.context.means,
            clock: self.site.context.clock,
            submitted_ns: current.dispatch.submitted_ns,
            began_ns: current.began_ns,
            finished_ns: current.finished_ns,
            base_rss_bytes: current.base_rss_bytes,
            waited_before_ns: current.waited_before_ns,
            worker_pid: self.pid,
            worker_id: &self.id,
            node_id: &self.site.context.config.node_id,
            stdout: self.stdout.take(0),
            stderr: self.stderr.take(0),
            stacks: &current.stacks,
            measured,
            upper: current.upper.take(),
        };
        let mut answer = verdict(facts);
        if let Ok(outcome) = &mut answer {
            outcome.tried_alone = current.dispatch.first.take();
        }
        (current.dispatch, answer)
    }

    /// Takes back a call's directory: an untouched one for the next call, others go.
    pub(crate) fn keep_scratch(&mut self, scratch: Option<ScratchDir>) {
        let Some(mut scratch) = scratch else { return };
        if scratch.is_pristine() {
            self.own_scratch.push(scratch);
        } else {
            self.site.context.remove_scratch(scratch);
        }
    }

    /// The processes are gone: their directories can be anybody's.
    pub(super) fn clean_up(&mut self) {
        let current = self
            .current
            .as_mut()
            .and_then(|current| current.scratch.take());
        for scratch in self.own_scratch.drain(..).chain(current) {
            self.site.context.return_scratch(scratch);
        }
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
