//! Races driven without a machine; those that something disturbs, and those made again from records, are below.

mod disturbed;
mod records;
mod slopes;

use std::collections::{BTreeMap, BTreeSet};

use super::super::rank::Placing;
use super::super::run::Metric;
use super::super::simulation::{bench, drive, entrants, number, timed};
use super::super::verdict::{Doubt, Leaning, Verdict};
use super::*;

/// Costs that no machine disturbs: the base takes 1 s, each candidate its ratio, all a little more in odd blocks.
fn quiet(ratios: &[f64]) -> impl Fn(&RunOrder) -> Measured {
    move |order| {
        let cost = number(&order.side).map_or(1.0, |i| ratios[i]);
        timed(cost * wobble(order))
    }
}

/// Some noise of its own for each side and block, of 0.5 % at most.
fn wobble(order: &RunOrder) -> f64 {
    let mut random =
        super::super::random::Random::stream(1, &order.side.to_string(), &[order.block.into()]);
    1.0 + random.below(1000) as f64 * 5e-6
}

/// A run that others interrupted more often than the limit allows.
fn disturbed(mut measured: Measured) -> Measured {
    measured.involuntary_switches = Some(50);
    measured
}

fn race(settings: Settings, candidates: usize) -> Race {
    Race::new(settings, 1, bench(), entrants(candidates as u64)).unwrap()
}

fn finished(settings: Settings, ratios: &[f64]) -> (Report, Vec<Run>) {
    let mut race = race(settings, ratios.len());
    let runs = drive(&mut race, quiet(ratios));
    (race.report(), runs)
}

fn verdicts(report: &Report) -> BTreeMap<&str, Verdict> {
    let of = |placing: &'_ Placing| placing.judgement.as_ref().map(|said| said.verdict);
    let placings = report.ranking.iter();
    placings
        .filter_map(|placing| Some((placing.candidate.id.as_str(), of(placing)?)))
        .collect()
}

fn series_of(runs: &[Run]) -> Vec<String> {
    let mut names: Vec<String> = runs
        .iter()
        .map(|run| run.order.series.to_string())
        .collect();
    names.dedup();
    names
}

fn unconfirmed() -> Settings {
    Settings {
        confirm: false,
        ..Settings::default()
    }
}

/// CA-63, CA-66, CA-68, CA-80
#[test]
fn a_quiet_race_ranks_by_what_is_true() {
    let (report, runs) = finished(Settings::default(), &[1.0, 0.7, 1.5, 0.9]);
    let ids: Vec<&str> = report
        .ranking
        .iter()
        .map(|p| p.candidate.id.as_str())
        .collect();
    assert_eq!(ids, ["c-01", "c-03", "c-00", "c-02"]);
    assert_eq!(report.winner.as_deref(), Some("c-01"));
    let said = verdicts(&report);
    assert_eq!(said["c-00"], Verdict::Equal);
    assert_eq!(said["c-02"], Verdict::Slower);
    assert_eq!(said["c-03"], Verdict::Eliminated);
    assert!(report.noise_floor.unwrap() < 0.006);
    assert_eq!(report.tally.runs, runs.len() as u64);
    assert_eq!(
        series_of(&runs),
        ["1/calibration/1", "1/race/1", "1/confirm/c-01/1"]
    );
}

