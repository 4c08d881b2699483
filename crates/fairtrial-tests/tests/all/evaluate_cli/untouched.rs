//! The user's tree is only ever read.

use fairtrial_tests::wait_until;

use super::trial::{Trial, answers, ends};

/// A tree in the middle of somebody's work: staged, unstaged, stashed, with a worktree that is gone.
pub(super) fn at_work() -> Trial {
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

/// A script that leaves nothing as it was.
pub(super) const VANDAL: &str = "rm -rf answer.sh tests .git staged.txt; mkdir .git; echo evil > .git/config; echo evil > new; exit 1\n";

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
