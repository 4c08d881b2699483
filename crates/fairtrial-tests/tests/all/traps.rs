//! Traps of the kernel and the rules that avoid them, each walked into (SB-32, SB-37, SB-48 to SB-62).

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use fairtrial_exec::linux::confine::{self, Birth, Means};
use fairtrial_exec::linux::spawn::spawn;
use fairtrial_exec::protocol::launcher::Confine;
use fairtrial_exec::{Backend, Call, Exit, Level, LocalBackend, LocalConfig, Sandbox, Verdict};
use fairtrial_tests::{Cli, Story, arguments, bare, json, note, program};
use rustix::process::{Pid, WaitOptions, geteuid, waitpid};
use serde_json::json as j;

use crate::environment::{as_nobody, unprivileged_cli};

const FORGER: &str = include_str!("../../programs/speak_for_the_shim.py");

fn at(level: Level, mut call: Call) -> Call {
    call.sandbox = Sandbox::new(level);
    call
}

/// SB-32: the reply is in the socket before the process dies, in whatever way.
#[tokio::test]
async fn what_a_process_dies_of_after_its_reply_has_no_say() {
    let story = Story::new();
    for death in ["a_reply_and_an_exit", "a_reply_and_a_crash"] {
        for _ in 0..10 {
            let outcome = story
                .run(bare::source(FORGER, death, arguments("[]")))
                .await;
            assert_eq!(json(&outcome), 1, "{death}");
            assert_eq!((outcome.verdict, outcome.exit), (Verdict::Ok, None));
        }
    }
    story.end().await;
}

/// SB-37: otherwise the kernel would refuse the seal, and each large value be copied.
#[tokio::test]
async fn a_kept_worker_holds_nothing_of_a_result_that_it_gave() {
    let held = "import os\ndef f(n):\n    links = []\n    for name in os.listdir('/proc/self/fd'):\n        \
                try:\n            links.append(os.readlink('/proc/self/fd/' + name))\n        except OSError:\n            pass\n    \
                maps = {line.split(None, 5)[5] for line in open('/proc/self/maps') if line.count(' ') > 5}\n    \
                files = [name for name in links + sorted(maps) if 'memfd:' in name or '(deleted)' in name]\n    \
                return files if n == 0 else b'x' * n\n";
    for cap in [u64::MAX, 1] {
        let story = Story::with(|config| {
            config.max_workers = 1;
            config.memfd_cap_bytes = Some(cap);
        });
        let before = story.reuse(held, "[0]").await;
        let large = story.reuse(held, "[3000000]").await;
        let after = story.reuse(held, "[0]").await;
        assert_eq!(after.metrics.worker_id, large.metrics.worker_id);
        assert_eq!(json(&after), json(&before));
        story.end().await;
    }
}

/// SB-48: threads of the host come and go; what they asked for goes on.
#[test]
fn a_call_outlives_the_thread_that_asked_for_it() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let mut config = LocalConfig::from_env().expect("the test's environment is sound");
    config.spill_dir = dir.path().join("spill");
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be had")
    };
    let asks = move || {
        runtime().block_on(async {
            let backend = LocalBackend::new(config);
            backend
                .execute(bare::command(["true"]))
                .await
                .expect("it runs"); // everything is started
            let nap = "import time\ndef f():\n    time.sleep(0.5)\n    return 'slept'\n";
            let calls = [Story::call(nap, "[]"), Story::reuse_call(nap, "[]")];
            let calls = calls.map(|call| backend.submit(call).expect("taken"));
            tokio::time::sleep(Duration::from_millis(100)).await; // they have begun
            (backend, calls)
        })
    };
    let (backend, calls) = std::thread::spawn(asks).join().expect("no panic");
    runtime().block_on(async {
        for call in calls {
            assert_eq!(
                json(&call.await.expect("the engine does its work")),
                "slept"
            );
        }
        drop(backend);
    });
}