/// CA-63
#[test]
fn every_block_runs_each_side_once_per_command_under_one_hash_seed() {
    let benches = ["x", "y"].map(|name| Bench {
        name: name.to_owned(),
        weight: 1.0,
        ..Bench::default()
    });
    let mut race = Race::new(unconfirmed(), 1, benches.to_vec(), entrants(2)).unwrap();
    let runs = drive(&mut race, quiet(&[0.7, 0.8]));
    let mut blocks: BTreeMap<u32, Vec<&RunOrder>> = BTreeMap::new();
    for run in runs
        .iter()
        .filter(|run| run.order.series.purpose == Purpose::Race)
    {
        blocks.entry(run.order.block).or_default().push(&run.order);
    }
    let first: BTreeSet<(&Side, &str)> = blocks[&1]
        .iter()
        .map(|o| (&o.side, o.bench.as_str()))
        .collect();
    assert_eq!((first.len(), blocks[&1].len()), (8, 8));
    let seeds: Vec<BTreeSet<u32>> = blocks
        .values()
        .map(|block| block.iter().map(|o| o.hash_seed).collect())
        .collect();
    assert!(seeds.iter().all(|seeds| seeds.len() == 1));
    assert_eq!(
        seeds.iter().flatten().collect::<BTreeSet<_>>().len(),
        seeds.len()
    );
    for block in blocks.values() {
        assert!(block.iter().map(|o| o.position).eq(0..block.len() as u32));
    }
}

/// CA-66
#[test]
fn bench_commands_count_by_their_weight() {
    let benches = [("x", 3.0), ("y", 1.0)].map(|(name, weight)| Bench {
        name: name.to_owned(),
        weight,
        ..Bench::default()
    });
    let mut race = Race::new(unconfirmed(), 1, benches.to_vec(), entrants(1)).unwrap();
    drive(&mut race, |order| {
        match (&order.side, order.bench.as_str()) {
            (Side::Candidate(_), "x") => timed(2.0),
            (Side::Candidate(_), _) => timed(0.25),
            _ => timed(1.0),
        }
    });
    let ratio = race.report().ranking[0].judgement.clone().unwrap().ratio;
    let expected = ((3.0 * 2.0_f64.ln() + 0.25_f64.ln()) / 4.0).exp();
    assert!((ratio - expected).abs() < 1e-12, "{ratio}");
}

/// CA-65
#[test]
fn nothing_is_judged_between_looks() {
    let mut race = race(unconfirmed(), 1);
    let mut looks = Vec::new();
    while let Some(order) = race.next_run() {
        let measured = quiet(&[1.03])(order);
        race.record(measured).unwrap();
        for event in race.take_events() {
            if let Event::Look {
                look, judgements, ..
            } = event
            {
                assert_eq!(judgements.len(), 1);
                looks.push(look.blocks);
            }
        }
    }
    assert_eq!(
        looks,
        [8, 12, 18, 27, 40],
        "a ratio at the margin is never decided"
    );
    let report = race.report();
    let said = report.ranking[0].judgement.as_ref().unwrap();
    assert_eq!(
        (said.verdict, said.leaning),
        (Verdict::Uncertain, Some(Leaning::Slower))
    );
    assert_eq!(said.blocks, 40);
    assert_eq!(report.winner, None);
}

/// CA-69
#[test]
fn too_few_blocks_for_the_level_eliminate_nobody() {
    // 0.01 over 3 rivals is below 2/2^8, so all four run until block 12.
    let (_, runs) = finished(unconfirmed(), &[0.5, 0.7, 0.8, 0.9]);
    let last = |i| {
        runs.iter()
            .filter(|run| number(&run.order.side) == Some(i))
            .map(|run| run.order.block)
            .max()
    };
    assert_eq!([last(0), last(1), last(2), last(3)], [Some(12); 4]);
    // One rival has all of the share.
    let (_, runs) = finished(unconfirmed(), &[0.5, 0.7]);
    assert_eq!(runs.iter().map(|run| run.order.block).max(), Some(8));
}

/// CA-69
#[test]
fn a_race_ends_when_the_rest_equal_the_leader() {
    let (report, runs) = finished(unconfirmed(), &[0.700, 0.701]);
    assert_eq!(runs.iter().map(|run| run.order.block).max(), Some(8));
    assert!(report.ranking.iter().all(|placing| placing.equals_leader));
    assert_eq!(report.winner.as_deref(), Some("c-00"), "fewer lines");
}

/// CA-80
#[test]
fn the_smaller_change_wins_among_equals_though_the_larger_leads() {
    let (report, _) = finished(Settings::default(), &[0.7005, 0.6995, 0.8]);
    assert_eq!(report.winner.as_deref(), Some("c-00"));
    assert_eq!(report.ranking[1].candidate.id, "c-01");
    assert!(
        report.ranking[1].judgement.as_ref().unwrap().ratio
            < report.ranking[0].judgement.as_ref().unwrap().ratio
    );
}

