//! Lifecycle: start, reuse, recycling, shutdown (EX-12 to EX-22).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fairtrial_exec::{
    Backend, Call, EngineError, Event, ExitReason, LocalBackend, LocalConfig, Outcome, Recycle,
    Shutdown, Verdict,
};
use fairtrial_tests::{Census, Gate, PATIENCE, Process, Story, is_alone, json, wait_until};

use crate::process::{launcher, script, with_env, with_python, worker};

const ONE: &str = "def f(): return 1\n";
/// For what the requirements want within a second, on a machine that has other work.
const SLACK: Duration = Duration::from_secs(5);

fn reasons(events: &[Event]) -> Vec<ExitReason> {
    let reasons = events.iter().filter_map(|event| match event {
        Event::WorkerExit { reason, .. } => Some(*reason),
        _ => None,
    });
    reasons.collect()
}

fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.name() == name).count()
}

// ---- starting ----------------------------------------------------------------------------------------------------

/// EX-12
#[test]
fn constructing_a_backend_starts_nothing_and_makes_no_directory() {
    if !is_alone("lifecycle::constructing_a_backend_starts_nothing_and_makes_no_directory") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let mut config = LocalConfig::from_env().expect("the test's environment is sound");
    config.spill_dir = dir.path().join("spill");
    let before = Census::take(dir.path());
    let backend = LocalBackend::new(config);
    assert_eq!(Census::take(dir.path()), before);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    let outcome = runtime
        .block_on(backend.execute(Call::command(["true"])))
        .expect("the engine does its work");
    assert_eq!(outcome.verdict, Verdict::Ok);
    let after = Census::take(dir.path());
    assert!(
        after.children > before.children && after.threads > before.threads && after.spilled == 1,
        "the first call starts them: {after:?}"
    );
}

/// EX-13
#[tokio::test]
async fn sequential_calls_on_eight_slots_use_one_worker() {
    let story = Story::with(|config| config.max_workers = 8);
    let mut ids = BTreeSet::new();
    for _ in 0..50 {
        ids.insert(story.reuse(ONE, "[]").await.metrics.worker_id);
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(count(&story.end().await, "worker_start"), 1);
}

/// EX-13
#[tokio::test]
async fn as_many_workers_start_as_calls_run_at_once() {
    let story = Story::with(|config| config.max_workers = 4);
    let gate = Gate::new(&story, "gate");
    let running: Vec<_> = (0..3)
        .map(|_| story.backend.submit(gate.reuse_call()).expect("taken"))
        .collect();
    gate.reached_by(3).await;
    gate.open();
    for call in running {
        assert_eq!(json(&call.await.expect("runs")), "through");
    }
    assert_eq!(count(&story.end().await, "worker_start"), 3);
}

/// EX-14
#[tokio::test]
async fn an_interpreter_that_is_slow_to_start_delays_no_other_key() {
    let story = Story::new();
    let opened = story.path().join("opened");
    let slow = script(
        &story,
        "slow-python",
        &format!(
            "#!/bin/sh\nn=0\nwhile [ ! -e '{}' ] && [ $n -lt 1500 ]; do sleep 0.02; n=$((n+1)); done\n\
             exec python3 \"$@\"\n",
            opened.display()
        ),
    );
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let call = with_python(Story::call(ONE, "[]"), &slow);
            story.backend.submit(call).expect("taken")
        })
        .collect();
    for _ in 0..10 {
        assert_eq!(json(&story.source(ONE, "[]").await), 1);
        assert_eq!(json(&story.reuse(ONE, "[]").await), 1);
        let command = story.run(Call::command(["true"])).await;
        assert_eq!(command.verdict, Verdict::Ok);
    }
    assert!(!opened.exists(), "all that while key A was starting");
    std::fs::write(&opened, "").expect("a file can be written");
    for call in waiting {
        assert_eq!(json(&call.await.expect("runs")), 1);
    }
    story.end().await;
}

