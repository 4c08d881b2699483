use proptest::prelude::*;

use super::super::baseline::TestRuns;
use super::super::case::CaseStatus;
use super::super::must_pass::MustPass;
use super::super::output::Output;
use super::super::paths::Paths;
use super::super::recorded::Recorded;
use super::super::testing::{passed, results, valued};
use super::*;

fn case(status: CaseStatus) -> CaseResult {
    CaseResult::new(status)
}

fn failed(error: &str) -> CaseResult {
    CaseResult {
        error: Some(error.to_owned()),
        ..case(CaseStatus::Failed)
    }
}

fn said(text: &str) -> CaseResult {
    CaseResult {
        output: Output::of(text.as_bytes(), &Paths::default()),
        ..passed()
    }
}

fn baseline(runs: Vec<Results>, output: OutputTerms, must_pass: MustPass) -> Baseline {
    let name = runs[0].test.clone();
    let test = TestRuns { name, output, runs };
    Baseline::fold(vec![test], must_pass).expect("usable")
}

fn unit(cases: &[(&str, CaseResult)]) -> Results {
    results("unit", cases.to_vec())
}

/// Every difference on a line: case, scope, place, base, candidate.
fn lines(comparison: &Comparison) -> Vec<String> {
    let text = |side: &Option<String>| side.clone().unwrap_or("-".to_owned());
    let line = |diff: &Diff| {
        let place = text(&diff.place);
        let scope = serde_json::to_value(diff.scope).expect("JSON");
        let scope = scope.as_str().expect("a name").to_owned();
        [
            diff.case.clone(),
            scope,
            place,
            text(&diff.base),
            text(&diff.candidate),
        ]
        .join(" ")
    };
    comparison.diffs.iter().map(line).collect()
}

/// CA-50, CA-51
#[test]
fn statuses_come_first_then_values_then_output() {
    use CaseStatus::{Crashed, Error, Failed, Skipped, TimedOut, Xfailed, Xpassed};
    let table = [
        (passed(), Some(passed()), None),
        (
            passed(),
            Some(failed("why")),
            Some("a status - passed failed"),
        ),
        (
            passed(),
            Some(case(Skipped)),
            Some("a status - passed skipped"),
        ),
        (
            passed(),
            Some(case(TimedOut)),
            Some("a status - passed timed_out"),
        ),
        (
            passed(),
            Some(case(Crashed)),
            Some("a status - passed crashed"),
        ),
        (passed(), None, Some("a missing - - -")),
        (case(Failed), Some(case(Failed)), None),
        (case(Failed), Some(passed()), None),
        (case(Error), Some(passed()), None),
        (
            case(Failed),
            Some(case(Error)),
            Some("a status - failed error"),
        ),
        (case(Failed), None, Some("a missing - - -")),
        (case(Xfailed), Some(case(Xpassed)), None),
        (
            case(Xfailed),
            Some(case(Failed)),
            Some("a status - xfailed failed"),
        ),
        (case(Skipped), Some(case(Skipped)), None),
        (
            case(Skipped),
            Some(passed()),
            Some("a status - skipped passed"),
        ),
        (
            valued("v", "[1,2.0]"),
            Some(valued("v", "[1,2.0000000001]")),
            None,
        ),
        (
            valued("v", "[1,2.0]"),
            Some(valued("v", "[1,2.1]")),
            Some("a value v[1] 2.0 2.1"),
        ),
        (
            valued("v", "1"),
            Some(valued("w", "1")),
            Some("a value v 1 -"),
        ),
        (passed(), Some(valued("w", "1")), Some("a value w - 1")),
        (said("x"), Some(said("x")), None),
        (said("x"), Some(said("y")), Some("a stdout - x y")),
        (said("x"), Some(passed()), Some("a stdout - x ")),
        (passed(), Some(said("x")), Some("a stdout -  x")),
    ];
    for (base, candidate, diff) in table {
        // A second case keeps the baseline usable whatever the first does.
        let base = baseline(
            vec![unit(&[("a", base), ("z", passed())])],
            OutputTerms::Compare,
            MustPass::default(),
        );
        let mut found = vec![("z", passed())];
        found.extend(candidate.map(|candidate| ("a", candidate)));
        let comparison = compare(&base, &[unit(&found)]);
        assert_eq!(lines(&comparison), diff.into_iter().collect::<Vec<_>>());
        assert_eq!(comparison.total, 2);
        assert_eq!(comparison.passed + comparison.diffs_total, comparison.total);
    }
}

