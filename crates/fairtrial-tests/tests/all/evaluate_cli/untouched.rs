//! The user's tree is only ever read.

use fairtrial_tests::wait_until;
use rustix::process::Signal;

use super::trial::{Trial, answers, ends, right, wrong};

/// A tree in the middle of somebody's work: staged, unstaged, stashed, with a worktree that is gone.
fn at_work() -> Trial {
    let trial = Trial::new();
    trial.write("repo/half.txt", "stashed\n");
    trial.git(&["stash", "--include-untracked", "--quiet"]);
    trial.write("repo/staged.txt", "staged\n");
    trial.git(&["add", "staged.txt"]);
    trial.write("repo/staged.txt", "staged, then changed\n");
    trial.write("repo/untracked.txt", "untracked\n");
    let place = trial.path("gone").display().to_string();
    trial.git(&["worktree", "add", "--quiet", "--detach", &place]);
    std::fs::remove_dir_all(place).expect("it is ours");
    trial
}

const VANDAL: &str = "rm -rf answer.sh tests .git staged.txt; mkdir .git; echo evil > .git/config; echo evil > new; exit 1\n";

/// CA-30: whatever candidates do, and whatever is measured.
#[test]
fn tree_index_stash_and_worktrees_stay_as_they_are() {
    let trial = at_work();
    trial.spec(
        "bench: [{name: b, command: [sh, answer.sh]}]\nmeasure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n\
         build: {command: 'echo built > built'}\n",
    );
    trial.candidates(&[right("good"), wrong("bad"), answers("vandal", VANDAL)]);
    let (before, worktrees) = (trial.census("repo"), trial.git(&["worktree", "list"]));
    let report = trial.report(0, &[]);
    assert_eq!(trial.census("repo"), before);
    assert_eq!(trial.git(&["worktree", "list"]), worktrees);
    assert!(worktrees.contains("prunable"), "{worktrees}");
    assert_ne!(report.failure("vandal"), "");
    trial.assert_nothing_left();
}

/// CA-30, CA-42: nor does a kill in the middle of a test change it; what is left in the cache goes with the next start.
#[tokio::test]
async fn a_killed_evaluation_leaves_the_tree_as_it_is_and_the_next_one_tidies_up() {
    let trial = at_work();
    let hangs =
        format!("{VANDAL}touch {:?}; sleep 600\n", trial.path("sign")).replace("exit 1\n", "");
    trial.candidates(&[answers("hangs", &hangs), right("good")]);
    let before = trial.census("repo");
    let running = trial.evaluate(&[]).start();
    wait_until("a candidate runs", || trial.path("sign").exists()).await;
    running.signal(Signal::KILL);
    drop(running.end());
    wait_until("its processes are gone", || {
        trial.shell.processes().is_empty()
    })
    .await;
    assert_eq!(trial.census("repo"), before);
    trial.candidates(&[right("good")]);
    ends(&trial.run(&["--output", "second"]), 0);
    assert_eq!(trial.census("repo"), before);
    trial.assert_nothing_left();
}

/// CA-30: a tree that is changed while it is evaluated, by whomever, is told of; the base stays what it was.
#[tokio::test]
async fn a_tree_that_changes_meanwhile_is_told_of() {
    let trial = Trial::new();
    let (sign, go) = (trial.path("sign"), trial.path("go"));
    let waits = format!("touch {sign:?}; until test -e {go:?}; do sleep 0.01; done; echo 42\n");
    trial.candidates(&[answers("waits", &waits)]);
    let running = trial.evaluate(&["--json"]).start();
    wait_until("a candidate runs", || sign.exists()).await;
    trial.write("repo/answer.sh", "echo changed\n");
    trial.write("go", "");
    ends(&running.end(), 0);
    let report = trial.written();
    let warnings = report.0["warnings"].to_string();
    assert!(
        warnings.contains("user_tree_changed") && warnings.contains("answer.sh"),
        "{warnings}"
    );
    assert_eq!(report.failure("waits"), "");
}

/// CA-28, CA-29, CA-42: slots that git knows leave no entry behind, after a kill neither, and a worktree of the user's that
/// is missing stays in the list.
#[tokio::test]
async fn worktrees_of_ours_come_and_go_and_those_of_the_user_stay() {
    let trial = at_work();
    let hangs = format!("touch {:?}; sleep 600\n", trial.path("sign"));
    trial.spec("workspace: {provider: worktree}\n");
    trial.candidates(&[answers("hangs", &hangs)]);
    let before = trial.git(&["worktree", "list"]);
    let running = trial.evaluate(&[]).start();
    wait_until("a candidate runs", || trial.path("sign").exists()).await;
    let during = trial.git(&["worktree", "list"]);
    assert_eq!(
        during.lines().count(),
        before.lines().count() + 2,
        "{during}"
    );
    running.signal(Signal::KILL);
    drop(running.end());
    trial.candidates(&[right("good"), wrong("bad")]);
    let report = trial.report(0, &["--output", "second"]);
    assert_eq!(report.0["provider"]["name"], "worktree");
    assert_eq!(report.0["provider"]["same_path"], false);
    assert_eq!(report.failure("bad"), "mismatch");
    assert_eq!(trial.git(&["worktree", "list"]), before);
    trial.assert_nothing_left();
}
