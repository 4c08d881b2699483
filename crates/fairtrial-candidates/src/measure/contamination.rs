//! Which runs were disturbed, by counters read from outside. Never by how fast they were.

use serde::{Deserialize, Serialize};

use super::run::Measured;

/// How many runs of the base show what is usual here.
pub const CALIBRATION_RUNS: u32 = 8;

const FACTOR: f64 = 3.0;
const LEAST_SWITCHES: f64 = 10.0;
const LEAST_SHARE: f64 = 0.02;

/// What was over its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Involuntary context switches.
    Switches,
    /// Time the hypervisor took.
    Steal,
    /// Time spent waiting for a CPU.
    Pressure,
    /// Wall time without CPU time.
    Idle,
    /// The run of many loops took no longer than that of few: their difference says nothing.
    NoNetTime,
}

/// What a run may show before it counts as disturbed: switches, and shares of its wall time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Involuntary switches.
    pub switches: f64,
    /// Steal.
    pub steal: f64,
    /// CPU pressure.
    pub pressure: f64,
    /// Wall minus CPU time.
    pub idle: f64,
}

impl Limits {
    /// From runs of the base.
    #[must_use]
    pub fn from_calibration(runs: &[Measured]) -> Self {
        let limit = |cause, least: f64| {
            let seen = runs.iter().filter_map(|run| reading(run, cause)).collect();
            least.max(FACTOR * upper_quartile(seen))
        };
        Self {
            switches: limit(Cause::Switches, LEAST_SWITCHES),
            steal: limit(Cause::Steal, LEAST_SHARE),
            pressure: limit(Cause::Pressure, LEAST_SHARE),
            idle: limit(Cause::Idle, LEAST_SHARE),
        }
    }

    /// What of a run is over. What was not measured is not judged.
    #[must_use]
    pub fn exceeded(&self, run: &Measured) -> Vec<Cause> {
        [
            (Cause::Switches, self.switches),
            (Cause::Steal, self.steal),
            (Cause::Pressure, self.pressure),
            (Cause::Idle, self.idle),
        ]
        .into_iter()
        .filter(|(cause, limit)| reading(run, *cause).is_some_and(|seen| seen > *limit))
        .map(|(cause, _)| cause)
        .collect()
    }
}

fn reading(run: &Measured, cause: Cause) -> Option<f64> {
    let wall = run.wall_s.filter(|wall| *wall > 0.0);
    match cause {
        Cause::Switches => run.involuntary_switches.map(|count| count as f64),
        Cause::Steal => Some(run.steal_s? / wall?),
        Cause::Pressure => Some(run.pressure_s? / wall?),
        // Several threads use more CPU time than wall time.
        Cause::Idle => Some(((wall? - run.cpu_s()?) / wall?).max(0.0)),
        Cause::NoNetTime => None, // of two runs, not of one
    }
}

/// Between the nearest two; 0 of nothing.
fn upper_quartile(mut seen: Vec<f64>) -> f64 {
    seen.sort_unstable_by(f64::total_cmp);
    let Some(last) = seen.len().checked_sub(1) else {
        return 0.0;
    };
    let place = 0.75 * last as f64;
    let (below, above) = (seen[place as usize], seen[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(switches: u64, idle: f64) -> Measured {
        Measured {
            wall_s: Some(1.0),
            user_s: Some(1.0 - idle),
            system_s: Some(0.0),
            involuntary_switches: Some(switches),
            steal_s: Some(0.0),
            ..Measured::default()
        }
    }

    /// CA-71
    #[test]
    fn limits_are_three_upper_quartiles_and_never_below_ten_switches_or_two_percent() {
        let quiet: Vec<Measured> = (0..8).map(|_| run(1, 0.001)).collect();
        let limits = Limits::from_calibration(&quiet);
        assert_eq!((limits.switches, limits.idle), (10.0, 0.02));
        assert_eq!((limits.steal, limits.pressure), (0.02, 0.02));
        let busy: Vec<Measured> = (0..8).map(|i| run(i * 4, 0.0625)).collect();
        let limits = Limits::from_calibration(&busy);
        assert_eq!((limits.switches, limits.idle), (3.0 * 21.0, 3.0 * 0.0625));
    }

    /// CA-71
    #[test]
    fn what_is_over_is_named_and_what_was_not_measured_is_not_judged() {
        let limits = Limits::from_calibration(&[]);
        assert_eq!(limits.exceeded(&run(10, 0.019)), []);
        assert_eq!(limits.exceeded(&run(11, 0.0)), [Cause::Switches]);
        let mut disturbed = run(0, 0.5);
        disturbed.steal_s = Some(0.4);
        assert_eq!(limits.exceeded(&disturbed), [Cause::Steal, Cause::Idle]);
        assert_eq!(limits.exceeded(&Measured::default()), []);
    }

    /// CA-71
    #[test]
    fn a_program_of_many_threads_is_not_idle() {
        let mut run = run(0, 0.0);
        run.user_s = Some(3.5);
        assert_eq!(Limits::from_calibration(&[]).exceeded(&run), []);
    }
}
