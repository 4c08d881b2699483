//! The conformance suite of `trait Backend` (EX-90) and the event stream (EX-91 to EX-93).
//!
//! Each `check_…` is generic over the trait and needs one slot; `conforms!` runs them all for one implementation.

use std::future::Future;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use fairtrial_exec::{
    Backend, Call, CallId, EngineError, Event, Exit, ExitReason, LocalBackend, LocalConfig,
    Outcome, Shutdown, Verdict, Work, available_cpus,
};
use fairtrial_tests::bare;
use fairtrial_tests::{PATIENCE, Process, Story, is_alone, json, wait_until};

const ONE: &str = "def f(): return 1\n";
const HANG: &str = "import time\ndef f(): time.sleep(600)\n";

async fn run<B: Backend>(backend: &B, call: Call) -> Outcome {
    tokio::time::timeout(PATIENCE, backend.execute(call))
        .await
        .expect("the call resolves")
        .expect("the engine does its work")
}

fn timed(source: &str, timeout: Duration) -> Call {
    let mut call = Story::call(source, "[]");
    call.timeout = Some(timeout);
    call
}

/// Every event from now on.
fn listen<B: Backend>(backend: &B) -> Arc<Mutex<Vec<Event>>> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    backend
        .subscribe(Box::new(move |event| {
            sink.lock().expect("no panic").push(event.clone());
        }))
        .expect("a thread can be had");
    events
}

fn heard(events: &Mutex<Vec<Event>>) -> Vec<Event> {
    events.lock().expect("no panic").clone()
}

fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.name() == name).count()
}

async fn shut<B: Backend>(backend: &B) {
    tokio::time::timeout(PATIENCE, backend.shutdown(Shutdown::default()))
        .await
        .expect("shutdown returns");
}

/// Polls a future once, so that its call is submitted, and keeps it.
async fn begin<T>(future: impl Future<Output = T>) -> std::pin::Pin<Box<impl Future<Output = T>>> {
    let mut future = Box::pin(future);
    let once = std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending(), "not so soon");
        std::task::Poll::Ready(())
    });
    once.await;
    future
}

// ---- the checks --------------------------------------------------------------------------------------------------

/// EX-90, section 8: one verdict for each way to end.
async fn check_verdicts<B: Backend>(backend: &B) {
    let table = [
        (ONE, Verdict::Ok),
        ("def f(): raise ValueError('no')", Verdict::Exception),
        ("def f(): raise SystemExit(0)", Verdict::Exception),
        ("def f(:", Verdict::Exception),
        ("def g(): pass", Verdict::Exception),
        ("def f(): return object()", Verdict::BadResult),
        ("import os\ndef f(): os._exit(0)", Verdict::NoResult),
        ("import os\ndef f(): os._exit(7)", Verdict::Exit),
        (
            "import os\ndef f(): os.kill(os.getpid(), 9)",
            Verdict::Signal,
        ),
        ("import os\ndef f(): os.abort()", Verdict::Signal),
    ];
    for (source, verdict) in table {
        for make in [Story::call, Story::reuse_call] {
            let outcome = run(backend, make(source, "[]")).await;
            assert_eq!(outcome.verdict, verdict, "{source}: {:?}", outcome.error);
            assert_eq!(outcome.error.is_none(), verdict == Verdict::Ok);
            assert!(outcome.metrics.wall_ns.is_some(), "{source}");
        }
    }
    for (argv, verdict, exit) in [
        (&["true"][..], Verdict::Ok, Some(Exit::Code(0))),
        (&["sh", "-c", "exit 5"], Verdict::Exit, Some(Exit::Code(5))),
        (
            &["sh", "-c", "kill -6 $$"],
            Verdict::Signal,
            Some(Exit::Signal(6)),
        ),
        (&["/no/such/program"], Verdict::SetupFailed, None),
    ] {
        let outcome = run(backend, bare::command(argv.iter().copied())).await;
        assert_eq!((outcome.verdict, outcome.exit), (verdict, exit), "{argv:?}");
    }
}

/// EX-90, section 8: what was written is kept, also of a call that was stopped.
async fn check_output_is_captured<B: Backend>(backend: &B) {
    let say = "import os, time\nprint('module')\ndef f(hang):\n    os.write(2, b'raw')\n    \
               os.system('echo child')\n    time.sleep(600 * hang)\n";
    let mut hung = Story::call(say, "[1]");
    hung.timeout = Some(Duration::from_millis(700));
    for (call, verdict) in [
        (Story::call(say, "[0]"), Verdict::Ok),
        (hung, Verdict::Timeout),
    ] {
        let outcome = run(backend, call).await;
        assert_eq!(outcome.verdict, verdict);
        assert_eq!(outcome.stdout.text(), "module\nchild\n");
        assert_eq!(outcome.stderr.text(), "raw");
    }
}

