//! A wall clock that is stepped while calls run (EX-53).
//!
//! What is stepped is what the C library tells engine and launcher, for the machine's own clock is not a test's to set.
//! Who reads that clock without the C library is not seen here, nor is a suspended machine; `clippy.toml` keeps
//! `SystemTime::now` out of everything but the anchor of `clock.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fairtrial_exec::{Call, Event, Execution, Outcome, Verdict};
use fairtrial_tests::bare;
use fairtrial_tests::{Gate, PATIENCE, Process, Story, is_alone_with, json, note, wait_until};

use crate::process::script;

const STEP: &str = "FAIRTRIAL_TEST_STEP";
const DAY_S: i64 = 86_400;

/// EX-53, SB-9: neither fires a deadline that is an hour away, nor postpones one that is near.
#[test]
fn a_step_of_the_wall_clock_moves_no_deadline() {
    if std::env::var_os(STEP).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be had");
        return runtime.block_on(calls_under_a_stepped_clock());
    }
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let Some(library) = compile(dir.path()) else {
        return note("skipped: no C compiler (`cc`) to make a stepped clock with");
    };
    is_alone_with(
        "wall_clock::a_step_of_the_wall_clock_moves_no_deadline",
        |command| {
            command
                .env("LD_PRELOAD", &library)
                .env(STEP, dir.path().join("step"));
        },
    );
}

async fn calls_under_a_stepped_clock() {
    let library = std::env::var("LD_PRELOAD").expect("set by the test");
    let step_file = PathBuf::from(std::env::var_os(STEP).expect("set by the test"));
    let step = |seconds: i64| {
        std::fs::write(&step_file, seconds.to_string()).expect("a file can be written");
    };
    let files = Story::new();
    let launcher = script(
        &files,
        "launcher",
        &format!(
            "#!/bin/sh\nLD_PRELOAD='{library}' {STEP}='{}' exec '{}'\n",
            step_file.display(),
            beside_the_tests("fairtrial-launcher").display()
        ),
    );
    let real_s = unix_s();
    step(400 * DAY_S);
    let story = Story::with(|config| config.launcher = Some(launcher.into()));
    let gate = Gate::new(&story, "gate");
    let limited = |mut call: Call, timeout_s| {
        call.timeout = Some(Duration::from_secs(timeout_s));
        call
    };
    let submit = |call| story.backend.submit(call).expect("taken");

    let patient = submit(limited(gate.reuse_call(), 3600));
    gate.reached_by(1).await;
    let launcher = Process::find(gate.arrived()[0]).expect("it waits").parent();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", launcher.pid)).expect("it is ours");
    assert!(
        maps.contains(&library),
        "the launcher has the stepped clock"
    );

    for days in [800, 0] {
        // Set before the step, and near: not postponed by it.
        let begun = story.events().len();
        let short = submit(limited(bare::command(["sleep", "50"]), 1));
        wait_until("it runs", || {
            let events = story.events();
            events[begun..]
                .iter()
                .any(|event| matches!(event, Event::Start { .. }))
        })
        .await;
        let mut waiting = bare::command(["true"]); // no slot is free
        waiting.queue_timeout = Some(Duration::from_millis(200));
        let waiting = submit(waiting);
        step(days * DAY_S);
        let queued = ended(waiting).await;
        assert_eq!(queued.error.expect("it says why").kind, "QueueTimeout");
        assert_eq!(ended(short).await.verdict, Verdict::Timeout);
        // Whatever woke engine and launcher: the other call's hour is not over.
        assert_eq!(
            ended(submit(bare::command(["true"]))).await.verdict,
            Verdict::Ok
        );
    }
    gate.open();
    let outcome = ended(patient).await;
    assert_eq!(json(&outcome), "through");
    let wall_ns = outcome.metrics.wall_ns.expect("measured");
    assert!(wall_ns < 3600 * 1_000_000_000, "{wall_ns} ns");
    let started_ns = outcome.metrics.started_at_ns.expect("measured");
    let ahead_s = i64::try_from(started_ns / 1_000_000_000).expect("small") - real_s;
    assert!(ahead_s >= 400 * DAY_S, "the engine has the stepped clock");
    story.end().await;
}

async fn ended(call: Execution) -> Outcome {
    let answer = tokio::time::timeout(PATIENCE, call).await;
    answer.expect("it resolves in time").expect("an outcome")
}

fn compile(dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/step_the_wall_clock.c");
    let library = dir.join("step_the_wall_clock.so");
    #[expect(clippy::disallowed_methods, reason = "a test's own tool, no candidate")]
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-o"]);
    let compiled = command.arg(&library).arg(&source).status().ok()?;
    assert!(compiled.success(), "it is plain C");
    Some(library)
}

/// Binaries lie one above the tests; `.ci/test` builds them first.
pub(crate) fn beside_the_tests(name: &str) -> PathBuf {
    let path = std::env::current_exe().expect("this process has a program");
    let deps = path.parent().expect("it lies in a directory");
    deps.parent().expect("of the build").join(name)
}

#[expect(clippy::disallowed_methods, reason = "the clock under test")]
fn unix_s() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(now.expect("after 1970").as_secs()).expect("small")
}