/// CA-50
#[test]
fn fixed_cases_are_named_and_new_ones_noted_only() {
    let base = [("bad", failed("x")), ("ok", passed())];
    let base = baseline(vec![unit(&base)], OutputTerms::Ignore, MustPass::default());
    let found = unit(&[("bad", passed()), ("ok", passed()), ("new", failed("y"))]);
    let comparison = compare(&base, &[found]);
    let names = |keys: &[CaseKey]| keys.iter().map(|key| key.case.clone()).collect::<Vec<_>>();
    assert_eq!(names(&comparison.fixed), ["bad"]);
    assert_eq!(
        (names(&comparison.new_cases), comparison.new_total),
        (vec!["new".to_owned()], 1)
    );
    assert_eq!(
        (comparison.passed, comparison.total, comparison.diffs_total),
        (2, 2, 0)
    );
}

/// CA-50
#[test]
fn what_must_pass_is_judged_whatever_the_base_did() {
    let one = [
        ("bad", failed("x")),
        ("flaky", passed()),
        ("late", case(CaseStatus::TimedOut)),
        ("ok", passed()),
    ];
    let two = [
        ("bad", failed("x")),
        ("flaky", failed("x")),
        ("late", case(CaseStatus::TimedOut)),
        ("ok", passed()),
    ];
    let must_pass = MustPass::new(["bad", "fl*", "late", "new*", "nowhere", "nothing*"]);
    let base = baseline(vec![unit(&one), unit(&two)], OutputTerms::Ignore, must_pass);
    let found = [
        ("bad", failed("x")),
        ("flaky", failed("x")),
        ("late", case(CaseStatus::TimedOut)),
        ("new1", failed("x")),
        ("new2", passed()),
        ("ok", passed()),
    ];
    let comparison = compare(&base, &[unit(&found)]);
    assert_eq!(
        lines(&comparison),
        [
            "bad status - failed failed",
            "flaky status - - failed",
            "late status - - timed_out",
            "new1 status - - failed",
            "nowhere missing - - -",
        ]
    );
    assert_eq!((comparison.passed, comparison.total), (2, 7));
    let fine = ["bad", "flaky", "late", "nowhere", "ok"].map(|id| (id, passed()));
    let comparison = compare(&base, &[unit(&fine)]);
    assert_eq!((comparison.passed, comparison.total), (5, 5));
}

/// CA-47
#[test]
fn a_quarantined_case_is_not_judged_nor_an_unsteady_output() {
    let one = unit(&[("flaky", passed()), ("loud", said("1")), ("ok", passed())]);
    let two = unit(&[
        ("flaky", failed("x")),
        ("loud", said("2")),
        ("ok", passed()),
    ]);
    let base = baseline(vec![one, two], OutputTerms::Compare, MustPass::default());
    for flaky in [None, Some(passed()), Some(case(CaseStatus::Crashed))] {
        let mut found = vec![("loud", said("3")), ("ok", passed())];
        found.extend(flaky.map(|flaky| ("flaky", flaky)));
        let comparison = compare(&base, &[unit(&found)]);
        assert_eq!(
            (comparison.passed, comparison.total, comparison.new_total),
            (2, 2, 0)
        );
    }
}

/// CA-51
#[test]
fn output_is_compared_only_if_asked_for() {
    let base = baseline(
        vec![unit(&[("a", said("1"))])],
        OutputTerms::Ignore,
        MustPass::default(),
    );
    assert_eq!(compare(&base, &[unit(&[("a", said("2"))])]).diffs_total, 0);
}

