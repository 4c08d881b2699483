//! Calls sent ahead to workers that run short ones (EX-30, EX-31, EX-85).

use std::collections::HashMap;

use fairtrial_exec::{Execution, MeasuredBy, Outcome, Verdict};
use fairtrial_tests::{Story, json, wait_until};

/// Makes the story's workers known for short calls, so that the next ones are sent ahead.
async fn warm_up(story: &Story) {
    let calls: Vec<_> = (0..40)
        .map(|_| submit(story, "def f(x): return x", "[0]"))
        .collect();
    for call in calls {
        assert_eq!(
            call.await.expect("the engine does its work").verdict,
            Verdict::Ok
        );
    }
}

fn submit(story: &Story, source: &str, args: &str) -> Execution {
    story
        .backend
        .submit(Story::reuse_call(source, args))
        .expect("the call is valid")
}

/// The log holds the number of each call, once.
fn assert_each_ran_once(log: &std::path::Path, calls: u32) {
    let log = std::fs::read_to_string(log).expect("the calls wrote it");
    let mut ran: Vec<u32> = log
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..calls).collect::<Vec<_>>());
}

fn by_worker(outcome: &Outcome) -> bool {
    outcome.metrics.measured_by == Some(MeasuredBy::Worker)
}

/// EX-30, EX-85: short calls are sent ahead, each is right, and it says who measured it.
#[tokio::test]
async fn short_calls_are_sent_ahead_and_say_who_measured_them() {
    let story = Story::new();
    warm_up(&story).await;
    let calls: Vec<_> = (0..500)
        .map(|n| (n, submit(&story, "def f(x): return x", &format!("[{n}]"))))
        .collect();
    let mut ahead = 0;
    for (n, call) in calls {
        let outcome = call.await.expect("the engine does its work");
        assert_eq!(json(&outcome), n);
        if by_worker(&outcome) {
            ahead += 1;
            assert!(outcome.metrics.user_ns.is_some() && outcome.metrics.peak_rss_bytes.is_none());
        }
    }
    assert!(ahead > 100, "only {ahead} of 500 calls were sent ahead");
    let alone = story.reuse("def f(x): return x", "[1]").await;
    assert!(!by_worker(&alone));
    story.end().await;
}

/// EX-30: fresh calls have a process each, whatever waits.
#[tokio::test]
async fn fresh_calls_are_never_sent_ahead() {
    let story = Story::new();
    warm_up(&story).await;
    let calls: Vec<_> = (0..40)
        .map(|_| {
            story
                .backend
                .submit(Story::call("def f(): return 1", "[]"))
                .expect("the call is valid")
        })
        .collect();
    let mut pids = HashMap::new();
    for call in calls {
        let outcome = call.await.expect("the engine does its work");
        assert!(!by_worker(&outcome));
        *pids
            .entry(outcome.metrics.worker_id.expect("a worker ran it"))
            .or_insert(0) += 1;
    }
    assert_eq!(pids.len(), 40);
    story.end().await;
}

/// EX-31: what stands behind a call that turns out long goes to the free slot, and runs once.
#[tokio::test]
async fn no_call_waits_behind_a_long_one_while_a_slot_is_free() {
    let story = Story::new();
    let gate = story.path().join("gate");
    let log = story.path().join("log");
    warm_up(&story).await;
    let long = "import os, time\ndef f(gate):\n    while not os.path.exists(gate): time.sleep(0.001)\n    return 'long'";
    let short = "import os\ndef f(log, n):\n    d = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n    \
                 os.write(d, b'%d\\n' % n)\n    os.close(d)\n    return n";
    let mut calls = Vec::new();
    for n in 0..50 {
        calls.push(submit(&story, short, &format!("[{log:?}, {n}]")));
    }
    let stopper = submit(&story, long, &format!("[{gate:?}]"));
    for n in 50..100 {
        calls.push(submit(&story, short, &format!("[{log:?}, {n}]")));
    }
    // All of them end although the long one does not: those that had been sent to its worker were taken back.
    for (n, call) in calls.into_iter().enumerate() {
        let outcome = tokio::time::timeout(std::time::Duration::from_secs(30), call).await;
        let outcome = outcome
            .expect("it does not wait for the long call")
            .expect("the engine does its work");
        assert_eq!(json(&outcome), n);
    }
    std::fs::write(&gate, "").expect("a file can be written");
    assert_eq!(
        json(&stopper.await.expect("the engine does its work")),
        "long"
    );
    assert_each_ran_once(&log, 100);
    story.end().await;
}

/// EX-31: a call that was sent ahead and cancelled leaves no trace.
#[tokio::test]
async fn a_cancelled_call_that_was_sent_ahead_never_starts() {
    let story = Story::with(|config| config.max_workers = 1);
    let gate = story.path().join("gate");
    let trace = story.path().join("trace");
    warm_up(&story).await;
    let blocker =
        "import os, time\ndef f(gate):\n    while not os.path.exists(gate): time.sleep(0.001)";
    let tracer = "def f(path): open(path, 'a').write('x')";
    let first = submit(&story, blocker, &format!("[{gate:?}]"));
    let doomed: Vec<_> = (0..8)
        .map(|_| submit(&story, tracer, &format!("[{trace:?}]")))
        .collect();
    let last = submit(&story, "def f(): return 'last'", "[]");
    wait_until("the first call has begun", || {
        story
            .events()
            .iter()
            .filter(|event| event.name() == "start")
            .count()
            > 40
    })
    .await;
    for call in doomed {
        call.cancel();
        assert_eq!(
            call.await.expect("the engine does its work").verdict,
            Verdict::Cancelled
        );
    }
    std::fs::write(&gate, "").expect("a file can be written");
    assert_eq!(
        first.await.expect("the engine does its work").verdict,
        Verdict::Ok
    );
    assert_eq!(json(&last.await.expect("the engine does its work")), "last");
    assert!(!trace.exists());
    story.end().await;
}

/// EX-24, EX-28: a worker that dies takes only the call it had begun; those sent ahead run elsewhere, once.
#[tokio::test]
async fn a_dying_worker_takes_only_the_call_it_had_begun() {
    let story = Story::new();
    let log = story.path().join("log");
    warm_up(&story).await;
    let source = "import os\ndef f(log, n):\n    d = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n    \
                  os.write(d, b'%d\\n' % n)\n    os.close(d)\n    if n % 20 == 7: os.kill(os.getpid(), 9)\n    return n";
    let calls: Vec<_> = (0..200)
        .map(|n| submit(&story, source, &format!("[{log:?}, {n}]")))
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        let outcome = call.await.expect("the engine does its work");
        let expected = if n % 20 == 7 {
            Verdict::Signal
        } else {
            Verdict::Ok
        };
        assert_eq!(outcome.verdict, expected, "call {n}: {:?}", outcome.error);
    }
    assert_each_ran_once(&log, 200);
    story.end().await;
}