/// EX-15
#[tokio::test]
async fn idle_workers_and_zygotes_end_and_return_on_demand() {
    let story = Story::with(|config| config.idle_timeout = Duration::from_millis(300));
    let (launcher, first) = launcher(&story).await;
    wait_until("worker and zygote have ended", || {
        launcher.children().is_empty()
    })
    .await;
    let second = worker(
        &story
            .reuse("import os\ndef f(): return os.getpid()", "[]")
            .await,
    );
    assert_ne!(first, second);
    assert_eq!(second.parent(), launcher);
    wait_until("the first worker's end is told", || {
        !reasons(&story.events()).is_empty()
    })
    .await;
    assert_eq!(reasons(&story.events())[0], ExitReason::Idle);
    story.end().await;
}

/// EX-15
#[test]
fn the_idle_time_is_300_seconds_unless_said() {
    let config = LocalConfig::from_vars([].into()).expect("nothing is sound");
    assert_eq!(config.idle_timeout, Duration::from_secs(300));
}

// ---- recycling ---------------------------------------------------------------------------------------------------

/// EX-16: how many of the calls each process serves, and the reason of each exit.
async fn recycled(recycle: Recycle, calls: Vec<Call>) -> (Vec<usize>, Vec<ExitReason>) {
    let story = Story::with(|config| {
        config.max_workers = 1;
        config.recycle = recycle;
    });
    let mut served: Vec<(Option<String>, usize)> = Vec::new();
    for call in calls {
        let id = story.run(call).await.metrics.worker_id;
        match served.last_mut().filter(|(last, _)| *last == id) {
            Some((_, calls)) => *calls += 1,
            None => served.push((id, 1)),
        }
    }
    let events = story.end().await;
    // In the order in which they served, for one that grew ends slowly.
    let reasons = served.iter().map(|(id, _)| {
        let reason = events.iter().find_map(|event| match event {
            Event::WorkerExit {
                worker_id, reason, ..
            } if Some(worker_id) == id.as_ref() => Some(*reason),
            _ => None,
        });
        reason.expect("each worker's exit is told")
    });
    (
        served.iter().map(|(_, calls)| *calls).collect(),
        reasons.collect(),
    )
}

/// EX-16
#[tokio::test]
async fn a_worker_ends_when_it_has_served_max_calls() {
    let recycle = Recycle {
        max_calls: Some(3),
        ..Recycle::default()
    };
    let calls = vec![Story::reuse_call(ONE, "[]"); 7];
    assert_eq!(
        recycled(recycle, calls).await,
        (
            vec![3, 3, 1],
            vec![
                ExitReason::MaxCalls,
                ExitReason::MaxCalls,
                ExitReason::Shutdown
            ]
        )
    );
}

/// EX-16
#[tokio::test]
async fn a_worker_ends_at_the_end_of_the_call_in_which_it_passes_max_age() {
    let recycle = Recycle {
        max_age: Some(Duration::from_millis(1)),
        ..Recycle::default()
    };
    let long = "import time\ndef f(): time.sleep(0.002)\n";
    assert_eq!(
        recycled(recycle, vec![Story::reuse_call(long, "[]"); 2]).await,
        (vec![1, 1], vec![ExitReason::MaxAge, ExitReason::MaxAge])
    );
    let recycle = Recycle {
        max_age: Some(Duration::from_secs(600)),
        ..Recycle::default()
    };
    assert_eq!(
        recycled(recycle, vec![Story::reuse_call(long, "[]"); 2]).await,
        (vec![2], vec![ExitReason::Shutdown])
    );
}

/// EX-16
#[tokio::test]
async fn a_worker_ends_when_it_has_grown() {
    let recycle = Recycle {
        rss_growth: Some(20 << 20),
        ..Recycle::default()
    };
    let grow = "import sys\ndef f(mb): sys.hoard = b'x' * (mb << 20)\n";
    let calls = [1, 2, 60, 1].map(|mb| Story::reuse_call(grow, &format!("[{mb}]")));
    assert_eq!(
        recycled(recycle, calls.into()).await,
        (
            vec![3, 1],
            vec![ExitReason::RssGrowth, ExitReason::Shutdown]
        )
    );
}

