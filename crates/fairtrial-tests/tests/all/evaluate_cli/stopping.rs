//! Evaluations that are stopped: by signals and by death, alone and beside others.

use std::time::Instant;

use fairtrial_tests::{stress, wait_until};
use rustix::process::Signal;

use super::trial::{Trial, changes, ends, right, wrong};

/// Waits where it is told to, after a sign of having come there. Nowhere by default.
const WAITS: &str =
    "touch \"$PLACE/at-$1\"; while test -e \"$PLACE/stop-$1\"; do sleep 0.01; done\n";

/// An evaluation with a build, tests, a bench, a race of candidates and a proposer, each of which can be made to wait.
fn waits_anywhere() -> Trial {
    let trial = Trial::new();
    trial.write("repo/wait.sh", WAITS);
    trial.write(
        "proposer.py",
        "import json, os, sys, time\n\
         for line in sys.stdin:\n    \
             open(os.environ['PLACE'] + '/at-proposer', 'w').close()\n    \
             while os.path.exists(os.environ['PLACE'] + '/stop-proposer'): time.sleep(0.01)\n    \
             print(json.dumps({'id': json.loads(line)['id'], 'candidates': []}), flush=True)\n",
    );
    let place = trial.shell.path();
    trial.spec(&format!(
        "env: {{set: {{PLACE: {place:?}}}}}\n\
         build: {{command: [sh, wait.sh, build]}}\n\
         tests: [{{name: check, command: 'sh wait.sh test; sh tests/check.sh'}}]\n\
         bench: [{{name: b, command: 'sh wait.sh bench; ! grep -q \"#\" answer.sh || sh wait.sh race'}}]\n\
         measure: {{max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}}\n\
         search: {{proposer: {{command: [python3, proposer.py]}}, repair: {{max_diff_share: 100%}}}}\n"
    ));
    trial.candidates(&[right("good"), wrong("bad")]);
    trial
}

/// CA-3: 130, CA-41: whatever runs when the signal comes, nothing of it remains, and the tree is as it was.
#[tokio::test]
async fn a_signal_ends_everything_wherever_it_comes() {
    let signals = [Signal::INT, Signal::TERM, Signal::HUP];
    for (number, at) in ["build", "test", "bench", "race", "proposer"]
        .into_iter()
        .enumerate()
    {
        let trial = waits_anywhere();
        trial.write(&format!("stop-{at}"), "");
        let before = trial.census("repo");
        let place = trial.path("");
        let running = trial.evaluate(&[]).env("PLACE", &place).start();
        let sign = trial.path(&format!("at-{at}"));
        wait_until(&format!("it is at its {at}"), || sign.exists()).await;
        running.signal(signals[number % signals.len()]);
        let done = running.end();
        ends(&done, 130);
        assert!(done.stderr.contains("--resume"), "{}", done.stderr);
        trial.assert_nothing_left();
        assert_eq!(trial.census("repo"), before, "{at}");
        std::fs::remove_file(trial.path(&format!("stop-{at}"))).expect("it is ours");
        let resumed = trial.evaluate(&["--resume", "--json"]).env("PLACE", &place);
        ends(&resumed.run(), 0);
        assert_eq!(trial.written().failure("bad"), "mismatch", "{at}");
    }
}

/// CA-42, CA-43: engines on one repository, started and killed at any moment, never harm each other.
#[tokio::test]
async fn engines_that_are_killed_do_not_disturb_others_on_the_same_repository() {
    let rounds: u32 = if stress() { 50 } else { 5 };
    let trial = Trial::new();
    // Each test finds what it wrote itself, and no more.
    trial.spec(
        "build: {command: 'echo b > built'}\n\
         tests: [{name: check, command: 'test $(cat built) = b && test ! -e own && echo o > own && sh tests/check.sh'}]\n",
    );
    let all: Vec<_> = (0..6).map(|number| right(&format!("c{number}"))).collect();
    trial.candidates(&all);
    let begun = Instant::now();
    ends(&trial.run(&["--output", "calm"]), 0);
    let whole = begun.elapsed();
    for round in 0..rounds {
        let victim = trial
            .evaluate(&["--output", &format!("victim-{round}")])
            .start();
        let other = trial
            .evaluate(&["--output", &format!("other-{round}")])
            .start();
        let moment = Instant::now() + whole * (round * 37 % 100) / 100;
        wait_until("its moment has come", || Instant::now() >= moment).await;
        victim.signal(Signal::KILL);
        drop(victim.end());
        ends(&other.end(), 0);
        let text = trial.shell.read(&format!("other-{round}/evaluation.json"));
        assert_eq!(text.matches("\"failure\": null").count(), 6, "{text}");
    }
    wait_until("the last one is gone", || {
        trial.shell.processes().is_empty()
    })
    .await;
    ends(&trial.run(&[]), 0);
    trial.assert_nothing_left();
}