/// CA-69
#[test]
fn without_racing_only_its_own_verdict_stops_a_candidate() {
    let settings = Settings {
        racing: false,
        ..unconfirmed()
    };
    let (report, runs) = finished(settings, &[0.5, 0.9, 1.03]);
    assert_eq!(verdicts(&report)["c-01"], Verdict::Faster, "not eliminated");
    let blocks = |i| {
        runs.iter()
            .filter(|run| number(&run.order.side) == Some(i))
            .count()
    };
    assert_eq!([blocks(0), blocks(1), blocks(2)], [8, 8, 40]);
}

/// CA-70
#[test]
fn a_control_that_misses_one_is_answered_by_one_new_series() {
    let mut race = race(unconfirmed(), 1);
    let runs = drive(&mut race, |order| {
        match (&order.side, order.series.attempt) {
            (Side::Control, 1) => timed(1.2),
            _ => quiet(&[0.7])(order),
        }
    });
    assert_eq!(
        series_of(&runs),
        ["1/calibration/1", "1/race/1", "1/race/2"]
    );
    let report = race.report();
    assert!(!report.aa_failed);
    assert_eq!(verdicts(&report)["c-00"], Verdict::Faster);
    let orders = |attempt| -> Vec<&Side> {
        let of = runs
            .iter()
            .filter(|run| run.order.series.to_string() == format!("1/race/{attempt}"));
        of.map(|run| &run.order.side).collect()
    };
    assert_ne!(orders(1), orders(2), "a new series draws new orders");
}

/// CA-70
#[test]
fn a_control_that_misses_twice_makes_every_verdict_uncertain() {
    let mut race = race(Settings::default(), 2);
    let runs = drive(&mut race, |order| match &order.side {
        Side::Control => timed(1.2),
        _ => quiet(&[0.7, 1.5])(order),
    });
    assert_eq!(
        series_of(&runs),
        ["1/calibration/1", "1/race/1", "1/race/2"]
    );
    let report = race.report();
    assert!(report.aa_failed);
    assert_eq!(report.winner, None);
    for placing in &report.ranking {
        let said = placing.judgement.as_ref().unwrap();
        assert_eq!(
            (said.verdict, said.doubt),
            (Verdict::Uncertain, Some(Doubt::AaFailed))
        );
    }
    assert_eq!(report.ranking[0].candidate.id, "c-00");
}

/// CA-72
#[test]
fn a_gain_in_wall_time_paid_for_in_cpu_time_is_uncertain() {
    let with_cpu = |order: &RunOrder| {
        let mut measured = quiet(&[0.6])(order);
        // As many threads would: less wall time, more CPU time.
        let cpu = number(&order.side).map_or(1.0, |_| 1.3);
        (measured.user_s, measured.system_s) = (Some(cpu), Some(0.0));
        measured
    };
    let mut by_wall = race(unconfirmed(), 1);
    drive(&mut by_wall, with_cpu);
    let said = by_wall.report().ranking[0].judgement.clone().unwrap();
    assert_eq!(
        (said.verdict, said.doubt),
        (Verdict::Uncertain, Some(Doubt::CpuContradicts))
    );
    let mut by_cpu = race(
        Settings {
            metric: Metric::Cpu,
            ..unconfirmed()
        },
        1,
    );
    drive(&mut by_cpu, with_cpu);
    assert_eq!(verdicts(&by_cpu.report())["c-00"], Verdict::Slower);
}

