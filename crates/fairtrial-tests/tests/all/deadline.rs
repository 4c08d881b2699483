//! Deadlines, kills and cancels (EX-45 to EX-52).

use std::time::{Duration, Instant};

use fairtrial_exec::{Backend, Call, EngineError, Event, ExitReason, Outcome, Verdict};
use fairtrial_tests::bare;
use fairtrial_tests::{Cli, Story, json, running_with, wait_until};
use serde_json::json as j;

/// Waits for a file, in steps, and gives up before any test does.
const WAIT_FOR_FILE: &str = "import os, time\ndef f(path, here):\n    open(here, 'w').close()\n    \
    end = time.monotonic() + 40\n    \
    while not os.path.exists(path) and time.monotonic() < end:\n        time.sleep(0.005)\n    return os.path.exists(path)";

/// Hangs, but not for ever.
const HANG: &str = "import time\ndef f():\n    time.sleep(40)";

/// EX-45: ten calls of 0.3 s on one slot, so the last waits longer than its deadline.
#[tokio::test]
async fn waiting_in_the_queue_is_not_charged_to_a_call() {
    let story = Story::with(|config| config.max_workers = 1);
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let mut call = Story::call("import time\ndef f():\n    time.sleep(0.3)", "[]");
            call.timeout = Some(Duration::from_secs(2));
            story.backend.submit(call).expect("accepted")
        })
        .collect();
    let mut longest_wait = 0;
    for execution in calls {
        let outcome = execution.await.expect("the engine does its work");
        assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
        longest_wait = longest_wait.max(outcome.metrics.queue_ns.expect("measured"));
    }
    assert!(longest_wait > 2_000_000_000, "{longest_wait}");
    story.end().await;
}

/// EX-46
#[tokio::test]
async fn a_call_that_waits_too_long_is_cancelled_and_never_runs() {
    let story = Story::with(|config| config.max_workers = 1);
    let (go, here, ran) = (
        story.path().join("go"),
        story.path().join("here"),
        story.path().join("ran"),
    );
    let first = story
        .backend
        .submit(Story::call(WAIT_FOR_FILE, &j!([go, here]).to_string()))
        .expect("accepted");
    wait_until("the first call runs", || here.exists()).await;
    let mut call = Story::call(
        "def f(path):\n    open(path, 'w').close()",
        &j!([ran]).to_string(),
    );
    call.queue_timeout = Some(Duration::from_millis(50));
    let outcome = story.run(call).await;
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(outcome.error.expect("it says why").kind, "QueueTimeout");
    let metrics = outcome.metrics;
    assert_eq!(
        (metrics.wall_ns, metrics.user_ns, metrics.peak_rss_bytes),
        (None, None, None)
    );
    assert_eq!(
        (
            metrics.started_at_ns,
            metrics.finished_at_ns,
            metrics.worker_pid
        ),
        (None, None, None)
    );
    std::fs::write(&go, "").expect("a file can be written");
    assert_eq!(json(&first.await.expect("the engine does its work")), true);
    assert!(!ran.exists());
    story.end().await;
}

/// EX-46
#[tokio::test]
async fn a_time_that_is_not_positive_and_finite_is_an_invalid_call() {
    let story = Story::new();
    for field in ["timeout_s", "queue_timeout_s"] {
        let mut call = Story::call(HANG, "[]");
        let zero = Some(Duration::ZERO);
        *(if field == "timeout_s" {
            &mut call.timeout
        } else {
            &mut call.queue_timeout
        }) = zero;
        let refused = story.try_run(call).await.expect_err("refused");
        assert!(
            matches!(&refused, EngineError::InvalidCall(why) if why.field == field),
            "{refused}"
        );
        for bad in ["0", "-1", "1e999", "{\"$float\": \"NaN\"}", "\"5\""] {
            let line = format!("{{\"argv\": [\"true\"], \"{field}\": {bad}}}");
            let finished = Cli::new(["batch", "-"]).run_with(&line);
            assert_eq!(finished.code, Some(2), "{bad}: {finished:?}");
            assert!(
                finished.stderr.contains(field) || bad == "1e999",
                "{bad}: {finished:?}"
            );
        }
    }
    story.end().await;
}

