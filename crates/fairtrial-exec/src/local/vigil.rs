//! Staying awake for a moment: to put an idle processor to sleep and wake it again can cost more than a short call.
//!
//! Only while processors are idle anyway. Whoever else wants this one takes it from us, which shows as a gap between two
//! looks; then the engine sleeps as usual for a while, since a thread that looks in vain is the last to be run when it
//! matters.

use std::time::{Duration, Instant};

use crate::config::available_cpus;
use crate::foreign_host;

/// How long after the last news.
const LOOK: Duration = Duration::from_micros(100);
/// Between two looks that nobody came between.
const GAP: Duration = Duration::from_micros(500);
/// How long the processor is left to others.
const REST: Duration = Duration::from_millis(50);

/// Whether and until when the engine stays awake.
pub(super) struct Vigil {
    cpus: usize,
    until: Option<Instant>,
    rests_until: Option<Instant>,
}

impl Vigil {
    /// One that is kept, or never.
    pub(super) fn new(is_kept: bool) -> Self {
        Self {
            cpus: if is_kept { available_cpus() } else { 0 },
            until: None,
            rests_until: None,
        }
    }

    /// Something happened, and so many calls run: more may happen soon.
    pub(super) fn keep(&mut self, running: usize) {
        self.until = None;
        if running < self.cpus {
            let now = Instant::now();
            if self.rests_until.is_none_or(|until| until <= now) {
                self.rests_until = None;
                self.until = Some(now + LOOK);
            }
        }
    }

    /// Returns when it is over, letting every other task have its turn meanwhile; without one, never.
    pub(super) async fn pass(&mut self) {
        let Some(until) = self.until else {
            return std::future::pending().await;
        };
        let mut last = Instant::now();
        while last < until {
            std::thread::yield_now(); // to whoever wants this very processor: most likely whom we just woke
            tokio::task::yield_now().await;
            foreign_host::check_loop(); // a loop that never sleeps does not do so by itself
            let now = Instant::now();
            if now - last > GAP {
                self.rests_until = Some(now + REST);
                break;
            }
            last = now;
        }
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;

    fn vigil() -> Vigil {
        Vigil {
            cpus: 2,
            ..Vigil::new(true)
        }
    }

    #[tokio::test]
    async fn it_is_kept_while_processors_are_idle_and_passes() {
        let mut vigil = vigil();
        vigil.keep(2);
        assert!(vigil.until.is_none(), "calls need every processor");
        vigil.keep(1);
        assert!(vigil.until.is_some());
        vigil.pass().await;
        assert!(vigil.until.is_none());
    }

    #[test]
    fn it_is_not_kept_where_it_is_not_wanted() {
        let mut vigil = Vigil::new(false);
        vigil.keep(0);
        assert!(vigil.until.is_none());
    }

    #[tokio::test]
    async fn who_is_pushed_aside_rests() {
        let long = Duration::from_secs(3600); // however slow this machine is just now
        let mut vigil = vigil();
        vigil.until = Some(Instant::now() + long);
        let mut pass = Box::pin(vigil.pass());
        let first =
            std::future::poll_fn(|context| std::task::Poll::Ready(pass.as_mut().poll(context)));
        assert!(first.await.is_pending());
        let end = Instant::now() + 2 * GAP;
        while Instant::now() < end {} // somebody else has the processor
        pass.await;
        assert!(vigil.rests_until.is_some());
        vigil.rests_until = Some(Instant::now() + long);
        vigil.keep(0);
        assert!(vigil.until.is_none());
    }
}
