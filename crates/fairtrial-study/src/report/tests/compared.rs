//! What is compared with what, and what is said where nothing can be.

use std::path::Path;

use super::{PLAN, failure, level, noise, study, tests_of, value};
use crate::journal::Status;
use crate::plan::{Plan, RunSpec};
use crate::stats::{Direction, Moments, paired, welch};
use crate::study::Study;

/// ST-82
#[test]
fn the_plan_decides_that_cells_are_paired_and_dropped_cells_are_counted() {
    let study = study(&format!(
        "problem_ids: [p0, p1, p2, p3, p4, p5, p6]\nrun_budget: {{replicates: 2}}\n{PLAN}"
    ));
    let give = |run: &RunSpec<'_>| {
        let (problem, level) = (run.problem_id().to_str(), level(run));
        match (problem.as_str(), level as u32) {
            ("p6", 2) => Some(failure("x", "")),
            ("p0", 1) if run.replicate == 2 => None,
            _ => Some(value(level + noise(run))),
        }
    };
    let mut sums = vec![[(0.0, 0); 2]; 7];
    let plan = Plan::build(&study, None).unwrap();
    for run in plan
        .runs()
        .filter(|run| give(run).is_some_and(|given| given.status == Status::Success))
    {
        let cell: usize = run.problem_id().to_str()[1..].parse().unwrap();
        let side = usize::from(level(&run) < 1.5);
        let cell = &mut sums[cell][side];
        *cell = (cell.0 + level(&run) + noise(&run), cell.1 + 1);
    }
    let means = |side: usize| -> Vec<f64> {
        sums[..6]
            .iter()
            .map(|cell| cell[side].0 / f64::from(cell[side].1))
            .collect()
    };
    let expected = paired(&means(0), &means(1), Direction::Different).unwrap();
    tests_of(&study, give, |_, tests| {
        let found = tests[0].found.as_ref().unwrap();
        assert!(found.is_paired);
        assert_eq!((found.cells, found.dropped, found.missing), (7, 1, [2, 0]));
        let comparison = found.comparison.as_ref().unwrap();
        assert!(
            (comparison.p - expected.p).abs() < 1e-12
                && (comparison.difference - expected.difference).abs() < 1e-12
        );
        assert_eq!(
            (tests[0].adjusted, tests[0].family),
            (Some(comparison.p), 1)
        );
        assert!(tests[1].found.is_none() && tests.len() == 2);
    });
}

/// ST-82
#[test]
fn with_fewer_than_six_cells_runs_are_compared_by_welchs_test() {
    let study = study(&format!(
        "problem_ids: [p0, p1, p2, p3, p4]\nrun_budget: {{replicates: 3}}\n{PLAN}"
    ));
    let mut arms = [Moments::default(); 2];
    let plan = Plan::build(&study, None).unwrap();
    plan.runs()
        .for_each(|run| arms[usize::from(level(&run) < 1.5)].add(level(&run) + noise(&run)));
    let expected = welch(&arms[0], &arms[1], Direction::Different).unwrap();
    tests_of(
        &study,
        |run| Some(value(level(run) + noise(run))),
        |_, tests| {
            let found = tests[0].found.as_ref().unwrap();
            assert!(!found.is_paired && found.cells == 5);
            assert!((found.comparison.as_ref().unwrap().p - expected.p).abs() < 1e-12);
        },
    );
}

/// ST-82
#[test]
fn a_factor_that_chooses_the_agent_is_paired_over_problems() {
    let text = "study_id: s\ntitle: t\nproblem_ids: [p0, p1, p2, p3, p4, p5]\n\
        factors:\n  - name: agent\n    levels: [{name: a, value: a}, {name: b, value: b}]\n\
        outcomes: [{name: v, source_table: runs, column: v, aggregation: mean}]\n\
        hypotheses: [{hypothesis_id: H, label: l, statement: s, independent_vars: [agent], dependent_vars: [v]}]\n\
        analysis_plans: [{analysis_plan_id: A, hypothesis_ids: [H], tests: [difference_in_means]}]\n";
    let study = Study::parse(Path::new("study.yaml"), text, None)
        .unwrap_or_else(|invalid| panic!("{invalid}"));
    tests_of(
        &study,
        |run| Some(value(noise(run))),
        |_, tests| {
            assert!(tests[0].found.as_ref().unwrap().is_paired);
        },
    );
}

