//! When runs ran, per invocation: each as a bar where there are few, counted over time where there are many.

use std::collections::BTreeMap;

use crate::journal::Status;
use crate::run_record::RunRecord;

/// Runs that are drawn each by itself.
pub(crate) const MOST_BARS: usize = 400;
/// Steps of time.
const MOST_STEPS: usize = 160;
/// Where steps begin, in nanoseconds.
const FIRST_STEP_NS: i64 = 1_000_000;
/// Statuses that a run can be shown with.
pub(crate) const STATUSES: [Status; 5] = [
    Status::Success,
    Status::Failed,
    Status::Timeout,
    Status::Memory,
    Status::Crashed,
];

/// When runs ran.
#[derive(Default)]
pub(crate) struct Timeline {
    pub(crate) strips: BTreeMap<i64, Strip>,
}

/// When the runs of one invocation ran.
pub(crate) struct Strip {
    /// In nanoseconds since 1970.
    pub(crate) begin_ns: i64,
    pub(crate) end_ns: i64,
    pub(crate) runs: u64,
    /// The first runs: begin, end, status.
    pub(crate) bars: Vec<(i64, i64, Status)>,
    pub(crate) step_ns: i64,
    /// Of each step, ends by status.
    pub(crate) steps: Vec<[u64; STATUSES.len()]>,
}

impl Timeline {
    /// An invocation, with its begin.
    pub(crate) fn invocation(&mut self, id: i64, begin_ns: i64) {
        self.strips.insert(
            id,
            Strip {
                begin_ns,
                end_ns: begin_ns,
                runs: 0,
                bars: Vec::new(),
                step_ns: FIRST_STEP_NS,
                steps: Vec::new(),
            },
        );
    }

    /// A run that ended.
    pub(crate) fn add(&mut self, record: &RunRecord) {
        if let Some(strip) = self.strips.get_mut(&record.start.invocation) {
            strip.add(record.started_at_ns, record.finished_at_ns, record.status);
        }
    }
}

impl Strip {
    fn add(&mut self, begin_ns: i64, end_ns: i64, status: Status) {
        self.runs += 1;
        self.end_ns = self.end_ns.max(end_ns);
        if self.bars.len() < MOST_BARS {
            self.bars.push((begin_ns, end_ns, status));
        }
        // A clock that was set back ends nothing before the beginning.
        let since = (end_ns - self.begin_ns).max(0);
        while since / self.step_ns >= MOST_STEPS as i64 {
            self.widen();
        }
        let step = (since / self.step_ns) as usize;
        if self.steps.len() <= step {
            self.steps.resize(step + 1, [0; STATUSES.len()]);
        }
        if let Some(place) = STATUSES.iter().position(|known| *known == status) {
            self.steps[step][place] += 1;
        }
    }

    /// Twice as long steps.
    fn widen(&mut self) {
        self.step_ns *= 2;
        self.steps = self
            .steps
            .chunks(2)
            .map(|pair| std::array::from_fn(|at| pair.iter().map(|step| step[at]).sum()))
            .collect();
    }

    /// Bars with lanes, as few as hold them side by side.
    pub(crate) fn lanes(&self) -> (Vec<(usize, i64, i64, Status)>, usize) {
        let mut bars = self.bars.clone();
        bars.sort_by_key(|(begin, end, _)| (*begin, *end));
        let mut free: Vec<i64> = Vec::new();
        let laid = bars.into_iter().map(|(begin, end, status)| {
            let lane = free
                .iter()
                .position(|until| *until <= begin)
                .unwrap_or(free.len());
            match free.get_mut(lane) {
                Some(until) => *until = end,
                None => free.push(end),
            }
            (lane, begin, end, status)
        });
        let laid: Vec<_> = laid.collect();
        (laid, free.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-81
    #[test]
    fn a_strip_is_bounded_and_loses_no_run() {
        let mut timeline = Timeline::default();
        timeline.invocation(1, 0);
        let strip = timeline.strips.get_mut(&1).unwrap();
        for run in 0..100_000_i64 {
            strip.add(run * 1_000_000, (run + 2) * 1_000_000, Status::Success);
        }
        assert!(strip.steps.len() <= MOST_STEPS && strip.bars.len() == MOST_BARS);
        assert_eq!(strip.steps.iter().map(|step| step[0]).sum::<u64>(), 100_000);
        assert_eq!(strip.lanes().1, 2);
    }
}
