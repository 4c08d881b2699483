//! The runs of one side in one block: one of the whole program, or two whose difference is the loops' own time.

use super::loops::LoopCounts;
use super::run::{Measured, Metric, Run};

/// The least net time, as a share of the run of many loops: a difference below is taken as this, so that it has a
/// logarithm and stays on its side of all others.
const LEAST_NET_SHARE: f64 = 1e-3;

/// One side's runs in a block, of one repeat.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    /// The run of few loops; none where whole runs are compared.
    low: Option<Run>,
    /// The run of many loops, or of the whole program.
    high: Option<Run>,
}

/// A cost, and whether it is only a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    pub(crate) value: f64,
    /// The loops took no measurable time.
    pub(crate) is_bound: bool,
}

impl Pair {
    /// Takes a run. One of another repeat replaces all.
    pub(crate) fn put(&mut self, run: Run, is_low: bool) {
        if self
            .repeat()
            .is_some_and(|repeat| repeat != run.order.repeat)
        {
            *self = Self::default();
        }
        match is_low {
            true => self.low = Some(run),
            false => self.high = Some(run),
        }
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.low.iter().chain(&self.high)
    }

    pub(crate) fn repeat(&self) -> Option<u32> {
        self.runs().next().map(|run| run.order.repeat)
    }

    /// By a metric: per loop, or of the whole run. None unless all of it was measured.
    pub(crate) fn cost(&self, counts: Option<LoopCounts>, metric: Metric) -> Option<Cost> {
        let high = self.high.as_ref()?;
        match counts {
            None => Some(Cost {
                value: high.measured.value(metric)?,
                is_bound: false,
            }),
            Some(counts) => {
                cost_per_loop(&self.low.as_ref()?.measured, &high.measured, counts, metric)
            }
        }
    }

    /// Whether both runs are there and their difference is not above 0.
    pub(crate) fn has_no_net(&self, counts: Option<LoopCounts>, metric: Metric) -> bool {
        self.cost(counts, metric).is_some_and(|cost| cost.is_bound)
    }
}

/// The difference of two runs per loop.
pub(crate) fn cost_per_loop(
    low: &Measured,
    high: &Measured,
    counts: LoopCounts,
    metric: Metric,
) -> Option<Cost> {
    let (low, high) = (low.value(metric)?, high.value(metric)?);
    let least = high * LEAST_NET_SHARE;
    let net = high - low;
    Some(Cost {
        value: net.max(least) / counts.between(),
        is_bound: net < least,
    })
}

#[cfg(test)]
mod tests {
    use super::super::simulation::timed;
    use super::*;

    const COUNTS: LoopCounts = LoopCounts { low: 1, high: 11 };

    /// FA-18
    #[test]
    fn the_difference_counts_per_loop_and_start_up_does_not() {
        for startup_s in [0.0, 0.1, 5.0] {
            let (low, high) = (timed(startup_s + 0.02), timed(startup_s + 0.22));
            let cost = cost_per_loop(&low, &high, COUNTS, Metric::Wall).unwrap();
            assert!(
                (cost.value - 0.02).abs() < 1e-9 && !cost.is_bound,
                "{cost:?}"
            );
        }
    }

    /// FA-18
    #[test]
    fn a_difference_that_is_not_above_0_is_a_small_bound_and_finite() {
        for low_s in [0.1, 0.15, 9.0] {
            let cost = cost_per_loop(&timed(low_s), &timed(0.1), COUNTS, Metric::Wall).unwrap();
            assert!(cost.is_bound && cost.value > 0.0 && cost.value.ln().is_finite());
            assert!(cost.value < 1e-4, "{cost:?}");
        }
        let unmeasured = cost_per_loop(&timed(0.1), &timed(0.2), COUNTS, Metric::Cpu);
        assert_eq!(unmeasured, None, "no processor time was measured");
    }
}