/// SB-49: the change of user clears what was armed before it.
#[test]
fn another_user_still_dies_with_the_launcher() {
    if !geteuid().is_root() {
        return note("skipped: needs root, to become another user");
    }
    const PR_GET_PDEATHSIG: i32 = 2;
    let look = format!(
        "import ctypes, os; armed = ctypes.c_int(); ctypes.CDLL(None).prctl({PR_GET_PDEATHSIG}, ctypes.byref(armed)); \
         print(os.getuid(), armed.value)"
    );
    let means = Means {
        user: Some(65_534),
        ..Means::default()
    };
    let plan =
        confine::plan(&Confine::default(), means, Birth::Executed).expect("nothing of it can fail");
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe can be had");
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("always there"));
    let python = program(&[
        "env",
        "-i",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "python3",
        "-c",
        &look,
    ]);
    let started = spawn(&python, &[null(), writer, null()], plan, None).expect("it is started");
    waitpid(Pid::from_raw(started.pid), WaitOptions::empty()).expect("a child of ours");
    let mut said = String::new();
    let mut reader = std::fs::File::from(reader);
    reader.read_to_string(&mut said).expect("it is text");
    assert_eq!(said.trim(), "65534 9");
}

/// SB-50: `RLIMIT_NPROC` would not bind root, and for others would count what is none of the call's business.
#[tokio::test]
async fn a_limit_on_processes_binds_root_too_and_counts_the_calls_own() {
    let story = Story::new();
    let source = "import subprocess\ndef f(n):\n    some = [subprocess.Popen(['sleep', '30']) for _ in range(n)]\n    \
                  [one.kill() for one in some]\n    return len(some)\n";
    let neighbours = at(
        Level::Limits,
        bare::command(["sh", "-c", "for i in $(seq 30); do sleep 60 & done; wait"]),
    );
    let neighbours = story.backend.submit(neighbours).expect("taken");
    let limited = |n: u32| {
        let mut call = at(Level::Limits, Story::call(source, &j!([n]).to_string()));
        call.limits.processes = Some(20);
        call
    };
    assert_eq!(json(&story.run(limited(5)).await), 5);
    let outcome = story.run(limited(60)).await;
    assert_eq!(
        outcome.verdict,
        Verdict::ProcessLimit,
        "{:?}",
        outcome.error
    );
    neighbours.cancel();
    story.end().await;
}

/// SB-54: nobody holds its output any more, and it goes on.
#[tokio::test]
async fn the_end_of_the_output_is_not_the_end_of_the_call() {
    let story = Story::new();
    let script = "echo here; exec >&- 2>&-; sleep 0.3; exit 3";
    let outcome = story.run(bare::command(["sh", "-c", script])).await;
    assert_eq!(outcome.exit, Some(Exit::Code(3)));
    assert_eq!(outcome.stdout.text(), "here\n");
    assert!(outcome.metrics.wall_ns > Some(300_000_000));
    story.end().await;
}

/// SB-58: `RLIMIT_DATA` would not see it.
#[tokio::test]
async fn memory_that_is_shared_counts_as_memory() {
    let story = Story::new();
    let source = "import mmap, time\ndef f():\n    shared = mmap.mmap(-1, 300 << 20)\n    \
                  shared.write(bytes(300 << 20))\n    time.sleep(20)\n";
    let mut call = at(Level::Limits, Story::call(source, "[]"));
    call.limits.memory_bytes = Some(150 << 20);
    let outcome = story.run(call).await;
    assert_eq!(outcome.verdict, Verdict::MemoryLimit, "{:?}", outcome.error);
    story.end().await;
}

/// SB-58: each file is small, and the limit on files is none on their sum.
#[tokio::test]
async fn many_small_files_fill_the_quota_of_strict() {
    let story = Story::new();
    let source = "def f():\n    n = 0\n    while True:\n        open(str(n), 'wb').write(bytes(1 << 20))\n        n += 1\n";
    let mut call = at(Level::Strict, Story::call(source, "[]"));
    call.limits.file_bytes = Some(2 << 20);
    call.sandbox.scratch_bytes = Some(64 << 20);
    let outcome = story.run(call).await;
    assert_eq!(outcome.verdict, Verdict::DiskLimit, "{:?}", outcome.error);
    story.end().await;
}

/// SB-60: the command line and its launcher are not dumpable, and their user is nobody.
#[test]
fn an_unprivileged_user_has_namespaces_although_nobody_may_look_into_the_launcher() {
    let Some((program, dir)) = unprivileged_cli() else {
        return;
    };
    let mut command = as_nobody(&program);
    command
        .args([
            "exec",
            "--sandbox",
            "strict",
            "--",
            "sh",
            "-c",
            "echo pid $$",
        ])
        .env("FAIRTRIAL_SPILL_DIR", dir.path().join("spill"))
        .env("HOME", dir.path())
        .stdin(std::process::Stdio::null());
    let output = command.output().expect("it runs");
    let (said, complaint) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    // A launcher that nobody may look into would be refused with EACCES.
    if complaint.contains("userns") && !complaint.contains("EACCES") {
        return note(format!(
            "skipped: no user namespaces without privileges: {complaint}"
        ));
    }
    assert_eq!(String::from_utf8_lossy(&said), "pid 2\n", "{complaint}");
}