/// CA-52
#[test]
fn empty_results_never_match() {
    let base = baseline(
        vec![unit(&[("a", passed())])],
        OutputTerms::Ignore,
        MustPass::default(),
    );
    for found in [
        vec![],
        vec![unit(&[])],
        vec![results("other", [("a", passed())])],
    ] {
        let comparison = compare(&base, &found);
        assert_eq!((comparison.passed, comparison.diffs_total), (0, 1));
    }
}

/// CA-50, CA-53
#[test]
fn two_commands_may_have_cases_of_one_id() {
    let runs = |name: &str, case: CaseResult| TestRuns {
        name: name.to_owned(),
        output: OutputTerms::Ignore,
        runs: vec![results(name, [("a", case)])],
    };
    let tests = vec![runs("slow", passed()), runs("fast", failed("x"))];
    let base = Baseline::fold(tests, MustPass::default()).expect("usable");
    let slow = results("slow", [("a", failed("y"))]);
    let fast = results("fast", [("a", case(CaseStatus::Error))]);
    let comparison = compare(&base, &[fast.clone(), slow.clone()]);
    let tests: Vec<_> = comparison.diffs.iter().map(|diff| &*diff.test).collect();
    assert_eq!(tests, ["slow", "fast"]);
    assert_eq!(comparison, compare(&base, &[slow, fast]));
}

/// CA-55
#[test]
fn a_diff_has_both_sides_and_the_source_and_fifty_are_kept() {
    let ids: Vec<_> = (0..60)
        .map(|number| format!("t.py::t{number:02}"))
        .collect();
    let with_source = |error: Option<&str>, status| CaseResult {
        error: error.map(str::to_owned),
        source: Some(0),
        ..case(status)
    };
    let mut first = unit(&[("ok", passed())]);
    for id in &ids {
        let result = with_source(Some("base's"), CaseStatus::Failed);
        first.cases.insert(id.clone(), result);
    }
    first.sources = vec!["def t(): ...".to_owned()];
    let base = baseline(
        vec![first.clone()],
        OutputTerms::Ignore,
        MustPass::default(),
    );
    let mut found = first;
    for result in found.cases.values_mut() {
        *result = with_source(Some("candidate's"), CaseStatus::Error);
    }
    let comparison = compare(&base, &[found]);
    assert_eq!(
        (comparison.diffs.len(), comparison.diffs_total),
        (MOST_DIFFS, 61)
    );
    let diff = &comparison.diffs[1];
    assert_eq!((&*diff.case, diff.scope), ("t.py::t00", Scope::Status));
    assert_eq!(
        (diff.base_status, diff.candidate_status),
        (Some(CaseStatus::Failed), Some(CaseStatus::Error))
    );
    assert_eq!(diff.base_error.as_deref(), Some("base's"));
    assert_eq!(diff.candidate_error.as_deref(), Some("candidate's"));
    assert_eq!(diff.source.as_deref(), Some("def t(): ..."));
    let text = serde_json::to_string(&comparison).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Comparison>(&text).expect("read"),
        comparison
    );
}

/// CA-55
#[test]
fn long_values_are_cut_where_they_part() {
    let value = |last: &str| valued("v", &format!("\"{}{last}\"", "x".repeat(9000)));
    let base = baseline(
        vec![unit(&[("a", value("1"))])],
        OutputTerms::Ignore,
        MustPass::default(),
    );
    let comparison = compare(&base, &[unit(&[("a", value("2"))])]);
    let diff = &comparison.diffs[0];
    let [one, two] = [&diff.base, &diff.candidate].map(|side| side.clone().expect("a value"));
    assert!(one.ends_with("x1'") && two.ends_with("x2'") && one.chars().count() <= 1500);
}

