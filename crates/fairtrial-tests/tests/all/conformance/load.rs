//! Load: a thousand calls from everywhere at once, in order, in bounded memory.

use std::sync::Arc;
use std::thread;

use fairtrial_exec::{Backend, Call};
use fairtrial_tests::{PATIENCE, Story, anonymous_bytes, json};
use serde_json::json as j;

use super::Factory;
use super::scene::{Scene, in_time, run};

cases! {
    a_thousand_calls_of_eight_threads_and_two_loops_are_each_answered,
    a_burst_of_calls_is_answered_each_with_its_own_value,
    calls_start_in_the_order_they_came,
}

const EACH: usize = 100;

fn add(a: usize, b: usize) -> Call {
    Story::reuse_call("def f(a, b): return a + b", &j!([a, b]).to_string())
}

/// CL-55, CL-74: and memory does not grow with them.
async fn a_thousand_calls_of_eight_threads_and_two_loops_are_each_answered<F: Factory>(
    scene: &Scene<F>,
) {
    if !scene.is_alone() {
        return; // it looks at the whole process
    }
    scene.run(add(0, 0)).await;
    let before = anonymous_bytes();
    let askers: Vec<_> = (0..10)
        .map(|asker| {
            let backend = scene.backend.clone();
            thread::spawn(move || ask(&backend, asker))
        })
        .collect();
    for asker in askers {
        asker.join().expect("each is answered");
    }
    let grown = anonymous_bytes().saturating_sub(before);
    assert!(grown < 50_000_000, "{grown}");
}

/// On a thread and a loop of its own; the last two all at once.
fn ask<B: Backend + 'static>(backend: &Arc<B>, asker: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime can be had").block_on(async {
        if asker >= 8 {
            return ask_at_once(backend, asker).await;
        }
        for number in 0..EACH {
            let outcome = run(&**backend, add(1000 * asker, number)).await;
            assert_eq!(json(&outcome), 1000 * asker + number);
        }
    });
}

async fn ask_at_once<B: Backend + 'static>(backend: &Arc<B>, asker: usize) {
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..EACH {
        let backend = backend.clone();
        calls.spawn(async move {
            let outcome = run(&*backend, add(1000 * asker, number)).await;
            assert_eq!(json(&outcome), 1000 * asker + number);
        });
    }
    let all = tokio::time::timeout(2 * PATIENCE, calls.join_all());
    assert_eq!(all.await.expect("they end").len(), EACH);
}

/// CL-74: many more than there are slots, one large beside small ones.
async fn a_burst_of_calls_is_answered_each_with_its_own_value<F: Factory>(scene: &Scene<F>) {
    let source = "def f(n): return [n, 'x' * (200_000 if n % 10 == 0 else 10)]";
    let mut calls = Vec::new();
    for number in 0..50 {
        let call = Story::reuse_call(source, &j!([number]).to_string());
        calls.push(scene.submit(call).await);
    }
    for (number, call) in calls.into_iter().enumerate() {
        let value = json(&in_time(call).await.expect("runs"));
        let length = if number % 10 == 0 { 200_000 } else { 10 };
        assert_eq!(value[0], number);
        assert_eq!(value[1].as_str().map(str::len), Some(length));
    }
}

/// CL-36, CL-74, EX-27: one slot is free, so they start one after another.
async fn calls_start_in_the_order_they_came<F: Factory>(scene: &Scene<F>) {
    let taken = scene.take_all_slots("taken").await;
    let mut queued = Vec::new();
    for number in 0..8 {
        queued.push(scene.submit(add(number, 0)).await);
    }
    taken[0].0.open();
    let mut starts = Vec::new();
    for (number, call) in queued.into_iter().enumerate() {
        let outcome = in_time(call).await.expect("runs");
        assert_eq!(json(&outcome), number);
        starts.push(outcome.metrics.started_at_ns.expect("it is known"));
    }
    assert!(starts.is_sorted(), "{starts:?}");
    for (gate, call) in taken {
        gate.open();
        assert_eq!(json(&in_time(call).await.expect("runs")), "through");
    }
}
