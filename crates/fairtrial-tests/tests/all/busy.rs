//! Time on a machine that has other things to do (EX-81, EX-86).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairtrial_exec::{Call, Verdict};
use fairtrial_tests::{Story, json};

/// Threads that keep every processor busy while it is there.
struct Busy {
    over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Busy {
    fn begin() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let spin = |over: Arc<AtomicBool>| move || while !over.load(Ordering::Relaxed) {};
        let threads = (0..2 * processors)
            .map(|_| std::thread::spawn(spin(over.clone())))
            .collect();
        Self { over, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("it only spins");
        }
    }
}

/// EX-81: it is not shortened by however long the engine takes to hear that a call began.
#[tokio::test]
async fn wall_time_is_never_less_than_what_the_call_itself_saw_pass() {
    let story = Story::with(|config| config.max_workers = 1);
    let nap = "import time\ndef f():\n    began = time.monotonic_ns()\n    time.sleep(0.005)\n    \
               return time.monotonic_ns() - began";
    for make in [Story::call, Story::reuse_call] {
        story.run(make(nap, "[]")).await; // warm
        let busy = Busy::begin();
        for _ in 0..40 {
            let outcome = story.run(make(nap, "[]")).await;
            let saw = json(&outcome).as_u64().expect("a number");
            assert!(outcome.metrics.wall_ns >= Some(saw), "{saw} {outcome:?}");
        }
        drop(busy);
    }
    let busy = Busy::begin();
    for _ in 0..40 {
        let outcome = story.run(Call::command(["sleep", "0.005"])).await;
        assert!(outcome.metrics.wall_ns >= Some(5_000_000), "{outcome:?}");
    }
    drop(busy);
    story.end().await;
}

/// EX-86: a worker that an earlier call took over says when the next one began; it is believed only within reason.
#[tokio::test]
async fn a_forged_beginning_is_believed_only_within_reason() {
    let forge = "import sys\ndef f(stamp):\n    frame = sys._getframe()\n    \
                 while 'generation' not in frame.f_locals:\n        frame = frame.f_back\n    \
                 frame.f_globals['_monotonic_ns'] = lambda: stamp\n    return 'forged'";
    let story = Story::with(|config| config.max_workers = 1);
    for stamp in ["0", "18446744073709551615"] {
        let forged = story.reuse(forge, &format!("[{stamp}]")).await;
        assert_eq!(json(&forged), "forged");
        let before = story.reuse("def f():\n    return 1", "[]").await.metrics;
        let mut call = Story::reuse_call("import time\ndef f():\n    time.sleep(60)", "[]");
        call.timeout = Some(std::time::Duration::from_millis(300));
        let late = story.run(call).await;
        assert_eq!(late.verdict, Verdict::Timeout, "{late:?}");
        assert_eq!(before.worker_id, late.metrics.worker_id);
        let wall_ns = late.metrics.wall_ns.expect("measured");
        assert!(wall_ns >= 300_000_000, "{wall_ns}");
        assert!(
            late.metrics.queue_ns.is_some() && late.metrics.started_at_ns >= before.finished_at_ns
        );
    }
    story.end().await;
}