/// EX-90, section 8: a limit on output stops the call, and what is dropped is counted.
async fn check_output_is_bounded<B: Backend>(backend: &B) {
    let mut call = bare::command(["sh", "-c", "yes | head -c 100000"]);
    call.capture_bytes = 1000;
    let outcome = run(backend, call.clone()).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    assert_eq!(
        outcome.stdout.bytes().len() as u64 + outcome.stdout.dropped,
        100_000
    );
    call.limits.output_bytes = Some(50_000);
    let Work::Command(work) = &mut call.work else {
        unreachable!("a command")
    };
    work.argv = vec!["yes".into()];
    assert_eq!(run(backend, call).await.verdict, Verdict::OutputLimit);
}

/// EX-90, section 6: the deadline runs from the ack, and the whole tree goes with the call.
async fn check_deadlines<B: Backend>(backend: &B) {
    let tree = "import os, time\ndef f(place):\n    pid = os.fork()\n    \
                if pid == 0:\n        os.setsid()\n        time.sleep(60)\n        os._exit(0)\n    \
                with open(place, 'w') as file:\n        file.write(str(pid))\n    time.sleep(600)\n";
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let place = dir.path().join("pid");
    let mut call = Story::call(tree, &serde_json::json!([place]).to_string());
    call.timeout = Some(Duration::from_secs(1));
    let outcome = run(backend, call).await;
    assert_eq!(outcome.verdict, Verdict::Timeout);
    let wall_ns = outcome.metrics.wall_ns.expect("it ran");
    assert!(wall_ns >= 1_000_000_000, "{wall_ns}");
    let pid = std::fs::read_to_string(&place).expect("it got so far");
    let child = Process::find(pid.parse().expect("a pid"));
    assert!(child.is_none_or(|child| !child.is_running()));
    // Waiting in the queue is not charged: four naps of 0.3 s under a deadline of 0.9 s, one slot or several.
    let nap = "import time\ndef f(): time.sleep(0.3)\n";
    let naps = [(); 4].map(|()| run(backend, timed(nap, Duration::from_millis(900))));
    let [a, b, c, d] = naps;
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    assert_eq!(
        [a, b, c, d].map(|outcome| outcome.verdict),
        [Verdict::Ok; 4]
    );
}

/// EX-90, section 6: whoever waits too long is cancelled and was never run.
async fn check_queue_timeouts<B: Backend>(backend: &B, slots: usize) {
    let mut occupied = Vec::new();
    for _ in 0..slots {
        occupied.push(begin(backend.execute(Story::call(HANG, "[]"))).await);
    }
    let mut call = Story::call(ONE, "[]");
    call.queue_timeout = Some(Duration::from_millis(50));
    let outcome = run(backend, call).await;
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(outcome.error.expect("it says why").kind, "QueueTimeout");
    assert_eq!(outcome.metrics.wall_ns, None);
    drop(occupied); // cancels them
    assert_eq!(json(&run(backend, Story::call(ONE, "[]")).await), 1);
}

/// EX-90, section 6: dropping a future frees its slot, in the queue or running.
async fn check_dropping_cancels<B: Backend>(backend: &B, slots: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let begun = dir.path().join("begun");
    let note = format!("import time\nopen({begun:?}, 'a').close()\ndef f(): time.sleep(600)\n");
    let mut running = Vec::new();
    for _ in 0..slots {
        running.push(begin(backend.execute(Story::call(&note, "[]"))).await);
    }
    let never = dir.path().join("never");
    let queued = format!("open({never:?}, 'a').close()\ndef f(): pass\n");
    let queued = begin(backend.execute(Story::call(&queued, "[]"))).await;
    wait_until("a call runs", || begun.exists()).await;
    drop(queued);
    drop(running);
    assert_eq!(json(&run(backend, Story::call(ONE, "[]")).await), 1);
    assert!(
        !never.exists(),
        "a call cancelled in the queue never starts"
    );
}

/// EX-27 to EX-29: calls start in order, each once, and are answered for once.
async fn check_order_and_once<B: Backend>(backend: &B) {
    let events = listen(backend);
    let mut calls = Vec::new();
    for _ in 0..10 {
        calls.push(begin(backend.execute(Story::call(ONE, "[]"))).await);
    }
    drop(calls.remove(7));
    for call in calls {
        assert_eq!(json(&call.await.expect("runs")), 1);
    }
    shut(backend).await;
    let events = heard(&events);
    let of = |name: &str| -> Vec<CallId> {
        let calls = events.iter().filter(|event| event.name() == name);
        let calls = calls.filter_map(|event| match event {
            Event::Submit { call } | Event::Start { call, .. } | Event::Complete { call, .. } => {
                Some(*call)
            }
            _ => None,
        });
        calls.collect()
    };
    let (submitted, mut started, mut completed) = (of("submit"), of("start"), of("complete"));
    assert!(submitted.is_sorted(), "{submitted:?}");
    completed.sort_unstable();
    assert_eq!(submitted, completed, "each exactly once");
    started.sort_unstable();
    let starts = started.len();
    started.dedup();
    assert_eq!(started.len(), starts, "none twice");
    assert!(starts >= 9, "{starts}");
}

