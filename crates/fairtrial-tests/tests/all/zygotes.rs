//! Zygotes: who shares one, what it may run, what becomes of its workers (EX-4 to EX-7).

use std::collections::BTreeSet;
use std::time::Duration;

use fairtrial_exec::{Call, Event, Isolation, Verdict};
use fairtrial_tests::{Gate, Story, json, wait_until};
use rustix::process::Signal;

use crate::process::{PID, launcher, skip, with_env, with_python};

/// EX-4
#[tokio::test]
async fn calls_share_a_zygote_unless_their_start_up_differs() {
    let story = Story::with(|config| config.fork_ahead = false);
    let (launcher, idle) = launcher(&story).await;
    let zygotes = || {
        let children = launcher.children().into_iter();
        children
            .filter(|child| *child != idle)
            .collect::<BTreeSet<_>>()
    };
    let one = zygotes();
    assert_eq!(one.len(), 1);
    story
        .run(with_env(Story::call(PID, "[]"), "COLOUR", "red"))
        .await;
    story.source(PID, "[]").await;
    assert_eq!(
        zygotes(),
        one,
        "an ordinary variable is set in the worker only"
    );
    let mut other_preload = Story::call(PID, "[]");
    other_preload.python_mut().expect("Python").preload = vec!["json".into()];
    for (number, call) in [
        with_env(Story::call(PID, "[]"), "PYTHONHASHSEED", "3"),
        with_env(Story::call(PID, "[]"), "LD_BIND_NOW", "1"),
        with_env(Story::call(PID, "[]"), "OMP_NUM_THREADS", "1"),
        other_preload,
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(story.run(call).await.verdict, Verdict::Ok);
        assert_eq!(zygotes().len(), number + 2);
    }
    story.end().await;
}

/// EX-4
#[tokio::test]
async fn the_ninth_zygote_ends_the_one_used_longest_ago() {
    let story = Story::with(|config| config.fork_ahead = false);
    let (launcher, idle) = launcher(&story).await;
    let zygotes = || {
        let children = launcher.children().into_iter();
        children
            .filter(|child| *child != idle)
            .collect::<BTreeSet<_>>()
    };
    let seeded = |seed: u32| with_env(Story::call(PID, "[]"), "PYTHONHASHSEED", &seed.to_string());
    let mut known = zygotes();
    let mut of_seed = Vec::new();
    for seed in 1..8 {
        story.run(seeded(seed)).await;
        of_seed.extend(zygotes().difference(&known).copied());
        known = zygotes();
    }
    assert_eq!((known.len(), of_seed.len()), (8, 7));
    story.source(PID, "[]").await; // the first key's
    story.run(seeded(1)).await;
    assert_eq!(story.run(seeded(8)).await.verdict, Verdict::Ok);
    wait_until("the zygote of seed 2 has ended", || {
        !of_seed[1].is_running()
    })
    .await;
    let left: Vec<bool> = of_seed.iter().map(|zygote| zygote.is_running()).collect();
    assert_eq!(left, [true, false, true, true, true, true, true]);
    assert_eq!(zygotes().len(), 8);
    story.end().await;
}

/// A module that only `PYTHONPATH`, which the interpreter itself reads, can find.
fn preloading(story: &Story, module: &str, text: &str, mut call: Call) -> Call {
    let path = story.write(&format!("modules/{module}.py"), text);
    let dir = path.parent().expect("a file is in a directory");
    call.env.insert("PYTHONPATH".into(), Some(dir.into()));
    call.python_mut().expect("a Python call").preload = vec![module.into()];
    call
}

/// EX-5
#[tokio::test]
async fn a_failing_preload_fails_its_calls_with_the_traceback_and_no_others() {
    let story = Story::new();
    let text = "def look():\n    raise LookupError('no such star')\nlook()\n";
    let bad = preloading(&story, "stars", text, Story::call(PID, "[]"));
    let (bad, worse, good) = (
        story.backend.submit(bad.clone()).expect("taken"),
        story.backend.submit(bad).expect("taken"),
        story.backend.submit(Story::call(PID, "[]")).expect("taken"),
    );
    for call in [bad, worse] {
        let outcome = call.await.expect("the engine does its work");
        let error = outcome.error.expect("a failed call has one");
        assert_eq!(outcome.verdict, Verdict::SetupFailed);
        assert!(
            error.message.contains("cannot preload `stars`"),
            "{error:?}"
        );
        assert!(
            error.traceback.contains("no such star") && error.traceback.contains("in look"),
            "{error:?}"
        );
    }
    assert_eq!(good.await.expect("runs").verdict, Verdict::Ok);
    story.end().await;
}

