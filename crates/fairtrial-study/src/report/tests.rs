//! Whole reports, of journals that are written here run by run.

use std::path::Path;

use super::Report;
use super::gather::Gathered;
use super::tested::{Tested, tested};
use crate::journal::{Decision, Finish, Invocation, Journal, Meta, Reader, Record, Start, Status};
use crate::plan::{Plan, RunSpec};
use crate::stats::{Direction, Moments, paired, welch};
use crate::study::Study;
use crate::tables::{Export, ExportOptions};

/// What a run gives: its status and the rest of its `Finish`.
struct Given {
    status: Status,
    result: String,
    error: String,
    stderr: String,
}

fn value(v: f64) -> Given {
    Given {
        status: Status::Success,
        result: format!("{{\"output\":{{\"v\":{v}}},\"metrics\":{{}}}}"),
        error: String::new(),
        stderr: String::new(),
    }
}

fn failure(error: &str, stderr: &str) -> Given {
    Given {
        status: Status::Failed,
        result: String::new(),
        error: error.into(),
        stderr: stderr.into(),
    }
}

/// Writes a journal of all planned runs but those that give nothing.
fn record(directory: &Path, plan: &Plan<'_>, mut give: impl FnMut(&RunSpec<'_>) -> Option<Given>) {
    let meta = Meta {
        study_id: "s",
        compat: "native",
        created_at_ns: 1,
    };
    let journal = Journal::open(directory, &meta, "a test").unwrap();
    let mut records = vec![Record::Invocation(Invocation {
        id: 1,
        started_at_ns: 0,
        pid: 1,
        host: "host<1>".into(),
        argv: "[\"fairtrial\",\"run\"]".into(),
        study_path: "study.yaml".into(),
        study_blob: "b10b".into(),
        study_sha256: plan.study_sha256.clone(),
        digest_runs: plan.digest_runs.clone(),
        workers: 2,
        backend: "local".into(),
        run_order: "{}".into(),
    })];
    for run in plan.runs() {
        let Some(given) = give(&run) else { continue };
        let id = journal.next_start();
        let (run_id, at) = (run.run_id.to_string(), 1_000_000 * run.index as i64);
        records.push(Record::Start(Start {
            id,
            run_id: run_id.clone(),
            seq: 1,
            attempt: 1,
            invocation: 1,
            plan_index: run.index as u64,
            order_index: 0,
            seed: 1,
            identity: "i".into(),
            started_at_ns: at,
        }));
        let error = serde_json::json!({"type": "E", "message": given.error, "traceback": "tb"});
        let outcome = serde_json::json!({
            "error": error,
            "metrics": {"wall_s": 0.001},
            "in_force": {"level": "limits", "digest": "d1"},
        });
        records.push(Record::Finish(Box::new(Finish {
            id,
            run_id,
            seq: 1,
            status: given.status,
            verdict: Some("ok".into()),
            stage: "agent".into(),
            finished_at_ns: at + 900_000,
            outcome: outcome.to_string(),
            result: (!given.result.is_empty()).then_some(given.result),
            stdout: String::new(),
            stderr: given.stderr,
            warnings: "[]".into(),
        })));
    }
    records.push(Record::Decision(Decision {
        invocation: 1,
        run_id: "run-000000000000".into(),
        action: "reuse".into(),
        reason: "accepted: agent changed".into(),
    }));
    journal.record(records).unwrap();
    journal.sync().unwrap();
}

fn study(more: &str) -> Study {
    let text = format!(
        "study_id: s\ntitle: '<i>Title</i>'\nfactors:\n  - name: x\n    levels: [{{name: a, value: 1}}, {{name: b, value: 2}}]\n\
         outcomes: [{{name: v, source_table: runs, column: v, aggregation: mean}}]\n{more}"
    );
    Study::parse(Path::new("study.yaml"), &text, None).unwrap_or_else(|invalid| panic!("{invalid}"))
}

