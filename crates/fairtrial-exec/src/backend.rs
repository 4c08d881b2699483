//! The one trait with several implementations.

use std::future::Future;
use std::time::Duration;

use crate::call::Call;
use crate::error::EngineError;
use crate::event::Event;
use crate::outcome::Outcome;

/// Somebody who runs calls.
pub trait Backend: Send + Sync {
    /// Runs a call. Dropping the future cancels: a queued call never starts, a running one is killed.
    fn execute(&self, call: Call) -> impl Future<Output = Result<Outcome, EngineError>> + Send;

    /// As [`Backend::execute`], and cancels the call when `cancelled` comes. A backend that can tells how it ended all
    /// the same, with what it had written by then; where nothing is known there is none.
    fn execute_unless(
        &self,
        call: Call,
        cancelled: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = Option<Result<Outcome, EngineError>>> + Send {
        async move {
            tokio::select! {
                biased;
                answer = self.execute(call) => Some(answer),
                () = cancelled => None,
            }
        }
    }

    /// Takes no more calls and ends as `how` says. May be called again, and before the first call.
    fn shutdown(&self, how: Shutdown) -> impl Future<Output = ()> + Send;

    /// Tells `observer` every event from now on, in order, off the dispatch path, until the backend is gone.
    fn subscribe(&self, observer: Box<dyn FnMut(&Event) + Send>) -> Result<(), EngineError>;
}

/// How a backend ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Return only when all is reaped and all events are delivered.
    pub wait: bool,
    /// Queued calls are cancelled instead of run.
    pub cancel_queued: bool,
    /// Whatever still runs after this long is killed and `cancelled`.
    pub kill_after: Option<Duration>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            wait: true,
            cancel_queued: false,
            kill_after: None,
        }
    }
}

impl Shutdown {
    /// Cancel everything at once.
    #[must_use]
    pub fn now() -> Self {
        Self {
            wait: true,
            cancel_queued: true,
            kill_after: Some(Duration::ZERO),
        }
    }
}
