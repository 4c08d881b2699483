//! Races and leftovers that one call must not cost another.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fairtrial_exec::{Event, ExitReason, Outcome, Verdict};
use fairtrial_tests::{Story, is_alone, json, wait_until};

use crate::process::{script, with_env, with_python};

/// Leaves a thread that writes these bytes to the worker's own socket once the call is answered.
const SPEAK_LATER: &str = r#"
import os, stat, threading, time

def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False

def f(text, spoken):
    wire = next(fd for fd in range(200, 300) if is_socket(fd))
    def speak():
        time.sleep(0.05)
        os.write(wire, text.encode("latin-1")) if text else os.dup2(os.open("/dev/null", os.O_RDONLY), wire)
        open(spoken, "w").close()
    threading.Thread(target=speak, daemon=True).start()
"#;

fn crashes(story: &Story) -> usize {
    let crashed = |event: &&Event| {
        matches!(
            event,
            Event::WorkerExit {
                reason: ExitReason::Crashed,
                ..
            }
        )
    };
    story.events().iter().filter(crashed).count()
}

/// A call that leaves a thread behind, which speaks into the socket; and the file that is there once it has.
async fn speak_later(story: &Story, text: &str) -> (Outcome, PathBuf) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let spoken = story.path().join(format!("spoken-{number}"));
    let arguments = format!("[\"{text}\", \"{}\"]", spoken.display());
    (story.reuse(SPEAK_LATER, &arguments).await, spoken)
}

/// EX-33: half a frame, junk or a closed socket is noticed while the worker is idle, and costs no call.
#[tokio::test]
async fn what_an_earlier_call_leaves_in_the_socket_costs_no_later_call() {
    let story = Story::with(|config| config.max_workers = 1);
    for (n, left) in ["FT\\u0001", "x", "no frame at all, but long", ""]
        .into_iter()
        .enumerate()
    {
        let (call, spoken) = speak_later(&story, left).await;
        assert_eq!(call.verdict, Verdict::Ok, "{:?}", call.error);
        if left.is_empty() {
            // Its shim still waits on the old socket: only the next call can show it.
            wait_until("it spoke", || spoken.exists()).await;
        } else {
            wait_until("the worker is replaced", || crashes(&story) > n).await;
        }
        let next = story.reuse("def f(): return 1", "[]").await;
        assert_eq!(json(&next), 1);
    }
    story.end().await;
}

/// EX-33: also if the next call comes just then.
#[tokio::test]
async fn leftovers_found_as_the_next_call_is_given_cost_it_nothing() {
    let story = Story::with(|config| config.max_workers = 1);
    for n in 0..12 {
        let (_, spoken) = speak_later(&story, "no").await;
        let told = || spoken.exists() || crashes(&story) > n; // it may be killed before it writes the file
        wait_until("it spoke", told).await;
        let next = story.reuse("def f(): return 1", "[]").await;
        assert_eq!(json(&next), 1);
    }
    story.end().await;
}

/// EX-23: an interpreter that never gets ready is given up like a worker that never acknowledges.
#[tokio::test]
async fn an_interpreter_that_never_answers_is_given_up() {
    let story = Story::with(|config| config.ack_timeout = Duration::from_millis(500));
    let python = script(&story, "python", "#!/bin/sh\nexec sleep 30\n");
    let call = with_python(Story::call("def f(): return 1", "[]"), &python);
    let outcome = tokio::time::timeout(Duration::from_secs(15), story.run(call))
        .await
        .expect("nobody waits for ever");
    assert_eq!(outcome.verdict, Verdict::SetupFailed);
    let message = outcome.error.expect("a reason").message;
    assert!(message.contains("not ready"), "{message}");
    assert_eq!(json(&story.source("def f(): return 1", "[]").await), 1);
    story.end().await;
}

fn cpu_of_this_process() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(usage.tv_sec.unsigned_abs(), usage.tv_nsec as u32)
}

/// EX-30: what cannot be sent ahead waits; the engine does not try over and over.
#[tokio::test]
async fn a_call_that_cannot_be_sent_ahead_costs_no_processor_time() {
    if !is_alone("hostile::a_call_that_cannot_be_sent_ahead_costs_no_processor_time") {
        return;
    }
    let story = Story::with(|config| config.max_workers = 1);
    for _ in 0..100 {
        story.reuse("def f(x): return len(x)", "[\"\"]").await;
    }
    let long = Story::reuse_call("import time\ndef f(): time.sleep(1)", "[]");
    let large = format!("[\"{}\"]", "x".repeat(500_000));
    let large = Story::reuse_call("def f(x): return len(x)", &large);
    let (before, since) = (cpu_of_this_process(), Instant::now());
    let long = story.backend.submit(long).expect("taken");
    let large = story.backend.submit(large).expect("taken");
    assert_eq!(long.await.expect("an outcome").verdict, Verdict::Ok);
    assert_eq!(json(&large.await.expect("an outcome")), 500_000);
    let spent = cpu_of_this_process() - before;
    assert!(spent < since.elapsed() / 4, "{spent:?}");
    story.end().await;
}

/// EX-S7: what is known of a key goes when nothing of it is left.
#[tokio::test]
async fn many_keys_cost_no_lasting_memory() {
    if !is_alone("hostile::many_keys_cost_no_lasting_memory") {
        return;
    }
    let story = Story::new();
    let large = "x".repeat(100_000);
    let run = async |from: u32, to: u32| {
        for n in from..to {
            let call = Story::call("def f(): return 1", "[]");
            let call = with_python(call, &format!("/nowhere/python{n}"));
            let call = with_env(call, "PYTHONUNUSED", &large);
            assert_eq!(story.run(call).await.verdict, Verdict::SetupFailed);
        }
    };
    run(0, 200).await;
    let before = fairtrial_tests::anonymous_bytes();
    run(200, 600).await;
    let grown = fairtrial_tests::anonymous_bytes().saturating_sub(before);
    assert!(grown < 20 << 20, "{grown} bytes more");
    story.end().await;
}

/// EX-86: a reply in another dispatch's name does not stop this one's clock.
#[tokio::test]
async fn a_forged_reply_of_another_dispatch_shortens_no_wall_time() {
    let source = r#"
import os, stat, struct, time

def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False

def f():
    wire = next(fd for fd in range(200, 300) if is_socket(fd))
    os.write(wire, struct.pack("<2sBBIQ", b"FT", 1, 21, 0x70000000, 1) + b"N")
    time.sleep(0.4)
    return 1
"#;
    let story = Story::new();
    for call in [Story::call(source, "[]"), Story::reuse_call(source, "[]")] {
        let outcome = story.run(call).await;
        assert_eq!(json(&outcome), 1);
        let wall_ns = outcome.metrics.wall_ns.expect("measured");
        assert!(wall_ns >= 400_000_000, "{wall_ns}");
    }
    story.end().await;
}
