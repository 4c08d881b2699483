//! Dispatch: the queue, acknowledgements, generations, races (EX-24 to EX-29).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairtrial_exec::{Backend, CallId, EngineError, Event, Execution, Outcome, Shutdown, Verdict};
use fairtrial_tests::bare;
use fairtrial_tests::{Gate, PATIENCE, Process, Story, json, wait_until};
use rustix::process::Signal;

use crate::process::{launcher, worker};

const ECHO: &str = "def f(n): return n\n";
const BREAK_FRAMES: &str = include_str!("../../programs/break_frames.py");
const FORGE_GENERATIONS: &str = include_str!("../../programs/forge_generations.py");

/// As many as the requirement names when asked for, a tenth otherwise.
fn many(full: usize) -> usize {
    if std::env::var_os("FAIRTRIAL_STRESS").is_some() {
        full
    } else {
        full / 10
    }
}

/// Numbers without a pattern; the same ones in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // Xorshift (Marsaglia): plenty for choosing moments.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

async fn resolved(call: Execution) -> Result<Outcome, EngineError> {
    tokio::time::timeout(PATIENCE, call)
        .await
        .expect("each call resolves")
}

/// How often each call was submitted, started and completed.
fn tallies(events: &[Event]) -> BTreeMap<CallId, [usize; 3]> {
    let mut tallies: BTreeMap<CallId, [usize; 3]> = BTreeMap::new();
    for event in events {
        let (call, which) = match event {
            Event::Submit { call } => (call, 0),
            Event::Start { call, .. } => (call, 1),
            Event::Complete { call, .. } => (call, 2),
            _ => continue,
        };
        tallies.entry(*call).or_default()[which] += 1;
    }
    tallies
}

// ---- one call's trouble is nobody else's -------------------------------------------------------------------------

/// EX-24, EX-28: only acknowledged calls fail, and none is started twice.
#[tokio::test]
async fn workers_killed_at_random_points_cost_only_acknowledged_calls() {
    let story = Story::with(|config| config.max_workers = 4);
    let alive = Arc::new(Mutex::new(HashMap::new()));
    let seen = alive.clone();
    story
        .backend
        .subscribe(Box::new(move |event| {
            let mut alive = seen.lock().expect("no panic");
            match event {
                Event::WorkerStart { worker_id, pid, .. } => {
                    alive.insert(worker_id.clone(), Process::find(*pid));
                }
                Event::WorkerExit { worker_id, .. } => {
                    alive.remove(worker_id);
                }
                _ => {}
            }
        }))
        .expect("a thread can be had");
    let submit = |n| {
        let call = Story::reuse_call(ECHO, &format!("[{n}]"));
        (n, story.backend.submit(call).expect("taken"))
    };
    let calls = many(10_000);
    let (mut dice, mut failed) = (Dice(0x5EED), 0);
    let mut rest = (0..calls).map(submit);
    let mut waiting: VecDeque<_> = rest.by_ref().take(12).collect(); // so that kills and calls keep step
    while let Some((n, call)) = waiting.pop_front() {
        waiting.extend(rest.next());
        if dice.below(20) == 0 {
            let alive = alive.lock().expect("no panic");
            let target = alive.values().nth(dice.below(4) as usize).copied();
            if let Some(process) = target.flatten() {
                process.signal(Signal::KILL);
            }
        }
        let (id, outcome) = (call.id(), resolved(call).await.expect("an outcome"));
        if outcome.verdict == Verdict::Ok {
            assert_eq!(json(&outcome), n);
        } else {
            assert_eq!(
                outcome.verdict,
                Verdict::Signal,
                "{id:?} {:?}",
                outcome.error
            );
            failed += 1;
        }
    }
    let events = story.end().await;
    let tallies = tallies(&events);
    assert_eq!(tallies.len(), calls);
    assert!(tallies.values().all(|tally| *tally == [1, 1, 1]));
    let killed = events.iter().filter(|event| {
        matches!(event, Event::WorkerExit { status: Some(fairtrial_exec::Exit::Signal(9)), reason, .. }
            if *reason == fairtrial_exec::ExitReason::Crashed)
    });
    let killed = killed.count();
    assert!(killed >= calls / 100, "only {killed} were killed: no test");
    assert!(failed <= killed, "{failed} calls failed of {killed} kills");
}

/// EX-25
#[tokio::test]
async fn half_a_frame_delays_no_other_call() {
    let story = Story::new();
    let stuck = story
        .backend
        .submit(Story::call(BREAK_FRAMES, "[\"half\"]"))
        .expect("taken");
    wait_until("it has started", || {
        story.events().iter().any(|event| event.name() == "start")
    })
    .await;
    for n in 0..20 {
        let make = [Story::call, Story::reuse_call][n % 2];
        assert_eq!(json(&story.run(make(ECHO, &format!("[{n}]"))).await), n);
    }
    stuck.cancel();
    assert_eq!(
        resolved(stuck).await.expect("an outcome").verdict,
        Verdict::Cancelled
    );
    story.end().await;
}

