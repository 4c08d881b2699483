//! Phase 1: what the base's tests gave, and who gives the same.

use fairtrial_tests::note;
use serde_json::{Value as Json, json};

use super::trial::{Trial, answers, changes, ends, right, wrong};

/// A repository whose `cases.txt` says which cases there are and how each ends, and a test that tells it as JUnit does.
fn with_cases(cases: &str) -> Trial {
    let trial = Trial::new();
    trial.write("repo/cases.txt", cases);
    trial.write(
        "repo/tests/junit.sh",
        "{ echo '<testsuite>'; while read name status; do case $status in\n\
         pass) echo \"<testcase classname='c' name='$name'/>\";;\n\
         *) echo \"<testcase classname='c' name='$name'><failure message='$status'/></testcase>\";;\n\
         esac; done < cases.txt; echo '</testsuite>'; } > r.xml\n",
    );
    trial.commit();
    trial.spec(JUNIT);
    trial
}

const JUNIT: &str =
    "tests: [{name: j, command: [sh, tests/junit.sh], results: junit, junit_path: r.xml}]\n";

fn cases(name: &str, text: &str) -> Json {
    changes(name, &[("cases.txt", text)])
}

/// CA-48, CA-50
#[test]
fn cases_are_compared_by_name_and_none_may_be_missing() {
    let trial = with_cases("a pass\nb pass\nc fail\n");
    trial.candidates(&[
        cases("missing", "a pass\nc fail\n"),
        cases("new", "a pass\nb pass\nc fail\nd fail\n"),
        cases("fixes", "a pass\nb pass\nc pass\n"),
        cases("breaks", "a pass\nb fail\nc fail\n"),
        cases("none", ""),
        cases("renames", "a pass\nB pass\nc fail\n"),
    ]);
    let report = trial.report(0, &[]);
    for (name, kind) in [
        ("new", ""),
        ("fixes", ""),
        ("missing", "mismatch"),
        ("breaks", "mismatch"),
        ("renames", "mismatch"),
    ] {
        assert_eq!(report.failure(name), kind, "{}", report.of(name));
    }
    assert_ne!(report.failure("none"), "", "empty results never match");
    assert_eq!(report.of("new")["cases"]["new"], 1);
    assert_eq!(report.of("fixes")["cases"]["fixed"], 1);
    let scope = |name: &str| report.of(name)["failure"]["diffs"][0]["scope"].clone();
    assert_eq!(
        (scope("missing"), scope("breaks")),
        (json!("missing"), json!("status"))
    );
}

/// CA-48: a file of results that is not there or not whole.
#[test]
fn without_results_there_is_nothing_to_be_right() {
    let trial = with_cases("a pass\n");
    trial.spec("tests: [{name: j, command: 'sh tests/junit.sh; sh answer.sh', results: junit, junit_path: r.xml}]\n");
    trial.candidates(&[
        answers("absent", "rm r.xml\n"),
        answers("torn", "head -c 30 r.xml > x; mv x r.xml\n"),
        answers("link", "mv r.xml x; ln -s x r.xml\n"),
        right("good"),
    ]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("good"), "");
    for name in ["absent", "torn", "link"] {
        assert_eq!(report.failure(name), "no_results", "{}", report.of(name));
    }
}

/// CA-50
#[test]
fn what_must_pass_must_pass_whatever_the_base_did() {
    let trial = with_cases("a pass\nb fail\n");
    trial.spec(&format!(
        "{JUNIT}baseline: {{runs: 1, must_pass: ['*b']}}\n"
    ));
    trial.candidates(&[
        cases("still", "a pass\nb fail\n\n"),
        cases("fixed", "a pass\nb pass\n"),
    ]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("fixed"), "");
    assert_eq!(report.failure("still"), "mismatch");
}

/// CA-46, CA-47: the base runs alone first, then beside itself; a case that is not the same each time is not judged.
#[test]
fn a_case_that_differs_between_repeats_is_quarantined() {
    let trial = with_cases("steady pass\nflaky pass\n");
    // The second and the third run wait for each other: one after the other, they would wait for ever.
    trial.write(
        "repo/tests/run.sh",
        "n=1; until mkdir \"$PLACE/run-$n\" 2>/dev/null; do n=$((n + 1)); done\n\
         test $n = 1 || test $n -gt 3 || until test -e \"$PLACE/run-3\"; do sleep 0.01; done\n\
         test $n != 2 || sed -i 's/flaky pass/flaky fail/' cases.txt\nsh tests/junit.sh\n",
    );
    trial.commit();
    let place = trial.shell.path();
    trial.spec(&format!(
        "baseline: {{runs: 3}}\ntests: [{{name: j, command: [sh, tests/run.sh], timeout: 30s, results: junit, junit_path: r.xml, env: {{PLACE: {place:?}}}}}]\n"
    ));
    trial.candidates(&[
        cases("unlucky", "steady pass\nflaky fail\n"),
        cases("bad", "steady fail\nflaky pass\n"),
    ]);
    let report = trial.report(0, &[]);
    let baseline = &report.0["baseline"];
    assert_eq!(
        (&baseline["cases"], &baseline["judged"]),
        (&json!(2), &json!(1)),
        "{baseline}"
    );
    assert_eq!(baseline["quarantined"][0]["case"], "c::flaky");
    assert_eq!(report.failure("unlucky"), "");
    assert_eq!(report.failure("bad"), "mismatch");
}

