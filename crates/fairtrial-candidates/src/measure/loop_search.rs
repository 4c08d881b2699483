//! How often a side must loop so that the loops' own time can be measured beside its start-up.
//!
//! A search says which run is next and is told its result; it starts nothing and reads no clock. Runs of few loops show
//! start-up and its spread; then the count grows until the difference is long enough, and is tried again.

use super::contamination::Limits;
use super::loops::LoopCounts;
use super::run::Measured;

/// The loops' own time is at least this long.
const LEAST_NET_S: f64 = 0.1;
/// And so many times as long as start-up varies.
const SPREADS: f64 = 10.0;
/// A count aims beyond the least, so that the next run does not fall below it.
const RESERVE: f64 = 1.3;
/// A side whose loops take so many times the least time gets fewer of them.
const TOO_LONG: f64 = 4.0;
/// A first guess from a short run may be far off.
const MOST_GROWTH: f64 = 10.0;
/// A command that loops so often in no time does nothing per loop.
const MOST_LOOPS: f64 = 1e9;
const LOW_RUNS_OF_BASE: usize = 7;
const LOW_RUNS_OF_CANDIDATE: usize = 3;
const HIGH_RUNS: usize = 3;
/// How often a count that seemed enough may turn out too small.
const MOST_REVISIONS: u32 = 3;

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) counts: LoopCounts,
    /// The run of few loops.
    pub(crate) low_s: f64,
    /// How much longer the run of many takes.
    pub(crate) net_s: f64,
    /// How long that should be at least.
    pub(crate) aim_s: f64,
    /// How much runs of few loops differ.
    pub(crate) spread_s: f64,
}

impl Found {
    /// The loops take long enough to be compared.
    pub(crate) fn is_enough(&self) -> bool {
        self.net_s >= 0.8 * self.aim_s
    }

    /// However often it loops, it takes no longer.
    pub(crate) fn is_nothing(&self) -> bool {
        self.net_s <= 2.0 * self.spread_s || self.net_s <= 0.01 * self.aim_s
    }

    /// Start-up and shutdown alone.
    pub(crate) fn startup_s(&self) -> f64 {
        let each_s = self.net_s / self.counts.between();
        (self.low_s - f64::from(self.counts.low) * each_s).max(0.0)
    }
}

/// The search for one side of one bench command.
#[derive(Clone, Debug)]
pub(crate) struct LoopSearch {
    counts: LoopCounts,
    low_runs: Vec<Measured>,
    lows: usize,
    /// Of the present count.
    high_runs: Vec<Measured>,
    /// Given for candidates: the base's.
    aim_s: Option<f64>,
    spread_s: f64,
    longest_s: f64,
    is_fixed: bool,
    revisions: u32,
    is_over: bool,
}

impl LoopSearch {
    /// Of the base, which takes at least `low` loops. Runs should take no longer than `longest_s`.
    pub(crate) fn of_base(low: u32, longest_s: f64) -> Self {
        let high = low + 1;
        Self {
            counts: LoopCounts { low, high },
            low_runs: Vec::new(),
            lows: LOW_RUNS_OF_BASE,
            high_runs: Vec::new(),
            aim_s: None,
            spread_s: 0.0,
            longest_s,
            is_fixed: false,
            revisions: 0,
            is_over: false,
        }
    }

    /// Of the base at a given count, which is only tried.
    pub(crate) fn fixed(counts: LoopCounts, longest_s: f64) -> Self {
        Self {
            counts,
            is_fixed: true,
            ..Self::of_base(counts.low, longest_s)
        }
    }

    /// Of a candidate, from the base's count on.
    pub(crate) fn of_candidate(base: LoopCounts, aim_s: f64, longest_s: f64) -> Self {
        Self {
            counts: base,
            lows: LOW_RUNS_OF_CANDIDATE,
            aim_s: Some(aim_s),
            ..Self::of_base(base.low, longest_s)
        }
    }

    /// How often the next run loops; none when the search is over.
    pub(crate) fn next(&self) -> Option<u32> {
        match (self.is_over, self.low_runs.len() < self.lows) {
            (true, _) => None,
            (false, true) => Some(self.counts.low),
            (false, false) => Some(self.counts.high),
        }
    }