/// SB-68: what Docker's default filter refuses is refused here too.
#[cfg(target_arch = "x86_64")]
#[test]
fn in_a_container_limits_works_and_strict_fails_with_the_reason() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let container = dir.path().join("like_a_container.py");
    let text = include_str!("../../programs/like_a_container.py");
    std::fs::write(&container, text).expect("a file can be written");
    let source = dir.path().join("two.py");
    std::fs::write(&source, "def f():\n    return 2\n").expect("a file can be written");
    let [container, source] = [&container, &source].map(|path| path.to_str().expect("text"));
    let run = |arguments: &[&str]| {
        Cli::new(arguments.iter().copied())
            .current_dir(dir.path())
            .env("FAIRTRIAL_SPILL_DIR", dir.path().join("spill"))
            .under_all(&["python3", container])
            .run()
    };
    for level in ["none", "limits"] {
        let command = run(&["exec", "--sandbox", level, "--", "echo", "here"]);
        assert_eq!(command.stdout, "here\n", "{level}: {}", command.stderr);
        let function = run(&["exec", source, "--function", "f", "--sandbox", level]);
        assert_eq!(function.stdout, "2\n", "{level}: {}", function.stderr);
    }
    let strict = run(&["exec", "--sandbox", "strict", "--", "true"]);
    assert_eq!(strict.code, Some(3), "{}", strict.stderr);
    for word in ["setup_failed", "`userns`", "EPERM", "seccomp=unconfined"] {
        assert!(strict.stderr.contains(word), "{}", strict.stderr);
    }
}

/// SB-21, SB-68: a container's `/proc` has parts covered, and the kernel gives no uncovered one to those inside.
#[test]
fn where_nothing_can_be_mounted_strict_fails_with_the_reason() {
    if !geteuid().is_root() {
        return note("skipped: needs root, to cover a part of `/proc`");
    }
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let source = dir.path().join("two.py");
    std::fs::write(&source, "def f():\n    return 2\n").expect("a file can be written");
    let source = source.to_str().expect("a temporary path is text");
    let cover = "mount --bind /dev/null /proc/interrupts && exec \"$@\"";
    for arguments in [&["--", "true"][..], &[source, "--function", "f"]] {
        let strict = ["exec", "--sandbox", "strict"].iter().chain(arguments);
        let failed = Cli::new(strict.copied())
            .current_dir(dir.path())
            .env("FAIRTRIAL_SPILL_DIR", dir.path().join("spill"))
            .under_all(&["unshare", "-m", "sh", "-c", cover, "sh"])
            .run();
        assert_eq!(failed.code, Some(3), "{}", failed.stderr);
        for word in [
            "setup_failed",
            "`mountns`",
            "EPERM",
            "systempaths=unconfined",
        ] {
            assert!(failed.stderr.contains(word), "{}", failed.stderr);
        }
    }
}

/// SB-62: launcher, zygote and engine stay as free as they were.
#[tokio::test]
async fn what_confines_a_call_confines_nobody_else() {
    let story = Story::new();
    let outside = story.write("outside/file", "");
    let write = "def f(path):\n    open(path, 'a').write('x')\n    return True\n";
    let arguments = j!([outside]).to_string();
    for level in [Level::Limits, Level::Strict] {
        let confined = story.run(at(level, Story::call(write, &arguments))).await;
        assert_eq!(confined.verdict, Verdict::Exception, "at {level}");
        for make in [Story::call, Story::reuse_call] {
            assert_eq!(json(&story.run(make(write, &arguments)).await), true);
        }
        let script = format!("echo x >> '{}'", outside.display());
        let command = story.run(bare::command(["sh", "-c", &script])).await;
        assert_eq!(command.verdict, Verdict::Ok, "{}", command.stderr.text());
        story.write("outside/file", "the engine may, too");
    }
    story.end().await;
}
