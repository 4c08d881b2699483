//! Metrics: all there, and true whatever a call does to its clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairtrial_exec::Verdict;
use fairtrial_tests::{Story, bare, json};

use super::Factory;
use super::scene::{HANG, ONE, Scene, in_time, timed};

cases! {
    every_metric_is_there,
    metrics_are_true_against_a_patched_clock,
    the_wait_in_the_queue_is_measured,
    processor_time_is_what_was_used,
    the_peak_is_what_was_held,
    a_node_says_which_it_is,
    children_that_outlived_their_call_are_counted,
    calls_that_failed_have_metrics_too,
}

/// CL-1, CL-74
async fn every_metric_is_there<F: Factory>(scene: &Scene<F>) {
    // What is over at once may be gone before anybody could look how large it was.
    let source = "import time\ndef f(): time.sleep(0.3)\n";
    for make in [Story::call, Story::reuse_call] {
        let metrics = scene.run(make(source, "[]")).await.metrics.to_json();
        let metrics = metrics.as_object().expect("an object");
        assert_eq!(metrics.len(), 18);
        let missing = metrics.iter().filter(|(_, value)| value.is_null());
        let missing: Vec<_> = missing.map(|(name, _)| name).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(metrics["leaked_processes"], 0);
    }
}

/// CL-74
async fn metrics_are_true_against_a_patched_clock<F: Factory>(scene: &Scene<F>) {
    let source = "import time\nreal = time.sleep\ndef f():\n    \
                  time.time = time.monotonic = time.perf_counter = lambda: 0.0\n    \
                  time.time_ns = time.monotonic_ns = time.perf_counter_ns = lambda: 0\n    real(0.5)\n";
    let before = unix_ns();
    let metrics = scene.source(source, "[]").await.metrics;
    let after = unix_ns();
    let wall = metrics.wall_ns.expect("it was measured");
    assert!(wall >= 500_000_000, "{wall}");
    let times = [
        before,
        metrics.started_at_ns.expect("it is known"),
        metrics.finished_at_ns.expect("it is known"),
        after,
    ];
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(times[2] - times[1], wall);
}

#[expect(
    clippy::disallowed_methods,
    reason = "the host's clock, beside the engine's"
)]
fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.expect("after 1970").as_nanos()).expect("before 2554")
}

/// CL-74, EX-81
async fn the_wait_in_the_queue_is_measured<F: Factory>(scene: &Scene<F>) {
    let taken = scene.take_all_slots("taken").await;
    let submitted = unix_ns();
    let waiting = scene.submit(Story::call(ONE, "[]")).await;
    tokio::time::sleep(Duration::from_millis(300)).await; // what is to be measured
    drop(taken);
    let metrics = in_time(waiting).await.expect("runs").metrics;
    let waited = metrics.queue_ns.expect("it was measured");
    let least = 300_000_000;
    let most = metrics.started_at_ns.expect("it is known") - submitted + 100_000_000; // clocks are set
    assert!((least..most).contains(&waited), "{waited} of {most}");
}

/// CL-74
async fn processor_time_is_what_was_used<F: Factory>(scene: &Scene<F>) {
    let source = "import time\ndef f():\n    begun = time.process_time()\n    \
                  while time.process_time() < begun + 0.4: pass";
    for make in [Story::call, Story::reuse_call] {
        let metrics = scene.run(make(source, "[]")).await.metrics;
        let used = metrics.user_ns.expect("measured") + metrics.system_ns.expect("measured");
        assert!((300_000_000..5_000_000_000).contains(&used), "{used}");
    }
}

/// CL-74
async fn the_peak_is_what_was_held<F: Factory>(scene: &Scene<F>) {
    let source = "def f():\n    x = bytearray(120_000_000)\n    return len(x)";
    let metrics = scene.source(source, "[]").await.metrics;
    let peak = metrics.peak_rss_bytes.expect("it was measured");
    assert!((120_000_000..600_000_000).contains(&peak), "{peak}");
}

/// CL-1, CL-74
async fn a_node_says_which_it_is<F: Factory>(scene: &Scene<F>) {
    let source = "import os\ndef f(): return [os.environ['FAIRTRIAL_NODE_ID'], os.environ['FAIRTRIAL_WORKER_ID']]";
    for make in [Story::call, Story::reuse_call] {
        let outcome = scene.run(make(source, "[]")).await;
        let node = outcome.metrics.node_id.clone().expect("it is known");
        assert!(scene.factory.nodes().contains(&node), "{node}");
        assert_eq!(
            json(&outcome),
            serde_json::json!([node, outcome.metrics.worker_id])
        );
    }
}

/// CL-74
async fn children_that_outlived_their_call_are_counted<F: Factory>(scene: &Scene<F>) {
    let source = "import os, time\ndef f():\n    for _ in range(3):\n        \
                  if os.fork() == 0: time.sleep(600)\n    time.sleep(0.2)\n";
    let metrics = scene.source(source, "[]").await.metrics;
    assert_eq!(metrics.leaked_processes, Some(3));
}

/// CL-1, CL-74
async fn calls_that_failed_have_metrics_too<F: Factory>(scene: &Scene<F>) {
    let raises = Story::call("def f(): 1 / 0", "[]");
    let hangs = timed(Story::call(HANG, "[]"), Duration::from_millis(300));
    let fails = bare::command(["sh", "-c", "exit 3"]);
    for (call, verdict) in [
        (raises, Verdict::Exception),
        (hangs, Verdict::Timeout),
        (fails, Verdict::Exit),
    ] {
        let outcome = scene.run(call).await;
        assert_eq!(outcome.verdict, verdict);
        let metrics = outcome.metrics;
        let numbers = [
            metrics.wall_ns,
            metrics.user_ns,
            metrics.system_ns,
            metrics.peak_rss_bytes,
        ];
        assert!(
            numbers.iter().all(Option::is_some),
            "{verdict}: {metrics:?}"
        );
        assert!(metrics.worker_id.is_some() && metrics.node_id.is_some());
    }
}