/// EX-25
#[tokio::test]
async fn a_worker_that_stops_reading_delays_no_other_call() {
    let story = Story::new();
    let (_, kept) = launcher(&story).await;
    kept.signal(Signal::STOP);
    wait_until("it is stopped", || kept.is_stopped()).await;
    // More than any socket holds.
    let long = format!("def f(): return 1\n# {}\n", "x".repeat(8 << 20));
    let stuck = story
        .backend
        .submit(Story::reuse_call(&long, "[]"))
        .expect("taken");
    for n in 0..20 {
        let make = [Story::call, Story::reuse_call][n % 2];
        assert_eq!(json(&story.run(make(ECHO, &format!("[{n}]"))).await), n);
    }
    kept.signal(Signal::CONT);
    assert_eq!(json(&resolved(stuck).await.expect("an outcome")), 1);
    story.end().await;
}

// ---- generations -------------------------------------------------------------------------------------------------

/// EX-26
#[tokio::test]
async fn forged_messages_of_other_generations_are_dropped_and_counted() {
    let story = Story::with(|config| config.max_workers = 1);
    // A backend's first dispatches have the first numbers; a call's own is never among these.
    let others: Vec<u32> = (100_000..100_010).chain([0, u32::MAX]).collect();
    for make in [Story::call, Story::reuse_call] {
        let arguments = serde_json::json!([others, false]).to_string();
        let outcome = story.run(make(FORGE_GENERATIONS, &arguments)).await;
        assert_eq!(json(&outcome), "mine");
    }
    let events = story.end().await;
    let counts = events.iter().filter_map(|event| match event {
        Event::WorkerExit { stale_frames, .. } => Some(*stale_frames),
        _ => None,
    });
    let forged = 3 * others.len() as u64; // an acknowledgement, a value and a request each
    assert_eq!(counts.collect::<Vec<_>>(), [forged, forged]);
}

/// EX-26: a thread that an earlier call left behind answers with that call's number, and with numbers long past.
#[tokio::test]
async fn late_messages_of_an_earlier_dispatch_are_dropped() {
    let story = Story::with(|config| config.max_workers = 1);
    let arguments = serde_json::json!([(0..4).collect::<Vec<_>>(), true]).to_string();
    let warm = story.reuse(ECHO, "[0]").await;
    for n in 1..5 {
        story.reuse(ECHO, &format!("[{n}]")).await;
    }
    let forger = story.reuse(FORGE_GENERATIONS, &arguments).await;
    assert_eq!(json(&forger), "mine");
    for n in 0..200 {
        let outcome = story.reuse(ECHO, &format!("[{n}]")).await;
        assert_eq!(json(&outcome), n);
        assert_eq!(worker(&outcome), worker(&warm), "nor is it killed for that");
    }
    story.end().await;
}

// ---- races -------------------------------------------------------------------------------------------------------

/// One backend's life: calls of every kind, cancelled, dropped, timed out, killed and shut down at random moments.
async fn race(seed: u64, calls: usize) {
    let mut dice = Dice(0x9E37_79B9 ^ (seed + 1));
    let story = Story::with(|config| config.max_workers = 3);
    let nap = "import time\ndef f(s):\n    time.sleep(s)\n    return s\n";
    let mut waiting = Vec::new();
    for _ in 0..calls {
        let arguments = format!("[{}]", dice.below(4) as f64 / 1000.0);
        let mut call = match dice.below(8) {
            0 => bare::command(["true"]),
            1 | 2 => Story::call(nap, &arguments),
            _ => Story::reuse_call(nap, &arguments),
        };
        if dice.below(3) == 0 {
            call.timeout = Some(Duration::from_micros(1 + dice.below(5000)));
        }
        if dice.below(6) == 0 {
            call.queue_timeout = Some(Duration::from_micros(1 + dice.below(9000)));
        }
        waiting.push(story.backend.submit(call).expect("taken"));
        if dice.below(2) == 0 {
            let one = dice.below(waiting.len() as u64) as usize;
            match dice.below(3) {
                0 => drop(waiting.swap_remove(one)),
                1 => waiting[one].cancel(),
                _ => {
                    let taken = waiting.swap_remove(one);
                    resolved(taken).await.expect("an outcome");
                }
            }
        }
    }
    if seed.is_multiple_of(2) {
        let how = Shutdown {
            wait: false,
            cancel_queued: dice.below(2) == 0,
            kill_after: Some(Duration::from_millis(dice.below(20))),
        };
        story.backend.shutdown(how).await;
    }
    for call in waiting {
        let outcome = resolved(call).await.expect("an outcome");
        assert!(
            matches!(
                outcome.verdict,
                Verdict::Ok | Verdict::Timeout | Verdict::Cancelled
            ),
            "{} {:?}",
            outcome.verdict,
            outcome.error
        );
    }
    let events = story.end().await;
    for (call, [submitted, started, completed]) in tallies(&events) {
        assert_eq!((submitted, completed), (1, 1), "{call:?}");
        assert!(started <= 1, "{call:?} started {started} times");
    }
    let count = |name| events.iter().filter(|event| event.name() == name).count();
    assert_eq!(count("worker_start"), count("worker_exit"));
    assert_eq!(events.last(), Some(&Event::Shutdown));
}

