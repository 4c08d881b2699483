//! Waits that do not fall in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Between half of a time and all of it.
pub(crate) fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.5 + 0.5 * drawn())
}

/// From 0 to 1, drawn anew each time: what the standard library keeps its tables safe with is good enough.
fn drawn() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

/// Longer and longer waits (CL-57).
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::between(Duration::from_millis(50), Duration::from_secs(5))
    }
}

impl Backoff {
    pub(crate) fn between(least: Duration, most: Duration) -> Self {
        Self { next: least, most }
    }

    /// How long to wait now.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.most);
        jittered(now)
    }
}

/// A time as people say it: `8.9 s`, `10 min`, `2 h`.
pub(crate) fn rounded(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let tenths = |number: f64| {
        let text = format!("{number:.1}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    };
    match seconds {
        ..120.0 => format!("{} s", tenths(seconds)),
        ..7200.0 => format!("{} min", tenths(seconds / 60.0)),
        _ => format!("{} h", tenths(seconds / 3600.0)),
    }
}

/// A word that nobody else has.
pub fn nonce() -> String {
    let (one, two) = (RandomState::new(), RandomState::new());
    format!("{:016x}{:016x}", one.hash_one(0_u8), two.hash_one(1_u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CL-57
    #[test]
    fn waits_grow_to_a_bound_and_differ() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = std::iter::repeat_with(|| backoff.next()).take(12).collect();
        assert!(waits[0] <= Duration::from_millis(50));
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(5)));
        assert!(waits[11] >= Duration::from_millis(2500));
        assert_ne!(nonce(), nonce());
    }
}
