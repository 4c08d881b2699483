//! Output directories: what may be in them when an evaluation begins, and what becomes of it.

use fairtrial_tests::{note, wait_until};

use super::trial::{Trial, changes, ends, right, wrong};

const BENCH: &str = "bench: [{name: b, command: [sh, answer.sh]}]\n\
    measure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n";

/// One line that says these words; exit code 2.
fn refused(trial: &Trial, args: &[&str], words: &[&str]) {
    let done = trial.run(args);
    ends(&done, 2);
    assert_eq!(done.stdout, "");
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    for word in words {
        assert!(done.stderr.contains(word), "{word}: {}", done.stderr);
    }
}

/// CA-47, CA-96: whatever was wrong with the base and wherever it was mended, the next evaluation tests it again.
#[test]
fn a_base_that_could_not_be_used_is_forgotten() {
    let unusable = [
        "tests: [{name: check, command: 'exit 1', results: junit, junit_path: r.xml}]\n",
        "tests: [{name: check, command: [no-such-program]}]\n",
        "build: {command: 'exit 1'}\n",
        "build: {command: [no-such-program]}\n",
    ];
    for (spec, args) in
        unusable
            .into_iter()
            .zip([&["--resume"][..], &[], &["--resume"], &["--fresh"]])
    {
        let trial = Trial::new();
        trial.candidates(&[right("good")]);
        trial.spec(spec);
        ends(&trial.run(&[]), 1);
        trial.spec("");
        ends(&trial.run(args), 0);
        assert_eq!(trial.recorded("begun").len(), 1, "{spec}");
        assert_eq!(trial.recorded("forgotten").len(), 0);
    }
    // In the tree, too: nobody goes on with the base as it was.
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    trial.write("repo/tests/check.sh", "exit 1\n");
    for args in [&[][..], &["--resume"]] {
        ends(&trial.run(args), 1);
        assert_eq!(trial.recorded("baseline").len(), 1, "{args:?}");
    }
    trial.write("repo/tests/check.sh", "test \"$(sh answer.sh)\" = 42\n");
    ends(&trial.run(&[]), 0);
    assert_eq!(trial.written().failure("good"), "");
}

/// CA-97: what candidates did is not forgotten because the base cannot be built any more.
#[test]
fn what_is_known_of_candidates_outlives_a_base_that_fails_later() {
    let trial = Trial::new();
    let flag = trial.path("flag");
    trial.spec(&format!(
        "env: {{set: {{FLAG: {flag:?}}}}}\nbuild: {{command: 'test ! -e \"$FLAG\"'}}\n"
    ));
    trial.candidates(&[right("good"), wrong("bad")]);
    ends(&trial.run(&[]), 0);
    let checked = trial.recorded("checked");
    assert_eq!(checked.len(), 2);
    trial.write("flag", "");
    ends(&trial.run(&["--resume"]), 1);
    std::fs::remove_file(flag).expect("it is ours");
    refused(&trial, &[], &["--resume", "--fresh"]);
    ends(&trial.run(&["--resume"]), 0);
    assert_eq!(trial.recorded("checked"), checked);
}

/// CA-96: where nothing is, there is nothing to go on with.
#[test]
fn what_was_never_begun_is_not_gone_on_with() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    refused(
        &trial,
        &["--resume"],
        &["nothing to go on with", "leave out --resume"],
    );
    assert!(!trial.path("out").exists());
    std::fs::create_dir(trial.path("out")).expect("it is ours");
    refused(
        &trial,
        &["--resume"],
        &["nothing to go on with", "leave out --resume"],
    );
    refused(&trial, &["--resume", "--check"], &["nothing to go on with"]);
    assert!(trial.files("out").is_empty());
    ends(&trial.run(&[]), 0);
}

/// CA-3: 2: where results cannot go nothing is begun.
#[test]
fn a_directory_that_cannot_be_written_to_is_bad_usage() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    trial.write("file", "mine\n");
    let mut places = vec!["file", "file/below/it", "/proc/nothing/out"];
    std::fs::create_dir(trial.path("closed")).expect("it is ours");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o555);
    std::fs::set_permissions(trial.path("closed"), closed).expect("it is ours");
    match std::fs::create_dir(trial.path("closed/probe")) {
        Err(_) => places.push("closed/out"),
        Ok(()) => note("a closed directory is not tried: this user may write anywhere"),
    }
    let before = trial.census("repo");
    for place in places {
        let wanted = [
            "results cannot be written to",
            place,
            "name another `output`",
        ];
        refused(&trial, &["--output", place], &wanted);
    }
    refused(
        &trial,
        &["--check", "--output", "file"],
        &["is no directory"],
    );
    assert_eq!(trial.shell.read("file"), "mine\n");
    assert_eq!(trial.census("repo"), before);
    trial.assert_nothing_left();
}

