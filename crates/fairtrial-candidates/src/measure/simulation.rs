//! Races without processes: a simulated machine answers at once. Shows error rates, power and cost.

use super::race::Race;
use super::random::Random;
use super::rank::Placing;
use super::run::{Measured, Run, RunOrder, Side};
use super::settings::{Bench, Entrant, Settings};
use super::verdict::{Judgement, Verdict};

/// A machine whose speed drifts and whose noise only ever adds time.
pub(crate) struct Machine {
    random: Random,
    /// The logarithm of how slow it is now.
    pace: f64,
    noise: Noise,
}

#[derive(Clone, Copy)]
pub(crate) struct Noise {
    /// Mean of the time each run loses, as a share.
    pub(crate) usual: f64,
    /// The chance that a run meets another process, and the mean share it then loses.
    pub(crate) disturbed: (f64, f64),
    /// Steady slowing from run to run.
    pub(crate) trend: f64,
    /// Size of random steps of pace from run to run.
    pub(crate) wander: f64,
    /// Whether CPU times tell when a run had to wait, so that it is repeated.
    pub(crate) visible: bool,
}

/// Skewed and drifting.
pub(crate) const SKEWED: Noise = Noise {
    usual: 0.03,
    disturbed: (0.15, 0.4),
    trend: 0.002,
    wander: 0.01,
    visible: false,
};

/// What CA-99 asks for: a program of 10 ms beside one busy process, on two CPUs. A guess until `make bench` measures it.
pub(crate) const BUSY_NEIGHBOUR: Noise = Noise {
    usual: 0.02,
    disturbed: (0.2, 0.3),
    trend: 0.0,
    wander: 0.003,
    visible: false,
};

/// A pinned program on a machine that does little else.
pub(crate) const PINNED: Noise = Noise {
    usual: 0.02,
    disturbed: (0.05, 0.3),
    trend: 0.0,
    wander: 0.003,
    visible: false,
};

impl Machine {
    pub(crate) fn new(seed: u64, noise: Noise) -> Self {
        Self {
            random: Random::stream(seed, "machine", &[]),
            pace: 0.0,
            noise,
        }
    }

    /// A run of a program that needs `cost` seconds on a quiet machine.
    pub(crate) fn run(&mut self, cost: f64) -> Measured {
        let Noise {
            usual,
            disturbed: (chance, loss),
            trend,
            wander,
            ..
        } = self.noise;
        self.pace += trend + wander * (self.unit() - 0.5);
        let busy = cost * self.pace.exp() * (1.0 + usual * self.exponential());
        let waits = self.unit() < chance;
        let wait = if waits {
            cost * loss * self.exponential()
        } else {
            0.0
        };
        let mut measured = timed(busy + wait);
        if self.noise.visible {
            (measured.user_s, measured.system_s) = (Some(busy), Some(0.0));
        }
        measured
    }

