//! Evaluations that are stopped, and those beside and after them.

use fairtrial_tests::wait_until;
use rustix::process::Signal;

use super::super::trial::{Trial, answers, ends, right, wrong};
use super::super::untouched::{VANDAL, at_work};
use super::{Provider, waiting};

/// A candidate that wrecks its workspace and hangs, after a sign.
fn hangs(trial: &Trial) -> serde_json::Value {
    let script =
        format!("{VANDAL}touch {:?}; sleep 600\n", trial.path("sign")).replace("exit 1\n", "");
    answers("hangs", &script)
}

fn until_it_runs(trial: &Trial) {
    waiting(wait_until("a candidate runs", || {
        trial.path("sign").exists()
    }));
}

/// CA-29, CA-30, CA-42: nothing of the user's is changed by a kill; what is left in the cache, and in git's list, goes with
/// the next start.
pub(super) fn a_killed_evaluation_is_tidied_up_by_the_next(provider: Provider) {
    let trial = at_work().on(provider.word);
    trial.candidates(&[hangs(&trial), right("good")]);
    let (before, listed) = (
        provider.untouchable(&trial),
        trial.git(&["worktree", "list"]),
    );
    let running = trial.evaluate(&[]).start();
    until_it_runs(&trial);
    if provider.word == "worktree" {
        let during = trial.git(&["worktree", "list"]);
        let entries = |list: &str| list.lines().count();
        assert_eq!(entries(&during), entries(&listed) + 2, "{during}");
    }
    running.signal(Signal::KILL);
    drop(running.end());
    waiting(wait_until("its processes are gone", || {
        trial.shell.processes().is_empty()
    }));
    assert_eq!(provider.untouchable(&trial), before);
    trial.candidates(&[right("good"), wrong("bad")]);
    let report = trial.report(0, &["--output", "second"]);
    assert_eq!(report.failure("bad"), "mismatch");
    assert_eq!(provider.untouchable(&trial), before);
    assert_eq!(trial.git(&["worktree", "list"]), listed);
    trial.assert_nothing_left();
}

/// CA-3, CA-41
pub(super) fn a_signal_ends_everything(provider: Provider) {
    let trial = at_work().on(provider.word);
    trial.candidates(&[hangs(&trial), right("good")]);
    let (before, listed) = (
        provider.untouchable(&trial),
        trial.git(&["worktree", "list"]),
    );
    let running = trial.evaluate(&[]).start();
    until_it_runs(&trial);
    running.signal(Signal::TERM);
    ends(&running.end(), 130);
    trial.assert_nothing_left();
    assert_eq!(trial.git(&["worktree", "list"]), listed);
    assert_eq!(provider.untouchable(&trial), before);
}

/// CA-43: not even when one of them is killed.
pub(super) fn engines_on_one_repository_do_not_disturb_each_other(provider: Provider) {
    let trial = provider.trial();
    // Each test finds what it wrote itself, and no more.
    trial.spec(
        "build: {command: 'echo b > built'}\n\
         tests: [{name: check, command: 'test $(cat built) = b && test ! -e own && echo o > own && sleep 0.05 && test $(cat own) = o && sh tests/check.sh'}]\n",
    );
    let all: Vec<_> = (0..6).map(|number| right(&format!("c{number}"))).collect();
    trial.candidates(&[hangs(&trial), right("good")]);
    let victim = trial.evaluate(&["--output", "victim"]).start();
    until_it_runs(&trial);
    trial.candidates(&all);
    let others = ["one", "two"].map(|output| trial.evaluate(&["--output", output]).start());
    waiting(wait_until("the others have begun", || {
        ["one", "two"]
            .iter()
            .all(|output| trial.path(output).join("journal.jsonl").exists())
    }));
    victim.signal(Signal::KILL);
    drop(victim.end());
    for (other, output) in others.into_iter().zip(["one", "two"]) {
        ends(&other.end(), 0);
        let text = trial.shell.read(&format!("{output}/evaluation.json"));
        assert_eq!(text.matches("\"failure\": null").count(), 6, "{text}");
    }
    waiting(wait_until("the last one is gone", || {
        trial.shell.processes().is_empty()
    }));
    trial.candidates(&[right("good")]);
    ends(&trial.run(&[]), 0);
    trial.assert_nothing_left();
}

/// CA-37, CA-40: no slot is kept by who does not run.
pub(super) fn more_candidates_than_slots_all_get_their_turn(provider: Provider) {
    for (slots, count) in [("2", 6), ("1", 20)] {
        let trial = provider.trial();
        if count == 6 {
            trial.spec(
                "bench: [{name: b, command: [sh, answer.sh]}]\nmeasure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n",
            );
        }
        let all: Vec<_> = (0..count)
            .map(|number| right(&format!("c{number}")))
            .collect();
        trial.candidates(&all);
        let report = trial.report(0, &["-j", slots]);
        assert_eq!(report.names().len(), count);
        assert!(
            report
                .names()
                .iter()
                .all(|name| report.failure(name).is_empty())
        );
    }
}

/// CA-44: what a test that took too long has started is gone before anybody else begins.
pub(super) fn grandchildren_of_a_test_that_took_too_long_are_gone_with_it(provider: Provider) {
    let trial = provider.trial();
    let place = trial.path("beats");
    let daemon = format!("(setsid sh -c 'while :; do echo x >> {place:?}; done' &) ; sleep 600\n");
    trial.spec("parallel: 1\ntests: [{name: check, command: [sh, tests/check.sh], timeout: 3s}]\n");
    let looks =
        format!("a=$(wc -c < {place:?}); sleep 0.1; test $a = $(wc -c < {place:?}) && echo 42\n");
    trial.candidates(&[answers("daemon", &daemon), answers("looks", &looks)]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("daemon"), "timeout");
    assert_eq!(report.failure("looks"), "", "{}", report.of("looks"));
    trial.assert_nothing_left();
}
