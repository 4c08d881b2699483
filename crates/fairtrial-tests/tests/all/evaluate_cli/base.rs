//! Which files the base has, and what candidates may do to them.

use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;

use super::trial::{Report, Trial, changes, ends, right};

/// Each file of the tree that tests run on, as `path mode kind target content`.
fn seen(trial: &Trial, more: &str) -> Vec<String> {
    let place = trial.path("seen");
    let command = "find . -name .git -prune -o ! -type d -printf '%P %m %y %l ' \\( -type l -printf '\\n' -o -exec sh -c \
                   'head -c 20 \"$1\" | tr -c [:alnum:] .; echo' - {} \\; \\) > \"$SEEN\"";
    trial.spec(&format!(
        "tests: [{{name: look, command: {command:?}, env: {{SEEN: {place:?}}}}}]\n{more}"
    ));
    trial.candidates(&[right("good")]);
    std::fs::remove_dir_all(trial.path("out")).ok(); // the first time there is none
    ends(&trial.run(&["--no-progress"]), 0);
    let mut lines: Vec<String> = trial
        .shell
        .read("seen")
        .lines()
        .map(str::to_owned)
        .collect();
    lines.retain(|line| !line.starts_with("answer.sh") && !line.starts_with("tests/"));
    lines.sort();
    lines
}

/// A tree with everything a tree can have.
pub(super) fn dirty() -> Trial {
    let trial = Trial::new();
    trial.write("repo/.gitignore", "*.log\nignored/\n");
    trial.write("repo/changed.txt", "committed");
    trial.write("repo/deleted.txt", "committed");
    trial.write("repo/staged.txt", "committed");
    trial.commit();
    trial.write("repo/staged.txt", "staged");
    trial.git(&["add", "staged.txt"]);
    trial.write("repo/changed.txt", "changed");
    std::fs::remove_file(trial.path("repo/deleted.txt")).expect("it is ours");
    trial.write("repo/untracked.txt", "untracked");
    trial.write("repo/debug.log", "log");
    trial.write("repo/ignored/kept.txt", "ignored");
    trial.write("repo/ignored/left.txt", "ignored");
    trial.write("repo/__pycache__/x.cpython-311.pyc", "stale");
    trial.write("repo/stale.pyc", "stale");
    trial.write("repo/odd\nname", "odd");
    trial.write("repo/run.sh", "run");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(trial.path("repo/run.sh"), executable).expect("it is ours");
    symlink("changed.txt", trial.path("repo/link")).expect("it is ours");
    symlink("nowhere", trial.path("repo/dangling")).expect("it is ours");
    trial
}

/// CA-20, CA-21, CA-23
#[test]
fn the_tree_as_it_stands_is_taken_and_the_index_is_not_touched() {
    let trial = dirty();
    let before = trial.census("repo");
    let lines = seen(
        &trial,
        "include: ['ignored/kept.txt']\nexclude: ['*.sh2']\n",
    );
    let wanted = [
        ".gitignore 644 f  ",
        "changed.txt 644 f  changed",
        "dangling 777 l nowhere ",
        "ignored/kept.txt 644 f  ignored",
        "link 777 l changed.txt ",
        "name 644 f  odd",
        "odd",
        "run.sh 755 f  run",
        "staged.txt 644 f  staged",
        "untracked.txt 644 f  untracked",
    ];
    let starts = |(line, wanted): (&String, &&str)| line.starts_with(*wanted);
    assert!(
        lines.len() == wanted.len() && lines.iter().zip(&wanted).all(starts),
        "{lines:#?}"
    );
    assert_eq!(trial.census("repo"), before);
}