/// CA-61, CA-62: two evaluations at once both finish, and their blocks never overlap.
#[test]
fn two_evaluations_take_turns_at_measuring() {
    let trial = Trial::new();
    trial.write(
        "repo/bench.sh",
        "mkdir \"$PLACE/measuring\" || echo overlap >> \"$PLACE/overlaps\"; : > \"$PLACE/measured\"; rmdir \"$PLACE/measuring\"\n",
    );
    let place = trial.shell.path();
    trial.spec(&format!(
        "env: {{set: {{PLACE: {place:?}}}}}\nbench: [{{name: b, command: [sh, bench.sh]}}]\n\
         tests: [{{name: check, command: 'test ! -e \"$PLACE/measuring\" || echo beside >> \"$PLACE/overlaps\"; sh tests/check.sh'}}]\n\
         measure: {{max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}}\n"
    ));
    trial.candidates(&[right("one"), right("two"), wrong("three")]);
    let running = ["first", "second"].map(|out| trial.evaluate(&["--output", out]).start());
    for running in running {
        ends(&running.end(), 0);
    }
    assert!(trial.path("measured").exists());
    assert!(
        !trial.path("overlaps").exists(),
        "{}",
        trial.shell.read("overlaps")
    );
    trial.assert_nothing_left();
}

/// CA-62: who waits says for whom; the death of the holder frees it.
#[tokio::test]
async fn who_waits_for_another_evaluation_says_so() {
    let trial = waits_anywhere();
    trial.write("stop-bench", "");
    let place = trial.path("");
    let first = trial
        .evaluate(&["--output", "first"])
        .env("PLACE", &place)
        .start();
    wait_until("the first measures", || trial.path("at-bench").exists()).await;
    let mut second = trial
        .evaluate(&["--output", "second"])
        .env("PLACE", &place)
        .start();
    let said = second.error_line();
    let pid = first.pid().as_raw_nonzero().to_string();
    assert!(said.contains("waiting") && said.contains(&pid), "{said}");
    first.signal(Signal::KILL);
    drop(first.end());
    std::fs::remove_file(trial.path("stop-bench")).expect("it is ours");
    ends(&second.end(), 0);
    // Nobody was in the way of the first one.
    let waited = |output: &str| {
        let text = trial.shell.read(&format!("{output}/evaluation.json"));
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        report["costs"]["lock_wait_s"].as_f64().expect("a number")
    };
    assert!(waited("second") > 0.0);
    ends(
        &trial
            .evaluate(&["--output", "third"])
            .env("PLACE", &place)
            .run(),
        0,
    );
    assert!(waited("third").abs() < f64::EPSILON);
}

/// CA-93: a second evaluation in the same directory is refused while the first writes.
#[tokio::test]
async fn two_evaluations_do_not_write_one_record() {
    let trial = waits_anywhere();
    trial.write("stop-test", "");
    let place = trial.path("");
    let first = trial.evaluate(&[]).env("PLACE", &place).start();
    wait_until("the first tests", || trial.path("at-test").exists()).await;
    let second = trial.evaluate(&["--resume"]).env("PLACE", &place).run();
    ends(&second, 2);
    assert!(
        second.stderr.contains("another evaluation"),
        "{}",
        second.stderr
    );
    std::fs::remove_file(trial.path("stop-test")).expect("it is ours");
    ends(&first.end(), 0);
}

/// CA-56: a lock that cannot be used is nobody's fault but the machine's.
#[test]
fn a_lock_that_cannot_be_used_is_an_end_that_says_so() {
    let trial = Trial::new();
    trial.candidates(&[right("good"), changes("other", &[("new", "x")])]);
    let cli = trial
        .evaluate(&[])
        .env("FAIRTRIAL_MACHINE_LOCK", "/proc/none/lock");
    let done = cli.run();
    ends(&done, 1);
    assert!(
        done.stderr.contains("FAIRTRIAL_MACHINE_LOCK"),
        "{}",
        done.stderr
    );
    trial.assert_nothing_left();
}

/// CA-45, CA-56
#[test]
fn a_cache_that_cannot_be_used_is_an_end_that_says_so() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    trial.write("file", "");
    let cli = trial
        .evaluate(&[])
        .env("FAIRTRIAL_CACHE_DIR", trial.path("file/cache"));
    let done = cli.run();
    ends(&done, 1);
    assert!(
        done.stderr.contains("FAIRTRIAL_CACHE_DIR"),
        "{}",
        done.stderr
    );
    assert!(!trial.path("out").exists());
}