/// EX-27: the model check is beside the worker's step; this is the whole engine.
#[tokio::test]
async fn a_call_resolves_once_whatever_races() {
    for seed in 0..many(100) as u64 {
        race(seed, 60).await;
    }
}

// ---- at most once ------------------------------------------------------------------------------------------------

/// EX-28
#[tokio::test]
async fn a_call_without_an_ack_runs_elsewhere_and_one_with_an_ack_never_again() {
    let story = Story::new();
    let log = story.path().join("log");
    let lines = || std::fs::read_to_string(&log).map_or(0, |text| text.lines().count());
    let arguments = serde_json::json!([log]).to_string();
    let note = "def f(log):\n    with open(log, 'a') as file:\n        file.write('ran\\n')\n";
    let (_, kept) = launcher(&story).await;
    kept.signal(Signal::STOP);
    wait_until("it is stopped", || kept.is_stopped()).await;
    let call = story
        .backend
        .submit(Story::reuse_call(note, &arguments))
        .expect("taken");
    kept.signal(Signal::KILL); // with the call in its socket
    let outcome = resolved(call).await.expect("an outcome");
    assert_eq!((outcome.verdict, lines()), (Verdict::Ok, 1));

    // The acknowledgement is in the socket when the death is told: it counts.
    let die = "import os\ndef f(log):\n    with open(log, 'a') as file:\n        file.write('ran\\n')\n    \
               os.kill(os.getpid(), 9)\n";
    for n in 0..40 {
        let make = [Story::call, Story::reuse_call][n % 2];
        let outcome = story.run(make(die, &arguments)).await;
        assert_eq!((outcome.verdict, lines()), (Verdict::Signal, n + 2));
    }
    story.end().await;
}

/// EX-28: a call that comes back is at the head of the queue again.
#[tokio::test]
async fn a_call_that_returns_to_the_queue_keeps_its_place() {
    let story = Story::with(|config| config.max_workers = 1);
    let (_, kept) = launcher(&story).await;
    kept.signal(Signal::STOP);
    wait_until("it is stopped", || kept.is_stopped()).await;
    let calls: Vec<_> = (0..5)
        .map(|n| {
            let call = Story::reuse_call(ECHO, &format!("[{n}]"));
            story.backend.submit(call).expect("taken")
        })
        .collect();
    let ids: Vec<_> = calls.iter().map(Execution::id).collect();
    kept.signal(Signal::KILL);
    for call in calls {
        assert_eq!(
            resolved(call).await.expect("an outcome").verdict,
            Verdict::Ok
        );
    }
    assert_eq!(started(&story.end().await)[1..], ids);
}

fn started(events: &[Event]) -> Vec<CallId> {
    let started = events.iter().filter_map(|event| match event {
        Event::Start { call, .. } => Some(*call),
        _ => None,
    });
    started.collect()
}

/// EX-29
#[tokio::test]
async fn calls_start_in_the_order_of_submission_among_those_that_can() {
    let story = Story::with(|config| config.max_workers = 1);
    story.source(ECHO, "[0]").await; // both kinds can start from here on
    let gate = Gate::new(&story, "gate");
    let first = story.backend.submit(gate.call()).expect("taken");
    gate.reached_by(1).await;
    let calls: Vec<_> = (0..12)
        .map(|n| {
            let call = match n % 3 {
                0 => bare::command(["true"]),
                1 => Story::call(ECHO, "[1]"),
                _ => Story::reuse_call(ECHO, "[2]"),
            };
            story.backend.submit(call).expect("taken")
        })
        .collect();
    let ids: Vec<_> = calls.iter().map(Execution::id).collect();
    gate.open();
    resolved(first).await.expect("an outcome");
    for call in calls {
        resolved(call).await.expect("an outcome");
    }
    assert_eq!(started(&story.end().await)[2..], ids);
}