    fn unit(&mut self) -> f64 {
        (self.random.u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

/// A run of which only the wall time is known.
pub(crate) fn timed(wall_s: f64) -> Measured {
    Measured {
        wall_s: Some(wall_s),
        ..Measured::default()
    }
}

/// One bench command.
pub(crate) fn bench() -> Vec<Bench> {
    vec![Bench {
        name: "b".to_owned(),
        weight: 1.0,
        ..Bench::default()
    }]
}

/// Candidates `c-00`, `c-01`, each with as many changed lines as its number.
pub(crate) fn entrants(count: u64) -> Vec<Entrant> {
    let entrant = |i| Entrant {
        id: format!("c-{i:02}"),
        changed_lines: i,
    };
    (0..count).map(entrant).collect()
}

/// A candidate of which no more is known than its verdict.
pub(crate) fn placing(id: &str, verdict: Verdict, ratio: f64) -> Placing {
    Placing {
        candidate: Entrant {
            id: id.to_owned(),
            changed_lines: 5,
        },
        judgement: Some(Judgement {
            verdict,
            against_base: verdict,
            leaning: None,
            doubt: None,
            ratio,
            low: ratio,
            high: ratio,
            hodges_lehmann: ratio,
            level: 0.99,
            blocks: 8,
        }),
        confirmation: None,
        equals_leader: false,
        instructions: None,
        failure: None,
    }
}

/// Runs a race to its end; gives what was run.
pub(crate) fn drive(race: &mut Race, mut run: impl FnMut(&RunOrder) -> Measured) -> Vec<Run> {
    let mut runs = Vec::new();
    while let Some(order) = race.next_run() {
        let measured = run(order);
        runs.push(race.record(measured).unwrap());
    }
    runs
}

/// The number of a candidate; the base has none.
pub(crate) fn number(side: &Side) -> Option<usize> {
    match side {
        Side::Candidate(id) => Some(id[2..].parse().unwrap()),
        _ => None,
    }
}

/// The verdict on one candidate of this true ratio.
fn verdict_on(ratio: f64, seed: u64, noise: Noise) -> Verdict {
    let settings = Settings {
        min_effect: 0.0,
        confirm: false,
        seed,
        ..Settings::default()
    };
    let mut machine = Machine::new(seed, noise);
    let mut race = Race::new(settings, 1, bench(), entrants(1)).unwrap();
    drive(&mut race, |order| {
        machine.run(number(&order.side).map_or(0.01, |_| 0.01 * ratio))
    });
    let report = race.report();
    report.ranking[0].judgement.as_ref().unwrap().verdict
}

fn count(verdict: Verdict, verdicts: &[Verdict]) -> f64 {
    verdicts.iter().filter(|other| **other == verdict).count() as f64
}

/// The most out of `n` that chance allows.
fn at_most(alpha: f64, n: u64) -> f64 {
    let n = n as f64;
    alpha * n + 3.0 * (alpha * (1.0 - alpha) * n).sqrt()
}

fn of_the_base_against_itself(series: u64, noise: Noise) {
    let verdicts: Vec<Verdict> = (0..series)
        .map(|seed| verdict_on(1.0, seed, noise))
        .collect();
    let faster = count(Verdict::Faster, &verdicts);
    let slower = count(Verdict::Slower, &verdicts);
    assert_eq!(count(Verdict::Equal, &verdicts), 0.0);
    let said = format!("{faster} faster, {slower} slower of {series}");
    assert!(faster + slower <= at_most(0.05, series), "{said}");
    // Each side has half of alpha for its own. Nothing but the interval holds back `slower`.
    assert!(faster.max(slower) <= at_most(0.025, series), "{said}");
}

/// CA-67
#[test]
fn at_most_alpha_of_5000_series_of_the_base_against_itself_give_a_verdict() {
    of_the_base_against_itself(5000, SKEWED);
}

/// CA-67, CA-71
#[test]
fn repeats_of_disturbed_runs_favour_neither_side() {
    let visible = Noise {
        visible: true,
        ..SKEWED
    };
    of_the_base_against_itself(1000, visible);
}

/// CA-99, simulated
#[test]
fn a_change_of_five_percent_is_found_within_40_blocks() {
    const SERIES: u64 = 400;
    let found = |ratio, verdict| {
        let verdicts = (0..SERIES).map(|seed| verdict_on(ratio, seed, BUSY_NEIGHBOUR));
        count(verdict, &verdicts.collect::<Vec<_>>()) / SERIES as f64
    };
    let slower = found(1.05, Verdict::Slower);
    assert!(slower >= 0.9, "{slower}");
    let faster = found(1.0 / 1.05, Verdict::Faster);
    assert!(faster >= 0.9, "{faster}");
}

/// One at 0.80, three at 0.90, eight at 1.00, eight at 1.10 or more.
const FIELD: [f64; 20] = [
    0.80, 0.90, 0.90, 0.90, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.10, 1.12, 1.15, 1.2, 1.3,
    1.5, 2.0, 3.0,
];

/// Races of the field; the number of runs of each, in order.
fn costs_of_the_field(races: u64, noise: Noise) -> Vec<u64> {
    let cost = |seed| {
        let settings = Settings {
            seed,
            ..Settings::default()
        };
        let mut machine = Machine::new(seed, noise);
        let mut race = Race::new(settings, 1, bench(), entrants(20)).unwrap();
        drive(&mut race, |order| {
            machine.run(number(&order.side).map_or(0.01, |i| 0.01 * FIELD[i]))
        });
        let report = race.report();
        assert_eq!(report.winner.as_deref(), Some("c-00"), "seed {seed}");
        report.tally.runs
    };
    let mut costs: Vec<u64> = (0..races).map(cost).collect();
    costs.sort_unstable();
    costs
}

/// CA-98e: calibration, control and confirmation are counted on our side, but not on the other.
#[test]
fn a_race_of_twenty_costs_at_most_half_of_forty_fixed_blocks() {
    let half = 40 * (FIELD.len() as u64 + 1) / 2;
    let costs = costs_of_the_field(100, PINNED);
    // A control that misses 1 by chance has a race run anew: that is dear, and rare.
    assert!(costs[95] <= half, "{costs:?}");
    let mean = costs.iter().sum::<u64>() / costs.len() as u64;
    assert!(mean * 10 <= half * 8, "{mean}");
}

/// CA-98e: whatever it costs there.
#[test]
fn beside_a_busy_neighbour_the_same_candidate_wins() {
    costs_of_the_field(40, BUSY_NEIGHBOUR);
}
