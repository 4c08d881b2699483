//! Whole reports, of journals that are written here run by run.

mod compared;

use std::path::Path;

use super::Report;
use super::gather::Gathered;
use super::tested::{Tested, tested};
use crate::journal::{
    Decision, Finish, Invocation, Journal, Meta, Reader, Record, Stage, Start, Status,
};
use crate::plan::{Plan, RunSpec};
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
        journal_id: "j",
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
            stage: Stage::Agent,
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
        action: "reuse",
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
        directory: directory.path(),
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

/// ST-81
#[test]
fn agents_are_beside_each_other_in_every_condition() {
    let crossed = |conditions: usize| {
        let levels = (0..conditions).map(|level| format!("{{name: l{level}, value: {level}}}"));
        let levels: Vec<_> = levels.collect();
        let text = format!(
            "study_id: s\ntitle: T\nfactors: [{{name: x, levels: [{}]}}]\nagent_specs: [a, b]\nproblem_ids: [p]\noutcomes:\n\
             - {{name: w, source_table: runs, column: w, aggregation: mean}}\n\
             - {{name: v, source_table: runs, column: v, aggregation: mean, primary: true}}\nrun_budget: {{replicates: 2}}\n",
            levels.join(", ")
        );
        let study = Study::parse(Path::new("study.yaml"), &text, None);
        let study = study.unwrap_or_else(|invalid| panic!("{invalid}"));
        report(&study, |run| {
            let is_b = run.agent_id().as_text() == Some("b");
            let of_agent = if is_b { 40.0 } else { 20.0 };
            (!is_b || level(run) > 0.0)
                .then(|| value(of_agent + level(run) + f64::from(run.replicate)))
        })
    };
    let html = crossed(2);
    let table = html
        .split("<h3>v by condition and agent</h3>")
        .nth(1)
        .unwrap();
    let table = table.split("</table>").next().unwrap();
    assert!(
        table.contains("<th>Condition</th><th>a</th><th>b</th>"),
        "{table}"
    );
    assert!(
        table.contains("<td>21.5<small>[15.1, 27.9] · n = 2</small></td><td>–</td>"),
        "{table}"
    );
    assert!(
        table.contains("<td>22.5<small>[16.1, 28.9] · n = 2</small></td><td>42.5<small>"),
        "{table}"
    );
    assert!(crossed(41).contains("No table: 41 conditions and 2 agents"));
    assert!(!crossed(1).contains("by condition and agent"));
}
