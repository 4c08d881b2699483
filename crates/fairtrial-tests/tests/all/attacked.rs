//! Hosts and calls that were found to break the engine: each is here so that it does so no more.

use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fairtrial_exec::{
    Answer, Backend, Call, EngineError, Event, ExitReason, Listener, LocalBackend, LocalConfig,
    Shutdown, Streams, Verdict,
};
use fairtrial_tests::{
    Census, Gate, PATIENCE, Shell, Story, bare, is_alone, json, note, wait_until,
};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json as j;

use crate::lifecycle::ONE;
use crate::process::{launcher, script, worker};
use crate::wall_clock::beside_the_tests;

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    let within = tokio::time::timeout(PATIENCE, what).await;
    within.expect("it comes in time")
}

/// `fairtrial exec` begun by a shell that first does `before`.
fn runs_after(before: &str) {
    let shell = Shell::new();
    shell.write("one.py", "def f(): return 1\n");
    let script = format!("{before} || exit 99\nexec \"$@\"\n");
    let script = shell.write("begin.sh", &script);
    let script = script.to_str().expect("a temporary path is text");
    let call = ["exec", "one.py", "--function", "f", "--sandbox", "none"];
    let run = shell.fairtrial(call).under_all(&["sh", script]).run();
    assert_eq!((run.code, &*run.stdout), (Some(0), "1\n"), "{}", run.stderr);
    shell.assert_nothing_left();
}

/// With SIGCHLD ignored the kernel reaps children unasked: nobody would ever hear how they ended.
#[test]
fn a_host_that_ignores_sigchld_can_run_calls() {
    runs_after("trap '' CHLD");
}

/// A limit on descriptors below the numbers that were once counted on.
#[test]
fn a_host_with_few_descriptors_can_run_calls() {
    runs_after("ulimit -n 64");
}

// ---- the launcher ------------------------------------------------------------------------------------------------

/// A call of the same user may stop the launcher, which keeps the deadlines: it is woken.
#[tokio::test]
async fn a_call_that_stops_the_launcher_still_times_out() {
    let story = Story::new();
    let source = "
import os, signal, time
def f():
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)
";
    for make in [Story::call, Story::reuse_call] {
        let mut call = make(source, "[]");
        call.timeout = Some(Duration::from_millis(200));
        assert_eq!(story.run(call).await.verdict, Verdict::Timeout);
    }
    assert_eq!(json(&story.source(ONE, "[]").await), 1);
    story.end().await;
}

/// Nor does the end wait for a launcher that is stopped.
#[tokio::test]
async fn a_backend_with_a_stopped_launcher_can_end() {
    let story = Story::new();
    let (launcher, _) = launcher(&story).await;
    launcher.signal(Signal::STOP);
    wait_until("it is stopped", || launcher.is_stopped()).await;
    story.end().await;
    assert!(!launcher.is_running());
}

#[tokio::test]
async fn a_launcher_that_dies_before_its_greeting_is_reaped_and_started_once_more() {
    if !is_alone(
        "attacked::a_launcher_that_dies_before_its_greeting_is_reaped_and_started_once_more",
    ) {
        return;
    }
    let files = Story::new();
    let real = beside_the_tests("fairtrial-launcher");
    let text = format!(
        "#!/bin/sh\nmkdir '{}' && exit 1\nexec '{}'\n",
        files.path().join("once").display(),
        real.display()
    );
    let again = script(&files, "again", &text);
    let never = script(&files, "never", "#!/bin/sh\nexit 1\n");
    let children = || Census::take(files.path()).children;

    let story = Story::with(|config| config.launcher = Some(again.into()));
    assert_eq!(json(&story.source(ONE, "[]").await), 1, "the second one");
    assert_eq!(children(), 1, "the first one is reaped");
    story.end().await;

    let story = Story::with(|config| config.launcher = Some(never.into()));
    let answer = story.try_run(Story::call(ONE, "[]")).await;
    assert!(
        matches!(answer, Err(EngineError::Launcher { .. })),
        "{answer:?}"
    );
    assert_eq!(children(), 0);
    story.end().await;
}

// ---- the engine --------------------------------------------------------------------------------------------------

#[tokio::test]
async fn times_that_no_clock_can_hold_are_never() {
    let story = Story::with(|config| config.idle_timeout = Duration::MAX);
    for make in [Story::call, Story::reuse_call] {
        let mut call = make(ONE, "[]");
        call.queue_timeout = Some(Duration::MAX);
        call.timeout = Some(Duration::MAX);
        assert_eq!(json(&story.run(call).await), 1);
    }
    let how = Shutdown {
        kill_after: Some(Duration::MAX),
        ..Shutdown::default()
    };
    in_time(story.backend.shutdown(how)).await;
}

/// Breaks its promise not to panic.
struct Panics {
    #[expect(dead_code, reason = "dropping it tells")]
    dropped: tokio::sync::oneshot::Sender<()>,
}

impl Listener for Panics {
    fn began(&self, _worker_id: &str) {
        panic!("a listener that panics");
    }

    fn ended(self: Box<Self>, _answer: Answer) {}
}

/// A bug in the engine is no reason to wait for ever: neither for a call nor for the end.
#[tokio::test]
async fn an_engine_that_panics_answers_every_call_and_ends() {
    let story = Story::with(|config| config.max_workers = 1);
    let (_, idle) = launcher(&story).await;
    let launcher = idle.parent();
    let (dropped, listener_dropped) = tokio::sync::oneshot::channel();
    let listener = Box::new(Panics { dropped });
    let gate = Gate::new(&story, "gate");
    let (call, streams) = (Story::reuse_call(ONE, "[]"), Streams::default());
    let broken = story.backend.submit_for(call, streams, listener);
    let queued = story.backend.submit(gate.call()).expect("taken");
    broken.expect("taken");
    assert!(matches!(in_time(queued).await, Err(EngineError::ShutDown)));
    assert!(in_time(listener_dropped).await.is_err(), "it was not told");
    let later = story.try_run(Story::call(ONE, "[]")).await;
    assert!(matches!(later, Err(EngineError::ShutDown)), "{later:?}");
    story.end().await;
    assert!(!launcher.is_running() && !idle.is_running());
}

