//! SIGINT and SIGTERM as something to wait for beside the work.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Both signals that mean "stop".
pub(crate) struct Interrupt {
    int: Signal,
    term: Signal,
}

impl Interrupt {
    /// From now on the two signals no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::attempting("cannot listen for signals"));
        Ok(Self {
            int: listen(SignalKind::interrupt())?,
            term: listen(SignalKind::terminate())?,
        })
    }

    /// Resolves at the next of the two signals.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }

    /// The result of `work`, or [`Failure::Interrupted`] with `work` dropped.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.received() => Err(Failure::Interrupted),
            result = work => Ok(result),
        }
    }
}
