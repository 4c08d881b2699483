//! What faults cost: the table of EX-23.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

use fairtrial_exec::{Call, EngineError, Event, Exit, ExitReason, Outcome, Streams, Verdict, Work};
use fairtrial_tests::bare;
use fairtrial_tests::{Gate, PATIENCE, Process, Story, json, running_with, wait_until};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit, setrlimit};

use crate::process::{launcher, script, with_python, worker};

const ONE: &str = "def f(): return 1\n";
const BREAK_FRAMES: &str = include_str!("../../programs/break_frames.py");

fn exits(events: &[Event]) -> Vec<(ExitReason, Option<Exit>)> {
    let exits = events.iter().filter_map(|event| match event {
        Event::WorkerExit { reason, status, .. } => Some((*reason, *status)),
        _ => None,
    });
    exits.collect()
}

/// EX-23
#[tokio::test]
async fn a_worker_that_dies_idle_costs_no_call() {
    let story = Story::new();
    let (_, idle) = launcher(&story).await;
    idle.signal(Signal::KILL);
    wait_until("its end is told", || !exits(&story.events()).is_empty()).await;
    assert_eq!(
        exits(&story.events()),
        [(ExitReason::Crashed, Some(Exit::Signal(9)))]
    );
    let next = story.reuse(ONE, "[]").await;
    assert_eq!(json(&next), 1);
    assert_ne!(worker(&next), idle);
    story.end().await;
}

/// EX-23: the call that follows at once may find the worker dead; it is not charged.
#[tokio::test]
async fn a_worker_that_dies_as_it_is_given_a_call_costs_no_call() {
    let story = Story::new();
    for _ in 0..30 {
        let before = story.reuse(ONE, "[]").await;
        worker(&before).signal(Signal::KILL);
        assert_eq!(json(&story.reuse(ONE, "[]").await), 1);
    }
    story.end().await;
}

/// EX-23
#[tokio::test]
async fn a_worker_that_dies_in_a_call_costs_that_call() {
    let story = Story::new();
    let gate = Gate::new(&story, "gate");
    let sibling = story.backend.submit(gate.reuse_call()).expect("taken");
    gate.reached_by(1).await;
    for (sin, verdict, exit) in [
        (
            "os.kill(os.getpid(), 11)",
            Verdict::Signal,
            Exit::Signal(11),
        ),
        ("os._exit(3)", Verdict::Exit, Exit::Code(3)),
        ("os._exit(0)", Verdict::NoResult, Exit::Code(0)),
    ] {
        let source = format!("import os\ndef f(): {sin}\n");
        for make in [Story::call, Story::reuse_call] {
            let outcome = story.run(make(&source, "[]")).await;
            assert_eq!((outcome.verdict, outcome.exit), (verdict, Some(exit)));
            assert_eq!(
                json(&story.run(make(ONE, "[]")).await),
                1,
                "the slot is refilled"
            );
        }
    }
    gate.open();
    assert_eq!(json(&sibling.await.expect("runs")), "through");
    story.end().await;
}

/// EX-23
#[tokio::test]
async fn a_call_without_an_ack_goes_to_another_worker_once() {
    let story = Story::with(|config| config.ack_timeout = Duration::from_millis(300));
    let gate = Gate::new(&story, "gate");
    // Two workers that are kept, both stopped by somebody.
    let both = [gate.reuse_call(), gate.reuse_call()]
        .map(|call| story.backend.submit(call).expect("taken"));
    gate.reached_by(2).await;
    gate.open();
    let mut stopped = Vec::new();
    for call in both {
        stopped.push(worker(&call.await.expect("runs")));
    }
    let stop = async |process: Process| {
        process.signal(Signal::STOP);
        wait_until("it is stopped", || process.is_stopped()).await;
    };
    stop(stopped[0]).await;
    stop(stopped[1]).await;
    let outcome = story.reuse(ONE, "[]").await;
    assert_eq!(outcome.verdict, Verdict::SetupFailed, "{:?}", outcome.error);
    let message = outcome.error.expect("it says why").message;
    assert!(message.contains("2 workers did not begin"), "{message}");
    assert!(!stopped.iter().any(|process| process.is_running()));

    let kept = worker(&story.reuse(ONE, "[]").await);
    stop(kept).await;
    assert_eq!(json(&story.reuse(ONE, "[]").await), 1, "the second time");
    let exits = exits(&story.end().await);
    assert_eq!(
        exits[..3],
        [(ExitReason::Crashed, Some(Exit::Signal(9))); 3]
    );
}