    /// Takes the result of [`LoopSearch::next`].
    pub(crate) fn record(&mut self, measured: Measured) {
        if self.low_runs.len() < self.lows {
            self.low_runs.push(measured);
            self.spread_s = spread(&self.low_runs);
            return;
        }
        self.high_runs.push(measured);
        let (net_s, aim_s) = (self.net_s(), self.aim_s());
        if self.is_fixed {
            self.is_over = self.high_runs.len() == HIGH_RUNS;
        } else if net_s < aim_s {
            self.grow(net_s, aim_s);
        } else if self.high_runs.len() == HIGH_RUNS {
            // One run alone may have been disturbed.
            match net_s > TOO_LONG * aim_s {
                true => self.shrink(net_s, aim_s),
                false => self.is_over = true,
            }
        }
    }

    pub(crate) fn found(&self) -> Found {
        Found {
            counts: self.counts,
            low_s: middle(&self.low_runs),
            net_s: self.net_s(),
            aim_s: self.aim_s(),
            spread_s: self.spread_s,
        }
    }

    fn grow(&mut self, net_s: f64, aim_s: f64) {
        let between = self.counts.between();
        let growth = (RESERVE * aim_s / net_s.max(1e-9)).min(MOST_GROWTH);
        let mut wanted = (between * growth).ceil().min(MOST_LOOPS);
        // Beyond the spread the time per loop is known, and with it how many loops the timeout allows.
        if net_s > self.spread_s {
            let most_s = self.longest_s - middle(&self.low_runs);
            wanted = wanted.min((between * most_s / net_s).floor());
        }
        let is_revision = self.high_runs.len() > 1;
        self.revisions += u32::from(is_revision);
        if wanted > between && self.revisions <= MOST_REVISIONS {
            self.take(wanted);
        } else {
            self.is_over = self.high_runs.len() >= HIGH_RUNS;
        }
    }

    fn shrink(&mut self, net_s: f64, aim_s: f64) {
        let between = self.counts.between();
        let wanted = (between * RESERVE * aim_s / net_s).ceil().max(1.0);
        self.revisions += 1;
        if wanted < between && self.revisions <= MOST_REVISIONS {
            self.take(wanted);
        } else {
            self.is_over = true;
        }
    }

    fn take(&mut self, between: f64) {
        self.counts.high = self.counts.low + between as u32;
        self.high_runs.clear();
    }

    fn net_s(&self) -> f64 {
        middle(&self.high_runs) - middle(&self.low_runs)
    }

    fn aim_s(&self) -> f64 {
        self.aim_s.unwrap_or_else(|| aim_s(self.spread_s))
    }
}

/// How long the loops should take where start-up varies so much.
pub(crate) fn aim_s(spread_s: f64) -> f64 {
    LEAST_NET_S.max(SPREADS * spread_s)
}

/// Wall times of those that nothing disturbed, in order; of all if there is none.
fn undisturbed(runs: &[Measured]) -> Vec<f64> {
    let limits = Limits::from_calibration(runs);
    let time = |run: &Measured| run.wall_s.filter(|wall_s| wall_s.is_finite());
    let quiet = runs.iter().filter(|run| limits.exceeded(run).is_empty());
    let mut times: Vec<f64> = quiet.filter_map(time).collect();
    if times.is_empty() {
        times = runs.iter().filter_map(time).collect();
    }
    times.sort_by(f64::total_cmp);
    times
}

fn middle(runs: &[Measured]) -> f64 {
    let times = undisturbed(runs);
    match times.len() {
        0 => 0.0,
        count => f64::midpoint(times[(count - 1) / 2], times[count / 2]),
    }
}

