//! The engine's clock: monotonic, anchored to Unix time once; and waiting for it.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::linux::monotonic::now_ns;

/// What Unix time the monotonic clock began at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    unix_minus_monotonic_ns: i128,
}

impl Clock {
    /// Anchors the monotonic clock to Unix time as of now; later steps of the wall clock change nothing.
    #[expect(clippy::disallowed_methods, reason = "the one place that anchors")]
    pub(crate) fn start() -> Self {
        let unix = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            unix_minus_monotonic_ns: unix.as_nanos().cast_signed() - i128::from(now_ns()),
        }
    }

    /// Unix time of a monotonic instant.
    pub(crate) fn unix_ns(self, monotonic_ns: u64) -> u64 {
        u64::try_from(i128::from(monotonic_ns) + self.unix_minus_monotonic_ns).unwrap_or(0)
    }
}

/// What no clock can hold, or no host lives to see, never comes.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// So long after `start`; none if that is never.
pub(crate) fn after(start: Instant, wait: Duration) -> Option<Instant> {
    (wait < LONGEST).then(|| start + wait)
}

/// For a `select!`: waits until then, and for ever if there is nothing to wait for.
pub(crate) async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// A timer that may ring early and is set again only if it would ring late: setting one sooner than all others wakes
/// the event loop, which costs as much as a short call.
#[derive(Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// As [`until`], or sooner.
    pub(crate) async fn until(&mut self, instant: Option<Instant>) {
        let Some(instant) = instant else {
            return std::future::pending().await;
        };
        match &mut self.0 {
            Some(sleep) if sleep.is_elapsed() || sleep.deadline() > instant => {
                sleep.as_mut().reset(instant);
            }
            Some(_) => {}
            None => self.0 = Some(Box::pin(tokio::time::sleep_until(instant))),
        }
        if let Some(sleep) = &mut self.0 {
            sleep.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_time_that_no_clock_can_hold_never_comes() {
        let now = Instant::now();
        for long in [Duration::MAX, LONGEST] {
            assert_eq!(after(now, long), None);
        }
        let last = after(now, LONGEST - Duration::from_nanos(1));
        let soon = tokio::time::timeout(Duration::from_millis(1), until(last));
        assert!(last.is_some() && soon.await.is_err(), "a timer can be set");
    }

    /// EX-81
    #[test]
    fn differences_survive_the_anchor_exactly() {
        let clock = Clock::start();
        let now = now_ns();
        assert_eq!(clock.unix_ns(now + 12_345) - clock.unix_ns(now), 12_345);
    }
}
