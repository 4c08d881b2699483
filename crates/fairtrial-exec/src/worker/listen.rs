//! What a worker says, as events. A stranger's words: nothing here is believed, only passed on in order.

use tokio::time::Instant;

use super::current::Current;
use super::drive::Worker;
use super::initialize::Initializer;
use super::said::Said;
use super::{Ending, Event, Mode, Payload, Reply, State, judge};
use crate::linux::monotonic::now_ns;
use crate::protocol::Kind;
use crate::protocol::launcher::Cause;

impl Worker {
    pub(super) fn read_frames(&mut self) {
        if self.mode == Mode::Reuse && matches!(self.state, State::Ending(_)) {
            self.hear_late();
        }
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
            if matches!(self.state, State::Ending(Ending::Stopped(Cause::Cancelled))) {
                let mut frames = std::iter::from_fn(|| link.next().ok().flatten());
                if frames.any(|frame| frame.header.kind.is_answer()) {
                    self.end_grace();
                }
                return;
            }
            if matches!(self.state, State::Ending(_) | State::Gone) {
                let rest = link.take_rest(); // late news of a decided call
                // Past the deadline it can be stacks: the launcher asked for them before it heard of the reply.
                let stacks = self.current.as_ref().is_some_and(Current::is_overdue);
                let replied = matches!(self.state, State::Ending(Ending::Replied(_)));
                if replied && !stacks && !rest.is_empty() {
                    // One frame is a reply; with more behind it nobody knows which is the answer.
                    let reason = format!("it sent {} bytes after its reply", rest.len());
                    self.state = State::Ending(Ending::Misbehaved(reason));
                }
                return;
            }
            match link.next() {
                Ok(Some(frame)) => {
                    self.hear_frame(frame.header.kind, frame.header.generation, frame.payload)
                }
                // Between calls the shim says nothing, so half a frame is what an earlier call left.
                Ok(None)
                    if matches!(self.state, State::Idle)
                        && self.initializer == Initializer::None
                        && link.has_half() =>
                {
                    if !link.drain() {
                        self.apply(Event::Malformed("half a frame between calls".into()));
                    }
                }
                Ok(None) => break,
                // The stacks of a call that hung can be here before the launcher's word that it did.
                Err(_) if self.current.as_ref().is_some_and(Current::is_overdue) => break,
                Err(bad) => self.apply(Event::Malformed(bad.to_string())),
            }
        }
        let closed = self.link.as_ref().is_some_and(|link| link.closed);
        if closed
            && self.closed_at.is_none()
            && !matches!(self.state, State::Ending(_) | State::Gone)
        {
            self.closed_at = Some(Instant::now());
        }
    }

    fn hear_frame(&mut self, kind: Kind, generation: u32, payload: Vec<u8>) {
        if self.initializer != Initializer::None {
            return self.hear_initializer(kind, generation, payload);
        }
        let said = match Said::read(kind, payload) {
            Ok(said) => said,
            Err(reason) => return self.apply(Event::Malformed(reason)),
        };
        let event = match said {
            Said::Began { stamp_ns, used_ns } => {
                self.stamp_begin(generation, stamp_ns, used_ns);
                Event::Began { generation }
            }
            Said::RunsUserCode => Event::RunsUserCode { generation },
            Said::Skipped => return self.skipped(generation),
            Said::Used { user_ns, system_ns } => return self.used(generation, user_ns, system_ns),
            Said::Needs { bytes } => Event::Needs { generation, bytes },
            Said::Value(payload) if self.is_beyond_file_limit(generation, payload.len()) => {
                Event::Stop(Cause::DiskLimit)
            }
            Said::Value(payload) => {
                self.stamp_end_of(generation);
                Event::Replied {
                    generation,
                    reply: Reply::Value(Payload::Inline(payload)),
                    blames_setup: false,
                }
            }
            Said::Error(payload) => {
                self.stamp_end_of(generation);
                let blames_setup = blames_setup(&payload);
                Event::Replied {
                    generation,
                    reply: Reply::Error(Payload::Inline(payload)),
                    blames_setup,
                }
            }
            Said::Filed { kind, bytes } => {
                self.stamp_end_of(generation);
                self.filed(generation, kind, bytes)
            }
        };
        self.apply(event);
    }

    /// A value is held to the limit on files whichever way it travels (EX-62).
    fn is_beyond_file_limit(&self, generation: u32, length: usize) -> bool {
        self.current.as_ref().is_some_and(|current| {
            let limit = current.call().limits.file_bytes;
            current.generation == generation && limit.is_some_and(|limit| length as u64 > limit)
        })
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

    pub(super) fn used(&mut self, generation: u32, user_ns: u64, system_ns: u64) {
        match &mut self.current {
            Some(current) if current.generation == generation => {
                current.usage = Some((user_ns, system_ns));
            }
            _ => self.stale_frames += 1,
        }
    }

    fn generation(&self) -> Option<u32> {
        self.current.as_ref().map(|current| current.generation)
    }

    fn stamp_begin(&mut self, of: u32, stamp_ns: u64, used_ns: u64) {
        if let (State::Sent { generation }, Some(current)) = (&self.state, &mut self.current)
            && *generation == of
        {
            current.began(stamp_ns);
            current.cpu_before_ns = Some(used_ns);
        }
    }

    /// News of another dispatch says nothing of when this one ended.
    pub(super) fn stamp_end_of(&mut self, of: u32) {
        if matches!(self.state, State::Running { generation, .. } if generation == of) {
            self.stamp_end();
        }
    }

    pub(super) fn stamp_end(&mut self) {
        if let (State::Running { .. }, Some(current)) = (&self.state, &mut self.current) {
            current.finished_ns = current.finished_ns.or(Some(now_ns()));
        }
    }

    pub(super) fn check_output(&mut self) {
        if self.initializer != Initializer::None {
            return; // no call's output
        }
        let Some(limit) = self
            .current
            .as_ref()
            .and_then(|current| current.call().limits.output_bytes)
        else {
            return;
        };
        if self.stdout.total() + self.stderr.total() > limit {
            let writer = self.generation();
            if matches!(self.state, State::Sent { .. }) {
                self.catch_up(); // it acknowledged before it wrote
            }
            self.settle();
            if self.generation() == writer {
                self.stamp_end();
                self.apply(Event::Stop(Cause::OutputLimit));
            }
        }
    }
}

fn blames_setup(record: &[u8]) -> bool {
    judge::record_verdict(record) == Some("setup_failed".into())
}
