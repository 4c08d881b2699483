//! Calls sent ahead: a `reuse` worker that runs short calls has the next ones before it asks (EX-30).
//!
//! A wake-up of the engine between two calls would cost more than such a call. Whoever takes a call's count of the
//! semaphore has it: the worker to begin it, the engine to give it to somebody else. So a call is begun or taken back,
//! never both.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use super::call_frame::CallFrame;
use super::current::Current;
use super::drive::Worker;
use super::{Event, State};
use crate::dispatch::{Dispatch, PoolNews};
use crate::error::EngineError;
use crate::event::CallId;
use crate::linux::claims::Claims;
use crate::linux::monotonic::now_ns;
use crate::protocol::Kind;
use crate::protocol::launcher::Cause;
use crate::scratch::ScratchDir;

/// What a worker has been sent beyond the call it runs.
#[derive(Default)]
pub(crate) struct Ahead {
    calls: VecDeque<SentAhead>,
    claims: Option<Claims>,
    /// Calls taken back whose frames the worker has still to skip. Until it has, a new count would be taken for theirs.
    skips_due: Vec<u32>,
    /// Calls whose frames wait to be sent together.
    unsent: u64,
    /// Calls that it said it began after its end was decided.
    begun: Vec<u32>,
    /// One that was cancelled when the worker had taken it: to be stopped as soon as it is its turn.
    cancelled: Option<CallId>,
}

struct SentAhead {
    dispatch: Dispatch,
    generation: u32,
    sent_ns: u64,
    scratch: Option<ScratchDir>,
}

impl Ahead {
    /// Whether calls wait behind the one that runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

impl Worker {
    /// A further call for a worker that has one.
    pub(crate) fn send_ahead(&mut self, mut dispatch: Dispatch, generation: u32) {
        match self.state {
            State::Idle => return self.assigned(dispatch, generation),
            State::Sent { .. } | State::Running { .. } if self.may_have_another() => {}
            _ => {
                // It ends, which can take a while, or has calls to skip: it need not be asked again meanwhile.
                dispatch.goes_alone = true;
                return self.give_back(vec![dispatch]);
            }
        }
        let prepared = self.prepare(&dispatch);
        match prepared {
            Ok((
                CallFrame {
                    payload,
                    body: None,
                },
                scratch,
            )) if self.queue_claimed(generation, &payload) => {
                self.ahead.calls.push_back(SentAhead {
                    dispatch,
                    generation,
                    sent_ns: now_ns(),
                    scratch,
                });
            }
            Ok((_, scratch)) => {
                self.keep_scratch(scratch);
                dispatch.goes_alone = true; // large arguments go with a call of their own
                self.give_back(vec![dispatch]);
            }
            Err(error) => self.refuse(dispatch, error),
        }
    }

    /// An answer beyond the limit on files ends the worker that gave it, which must not be at the next call by then.
    fn may_have_another(&self) -> bool {
        let current = self.current.as_ref().map(|current| &current.dispatch);
        let last = self.ahead.calls.back().map(|sent| &sent.dispatch);
        let last = last.or(current);
        self.ahead.skips_due.is_empty()
            && last.is_none_or(|last| last.call.limits.file_bytes.is_none())
    }

    /// Sends what [`Worker::send_ahead`] queued. The counts first, so that the worker never finds a frame without one.
    pub(super) fn flush_ahead(&mut self) {
        let unsent = std::mem::take(&mut self.ahead.unsent);
        if let (Some(claims), Some(link), 1..) = (&self.ahead.claims, &mut self.link, unsent) {
            claims.add(unsent);
            link.push();
        }
    }

    fn queue_claimed(&mut self, generation: u32, payload: &[u8]) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        let mut descriptor = None;
        if self.ahead.claims.is_none() {
            let Ok(claims) = Claims::new() else {
                return false;
            };
            let Ok(copy) = claims.as_fd().try_clone_to_owned() else {
                return false;
            };
            (self.ahead.claims, descriptor) = (Some(claims), Some(copy));
        }
        link.queue(Kind::Ahead, generation, payload, descriptor);
        self.ahead.unsent += 1;
        true
    }

