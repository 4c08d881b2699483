//! Cancelling: queued, running, finished; exactly one outcome each.

use std::time::{Duration, Instant};

use fairtrial_exec::{Backend, Event, Verdict};
use fairtrial_tests::{Process, Story, bare, json, wait_until};

use super::Factory;
use super::scene::{Heard, ONE, Scene, in_time, shut};

cases! {
    a_queued_call_that_is_dropped_never_starts,
    a_queued_call_that_is_cancelled_says_so,
    a_running_call_that_is_dropped_is_gone_with_its_tree,
    a_running_call_that_is_cancelled_says_what_it_had_written,
    a_call_may_end_by_itself_when_it_is_cancelled,
    a_finished_call_cannot_be_cancelled,
    a_cancelled_call_frees_its_slot,
    calls_cancelled_at_any_moment_have_one_outcome_each,
}

/// CL-20, CL-74, EX-90, section 6
async fn a_queued_call_that_is_dropped_never_starts<F: Factory>(scene: &Scene<F>) {
    let taken = scene.take_all_slots("taken").await;
    let never = scene.gate("never");
    let queued = scene.submit(never.call()).await;
    drop(queued);
    drop(taken); // frees their slots
    assert_eq!(json(&scene.source(ONE, "[]").await), 1);
    shut(&*scene.backend).await;
    assert!(never.arrived().is_empty(), "it never starts");
}

/// CL-20, CL-74
async fn a_queued_call_that_is_cancelled_says_so<F: Factory>(scene: &Scene<F>) {
    let taken = scene.take_all_slots("taken").await;
    let never = scene.gate("never");
    let queued = scene
        .backend
        .execute_unless(never.call(), std::future::ready(()));
    let answer = in_time(queued).await.expect("it is known");
    let outcome = answer.expect("the engine does its work");
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(outcome.metrics.wall_ns, None);
    for (gate, call) in taken {
        gate.open();
        assert_eq!(json(&in_time(call).await.expect("runs")), "through");
    }
    assert!(never.arrived().is_empty(), "it never starts");
}

/// CL-20, CL-68, CL-74: however it hid, within a second.
async fn a_running_call_that_is_dropped_is_gone_with_its_tree<F: Factory>(scene: &Scene<F>) {
    let tree = "import os, time\ndef f(place):\n    if os.fork() == 0:\n        os.setsid()\n        \
                if os.fork() == 0:\n            with open(place + '.new', 'w') as file:\n                \
                file.write(f'{os.getppid()} {os.getpid()}')\n            os.rename(place + '.new', place)\n        \
                time.sleep(600)\n    time.sleep(600)\n";
    let place = scene.factory.path().join("pids");
    let call = Story::call(tree, &serde_json::json!([place]).to_string());
    let running = scene.submit(call).await;
    wait_until("the tree is there", || place.exists()).await;
    let text = std::fs::read_to_string(&place).expect("it was written whole");
    let pids = text
        .split_whitespace()
        .map(|pid| pid.parse().expect("a pid"));
    let tree: Vec<Process> = pids.filter_map(Process::find).collect();
    assert_eq!(tree.len(), 2);
    let dropped = Instant::now();
    drop(running);
    wait_until("it is gone", || {
        !tree.iter().any(|process| process.is_running())
    })
    .await;
    let took = dropped.elapsed();
    assert!(took < Duration::from_secs(1) + busy(), "{took:?}");
}

/// On a machine with more to do than processors nothing is on time.
fn busy() -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").expect("/proc is there");
    let load = load
        .split(' ')
        .next()
        .and_then(|load| load.parse::<f64>().ok());
    let waiting = load.expect("a number") - fairtrial_exec::available_cpus() as f64;
    Duration::from_secs_f64(waiting.max(0.0))
}

/// CL-20, CL-74
async fn a_running_call_that_is_cancelled_says_what_it_had_written<F: Factory>(scene: &Scene<F>) {
    let gate = scene.gate("running");
    let source = "import os, time\ndef f(place):\n    print('so far', flush=True)\n    \
                  open(place, 'a').write('%d\\n' % os.getpid())\n    time.sleep(600)\n";
    let begun = scene.factory.path().join("running.begun");
    let call = Story::call(source, &serde_json::json!([begun]).to_string());
    let answer = in_time(scene.backend.execute_unless(call, gate.reached_by(1))).await;
    let outcome = answer
        .expect("it is known")
        .expect("the engine does its work");
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(outcome.stdout.text(), "so far\n");
}

