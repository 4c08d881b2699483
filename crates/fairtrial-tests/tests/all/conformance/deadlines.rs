//! Deadlines: from the acknowledgement of a call, never from its submission.

use std::time::Duration;

use fairtrial_exec::{Outcome, Verdict};
use fairtrial_tests::{Process, Story, json};

use super::Factory;
use super::scene::{HANG, ONE, Scene, in_time, timed};

cases! {
    a_deadline_ends_the_whole_tree_of_a_call,
    waiting_in_the_queue_is_not_charged,
    calls_that_wait_for_one_another_have_all_of_their_time,
    a_call_that_waits_too_long_is_called_off,
    a_call_that_waits_too_long_is_called_off_while_all_slots_are_taken,
    a_queue_timeout_that_is_not_reached_changes_nothing,
    a_call_may_end_by_itself_between_the_signals,
}

/// CL-74, EX-90, section 6
async fn a_deadline_ends_the_whole_tree_of_a_call<F: Factory>(scene: &Scene<F>) {
    let tree = "import os, time\ndef f(place):\n    pid = os.fork()\n    \
                if pid == 0:\n        os.setsid()\n        time.sleep(60)\n        os._exit(0)\n    \
                with open(place, 'w') as file:\n        file.write(str(pid))\n    time.sleep(600)\n";
    let place = scene.factory.path().join("pid");
    let call = Story::call(tree, &serde_json::json!([place]).to_string());
    let outcome = scene.run(timed(call, Duration::from_secs(1))).await;
    assert_eq!(outcome.verdict, Verdict::Timeout);
    let wall_ns = outcome.metrics.wall_ns.expect("it ran");
    assert!(wall_ns >= 1_000_000_000, "{wall_ns}");
    let pid = std::fs::read_to_string(&place).expect("it got so far");
    let child = Process::find(pid.parse().expect("a pid"));
    assert!(child.is_none_or(|child| !child.is_running()));
}

/// CL-74, EX-90, section 6: a call that waits longer than its deadline still has all of it.
async fn waiting_in_the_queue_is_not_charged<F: Factory>(scene: &Scene<F>) {
    let taken = scene.take_all_slots("taken").await;
    let call = timed(Story::call(ONE, "[]"), Duration::from_secs(1));
    let waiting = scene.submit(call).await;
    pass(Duration::from_millis(1200)).await;
    for (gate, call) in taken {
        gate.open();
        assert_eq!(json(&in_time(call).await.expect("runs")), "through");
    }
    let outcome = in_time(waiting).await.expect("runs");
    assert_eq!(json(&outcome), 1);
}

/// CL-74, EX-90, section 6: four naps of 0.3 s under a deadline of 0.9 s, one slot or several.
async fn calls_that_wait_for_one_another_have_all_of_their_time<F: Factory>(scene: &Scene<F>) {
    let nap = Story::call("import time\ndef f(): time.sleep(0.3)\n", "[]");
    let naps = [(); 4].map(|()| scene.run(timed(nap.clone(), Duration::from_millis(900))));
    let [a, b, c, d] = naps;
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    let verdicts = [a, b, c, d].map(|outcome| outcome.verdict);
    assert_eq!(verdicts, [Verdict::Ok; 4]);
}

/// CL-74, EX-46: at the latest when a slot is free for it.
async fn a_call_that_waits_too_long_is_called_off<F: Factory>(scene: &Scene<F>) {
    let taken = scene.take_all_slots("taken").await;
    let never = scene.gate("never");
    let mut call = never.call();
    call.queue_timeout = Some(Duration::from_millis(100));
    let waiting = scene.run(call);
    let others = async {
        pass(Duration::from_millis(400)).await;
        for (gate, call) in taken {
            gate.open();
            assert_eq!(json(&call.await.expect("runs")), "through");
        }
    };
    let (outcome, ()) = tokio::join!(waiting, others);
    was_called_off(&outcome);
    assert!(never.arrived().is_empty(), "it never ran");
}

/// EX-90, section 6: nobody has to make room before it is told.
async fn a_call_that_waits_too_long_is_called_off_while_all_slots_are_taken<F: Factory>(
    scene: &Scene<F>,
) {
    let mut taken = Vec::new();
    for _ in 0..scene.factory.slots() {
        taken.push(scene.submit(Story::call(HANG, "[]")).await);
    }
    let mut call = Story::call(ONE, "[]");
    call.queue_timeout = Some(Duration::from_millis(50));
    was_called_off(&scene.run(call).await);
    drop(taken); // cancels them
    assert_eq!(json(&scene.source(ONE, "[]").await), 1);
}

fn was_called_off(outcome: &Outcome) {
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(
        outcome.error.as_ref().expect("it says why").kind,
        "QueueTimeout"
    );
    assert_eq!(outcome.metrics.wall_ns, None);
}

/// CL-74, EX-46: it is of the wait alone.
async fn a_queue_timeout_that_is_not_reached_changes_nothing<F: Factory>(scene: &Scene<F>) {
    scene.source(ONE, "[]").await; // an interpreter is there
    let mut call = Story::call("import time\ndef f(): time.sleep(2.5)", "[]");
    call.queue_timeout = Some(Duration::from_secs(2));
    assert_eq!(scene.run(call).await.verdict, Verdict::Ok);
}

/// EX-90, section 6: a grace is the call's, wherever it runs.
async fn a_call_may_end_by_itself_between_the_signals<F: Factory>(scene: &Scene<F>) {
    let script = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut call = timed(
        fairtrial_tests::bare::command(["sh", "-c", script]),
        Duration::from_secs(1),
    );
    call.term_grace = Duration::from_secs(20);
    let outcome = scene.run(call).await;
    assert_eq!(outcome.verdict, Verdict::Timeout);
    assert_eq!(outcome.stdout.text(), "up\ntold\n");
}

/// That it passes is what is tested.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