    /// The call that runs is over: the next one sent ahead is the one to be acknowledged now.
    pub(crate) fn advance(&mut self) {
        let Some(SentAhead {
            dispatch,
            generation,
            sent_ns,
            scratch,
        }) = self.ahead.calls.pop_front()
        else {
            return;
        };
        let cancelled = self
            .ahead
            .cancelled
            .take_if(|id| *id == dispatch.id)
            .is_some();
        self.open_streams(&dispatch);
        let ack_timeout = self.site.context.config.ack_timeout;
        let current = Current::new(dispatch, generation, ack_timeout);
        self.current = Some(Current {
            scratch,
            ahead: true,
            sent_ns,
            ..current
        });
        self.apply(Event::Assigned { generation });
        if cancelled {
            self.apply(Event::Stop(Cause::Cancelled));
        }
    }

    /// Takes back what the worker has not begun, the last sent first.
    pub(crate) fn take_back(&mut self) {
        let mut taken = VecDeque::new();
        while let (Some(claims), false) = (&self.ahead.claims, self.ahead.calls.is_empty()) {
            if !claims.take() {
                break; // the worker took it: it is about to acknowledge
            }
            let sent = self.ahead.calls.pop_back().expect("not empty");
            self.ahead.skips_due.push(sent.generation);
            self.keep_scratch(sent.scratch);
            taken.push_front(sent.dispatch);
        }
        self.give_back(taken.into());
        self.tell_if_skipped();
    }

    /// Cancels one that was sent ahead; all that the worker has not begun goes back to the queue.
    pub(crate) fn cancel_ahead(&mut self, id: CallId) {
        self.take_back();
        if self.ahead.calls.iter().any(|sent| sent.dispatch.id == id) {
            self.ahead.cancelled = Some(id);
        }
    }

    /// The worker skipped a call that had been taken back.
    pub(super) fn skipped(&mut self, generation: u32) {
        let due = self.ahead.skips_due.len();
        self.ahead.skips_due.retain(|skip| *skip != generation);
        if self.ahead.skips_due.len() < due {
            self.tell_if_skipped();
        } else {
            self.stale_frames += 1; // nothing of that number was taken back
        }
    }

    /// What a worker says while it is being ended: which calls it began besides, since those are never run again.
    pub(super) fn hear_late(&mut self) {
        while let Some(link) = &mut self.link {
            match link.next() {
                Ok(Some(frame)) if frame.header.kind == Kind::Ack => {
                    self.ahead.begun.push(frame.header.generation);
                }
                Ok(Some(frame)) if frame.header.kind.is_answer() => self.end_grace(),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// The worker is gone: what it had not acknowledged did not start.
    pub(crate) fn give_back_all(&mut self) {
        let mut unbegun = Vec::new();
        while let Some(sent) = self.ahead.calls.pop_front() {
            self.keep_scratch(sent.scratch);
            if self.ahead.begun.contains(&sent.generation) {
                let problem =
                    "its worker was ended for another call just as it began; it is not run again";
                let problem = problem.to_owned();
                self.tell_finished(
                    sent.dispatch,
                    Err(EngineError::Unavailable { problem }),
                    false,
                    None,
                );
            } else {
                unbegun.push(sent.dispatch);
            }
        }
        self.give_back(unbegun);
    }

    pub(super) fn give_back(&self, dispatches: Vec<Dispatch>) {
        if !dispatches.is_empty() {
            self.tell(PoolNews::GivenBack {
                worker: self.number,
                dispatches,
            });
        }
    }

    fn tell_if_skipped(&self) {
        if self.ahead.skips_due.is_empty() {
            self.tell(PoolNews::CanSendAhead {
                worker: self.number,
            });
        }
    }
}