/// CA-96: begun anew, nothing of the earlier evaluation is left, and nothing else is missing.
#[test]
fn a_fresh_evaluation_takes_the_place_of_an_earlier_one() {
    let trial = Trial::new();
    trial.spec(BENCH);
    trial.candidates(&[right("good"), wrong("bad")]);
    ends(&trial.run(&["--fresh"]), 0); // where nothing is
    trial.write("out/notes.txt", "mine\n");
    assert!(!trial.files("out/logs").is_empty());
    let before = trial.census("out");
    // What makes no sense takes nobody's place.
    trial.spec("repo: absent\n");
    refused(&trial, &["--fresh"], &["absent"]);
    trial.spec("tests: [{name: other, command: [sh, tests/check.sh]}]\n");
    refused(&trial, &["--resume"], &["has changed since", "fresh"]);
    refused(&trial, &["--resume", "--fresh"], &["--fresh"]);
    assert_eq!(trial.census("out"), before);
    trial.candidates(&[right("other")]);
    ends(&trial.run(&["--fresh"]), 0);
    assert_eq!(trial.written().names(), ["other"]);
    assert_eq!(trial.recorded("begun").len(), 1);
    assert_eq!(trial.lines("runs.jsonl").len(), 0);
    assert!(trial.files("out/logs").is_empty());
    assert_eq!(trial.shell.read("out/notes.txt"), "mine\n");
}

/// CA-96: only evaluations are removed, and none that is being made.
#[tokio::test]
async fn a_fresh_evaluation_spares_what_is_not_its_own() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    for (name, text) in [
        ("notes.txt", "mine\n"),
        ("journal.jsonl", "{\"day\": 1}\n"),
        ("evaluation.json", "{}"),
    ] {
        trial.write(&format!("out/{name}"), text);
        let before = trial.census("out");
        refused(&trial, &["--fresh"], &["holds no evaluation", "--output"]);
        refused(&trial, &["--check"], &["holds no evaluation", "--output"]);
        assert_eq!(trial.census("out"), before);
        std::fs::remove_dir_all(trial.path("out")).expect("it is ours");
    }
    let (sign, stop) = (trial.path("sign"), trial.path("stop"));
    trial.write("stop", "");
    trial.spec(&format!(
        "tests: [{{name: check, command: 'touch \"$SIGN\"; while test -e \"$STOP\"; do sleep 0.01; done', env: {{SIGN: \
         {sign:?}, STOP: {stop:?}}}}}]\n"
    ));
    let running = trial.evaluate(&[]).start();
    wait_until("the base is tested", || sign.exists()).await;
    refused(&trial, &["--fresh"], &["another evaluation"]);
    std::fs::remove_file(stop).expect("it is ours");
    ends(&running.end(), 0);
    assert_eq!(trial.written().failure("good"), "");
}

/// CA-1, CA-8: a plan that cannot work is none.
#[test]
fn a_check_looks_for_programs_and_at_the_output() {
    let trial = Trial::new();
    trial.candidates(&[right("good"), changes("other", &[("new", "x")])]);
    trial.spec(
        "build: {command: [no-such-build]}\ntests: [{command: [no-such-test, x]}]\nbench: [{command: [./no-such-bench]}]\n",
    );
    let done = trial.run(&["--check"]);
    ends(&done, 2);
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", done.stderr); // the build may make the third
    assert!(lines[0].starts_with("EVAL.yaml:") && lines[0].contains("`no-such-build`"));
    assert!(lines[1].starts_with("EVAL.yaml:") && lines[1].contains("`no-such-test`"));
    assert!(lines[1].contains("neither in PATH nor in the repository"));
    trial.spec("tests: [{command: [./no-such-test]}]\n");
    refused(&trial, &["--check"], &["EVAL.yaml:7:", "`./no-such-test`"]);
    trial.spec("");
    ends(&trial.run(&["--check"]), 0);
    ends(&trial.run(&[]), 0);
    let again = trial.run(&["--check"]);
    ends(&again, 0);
    assert!(
        again.stdout.contains("warning: ") && again.stdout.contains("--resume"),
        "{}",
        again.stdout
    );
    let going_on = trial.run(&["--check", "--resume"]);
    ends(&going_on, 0);
    assert!(
        !going_on.stdout.contains("warning: "),
        "{}",
        going_on.stdout
    );
}
