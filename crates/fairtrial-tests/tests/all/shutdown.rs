//! The end of a backend: shut down, dropped, or beside another (EX-18 to EX-22).

use std::time::{Duration, Instant};

use fairtrial_exec::{
    Backend, EngineError, Event, LocalBackend, LocalConfig, Outcome, Shutdown, Verdict,
};
use fairtrial_tests::bare;
use fairtrial_tests::{Census, Gate, PATIENCE, Process, Story, is_alone, json, wait_until};

use crate::lifecycle::{ONE, count};
use crate::process::{with_env, worker};

/// For what the requirements want within a second, on a machine that has other work.
const SLACK: Duration = Duration::from_secs(5);

/// One call at the gate, two behind it in the queue.
async fn one_running_two_queued() -> (Story, Gate, [fairtrial_exec::Execution; 3]) {
    let story = Story::with(|config| config.max_workers = 1);
    let gate = Gate::new(&story, "gate");
    let submit = |call| story.backend.submit(call).expect("taken");
    let calls = [
        submit(gate.call()),
        submit(Story::call(ONE, "[]")),
        submit(Story::reuse_call(ONE, "[]")),
    ];
    gate.reached_by(1).await;
    (story, gate, calls)
}

async fn verdicts(calls: [fairtrial_exec::Execution; 3]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for call in calls {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        verdicts.push(answer.expect("it resolves").expect("an outcome").verdict);
    }
    verdicts
}

/// EX-18
#[tokio::test]
async fn a_plain_shutdown_runs_what_is_queued_and_returns_when_all_events_are_out() {
    let (story, gate, calls) = one_running_two_queued().await;
    let (launcher, events) = {
        let pid = gate.arrived()[0];
        let launcher = Process::find(pid).expect("it is at the gate").parent();
        gate.open();
        (launcher, story.end().await)
    };
    assert!(!launcher.is_running());
    assert_eq!(count(&events, "complete"), 3);
    assert_eq!(
        count(&events, "worker_start"),
        count(&events, "worker_exit")
    );
    assert_eq!(events.last(), Some(&Event::Shutdown));
    assert_eq!(verdicts(calls).await, [Verdict::Ok; 3]);
}

/// EX-18
#[tokio::test]
async fn cancel_queued_lets_the_running_call_finish() {
    let (story, gate, calls) = one_running_two_queued().await;
    let how = Shutdown {
        cancel_queued: true,
        ..Shutdown::default()
    };
    let [running, second, third] = calls;
    let shutdown = story.backend.shutdown(how);
    let rest = async {
        let cancelled = [second.await, third.await];
        gate.open();
        cancelled.map(|answer| answer.expect("an outcome").verdict)
    };
    let ((), cancelled) = tokio::join!(shutdown, rest);
    assert_eq!(cancelled, [Verdict::Cancelled; 2]);
    assert_eq!(running.await.expect("an outcome").verdict, Verdict::Ok);
}

/// EX-18
#[tokio::test]
async fn kill_after_kills_what_runs_and_cancels_what_waits() {
    for kill_after in [Duration::ZERO, Duration::from_millis(100)] {
        let (story, gate, calls) = one_running_two_queued().await;
        let process = Process::find(gate.arrived()[0]).expect("it is at the gate");
        let how = Shutdown {
            kill_after: Some(kill_after),
            ..Shutdown::default()
        };
        let begun = Instant::now();
        story.backend.shutdown(how).await;
        let took = begun.elapsed();
        assert!(
            kill_after <= took && took < kill_after + SLACK,
            "it took {took:?}"
        );
        assert!(!process.is_running());
        assert_eq!(verdicts(calls).await, [Verdict::Cancelled; 3]);
    }
}

/// EX-18
#[tokio::test]
async fn a_shutdown_that_does_not_wait_returns_while_work_goes_on() {
    let (story, gate, calls) = one_running_two_queued().await;
    let how = Shutdown {
        wait: false,
        ..Shutdown::default()
    };
    let at_the_gate = Process::find(gate.arrived()[0]).expect("it is at the gate");
    // Nobody opens the gate before it has returned, so who waits for the calls waits for ever.
    tokio::time::timeout(PATIENCE, story.backend.shutdown(how))
        .await
        .expect("it does not wait");
    let events = story.events();
    assert_eq!(
        (count(&events, "complete"), count(&events, "shutdown")),
        (0, 0)
    );
    assert!(at_the_gate.is_running());
    let refused = story.try_run(Story::call(ONE, "[]")).await;
    assert!(matches!(refused, Err(EngineError::ShutDown)), "{refused:?}");
    gate.open();
    assert_eq!(verdicts(calls).await, [Verdict::Ok; 3]);
    wait_until("the last event is told behind its back", || {
        story.events().last() == Some(&Event::Shutdown)
    })
    .await;
    assert_eq!(count(&story.end().await, "complete"), 3);
}