/// EX-23: a stopped zygote is not waited for without end, neither by calls nor by their cancellation.
#[tokio::test]
async fn a_zygote_that_does_not_fork_is_replaced() {
    let story = Story::with(|config| config.ack_timeout = Duration::from_millis(300));
    let (launcher, idle) = launcher(&story).await;
    let children = launcher.children().into_iter();
    let zygote: Vec<_> = children.filter(|child| *child != idle).collect();
    zygote[0].signal(Signal::STOP);
    wait_until("it is stopped", || zygote[0].is_stopped()).await;
    let waiting = story.backend.submit(Story::call(ONE, "[]")).expect("taken");
    let cancelled = story.backend.submit(Story::call(ONE, "[]")).expect("taken");
    cancelled.cancel();
    for (call, verdict) in [(waiting, Verdict::Ok), (cancelled, Verdict::Cancelled)] {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let outcome = answer.expect("it resolves").expect("an outcome");
        assert_eq!(outcome.verdict, verdict);
    }
    story.end().await;
}

/// EX-23
#[tokio::test]
async fn a_malformed_or_oversized_frame_costs_that_call() {
    let story = Story::new();
    for how in [
        "magic",
        "version",
        "kind",
        "oversized",
        "misplaced",
        "closed",
    ] {
        for make in [Story::call, Story::reuse_call] {
            let outcome = story.run(make(BREAK_FRAMES, &format!("[{how:?}]"))).await;
            assert_eq!(
                outcome.verdict,
                Verdict::BadResult,
                "{how}: {:?}",
                outcome.error
            );
            let pid = outcome.metrics.worker_pid.expect("it ran");
            assert!(Process::find(pid).is_none_or(|process| !process.is_running()));
            assert_eq!(json(&story.run(make(ONE, "[]")).await), 1);
        }
    }
    let crashed = exits(&story.end().await);
    let crashed = crashed
        .iter()
        .filter(|(reason, _)| *reason == ExitReason::Crashed);
    assert_eq!(crashed.count(), 12);
}

/// EX-23
#[tokio::test]
async fn the_launchers_death_costs_the_acknowledged_calls_and_no_process_survives_it() {
    let story = Story::with(|config| config.max_workers = 3);
    let (launcher, idle) = launcher(&story).await;
    let gate = Gate::new(&story, "gate");
    let linger = include_str!("../../programs/outlive_everybody.py");
    let begun = story.path().join("begun");
    let arguments = serde_json::json!([begun]).to_string();
    let submit = |call| story.backend.submit(call).expect("taken");
    let acknowledged = [
        submit(gate.call()),
        submit(gate.reuse_call()),
        submit(Story::call(linger, &arguments)),
    ];
    let queued = [
        submit(Story::call(ONE, "[]")),
        submit(Story::reuse_call(ONE, "[]")),
    ];
    gate.reached_by(2).await;
    wait_until("all have begun", || begun.exists()).await;
    let below = launcher.descendants();
    assert!(below.len() >= 5, "{below:?}");

    launcher.signal(Signal::KILL);
    for call in acknowledged {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let answer = answer.expect("it resolves");
        assert!(
            matches!(answer, Err(EngineError::LauncherLost)),
            "{answer:?}"
        );
    }
    for call in queued {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        assert_eq!(json(&answer.expect("it resolves").expect("runs")), 1);
    }
    wait_until("nothing of the old launcher is left", || {
        !below.iter().any(|process| process.is_running())
    })
    .await;
    let (next, _) = self::launcher(&story).await;
    assert_ne!(next, launcher);
    assert!(!idle.is_running());
    let events = story.end().await;
    let count = |name| events.iter().filter(|event| event.name() == name).count();
    assert_eq!(count("submit"), count("complete"));
    assert_eq!(count("worker_start"), count("worker_exit"));
}

/// EX-23: a launcher that dies with nothing to do costs nothing, and nobody waits for its workers.
#[tokio::test]
async fn the_launchers_death_among_idle_workers_costs_nothing() {
    let story = Story::new();
    let (launcher, idle) = launcher(&story).await;
    launcher.signal(Signal::KILL);
    wait_until("the idle worker has died with it", || !idle.is_running()).await;
    assert_eq!(json(&story.reuse(ONE, "[]").await), 1);
    let (second, _) = self::launcher(&story).await;
    second.signal(Signal::KILL);
    let events = story.end().await; // must not wait for the dead
    let count = |name| events.iter().filter(|event| event.name() == name).count();
    assert_eq!(count("worker_start"), count("worker_exit"));
}

