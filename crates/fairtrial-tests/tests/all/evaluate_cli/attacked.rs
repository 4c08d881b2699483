//! Candidates that cheat, and surroundings that are not as they should be.

use std::path::{Path, PathBuf};

use fairtrial_tests::wait_until;

use super::trial::{Trial, answers, changes, ends, right};

/// What a command may write to besides its tree is a question of the level: these are at the default one.
const LIMITS: &str = "sandbox: limits\n";

/// CA-58: a build is a process like any other, and what it writes would stay for the tests.
#[test]
fn a_build_that_writes_to_a_protected_file_is_tampering() {
    let trial = Trial::new();
    trial.write("repo/build.sh", "date > tests/stamp\n");
    trial.commit();
    trial.spec("build: {command: [sh, build.sh]}\n");
    let cheats = |name: &str, script: &str| {
        changes(name, &[("answer.sh", "echo 41\n"), ("build.sh", script)])
    };
    trial.candidates(&[
        cheats("writes", "echo true > tests/check.sh\n"),
        cheats(
            "replaces",
            "rm -r tests; mkdir tests; echo true > tests/check.sh\n",
        ),
        cheats("adds", "mkdir -p deep; touch deep/conftest.py\n"),
        right("good"), // its build does what the base's does
    ]);
    let report = trial.report(0, &[]);
    for name in ["writes", "replaces", "adds"] {
        assert_eq!(report.failure(name), "tampered", "{}", report.of(name));
    }
    assert_eq!(report.failure("good"), "", "{}", report.of("good"));
}

/// CA-45: what a failed candidate's build left does not take the room of others.
#[tokio::test]
async fn what_a_failed_build_left_is_gone_with_it() {
    let trial = Trial::new();
    trial.write("repo/build.sh", "true\n");
    trial.commit();
    let seen = trial.path("seen");
    trial.spec(&format!(
        "parallel: 1\nbuild: {{command: [sh, build.sh]}}\nenv: {{set: {{SEEN: {seen:?}, FLAG: {:?}}}}}\n",
        trial.path("flag")
    ));
    let builds = |name: &str, script: &str| changes(name, &[("build.sh", script)]);
    trial.candidates(&[
        builds("fails", "touch left; exit 1\n"),
        changes(
            "wrong",
            &[("answer.sh", "echo 41\n"), ("build.sh", "touch left\n")],
        ),
        builds(
            "last",
            "touch \"$FLAG\"; while test ! -e \"$SEEN\"; do sleep 0.05; done\n",
        ),
    ]);
    let running = trial.evaluate(&["--json"]).start();
    let flag = trial.path("flag");
    wait_until("the last one is built", || flag.exists()).await;
    let left: Vec<_> = below(&trial.path("cache/workspaces"))
        .flat_map(|workspace| below(&workspace.join("built")))
        .filter(|built| built.join("upper/left").exists())
        .collect();
    trial.write("seen", "");
    drop(running.end());
    assert!(left.is_empty(), "{left:?}");
}

fn below(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(directory).expect("a directory of ours");
    entries.map(|entry| entry.expect("it can be listed").path())
}

/// CA-33, CA-63: no command finds anything of another, whatever that was left in.
#[test]
fn nothing_is_left_for_the_next_command() {
    let trial = Trial::new();
    trial.write("beside/file", "x");
    trial.write(
        "repo/leave.py",
        include_str!("../../../programs/leave_word.py"),
    );
    trial.commit();
    let tests: Vec<String> = ["one", "two"]
        .map(|name| format!("{{name: {name}, command: [sh, answer.sh]}}"))
        .into();
    trial.spec(&format!(
        "parallel: 1\nenv: {{set: {{BESIDE: {:?}}}}}\ntests: [{}]\n{LIMITS}",
        trial.path("beside/file"),
        tests.join(", ")
    ));
    trial.candidates(&[answers("leaves", "python3 leave.py\n")]);
    let report = trial.report(0, &[]);
    let log = format!("out/logs/{}", report.id("leaves"));
    let [first, second] =
        ["one", "two"].map(|test| trial.shell.read(&format!("{log}/{test}.stdout")));
    assert_eq!(first, "found nothing\n");
    assert_eq!(second, "found nothing\n");
}

/// CA-30: nor does it change anything of what it has not made: not even what is no content.
#[test]
fn modes_times_and_attributes_of_other_files_are_out_of_reach() {
    let trial = Trial::new();
    trial.write("beside/file", "x");
    let before = trial.census("beside");
    let script = "\
        for change in 'chmod 600' 'touch -d @1' 'chown 0:1' 'setfattr -n user.a -v b' 'truncate -s 0' rm; do \
        $change \"$BESIDE\" 2>/dev/null && echo changed by $change; done; echo 42\n";
    trial.spec(&format!(
        "env: {{set: {{BESIDE: {:?}}}}}\n{LIMITS}",
        trial.path("beside/file")
    ));
    trial.candidates(&[answers("changes", script)]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("changes"), "", "{}", report.of("changes"));
    assert_eq!(trial.census("beside"), before);
}

