//! What is said before anything runs: plans, and files that make no sense.

use super::trial::{Trial, changes, ends, right, wrong};

/// A test that leaves a sign outside when it runs.
fn leaves_a_sign(trial: &Trial) {
    let sign = trial.path("sign");
    trial.spec(&format!(
        "tests: [{{name: check, command: 'touch \"$SIGN\"', env: {{SIGN: {sign:?}}}}}]\n"
    ));
}

/// CA-1, CA-15, CA-17
#[test]
fn a_check_starts_nothing_and_leaves_no_file() {
    let trial = Trial::new();
    leaves_a_sign(&trial);
    trial.candidates(&[
        right("good"),
        right("good"),
        changes("same", &[("answer.sh", "echo 42\n")]),
        changes("cheats", &[("tests/check.sh", "")]),
    ]);
    let (files, repo) = (trial.files("."), trial.census("repo"));
    let done = trial.run(&["--check"]);
    ends(&done, 0);
    assert_eq!(trial.files("."), files);
    assert_eq!(trial.census("repo"), repo);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(
        lines[0].contains("4 candidates, 1 to be tried"),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains("to be tried"));
    assert!(lines[2].contains("same as"));
    assert!(lines[3].contains("no_op"));
    assert!(lines[4].contains("protected_path"));
    trial.assert_nothing_left();
    let plan = trial.run(&["--check", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan.stdout).expect("one JSON plan");
    assert_eq!(plan["to_run"], 1);
    assert_eq!(trial.files("."), files);
    ends(&trial.run(&[]), 0);
    assert!(trial.path("sign").exists(), "the sign is one");
}

/// CA-1
#[test]
fn flags_override_the_file() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    let report = trial.report(0, &["-j", "1", "--output", "elsewhere"]);
    assert_eq!(report.0["spec"]["parallel"], 1);
    assert!(trial.path("elsewhere/evaluation.json").exists());
    assert!(!trial.path("out").exists());
}

/// CA-6, CA-7: one line with its place, and nothing is made.
#[test]
fn a_file_that_makes_no_sense_is_refused_before_anything_is_made() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    let sound = "version: 1\nrepo: repo\noutput: out\ncandidates: {jsonl: candidates.jsonl}\n";
    let tests = "tests: [{command: [sh, tests/check.sh]}]\n";
    let cases = [
        (
            format!("{sound}{tests}paralel: 2\n"),
            "6:1",
            "did you mean `parallel`",
        ),
        (format!("{sound}{tests}parallel: many\n"), "6:11", ""),
        (format!("{sound}{tests}parallel: 0\n"), "6:11", ""),
        (format!("{sound}{tests}repo: other\n"), "6:1", "repo"),
        (
            format!("{sound}tests: [{{command: x, results: junit}}]\n"),
            "5:",
            "junit_path",
        ),
        (
            format!("{sound}{tests}bench: [{{command: x, loops: auto}}]\n"),
            "6:",
            "{loops}",
        ),
        (
            format!("{sound}tests: [{{command: x, judge: {{command: y}}}}]\nbench: reuse-tests\n"),
            "6:",
            "judge",
        ),
        (
            format!("{sound}{tests}measure: {{max_blocks: 3}}\n"),
            "6:",
            "max_blocks",
        ),
    ];
    for (text, place, words) in cases {
        trial.write("EVAL.yaml", &text);
        let before = trial.census(".");
        for args in [&[][..], &["--check"], &["--resume"]] {
            let done = trial.run(args);
            ends(&done, 2);
            assert_eq!(done.stdout, "");
            assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
            let wanted = format!("EVAL.yaml:{place}");
            assert!(done.stderr.contains(&wanted), "{wanted}: {}", done.stderr);
            assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
        }
        assert_eq!(trial.census("."), before);
    }
}

/// CA-8: what the file names is not there.
#[test]
fn what_is_not_there_is_named_and_nothing_is_made() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    trial.write("nothing/README", "");
    let cases = [
        ("repo: absent\n", "absent"),
        ("base: no-such-commit\n", "no-such-commit"),
        ("candidates: {jsonl: absent.jsonl}\n", "absent.jsonl"),
        ("candidates: {patches: nothing}\n", "nothing"),
        ("candidates: {trees: nothing}\n", "nothing"),
        ("shared: [absent-deps]\n", "absent-deps"),
    ];
    for (text, word) in cases {
        trial.spec(text);
        let (files, repo) = (trial.files("."), trial.census("repo"));
        let done = trial.run(&[]);
        ends(&done, 2);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        assert!(done.stderr.contains(word), "{word}: {}", done.stderr);
        assert!(done.stderr.starts_with("EVAL.yaml:"), "{}", done.stderr);
        assert_eq!(trial.files("."), files, "{word}");
        assert_eq!(trial.census("repo"), repo);
        assert!(!trial.path("out").exists());
    }
}

/// CA-8
#[test]
fn a_submodule_that_is_not_there_is_named() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    trial.git_in(".", &["clone", "--quiet", "repo", "other"]);
    let url = trial.path("other").display().to_string();
    trial.git(&["submodule", "--quiet", "add", &url, "vendored"]);
    trial.commit();
    trial.git(&["submodule", "--quiet", "deinit", "--force", "vendored"]);
    let done = trial.run(&[]);
    ends(&done, 2);
    assert!(done.stderr.contains("`vendored`"), "{}", done.stderr);
    assert!(!trial.path("out").exists());
    trial.spec("submodules: false\n");
    ends(&trial.run(&[]), 0);
}

/// CA-11, CA-14, CA-16, CA-19
#[test]
fn a_candidate_that_makes_no_sense_fails_alone() {
    let trial = Trial::new();
    let mut lines = [right("good"), wrong("bad")]
        .map(|line| line.to_string())
        .to_vec();
    lines.insert(1, "{\"name\": \"torn\", ".to_owned());
    lines.push(r#"{"name": "outside", "files": {"../evil": "x"}}"#.to_owned());
    lines.push(r#"{"name": "rooted", "files": {"/etc/evil": "x"}}"#.to_owned());
    lines.push(r#"{"name": "history", "files": {".git/hooks/post-checkout": "x"}}"#.to_owned());
    lines.push(
        r#"{"name": "child", "parent": "nobody", "files": {"answer.sh": "echo 42 # c\n"}}"#
            .to_owned(),
    );
    trial.write("candidates.jsonl", &(lines.join("\n") + "\n"));
    let done = trial.run(&["--json"]);
    ends(&done, 0);
    let report = trial.written();
    assert_eq!(report.failure("good"), "");
    assert_eq!(report.failure("bad"), "mismatch");
    for name in ["outside", "rooted", "history"] {
        assert_eq!(report.failure(name), "apply_failed", "{name}");
    }
    let torn = format!("{}:2", trial.path("candidates.jsonl").display());
    assert_eq!(report.failure(&torn), "apply_failed");
    assert_eq!(report.of("child")["parent"], "nobody");
    assert_eq!(report.failure("child"), "");
    let warnings = report.0["warnings"].to_string();
    assert!(
        warnings.contains("`nobody` of `child` is not known"),
        "{warnings}"
    );
}
