//! The way to the engine's thread, if that can still be woken.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::answers::Unanswered;
use super::pool::Command;
use crate::event::CallId;
use crate::foreign_host::Guard;
use crate::listener::{Listener, Streams};
use crate::local::Cancels;
use crate::observers::Observers;

/// Where commands go.
pub(super) struct Door {
    /// There until this is dropped.
    commands: Option<mpsc::UnboundedSender<Command>>,
    /// None for an engine in its host's own event loop.
    guard: Option<Arc<Guard>>,
    unanswered: Arc<Unanswered>,
}

impl Door {
    pub(super) fn new(
        commands: mpsc::UnboundedSender<Command>,
        guard: Option<Arc<Guard>>,
        observers: &Arc<Observers>,
    ) -> Self {
        let unanswered = Arc::<Unanswered>::default();
        if let Some(guard) = &guard {
            let (unanswered, observers) = (Arc::clone(&unanswered), Arc::clone(observers));
            guard.on_loss(move || unanswered.give_up(&observers));
        }
        Self {
            commands: Some(commands),
            guard,
            unanswered,
        }
    }

    /// Gives whether somebody will hear it.
    pub(super) fn send(&self, command: Command) -> bool {
        !self.is_lost() && self.send_to_whole(command)
    }

    /// As [`Door::send`] just after it was found not to be lost.
    pub(super) fn send_to_whole(&self, command: Command) -> bool {
        let commands = self.commands.as_ref();
        commands.is_some_and(|commands| commands.send(command).is_ok())
    }

    /// Whether the process closed the engine's descriptors.
    pub(super) fn is_lost(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| !guard.is_sound())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.commands
            .as_ref()
            .is_none_or(mpsc::UnboundedSender::is_closed)
    }

    pub(super) async fn closed(&self) {
        if let Some(commands) = &self.commands {
            commands.closed().await;
        }
    }

    /// Waits for it, unless the engine will never do it.
    pub(super) async fn unless_lost(&self, wait: impl Future<Output = ()>) {
        match &self.guard {
            Some(guard) => tokio::select! {
                () = wait => {}
                () = guard.lost() => {}
            },
            None => wait.await,
        }
    }

    /// Until the thread has ended; `false` if it never will.
    pub(super) fn wait_for_end(&self) -> bool {
        let guard = self.guard.as_ref();
        guard.is_none_or(Guard::wait_for_end)
    }

    /// Has the call answered even if the engine's thread never does it.
    pub(super) fn note(
        &self,
        call: CallId,
        listener: Box<dyn Listener>,
        mut streams: Streams,
    ) -> (Box<dyn Listener>, Streams) {
        if self.guard.is_none() {
            return (listener, streams);
        }
        streams.output = streams.output.map(|tap| tap.branch());
        let output = streams.output.clone();
        (self.unanswered.wait(call, listener, output), streams)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.is_lost() {
            std::mem::forget(self.commands.take()); // the last one wakes the engine by being dropped
        }
    }
}

impl Cancels for Door {
    fn cancel(&self, call: CallId) {
        self.send(Command::Cancel(call)); // an engine that ended has answered
    }
}
