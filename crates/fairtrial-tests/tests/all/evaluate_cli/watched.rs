//! The bar (CA-94).

use std::time::Duration;

use fairtrial_tests::wait_until;

use super::trial::{Trial, ends, right, wrong};

/// A race in which a measured process waits, after a sign, where a file says so. All takes long enough to be shown.
fn waits_while_measured() -> Trial {
    let trial = Trial::new();
    trial.write(
        "repo/bench.sh",
        "for n in 1 2 3; do if test -e \"$PLACE/stop-$n\"; then\n\
         touch \"$PLACE/held-$n\"; while test -e \"$PLACE/stop-$n\"; do sleep 0.01; done\n\
         fi; done; sleep 0.05\n",
    );
    let place = trial.shell.path();
    trial.spec(&format!(
        "env: {{set: {{PLACE: {place:?}}}}}\nbench: [{{name: b, command: [sh, bench.sh]}}]\n\
         tests: [{{name: check, command: 'sleep 0.15; sh tests/check.sh'}}]\n\
         measure: {{max_blocks: 12, repeats: 0, min_effect: 0, confirm: false}}\n"
    ));
    trial.candidates(&[right("good"), wrong("bad")]);
    trial
}

/// CA-94: on a terminal it says how far all is, at most ten times a second.
#[test]
fn a_bar_says_how_far_all_is() {
    let trial = waits_while_measured();
    let begun = std::time::Instant::now();
    let (code, shown) = trial.evaluate(&[]).run_on_terminal();
    let tenths = begun.elapsed().as_millis() / 100;
    assert_eq!(code, Some(0), "{shown}");
    for part in [
        "baseline ",
        "tests ",
        "measuring ",
        "/12 · ",
        "1 correct, 1 failed",
        "best ",
        " left",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown:?}");
    }
    let drawn = shown.matches(" correct, ").count() as u128;
    assert!(drawn <= tenths + 2, "{drawn} in {tenths} tenths: {shown:?}");
}

/// CA-94, CA-2: elsewhere there is none, nor where nobody wants it.
#[test]
fn there_is_no_bar_but_on_a_terminal() {
    let trial = waits_while_measured();
    let done = trial.run(&[]);
    ends(&done, 0);
    assert!(!done.stderr.contains("measuring"), "{}", done.stderr);
    let (code, shown) = trial
        .evaluate(&["--no-progress", "--output", "second"])
        .run_on_terminal();
    assert_eq!(code, Some(0));
    assert!(!shown.contains("measuring"), "{shown}");
}

/// CA-94: while a process is measured nothing is drawn; neither before the first block nor between two.
#[tokio::test]
async fn nothing_is_drawn_while_a_process_is_measured() {
    let trial = waits_while_measured();
    trial.write("stop-1", "");
    let mut running = trial.evaluate(&[]).start_on_terminal();
    for number in 1..=3 {
        let held = trial.path(&format!("held-{number}"));
        wait_until("a process is measured", || held.exists()).await;
        // What was drawn before is there by now; five times the pace of the bar.
        let more = running.shows_more_within(Duration::from_millis(500));
        assert!(!more, "something was drawn");
        trial.write(&format!("stop-{}", number + 1), "");
        std::fs::remove_file(trial.path(&format!("stop-{number}"))).expect("it is ours");
    }
    let (code, shown) = running.end();
    assert_eq!(code, Some(0), "{shown}");
}
