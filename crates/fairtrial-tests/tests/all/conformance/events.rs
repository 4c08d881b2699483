//! Events: each once, in order; a handler that fails or blocks harms nobody (EX-91 to EX-93).

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use fairtrial_exec::{Backend, CallId, Event, ExitReason, Verdict};
use fairtrial_tests::{PATIENCE, Story, bare, json, wait_until};

use super::Factory;
use super::scene::{HANG, Heard, ONE, Scene, call_of, in_time, run, shut, timed, worker_of};

cases! {
    each_call_is_submitted_started_and_completed_once_and_in_that_order,
    calls_are_submitted_in_order_and_answered_for_once,
    each_submit_has_one_complete_whatever_becomes_of_the_call,
    a_complete_has_the_verdict,
    a_worker_of_one_call_starts_and_exits_and_says_why,
    each_worker_that_starts_also_exits_and_says_why,
    handlers_are_heard_in_order_and_delay_no_call,
    a_handler_that_panics_harms_nobody,
    a_handler_may_call_the_backend_back,
}

/// CL-61, CL-74, EX-92
async fn each_call_is_submitted_started_and_completed_once_and_in_that_order<F: Factory>(
    scene: &Scene<F>,
) {
    let heard = Heard::by(&*scene.backend);
    let mut calls = Vec::new();
    for _ in 0..6 {
        calls.push(scene.submit(Story::call(ONE, "[]")).await);
    }
    for call in calls {
        assert_eq!(json(&in_time(call).await.expect("runs")), 1);
    }
    shut(&*scene.backend).await;
    let all = heard.all();
    assert_eq!(all.last(), Some(&Event::Shutdown));
    let submitted = heard.calls("submit");
    assert_eq!(submitted.len(), 6);
    for id in submitted {
        let names = all.iter().filter(|event| call_of(event) == Some(id));
        let names: Vec<_> = names.map(Event::name).collect();
        assert_eq!(names, ["submit", "start", "complete"], "{id:?}");
    }
}

/// CL-74, EX-27 to EX-29: also beside one that is dropped.
async fn calls_are_submitted_in_order_and_answered_for_once<F: Factory>(scene: &Scene<F>) {
    let heard = Heard::by(&*scene.backend);
    let mut calls = Vec::new();
    for _ in 0..10 {
        calls.push(scene.submit(Story::call(ONE, "[]")).await);
    }
    drop(calls.remove(7));
    for call in calls {
        assert_eq!(json(&in_time(call).await.expect("runs")), 1);
    }
    shut(&*scene.backend).await;
    let (submitted, mut completed) = (heard.calls("submit"), heard.calls("complete"));
    assert!(submitted.is_sorted(), "{submitted:?}");
    completed.sort_unstable();
    assert_eq!(submitted, completed, "each exactly once");
    let mut started = heard.calls("start");
    started.sort_unstable();
    let starts = started.len();
    started.dedup();
    assert_eq!(started.len(), starts, "none twice");
    assert!(starts >= 9, "{starts}");
}

/// CL-74, EX-92
async fn each_submit_has_one_complete_whatever_becomes_of_the_call<F: Factory>(scene: &Scene<F>) {
    let heard = Heard::by(&*scene.backend);
    live(scene).await;
    let (submitted, mut completed) = (heard.calls("submit"), heard.calls("complete"));
    completed.sort_unstable();
    assert_eq!(submitted.len(), 7);
    assert_eq!(submitted, completed);
    assert_eq!(heard.count("shutdown"), 1);
    assert_eq!(heard.all().last(), Some(&Event::Shutdown));
}

/// CL-61, EX-91: by the time that its call is over.
async fn a_worker_of_one_call_starts_and_exits_and_says_why<F: Factory>(scene: &Scene<F>) {
    let heard = Heard::by(&*scene.backend);
    live_one_call_each(scene).await;
    shut(&*scene.backend).await;
    for worker in heard.workers("start") {
        let all = heard.all();
        let names = all
            .iter()
            .filter(|event| worker_of(event) == Some(&*worker));
        let mut names: Vec<_> = names.map(Event::name).collect();
        assert_eq!(names.last(), Some(&"worker_exit"), "{names:?}");
        names.sort_unstable(); // a call may be quicker to begin than its worker is known to be there
        assert_eq!(names, ["start", "worker_exit", "worker_start"], "{worker}");
    }
    for reason in OF_ONE_CALL {
        let reasons = exit_reasons(&heard);
        assert!(reasons.contains(&reason), "{reason:?} in {reasons:?}");
    }
}

/// EX-91, EX-92
async fn each_worker_that_starts_also_exits_and_says_why<F: Factory>(scene: &Scene<F>) {
    let heard = Heard::by(&*scene.backend);
    live(scene).await;
    let (started, exited) = (heard.count("worker_start"), heard.count("worker_exit"));
    assert_eq!(started, exited);
    let reasons = exit_reasons(&heard);
    for reason in OF_ONE_CALL.into_iter().chain([ExitReason::Shutdown]) {
        assert!(reasons.contains(&reason), "{reason:?} in {reasons:?}");
    }
}