/// EX-16
#[tokio::test]
async fn a_worker_ends_after_an_error_only_if_told_to() {
    let calls = || {
        vec![
            Story::reuse_call(ONE, "[]"),
            Story::reuse_call("def f(): raise KeyError(1)", "[]"),
            Story::reuse_call(ONE, "[]"),
        ]
    };
    let recycle = Recycle {
        after_error: true,
        ..Recycle::default()
    };
    assert_eq!(
        recycled(recycle, calls()).await,
        (
            vec![2, 1],
            vec![ExitReason::AfterError, ExitReason::Shutdown]
        )
    );
    assert_eq!(
        recycled(Recycle::default(), calls()).await,
        (vec![3], vec![ExitReason::Shutdown])
    );
}

/// EX-17
#[tokio::test]
async fn a_backlog_of_ten_times_max_calls_drains() {
    const MAX_CALLS: usize = 5;
    let story = Story::with(|config| config.recycle.max_calls = Some(MAX_CALLS as u64));
    let backlog: Vec<_> = (0..10 * MAX_CALLS)
        .map(|_| {
            let call = Story::reuse_call(ONE, "[]");
            story.backend.submit(call).expect("taken")
        })
        .collect();
    for call in backlog {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let outcome = answer.expect("no deadlock").expect("runs");
        assert_eq!(json(&outcome), 1);
    }
    let reasons = reasons(&story.end().await);
    let by_policy = reasons
        .iter()
        .filter(|reason| **reason == ExitReason::MaxCalls);
    assert!(by_policy.count() >= 9, "{reasons:?}");
}

/// EX-17: a process that holds much memory takes long to end; its replacement does not wait for that.
#[tokio::test]
async fn a_replacement_starts_before_the_old_process_is_reaped() {
    let story = Story::with(|config| {
        config.max_workers = 1;
        config.recycle.max_calls = Some(1);
    });
    let fat = "import sys\ndef f(): sys.hoard = b'x' * (96 << 20)\n";
    let backlog: Vec<_> = (0..8)
        .map(|_| {
            story
                .backend
                .submit(Story::reuse_call(fat, "[]"))
                .expect("taken")
        })
        .collect();
    for call in backlog {
        assert_eq!(call.await.expect("runs").verdict, Verdict::Ok);
    }
    let (mut alive, mut most) = (0, 0);
    for event in story.end().await {
        match event.name() {
            "worker_start" => alive += 1,
            "worker_exit" => alive -= 1,
            _ => {}
        }
        most = most.max(alive);
    }
    assert_eq!(most, 2, "one slot: the second is a replacement");
}

// ---- shutdown ----------------------------------------------------------------------------------------------------

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
    let refused = story.try_run(Call::command(["true"])).await;
    assert!(matches!(refused, Err(EngineError::ShutDown)), "{refused:?}");
    let events = story.end().await;
    assert_eq!(events, [Event::Shutdown]);

    let story = Story::new();
    story.source(ONE, "[]").await;
    story.backend.shutdown(Shutdown::default()).await;
    story.backend.shutdown(Shutdown::default()).await;
    let refused = story.try_run(Call::command(["true"])).await;
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
    story.backend.subscribe(Box::new(move |_| {
        entered.send(()).ok(); // the test may be over
        held.recv_timeout(PATIENCE).ok(); // either way the handler has blocked long enough
    }));
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
    if !is_alone("lifecycle::a_waited_shutdown_leaves_nothing") {
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
    backend.subscribe(Box::new(|_| {}));
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
        Call::command(["sh", "-c", "exit 4"]),
        Call::command(["/no/such/program"]),
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

/// EX-13: a fresh worker that is forked ahead takes nobody's place.
#[tokio::test]
async fn fresh_calls_between_do_not_cost_a_kept_worker_its_place() {
    let story = Story::new();
    let mut workers = std::collections::HashSet::new();
    for _ in 0..10 {
        assert_eq!(json(&story.source("def f(): return 1", "[]").await), 1);
        let kept = story.reuse("def f(): return 2", "[]").await;
        workers.insert(kept.metrics.worker_id.expect("a worker ran it"));
    }
    assert_eq!(workers.len(), 1);
    story.end().await;
}
