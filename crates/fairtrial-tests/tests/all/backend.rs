//! Events of the local engine besides what every backend shows (`conformance`): their names, and what is logged.

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use fairtrial_exec::{Backend, ExitReason, Verdict};
use fairtrial_tests::{Story, is_alone, json};

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
        let story = Story::new();
        let (_never, held) = mpsc::channel::<()>();
        story
            .backend
            .subscribe(Box::new(move |event| match event.name() {
                "submit" => drop(held.recv_timeout(Duration::from_millis(10_050))),
                "complete" => panic!("a handler that panics"),
                _ => {}
            }))
            .expect("a thread can be had");
        let begun = Instant::now();
        assert_eq!(json(&story.source("def f(): return 1", "[]").await), 1);
        assert!(begun.elapsed() < Duration::from_secs(9), "delayed");
        story.end().await;
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
