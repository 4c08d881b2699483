//! Since when a server does not answer, and what is said of that. A server that answers some questions and refuses others
//! (one short of memory takes results, and no tasks) is away and back every few seconds: that is told once a minute.

use std::time::{Duration, Instant};

use crate::dispatch::DispatchError;
use crate::jitter::rounded;

/// What was told is not told again so soon.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// What is known of a server's absence.
#[derive(Debug, Default)]
pub(crate) struct Away {
    since: Option<Instant>,
    /// When it was last told, and whether the end of that has yet to be.
    told: Option<(Instant, bool)>,
}

impl Away {
    /// It did not answer; for how long it has not. Says so, and how one goes on.
    pub(crate) fn missed(
        &mut self,
        now: Instant,
        error: &DispatchError,
        goes_on: &str,
    ) -> Duration {
        let since = *self.since.get_or_insert(now);
        if self.is_new(now) {
            log::warn!("{error}; {goes_on}");
        }
        now - since
    }

    /// For how long it has not answered.
    pub(crate) fn time(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now - since)
    }

    /// It answered.
    pub(crate) fn reached(&mut self, now: Instant) {
        let Some(since) = self.since.take() else {
            return;
        };
        if let Some((_, open @ true)) = &mut self.told {
            *open = false;
            log::info!("the server is back after {}", rounded(now - since));
        }
    }

    /// Whether this absence is to be told of; it counts as told from then on.
    fn is_new(&mut self, now: Instant) -> bool {
        let is_new = match self.told {
            None => true,
            Some((_, true)) => false,
            Some((at, false)) => now - at >= TELL_EVERY,
        };
        if is_new {
            self.told = Some((now, true));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> DispatchError {
        DispatchError::Unreachable {
            address: "a".to_owned(),
            problem: "OOM".to_owned(),
        }
    }

    /// CL-57: how long it is away counts from the first question without an answer, and anew after one with.
    #[test]
    fn an_absence_lasts_until_an_answer() {
        let (mut away, begin) = (Away::default(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(away.missed(begin, &refused(), ""), Duration::ZERO);
        assert_eq!(
            away.missed(after(9), &refused(), ""),
            Duration::from_secs(9)
        );
        away.reached(after(10));
        assert_eq!(away.missed(after(12), &refused(), ""), Duration::ZERO);
    }

    /// CL-57
    #[test]
    fn a_server_that_comes_and_goes_is_told_of_once_a_minute() {
        let (mut away, begin) = (Away::default(), Instant::now());
        let told = (0..180).filter(|second| {
            let now = begin + Duration::from_secs(*second);
            let is_new = away.is_new(now);
            away.since = Some(now);
            away.reached(now);
            is_new
        });
        assert_eq!(told.collect::<Vec<u64>>(), [0, 60, 120]);
    }
}