/// How far apart times are, the slowest of many left out.
fn spread(runs: &[Measured]) -> f64 {
    let mut times = undisturbed(runs);
    if times.len() > 4 {
        times.pop();
    }
    match (times.first(), times.last()) {
        (Some(first), Some(last)) => last - first,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::timed;
    use super::*;

    /// Runs a search on a side of which a run takes `startup_s`, and `each_s` per loop; gives the number of runs too.
    fn searched(mut search: LoopSearch, time: impl Fn(u32, usize) -> f64) -> (Found, usize) {
        let mut runs = 0;
        while let Some(loops) = search.next() {
            search.record(timed(time(loops, runs)));
            runs += 1;
            assert!(runs < 60, "{search:?}");
        }
        (search.found(), runs)
    }

    /// Of start-up, up to one part in twenty more or less.
    fn startup(startup_s: f64, run: usize) -> f64 {
        startup_s * (1.0 + [0.0, 0.05, 0.02, 0.04, 0.01, 0.03][run % 6])
    }

    /// FA-18
    #[test]
    fn the_loops_take_long_enough_however_fast_they_are_and_however_slow_the_start_is() {
        for startup_s in [0.001, 0.02, 0.1, 2.0] {
            for each_s in [3.0, 0.2, 5e-3, 2e-5, 4e-8] {
                for low in [0, 1] {
                    let time =
                        |loops: u32, run| startup(startup_s, run) + each_s * f64::from(loops);
                    let (base, _) = searched(LoopSearch::of_base(low, 30.0), time);
                    let case = format!("{startup_s} {each_s} {low}: {base:?}");
                    assert!(base.is_enough() && !base.is_nothing(), "{case}");
                    assert!(
                        base.aim_s >= 0.1 && base.aim_s >= 9.9 * base.spread_s,
                        "{case}"
                    );
                    let own_s = each_s * base.counts.between();
                    assert!(own_s >= 0.8 * base.aim_s, "{case}");
                    assert!(own_s <= (3.0 * base.aim_s).max(each_s * 1.5), "{case}");
                    let told = base.startup_s();
                    assert!(
                        (told - startup_s).abs() <= 0.06 * startup_s + 1e-3,
                        "{case}"
                    );
                    // 55 times faster, or five times slower: counts of their own, times alike.
                    for ratio in [1.0 / 55.0, 5.0] {
                        let time = |loops: u32, run| {
                            startup(startup_s, run) + ratio * each_s * f64::from(loops)
                        };
                        let search = LoopSearch::of_candidate(base.counts, base.aim_s, 30.0);
                        let (own, _) = searched(search, time);
                        assert!(own.is_enough(), "{ratio}: {own:?} {case}");
                        assert_eq!(own.counts.low, base.counts.low);
                    }
                }
            }
        }
    }

    /// FA-18
    #[test]
    fn a_command_that_does_nothing_per_loop_ends_the_search() {
        let (found, runs) = searched(LoopSearch::of_base(0, 30.0), |_, run| startup(0.05, run));
        assert!(found.is_nothing() && !found.is_enough(), "{found:?}");
        assert!(runs < 30, "{runs}");
    }

    /// FA-18: no count is asked for that would take longer than the timeout allows.
    #[test]
    fn a_short_timeout_bounds_the_loops() {
        let mut search = LoopSearch::of_base(0, 0.4);
        let mut run = 0;
        while let Some(loops) = search.next() {
            // Start-up varies by 50 ms: 0.5 s of loops would be wanted.
            let startup_s = 0.2 + [0.0, 0.05, 0.03, 0.01][run % 4];
            let wall_s = startup_s + 0.01 * f64::from(loops);
            assert!(wall_s < 0.7, "{loops} loops");
            search.record(timed(wall_s));
            run += 1;
            assert!(run < 60);
        }
        let found = search.found();
        assert!(!found.is_enough() && !found.is_nothing(), "{found:?}");
    }

    /// FA-18, CA-71: what was disturbed does not count.
    #[test]
    fn disturbed_runs_are_thrown_away() {
        let mut search = LoopSearch::of_base(0, 30.0);
        let mut run = 0;
        while let Some(loops) = search.next() {
            run += 1;
            let mut measured = timed(0.02 + 1e-4 * f64::from(loops));
            measured.involuntary_switches = Some(1);
            if run % 6 == 3 {
                measured = timed(measured.wall_s.unwrap() + 3.0);
                measured.involuntary_switches = Some(400);
            }
            search.record(measured);
        }
        let found = search.found();
        assert!(found.spread_s < 1e-6, "{found:?}");
        assert!(
            (found.net_s - 1e-4 * found.counts.between()).abs() < 1e-6,
            "{found:?}"
        );
    }

    /// FA-18
    #[test]
    fn a_count_that_is_given_is_only_tried() {
        let counts = LoopCounts { low: 0, high: 7 };
        let search = LoopSearch::fixed(counts, 30.0);
        let (found, runs) = searched(search, |loops, run| {
            startup(0.1, run) + 1e-3 * f64::from(loops)
        });
        assert_eq!((found.counts, runs), (counts, LOW_RUNS_OF_BASE + HIGH_RUNS));
        assert!(!found.is_enough(), "7 ms beside a start that varies by 5");
    }
}