/// CA-76: a test that is measured and fails is no gain, though tests are not judged by their codes.
#[test]
fn a_measured_test_that_ends_as_the_base_never_does_is_no_gain() {
    let trial = Trial::new();
    trial.spec(
        "bench: reuse-tests\nmeasure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n",
    );
    // Tests have one hash seed, blocks have others.
    let fails = "test \"$PYTHONHASHSEED\" = 0 || exit 3; echo 42\n";
    trial.candidates(&[answers("fails", fails), right("good")]);
    let report = trial.report(0, &[]);
    assert_eq!(
        report.failure("fails"),
        "bench_failed",
        "{}",
        report.of("fails")
    );
    assert_eq!(report.failure("good"), "");
}

/// CA-76: nor is a bench that ends well and reports nothing, where the base's does.
#[test]
fn a_bench_that_says_nothing_where_the_base_does_is_no_gain() {
    let trial = Trial::new();
    trial.write("repo/bench.sh", ". ./work.sh\necho done\n");
    trial.write("repo/work.sh", "true\n");
    trial.commit();
    trial.spec(
        "bench: [{name: b, command: [sh, bench.sh]}]\n\
         measure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n",
    );
    let work = |name: &str, text: &str| changes(name, &[("work.sh", text)]);
    trial.candidates(&[work("leaves", "exit 0\n"), work("good", "true # yes\n")]);
    let report = trial.report(0, &[]);
    assert_eq!(
        report.failure("leaves"),
        "bench_failed",
        "{}",
        report.of("leaves")
    );
    assert!(report.message("leaves").contains("wrote nothing"));
    assert_eq!(report.failure("good"), "");
}

/// CA-96: what no evaluation was begun in is somebody else's directory.
#[test]
fn only_an_evaluation_is_gone_on_with() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    trial.write("out/.gitignore", "mine\n");
    let before = trial.census(".");
    let done = trial.run(&["--resume"]);
    ends(&done, 2);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    assert!(
        done.stderr.contains("nothing to go on with"),
        "{}",
        done.stderr
    );
    assert_eq!(trial.census("."), before);
    // Killed before its first record it has left no more than this.
    trial.write("out/.gitignore", "*\n");
    ends(&trial.run(&["--resume"]), 0);
}

/// CA-8: a pipe would be waited for.
#[test]
fn a_pipe_is_no_patch() {
    let trial = Trial::new();
    trial.spec("candidates: {patches: patches}\n");
    std::fs::create_dir(trial.path("patches")).expect("made");
    let mode = rustix::fs::Mode::RUSR;
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        trial.path("patches/a.patch"),
        pipe,
        mode,
        0,
    )
    .expect("made");
    let done = trial.run(&["--check"]);
    ends(&done, 2);
    assert!(
        done.stderr.contains("a.patch`: it is no regular file"),
        "{}",
        done.stderr
    );
}

/// A test whose judge wants 42 in a file.
fn judged(trial: &Trial) {
    trial.write(
        "repo/judge/check.sh",
        "test \"$(cat $FAIRTRIAL_CANDIDATE_OUT/files/said)\" = 42\n",
    );
    trial.write("repo/answer.sh", "echo 42 > said\n");
    trial.commit();
    trial.spec(
        "tests:\n- name: check\n  command: [sh, answer.sh]\n  \
         judge: {command: [sh, judge/check.sh], files: repo/judge, outputs: [said, more]}\n",
    );
}

/// CA-56, CA-59: what is too much for a judge is the candidate's own failure.
#[test]
fn more_than_a_judge_is_shown_is_a_limit() {
    let trial = Trial::new();
    judged(&trial);
    trial.candidates(&[
        answers("holes", "echo 42 > said; truncate -s 4T more\n"),
        answers("good", "echo 42 > said # yes\n"),
    ]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("holes"), "limit", "{}", report.of("holes"));
    assert_eq!(report.failure("good"), "");
    trial.assert_nothing_left();
}

/// CA-59: what the base answered, and what its judge said, is in the output directory.
#[test]
fn a_candidate_does_not_see_what_the_base_answered() {
    let trial = Trial::new();
    judged(&trial);
    let spec = trial.shell.read("EVAL.yaml");
    let out = trial.path("out");
    trial.write(
        "EVAL.yaml",
        &format!("{spec}env: {{set: {{OUT: {out:?}}}}}\n"),
    );
    trial.candidates(&[answers("peeks", "ls -A \"$OUT\"; echo 42 > said\n")]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("peeks"), "");
    let log = trial.path(&format!("out/logs/{}/check.stdout", report.id("peeks")));
    assert_eq!(std::fs::read_to_string(log).unwrap_or_default(), "");
}