/// EX-5
#[tokio::test]
async fn preloads_are_not_found_through_a_calls_python_path_or_cwd() {
    let story = Story::new();
    let path = story.write("planted/planted_module.py", "");
    let dir = path.parent().expect("a file is in a directory").to_owned();
    let mut call = Story::call(PID, "[]");
    call.cwd = Some(dir.clone());
    let terms = call.python_mut().expect("Python");
    terms.python_path = vec![dir];
    terms.preload = vec!["planted_module".into()];
    let outcome = story.run(call).await;
    assert_eq!(outcome.verdict, Verdict::SetupFailed);
    let error = outcome.error.expect("it says why");
    assert!(error.message.contains("planted_module"), "{error:?}");
    story.end().await;
}

fn threads_reported(events: &[Event]) -> Vec<Option<u32>> {
    let threads = events.iter().filter_map(|event| match event {
        Event::WorkerStart { zygote_threads, .. } => Some(*zygote_threads),
        _ => None,
    });
    threads.collect()
}

/// EX-6
#[tokio::test]
async fn threads_of_a_zygote_are_reported_with_each_of_its_workers() {
    let story = Story::with(|config| config.fork_ahead = false);
    let thread = "import threading\nEND = threading.Event()\n\
                  threading.Thread(target=END.wait, daemon=True).start()\n";
    let source = "import threaded\ndef f(): return threaded.END.is_set()\n";
    let call = preloading(&story, "threaded", thread, Story::call(source, "[]"));
    for _ in 0..2 {
        assert_eq!(json(&story.run(call.clone()).await), false);
    }
    story.source(PID, "[]").await;
    assert_eq!(
        threads_reported(&story.end().await),
        [Some(2), Some(2), Some(1)]
    );
}

/// EX-6
#[tokio::test]
async fn a_matrix_product_after_one_during_preload_does_not_hang() {
    let Ok(python) = std::env::var("FAIRTRIAL_TEST_NUMPY") else {
        return skip("an interpreter with numpy, named by FAIRTRIAL_TEST_NUMPY");
    };
    let story = Story::new();
    let product = "import numpy\nA = numpy.ones((400, 400))\nB = A @ A\n";
    let source = "import product\ndef f(): return float((product.A @ product.B)[0, 0])\n";
    let call = preloading(&story, "product", product, Story::call(source, "[]"));
    let mut call = with_env(with_python(call, &python), "OPENBLAS_NUM_THREADS", "4");
    call.timeout = Some(Duration::from_secs(40));
    for isolation in [Isolation::Fresh, Isolation::Reuse, Isolation::Reuse] {
        call.python_mut().expect("Python").isolation = isolation;
        assert_eq!(json(&story.run(call.clone()).await), 160_000.0);
    }
    let threads = threads_reported(&story.end().await);
    assert!(
        threads.iter().all(|threads| threads.is_some_and(|n| n > 1)),
        "the library starts threads, or this shows nothing: {threads:?}"
    );
}

/// EX-7, SB-13
#[tokio::test]
async fn a_call_whose_zygote_is_killed_ends_normally_with_full_metrics() {
    let story = Story::with(|config| config.fork_ahead = false);
    let (launcher, idle) = launcher(&story).await;
    for make in [Gate::call, Gate::reuse_call] {
        let gate = Gate::new(&story, "zygote");
        let running = story.backend.submit(make(&gate)).expect("taken");
        gate.reached_by(1).await;
        let zygotes = launcher
            .children()
            .into_iter()
            .filter(|child| *child != idle && child.pid != gate.arrived()[0]);
        let zygotes: Vec<_> = zygotes.collect();
        assert_eq!(zygotes.len(), 1);
        zygotes[0].signal(Signal::KILL);
        wait_until("the zygote is gone", || !zygotes[0].is_running()).await;
        gate.open();
        let outcome = running.await.expect("the engine does its work");
        assert_eq!(json(&outcome), "through");
        let metrics = &outcome.metrics;
        assert!(
            metrics.wall_ns.is_some()
                && metrics.user_ns.is_some()
                && metrics.system_ns.is_some()
                && metrics.peak_rss_bytes.is_some()
                && metrics.leaked_processes == Some(0),
            "{metrics:?}"
        );
        let next = story.source(PID, "[]").await;
        assert_eq!(next.verdict, Verdict::Ok);
        std::fs::remove_file(story.path().join("zygote.gate")).expect("it was made");
        std::fs::remove_file(story.path().join("zygote.begun")).expect("it was made");
    }
    story.end().await;
}