/// CA-20, CA-8: what is not in the commit is not in the base.
#[test]
fn a_commit_is_taken_without_what_came_after() {
    let trial = dirty();
    let before = trial.census("repo");
    let lines = seen(&trial, "base: HEAD\n");
    let names: Vec<&str> = lines
        .iter()
        .map(|line| line.split(' ').next().expect("a name"))
        .collect();
    assert_eq!(
        names,
        [".gitignore", "changed.txt", "deleted.txt", "staged.txt"]
    );
    assert!(
        lines.iter().skip(1).all(|line| line.ends_with("committed")),
        "{lines:?}"
    );
    assert_eq!(trial.census("repo"), before);
    let (base, dirty) = (
        trial.written().0["base"].clone(),
        trial.written().0["base"]["dirty"].clone(),
    );
    assert_eq!(dirty, false);
    assert_eq!(base["commit"], trial.git(&["rev-parse", "HEAD"]).trim());
}

/// CA-20: a directory that git knows nothing of.
#[test]
fn a_plain_directory_will_do() {
    let trial = Trial::without_git();
    trial.write("repo/data.txt", "data");
    assert_eq!(seen(&trial, ""), ["data.txt 644 f  data"]);
    assert!(!trial.path("repo/.git").exists());
}

/// CA-21
#[test]
fn initialised_submodules_are_taken_with_their_changes() {
    let trial = Trial::new();
    trial.git_in(".", &["init", "--quiet", "other"]);
    trial.write("other/lib.txt", "lib");
    trial.git_in("other", &["add", "--all"]);
    trial.git_in("other", &["commit", "--quiet", "-m", "all"]);
    let url = trial.path("other").display().to_string();
    trial.git(&["submodule", "--quiet", "add", &url, "vendored"]);
    trial.commit();
    trial.write("repo/vendored/lib.txt", "changed");
    trial.write("repo/vendored/new.txt", "new");
    let before = trial.census("repo");
    let lines = seen(&trial, "");
    assert_eq!(
        lines[1..],
        [
            "vendored/lib.txt 644 f  changed",
            "vendored/new.txt 644 f  new"
        ],
        "{lines:?}"
    );
    let lines = seen(&trial, "base: HEAD\n");
    assert_eq!(lines[1..], ["vendored/lib.txt 644 f  lib"], "{lines:?}");
    let lines = seen(&trial, "submodules: false\n");
    assert!(
        lines[0].starts_with(".gitmodules") && lines.len() == 1,
        "{lines:?}"
    );
    assert_eq!(trial.census("repo"), before);
}

/// CA-23: neither what an evaluation is made of nor what it leaves is a part of what is evaluated.
#[test]
fn the_evaluations_own_files_are_not_in_the_base() {
    let trial = Trial::new();
    trial.write("repo/extra/list.jsonl", "");
    let text = |place: &std::path::Path| {
        format!(
            "version: 1\nrepo: .\ncandidates: [{{jsonl: extra/list.jsonl}}, {{patches: patches}}]\nbaseline: {{runs: 1}}\n\
             tests: [{{name: look, command: 'find . -name .git -prune -o -type f -print | sort > \"$SEEN\"', env: {{SEEN: \
             {place:?}}}}}]\n"
        )
    };
    trial.write("repo/EVAL.yaml", &text(&trial.path("seen")));
    trial.write("repo/extra/list.jsonl", &format!("{}\n", right("good")));
    let patch = "--- a/answer.sh\n+++ b/answer.sh\n@@ -1 +1 @@\n-echo 42\n+echo 42 # patched\n";
    trial.write("repo/patches/one.patch", patch);
    for round in 0..2 {
        let args = ["evaluate", "repo/EVAL.yaml", "--resume"];
        let cli = trial.shell.fairtrial(args[..2 + round].iter().copied());
        let cli = cli.env("FAIRTRIAL_CACHE_DIR", trial.path("cache"));
        ends(
            &cli.env("FAIRTRIAL_MACHINE_LOCK", trial.path("machine.lock"))
                .run(),
            0,
        );
        assert_eq!(
            trial.shell.read("seen"),
            "./answer.sh\n./tests/check.sh\n",
            "{round}"
        );
    }
    assert!(
        trial
            .path("repo/fairtrial-out/EVAL/evaluation.json")
            .exists()
    );
    let status = trial.git(&["status", "--porcelain"]);
    assert!(!status.contains("fairtrial-out"), "{status}");
}