/// CA-51: what is printed is compared where that is asked for; something beside nothing differs.
#[test]
fn output_is_compared_where_it_is_asked_for() {
    let trial = Trial::new();
    trial.spec("tests: [{name: t, command: [sh, answer.sh], output: compare}]\n");
    trial.candidates(&[
        answers("same", "echo 42 # as before\n"),
        answers("other", "echo 43\n"),
        answers("silent", "true\n"),
        answers("louder", "echo 42; echo 42\n"),
    ]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("same"), "");
    for name in ["other", "silent", "louder"] {
        assert_eq!(report.failure(name), "mismatch", "{name}");
        assert_eq!(report.of(name)["failure"]["diffs"][0]["scope"], "stdout");
    }
}

/// CA-52: a case that takes too long in the base says nothing; if there is no other, there is nothing to compare with.
#[test]
fn what_takes_too_long_in_the_base_is_ignored() {
    let trial = Trial::new();
    let slow = "{name: slow, command: [sleep, '600'], timeout: 200ms}";
    trial.spec(&format!(
        "tests: [{slow}, {{name: check, command: [sh, tests/check.sh]}}]\n"
    ));
    trial.candidates(&[right("good"), wrong("bad")]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("good"), "");
    assert_eq!(report.failure("bad"), "mismatch");
    trial.spec(&format!("tests: [{slow}]\noutput: second\n"));
    let done = trial.run(&[]);
    ends(&done, 1);
    assert!(done.stderr.contains("baseline unusable"), "{}", done.stderr);
}

/// CA-53: the same verdicts, differences and ids however many run at once.
#[test]
fn any_number_of_slots_gives_the_same_verdicts() {
    let trial = with_cases("a pass\nb pass\nc fail\nd pass\n");
    trial.spec(
        "tests:\n- {name: j, command: [sh, tests/junit.sh], results: junit, junit_path: r.xml, output: compare}\n\
         - {name: check, command: [sh, tests/check.sh], output: compare, timeout: 20s}\n",
    );
    let all: Vec<Json> = (0..30)
        .map(|number| {
            let name = format!("c{number}");
            match number % 6 {
                0 => right(&name),
                1 => wrong(&name),
                2 => cases(&name, &format!("a pass\nb fail{number}\nc fail\nd pass\n")),
                3 => cases(&name, &format!("a pass\nc fail\nd pass\n#{number} pass\n")),
                4 => answers(&name, &format!("echo {number}; exit {number}\n")),
                _ => right(&format!("c{}", number - 5)),
            }
        })
        .collect();
    trial.candidates(&all);
    let found = ["1", "2", "8"].map(|slots| {
        let output = format!("out-{slots}");
        let report = trial.report(0, &["-j", slots, "--output", &output]);
        (report.correctness(), report.names().join(" "))
    });
    assert_eq!(found[0].0.len(), 25, "five have the name of another");
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

/// CA-48, CA-51, CA-54: pytest by a plug-in of ours, with values that tests record.
#[test]
fn pytest_is_asked_without_touching_the_project() {
    let Ok(python) = std::env::var("FAIRTRIAL_TEST_NUMPY") else {
        return note("skipped: FAIRTRIAL_TEST_NUMPY names no interpreter, which would have pytest");
    };
    let trial = Trial::new();
    trial.write("repo/calc.py", "def half(n):\n    return n / 2\n");
    trial.write(
        "repo/tests/test_calc.py",
        "import sys; sys.path.insert(0, '.')\nimport pytest\nfrom calc import half\n\n\
         @pytest.mark.parametrize('n', [1, 2, 3])\ndef test_half(n, record_value):\n    record_value('half', half(n))\n\n\
         def test_zero():\n    assert half(0) == 0\n",
    );
    trial.write(
        "repo/pytest.ini",
        "[pytest]\naddopts = -p no:cacheprovider\n",
    );
    trial.commit();
    trial.spec(&format!(
        "tests: [{{name: py, command: [{python:?}, -m, pytest, -q], results: pytest}}]\n"
    ));
    trial.candidates(&[
        changes("same", &[("calc.py", "def half(n):\n    return 0.5 * n\n")]),
        changes(
            "floors",
            &[("calc.py", "def half(n):\n    return n // 2\n")],
        ),
        changes("raises", &[("calc.py", "def half(n):\n    return 1 / n\n")]),
        changes("exits", &[("calc.py", "import os\nos._exit(0)\n")]),
    ]);
    let before = trial.census("repo");
    let report = trial.report(0, &[]);
    assert_eq!(report.0["baseline"]["cases"], 4, "{}", report.0["baseline"]);
    assert_eq!(report.failure("same"), "", "{}", report.of("same"));
    assert_eq!(report.failure("floors"), "mismatch");
    assert_eq!(report.of("floors")["failure"]["diffs"][0]["scope"], "value");
    assert_eq!(report.failure("raises"), "mismatch");
    assert_ne!(report.failure("exits"), "", "{}", report.of("exits"));
    assert_eq!(trial.census("repo"), before);
}
