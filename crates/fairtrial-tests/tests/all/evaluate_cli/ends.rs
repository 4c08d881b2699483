//! How an evaluation ends: what it prints, and its exit code.

use fairtrial_tests::wait_until;

use super::trial::{Trial, answers, ends, right, wrong};

/// CA-2, CA-3: 0.
#[test]
fn a_correct_candidate_is_enough_and_the_table_alone_is_on_standard_output() {
    let trial = Trial::new();
    trial.candidates(&[right("good"), wrong("bad")]);
    let done = trial.run(&[]);
    ends(&done, 0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", done.stdout);
    assert!(lines[0].starts_with("base ") && lines[0].contains("1 test"));
    assert!(lines[1].contains("good") && lines[1].contains("1/1"));
    assert!(lines[2].contains("bad") && lines[2].contains("mismatch (1)"));
    assert_eq!(done.stderr, "");
    trial.assert_nothing_left();
}

/// CA-2
#[test]
fn with_json_standard_output_is_the_report_and_nothing_else() {
    let trial = Trial::new();
    trial.candidates(&[right("good"), wrong("bad")]);
    let done = trial.run(&["--json"]);
    ends(&done, 0);
    assert_eq!(done.stdout.lines().count(), 1);
    let said: serde_json::Value = serde_json::from_str(&done.stdout).expect("one JSON report");
    assert_eq!(said, trial.written().0);
    assert_eq!(done.stderr, "");
}

/// CA-3: 3.
#[test]
fn none_correct_is_an_end_of_its_own() {
    let trial = Trial::new();
    trial.candidates(&[wrong("one"), wrong("two")]);
    let done = trial.run(&[]);
    ends(&done, 3);
    assert!(done.stdout.contains("no candidate is correct"));
}

/// CA-3: 1, CA-47: the base gives nothing to compare with; its output says why.
#[test]
fn a_base_that_cannot_be_compared_with_is_no_candidates_fault() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    trial.spec(
        "tests: [{name: check, command: 'echo the tests are not here >&2; exit 1', results: junit, junit_path: r.xml}]\n",
    );
    let done = trial.run(&[]);
    ends(&done, 1);
    assert!(done.stderr.contains("baseline unusable"), "{}", done.stderr);
    assert!(done.stderr.contains("the tests are not here"));
    trial.assert_nothing_left();
}

/// CA-3: 1, CA-56: what the machine did is never the candidate's failure.
#[tokio::test]
async fn where_every_failure_is_the_machines_the_evaluation_failed() {
    let trial = Trial::new();
    trial.write("repo/deps/lib", "");
    let script = "echo waits > \"$SIGN\"; until test -e deps/go; do sleep 0.01; done";
    trial.spec(&format!(
        "shared: [repo/deps]\ntests: [{{name: check, command: {script:?}, env: {{SIGN: {:?}}}}}]\n",
        trial.path("sign")
    ));
    trial.candidates(&[right("one"), right("two")]);
    let running = trial.evaluate(&["--json"]).start();
    wait_until("the base's test runs", || trial.path("sign").exists()).await;
    // It has the directory; nobody after it gets it.
    std::fs::rename(trial.path("repo/deps"), trial.path("away")).expect("it is ours");
    trial.write("away/go", "");
    let done = running.end();
    ends(&done, 1);
    let report = trial.written();
    assert_eq!(report.failure("one"), "infra", "{}", report.0);
    assert_eq!(report.failure("two"), "infra");
    trial.assert_nothing_left();
}

/// CA-3: 2, CA-96
#[test]
fn a_directory_that_holds_something_is_not_written_to() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    trial.write("out/notes.txt", "mine\n");
    let before = trial.census(".");
    let done = trial.run(&[]);
    ends(&done, 2);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    assert!(done.stderr.contains("is not empty") && done.stderr.contains("--output"));
    assert_eq!(trial.census("."), before);
}

/// CA-54: each kind of failure by its name, in one evaluation.
#[test]
fn failures_are_told_apart() {
    let trial = Trial::new();
    trial.spec(
        "tests: [{name: check, command: [sh, tests/check.sh], timeout: 3s}]\n\
         build: {command: [sh, -c, 'test ! -e unbuildable']}\n",
    );
    trial.candidates(&[
        right("good"),
        wrong("wrong"),
        answers("hangs", "sleep 60\n"),
        answers("nothing", "echo 42\n"),
        super::trial::changes("broken", &[("unbuildable", "")]),
        super::trial::changes("cheats", &[("tests/check.sh", "true\n")]),
        serde_json::json!({"name": "misplaced", "patch": "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n"}),
    ]);
    let report = trial.report(0, &[]);
    let kinds = [
        ("good", ""),
        ("wrong", "mismatch"),
        ("hangs", "timeout"),
        ("nothing", "no_op"),
        ("broken", "build_failed"),
        ("cheats", "protected_path"),
        ("misplaced", "apply_failed"),
    ];
    for (name, kind) in kinds {
        assert_eq!(report.failure(name), kind, "{name}: {}", report.of(name));
    }
}
