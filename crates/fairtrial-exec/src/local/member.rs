//! A worker as the pool sees it, and what it should be given or spared. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::queue::Lane;
use super::start::Mailbox;
use crate::config::LocalConfig;
use crate::event::{CallId, ExitReason};
use crate::outcome::Outcome;
use crate::sandbox::Terms;
use crate::worker::Mode;

/// Calls that a worker has beyond the one it runs.
const MOST_AHEAD: usize = 16;
/// More are sent when no more than this are left: several at once cost little more than one.
const FEW_AHEAD: usize = 8;
/// Calls that take less are worth sending ahead.
const SHORT_CALL_NS: u64 = 1_000_000;
/// Calls that wait behind a longer one than this go to another slot, if one is free (EX-31).
pub(super) const STUCK_AFTER: Duration = Duration::from_millis(2);

/// A worker as the pool sees it.
pub(super) struct Member {
    pub(super) lane: Lane,
    pub(super) mode: Mode,
    pub(super) id: String,
    pub(super) mailbox: Mailbox,
    /// The call it runs, and those sent ahead.
    pub(super) calls: Vec<CallId>,
    /// When it was last given or done with a call.
    pub(super) since: Instant,
    pub(super) leaving: bool,
    pub(super) served: u64,
    pub(super) born: Instant,
    /// How long its recent calls took; none until it has served one.
    pub(super) recent_ns: Option<u64>,
    /// Its calls write output: which of two wrote what can be told only if the second is sent after the first is done.
    pub(super) loud: bool,
    /// Calls were taken back from it, and it has not yet skipped them all.
    pub(super) skipping: bool,
    /// It is being given calls ahead, up to the most.
    pub(super) filling: bool,
    /// It blamed the set-up for its last call.
    pub(super) blamed: bool,
    /// It did so twice in a row though it had served others: it is given no more, and ends.
    pub(super) spoilt: bool,
    /// Observers know of it.
    pub(super) told: bool,
    /// A call that it has may run for ever.
    pub(super) endless: bool,
    /// What it was confined by when it was made.
    pub(super) terms: Option<Terms>,
}

impl Member {
    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty() && !self.leaving
    }

    /// Whether it may never be done with what it runs.
    pub(super) fn is_endless(&self) -> bool {
        self.endless && !self.calls.is_empty()
    }

    /// Whether its calls are so short that it should have the next ones before it asks (EX-30).
    pub(super) fn takes_ahead(&mut self) -> bool {
        self.filling = self.calls.len() <= if self.filling { MOST_AHEAD } else { FEW_AHEAD };
        self.filling
            && self.mode == Mode::Reuse
            && !self.calls.is_empty()
            && !(self.leaving || self.skipping || self.loud || self.spoilt)
            && self.recent_ns.is_some_and(|ns| ns < SHORT_CALL_NS)
    }

    pub(super) fn learn(&mut self, outcome: &Outcome) {
        self.loud |= !(outcome.stdout.is_empty() && outcome.stderr.is_empty());
        if let Some(wall_ns) = outcome.metrics.wall_ns {
            let recent = self.recent_ns.unwrap_or(wall_ns);
            self.recent_ns = Some((3 * recent + wall_ns) / 4);
        }
    }

    /// Whether calls wait behind one that turned out long.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.calls.len() > 1 && !self.skipping && now >= self.since + STUCK_AFTER
    }
}

/// Whether a worker that just answered is to be replaced.
pub(super) fn recycle(
    config: &LocalConfig,
    member: &Member,
    ok: bool,
    rss_growth: Option<u64>,
) -> Option<ExitReason> {
    let policy = &config.recycle;
    if policy.after_error && !ok {
        Some(ExitReason::AfterError)
    } else if policy.max_calls.is_some_and(|most| member.served >= most) {
        Some(ExitReason::MaxCalls)
    } else if policy
        .max_age
        .is_some_and(|most| member.born.elapsed() >= most)
    {
        Some(ExitReason::MaxAge)
    } else if policy
        .rss_growth
        .zip(rss_growth)
        .is_some_and(|(most, grown)| grown > most)
    {
        Some(ExitReason::RssGrowth)
    } else {
        None
    }
}