/// ST-82
#[test]
fn what_cannot_be_computed_says_why() {
    let hypothesis = |more: &str| {
        format!(
            "problem_ids: [p]\nrun_budget: {{replicates: 3}}\n\
             hypotheses: [{{hypothesis_id: H, label: l, statement: s, dependent_vars: [v], {more}}}]\n\
             analysis_plans: [{{analysis_plan_id: A, hypothesis_ids: [H], tests: [ttest]}}]\n"
        )
    };
    for (more, reason) in [
        ("independent_vars: []", "one independent variable"),
        (
            "independent_vars: [x], direction: equivalent",
            "minimum_effect_of_interest",
        ),
        (
            "independent_vars: [x], contrast: {left: c, right: a}",
            "no level",
        ),
        (
            "independent_vars: [x], contrast: {left: b, right: a, operation: ratio}",
            "operation",
        ),
    ] {
        tests_of(
            &study(&hypothesis(more)),
            |run| Some(value(noise(run))),
            |_, tests| {
                let why = tests[0].registered.compares.as_ref().unwrap_err();
                assert!(why.contains(reason), "{why}");
            },
        );
    }
    // All values equal: planned, and counted in its family, but not computed.
    tests_of(
        &study(&hypothesis("independent_vars: [x]")),
        |_| Some(value(3.0)),
        |_, tests| {
            let found = tests[0].found.as_ref().unwrap();
            assert!(found.comparison.as_ref().unwrap_err().contains("vary"));
            assert_eq!((tests[0].family, tests[0].adjusted), (1, None));
        },
    );
}

/// ST-83
#[test]
fn missing_values_follow_the_policy_and_unequal_failures_are_pointed_out() {
    let base = study(&format!(
        "problem_ids: [p]\nrun_budget: {{replicates: 20}}\n{PLAN}"
    ));
    let give = |run: &RunSpec<'_>| match level(run) > 1.5 && run.replicate <= 12 {
        true => Some(failure("x", "")),
        false => Some(value(level(run) + noise(run))),
    };
    let with = |policy: &str| {
        let text = format!(
            "study_id: s\ntitle: t\nproblem_ids: [p]\nrun_budget: {{replicates: 20}}\nfactors:\n  - name: x\n    levels: [{{name: a, value: 1}}, {{name: b, value: 2}}]\n\
             outcomes: [{{name: v, source_table: runs, column: v, aggregation: mean, missing_data_policy: {policy}}}]\n{PLAN}"
        );
        Study::parse(Path::new("study.yaml"), &text, None)
            .unwrap_or_else(|invalid| panic!("{invalid}"))
    };
    tests_of(&base, give, |_, tests| {
        let found = tests[0].found.as_ref().unwrap();
        assert_eq!((found.n, found.missing), ([8, 20], [12, 0]));
        assert!(
            tests[0].notes[0].contains("12 of 20"),
            "{:?}",
            tests[0].notes
        );
    });
    tests_of(&with("zero"), give, |_, tests| {
        let found = tests[0].found.as_ref().unwrap();
        assert_eq!((found.n, found.missing), ([20, 20], [12, 0]));
    });
    for (policy, reason) in [("fail", "missing"), ("guess", "not known")] {
        tests_of(&with(policy), give, |_, tests| {
            let why = tests[0]
                .found
                .as_ref()
                .unwrap()
                .comparison
                .as_ref()
                .unwrap_err();
            assert!(why.contains(reason), "{why}");
        });
    }
}

/// ST-83
#[test]
fn a_column_is_looked_up_in_runs_then_metrics_then_outputs() {
    let column = |column: &str| {
        let text = format!(
            "study_id: s\ntitle: t\nproblem_ids: [p]\nfactors: {{x: [1, 2]}}\n\
             outcomes: [{{name: o, source_table: runs, column: {column}, aggregation: mean}}]\n"
        );
        Study::parse(Path::new("study.yaml"), &text, None)
            .unwrap_or_else(|invalid| panic!("{invalid}"))
    };
    let give = |_: &RunSpec<'_>| {
        let mut given = value(3.0);
        given.result = "{\"output\":{\"m\":1,\"latency_s\":1,\"v\":3,\"t\":\"4\",\"b\":true},\"metrics\":{\"m\":2}}".into();
        Some(given)
    };
    for (name, expected) in [
        ("latency_s", Some(0.001)),
        ("replicate", Some(1.0)),
        ("m", Some(2.0)),
        ("v", Some(3.0)),
        ("b", Some(1.0)),
        ("t", None),
    ] {
        tests_of(&column(name), give, |gathered, _| {
            let group = &gathered.groups[0].groups[0];
            assert_eq!(group.estimates[0].value, expected, "{name}");
        });
    }
}