/// EX-91, EX-92: the events of a life, and why its workers ended.
async fn check_events<B: Backend>(backend: &B) {
    let events = listen(backend);
    let mut invalid = Story::call(ONE, "[]");
    invalid.timeout = Some(Duration::ZERO);
    let refused = backend.execute(invalid).await;
    assert!(matches!(refused, Err(EngineError::InvalidCall(_))));
    run(backend, Story::call(ONE, "[]")).await;
    run(backend, timed(HANG, Duration::from_millis(50))).await;
    run(
        backend,
        Story::call("import os\ndef f(): os._exit(1)", "[]"),
    )
    .await;
    let mut greedy = bare::command(["yes"]);
    greedy.limits.output_bytes = Some(10_000);
    run(backend, greedy).await;
    run(backend, bare::command(["true"])).await;
    drop(begin(backend.execute(bare::command(["sleep", "600"]))).await);
    run(backend, Story::reuse_call(ONE, "[]")).await;
    shut(backend).await;
    shut(backend).await;
    let refused = backend.execute(Story::call(ONE, "[]")).await;
    assert!(matches!(refused, Err(EngineError::ShutDown)));

    let events = heard(&events);
    assert_eq!(
        (count(&events, "submit"), count(&events, "complete")),
        (7, 7)
    );
    assert_eq!(
        count(&events, "worker_start"),
        count(&events, "worker_exit")
    );
    assert_eq!(count(&events, "shutdown"), 1);
    assert_eq!(events.last(), Some(&Event::Shutdown));
    let reasons: Vec<ExitReason> = events
        .iter()
        .filter_map(|event| match event {
            Event::WorkerExit { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    for reason in [
        ExitReason::CallDone,
        ExitReason::Timeout,
        ExitReason::Crashed,
        ExitReason::Limit(Verdict::OutputLimit),
        ExitReason::Shutdown,
    ] {
        assert!(reasons.contains(&reason), "{reason:?} in {reasons:?}");
    }
}

/// EX-92: nothing ran, and `shutdown` is told all the same, once.
async fn check_an_empty_life<B: Backend>(backend: &B) {
    let events = listen(backend);
    shut(backend).await;
    shut(backend).await;
    assert_eq!(heard(&events), [Event::Shutdown]);
}

/// EX-93: a handler that blocks delays no call; one that panics hurts nobody; all hear in order of registration.
async fn check_handlers<B: Backend>(backend: &B) {
    let (release, held) = mpsc::channel::<()>();
    let order = Arc::new(Mutex::new(Vec::new()));
    let first = order.clone();
    backend
        .subscribe(Box::new(move |event| {
            first.lock().expect("no panic").push((1, event.name()));
        }))
        .expect("a thread can be had");
    backend
        .subscribe(Box::new(move |_| {
            held.recv_timeout(PATIENCE).ok(); // until the sender is dropped
        }))
        .expect("a thread can be had");
    backend
        .subscribe(Box::new(|_| panic!("a handler that panics")))
        .expect("a thread can be had");
    let last = order.clone();
    backend
        .subscribe(Box::new(move |event| {
            last.lock().expect("no panic").push((2, event.name()));
        }))
        .expect("a thread can be had");
    for _ in 0..5 {
        assert_eq!(json(&run(backend, Story::call(ONE, "[]")).await), 1);
    }
    assert_eq!(
        *order.lock().expect("no panic"),
        [(1, "submit")],
        "the blocked handler still has the first event"
    );
    drop(release);
    shut(backend).await;
    let order = order.lock().expect("no panic");
    assert!(
        order
            .chunks(2)
            .all(|pair| pair[0].0 == 1 && pair[1].0 == 2 && pair[0].1 == pair[1].1),
        "{order:?}"
    );
    assert_eq!(order.last(), Some(&(2, "shutdown")));
}

// ---- the implementations -----------------------------------------------------------------------------------------

/// A local backend and the directory it uses.
fn local(slots: usize) -> (tempfile::TempDir, LocalBackend) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let mut config = LocalConfig::from_env().expect("the test's environment is sound");
    config.max_workers = slots;
    config.spill_dir = dir.path().join("spill");
    (dir, LocalBackend::new(config))
}

/// EX-90: every check for one implementation.
macro_rules! conforms {
    ($name:ident, $slots:expr, $make:expr) => {
        mod $name {
            use super::*;

            /// EX-90
            #[tokio::test]
            async fn verdicts_and_output_are_as_specified() {
                let (_dir, backend) = $make($slots);
                check_verdicts(&backend).await;
                check_output_is_captured(&backend).await;
                check_output_is_bounded(&backend).await;
                shut(&backend).await;
            }

            /// EX-90
            #[tokio::test]
            async fn deadlines_and_cancellation_are_as_specified() {
                let (_dir, backend) = $make($slots);
                check_deadlines(&backend).await;
                check_queue_timeouts(&backend, $slots).await;
                check_dropping_cancels(&backend, $slots).await;
                shut(&backend).await;
            }

            /// EX-90
            #[tokio::test]
            async fn calls_run_once_and_in_order() {
                let (_dir, backend) = $make($slots);
                check_order_and_once(&backend).await;
            }

            /// EX-91, EX-92
            #[tokio::test]
            async fn each_submit_has_one_complete_and_each_exit_its_reason() {
                let (_dir, backend) = $make($slots);
                check_events(&backend).await;
                let (_dir, backend) = $make($slots);
                check_an_empty_life(&backend).await;
            }

            /// EX-93
            #[tokio::test]
            async fn handlers_are_heard_in_order_and_delay_no_call() {
                let (_dir, backend) = $make($slots);
                check_handlers(&backend).await;
            }
        }
    };
}

conforms!(local_serially, 1, local);
conforms!(local_with_all_cores, available_cpus().max(2), local);

// ---- events of this engine ---------------------------------------------------------------------------------------

/// EX-91: the names that other tools rely on.
#[test]
fn exit_reasons_have_the_names_of_the_contract() {
    let names = [
        ExitReason::CallDone,
        ExitReason::Timeout,
        ExitReason::Cancelled,
        ExitReason::Limit(Verdict::MemoryLimit),
        ExitReason::Crashed,
        ExitReason::Idle,
        ExitReason::MaxCalls,
        ExitReason::MaxAge,
        ExitReason::RssGrowth,
        ExitReason::AfterError,
        ExitReason::Shutdown,
    ]
    .map(ExitReason::name);
    assert_eq!(
        names.join(" "),
        "call_done timeout cancelled memory_limit crashed idle max_calls max_age rss_growth after_error shutdown"
    );
}

/// EX-92: a call that the engine could not run is completed too, without a verdict.
#[tokio::test]
async fn an_engine_error_has_its_complete() {
    let story = Story::with(|config| config.launcher = Some("/no/such/launcher".into()));
    let answers = tokio::join!(
        story.try_run(Story::call(ONE, "[]")),
        story.try_run(bare::command(["true"]))
    );
    assert!(answers.0.is_err() && answers.1.is_err());
    let events = story.end().await;
    let completed = events
        .iter()
        .filter(|event| matches!(event, Event::Complete { verdict: None, .. }));
    assert_eq!((completed.count(), count(&events, "submit")), (2, 2));
    assert_eq!(count(&events, "shutdown"), 1);
}

/// Keeps what is logged.
struct Kept(Mutex<Vec<String>>);

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}", record.level(), record.args());
        self.0.lock().expect("no panic").push(line);
    }

    fn flush(&self) {}
}

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

