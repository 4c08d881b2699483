use fairtrial_exec::Verdict;

use super::super::output::Output;
use super::super::paths::Paths;
use super::super::testing::{end, passed, results, valued};
use super::*;

fn runs(runs: Vec<Results>) -> TestRuns {
    TestRuns {
        name: "unit".to_owned(),
        output: OutputTerms::Compare,
        runs,
    }
}

fn fold(all: Vec<Results>) -> Result<Baseline, Unusable> {
    Baseline::fold(vec![runs(all)], MustPass::default())
}

fn case(status: CaseStatus) -> CaseResult {
    CaseResult::new(status)
}

fn said(text: &str) -> CaseResult {
    CaseResult {
        output: Output::of(text.as_bytes(), &Paths::default()),
        ..passed()
    }
}

/// CA-46, CA-47, CA-52
#[test]
fn a_case_is_judged_if_all_runs_agree_on_it() {
    let first = [
        ("steady", passed()),
        ("fails", case(CaseStatus::Failed)),
        ("flaky", passed()),
        ("late", passed()),
        ("gone", passed()),
        ("value", valued("v", "1.0")),
        ("close", valued("v", "1.0")),
        ("unnamed", valued("v", "1")),
        ("output", said("1")),
    ];
    let second = [
        ("steady", passed()),
        ("fails", case(CaseStatus::Failed)),
        ("flaky", case(CaseStatus::Failed)),
        ("late", case(CaseStatus::TimedOut)),
        ("value", valued("v", "1.1")),
        ("close", valued("v", "1.0000000001")),
        ("unnamed", passed()),
        ("output", said("2")),
    ];
    let baseline = fold(vec![results("unit", first), results("unit", second)]).expect("usable");
    let [test] = &*baseline.tests else {
        panic!("one test");
    };
    let judged: Vec<_> = test
        .cases
        .iter()
        .map(|(id, case)| (&**id, case.steady_output))
        .collect();
    assert_eq!(
        judged,
        [
            ("close", true),
            ("fails", true),
            ("output", false),
            ("steady", true)
        ]
    );
    let quarantine: Vec<_> = baseline
        .quarantined()
        .map(|(key, why)| (key.case, why.clone()))
        .collect();
    let why = [
        (
            "flaky",
            Unsteady::Status(vec![CaseStatus::Passed, CaseStatus::Failed]),
        ),
        ("gone", Unsteady::Absent { seen: 1, runs: 2 }),
        ("late", Unsteady::TimedOut),
        ("unnamed", Unsteady::Value("v".to_owned())),
        ("value", Unsteady::Value("v".to_owned())),
    ];
    assert_eq!(quarantine, why.map(|(case, why)| (case.to_owned(), why)));
    assert_eq!(baseline.judged(), 4);
    let text = serde_json::to_string(&baseline).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Baseline>(&text).expect("read"),
        baseline
    );
}

/// CA-47, CA-52
#[test]
fn a_base_without_a_usable_case_says_why() {
    let failing = CaseResult {
        error: Some("no such file".to_owned()),
        ..case(CaseStatus::Failed)
    };
    let one = |result: CaseResult| results("unit", [("a", result)]);
    let table = [
        (
            vec![one(failing.clone())],
            "no case passes (1 fail or are skipped, 0 quarantined)",
            "a: failed\nno such file",
        ),
        (
            vec![one(case(CaseStatus::Skipped))],
            "no case passes (1 fail or are skipped, 0 quarantined)",
            "",
        ),
        (
            vec![one(case(CaseStatus::TimedOut))],
            "all its cases timed out (1)",
            "a: timed_out\n",
        ),
        (
            vec![one(passed()), one(failing)],
            "no case does the same in all runs (1 quarantined)",
            "a: failed\nno such file",
        ),
        (vec![], "test `unit` was not run", ""),
        (
            vec![results("unit", [])],
            "test `unit`: it has no cases",
            "",
        ),
    ];
    for (runs, message, output) in table {
        let unusable = fold(runs).expect_err(message);
        assert_eq!((&*unusable.message, &*unusable.output), (message, output));
    }
}

/// CA-47
#[test]
fn a_base_without_results_gives_the_reason_and_the_output() {
    let mut run = results("unit", []);
    run.fault = Some(ResultsFault::NoResults(
        "it left no file of results".to_owned(),
    ));
    run.stderr = Output::of(b"pytest: not found\n", &Paths::default());
    let unusable = fold(vec![run]).expect_err("unusable");
    assert_eq!(
        unusable.to_string(),
        "baseline unusable: test `unit`: it left no file of results"
    );
    assert_eq!(unusable.output, "pytest: not found");
    let mut run = results("unit", [("a", passed())]);
    run.end = end(Verdict::SetupFailed);
    let unusable = fold(vec![run]).expect_err("unusable");
    assert_eq!(unusable.message, "test `unit`: setup failed");
}

/// CA-50
#[test]
fn a_base_that_fails_what_must_pass_is_usable() {
    let failing = || {
        vec![runs(vec![results(
            "unit",
            [("a", case(CaseStatus::Failed))],
        )])]
    };
    assert!(Baseline::fold(failing(), MustPass::new(["a"])).is_ok());
    assert!(Baseline::fold(failing(), MustPass::new(["a*"])).is_ok());
    assert!(Baseline::fold(failing(), MustPass::new(["b*"])).is_err());
}
