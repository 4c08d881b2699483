//! SIGINT, SIGTERM and SIGHUP as something to wait for beside the work.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that mean "stop".
pub(crate) struct Interrupt {
    int: Signal,
    term: Signal,
    /// Not heard if it was ignored when we were started: `nohup` means it.
    hup: Option<Signal>,
}

impl Interrupt {
    /// From now on the signals no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::attempting("cannot listen for signals"));
        Ok(Self {
            int: listen(SignalKind::interrupt())?,
            term: listen(SignalKind::terminate())?,
            hup: match is_ignored(SignalKind::hangup()) {
                true => None,
                false => Some(listen(SignalKind::hangup())?),
            },
        })
    }

    /// Resolves at the next of the signals.
    pub(crate) async fn received(&mut self) {
        self.was_int().await;
    }

    /// Resolves at the next of the signals: whether that was SIGINT.
    pub(crate) async fn was_int(&mut self) -> bool {
        let hup = async {
            match &mut self.hup {
                Some(hup) => hup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.int.recv() => true,
            _ = self.term.recv() => false,
            _ = hup => false,
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

/// As the kernel says; a machine without `/proc` says nothing.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (kind.as_raw_value() - 1)) != 0)
}