/// EX-93: the ten seconds are the requirement's own.
#[test]
fn a_handler_that_panics_or_blocks_for_ten_seconds_is_logged_with_its_event() {
    if !is_alone(
        "backend::a_handler_that_panics_or_blocks_for_ten_seconds_is_logged_with_its_event",
    ) {
        return;
    }
    log::set_logger(&KEPT).expect("nobody else logs here");
    log::set_max_level(log::LevelFilter::Warn);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    runtime.block_on(async {
        let (_dir, backend) = local(1);
        let (_never, held) = mpsc::channel::<()>();
        backend
            .subscribe(Box::new(move |event| match event.name() {
                "submit" => drop(held.recv_timeout(Duration::from_millis(10_050))),
                "complete" => panic!("a handler that panics"),
                _ => {}
            }))
            .expect("a thread can be had");
        let begun = Instant::now();
        assert_eq!(json(&run(&backend, Story::call(ONE, "[]")).await), 1);
        assert!(begun.elapsed() < Duration::from_secs(9), "delayed");
        shut(&backend).await;
    });
    let kept = KEPT.0.lock().expect("no panic");
    for (level, event) in [("WARN", "`submit`"), ("ERROR", "`complete`")] {
        assert!(
            kept.iter()
                .any(|line| line.starts_with(level) && line.contains(event)),
            "{kept:?}"
        );
    }
}
