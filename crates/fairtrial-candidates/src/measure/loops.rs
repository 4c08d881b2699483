//! The two loop counts between which a side's time per loop is measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::run::{RunOrder, Side};

/// Few loops and many. The difference of their times is the loops' own: start-up and shutdown are in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopCounts {
    /// 0, or 1 where the command refuses 0.
    pub low: u32,
    /// More than `low`.
    pub high: u32,
}

impl LoopCounts {
    /// Loops that the difference is of.
    #[must_use]
    pub fn between(self) -> f64 {
        f64::from(self.high.saturating_sub(self.low).max(1))
    }
}

/// The loop counts of each side for one bench command; of none where whole runs are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slopes(BTreeMap<Side, LoopCounts>);

impl Slopes {
    /// Counts of one side; those of the base are also the control's, and of candidates without their own.
    pub fn set(&mut self, side: Side, counts: LoopCounts) {
        self.0.insert(side, counts);
    }

    /// How often a side loops; none where whole runs are compared.
    #[must_use]
    pub fn of(&self, side: &Side) -> Option<LoopCounts> {
        let own = self.0.get(side).or_else(|| self.0.get(&Side::Base));
        own.copied()
    }

    /// Whether a run is the one of few loops.
    pub(crate) fn is_low(&self, order: &RunOrder) -> bool {
        let counts = self.of(&order.side);
        counts.is_some_and(|counts| order.loops == Some(counts.low))
    }

    /// Whether the time per loop is compared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Side, LoopCounts)> for Slopes {
    fn from_iter<I: IntoIterator<Item = (Side, LoopCounts)>>(counts: I) -> Self {
        Self(counts.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FA-18
    #[test]
    fn the_control_and_candidates_without_counts_loop_as_the_base() {
        let base = LoopCounts { low: 0, high: 8 };
        let own = LoopCounts { low: 0, high: 440 };
        let candidate = |id: &str| Side::Candidate(id.to_owned());
        let slopes: Slopes = [(Side::Base, base), (candidate("c-1"), own)]
            .into_iter()
            .collect();
        assert_eq!(slopes.of(&Side::Control), Some(base));
        assert_eq!(slopes.of(&candidate("c-2")), Some(base));
        assert_eq!(slopes.of(&candidate("c-1")), Some(own));
        assert_eq!(Slopes::default().of(&Side::Base), None);
    }
}