/// The report of a study whose runs give what is said.
fn report(study: &Study, give: impl FnMut(&RunSpec<'_>) -> Option<Given>) -> String {
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan::build(study, None).unwrap();
    record(directory.path(), &plan, give);
    let reader = Reader::open(directory.path()).unwrap();
    let history = reader.history().unwrap();
    let report = Report {
        plan: &plan,
        reader: &reader,
        history: &history,
    };
    let html = report.html().unwrap();
    assert_eq!(
        html,
        report.html().unwrap(),
        "the same journal gives the same bytes"
    );
    html
}

/// As [`report`], but what was tested.
fn tests_of(
    study: &Study,
    give: impl FnMut(&RunSpec<'_>) -> Option<Given>,
    look: impl FnOnce(&Gathered, &[Tested<'_>]),
) {
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan::build(study, None).unwrap();
    record(directory.path(), &plan, give);
    let reader = Reader::open(directory.path()).unwrap();
    let history = reader.history().unwrap();
    let export = Export {
        plan: &plan,
        reader: &reader,
        history: &history,
        options: &ExportOptions::default(),
    };
    let gathered = Gathered::read(&export).unwrap();
    look(&gathered, &tested(&gathered));
}

const PLAN: &str = "hypotheses: [{hypothesis_id: H, label: l, statement: s, independent_vars: [x], dependent_vars: [v]}]\n\
    analysis_plans: [{analysis_plan_id: A, hypothesis_ids: [H], tests: [ttest, anova], multiple_comparison_policy: holm}]\n";

/// The level of a run's factor, as a number.
fn level(run: &RunSpec<'_>) -> f64 {
    run.condition
        .factor("x")
        .and_then(crate::Value::as_number)
        .unwrap()
}

/// A number that differs from run to run.
fn noise(run: &RunSpec<'_>) -> f64 {
    f64::from(run.seed % 1000) / 1000.0
}

/// ST-81
#[test]
fn agents_cannot_write_markup_into_a_report() {
    let study = study("problem_ids: [p]\nrun_budget: {replicates: 4}\n");
    let hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&";
    let html = report(&study, |_| {
        Some(failure(hostile, &format!("</pre>{hostile}\u{1b}[0m")))
    });
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for tag in [
        "<script",
        "<img",
        "</pre></pre>",
        "<i>Title",
        "host<1>",
        "\u{1b}",
        "http:",
        "https:",
        "@import",
        "url(",
    ] {
        assert!(!html.contains(tag), "{tag}");
    }
    assert!(html.contains("default-src 'none'"));
}

/// ST-81
#[test]
fn a_report_says_all_that_it_must() {
    let study = study(&format!(
        "problem_ids: [p, q]\nrun_budget: {{replicates: 3}}\norder: {{policy: shuffled, seed: 5}}\n{PLAN}"
    ));
    let html = report(&study, |run| match run.index {
        0 => Some(failure("boom 1", "the end")),
        1 => None,
        _ => Some(value(level(run) + noise(run))),
    });
    let plan = Plan::build(&study, None).unwrap();
    for part in [
        "9.1 %",
        "<b>11</b><span>of 12 runs ended",
        "E: boom 1",
        "the end",
        "accepted: agent changed",
        "shuffled, seed 5",
        "<td>limits</td>",
        "Not computed: anova",
        "Welch t",
        "class=\"points\"",
        "bar success",
        &plan.study_sha256,
        &plan.digest_runs,
        "b10b",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

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
        |_| Some(value(1.0)),
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

/// ST-81
#[test]
fn many_runs_that_write_much_make_a_small_file() {
    let study = study(&format!(
        "problem_ids: [p]\nrun_budget: {{replicates: 4000}}\n{PLAN}"
    ));
    let noise_text = "<&\">".repeat(4000);
    let html = report(&study, |run| match run.replicate % 2 {
        0 => Some(failure(
            &format!("{}{noise_text}", "e".repeat(run.replicate as usize % 300)),
            &noise_text,
        )),
        _ => Some(value(level(run) + noise(run))),
    });
    assert!(html.len() < 4_000_000, "{}", html.len());
    assert!(html.contains("over the values of 2\u{202f}000 runs drawn from 4\u{202f}000"));
    let path = html.split("class=\"points\" d=\"").nth(1).unwrap();
    assert_eq!(path.split('"').next().unwrap().matches('M').count(), 2000);
    assert!(html.matches("<summary><code>").count() <= 200);
}
