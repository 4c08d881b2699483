use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::rank::Placing;
use super::super::replay::{Recorded, rescore, resume};
use super::super::run::Metric;
use super::super::simulation::{BUSY_NEIGHBOUR, Machine, bench, drive, entrants, number, timed};
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

fn disturbed(mut measured: Measured) -> Measured {
    measured.involuntary_switches = Some(50);
    measured
}

/// CA-71
#[test]
fn a_disturbed_candidate_is_repeated_beside_a_fresh_base() {
    let mut race = race(unconfirmed(), 2);
    let runs = drive(&mut race, |order| {
        let measured = quiet(&[0.7, 0.8])(order);
        match (order.block, number(&order.side), order.repeat) {
            // Slow and disturbed; what replaces it is what counts.
            (3, Some(0), 0) => disturbed(timed(9.0)),
            _ => measured,
        }
    });
    let block: Vec<&Run> = runs
        .iter()
        .filter(|run| run.order.series.purpose == Purpose::Race && run.order.block == 3)
        .collect();
    assert_eq!(block.len(), 6, "four sides and a pair");
    let partner = block
        .iter()
        .find(|run| run.order.partner_of.is_some())
        .unwrap();
    assert_eq!(partner.order.side, Side::Base);
    assert_eq!(
        partner.order.partner_of,
        Some(Side::Candidate("c-00".to_owned()))
    );
    assert!(
        block
            .iter()
            .all(|run| run.order.hash_seed == block[0].order.hash_seed)
    );
    let report = race.report();
    assert_eq!((report.tally.repeated, report.tally.flagged), (2, 0));
    assert!(report.ranking[0].judgement.as_ref().unwrap().high < 0.71);
}

/// CA-71
#[test]
fn a_disturbed_base_takes_its_whole_block_with_it() {
    let mut race = race(unconfirmed(), 2);
    let runs = drive(&mut race, |order| {
        match (&order.side, order.block, order.repeat) {
            (Side::Base, 3, 0) if order.series.purpose == Purpose::Race => disturbed(timed(9.0)),
            _ => quiet(&[0.7, 0.8])(order),
        }
    });
    let repeats = runs.iter().filter(|run| run.order.repeat == 1).count();
    assert_eq!(repeats, 4);
    let report = race.report();
    assert_eq!((report.tally.repeated, report.tally.flagged), (4, 0));
    assert!(report.ranking[0].judgement.as_ref().unwrap().low > 0.69);
}

/// CA-71
#[test]
fn what_stays_disturbed_is_kept_and_flagged_after_two_repeats() {
    let mut race = race(unconfirmed(), 1);
    let runs = drive(&mut race, |order| match (&order.side, order.block) {
        (Side::Candidate(_), 3) => disturbed(timed(0.6)),
        _ => quiet(&[0.7])(order),
    });
    let of_candidate = |run: &&Run| number(&run.order.side) == Some(0) && run.order.block == 3;
    let repeats: Vec<u32> = runs
        .iter()
        .filter(of_candidate)
        .map(|run| run.order.repeat)
        .collect();
    assert_eq!(repeats, [0, 1, 2]);
    let report = race.report();
    assert_eq!((report.tally.repeated, report.tally.flagged), (4, 1));
    assert!(
        report.ranking[0].judgement.as_ref().unwrap().low < 0.61,
        "kept"
    );
}

/// CA-71
#[test]
fn a_base_that_is_always_disturbed_repeats_each_block_twice_and_no_more() {
    let mut race = race(unconfirmed(), 1);
    let runs = drive(&mut race, |order| match &order.side {
        Side::Base if order.series.purpose == Purpose::Race => disturbed(quiet(&[0.7])(order)),
        _ => quiet(&[0.7])(order),
    });
    assert_eq!(runs.len(), 8 + 8 * 3 * 3);
    assert_eq!(race.report().tally.flagged, 8);
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