/// CA-24
#[test]
fn what_tests_are_made_of_may_not_be_touched() {
    let trial = Trial::new();
    trial.write("repo/conftest.py", "");
    trial.commit();
    let touch = |name: &str| changes(name, &[("answer.sh", "echo 42 # x\n"), (name, "x")]);
    let names = [
        "tests/check.sh",
        "tests/new.sh",
        "deep/test_more.py",
        "pkg/conftest.py",
        "setup.cfg",
        "a/sitecustomize.py",
        "lib/x.pth",
    ];
    let mut all: Vec<_> = names.map(touch).to_vec();
    all.push(json!({"name": "deletes", "files": {"conftest.py": null}}));
    all.push(right("good"));
    trial.candidates(&all);
    let report = trial.report(0, &[]);
    for name in names.iter().chain(&["deletes"]) {
        assert_eq!(report.failure(name), "protected_path", "{name}");
    }
    assert_eq!(report.failure("good"), "");
    let checked = trial.recorded("checked");
    assert_eq!(checked.len(), 1, "nobody else had a process: {checked:?}");
    trial.spec("protect: []\noutput: second\n");
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("tests/new.sh"), "");
}

/// CA-11: all kinds of sources, in their order; CA-12: what is the same has one id whoever says it.
#[test]
fn candidates_come_as_patches_trees_and_lines() {
    let trial = Trial::new();
    let patch =
        |text: &str| format!("--- a/answer.sh\n+++ b/answer.sh\n@@ -1 +1 @@\n-echo 42\n+{text}\n");
    trial.write("patches/b.patch", &patch("echo 42 # b"));
    trial.write("patches/a.diff", &patch("echo 42 # a"));
    trial.write("patches/README", "no patch");
    trial.write("trees/t1/answer.sh", "echo 42 # t\n");
    trial.write("trees/t2/answer.sh", "echo 42 # a\n");
    trial.write("trees/t3/.fairtrial-delete", "answer.sh\n");
    trial.candidates(&[right("line")]);
    trial.spec("candidates: [{patches: patches}, {trees: trees}, {jsonl: candidates.jsonl}]\n");
    let plan = trial.run(&["--check", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan.stdout).expect("JSON");
    let names = plan["candidates"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str());
    let names: Vec<&str> = names.map(|name| name.expect("a name")).collect();
    assert_eq!(names, ["a", "b", "t1", "t2", "t3", "line"]);
    let report: Report = trial.report(0, &[]);
    assert_eq!(report.of("t2")["duplicate_of"], report.of("a")["id"]); // CA-18
    assert_eq!(report.id("t2"), report.id("a"));
    assert_eq!(report.failure("t3"), "mismatch");
    assert!(report.of("t2")["rank"].is_null());
    assert_eq!(trial.recorded("checked").len(), 5);
}

/// CA-22: a file that changes whenever it is read is named, and nothing of the attempt is left.
#[test]
fn a_file_that_never_rests_ends_it_and_is_named() {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};
    let trial = Trial::new();
    // So long that it is changed many times while it is read.
    let log = std::fs::File::create(trial.path("repo/a.log")).expect("it is ours");
    log.set_len(64 << 20).expect("there is room");
    let ended = AtomicBool::new(false);
    trial.candidates(&[right("good")]);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Should the command never end, this does.
            let until = Instant::now() + Duration::from_secs(170);
            for line in 0_u64.. {
                if ended.load(Ordering::Relaxed) || Instant::now() > until {
                    return;
                }
                log.write_all_at(&line.to_le_bytes(), 0)
                    .expect("it is ours");
            }
        });
        let done = trial.run(&["--json"]);
        ended.store(true, Ordering::Relaxed);
        done
    });
    ends(&done, 1);
    assert!(
        done.stderr.contains("`a.log` changed each of the 3 times"),
        "{}",
        done.stderr
    );
    assert!(trial.files("cache/snapshots").is_empty());
    trial.assert_nothing_left();
    ends(&trial.run(&["--json"]), 0);
}
