//! Both halves of the plug-in together: a real pytest writes, the reader reads, candidates are judged. Needs an
//! interpreter with pytest, named by FAIRTRIAL_TEST_NUMPY; skipped, with a word, where there is none.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use fairtrial_candidates::cases::{
    Baseline, CallEnd, Correctness, FailureKind, Left, MustPass, Output, OutputTerms,
    PYTEST_PLUGIN, PYTEST_PLUGIN_FILE, Paths, PluginTerms, Results, ResultsFile, ResultsKind,
    Scope, TestRuns, Trust, judge_correctness, pytest_environment, read_results,
};
use fairtrial_exec::Verdict;
use fairtrial_tests::note;

const TESTS: &str = r#"
import pathlib, pytest, solve

def test_values(record_value):
    record_value("total", solve.total([0.1] * 10))
    with pytest.raises(ValueError) as caught:
        solve.refuse(pathlib.Path(__file__).parent)
    record_value("refusal", caught.value)

@pytest.mark.parametrize("n", [0, 1])
def test_square(n):
    print("squared", n)
    assert solve.square(n) == n * n

def test_wrong_in_the_base():
    assert solve.square(2) == 5
"#;

const BASE: &str = r#"
def total(values):
    return sum(values)

def refuse(place):
    raise ValueError("no %s" % place)

def square(n):
    return n * n
"#;

/// Runs pytest in a directory of its own, as a slot would be.
fn run(python: &str, place: &Path, solve: &str) -> Results {
    let (plugin, project) = (place.join("plugin"), place.join("project"));
    for folder in [&plugin, &project] {
        fs::create_dir_all(folder).expect("a directory");
    }
    fs::write(plugin.join(PYTEST_PLUGIN_FILE), PYTEST_PLUGIN).expect("the plug-in");
    fs::write(project.join("test_solve.py"), TESTS).expect("the tests");
    fs::write(project.join("solve.py"), solve).expect("the candidate");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let results = place.join("cases.jsonl");
    let terms = PluginTerms {
        directory: &text(&plugin),
        results: &text(&results),
        case_timeout_s: Some(10.0),
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "a test runs the text that the engine will run"
    )]
    let child = Command::new(python)
        .args(["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .current_dir(&project)
        .envs(pytest_environment(&terms, |_| None))
        .stdin(Stdio::null())
        .output()
        .expect("pytest starts");
    let status = child.status;
    let verdict = match (status.code(), status.signal()) {
        (Some(0), _) => Verdict::Ok,
        (_, Some(_)) => Verdict::Signal,
        _ => Verdict::Exit,
    };
    let paths = Paths::new([(text(&project), "/repo")]);
    let bytes = fs::read(&results).ok();
    let left = Left {
        test: "unit",
        trust: Trust::InProcess,
        end: CallEnd {
            verdict,
            code: status.code(),
            signal: status.signal(),
            wall_s: None,
            message: String::new(),
        },
        file: bytes
            .as_deref()
            .map_or(ResultsFile::Absent, ResultsFile::Bytes),
        stdout: Output::of(&child.stdout, &paths),
        stderr: Output::of(&child.stderr, &paths),
    };
    read_results(ResultsKind::Pytest, left, &paths)
}

fn python() -> Option<String> {
    let named = std::env::var("FAIRTRIAL_TEST_NUMPY").ok();
    if named.is_none() {
        note("skipped: FAIRTRIAL_TEST_NUMPY names no interpreter with pytest");
    }
    named
}

/// CA-46, CA-48, CA-50, CA-51, CA-54
#[test]
fn candidates_are_judged_by_what_pytest_says_of_them() {
    let Some(python) = python() else { return };
    let place = tempfile::tempdir().expect("a directory");
    let runs = ["base1", "base2"].map(|slot| run(&python, &place.path().join(slot), BASE));
    let test = TestRuns {
        name: "unit".to_owned(),
        output: OutputTerms::Compare,
        runs: runs.to_vec(),
    };
    let baseline = Baseline::fold(vec![test], MustPass::default()).expect("usable");
    assert_eq!((baseline.judged(), baseline.quarantined().count()), (4, 0));

    let judge = |name: &str, from: &str, to: &str| -> Correctness {
        assert!(BASE.contains(from), "{from}");
        let found = run(&python, &place.path().join(name), &BASE.replace(from, to));
        judge_correctness(&baseline, &[found])
    };
    // Another order of adding gives another last digit.
    let close = judge("close", "sum(values)", "0.1 + sum(values[1:]) + 1e-15");
    assert_eq!(close.failure, None);
    assert_eq!((close.comparison.passed, close.comparison.total), (4, 4));
    // As wrong as the base, where the base is wrong.
    let wrong = judge("wrong", "n * n", "n");
    assert_eq!(wrong.failure, None);
    let fixed = judge("fixed", "n * n", "n * n + (n == 2)");
    assert_eq!(fixed.failure, None);
    assert_eq!(
        fixed.comparison.fixed[0].case,
        "test_solve.py::test_wrong_in_the_base"
    );

    let hang = "__import__('time').sleep(60)";
    let table = [
        (
            "value",
            "sum(values)",
            "sum(values) + 1e-6",
            FailureKind::Mismatch,
            Some(Scope::Value),
            1,
        ),
        (
            "message",
            "\"no %s\"",
            "\"not %s\"",
            FailureKind::Mismatch,
            Some(Scope::Value),
            1,
        ),
        (
            "status",
            "n * n",
            "n + 1",
            FailureKind::Mismatch,
            Some(Scope::Status),
            2,
        ),
        (
            "prints",
            "return n * n",
            "print(1); return n * n",
            FailureKind::Mismatch,
            Some(Scope::Stdout),
            3,
        ),
        (
            "syntax",
            "return n * n",
            "return n *",
            FailureKind::Mismatch,
            Some(Scope::Missing),
            4,
        ),
        (
            "dies",
            "return n * n",
            "__import__('os').abort()",
            FailureKind::Crash,
            Some(Scope::Status),
            3,
        ),
        (
            "leaves",
            "return n * n",
            "__import__('os')._exit(0)",
            FailureKind::Crash,
            Some(Scope::Status),
            3,
        ),
        (
            "hangs",
            "return sum(values)",
            hang,
            FailureKind::Timeout,
            Some(Scope::Status),
            1,
        ),
    ];
    for (name, from, to, kind, scope, differing) in table {
        let judged = judge(name, from, to);
        let failure = judged.failure.unwrap_or_else(|| panic!("{name} was taken"));
        assert_eq!(failure.kind, kind, "{name}: {}", failure.message);
        assert_eq!(
            failure.diffs.first().map(|diff| diff.scope),
            scope,
            "{name}: {}",
            failure.message
        );
        assert_eq!(
            failure.diffs_total, differing,
            "{name}: {:?}",
            failure.diffs
        );
    }
    let value = judge("shown", "sum(values)", "None")
        .failure
        .expect("it differs");
    let diff = &value.diffs[0];
    assert_eq!(diff.place.as_deref(), Some("total"));
    assert_eq!(
        (diff.base.as_deref(), diff.candidate.as_deref()),
        (Some("0.9999999999999999"), Some("None"))
    );
    assert!(
        diff.source
            .as_deref()
            .is_some_and(|source| source.starts_with("def test_values"))
    );
}
