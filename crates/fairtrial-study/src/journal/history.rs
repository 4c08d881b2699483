//! What became of each run, small enough to hold for a million of them.

use super::record::{StartId, Status};

/// The twelve hexadecimal digits of a run's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RunKey([u8; 6]);

impl RunKey {
    /// Of `run-<12 hex>`; none of any other text.
    pub(super) fn parse(run_id: &str) -> Option<Self> {
        let digits = run_id.strip_prefix("run-")?;
        if digits.len() != 12 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        u64::from_str_radix(digits, 16).ok().map(Self::of)
    }

    /// Of the digits as a number.
    fn of(number: u64) -> Self {
        let [_, _, key @ ..] = number.to_be_bytes();
        Self(key)
    }
}

/// What became of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    key: RunKey,
    /// Starts so far.
    pub starts: u16,
    /// Attempts that ended of their own.
    pub attempts: u16,
    /// How the last of those ended; `Lost` if there is none.
    shown: Option<Status>,
    /// How the last start ended.
    pub last: Status,
    /// The start whose end is shown; 0 if there is none.
    shown_start: u32,
    /// The last start.
    last_start: u32,
    /// The first digits of what the shown start was.
    identity: [u8; 7],
    /// Whether an attempt ended as a failure, were it not the last.
    has_failed: bool,
}

/// The part of an identity's text that is a hash of all of it: enough to see that nothing changed.
fn digits_of(identity: &str) -> [u8; 7] {
    let hash = identity.split(':').nth(1).unwrap_or_default();
    let number = hash
        .get(..16)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let [digits @ .., _] = number.unwrap_or_default().to_be_bytes();
    digits
}

impl Past {
    /// Whether the shown start was this.
    pub fn is_same(&self, identity: &str) -> bool {
        self.shown.is_some() && self.identity == digits_of(identity)
    }

    /// The attempt that tables show, and how it ended (ST-70).
    pub fn shown(&self) -> Option<(StartId, Status)> {
        self.shown
            .map(|status| (StartId(i64::from(self.shown_start)), status))
    }

    /// Whether it succeeded, and only after an attempt that failed. What ran again since it changed was not retried.
    pub fn is_retried_success(&self) -> bool {
        self.shown == Some(Status::Success) && self.has_failed
    }

    /// The last start.
    pub fn last_start(&self) -> StartId {
        StartId(i64::from(self.last_start))
    }
}

/// What became of every run.
#[derive(Debug, Default)]
pub struct History {
    /// In the order of keys, once [`History::seal`]ed.
    runs: Vec<Past>,
    /// Starts without an end (ST-45).
    pub lost: u64,
    /// All starts.
    pub starts: u64,
}

impl History {
    /// Adds a start and its end, in the order of starts.
    pub(super) fn add(&mut self, key: RunKey, start: StartId, identity: &str, end: Option<Status>) {
        let start = u32::try_from(start.0).unwrap_or(u32::MAX);
        let status = end.unwrap_or(Status::Lost);
        self.starts += 1;
        self.lost += u64::from(end.is_none());
        let is_own = status.is_its_own();
        self.runs.push(Past {
            key,
            starts: 1,
            attempts: u16::from(is_own),
            shown: is_own.then_some(status),
            last: status,
            shown_start: if is_own { start } else { 0 },
            last_start: start,
            identity: digits_of(identity),
            has_failed: status.is_failure(),
        });
    }

    /// Brings the starts of each run together.
    pub(super) fn seal(&mut self) {
        self.runs.sort_by_key(|past| past.key); // stable: of one run the later start is behind
        self.runs.dedup_by(|later, earlier| {
            let is_same = later.key == earlier.key;
            if is_same {
                earlier.starts = earlier.starts.saturating_add(later.starts);
                earlier.attempts = earlier.attempts.saturating_add(later.attempts);
                earlier.has_failed |= later.has_failed;
                earlier.last = later.last;
                earlier.last_start = later.last_start;
                if later.shown.is_some() {
                    earlier.shown = later.shown;
                    earlier.shown_start = later.shown_start;
                    earlier.identity = later.identity;
                }
            }
            is_same
        });
        self.runs.shrink_to_fit();
    }

    /// What became of a run, if it ever began.
    pub fn of(&self, run_id: &str) -> Option<&Past> {
        self.at(RunKey::parse(run_id)?)
    }

    /// As [`History::of`], by the digits of the id as a number.
    pub(crate) fn find(&self, number: u64) -> Option<&Past> {
        self.at(RunKey::of(number))
    }

    fn at(&self, key: RunKey) -> Option<&Past> {
        let place = self.runs.binary_search_by_key(&key, |past| past.key).ok()?;
        Some(&self.runs[place])
    }

    /// Runs that ever began.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether none did.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(ends: &[(&str, Option<Status>)]) -> History {
        let mut history = History::default();
        for (number, (run, end)) in ends.iter().enumerate() {
            let start = StartId(number as i64 + 1);
            history.add(
                RunKey::parse(run).unwrap(),
                start,
                "1:0011223344556677:a",
                *end,
            );
        }
        history.seal();
        history
    }

    /// ST-70, ST-45
    #[test]
    fn the_last_end_of_its_own_is_shown_and_every_start_counts() {
        let (a, b) = ("run-0000000000aa", "run-0000000000bb");
        let history = history(&[
            (a, Some(Status::Failed)),
            (b, None),
            (a, Some(Status::Cancelled)),
            (a, None),
        ]);
        let past = history.of(a).unwrap();
        assert_eq!(past.shown(), Some((StartId(1), Status::Failed)));
        assert_eq!(
            (past.starts, past.attempts, past.last),
            (3, 1, Status::Lost)
        );
        assert_eq!(past.last_start(), StartId(4));
        assert!(past.is_same("1:0011223344556677:b") && !past.is_same("1:0011223344557777:a"));
        assert_eq!(history.of(b).unwrap().shown(), None);
        assert_eq!((history.starts, history.lost, history.len()), (4, 2, 2));
        assert!(history.of("run-0000000000cc").is_none());
    }

    /// ST-79
    #[test]
    fn only_a_success_after_a_failure_was_retried() {
        let (a, b, c) = ("run-0000000000aa", "run-0000000000bb", "run-0000000000cc");
        let history = history(&[
            (a, Some(Status::Success)),
            (b, Some(Status::Timeout)),
            (c, Some(Status::Success)),
            (a, Some(Status::Success)), // it changed
            (b, Some(Status::Success)),
            (c, Some(Status::Failed)),
        ]);
        let is_retried = [a, b, c].map(|run| history.of(run).unwrap().is_retried_success());
        assert_eq!(is_retried, [false, true, false]);
    }

    /// ST-89
    #[test]
    fn a_run_takes_28_bytes() {
        assert!(size_of::<Past>() <= 28, "{}", size_of::<Past>());
    }
}
