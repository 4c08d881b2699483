use std::path::PathBuf;

use super::*;
use crate::evaluation::InstructionCount;
use crate::measure::Verdict;

/// Of a real evaluation.
fn real() -> (EvaluationReport, Vec<Run>) {
    let place = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/evaluation");
    EvaluationReport::read(&place).unwrap()
}

/// CA-81: unchanged terms give an identical ranking, whoever measured it.
#[test]
fn the_same_terms_give_the_same_report() {
    let (report, runs) = real();
    assert!(report.winner.is_some() && runs.len() > 50);
    let again = report.rescore(&runs, &Rescoring::default()).unwrap();
    assert_eq!(again, report);
}

/// CA-81
#[test]
fn whoever_is_faster_exceeds_what_counts_now() {
    let (report, runs) = real();
    let terms = Rescoring {
        min_effect: Some(1.0),
        ..Rescoring::default()
    };
    let again = report.rescore(&runs, &terms).unwrap();
    assert_eq!(again.spec["measure"]["min_effect"], 1.0);
    let verdicts = |report: &EvaluationReport| -> Vec<_> {
        let judged = report
            .evaluations
            .iter()
            .filter_map(|one| one.judgement.clone());
        judged.map(|said| (said.verdict, said.high)).collect()
    };
    assert_ne!(
        verdicts(&report),
        verdicts(&again),
        "half or double is much to ask"
    );
    for (verdict, high) in verdicts(&again) {
        assert!(verdict != Verdict::Faster || high < 0.5, "{high}");
        assert_ne!(verdict, Verdict::Slower, "nobody takes twice as long");
    }
    let ranks: Vec<u32> = again
        .evaluations
        .iter()
        .filter_map(|one| one.rank)
        .collect();
    assert_eq!(
        ranks,
        (1..=u32::try_from(ranks.len()).unwrap()).collect::<Vec<_>>()
    );
}

/// CA-81, CA-72
#[test]
fn another_metric_judges_the_same_runs() {
    let (report, runs) = real();
    let terms = Rescoring {
        metric: Some(Metric::Cpu),
        ..Rescoring::default()
    };
    let again = report.rescore(&runs, &terms).unwrap();
    assert_eq!(again.measurement.as_ref().unwrap().metric, Metric::Cpu);
    let first = again.evaluations[0].judgement.as_ref().unwrap();
    assert_ne!(
        first.ratio,
        report.evaluations[0].judgement.as_ref().unwrap().ratio
    );
    assert_eq!(first.against_base, Verdict::Faster);
    // What was never counted cannot be judged by.
    let terms = Rescoring {
        metric: Some(Metric::Instructions),
        ..Rescoring::default()
    };
    let refused = report.rescore(&runs, &terms).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("no `instructions` was measured"),
        "{refused}"
    );
}

/// CA-81: blocks that racing never ran are not invented.
#[test]
fn who_left_early_is_not_judged_by_blocks_that_never_were() {
    let (report, runs) = real();
    let terms = Rescoring {
        alpha: Some(1e-6),
        ..Rescoring::default()
    };
    let again = report.rescore(&runs, &terms).unwrap();
    let judged = again
        .evaluations
        .iter()
        .filter_map(|one| one.judgement.as_ref());
    for said in judged {
        let ran = runs
            .iter()
            .filter(|run| run.order.series.purpose == Purpose::Race);
        let last = ran.map(|run| run.order.block).max().unwrap();
        assert!(said.blocks <= last);
    }
    assert_eq!(again.winner, None, "nothing is that sure");
}

/// CA-81, CA-6
#[test]
fn terms_that_make_no_sense_are_refused_as_in_a_file() {
    let (report, runs) = real();
    for terms in [
        Rescoring {
            alpha: Some(1.5),
            ..Rescoring::default()
        },
        Rescoring {
            min_effect: Some(-0.1),
            ..Rescoring::default()
        },
    ] {
        let refused = report.rescore(&runs, &terms);
        assert!(
            matches!(refused, Err(EvaluateError::Term { .. })),
            "{terms:?}"
        );
    }
    let mut unmeasured = report;
    unmeasured.measurement = None;
    assert!(unmeasured.rescore(&runs, &Rescoring::default()).is_err());
}

/// CA-81, CA-97: runs of the same round before the machine was started again do not count.
#[test]
fn a_race_that_was_begun_anew_is_judged_by_its_own_runs() {
    let (report, runs) = real();
    let mut before = runs.clone();
    for run in &mut before {
        if let Side::Candidate(_) = run.order.side {
            run.measured.wall_s = run.measured.wall_s.map(|wall_s| wall_s * 50.0);
        }
    }
    before.truncate(runs.len() / 2);
    let both = [before, runs.clone()].concat();
    let again = report.rescore(&both, &Rescoring::default()).unwrap();
    assert_eq!(again, report);
    assert_eq!(that_count(&both), runs);
}

/// CA-72, CA-81: counts are kept, whether they decide or not, and nothing is counted again.
#[test]
fn counts_of_an_evaluation_are_judged_by_again() {
    let (mut report, runs) = real();
    report.spec["measure"]["tiebreak"] = "callgrind".into();
    let count = InstructionCount {
        instructions: [("layers".to_owned(), 5)].into(),
        failed: None,
    };
    report.evaluations[0].tiebreak = Some(Tiebreak::by_callgrind(count, true));
    let again = report.rescore(&runs, &Rescoring::default()).unwrap();
    let tie = again.evaluations[0].tiebreak.as_ref().unwrap();
    assert!(!tie.used, "it leads alone");
    assert_eq!(tie.count.instructions["layers"], 5);
    assert_eq!(again.winner, report.winner);
}

/// CA-81: what is refused is called as whoever asked for it calls it.
#[test]
fn terms_that_make_no_sense_are_named() {
    let (report, runs) = real();
    let refused = |terms: Rescoring| match report.rescore(&runs, &terms) {
        Err(EvaluateError::Term { term, problem }) => (term, problem),
        other => panic!("{other:?}"),
    };
    let alpha = |alpha| Rescoring {
        alpha: Some(alpha),
        ..Rescoring::default()
    };
    let (term, problem) = refused(alpha(2.0));
    assert_eq!(
        (term, problem.as_str()),
        ("alpha", "must be from 1e-9 to below 1, not 2.0")
    );
    let (term, problem) = refused(Rescoring {
        min_effect: Some(-1.0),
        ..alpha(0.1)
    });
    assert_eq!(
        (term, problem.as_str()),
        ("min_effect", "must be from 0 to 1, not -1.0")
    );
    let (term, problem) = refused(Rescoring {
        metric: Some(Metric::Instructions),
        ..Rescoring::default()
    });
    assert_eq!(term, "metric");
    assert!(
        problem.starts_with("cannot be `instructions`: "),
        "{problem}"
    );
}