/// CA-14, CA-32: what is shared is mounted where no candidate can put a link that leads elsewhere.
#[test]
fn nothing_stands_in_the_place_of_what_is_shared() {
    let trial = Trial::new();
    trial.write("repo/.gitignore", "deps/lib\n");
    trial.write("repo/deps/lib/tool", "tool\n");
    trial.write("beside/file", "x");
    trial.commit();
    trial.spec("shared: [repo/deps/lib]\n");
    let link = format!(
        "diff --git a/deps b/deps\nnew file mode 120000\n--- /dev/null\n+++ b/deps\n@@ -0,0 +1 @@\n+{}\n\\ No newline at end of file\n",
        trial.path("beside").display()
    );
    let before = trial.census("beside");
    trial.candidates(&[
        serde_json::json!({"name": "link", "patch": link}),
        changes("file", &[("deps", "x")]),
        changes("inside", &[("deps/lib/tool", "x")]),
        changes("good", &[("deps/more", "x")]),
    ]);
    let report = trial.report(0, &[]);
    for name in ["link", "file", "inside"] {
        assert_eq!(report.failure(name), "apply_failed", "{}", report.of(name));
        assert!(report.message(name).contains("`deps/lib`, which is shared"));
    }
    assert_eq!(report.failure("good"), "", "{}", report.of("good"));
    assert_eq!(trial.census("beside"), before);
}

/// CA-30: nor is anything written to the objects of a repository whose index is sparse.
#[test]
fn a_sparse_index_is_only_read() {
    let trial = Trial::new();
    trial.write("repo/far/away/file", "x");
    trial.commit();
    trial.git(&[
        "sparse-checkout",
        "set",
        "--cone",
        "--sparse-index",
        "tests",
    ]);
    let before = trial.census("repo");
    trial.candidates(&[right("good")]);
    for base in ["working-tree", "HEAD"] {
        trial.spec(&format!("base: {base}\n"));
        ends(&trial.run(&["--output", base]), 0);
        assert_eq!(trial.census("repo"), before, "{base}");
    }
}

/// CA-21, CA-31: files are in the one commit as they are, though the tree asks for filters and encodings.
#[test]
fn attributes_of_the_tree_do_not_change_what_is_committed() {
    let trial = Trial::new();
    trial.write("repo/odd.txt", "odd");
    trial.write("repo/lines.txt", "one\ntwo\r\n");
    trial.write(
        "repo/.gitattributes",
        "odd.txt working-tree-encoding=UTF-16LE\n*.sh filter=gone\nlines.txt text eol=crlf\n",
    );
    trial.write(
        ".gitconfig",
        "[core]\n  safecrlf = true\n[filter \"gone\"]\n  clean = no-such-program\n  required = true\n",
    );
    // Git would not tell whether this tree is dirty either: it is a plain directory for now.
    std::fs::remove_dir_all(trial.path("repo/.git")).expect("it is ours");
    trial.spec(
        "tests:\n- {name: check, command: [sh, tests/check.sh]}\n\
         - {name: same, command: 'git show HEAD:lines.txt | cmp - lines.txt && git show HEAD:odd.txt | cmp - odd.txt'}\n",
    );
    trial.candidates(&[right("good")]);
    let done = trial.evaluate(&[]).env("HOME", trial.path("")).run();
    ends(&done, 0);
}

/// CA-56, CA-97: what was built for the tests is built again for the race; if that fails it fails for one alone.
#[test]
fn a_build_that_fails_when_it_is_made_again_is_the_candidates_own() {
    let trial = Trial::new();
    trial.write("repo/build.sh", "true\n");
    trial.commit();
    let flag = trial.path("flag");
    trial.spec(&format!(
        "env: {{set: {{FLAG: {flag:?}}}}}\nbuild: {{command: [sh, build.sh]}}\nbench: [{{name: b, command: [sh, answer.sh]}}]\n\
         measure: {{max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}}\n"
    ));
    trial.candidates(&[
        changes("fails", &[("build.sh", "test ! -e \"$FLAG\"\n")]),
        right("good"),
    ]);
    ends(&trial.run(&[]), 0);
    trial.write("flag", "");
    // As if killed when all was tested, and nothing measured.
    let journal = trial.shell.read("out/journal.jsonl");
    let tested = journal.split_inclusive('\n').filter(|line| {
        ["begun", "baseline", "checked"]
            .iter()
            .any(|kind| line.contains(&format!("\"record\":{{\"kind\":\"{kind}\"")))
    });
    let tested: String = tested.collect();
    trial.write("out/journal.jsonl", &tested);
    for file in ["runs.jsonl", "evaluation.json", "report.html"] {
        std::fs::remove_file(trial.path("out").join(file)).expect("it is there");
    }
    let report = trial.report(0, &["--resume"]);
    assert_eq!(
        report.failure("fails"),
        "bench_failed",
        "{}",
        report.of("fails")
    );
    assert!(
        report.message("fails").contains("build"),
        "{}",
        report.of("fails")
    );
    assert_eq!(report.failure("good"), "");
}