/// EX-47: three hang and are killed while five are still running, which then finish.
#[tokio::test]
async fn a_deadline_does_not_touch_the_siblings_in_flight() {
    let story = Story::with(|config| config.max_workers = 8);
    let go = story.path().join("go");
    let siblings: Vec<_> = (0..5)
        .map(|n| {
            let here = story.path().join(format!("here{n}"));
            let call = Story::call(WAIT_FOR_FILE, &j!([go, here]).to_string());
            (here, story.backend.submit(call).expect("accepted"))
        })
        .collect();
    wait_until("five calls run", || {
        siblings.iter().all(|(here, _)| here.exists())
    })
    .await;
    let hung: Vec<_> = (0..3)
        .map(|_| {
            let mut call = Story::call(HANG, "[]");
            call.timeout = Some(Duration::from_millis(200));
            story.backend.submit(call).expect("accepted")
        })
        .collect();
    for execution in hung {
        let outcome = execution.await.expect("the engine does its work");
        assert_eq!(outcome.verdict, Verdict::Timeout);
        assert_eq!(running_with(&worker(&outcome)), [0; 0]);
    }
    assert!(!story.events().contains(&Event::Shutdown));
    std::fs::write(&go, "").expect("a file can be written");
    for (_, execution) in siblings {
        let outcome = execution.await.expect("the engine does its work");
        assert_eq!(json(&outcome), true);
    }
    assert_eq!(json(&story.source("def f():\n    return 1", "[]").await), 1);
    let events = story.end().await;
    let timeouts = events.iter().filter(|event| {
        matches!(
            event,
            Event::WorkerExit {
                reason: ExitReason::Timeout,
                ..
            }
        )
    });
    assert_eq!(timeouts.count(), 3);
}

/// EX-48
#[tokio::test]
async fn descendants_die_with_their_call_whatever_they_do() {
    let source = include_str!("../../programs/outlive_the_call.py");
    let sins = [
        "double_fork_and_setsid",
        "ignore_every_signal",
        "fork_in_a_loop",
        "fork_a_crowd",
        "stop_itself",
    ];
    let story = Story::new();
    for function in sins {
        for end in ["return", "hang"] {
            let mark = story.path().join(format!("{function}-{end}"));
            let mut call = bare::source(
                source,
                function,
                fairtrial_tests::arguments(&j!([end, mark]).to_string()),
            );
            if end == "hang" {
                call.timeout = Some(Duration::from_millis(500));
            }
            let outcome = story.run(call).await;
            let expected = if end == "hang" {
                Verdict::Timeout
            } else {
                Verdict::Ok
            };
            assert_eq!(
                outcome.verdict, expected,
                "{function} {end}: {:?}",
                outcome.error
            );
            assert!(mark.exists(), "{function} {end}: the sin was not committed");
            assert_eq!(running_with(&worker(&outcome)), [0; 0], "{function} {end}");
            assert!(
                outcome.metrics.leaked_processes > Some(0),
                "{function} {end}"
            );
        }
    }
    story.end().await;
}

/// EX-49
#[tokio::test]
async fn a_cancelled_call_in_the_queue_never_starts() {
    let story = Story::with(|config| config.max_workers = 1);
    let (go, here, ran) = (
        story.path().join("go"),
        story.path().join("here"),
        story.path().join("ran"),
    );
    let first = story
        .backend
        .submit(Story::call(WAIT_FOR_FILE, &j!([go, here]).to_string()))
        .expect("accepted");
    wait_until("the first call runs", || here.exists()).await;
    let touch = Story::call(
        "def f(path):\n    open(path, 'w').close()",
        &j!([ran]).to_string(),
    );
    let cancelled = story.backend.submit(touch.clone()).expect("accepted");
    let dropped = story.backend.submit(touch.clone()).expect("accepted");
    let future = story.backend.execute(touch);
    cancelled.cancel();
    drop(dropped);
    drop(future);
    let outcome = cancelled.await.expect("the engine does its work");
    assert_eq!(
        (outcome.verdict, outcome.metrics.wall_ns),
        (Verdict::Cancelled, None)
    );
    std::fs::write(&go, "").expect("a file can be written");
    first.await.expect("the engine does its work");
    story.source("def f():\n    pass", "[]").await;
    assert!(!ran.exists());
    story.end().await;
}

/// EX-49
#[tokio::test]
async fn a_cancelled_call_that_runs_is_killed_and_frees_its_slot() {
    for reuse in [false, true] {
        let story = Story::with(|config| config.max_workers = 1);
        let make = if reuse {
            Story::reuse_call
        } else {
            Story::call
        };
        for by_drop in [false, true] {
            let here = story.path().join(format!("here-{by_drop}"));
            let call = make(
                WAIT_FOR_FILE,
                &j!([story.path().join("never"), here]).to_string(),
            );
            let execution = story.backend.submit(call).expect("accepted");
            wait_until("the call runs", || here.exists()).await;
            if by_drop {
                drop(execution);
            } else {
                execution.cancel();
                let outcome = execution.await.expect("the engine does its work");
                assert_eq!(outcome.verdict, Verdict::Cancelled);
                assert_eq!(running_with(&worker(&outcome)), [0; 0]);
            }
            // On the only slot.
            let next = story.run(make("def f():\n    return 1", "[]")).await;
            assert_eq!(json(&next), 1);
        }
        let events = story.end().await;
        let killed = events.iter().filter(|event| {
            matches!(
                event,
                Event::WorkerExit {
                    reason: ExitReason::Cancelled,
                    ..
                }
            )
        });
        assert_eq!(killed.count(), 2);
    }
}

