//! Races made again from their records: judged anew (CA-81), and gone on with (CA-97).

use std::cell::Cell;

use proptest::prelude::*;

use super::super::super::replay::{Recorded, rescore, resume};
use super::super::super::simulation::{BUSY_NEIGHBOUR, Machine};
use super::*;

/// A race on a noisy machine, with its records.
fn noisy(settings: &Settings) -> (Report, Vec<Run>) {
    let ratios = [0.8, 0.82, 0.9, 1.0, 1.02, 1.1];
    let mut machine = Machine::new(settings.seed, BUSY_NEIGHBOUR);
    let noticed = Cell::new(0);
    let mut race = race(settings.clone(), ratios.len());
    let runs = drive(&mut race, |order| {
        noticed.set(noticed.get() + 1);
        let mut measured = machine.run(number(&order.side).map_or(0.01, |i| 0.01 * ratios[i]));
        measured.involuntary_switches = Some(if noticed.get() % 17 == 0 { 40 } else { 1 });
        measured
    });
    (race.report(), runs)
}

fn read_back(runs: &[Run]) -> Recorded {
    let lines = runs.iter().map(|run| serde_json::to_string(run).unwrap());
    lines
        .map(|line| serde_json::from_str::<Run>(&line).unwrap())
        .collect()
}

/// CA-81
#[test]
fn unchanged_settings_give_an_identical_report_from_the_lines_of_the_file() {
    for seed in 0..20 {
        let settings = Settings {
            seed,
            racing: seed % 3 > 0,
            ..Settings::default()
        };
        let (report, runs) = noisy(&settings);
        let again = rescore(race(settings, 6), &read_back(&runs)).unwrap();
        assert_eq!(again, report, "seed {seed}");
        assert!(report.tally.repeated > 0);
    }
}

/// CA-81
#[test]
fn other_settings_judge_what_is_there_and_invent_no_block() {
    for seed in 0..20 {
        let settings = Settings {
            seed,
            ..Settings::default()
        };
        let (report, runs) = noisy(&settings);
        let blocks = |report: &Report| -> BTreeMap<String, u32> {
            let placings = report.ranking.iter();
            let blocks = placings.map(|p| {
                (
                    p.candidate.id.clone(),
                    p.judgement.as_ref().map_or(0, |said| said.blocks),
                )
            });
            blocks.collect()
        };
        for (alpha, min_effect) in [(0.001, 0.03), (0.2, 0.03), (0.05, 0.0), (0.05, 0.2)] {
            let other = Settings {
                alpha,
                min_effect,
                ..settings.clone()
            };
            let again = rescore(race(other, 6), &read_back(&runs)).unwrap();
            assert_eq!(again.ranking.len(), 6);
            let ran = |id: &str| {
                runs.iter()
                    .filter(|run| {
                        run.order.series.to_string() == "1/race/1"
                            || run.order.series.to_string() == "1/race/2"
                    })
                    .filter(|run| run.order.side.to_string() == id)
                    .map(|run| run.order.block)
                    .max()
                    .unwrap()
            };
            for (id, judged) in blocks(&again) {
                assert!(judged <= ran(&id), "{id}: {judged}");
            }
            assert!(again.tally.runs <= report.tally.runs);
        }
    }
}

/// CA-81
#[test]
fn a_stricter_level_leaves_uncertain_what_was_never_measured_further() {
    let settings = Settings {
        confirm: false,
        ..Settings::default()
    };
    let (_, runs) = finished(settings.clone(), &[1.5]);
    let strict = Settings {
        alpha: 0.01,
        ..settings
    };
    let again = rescore(race(strict, 1), &read_back(&runs)).unwrap();
    assert_eq!(
        again.ranking[0].judgement, None,
        "0.002 needs 12 blocks, 8 were run"
    );
    assert_eq!(again.winner, None);
}

/// CA-97
#[test]
fn a_race_cut_anywhere_goes_on_to_the_same_end() {
    let settings = Settings::default();
    let ratios = [0.7, 0.9, 1.2];
    let mut whole = race(settings.clone(), 3);
    let answer = |order: &RunOrder| {
        let measured = quiet(&ratios)(order);
        match order.position % 5 {
            3 => disturbed(measured),
            _ => measured,
        }
    };
    let runs = drive(&mut whole, answer);
    for cut in 0..=runs.len() {
        let recorded = read_back(&runs[..cut]);
        let mut rest = resume(race(settings.clone(), 3), &recorded).unwrap();
        let next = rest.next_run().cloned();
        let again = drive(&mut rest, answer);
        assert_eq!(rest.report(), whole.report(), "cut at {cut}");
        assert_eq!(again, runs[runs.len() - again.len()..], "cut at {cut}");
        // Only what was in flight runs twice: the next run begins a block.
        assert!(next.is_none_or(|order| order.position == 0 && order.repeat == 0));
        assert!(cut + again.len() < runs.len() + 20);
    }
}

/// CA-81, CA-97
#[test]
fn a_block_that_was_begun_twice_counts_as_it_was_made_the_second_time() {
    let settings = Settings::default();
    let noisy = |seed: u64| {
        let mut machine = Machine::new(seed, BUSY_NEIGHBOUR);
        move |order: &RunOrder| {
            let ratio = number(&order.side).map_or(1.0, |i| [0.7, 0.9, 1.2][i]);
            let mut measured = machine.run(ratio);
            measured.involuntary_switches = Some((measured.wall_s.unwrap() * 1e6) as u64 % 12);
            measured
        }
    };
    let runs = drive(&mut race(settings.clone(), 3), noisy(1));
    for cut in (0..runs.len()).step_by(7) {
        let mut file = runs[..cut].to_vec();
        let mut rest = resume(race(settings.clone(), 3), &read_back(&file)).unwrap();
        file.extend(drive(&mut rest, noisy(2)));
        let again = rescore(race(settings.clone(), 3), &read_back(&file)).unwrap();
        assert_eq!(again, rest.report(), "cut at {cut}");
    }
}

/// What a machine may do to a run.
fn anything() -> impl Strategy<Value = Measured> {
    let wall_s = prop_oneof![9 => (0.5..1.5_f64).prop_map(Some), 1 => Just(None)];
    (wall_s, 0..14_u64).prop_map(|(wall_s, switches)| Measured {
        wall_s,
        involuntary_switches: Some(switches),
        ..Measured::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// CA-65, CA-69, CA-71, CA-77, CA-81
    #[test]
    fn whatever_is_measured_a_race_ends_and_its_records_say_the_same(
        answers in prop::collection::vec(anything(), 300),
        candidates in 0..5_u64,
        racing: bool,
        seed: u64,
    ) {
        let settings = Settings { max_blocks: 18, racing, seed, ..Settings::default() };
        let fresh = || Race::new(settings.clone(), 1, bench(), entrants(candidates)).unwrap();
        let mut race = fresh();
        let mut next = answers.iter().cycle();
        let runs = drive(&mut race, |order| {
            let mut measured = next.next().unwrap().clone();
            // That the base never fails is the engine's business.
            if number(&order.side).is_none() {
                measured.wall_s = Some(measured.wall_s.unwrap_or(1.0));
            }
            measured
        });
        prop_assert!(runs.iter().all(|run| run.order.block <= 18 && run.order.repeat <= 2));
        let series = series_of(&runs).len();
        prop_assert!(series <= 1 + 2 + 3 * 2);
        prop_assert_eq!(rescore(fresh(), &read_back(&runs)).unwrap(), race.report());
    }
}