/// A handler cannot wait for its own end.
#[tokio::test]
async fn a_handler_may_shut_the_backend_down() {
    let mut config = LocalConfig::from_env().expect("the test's environment is sound");
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    config.spill_dir = dir.path().join("spill");
    let backend = Arc::new(LocalBackend::new(config));
    let (sender, returned) = mpsc::channel();
    let ours = Arc::downgrade(&backend);
    let handler = move |event: &Event| {
        // The second time the engine waits for the handlers already.
        if let (Event::Complete { .. } | Event::Shutdown, Some(backend)) = (event, ours.upgrade()) {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.build().expect("a runtime can be had");
            runtime.block_on(backend.shutdown(Shutdown::default()));
            sender.send(event.name()).ok(); // a test that failed does not listen
        }
    };
    let subscribed = backend.subscribe(Box::new(handler));
    subscribed.expect("a thread can be had");
    let outcome = in_time(backend.execute(bare::command(["true"]))).await;
    assert_eq!(outcome.expect("runs").verdict, Verdict::Ok);
    in_time(backend.shutdown(Shutdown::default())).await;
    for event in ["complete", "shutdown"] {
        assert_eq!(returned.recv_timeout(PATIENCE), Ok(event));
    }
}

/// Every thread that the engine would like is one that it may not get.
#[tokio::test]
async fn without_a_thread_to_be_had_there_are_errors_and_an_end() {
    if !is_alone("attacked::without_a_thread_to_be_had_there_are_errors_and_an_end") {
        return;
    }
    let story = Story::new();
    let leave_a_file = "def f(): open('left', 'w').close(); return 1\n";
    assert_eq!(json(&story.reuse(leave_a_file, "[]").await), 1);
    let before = getrlimit(Resource::Nproc);
    let none = Rlimit {
        current: Some(1),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nproc, none).expect("a soft limit can be lowered");
    if std::thread::Builder::new().spawn(|| {}).is_ok() {
        setrlimit(Resource::Nproc, before).expect("a soft limit can be raised");
        note("skipped: this user's processes and threads are not limited");
        drop(story.end().await);
        return;
    }
    assert_eq!(json(&story.reuse(leave_a_file, "[]").await), 1);
    let config = LocalConfig::from_env().expect("the test's environment is sound");
    let refused = LocalBackend::new(config).subscribe(Box::new(|_| {}));
    assert!(
        matches!(refused, Err(EngineError::Io { .. })),
        "{refused:?}"
    );
    story.end().await;
    setrlimit(Resource::Nproc, before).expect("a soft limit can be raised");
}

// ---- names -------------------------------------------------------------------------------------------------------

/// The kernel's names are bytes; not all of them are text.
#[tokio::test]
async fn names_that_are_not_utf_8_arrive_as_they_are() {
    let story = Story::new();
    let odd = OsStr::from_bytes(b"d\xff");
    let dir = story.path().join(odd);
    std::fs::create_dir(&dir).expect("a directory can be made");
    let on_odd_terms = |mut call: Call| {
        call.cwd = Some(dir.clone());
        call.env.insert("ODD".into(), Some(odd.into()));
        call
    };
    let show = "printf '%s' \"$1 $ODD ${PWD##*/}\" | od -An -v -tx1";
    let words = ["sh", "-c", show, "sh"].map(OsStr::new);
    let call = bare::command(words.into_iter().chain([odd]));
    let outcome = story.run(on_odd_terms(call)).await;
    let shown = "64 ff 20 64 ff 20 64 ff";
    assert_eq!(outcome.stdout.text().trim(), shown, "{:?}", outcome.error);

    let source = "
import os, sys
def f():
    found = os.environ['ODD'], os.getcwd(), sys.path[0]
    return [repr(os.path.basename(os.fsencode(name))) for name in found]
";
    for make in [Story::call, Story::reuse_call] {
        let mut call = on_odd_terms(make(source, "[]"));
        call.python_mut().expect("a source call").python_path = vec![dir.clone()];
        let (outcome, name) = (story.run(call).await, r"b'd\xff'");
        assert_eq!(json(&outcome), j!([name, name, name]));
    }
    story.end().await;
}

// ---- workers -----------------------------------------------------------------------------------------------------

/// A call can spoil its worker for all later ones; those should not all pay for it.
#[tokio::test]
async fn a_kept_worker_that_blames_the_set_up_twice_in_a_row_is_replaced() {
    let story = Story::with(|config| config.max_workers = 1);
    let call = || Story::reuse_call(ONE, "[]");
    let first = worker(&story.run(call()).await);
    let nowhere = || {
        let mut nowhere = call();
        nowhere.cwd = Some("/no/such/directory".into());
        nowhere
    };
    assert_eq!(story.run(nowhere()).await.verdict, Verdict::SetupFailed);
    assert_eq!(worker(&story.run(call()).await), first);
    for _ in 0..2 {
        assert_eq!(story.run(nowhere()).await.verdict, Verdict::SetupFailed);
    }
    assert_ne!(worker(&story.run(call()).await), first);
    let events = story.end().await;
    let ended = events.iter().find_map(|event| match event {
        Event::WorkerExit { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(ended, Some(ExitReason::AfterError));
}