/// EX-50
#[tokio::test]
async fn a_grace_lets_a_call_tidy_up_and_ends_all_the_same() {
    let story = Story::new();
    let (timeout, grace) = (Duration::from_millis(300), Duration::from_millis(400));
    let tidy =
        "trap 'echo tidy; exit 0' TERM; i=0; while [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done";
    let deaf =
        "trap '' TERM; echo deaf; i=0; while [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done";
    for (script, said, least) in [(tidy, "tidy\n", timeout), (deaf, "deaf\n", timeout + grace)] {
        let mut call = bare::command(["sh", "-c", script]);
        call.timeout = Some(timeout);
        // For the one that tidies up the grace is no wait: it is long, and not used up.
        call.term_grace = if script == tidy {
            Duration::from_secs(15)
        } else {
            grace
        };
        let begin = Instant::now();
        let outcome = story.run(call).await;
        assert_eq!(outcome.verdict, Verdict::Timeout);
        assert_eq!(outcome.stdout.text(), said);
        assert!(begin.elapsed() >= least, "{script}");
    }
    let mut call = bare::command([
        "sh",
        "-c",
        "trap 'echo tidy' TERM; i=0; while [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done",
    ]);
    call.timeout = Some(timeout);
    let outcome = story.run(call).await;
    assert_eq!(outcome.stdout.text(), "", "by default no SIGTERM is sent");
    story.end().await;
}

/// EX-51
#[tokio::test]
async fn a_call_that_hung_says_where_in_each_thread_and_also_inside_c_code() {
    let sins = [
        ("def f():\n    while True: pass", "line 2 in f", 1),
        (
            "import re\ndef f():\n    re.match('(a+)+$', 'a' * 40 + 'b')",
            "line 3 in f",
            1,
        ),
        ("def f():\n    return 7 ** (7 ** 10)", "line 2 in f", 1),
        (
            "import threading, time\ndef wait():\n    time.sleep(40)\ndef f():\n    \
             threading.Thread(target=wait).start()\n    time.sleep(40)",
            "line 3 in wait",
            2,
        ),
        (
            "import time\nclass A:\n    def __str__(self):\n        time.sleep(40)\ndef f():\n    str(A())",
            "line 4 in __str__",
            1,
        ),
    ];
    let story = Story::new();
    for make in [Story::call, Story::reuse_call] {
        for (source, place, threads) in sins {
            let traceback = hung_stacks(&story, &make(source, "[]"), threads).await;
            assert!(traceback.contains(place), "{source}: {traceback}");
            assert!(!traceback.contains("<fairtrial>"), "{traceback}");
            assert!(!traceback.contains("\"<string>\""), "{traceback}");
        }
    }
    story.end().await;
}

/// The stacks of a call that hangs. They are best effort: a busy machine may give the process no turn in the 5 ms before
/// the kill, or too short a one, so that a few tries are allowed.
async fn hung_stacks(story: &Story, call: &Call, threads: usize) -> String {
    let mut seen = String::new();
    for _ in 0..20 {
        let mut call = call.clone();
        call.timeout = Some(Duration::from_millis(300));
        let outcome = story.run(call).await;
        assert_eq!(outcome.verdict, Verdict::Timeout);
        let error = outcome.error.expect("a timeout has an error");
        assert_eq!(error.kind, "Timeout");
        seen = error.traceback;
        if seen.matches("most recent call first").count() == threads && seen.contains(" in f") {
            return seen;
        }
    }
    panic!("no stacks of {threads} threads in 20 tries: {seen}");
}

/// EX-52
#[tokio::test]
async fn no_verdict_makes_a_call_run_again() {
    let ends = [
        ("return 1", Verdict::Ok),
        ("raise ValueError", Verdict::Exception),
        ("os._exit(3)", Verdict::Exit),
        ("os._exit(0)", Verdict::NoResult),
        ("os.kill(os.getpid(), 11)", Verdict::Signal),
        ("return open", Verdict::BadResult),
        ("time.sleep(40)", Verdict::Timeout),
        (
            "print('x' * 5000)\n    time.sleep(20)",
            Verdict::OutputLimit,
        ),
    ];
    let story = Story::new();
    for (number, (end, verdict)) in ends.into_iter().enumerate() {
        for make in [Story::call, Story::reuse_call] {
            let log = story.path().join(format!("log{number}"));
            std::fs::remove_file(&log).ok(); // of the other way to run it
            let source =
                format!("import os, time\ndef f(log):\n    open(log, 'a').write('x')\n    {end}");
            let mut call = make(&source, &j!([log]).to_string());
            call.limits.output_bytes = Some(1000);
            if verdict == Verdict::Timeout {
                call.timeout = Some(Duration::from_millis(200));
            }
            let outcome = story.run(call).await;
            assert_eq!(outcome.verdict, verdict, "{end}: {:?}", outcome.error);
            assert_eq!(std::fs::read_to_string(&log).expect("it ran"), "x", "{end}");
        }
    }
    story.end().await;
}

fn worker(outcome: &Outcome) -> String {
    outcome
        .metrics
        .worker_id
        .clone()
        .expect("a call that ran had a worker")
}
