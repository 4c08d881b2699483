//! Races without processes: a simulated machine answers at once. Shows error rates, power and cost.

use super::race::Race;
use super::random::Random;
use super::run::{Measured, Run, RunOrder, Side};
use super::settings::{Bench, Entrant, Settings};
use super::verdict::Verdict;

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
}

/// Skewed and drifting.
pub(crate) const SKEWED: Noise = Noise {
    usual: 0.03,
    disturbed: (0.15, 0.4),
    trend: 0.002,
    wander: 0.01,
};

/// What CA-99 asks for: a program of 10 ms beside one busy process, on two CPUs. A guess until `make bench` measures it.
pub(crate) const BUSY_NEIGHBOUR: Noise = Noise {
    usual: 0.02,
    disturbed: (0.2, 0.3),
    trend: 0.0,
    wander: 0.003,
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
        } = self.noise;
        self.pace += trend + wander * (self.unit() - 0.5);
        let mut lost = usual * self.exponential();
        if self.unit() < chance {
            lost += loss * self.exponential();
        }
        timed(cost * self.pace.exp() * (1.0 + lost))
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

/// CA-67
#[test]
fn at_most_alpha_of_5000_series_of_the_base_against_itself_give_a_verdict() {
    const SERIES: u64 = 5000;
    let verdicts: Vec<Verdict> = (0..SERIES)
        .map(|seed| verdict_on(1.0, seed, SKEWED))
        .collect();
    let (faster, slower) = (
        count(Verdict::Faster, &verdicts),
        count(Verdict::Slower, &verdicts),
    );
    let at_most = |alpha: f64| {
        let n = SERIES as f64;
        alpha * n + 3.0 * (alpha * (1.0 - alpha) * n).sqrt()
    };
    assert_eq!(count(Verdict::Equal, &verdicts), 0.0);
    assert!(
        faster + slower <= at_most(0.05),
        "{faster} faster, {slower} slower"
    );
    // Nothing but the interval holds back `slower`: half of alpha is its own.
    assert!(slower <= at_most(0.025), "{slower} slower");
    assert!(faster <= at_most(0.025), "{faster} faster");
}

/// CA-99, simulated
#[test]
fn a_change_of_five_percent_is_found_within_40_blocks() {
    const SERIES: u64 = 400;
    let found = |ratio, verdict| {
        let verdicts: Vec<Verdict> = (0..SERIES)
            .map(|seed| verdict_on(ratio, seed, BUSY_NEIGHBOUR))
            .collect();
        count(verdict, &verdicts) / SERIES as f64
    };
    let (slower, faster) = (
        found(1.05, Verdict::Slower),
        found(1.0 / 1.05, Verdict::Faster),
    );
    assert!(slower >= 0.9, "{slower}");
    assert!(faster >= 0.9, "{faster}");
}

/// CA-98e
#[test]
fn a_race_of_twenty_costs_at_most_half_of_forty_fixed_blocks() {
    let ratios: Vec<f64> = [0.80]
        .into_iter()
        .chain([0.90; 3])
        .chain([1.00; 8])
        .chain([1.10, 1.12, 1.15, 1.2, 1.3, 1.5, 2.0, 3.0])
        .collect();
    // The base and each candidate once per block; the control that Fairtrial adds is not granted.
    let fixed = 40 * (ratios.len() as u64 + 1);
    for seed in 0..100 {
        let settings = Settings {
            seed,
            ..Settings::default()
        };
        let mut machine = Machine::new(seed, BUSY_NEIGHBOUR);
        let mut race = Race::new(settings, 1, bench(), entrants(20)).unwrap();
        drive(&mut race, |order| {
            machine.run(number(&order.side).map_or(0.01, |i| 0.01 * ratios[i]))
        });
        let report = race.report();
        assert_eq!(report.winner.as_deref(), Some("c-00"), "seed {seed}");
        assert!(
            report.tally.runs * 2 <= fixed,
            "seed {seed}: {:?}",
            report.tally
        );
    }
}