/// How workers end that run one call.
const OF_ONE_CALL: [ExitReason; 4] = [
    ExitReason::CallDone,
    ExitReason::Timeout,
    ExitReason::Crashed,
    ExitReason::Limit(Verdict::OutputLimit),
];

fn exit_reasons(heard: &Heard) -> Vec<ExitReason> {
    let all = heard.all();
    let reasons = all.iter().filter_map(|event| match event {
        Event::WorkerExit { reason, .. } => Some(*reason),
        _ => None,
    });
    reasons.collect()
}

/// Seven calls that end in as many ways, and the backend's end.
async fn live<F: Factory>(scene: &Scene<F>) {
    live_one_call_each(scene).await;
    drop(scene.submit(bare::command(["sleep", "600"])).await);
    scene.run(Story::reuse_call(ONE, "[]")).await;
    shut(&*scene.backend).await;
}

/// Five calls, each by a worker of its own.
async fn live_one_call_each<F: Factory>(scene: &Scene<F>) {
    let mut greedy = bare::command(["yes"]);
    greedy.limits.output_bytes = Some(10_000);
    scene.source(ONE, "[]").await;
    scene
        .run(timed(Story::call(HANG, "[]"), Duration::from_millis(50)))
        .await;
    scene.source("import os\ndef f(): os._exit(1)", "[]").await;
    scene.run(greedy).await;
    scene.run(bare::command(["true"])).await;
}

/// CL-74
async fn a_complete_has_the_verdict<F: Factory>(scene: &Scene<F>) {
    let heard = Heard::by(&*scene.backend);
    scene.source(ONE, "[]").await;
    scene.source("def f(): 1 / 0", "[]").await;
    shut(&*scene.backend).await;
    let all = heard.all();
    let verdicts = all.iter().filter_map(|event| match event {
        Event::Complete { verdict, .. } => Some(*verdict),
        _ => None,
    });
    let verdicts: Vec<_> = verdicts.collect();
    assert_eq!(verdicts, [Some(Verdict::Ok), Some(Verdict::Exception)]);
}

/// CL-74, EX-93: one that blocks delays no call, one that panics hurts nobody, all hear in order of registration.
async fn handlers_are_heard_in_order_and_delay_no_call<F: Factory>(scene: &Scene<F>) {
    let (release, held) = mpsc::channel::<()>();
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |number: u8| {
        let order = order.clone();
        move |event: &Event| order.lock().expect("no panic").push((number, event.name()))
    };
    let subscribe = |handler| {
        scene
            .backend
            .subscribe(handler)
            .expect("a thread can be had")
    };
    subscribe(Box::new(note(1)));
    subscribe(Box::new(move |_| {
        held.recv_timeout(PATIENCE).ok(); // until the sender is dropped
    }));
    subscribe(Box::new(|_| panic!("a handler that panics")));
    subscribe(Box::new(note(2)));
    for _ in 0..5 {
        assert_eq!(json(&scene.source(ONE, "[]").await), 1);
    }
    let so_far = order.lock().expect("no panic").clone();
    assert_eq!(
        so_far,
        [(1, "submit")],
        "the blocked handler still has the first event"
    );
    drop(release);
    shut(&*scene.backend).await;
    let order = order.lock().expect("no panic");
    let in_pairs = order
        .chunks(2)
        .all(|pair| pair[0].0 == 1 && pair[1].0 == 2 && pair[0].1 == pair[1].1);
    assert!(in_pairs, "{order:?}");
    assert_eq!(order.last(), Some(&(2, "shutdown")));
}

/// CL-74, EX-93
async fn a_handler_that_panics_harms_nobody<F: Factory>(scene: &Scene<F>) {
    let panics = Box::new(|_: &Event| panic!("a handler that panics"));
    scene
        .backend
        .subscribe(panics)
        .expect("a thread can be had");
    let heard = Heard::by(&*scene.backend);
    for _ in 0..3 {
        assert_eq!(json(&scene.source(ONE, "[]").await), 1);
    }
    shut(&*scene.backend).await;
    assert_eq!((heard.count("submit"), heard.count("complete")), (3, 3));
}

/// CL-74
async fn a_handler_may_call_the_backend_back<F: Factory>(scene: &Scene<F>) {
    let values = Arc::new(Mutex::new(Vec::new()));
    let (sink, backend) = (values.clone(), Arc::downgrade(&scene.backend));
    let again = move |event: &Event| {
        let Event::Complete {
            call: CallId(1), ..
        } = event
        else {
            return;
        };
        let backend = backend.upgrade().expect("it is in use");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let call = run(&*backend, Story::call(ONE, "[]"));
        let outcome = runtime.expect("a runtime can be had").block_on(call);
        sink.lock().expect("no panic").push(json(&outcome));
    };
    scene
        .backend
        .subscribe(Box::new(again))
        .expect("a thread can be had");
    scene.source(ONE, "[]").await;
    wait_until("the other call is answered", || {
        !values.lock().expect("no panic").is_empty()
    })
    .await;
    assert_eq!(*values.lock().expect("no panic"), [1]);
}
