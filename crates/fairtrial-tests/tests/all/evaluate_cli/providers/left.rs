//! What commands leave, and what of it anybody else sees.

use fairtrial_tests::note;

use super::super::trial::{Trial, answers, right, wrong};
use super::super::untouched::{VANDAL, at_work};
use super::Provider;

/// CA-58: whatever is done to tests while they run is found out, and reaches nobody else.
pub(super) fn a_protected_path_touched_at_run_time_is_tampering(provider: Provider) {
    let trial = provider.trial();
    trial.write("repo/tests/data/one", "1");
    trial.spec("parallel: 1\ntests:\n- {name: one, command: [sh, answer.sh]}\n- {name: two, command: [sh, tests/check.sh]}\n");
    let sins = [
        ("writes", "echo true > tests/check.sh"),
        ("adds", "mkdir -p deep; echo x > deep/conftest.py"),
        ("links", "ln -s /dev/null tests/new"),
        ("touches", "touch tests/check.sh"),
        ("closes", "chmod 700 tests/check.sh"),
        ("removes", "rm tests/check.sh"),
        ("removes all", "rm -r tests"),
        ("moves", "cp -r tests elsewhere; rm -r tests"),
        ("replaces", "rm tests/check.sh; mkdir tests/check.sh"),
        ("covers", "rm -r tests/data; echo x > tests/data"),
    ];
    let mut all: Vec<_> = sins
        .map(|(name, sin)| answers(name, &format!("{sin}; echo 42\n")))
        .into();
    all.push(right("good"));
    trial.candidates(&all);
    let report = trial.report(0, &[]);
    for (name, _) in sins {
        assert_eq!(report.failure(name), "tampered", "{provider:?}: {name}");
    }
    assert!(report.message("writes").contains("tests/check.sh"));
    assert_eq!(report.failure("good"), "", "{}", report.of("good"));
}

/// CA-48: what a link leads to is not what the command wrote.
pub(super) fn results_are_read_through_no_link(provider: Provider) {
    let trial = provider.trial();
    let results = |status: &str| {
        format!("<testsuite><testcase classname=\"c\" name=\"n\">{status}</testcase></testsuite>")
    };
    trial.write("elsewhere/r.xml", &results(""));
    trial.write("repo/write.sh", "mkdir out; cp good.xml out/r.xml\n");
    trial.write("repo/good.xml", &results(""));
    trial.spec(
        "tests: [{name: check, command: [sh, write.sh], results: junit, junit_path: out/r.xml}]\n",
    );
    let elsewhere = trial.path("elsewhere");
    let script = |name: &str, text: &str| {
        super::super::trial::changes(name, &[("write.sh", &format!("{text} # {name}\n"))])
    };
    trial.candidates(&[
        script("good", "mkdir out; cp good.xml out/r.xml"),
        script("none", "true"),
        script(
            "to a file",
            &format!("mkdir out; ln -s {elsewhere:?}/r.xml out/r.xml"),
        ),
        script("to a directory", &format!("ln -s {elsewhere:?} out")),
        script("pipe", "mkdir out; mkfifo out/r.xml"),
    ]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("good"), "", "{}", report.of("good"));
    for name in ["none", "to a file", "to a directory", "pipe"] {
        assert_eq!(report.failure(name), "no_results", "{provider:?}: {name}");
    }
}

/// CA-33, CA-36: read-only files, closed directories, thousands of entries, odd names, links to elsewhere.
pub(super) fn whatever_modes_and_names_are_left_the_next_command_finds_the_tree(
    provider: Provider,
) {
    let trial = provider.trial();
    trial.write("repo/data/one", "1");
    trial.write("precious", "the user's own");
    let precious = trial.path("precious");
    let mess = format!(
        "mkdir many; cd many; i=0; while test $i -lt 10000; do : > $i; i=$((i+1)); done; cd ..\n\
         mkdir -p closed/in; : > closed/in/x; chmod 0 closed/in closed; chmod 444 data/one; chmod 555 data\n\
         : > \"$(printf 'new\\nline')\"; ln -f {precious:?} hard 2>/dev/null; rm answer.sh; ln -s {precious:?} answer.sh\n\
         mkfifo pipe; rm -rf .git; chmod 0 .\n"
    );
    trial.spec(
        "protect: []\nparallel: 1\ntests:\n- {name: one, command: [sh, answer.sh]}\n- {name: two, command: 'test \"$(ls -A)\" = \"$LIST\" && test \"$(cat data/one)\" = 1 && sh tests/check.sh', env: {LIST: \".git\\nanswer.sh\\ndata\\ntests\"}}\n",
    );
    let messes = [answers("mess", &format!("{mess}echo 42\n")), right("after")];
    trial.candidates(&messes);
    let before = provider.untouchable(&trial);
    let report = trial.report(0, &[]);
    for name in ["mess", "after"] {
        // Its second test finds what its first one found.
        let failure = report.failure(name);
        assert_eq!(failure, "", "{provider:?}: {}", report.of(name));
    }
    assert_eq!(trial.shell.read("precious"), "the user's own");
    assert_eq!(provider.untouchable(&trial), before);
    trial.assert_nothing_left();
}

/// CA-35: who fills its disk ends so, alone. Copies have no disk of their own.
pub(super) fn a_full_disk_is_the_candidates_own(provider: Provider) {
    if provider.mounted.is_none() {
        return note(format!("not for {}: it has no upper", provider.name));
    }
    let trial = provider.trial();
    trial.spec("workspace: {upper: tmpfs, upper_size: 4M}\n");
    trial.candidates(&[
        answers("fills", "head -c 64M /dev/zero > filled; echo 42\n"),
        right("good"),
    ]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("good"), "");
    assert_eq!(report.failure("fills"), "limit", "{}", report.of("fills"));
    assert!(
        report.message("fills").contains("disk"),
        "{}",
        report.of("fills")
    );
}

/// CA-29, CA-30: whatever candidates do, and whatever is measured.
pub(super) fn tree_index_stash_and_worktrees_stay_as_they_are(provider: Provider) {
    let trial: Trial = at_work().on(provider.word);
    trial.spec(
        "bench: [{name: b, command: [sh, answer.sh]}]\nmeasure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n\
         build: {command: 'echo built > built'}\n",
    );
    trial.candidates(&[right("good"), wrong("bad"), answers("vandal", VANDAL)]);
    let (before, worktrees) = (
        provider.untouchable(&trial),
        trial.git(&["worktree", "list"]),
    );
    let report = trial.report(0, &[]);
    assert_eq!(provider.untouchable(&trial), before);
    assert_eq!(trial.git(&["worktree", "list"]), worktrees);
    assert!(worktrees.contains("prunable"), "{worktrees}");
    assert_ne!(report.failure("vandal"), "");
    trial.assert_nothing_left();
}
