use fairtrial_exec::Verdict;

use super::super::baseline::TestRuns;
use super::super::case::CaseResult;
use super::super::compare::OutputTerms;
use super::super::end::CallEnd;
use super::super::must_pass::MustPass;
use super::super::paths::Paths;
use super::super::read::{ResultsFile, ResultsKind, read_results};
use super::super::testing::{end, left, passed, results};
use super::*;

const SESSION: &str = "{\"event\":\"session\",\"format\":1}\n";

/// What a pytest left that ran `a` and `b` as said; lines are cut at `|`.
fn pytest(end: CallEnd, lines: &str) -> Results {
    let text = SESSION.to_owned() + &lines.replace('|', "\n") + "\n";
    let mut left = left("unit", end);
    left.file = ResultsFile::Bytes(text.as_bytes());
    read_results(ResultsKind::Pytest, left, &Paths::default())
}

fn ran(id: &str, status: &str) -> String {
    format!(r#"{{"event":"begin","id":"{id}"}}|{{"event":"end","id":"{id}","status":"{status}"}}"#)
}

const FINISH: &str = r#"|{"event":"finish","exit":0}"#;

fn both(a: &str, b: &str) -> String {
    format!("{}|{}{FINISH}", ran("a", a), ran("b", b))
}

fn exited(code: i32) -> CallEnd {
    let verdict = if code == 0 {
        Verdict::Ok
    } else {
        Verdict::Exit
    };
    CallEnd {
        code: Some(code),
        ..end(verdict)
    }
}

fn baseline(run: Results) -> Baseline {
    let runs = vec![run];
    let test = TestRuns {
        name: "unit".to_owned(),
        output: OutputTerms::Ignore,
        runs,
    };
    Baseline::fold(vec![test], MustPass::default()).expect("usable")
}

fn kind(base: &Baseline, found: Results) -> Option<(FailureKind, String)> {
    let judged = judge_correctness(base, &[found]);
    judged
        .failure
        .map(|failure| (failure.kind, failure.message))
}

/// CA-54
#[test]
fn a_pytest_run_has_the_failure_that_its_end_and_cases_show() {
    use FailureKind as K;
    let base = baseline(pytest(exited(0), &both("passed", "passed")));
    let begun = format!(r#"{}|{{"event":"begin","id":"b"}}"#, ran("a", "passed"));
    let stuck = format!(r#"{begun}|{{"event":"stuck","id":"b","error":"stacks"}}"#);
    let signal = || CallEnd {
        signal: Some(11),
        ..end(Verdict::Signal)
    };
    let table = [
        (exited(0), both("passed", "passed"), None),
        // What the exit code says beside the cases is the framework's business.
        (exited(1), both("passed", "passed"), None),
        (
            exited(1),
            both("passed", "failed"),
            Some((
                K::Mismatch,
                "1 of 2 cases differ; the first: `b` was passed and is failed",
            )),
        ),
        (
            exited(1),
            both("passed", "timed_out"),
            Some((
                K::Timeout,
                "1 of 2 cases differ; the first: `b` was passed and is timed_out",
            )),
        ),
        (
            exited(1),
            both("failed", "timed_out"),
            Some((
                K::Mismatch,
                "2 of 2 cases differ; the first: `a` was passed and is failed",
            )),
        ),
        (
            signal(),
            both("passed", "passed"),
            Some((K::Crash, "test `unit`: signal 11")),
        ),
        (
            signal(),
            begun.clone(),
            Some((K::Crash, "test `unit`: signal 11 while `b` was running")),
        ),
        (
            exited(0),
            begun.clone(),
            Some((K::Crash, "test `unit`: exit code 0 while `b` was running")),
        ),
        (
            exited(0),
            ran("a", "passed"),
            Some((
                K::Crash,
                "test `unit`: exit code 0 before its cases were done",
            )),
        ),
        (
            exited(1),
            stuck,
            Some((
                K::Timeout,
                "test `unit`: exit code 1 before its cases were done",
            )),
        ),
        (
            end(Verdict::Timeout),
            begun.clone(),
            Some((K::Timeout, "test `unit`: timeout while `b` was running")),
        ),
        (
            end(Verdict::MemoryLimit),
            begun,
            Some((K::Limit, "test `unit`: memory limit while `b` was running")),
        ),
        (
            exited(5),
            FINISH[1..].to_owned(),
            Some((
                K::NoResults,
                "test `unit`: pytest found no tests (exit code 5)",
            )),
        ),
    ];
    for (end, lines, failure) in table {
        let failure = failure.map(|(kind, message)| (kind, message.to_owned()));
        assert_eq!(kind(&base, pytest(end, &lines)), failure, "{lines}");
    }
}

/// CA-48, CA-52
#[test]
fn exit_code_0_without_results_is_no_results() {
    let base = baseline(pytest(exited(0), &both("passed", "passed")));
    for kind_of in [ResultsKind::Pytest, ResultsKind::Junit] {
        let found = read_results(kind_of, left("unit", exited(0)), &Paths::default());
        let why = "test `unit`: it left no file of results (exit code 0)".to_owned();
        assert_eq!(kind(&base, found), Some((FailureKind::NoResults, why)));
    }
}

/// CA-52, CA-54
#[test]
fn an_end_that_the_base_has_too_is_not_held_against_a_candidate() {
    let begun = format!(r#"{}|{{"event":"begin","id":"b"}}"#, ran("a", "passed"));
    for (verdict, other) in [
        (Verdict::Timeout, Verdict::Signal),
        (Verdict::Signal, Verdict::MemoryLimit),
    ] {
        let base = baseline(pytest(end(verdict), &begun));
        assert_eq!(kind(&base, pytest(end(verdict), &begun)), None, "{verdict}");
        assert!(
            kind(&base, pytest(end(other), &begun)).is_some(),
            "{verdict}"
        );
        assert_eq!(
            kind(&base, pytest(exited(0), &both("passed", "passed"))),
            None,
            "{verdict}"
        );
    }
}

/// CA-56
#[test]
fn what_could_not_be_started_is_infra_and_what_was_called_off_not_run() {
    let base = baseline(results("unit", [("a", passed())]));
    for (verdict, expected) in [
        (Verdict::SetupFailed, FailureKind::Infra),
        (Verdict::Cancelled, FailureKind::NotRun),
    ] {
        let found = read_results(
            ResultsKind::Exit,
            left("unit", end(verdict)),
            &Paths::default(),
        );
        let failure = judge_correctness(&base, &[found]).failure.expect("failed");
        assert_eq!(
            (failure.kind, failure.retry, failure.diffs_total),
            (expected, false, 0)
        );
    }
}

/// CA-54, CA-56
#[test]
fn infra_of_one_command_outweighs_what_another_shows() {
    let test = |name: &str| TestRuns {
        name: name.to_owned(),
        output: OutputTerms::Ignore,
        runs: vec![results(name, [("a", passed())])],
    };
    let base = Baseline::fold(vec![test("one"), test("two")], MustPass::default()).expect("usable");
    let crashed = Results {
        end: end(Verdict::Signal),
        ..results("one", [("a", CaseResult::new(CaseStatus::Crashed))])
    };
    let unstarted = Results {
        end: end(Verdict::SetupFailed),
        ..results("two", [])
    };
    let judged = judge_correctness(&base, &[crashed, unstarted]);
    assert_eq!(judged.failure.expect("failed").kind, FailureKind::Infra);
}

/// CA-54, CA-55
#[test]
fn a_failure_has_its_diffs_and_its_call_and_reads_back() {
    let base = baseline(read_results(
        ResultsKind::Exit,
        left("unit", exited(0)),
        &Paths::default(),
    ));
    let found = read_results(
        ResultsKind::Exit,
        left("unit", end(Verdict::Timeout)),
        &Paths::default(),
    );
    let judged = judge_correctness(&base, &[found]);
    let failure = judged.failure.clone().expect("failed");
    assert_eq!(
        (failure.kind, failure.diffs_total),
        (FailureKind::Timeout, 1)
    );
    assert_eq!(failure.outcome.expect("a call").end, end(Verdict::Timeout));
    let text = serde_json::to_string(&judged).expect("JSON");
    assert!(text.contains(r#""trust":"in-process""#), "{text}");
    assert_eq!(
        serde_json::from_str::<Correctness>(&text).expect("read"),
        judged
    );
}

/// CA-59
#[test]
fn a_judge_is_trusted_where_it_had_the_last_word_on_everything() {
    let base = baseline(results("unit", [("a", passed())]));
    let by = |trust| Results {
        trust,
        ..results("unit", [("a", passed())])
    };
    let trust = |found: &[Results]| judge_correctness(&base, found).trust;
    assert_eq!(trust(&[by(Trust::Judge)]), Trust::Judge);
    assert_eq!(trust(&[by(Trust::InProcess)]), Trust::InProcess);
    assert_eq!(trust(&[]), Trust::InProcess);
}