/// EX-18: the options combine, and a later, harsher shutdown overtakes an earlier one.
#[tokio::test]
async fn a_second_shutdown_can_hurry_the_first() {
    let (story, _gate, calls) = one_running_two_queued().await;
    let gentle = Shutdown {
        wait: false,
        ..Shutdown::default()
    };
    story.backend.shutdown(gentle).await;
    story.backend.shutdown(Shutdown::now()).await;
    assert_eq!(verdicts(calls).await, [Verdict::Cancelled; 3]);
}

/// EX-18, EX-49: whatever moment a call is in when it is killed, it ends.
#[tokio::test]
async fn a_call_is_killed_even_while_its_worker_is_being_forked() {
    let story = Story::with(|config| config.max_workers = 4);
    story.source(ONE, "[]").await; // the interpreter is warm
    let forever = "import time\ndef f(): time.sleep(600)\n";
    for round in 0..40_u32 {
        let call = story
            .backend
            .submit(Story::call(forever, "[]"))
            .expect("taken");
        for _ in 0..round % 20 {
            tokio::task::yield_now().await;
            std::hint::black_box(std::fs::metadata("/proc/self").ok()); // some microseconds
        }
        call.cancel();
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let outcome = answer.expect("it is killed").expect("an outcome");
        assert_eq!(outcome.verdict, Verdict::Cancelled);
    }
    story.end().await;
}

/// EX-19
#[tokio::test]
async fn shutdown_may_come_first_and_may_come_again() {
    let story = Story::new();
    story.backend.shutdown(Shutdown::default()).await;
    story.backend.shutdown(Shutdown::now()).await;
    let refused = story.try_run(bare::command(["true"])).await;
    assert!(matches!(refused, Err(EngineError::ShutDown)), "{refused:?}");
    let events = story.end().await;
    assert_eq!(events, [Event::Shutdown]);

    let story = Story::new();
    story.source(ONE, "[]").await;
    story.backend.shutdown(Shutdown::default()).await;
    story.backend.shutdown(Shutdown::default()).await;
    let refused = story.try_run(bare::command(["true"])).await;
    assert!(matches!(refused, Err(EngineError::ShutDown)), "{refused:?}");
    assert_eq!(count(&story.end().await, "shutdown"), 1);
}

/// EX-20
#[tokio::test]
async fn dropping_a_backend_kills_everything_and_does_not_block() {
    let story = Story::with(|config| config.max_workers = 2);
    let source = include_str!("../../programs/outlive_everybody.py");
    let begun = story.path().join("begun");
    let arguments = serde_json::json!([begun]).to_string();
    let running = [
        Story::call(source, &arguments),
        Story::reuse_call(source, &arguments),
        Story::call(ONE, "[]"),
    ]
    .map(|call| story.backend.submit(call).expect("taken"));
    wait_until("two calls run", || {
        count(&story.events(), "start") == 2 && begun.exists()
    })
    .await;
    let pid = story.events().iter().find_map(|event| match event {
        Event::WorkerStart { pid, .. } => Some(*pid),
        _ => None,
    });
    let launcher = Process::find(pid.expect("it started"))
        .expect("it lingers")
        .parent();
    let below = launcher.descendants();
    assert!(below.len() >= 4, "{below:?}");
    let dropped = Instant::now();
    drop(story);
    let took = dropped.elapsed();
    assert!(took < SLACK, "it blocked for {took:?}");
    assert!(!launcher.is_running());
    assert!(!below.iter().any(|process| process.is_running()));
    assert_eq!(verdicts(running).await, [Verdict::Cancelled; 3]);
}

/// EX-20: nor does an observer keep it.
#[tokio::test]
async fn dropping_a_backend_does_not_wait_for_a_handler_that_blocks() {
    let story = Story::new();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (entered, inside) = std::sync::mpsc::channel();
    story
        .backend
        .subscribe(Box::new(move |_| {
            entered.send(()).ok(); // the test may be over
            held.recv_timeout(PATIENCE).ok(); // either way the handler has blocked long enough
        }))
        .expect("a thread can be had");
    story.source(ONE, "[]").await;
    inside
        .recv_timeout(PATIENCE)
        .expect("the handler was called");
    let dropped = Instant::now();
    drop(story);
    let took = dropped.elapsed();
    drop(release);
    assert!(took < SLACK, "it blocked for {took:?}");
}

