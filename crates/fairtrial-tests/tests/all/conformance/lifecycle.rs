//! Lifecycle: nothing before the first call, nothing after the last.

use std::time::Duration;

use fairtrial_exec::{Backend, EngineError, Event, Shutdown, Verdict};
use fairtrial_tests::{Census, Process, Story, json, running_with, wait_until};

use super::Factory;
use super::scene::{Heard, ONE, Scene, begin, in_time, shut};

cases! {
    a_backend_that_is_only_made_starts_nothing,
    shutdown_may_be_asked_for_again_and_is_told_once,
    an_end_without_a_call_is_told_once,
    no_call_is_taken_after_shutdown,
    shutdown_waits_for_what_was_submitted,
    shutdown_kills_what_runs_too_long,
    shutdown_cancels_what_is_queued_if_asked_to,
    nothing_of_a_call_is_left_running,
    two_backends_do_not_meet,
}

/// CL-55, CL-74, EX-12
async fn a_backend_that_is_only_made_starts_nothing<F: Factory>(scene: &Scene<F>) {
    if !scene.is_alone() {
        return; // it looks at the whole process
    }
    let spill = scene.factory.path().join("spill");
    let before = Census::take(&spill);
    let backend = scene.factory.make();
    assert_eq!(Census::take(&spill), before);
    shut(&backend).await;
    assert_eq!(Census::take(&spill), before);
    assert_eq!(json(&scene.source(ONE, "[]").await), 1);
    let after = Census::take(&spill);
    assert!(
        after.threads > before.threads,
        "the first call does: {after:?}"
    );
}

/// CL-74, EX-92
async fn shutdown_may_be_asked_for_again_and_is_told_once<F: Factory>(scene: &Scene<F>) {
    let heard = Heard::by(&*scene.backend);
    assert_eq!(json(&scene.source(ONE, "[]").await), 1);
    let twice = async { tokio::join!(shut(&*scene.backend), shut(&*scene.backend)) };
    twice.await;
    shut(&*scene.backend).await;
    assert_eq!(heard.count("shutdown"), 1);
    assert_eq!(heard.all().last(), Some(&Event::Shutdown));
}

/// CL-74, EX-92
async fn an_end_without_a_call_is_told_once<F: Factory>(scene: &Scene<F>) {
    let heard = Heard::by(&*scene.backend);
    shut(&*scene.backend).await;
    shut(&*scene.backend).await;
    assert_eq!(heard.all(), [Event::Shutdown]);
}

/// CL-74: whether there was a call before or not.
async fn no_call_is_taken_after_shutdown<F: Factory>(scene: &Scene<F>) {
    assert_eq!(json(&scene.source(ONE, "[]").await), 1);
    let unused = scene.factory.make();
    for backend in [&*scene.backend, &unused] {
        shut(backend).await;
        let heard = Heard::by(backend);
        let refused = in_time(backend.execute(Story::call(ONE, "[]"))).await;
        assert!(matches!(refused, Err(EngineError::ShutDown)), "{refused:?}");
        let refused = backend.execute_unless(Story::call(ONE, "[]"), std::future::pending());
        let refused = in_time(refused).await;
        assert!(
            matches!(refused, Some(Err(EngineError::ShutDown))),
            "{refused:?}"
        );
        assert_eq!(heard.all(), []);
    }
}

/// CL-74
async fn shutdown_waits_for_what_was_submitted<F: Factory>(scene: &Scene<F>) {
    let mut calls = Vec::new();
    for _ in 0..5 {
        calls.push(scene.submit(Story::call(ONE, "[]")).await);
    }
    shut(&*scene.backend).await;
    for call in calls {
        let answer = tokio::time::timeout(Duration::ZERO, call).await;
        let outcome = answer.expect("it is there").expect("it was run");
        assert_eq!(json(&outcome), 1);
    }
}

/// CL-56, CL-74
async fn shutdown_kills_what_runs_too_long<F: Factory>(scene: &Scene<F>) {
    let gate = scene.gate("never");
    let running = scene.submit(gate.call()).await;
    gate.reached_by(1).await;
    let process = Process::find(gate.arrived()[0]).expect("it runs");
    let how = Shutdown {
        kill_after: Some(Duration::from_millis(100)),
        ..Shutdown::default()
    };
    in_time(scene.backend.shutdown(how)).await;
    let answer = tokio::time::timeout(Duration::ZERO, running).await;
    let outcome = answer.expect("it is there").expect("it is known");
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    wait_until("it is gone", || !process.is_running()).await;
}

/// CL-74
async fn shutdown_cancels_what_is_queued_if_asked_to<F: Factory>(scene: &Scene<F>) {
    let taken = scene.take_all_slots("taken").await;
    let never = scene.gate("never");
    let queued = scene.submit(never.call()).await;
    let how = Shutdown {
        wait: false,
        cancel_queued: true,
        kill_after: None,
    };
    in_time(scene.backend.shutdown(how)).await;
    let outcome = in_time(queued).await.expect("it is known");
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    for (gate, call) in taken {
        gate.open();
        assert_eq!(json(&in_time(call).await.expect("runs")), "through");
    }
    assert!(never.arrived().is_empty(), "it never starts");
}

/// CL-74: neither the worker nor what it left behind. Every case ends with such a look; here there is much to find.
async fn nothing_of_a_call_is_left_running<F: Factory>(scene: &Scene<F>) {
    let gate = scene.gate("seen");
    let running = scene.submit(gate.call()).await;
    gate.reached_by(1).await;
    let seen = running_with(&scene.factory.path().display().to_string());
    assert!(seen.contains(&gate.arrived()[0]), "whoever runs is found");
    drop(running);
    let source = "import os, time\ndef f():\n    pid = os.fork()\n    if pid == 0:\n        os.setsid()\n        \
                  time.sleep(600)\n    return [pid, os.getpid()]\n";
    let outcome = scene.source(source, "[]").await;
    assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
    let pids = json(&outcome);
    let pids = pids.as_array().expect("a list").iter();
    let pids = pids.map(|pid| u32::try_from(pid.as_u64().expect("a number")).expect("a pid"));
    let left: Vec<Process> = pids.filter_map(Process::find).collect();
    wait_until("they are gone", || {
        !left.iter().any(|process| process.is_running())
    })
    .await;
}

/// CL-74: neither their events nor their ends.
async fn two_backends_do_not_meet<F: Factory>(scene: &Scene<F>) {
    let other = scene.factory.make();
    let (heard, heard_of_other) = (Heard::by(&*scene.backend), Heard::by(&other));
    let gate = scene.gate("gate");
    let running = scene.submit(gate.call()).await;
    gate.reached_by(1).await;
    drop(begin(other.execute(Story::call(ONE, "[]"))).await);
    in_time(other.shutdown(Shutdown::now())).await;
    gate.open();
    assert_eq!(json(&in_time(running).await.expect("runs")), "through");
    shut(&*scene.backend).await;
    for heard in [heard, heard_of_other] {
        let counts = ["submit", "complete", "shutdown"].map(|name| heard.count(name));
        assert_eq!(counts, [1, 1, 1]);
    }
}