/// CL-20, CL-74: its grace is its own, wherever it runs.
async fn a_call_may_end_by_itself_when_it_is_cancelled<F: Factory>(scene: &Scene<F>) {
    let begun = scene.factory.path().join("trap.begun");
    let script = format!(
        "trap 'echo told; exit 0' TERM; echo 1 > {}; while :; do sleep 0.02; done",
        begun.display()
    );
    let mut call = bare::command(["sh", "-c", &script]);
    call.cancel_grace = Duration::from_secs(20);
    let gate = scene.gate("trap");
    let answer = in_time(scene.backend.execute_unless(call, gate.reached_by(1))).await;
    let outcome = answer
        .expect("it is known")
        .expect("the engine does its work");
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(outcome.stdout.text(), "told\n");
}

/// CL-21, CL-74
async fn a_finished_call_cannot_be_cancelled<F: Factory>(scene: &Scene<F>) {
    let heard = Heard::by(&*scene.backend);
    let told = wait_until("it has ended", || heard.count("complete") == 1);
    let answer = in_time(scene.backend.execute_unless(Story::call(ONE, "[]"), told)).await;
    let outcome = answer
        .expect("it is known")
        .expect("the engine does its work");
    assert_eq!(json(&outcome), 1);
    // Nor by being dropped.
    let dropped = scene.submit(Story::call(ONE, "[]")).await;
    wait_until("it has ended", || heard.count("complete") == 2).await;
    drop(dropped);
    shut(&*scene.backend).await;
    let ok = |event: &Event| {
        matches!(
            event,
            Event::Complete {
                verdict: Some(Verdict::Ok),
                ..
            }
        )
    };
    assert_eq!(heard.all().iter().filter(|event| ok(event)).count(), 2);
    assert_eq!(heard.count("complete"), 2);
}

/// CL-74, EX-90, section 6
async fn a_cancelled_call_frees_its_slot<F: Factory>(scene: &Scene<F>) {
    for round in 0..3 {
        drop(scene.take_all_slots(&format!("round{round}-")).await);
    }
    assert_eq!(json(&scene.source(ONE, "[]").await), 1);
}

/// CL-21, CL-74, EX-92: before it is queued, in the queue, as it begins, as it runs, as it ends.
async fn calls_cancelled_at_any_moment_have_one_outcome_each<F: Factory>(scene: &Scene<F>) {
    scene.source(ONE, "[]").await; // what starts at first has started
    let heard = Heard::by(&*scene.backend);
    let mut outcomes = Vec::new();
    for moment in 0..30 {
        let pause = tokio::time::sleep(Duration::from_millis(moment));
        let call = if moment % 2 == 0 {
            Story::call(ONE, "[]")
        } else {
            Story::reuse_call(ONE, "[]")
        };
        let answer = in_time(scene.backend.execute_unless(call, pause)).await;
        let outcome = answer
            .expect("it is known")
            .expect("the engine does its work");
        match outcome.verdict {
            Verdict::Ok => assert_eq!(json(&outcome), 1),
            Verdict::Cancelled => assert!(outcome.value.is_none()),
            other => panic!("{other}: {:?}", outcome.error),
        }
        outcomes.push(outcome.verdict);
        // The same for who does not want to know.
        let call = scene.backend.execute(Story::call(ONE, "[]"));
        tokio::time::timeout(Duration::from_millis(moment), call)
            .await
            .ok();
    }
    assert_eq!(json(&scene.source(ONE, "[]").await), 1);
    assert!(outcomes.contains(&Verdict::Cancelled), "{outcomes:?}");
    shut(&*scene.backend).await;
    let (submitted, mut completed) = (heard.calls("submit"), heard.calls("complete"));
    completed.sort_unstable();
    assert_eq!(submitted.len(), 61);
    assert_eq!(submitted, completed, "each exactly once");
}
