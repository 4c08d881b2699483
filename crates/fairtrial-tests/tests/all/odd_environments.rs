//! Hosts whose surroundings are odd: closed streams, full or missing file systems, a `/proc` that hides processes. A good
//! call works at `none` and `limits`, or is refused in one line with a hint; results of `batch` end with whole lines.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fairtrial_tests::{Finished, Shell, binary, note, wait_until};
use rustix::process::{Signal, geteuid};
use serde_json::{Value as Json, json};

const SOLVE: &str = "def solve(n):\n    return [i * i for i in range(n)]\n";
const EXEC: [&str; 7] = [
    "exec",
    "solve.py",
    "--function",
    "solve",
    "--args",
    "[3]",
    "--sandbox",
];

/// A user's directory with a program.
fn place() -> Shell {
    let shell = Shell::new();
    shell.write("solve.py", SOLVE);
    shell
}

/// `fairtrial` with these arguments on a host that this shell script makes, which then runs `"$@"`.
fn on_host(shell: &Shell, script: &str, arguments: &[&str]) -> Finished {
    let cli = shell.fairtrial(arguments.iter().copied());
    cli.under_all(&["sh", "-c", script, "host"]).run()
}

fn exec_at(level: &str) -> Vec<&str> {
    EXEC.into_iter().chain([level]).collect()
}

/// RE-9: `exec` itself, and what it shows.
#[test]
fn with_closed_streams_a_call_ends_as_it_does_with_open_ones() {
    let shell = place();
    for (closed, shows) in [
        ("<&-", true),
        ("2>&-", true),
        ("<&- 2>&-", true),
        (">&-", false),
        (">&- 2>&-", false),
        ("<&- >&- 2>&-", false),
    ] {
        for level in ["none", "limits"] {
            let script = format!("exec \"$@\" {closed}");
            let run = on_host(&shell, &script, &exec_at(level));
            assert_eq!(run.code, Some(0), "{closed} at {level}: {run:?}");
            let shown = if shows { "[0,1,4]\n" } else { "" };
            assert_eq!(run.stdout, shown, "{closed} at {level}");
            let failed = ["exec", "--sandbox", level, "--", "false"];
            let run = on_host(&shell, &script, &failed);
            assert_eq!(run.code, Some(3), "{closed} at {level}: {run:?}");
        }
    }
    shell.assert_nothing_left();
}

/// Hosts by what is mounted there: a name, and what makes it.
const MOUNTS: &[(&str, &str)] = &[
    (
        "a /proc that hides processes of others",
        "mount -t proc -o hidepid=2 none /proc",
    ),
    (
        "no /dev/shm",
        "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; \
         mknod -m 666 /dev/random c 1 8; mknod -m 666 /dev/urandom c 1 9",
    ),
    (
        "a /tmp where nothing can be executed",
        "mount -t tmpfs -o noexec,nosuid,mode=1777 none /tmp",
    ),
    (
        "a full /tmp",
        "mount -t tmpfs -o size=64k,mode=1777 none /tmp; head -c 1M /dev/zero > /tmp/full 2> /dev/null",
    ),
    (
        "a /tmp that takes no more files",
        "mount -t tmpfs -o nr_inodes=1,mode=1777 none /tmp",
    ),
    (
        "a read-only /tmp",
        "mount -t tmpfs -o ro,mode=1777 none /tmp",
    ),
    ("no control groups", "mount -t tmpfs none /sys"),
];

/// RE-9, FA-13
#[test]
fn with_odd_mounts_a_good_call_works_or_is_refused_in_one_line_with_a_hint() {
    if !geteuid().is_root() || !Path::new("/usr/bin/setpriv").exists() {
        return note("skipped: it takes root, who can mount, and `setpriv`");
    }
    let place = tempfile::tempdir_in("/var/tmp").expect("a directory that no mount covers");
    let home = place.path();
    std::fs::set_permissions(home, PermissionsExt::from_mode(0o755)).expect("ours");
    std::fs::write(home.join("solve.py"), SOLVE).expect("written");
    let program = home.join("fairtrial");
    std::fs::copy(binary(), &program).expect("it is built");
    let program = program.display();
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    for (name, mounts) in MOUNTS {
        for (user, become_user) in [("root", ""), ("nobody", nobody)] {
            for level in ["none", "limits"] {
                let host = format!("{name}, as {user}, at {level}");
                // The spill directory is the usual one: `/tmp` counts.
                let script = format!(
                    "cd {} && exec unshare -m sh -c '{mounts}; shift; unset FAIRTRIAL_SPILL_DIR; \
                     exec {become_user} {program} \"$@\"' host \"$@\"",
                    home.display()
                );
                let run = on_host(&Shell::new(), &script, &exec_at(level));
                match run.code {
                    Some(0) => assert_eq!(run.stdout, "[0,1,4]\n", "{host}"),
                    _ => assert_refused(&run, &host),
                }
            }
        }
    }
}