/// EX-23: many deaths in the middle of many calls; each call has one answer and nothing stays behind.
#[tokio::test]
async fn launchers_that_die_at_random_lose_no_call() {
    let story = Story::with(|config| config.max_workers = 4);
    let (mut launcher, _) = launcher(&story).await;
    for round in 0..5_u64 {
        let calls: Vec<_> = (0..12)
            .map(|number| {
                let make = [Story::call, Story::reuse_call][number % 2];
                let mut call = make(ONE, "[]");
                if number % 3 == 0 {
                    call = bare::command(["true"]);
                }
                story.backend.submit(call).expect("taken")
            })
            .collect();
        let moment = Duration::from_micros(round * 1700);
        tokio::time::sleep(moment).await; // no wait for anything: any moment will do
        let below = launcher.descendants();
        launcher.signal(Signal::KILL);
        for call in calls {
            match tokio::time::timeout(PATIENCE, call)
                .await
                .expect("it resolves")
            {
                Ok(outcome) => assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error),
                Err(EngineError::LauncherLost) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // Until they have died, the launcher's workers may still begin a call.
        wait_until("all died with their launcher", || {
            !launcher.is_running() && !below.iter().any(|process| process.is_running())
        })
        .await;
        (launcher, _) = self::launcher(&story).await;
    }
    let events = story.end().await;
    let count = |name| events.iter().filter(|event| event.name() == name).count();
    assert_eq!(count("submit"), count("complete"));
    assert_eq!(count("worker_start"), count("worker_exit"));
}

/// For a test that has a process to itself.
fn on_this_thread(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    runtime.block_on(work);
}

fn allow_few_descriptors() {
    let few = Rlimit {
        current: Some(200),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    setrlimit(Resource::Nofile, few).expect("a soft limit can be lowered");
}

/// All descriptors that can be had.
fn hoard() -> Vec<std::os::fd::OwnedFd> {
    std::iter::from_fn(|| rustix::io::dup(rustix::stdio::stdin()).ok()).collect()
}

/// EX-23, SB-21, FA-11: the limit on descriptors is the process's own, so the test has a process to itself.
#[test]
fn a_spawn_that_fails_for_want_of_descriptors_is_tried_again_and_then_an_engine_error() {
    if !fairtrial_tests::is_alone(
        "faults::a_spawn_that_fails_for_want_of_descriptors_is_tried_again_and_then_an_engine_error",
    ) {
        return;
    }
    on_this_thread(async {
        let story = Story::with(|config| {
            config.max_workers = 1;
            config.fork_ahead = false; // each call needs descriptors of its own
        });
        assert_eq!(json(&story.source(ONE, "[]").await), 1);
        allow_few_descriptors();

        // For a while: nobody notices.
        for _ in 0..5 {
            let held = hoard();
            let waiting = [Story::call(ONE, "[]"), bare::command(["true"])]
                .map(|call| story.backend.submit(call).expect("taken"));
            tokio::time::sleep(Duration::from_millis(20)).await; // far below the three tries
            drop(held);
            for call in waiting {
                assert_eq!(call.await.expect("runs").verdict, Verdict::Ok);
            }
        }

        // For good: the call at the head is told.
        let held = hoard();
        let answer = story.try_run(Story::call(ONE, "[]")).await;
        drop(held);
        assert!(
            matches!(&answer, Err(EngineError::Spawn { source, .. })
                if source.raw_os_error() == Some(Errno::MFILE.raw_os_error())),
            "{answer:?}"
        );
        assert_eq!(json(&story.source(ONE, "[]").await), 1);
        story.end().await;
    });
}

/// FA-11, FA-12: they wait for an interpreter that cannot be started, and nothing else happens that would wake the engine.
#[test]
fn calls_behind_one_that_was_given_up_for_want_of_descriptors_are_answered_too() {
    if !fairtrial_tests::is_alone(
        "faults::calls_behind_one_that_was_given_up_for_want_of_descriptors_are_answered_too",
    ) {
        return;
    }
    on_this_thread(async {
        let story = Story::with(|config| config.max_workers = 2);
        let outcome = story.run(bare::command(["true"])).await;
        assert_eq!(outcome.verdict, Verdict::Ok, "the launcher is there");
        allow_few_descriptors();
        let held = hoard();
        let waiting: Vec<_> = (0..4)
            .map(|_| story.backend.submit(Story::call(ONE, "[]")).expect("taken"))
            .collect();
        for call in waiting {
            let answer = tokio::time::timeout(Duration::from_secs(60), call).await;
            let answer = answer.expect("the engine does not sleep for ever");
            assert!(
                matches!(&answer, Err(EngineError::Spawn { source, .. })
                    if source.raw_os_error() == Some(Errno::MFILE.raw_os_error())),
                "{answer:?}"
            );
        }
        drop(held);
        assert_eq!(json(&story.source(ONE, "[]").await), 1);
        story.end().await;
    });
}

/// EX-23, SB-8: its arguments go to the launcher in a file, for which one descriptor more must be had.
#[test]
fn a_command_with_long_arguments_resolves_however_few_descriptors_are_left() {
    if !fairtrial_tests::is_alone(
        "faults::a_command_with_long_arguments_resolves_however_few_descriptors_are_left",
    ) {
        return;
    }
    on_this_thread(async {
        let story = Story::with(|config| config.max_workers = 1);
        let long = "x".repeat(100_000);
        let command = || bare::command(["true", &long]);
        assert_eq!(story.run(command()).await.verdict, Verdict::Ok);
        allow_few_descriptors();
        let mut failed = 0;
        for left in 0..16 {
            let mut held = hoard();
            held.truncate(held.len() - left);
            match story.try_run(command()).await {
                Ok(outcome) => assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error),
                Err(_) => failed += 1,
            }
        }
        assert!(failed > 0, "descriptors were never short");
        assert_eq!(story.run(command()).await.verdict, Verdict::Ok);
        story.end().await;
    });
}

/// EX-23, SB-21, FA-11: processes are short for one user, so the test is a user's if root runs it.
#[test]
fn a_spawn_that_fails_for_want_of_processes_is_tried_again_and_then_an_engine_error() {
    const NOBODY: u32 = 65_534;
    let is_root = rustix::process::geteuid().is_root();
    let alone = fairtrial_tests::is_alone_with(
        "faults::a_spawn_that_fails_for_want_of_processes_is_tried_again_and_then_an_engine_error",
        |command| {
            if is_root {
                command.uid(NOBODY).gid(NOBODY);
            }
        },
    );
    if !alone {
        return;
    }
    on_this_thread(async {
        let story = Story::with(|config| config.fork_ahead = false);
        let launcher = launcher_of_commands(&story).await;
        let before = getrlimit(Resource::Nproc);
        // Of the launcher alone; a user has more processes than one anyway.
        let allow = |most| {
            let pid = Pid::from_raw(launcher.pid.cast_signed());
            prlimit(pid, Resource::Nproc, most).expect("it is of the same user");
        };
        let none = Rlimit {
            current: Some(1),
            maximum: before.maximum,
        };
        let is_short = |answer: &Result<Outcome, EngineError>| {
            matches!(answer, Err(EngineError::Spawn { source, .. })
                if source.raw_os_error() == Some(Errno::AGAIN.raw_os_error()))
        };

        // For good: the call is told.
        allow(none);
        let answer = story.try_run(cat(LONG)).await;
        assert!(is_short(&answer), "{answer:?}");
        allow(before);
        assert_eq!(story.run(cat(LONG)).await.stdout.bytes(), LONG);

        // For a while: nobody notices, and the command has all of its input. On a busy machine the while may last
        // longer than the tries do; some round is short enough.
        let mut rounds = 0..20;
        let went_on = async || {
            allow(none);
            let slept = launcher.status("voluntary_ctxt_switches");
            let call = story.backend.submit(cat(LONG)).expect("taken");
            wait_until("the launcher has tried, and sleeps", || {
                launcher.status("voluntary_ctxt_switches") > slept
            })
            .await;
            allow(before);
            let answer = call.await;
            let read = answer
                .as_ref()
                .is_ok_and(|outcome| outcome.stdout.bytes() == LONG);
            assert!(read || is_short(&answer), "{answer:?}");
            read
        };
        while !went_on().await {
            rounds.next().expect("not slow every time");
        }
        story.end().await;
    });
}

/// More than a pipe holds.
const LONG: &[u8] = &[b'x'; 200_000];

fn cat(input: &[u8]) -> Call {
    let mut call = bare::command(["cat"]);
    if let Work::Command(work) = &mut call.work {
        work.stdin = input.to_vec();
    }
    call
}

/// The launcher of a story's backend, whose next call makes a scratch directory of its own.
async fn launcher_of_commands(story: &Story) -> Process {
    let told = story
        .run(bare::command(["sh", "-c", "touch used; echo $PPID"]))
        .await;
    let pid = told.stdout.text().trim().parse().expect("a number");
    wait_until("its directory is removed", || {
        scratch_directories(story) == 0
    })
    .await;
    Process::find(pid).expect("the launcher stays")
}

fn scratch_directories(story: &Story) -> usize {
    let below = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let roots = below(story.path().join("spill"));
    roots.map(|root| below(root.path()).count()).sum()
}

/// EX-23, EX-96: the launcher dies when it has been asked for a command, before it has started one.
#[tokio::test]
async fn a_command_that_is_tried_again_has_its_input_again() {
    let story = Story::new();
    for given in [false, true] {
        let launcher = launcher_of_commands(&story).await;
        launcher.signal(Signal::STOP);
        wait_until("it is stopped", || launcher.is_stopped()).await;
        let call = if given {
            let (input, mut writer) = std::io::pipe().expect("a pipe can be had");
            writer
                .write_all(&LONG[..50_000])
                .expect("a pipe holds so much");
            let streams = Streams {
                output: None,
                input: Some(input.into()),
            };
            story.backend.submit_with(bare::command(["cat"]), streams)
        } else {
            story.backend.submit(cat(LONG))
        };
        wait_until("it was asked", || scratch_directories(&story) == 1).await;
        launcher.signal(Signal::KILL);
        let answer = tokio::time::timeout(PATIENCE, call.expect("taken")).await;
        let outcome = answer.expect("it resolves").expect("an outcome");
        let wanted = if given { &LONG[..50_000] } else { LONG };
        assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
        assert!(outcome.stdout.bytes() == wanted, "given: {given}");
    }
    story.end().await;
}

/// EX-23, SB-13
#[tokio::test]
async fn five_start_failures_in_a_row_fail_the_keys_queued_calls_and_it_is_tried_again() {
    let story = Story::new();
    let tries = story.path().join("tries");
    let mended = story.path().join("mended");
    let dying = script(
        &story,
        "dying-python",
        &format!(
            "#!/bin/sh\nif [ -e '{mended}' ]; then exec python3 \"$@\"; fi\n\
             echo try >> '{tries}'\necho 'cannot load libpython' >&2\nexit 127\n",
            mended = mended.display(),
            tries = tries.display()
        ),
    );
    let call = || with_python(Story::call(ONE, "[]"), &dying);
    let queued = [call(), call()].map(|call| story.backend.submit(call).expect("taken"));
    let other = story.backend.submit(Story::call(ONE, "[]")).expect("taken");
    for call in queued {
        let outcome = call.await.expect("an outcome");
        assert_eq!(outcome.verdict, Verdict::SetupFailed);
        let message = outcome.error.expect("it says why").message;
        assert!(message.contains("cannot load libpython"), "{message}");
    }
    let tried = || std::fs::read_to_string(&tries).map_or(0, |text| text.lines().count());
    assert_eq!(tried(), 5);
    assert_eq!(json(&other.await.expect("runs")), 1);
    assert_eq!(story.run(call()).await.verdict, Verdict::SetupFailed);
    assert_eq!(tried(), 10, "tried again at the next submit");
    std::fs::write(&mended, "").expect("a file can be written");
    assert_eq!(json(&story.run(call()).await), 1);
    story.end().await;
}

/// EX-23: also what carries no mark, wherever the engine's process has no other children: in the command line.
#[tokio::test]
async fn what_wiped_its_environment_does_not_outlive_a_killed_launcher() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let seconds = format!("61.{:07}", std::process::id());
    let source = format!(
        "import subprocess, time\ndef f(mark):\n    subprocess.Popen(['sh', '-c', 'env -i setsid sleep {seconds} & exit 0'])\n    \
         open(mark, 'w').close()\n    time.sleep(50)"
    );
    let mut engine = fairtrial_tests::Cli::new(["batch", "-", "-j", "3"])
        .env("FAIRTRIAL_SPILL_DIR", dir.path().join("spill"))
        .start();
    let mark = |number: usize| dir.path().join(format!("began-{number}"));
    for number in 0..3 {
        let call = serde_json::json!({"source": source, "function": "f", "args": [mark(number)]});
        engine.say(&call.to_string());
    }
    wait_until("the daemons run", || {
        (0..3).all(|number| mark(number).exists()) && running_with(&seconds).len() >= 3
    })
    .await;
    let process = Process::find(engine.pid().as_raw_nonzero().get().cast_unsigned());
    let launcher = process.expect("it runs").children();
    assert_eq!(launcher.len(), 1);
    launcher[0].signal(Signal::KILL);
    wait_until("no daemon is left", || running_with(&seconds).is_empty()).await;
    let ended = engine.end();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
}
