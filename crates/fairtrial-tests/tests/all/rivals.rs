//! Attackers beside innocents (FA-10): whatever a rival does, honest calls come to what they come to alone, the attacker is
//! contained, and the engine lives. Run as root and as a user without rights, with and without user namespaces and
//! control groups, at every level that claims a defence.

use std::process::{Command, Output};

use fairtrial_exec::{Call, Level, Sandbox, State};
use fairtrial_tests::{Story, json, note};
use rustix::process::geteuid;
use serde_json::{Value as Json, json as j};

use crate::environment::unprivileged_cli;

/// Uses what calls share: a thread, a pipe, a program, a file of its own, some memory and some processor time.
const INNOCENT: &str = r#"
import os, subprocess, threading
def f(x):
    read, write = os.pipe()
    thread = threading.Thread(target=os.write, args=(write, b"through the pipe"))
    thread.start()
    thread.join()
    assert os.read(read, 100) == b"through the pipe"
    with open("own", "w") as own:
        own.write("x" * 10000)
    assert subprocess.run(["true"]).returncode == 0
    block = bytearray(b"y") * (4 << 20)
    total = 0
    for n in range(200_000):
        total += n
    return [x, len(block)]
"#;

/// What attackers have in common. Each ends by itself after some seconds, or at its limits.
const PRELUDE: &str = r#"
import array, ctypes, fcntl, os, resource, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
END = time.monotonic() + 4
def others():
    own = {os.getpid()}
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in own]
def until_end(step, pause=0.001):
    while time.monotonic() < END:
        try:
            step()
        except (OSError, ValueError, OverflowError):
            pass
        time.sleep(pause)
def each(act):
    def step():
        for pid in others():
            try:
                act(pid)
            except (OSError, ValueError):
                pass
    until_end(step)
    return "tried"
"#;

/// An attacker: its name and its function `f`.
const ATTACKERS: &[(&str, &str)] = &[
    (
        "limits of others",
        r#"
def f():
    def act(pid):
        for what in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_AS):
            try:
                resource.prlimit(pid, what, (0, 0))
            except (OSError, ValueError):
                pass
    return each(act)
"#,
    ),
    (
        "scheduling of others",
        r#"
def f():
    def act(pid):
        for way in (lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
                    lambda: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))}),
                    lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))):
            try:
                way()
            except OSError:
                pass
    return each(act)
"#,
    ),
    (
        "signals to others",
        r#"
def f():
    def act(pid):
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGXCPU):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    return each(act)
"#,
    ),
    (
        "descriptors in flight",
        r#"
def f():
    held = []
    def fill():
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        held.append((left, right))
        left.setblocking(False)
        numbers = array.array("i", [0] * 200)
        while True:
            left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    until_end(fill)
    return len(held)
"#,
    ),
    (
        "pipe pages",
        r#"
def f():
    held = []
    def fill():
        read, write = os.pipe()
        held.append((read, write))
        fcntl.fcntl(write, 1031, 1 << 20)  # F_SETPIPE_SZ
    until_end(fill)
    return len(held)
"#,
    ),
    (
        "pending signals",
        r#"
def f():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    until_end(lambda: [libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) for _ in range(10000)])
    return "tried"
"#,
    ),
    (
        "inotify",
        r#"
def f():
    held = []
    until_end(lambda: held.append(libc.inotify_init()))
    return len(held)
"#,
    ),
    (
        "message queues and shared memory",
        r#"
def f():
    def fill():
        libc.shmget(0, 4096, 0o1600)
        libc.msgget(0, 0o1600)
        libc.semget(0, 1, 0o1600)
    made = 0
    for _ in range(200):
        fill()
        made += 1
    return made
"#,
    ),
    (
        "keys",
        r#"
def f():
    for n in range(300):
        libc.syscall(248, b"user", b"key%d" % n, b"x" * 50, 50, -3)  # add_key
    return "tried"
"#,
    ),
    (
        "processes",
        r#"
def f():
    def fork():
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    until_end(fork, 0)
    return "tried"
"#,
    ),
    (
        "output without end",
        r#"
def f():
    while True:
        os.write(1, b"x" * 65536)
"#,
    ),
    (
        "a full scratch directory",
        r#"
def f():
    with open("big", "wb") as big:
        while True:
            big.write(b"x" * (1 << 20))
"#,
    ),
    (
        "memory",
        r#"
def f():
    held = []
    while True:
        held.append(bytearray(b"x") * (8 << 20))
"#,
    ),
];

/// Where it all runs: whose calls they are, and what a script takes away from the host. All in namespaces of processes
/// and System V objects of their own, should a defence not hold.
struct Place {
    name: &'static str,
    user: &'static str,
    script: &'static str,
}

const NO_GROUPS: &str =
    "exec unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup; exec \"$@\"' host \"$@\"";

const INNOCENTS: usize = 12;

/// The attackers first, so that they are there when innocents start, and more slots than attackers, so that these do.
fn calls(level: &str) -> String {
    let limits = j!({"memory_bytes": 256 << 20, "processes": 64, "file_bytes": 64 << 20, "output_bytes": 4 << 20});
    let sandbox = match level {
        "strict" => j!({"level": "strict", "scratch_bytes": 64 << 20}),
        other => j!(other),
    };
    let call = |id: &str, source: String, arguments: Json| {
        let timeout = if id.starts_with("innocent") { 60 } else { 10 };
        j!({
            "id": id, "source": source, "function": "f", "args": arguments, "timeout_s": timeout,
            "sandbox": sandbox, "limits": limits,
        })
    };
    let attackers = ATTACKERS
        .iter()
        .map(|(name, source)| call(name, format!("{PRELUDE}{source}"), j!([])));
    let innocents =
        (0..INNOCENTS).map(|n| call(&format!("innocent {n}"), INNOCENT.into(), j!([n])));
    attackers
        .chain(innocents)
        .map(|call| format!("{call}\n"))
        .collect()
}