/// EX-21
#[test]
fn a_waited_shutdown_leaves_nothing() {
    if !is_alone("shutdown::a_waited_shutdown_leaves_nothing") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    let before = runtime.block_on(async { Census::take(dir.path()) });
    for _ in 0..2 {
        runtime.block_on(live(dir.path()));
        let after = runtime.block_on(async { Census::take(dir.path()) });
        assert_eq!(after, before, "the spill directory itself is counted below");
    }
}

/// A backend's whole life, with every kind of end a call can have.
async fn live(dir: &std::path::Path) {
    let spill = dir.join("spill");
    let mut config = LocalConfig::from_env().expect("the test's environment is sound");
    config.max_workers = 3;
    config.spill_dir = spill.clone();
    config.memfd_cap_bytes = Some(1 << 20); // larger values go to the disk
    let backend = LocalBackend::new(config);
    backend
        .subscribe(Box::new(|_| {}))
        .expect("a thread can be had");
    let hang = "import time\ndef f(): time.sleep(600)\n";
    let litter = "import os, tempfile\ndef f():\n    open('here', 'w').close()\n    \
                  os.makedirs('deep/er', 0o700)\n    os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '60')\n    \
                  os.chmod('deep', 0)\n    return tempfile.mkdtemp()\n";
    let mut timed = Story::call(hang, "[]");
    timed.timeout = Some(Duration::from_millis(50));
    let calls = [
        Story::call(ONE, "[]"),
        Story::reuse_call(litter, "[]"),
        Story::call(litter, "[]"),
        Story::reuse_call("def f(): return b'x' * (3 << 20)", "[]"),
        Story::call("def f(): return b'x' * (3 << 20)", "[]"),
        Story::call("import os\ndef f(): os._exit(3)", "[]"),
        with_env(Story::call(ONE, "[]"), "PYTHONHASHSEED", "5"),
        bare::command(["sh", "-c", "exit 4"]),
        bare::command(["/no/such/program"]),
        timed,
    ];
    let running = calls.map(|call| backend.submit(call).expect("taken"));
    drop(backend.submit(Story::call(hang, "[]")).expect("taken")); // cancelled
    let mut outcomes: Vec<Outcome> = Vec::new();
    for call in running {
        outcomes.push(call.await.expect("an outcome"));
    }
    use Verdict::{Exit, Ok, SetupFailed, Timeout};
    let verdicts = outcomes.iter().map(|outcome| outcome.verdict);
    assert_eq!(
        verdicts.collect::<Vec<_>>(),
        [Ok, Ok, Ok, Ok, Ok, Exit, Ok, Exit, SetupFailed, Timeout]
    );
    drop(outcomes);
    backend.shutdown(Shutdown::default()).await;
    assert_eq!(
        std::fs::read_dir(&spill).map_or(0, Iterator::count),
        0,
        "no scratch and no spill"
    );
    std::fs::remove_dir(&spill).expect("it is empty");
}

/// EX-22
#[tokio::test]
async fn two_backends_share_nothing() {
    let told = |name: &str| {
        let (name, value) = (name.to_owned(), name.to_lowercase());
        Story::with(move |config| {
            config.host_env.insert(name.clone().into(), value.into());
            config.env_allow = vec![name];
        })
    };
    let (left, right) = (told("LEFT"), told("RIGHT"));
    let see = "import os\ndef f(): return [os.environ.get(n) for n in ('LEFT', 'RIGHT')] + [os.environ['TMPDIR']]\n";
    let (seen_left, seen_right) = (left.reuse(see, "[]").await, right.reuse(see, "[]").await);
    for (story, seen, expected) in [
        (&left, &seen_left, [Some("left"), None]),
        (&right, &seen_right, [None, Some("right")]),
    ] {
        let seen = json(seen);
        assert_eq!([seen[0].as_str(), seen[1].as_str()], expected);
        assert!(
            seen[2]
                .as_str()
                .is_some_and(|dir| dir.starts_with(story.path().to_str().expect("text"))),
            "{seen}"
        );
    }
    let launchers = [&seen_left, &seen_right].map(|outcome| worker(outcome).parent());
    assert_ne!(launchers[0], launchers[1]);
    let gate = Gate::new(&right, "gate");
    let in_flight =
        [gate.call(), gate.reuse_call()].map(|call| right.backend.submit(call).expect("taken"));
    gate.reached_by(2).await;
    left.backend.shutdown(Shutdown::now()).await;
    assert!(!launchers[0].is_running() && launchers[1].is_running());
    gate.open();
    for call in in_flight {
        assert_eq!(json(&call.await.expect("runs")), "through");
    }
    assert_eq!(json(&right.source(ONE, "[]").await), 1);
    right.end().await;
}
