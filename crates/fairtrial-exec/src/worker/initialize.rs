//! What comes before the first call of a worker on a host's terms: where it is, and its initializer (PY-24).
//!
//! An initializer belongs to no call: it is given the time it takes, and a call that waits for it is still queued.

use std::io;

use tokio::time::Instant;

use super::call_frame::initialize_frame;
use super::current::Current;
use super::drive::Worker;
use super::{Event, Payload, Reply, State};
use crate::call::HostTerms;
use crate::error::EngineError;
use crate::protocol::{FIRST_GENERATION, Kind};

/// How far a worker's initializer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initializer {
    /// There is none, or it has returned.
    None,
    /// On its way; nothing says that it began.
    Sent,
    /// Begun.
    Runs,
}

impl Worker {
    /// Tells a worker what its host gives it, before anything else.
    pub(crate) fn initialize(&mut self, host: &HostTerms) -> io::Result<()> {
        let frame = initialize_frame(&self.site, host, &self.id).map_err(|error| match error {
            EngineError::Io { source, .. } => source,
            other => io::Error::other(other),
        })?;
        if let Some(link) = &mut self.link {
            link.send(
                Kind::Initialize,
                FIRST_GENERATION,
                &frame.payload,
                frame.body,
            );
        }
        if host.initializer.is_some() {
            self.initializer = Initializer::Sent;
        }
        Ok(())
    }

    pub(super) fn hear_initializer(&mut self, kind: Kind, generation: u32, payload: Vec<u8>) {
        match (self.initializer, kind) {
            _ if generation != FIRST_GENERATION => self.stale_frames += 1,
            (Initializer::Sent, Kind::Ack) if payload.len() == 8 => {
                self.initializer = Initializer::Runs
            }
            (Initializer::Runs, Kind::Ready) => self.initialized(),
            (Initializer::Runs, Kind::Error) => {
                self.apply(Event::Unprepared(Reply::Error(Payload::Inline(payload))));
            }
            (_, kind) => self.apply(Event::Malformed(format!(
                "a frame of kind {kind:?} is out of place before the first call"
            ))),
        }
    }

    /// The first call can go, and its clock starts. What the initializer wrote is not its output.
    fn initialized(&mut self) {
        self.initializer = Initializer::None;
        self.stdout.drain_known();
        self.stderr.drain_known();
        if let Some(mut current) = self.current.take() {
            current.ack_by = Instant::now() + self.site.context.config.ack_timeout;
            self.open_streams(&current.dispatch);
            self.current = Some(current);
            self.send_call();
        }
    }

    /// Until when the call that waits for the initializer may wait.
    pub(super) fn queue_deadline(&self) -> Option<Instant> {
        match (self.initializer, &self.state, &self.current) {
            (Initializer::None, ..) => None,
            (_, State::Sent { .. }, Some(current)) => current.dispatch.queue_deadline,
            _ => None,
        }
    }

    /// Its call waited too long; the worker goes on.
    pub(super) fn give_back_unsent(&mut self) {
        let Some(Current {
            dispatch, scratch, ..
        }) = self.current.take()
        else {
            return;
        };
        self.keep_scratch(scratch);
        for output in [&mut self.stdout, &mut self.stderr] {
            output.take(0);
            output.lead_to(None);
        }
        self.give_back(vec![dispatch]);
    }
}
