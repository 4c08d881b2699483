//! How the runs of a plan ended, as far as they began: a fold over what is recorded.

use std::collections::{BTreeMap, HashSet};

use crate::journal::{History, JournalError, Past, Reader, StartId, Status};
use crate::plan::Plan;

/// How many runs of a plan ended how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    /// By [`Status`], as tables show them.
    of: [u64; 8],
    /// Successes whose last evaluation did not go well.
    pub(crate) evaluations_failed: u64,
}

impl Ends {
    /// Those of a plan.
    pub(crate) fn read(
        plan: &Plan<'_>,
        reader: &Reader,
        history: &History,
    ) -> Result<Self, JournalError> {
        let unwell = reader.failed_evaluations()?;
        let mut ends = Self::default();
        for run in plan.runs() {
            if let Some(past) = history.find(run.run_id.number()) {
                ends.add(past, &unwell);
            }
        }
        Ok(ends)
    }

    /// Counts a run. `unwell` are the starts whose last evaluation did not go well.
    pub(crate) fn add(&mut self, past: &Past, unwell: &HashSet<StartId>) {
        let status = past.shown().map_or(past.last, |(_, status)| status);
        self.of[status as usize] += 1;
        if let Some((start, Status::Success)) = past.shown() {
            self.evaluations_failed += u64::from(unwell.contains(&start));
        }
    }

    /// How many ever began.
    pub(crate) fn begun(&self) -> u64 {
        self.of.iter().sum()
    }

    /// By name, without those that there are none of.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let all = Status::ALL
            .into_iter()
            .map(|status| (status.name(), self.of[status as usize]));
        all.filter(|(_, count)| *count > 0).collect()
    }
}