/// Nothing was started, and one message says what is missing and what helps.
fn assert_refused(run: &Finished, host: &str) {
    assert_eq!((run.code, &*run.stdout), (Some(1), ""), "{host}: {run:?}");
    assert!(run.stderr.starts_with("error: "), "{host}: {run:?}");
    assert!(run.stderr.lines().count() <= 3, "{host}: {run:?}");
    let names_place = run.stderr.contains("/tmp") || run.stderr.contains("/proc");
    assert!(names_place, "{host}: {run:?}");
    assert!(!run.stderr.contains("panicked"), "{host}: {run:?}");
}

/// A host of one user whose files have nowhere to go.
#[test]
fn a_home_that_cannot_be_written_and_no_home_are_no_reason_to_refuse() {
    let shell = place();
    shell.write("home/readme", "");
    let closed = shell.path().join("home");
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o500)).expect("ours");
    for script in [
        "unset XDG_CACHE_HOME; HOME=$PWD/home exec \"$@\"",
        "unset XDG_CACHE_HOME HOME; exec \"$@\"",
        "unset XDG_CACHE_HOME; HOME=relative exec \"$@\"",
        "unset XDG_CACHE_HOME; HOME= exec \"$@\"",
    ] {
        for level in ["none", "limits"] {
            let run = on_host(&shell, script, &exec_at(level));
            let shown = (run.code, &*run.stdout, &*run.stderr);
            assert_eq!(shown, (Some(0), "[0,1,4]\n", ""), "{script} at {level}");
        }
    }
}

fn printing_calls(shell: &Shell, count: usize, bytes: usize) {
    let source = format!("def f(i):\n    return [i, 'x' * {bytes}]\n");
    let calls: Vec<Json> = (0..count)
        .map(|index| json!({"source": source, "function": "f", "args": [index]}))
        .collect();
    shell.write_lines("calls.jsonl", &calls);
}

/// The records in a file, all of them whole; none if it is not there yet.
fn records(path: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "{path:?} ends in the middle of a line"
    );
    let read = |line| serde_json::from_str(line).expect("a line is one record");
    text.lines().map(read).collect()
}

/// FA-13
#[tokio::test]
async fn what_a_killed_batch_wrote_are_whole_lines_in_order() {
    let shell = Shell::new();
    printing_calls(&shell, 400, 7_000);
    let out = shell.path().join("out.jsonl");
    let run = shell.fairtrial(["batch", "calls.jsonl", "--out", "out.jsonl", "-j", "2"]);
    let running = run.start();
    let wrote = || std::fs::metadata(&out).map_or(0, |facts| facts.len());
    wait_until("some records are written", || wrote() > 100_000).await;
    running.signal(Signal::KILL);
    assert_eq!(running.end().code, None);
    let records = records(&out);
    assert!(
        records.len() > 5 && records.len() < 400,
        "{}",
        records.len()
    );
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record["value"][0], index);
    }
}

/// FA-13
#[test]
fn on_a_full_disk_the_results_end_with_a_whole_line_and_the_file_is_named() {
    if !geteuid().is_root() {
        return note("skipped: only root can make a disk that is full");
    }
    let shell = Shell::new();
    printing_calls(&shell, 60, 7_000);
    // What was written is looked at elsewhere, for the disk goes with its mount.
    let mounts = "mkdir disk && mount -t tmpfs -o size=200k none disk; \"$@\"; ended=$?; cp disk/out.jsonl kept.jsonl; \
                  exit $ended";
    let script = format!("exec unshare -m sh -c '{mounts}' host \"$@\"");
    let batch = ["batch", "calls.jsonl", "--out", "disk/out.jsonl"];
    let run = on_host(&shell, &script, &batch);
    assert_eq!(run.code, Some(1), "{run:?}");
    let says = "cause: `disk/out.jsonl`: No space left on device (os error 28); the records that it holds are whole";
    assert!(run.stderr.contains(says), "{run:?}");
    let records = records(&shell.path().join("kept.jsonl"));
    assert!(
        !records.is_empty() && records.len() < 60,
        "{}",
        records.len()
    );
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record["value"][0], index);
    }
}

/// FA-12: said once, however many calls there are.
#[test]
fn an_error_that_every_call_has_is_said_once_and_counted() {
    let shell = Shell::new();
    printing_calls(&shell, 40, 1);
    let script = "ulimit -n 16; exec \"$@\"";
    let run = on_host(&shell, script, &["batch", "calls.jsonl", "-j", "8"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.stdout.lines().count(), 40);
    let said = run.stderr.matches("takes 24").count();
    assert_eq!(said, 1, "{run:?}");
    let counted = "calls.jsonl: 39 more with this error\n";
    assert!(run.stderr.ends_with(counted), "{run:?}");
}