/// CA-50
#[test]
fn a_file_that_is_not_collected_explains_its_missing_cases() {
    let whole = || unit(&[("t.py::a", passed()), ("u.py::b", passed())]);
    let broken = || {
        let error = CaseResult {
            error: Some("SyntaxError".to_owned()),
            ..case(CaseStatus::Error)
        };
        unit(&[("t.py::collection", error), ("u.py::b", passed())])
    };
    let base = baseline(vec![whole()], OutputTerms::Ignore, MustPass::default());
    let comparison = compare(&base, &[broken()]);
    assert_eq!(lines(&comparison), ["t.py::a missing - - -"]);
    assert_eq!(
        comparison.diffs[0].candidate_error.as_deref(),
        Some("SyntaxError")
    );
    // The other way round it is fixed; a file that is gone is not.
    let base = baseline(vec![broken()], OutputTerms::Ignore, MustPass::default());
    let comparison = compare(&base, &[whole()]);
    assert_eq!(
        (
            comparison.diffs_total,
            comparison.fixed.len(),
            comparison.new_total
        ),
        (0, 1, 1)
    );
    let comparison = compare(&base, &[unit(&[("u.py::b", passed())])]);
    assert_eq!(lines(&comparison), ["t.py::collection missing - - -"]);
}

fn any_result() -> impl Strategy<Value = CaseResult> {
    let status = prop::sample::select(vec![
        CaseStatus::Passed,
        CaseStatus::Failed,
        CaseStatus::Error,
        CaseStatus::Skipped,
        CaseStatus::Xfailed,
        CaseStatus::Xpassed,
        CaseStatus::Crashed,
        CaseStatus::TimedOut,
    ]);
    let values = prop::collection::vec(("[vw]", prop::num::f64::ANY), 0..3);
    (status, "[xy]{0,2}", values).prop_map(|(status, text, values)| {
        let recorded = |value: f64| match value.is_finite() {
            true => Recorded::Float(value),
            false => serde_json::from_str(r#"{"float":"nan"}"#).expect("NaN"),
        };
        CaseResult {
            output: Output::of(text.as_bytes(), &Paths::default()),
            values: values
                .into_iter()
                .map(|(name, value)| (name, recorded(value)))
                .collect(),
            ..case(status)
        }
    })
}

fn any_cases() -> impl Strategy<Value = Vec<(String, CaseResult)>> {
    prop::collection::vec(("[a-e]", any_result()), 1..8)
}

fn found(cases: &[(String, CaseResult)]) -> Results {
    let mut found = unit(&[("always", passed())]);
    found.cases.extend(cases.iter().cloned());
    found
}

proptest! {
    /// CA-51
    #[test]
    fn the_base_never_differs_from_itself(cases in any_cases(), other in any_cases()) {
        for runs in [vec![found(&cases)], vec![found(&cases), found(&other)]] {
            let base = baseline(runs.clone(), OutputTerms::Compare, MustPass::default());
            for run in runs {
                let comparison = compare(&base, &[run]);
                prop_assert_eq!(comparison.diffs_total, 0);
                prop_assert_eq!((comparison.passed, comparison.new_total), (comparison.total, 0));
            }
        }
    }

    /// CA-53
    #[test]
    fn the_order_of_cases_runs_and_commands_changes_nothing(
        base_cases in any_cases(),
        mut cases in any_cases().prop_shuffle(),
    ) {
        let fold = |runs| baseline(runs, OutputTerms::Compare, MustPass::new(["b"]));
        // The same cases once each: of two with one id the reader has made two ids.
        cases.sort_by(|one, other| one.0.cmp(&other.0));
        cases.dedup_by(|one, other| one.0 == other.0);
        let shuffled: Vec<_> = cases.iter().rev().cloned().collect();
        let one = compare(&fold(vec![found(&base_cases), found(&base_cases)]), &[found(&cases)]);
        let other = compare(&fold(vec![found(&base_cases)]), &[results("x", []), found(&shuffled)]);
        prop_assert_eq!(one.passed + one.diffs_total, one.total);
        prop_assert_eq!(one, other);
    }
}