/// CA-76
#[test]
fn a_failed_or_timeless_run_fails_its_candidate_and_no_other() {
    for (failed, wall_s) in [
        (Some("timeout"), Some(0.1)),
        (None, Some(0.0)),
        (None, None),
    ] {
        let mut race = race(unconfirmed(), 2);
        let runs = drive(&mut race, |order| {
            match (number(&order.side), order.block) {
                (Some(0), 5) => Measured {
                    wall_s,
                    failed: failed.map(str::to_owned),
                    ..Measured::default()
                },
                _ => quiet(&[0.5, 0.7])(order),
            }
        });
        let report = race.report();
        assert_eq!(report.winner.as_deref(), Some("c-01"));
        let last = report.ranking.last().unwrap();
        assert_eq!(last.candidate.id, "c-00");
        assert!(last.failure.is_some());
        let ran = runs
            .iter()
            .filter(|run| number(&run.order.side) == Some(0))
            .count();
        assert_eq!(ran, 5, "it is not run again");
    }
}

/// CA-76
#[test]
fn a_race_whose_only_candidate_fails_is_over() {
    let mut race = race(Settings::default(), 1);
    drive(&mut race, |order| match number(&order.side) {
        Some(_) => timed(0.0),
        None => timed(1.0),
    });
    assert_eq!(race.report().winner, None);
}

/// CA-76
#[test]
fn a_base_that_fails_ends_the_race_with_an_error() {
    let mut race = race(Settings::default(), 1);
    let failed = Measured {
        failed: Some("timeout".to_owned()),
        ..Measured::default()
    };
    assert_eq!(
        race.record(failed).unwrap_err().to_string(),
        "bench command `b` failed in the base: timeout"
    );
}

/// CA-77
#[test]
fn a_gain_that_vanishes_is_unconfirmed_and_the_next_rank_is_tried() {
    let mut race = race(Settings::default(), 2);
    let runs = drive(&mut race, |order| {
        let again = matches!(order.series.purpose, Purpose::Confirmation(_));
        match number(&order.side) {
            Some(0) if again => timed(1.0),
            _ => quiet(&[0.5, 0.7])(order),
        }
    });
    let report = race.report();
    assert_eq!(
        report.winner.as_deref(),
        Some("c-01"),
        "eliminated by a leader that was none"
    );
    let first = report
        .ranking
        .iter()
        .find(|p| p.candidate.id == "c-00")
        .unwrap();
    assert!(!first.confirmation.as_ref().unwrap().confirmed);
    assert_eq!(
        series_of(&runs)[2..],
        ["1/confirm/c-00/1", "1/confirm/c-01/1"]
    );
    let seeds = |purpose: &str| -> BTreeSet<u32> {
        let of = runs
            .iter()
            .filter(|run| run.order.series.to_string().contains(purpose));
        of.map(|run| run.order.hash_seed).collect()
    };
    assert!(seeds("race").is_disjoint(&seeds("confirm/c-01")));
}

/// CA-77
#[test]
fn three_are_tried_at_most() {
    let mut race = race(Settings::default(), 5);
    let runs = drive(&mut race, |order| match order.series.purpose {
        Purpose::Confirmation(_) => timed(1.0),
        _ => quiet(&[0.5, 0.6, 0.7, 0.8, 0.9])(order),
    });
    let tried = series_of(&runs).len() - 2;
    assert_eq!(tried, 3);
    assert_eq!(race.report().winner, None);
}

/// CA-69
#[test]
fn each_one_out_leaves_a_larger_share_to_the_rest() {
    // Behind the leader in 11 of 12 blocks: enough at 0.01, not at 0.005.
    let stumbling = |order: &RunOrder, ratio| match order.block {
        5 => 0.4,
        _ => ratio,
    };
    let last_block = |steady: bool| {
        let mut race = race(unconfirmed(), 3);
        drive(&mut race, |order| match number(&order.side) {
            Some(1) if steady => timed(0.7 * wobble(order)),
            Some(1) => timed(stumbling(order, 0.7) * wobble(order)),
            Some(2) => timed(stumbling(order, 0.6) * wobble(order)),
            _ => quiet(&[0.5])(order),
        })
        .iter()
        .map(|run| run.order.block)
        .max()
    };
    assert_eq!(last_block(true), Some(12));
    assert_eq!(last_block(false), Some(18));
}