fn run(place: &Place, level: &str) -> Option<Output> {
    let (program, dir) = unprivileged_cli()?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("ours");
    let home = dir.path().join("home");
    std::fs::create_dir(&home).expect("made");
    let words: &[&str] = match place.user {
        "nobody" => {
            std::os::unix::fs::chown(&home, Some(65534), Some(65534)).expect("root may");
            &[
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--",
            ]
        }
        _ => &["env"],
    };
    std::fs::write(home.join("calls.jsonl"), calls(level)).expect("written");
    #[expect(
        clippy::disallowed_methods,
        reason = "the command is run as a user runs it"
    )]
    let mut command = Command::new("unshare");
    command.args(["-p", "-i", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-c", place.script, "host"]);
    command.args(words).arg(&program);
    let slots = (ATTACKERS.len() + 4).to_string();
    command.args(["batch", "calls.jsonl", "-j", &slots]);
    command.current_dir(&home);
    command.env("FAIRTRIAL_SPILL_DIR", home.join("spill"));
    command.env("XDG_CACHE_HOME", home.join("cache"));
    Some(command.output().expect("a shell runs"))
}

/// Runs all of them at each level that claims a defence.
fn check(place: &Place) {
    if !geteuid().is_root() || !std::path::Path::new("/usr/bin/unshare").exists() {
        return note("skipped: only root can be each of these users, with `unshare`");
    }
    let name = place.name;
    for level in ["limits", "confined", "strict"] {
        let Some(output) = run(place, level) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout);
        let records: Vec<Json> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let all = ATTACKERS.len() + INNOCENTS;
        assert_eq!(records.len(), all, "{name}, {level}: {said}");
        let (attackers, innocents) = records.split_at(ATTACKERS.len());
        let refused = |record: &Json| {
            let message = record["error"]["message"].as_str().unwrap_or_default();
            record["verdict"] == "setup_failed" && message.contains("cannot be had")
        };
        if level != "limits" && records.iter().all(refused) {
            note(format!(
                "skipped: {name}: {}",
                records[0]["error"]["message"]
            ));
            continue;
        }
        for (n, record) in innocents.iter().enumerate() {
            assert_eq!(record["verdict"], "ok", "{name}, {level}: {record}\n{said}");
            assert_eq!(record["value"], j!([n, 4 << 20]), "{name}, {level}");
        }
        for record in attackers {
            assert!(record["verdict"].is_string(), "{name}, {level}: {record}");
        }
    }
}

/// FA-1, FA-5, FA-10
#[test]
fn no_attacker_changes_the_verdict_of_an_innocent_of_roots() {
    check(&Place {
        name: "root",
        user: "root",
        script: "exec \"$@\"",
    });
}

/// FA-1, FA-5, FA-10
#[test]
fn no_attacker_changes_the_verdict_of_an_innocent_of_a_users() {
    check(&Place {
        name: "a user",
        user: "nobody",
        script: "exec \"$@\"",
    });
}

/// FA-1, FA-5, FA-10
#[test]
fn no_attacker_changes_the_verdict_of_an_innocent_without_control_groups() {
    check(&Place {
        name: "root without control groups",
        user: "root",
        script: NO_GROUPS,
    });
}

/// FA-1, FA-5, FA-10
#[test]
fn no_attacker_changes_the_verdict_of_an_innocent_without_user_namespaces() {
    check(&Place {
        name: "without user namespaces",
        user: "root",
        script: "exec unshare -U -r sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"' host \"$@\"",
    });
}

/// Thirty sessions of one busy process each, for as long as it takes.
const SPINNERS: &str = "import os, time
def f(ready):
    for _ in range(30):
        if os.fork() == 0:
            os.setsid()
            end = time.monotonic() + 4
            while time.monotonic() < end:
                pass
            os._exit(0)
    open(ready, 'w').close()
    for _ in range(30):
        os.wait()
";
/// Its own processor time in two seconds beside them.
const ONE_SPINNER: &str = "import os, time
def f(ready):
    while not os.path.exists(ready):
        time.sleep(0.001)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        pass
    return time.process_time()
";

/// FA-6: on one processor, so that shares can be compared whatever else the machine does.
#[tokio::test]
async fn a_call_with_thirty_sessions_gets_no_more_of_a_processor_than_one_with_a_single_thread() {
    let story = Story::with(|config| config.max_workers = 2);
    let ready = story.write("shared/ready", "");
    std::fs::remove_file(&ready).expect("just made");
    let at = |source: &str| {
        let mut call: Call = Story::call(source, &j!([ready]).to_string());
        call.sandbox = Sandbox::new(Level::Limits);
        call.sandbox.cpus = Some([0].into());
        call.sandbox.write = vec![ready.parent().expect("below").to_path_buf()];
        call
    };
    let innocent = story.backend.submit(at(ONE_SPINNER)).expect("taken");
    let spinners = story.backend.submit(at(SPINNERS)).expect("taken");
    let innocent = innocent.await.expect("runs");
    let spinners = spinners.await.expect("runs");
    let mut mechanisms = innocent.in_force.mechanisms.iter();
    let share = mechanisms.find(|mechanism| mechanism.name == "cpu_share");
    if share.is_none_or(|share| share.state != State::Enforced) {
        return note("skipped: no control group shares processors here");
    }
    let own = json(&innocent).as_f64().expect("seconds");
    let theirs = spinners.metrics.user_ns.expect("measured") as f64 / 1e9;
    assert!(own > theirs / 6.0, "{own} s beside {theirs} s");
    story.end().await;
}
