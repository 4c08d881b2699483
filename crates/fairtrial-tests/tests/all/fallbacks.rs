//! The chains of section 4, each link forced (SB-25): what a call then says of its isolation, and what it can do.

use std::collections::BTreeMap;

use fairtrial_exec::Facility::{
    CgroupKill, CgroupMemory, CgroupProcesses, Cgroups, Landlock, LandlockScopes, LandlockTruncate,
    Namespaces, Seccomp,
};
use fairtrial_exec::Level::{Confined, Limits, Strict};
use fairtrial_exec::State::{Enforced, Partial, Sampled, Unavailable};
use fairtrial_exec::{Call, Facility, Level, OnMissing, Outcome, Sandbox, State, Verdict};
use fairtrial_tests::{Process, Story, json, note, wait_until};
use serde_json::json as j;

/// One link: at a level, without something, a mechanism is in a state, by these means.
type Link = (
    Level,
    &'static [Facility],
    &'static str,
    State,
    &'static str,
);

/// As root with control groups, best first.
const CHAINS: &[Link] = &[
    (Limits, &[], "tree_kill", Enforced, "cgroup.kill"),
    (Limits, &[CgroupKill], "tree_kill", Enforced, "init"),
    (Limits, &[Cgroups], "tree_kill", Enforced, "init"),
    (
        Limits,
        &[CgroupKill, Namespaces],
        "tree_kill",
        Partial,
        "subreaper",
    ),
    (Strict, &[Cgroups], "tree_kill", Enforced, "init"),
    (Limits, &[], "memory", Enforced, "cgroup"),
    (Limits, &[CgroupMemory], "memory", Sampled, "proc"),
    (Limits, &[Cgroups], "memory", Sampled, "proc"),
    (Limits, &[Landlock], "memory", Partial, "cgroup"),
    (Limits, &[Landlock], "processes", Partial, "pids.max"),
    (Limits, &[Landlock], "tree_kill", Enforced, "init"),
    (
        Limits,
        &[Landlock, Namespaces],
        "tree_kill",
        Partial,
        "cgroup.kill",
    ),
    (Limits, &[], "processes", Enforced, "pids.max"),
    (
        Strict,
        &[CgroupProcesses],
        "processes",
        Enforced,
        "RLIMIT_NPROC",
    ),
    (
        Strict,
        &[CgroupProcesses, Namespaces],
        "processes",
        Sampled,
        "proc",
    ),
    (Strict, &[], "network", Enforced, "network namespace"),
    (Strict, &[Namespaces], "network", Enforced, "seccomp"),
    (Strict, &[Namespaces], "read_scope", Enforced, "Landlock"),
    (
        Strict,
        &[Namespaces, Seccomp],
        "network",
        Unavailable,
        "the host's",
    ),
    (Strict, &[Seccomp], "network", Enforced, "network namespace"),
    (Strict, &[Seccomp], "seccomp", Unavailable, "no filters"),
    (
        Strict,
        &[],
        "write_scope",
        Enforced,
        "mount namespace and Landlock",
    ),
    (
        Strict,
        &[Landlock],
        "write_scope",
        Enforced,
        "mount namespace",
    ),
    (Limits, &[], "write_scope", Enforced, "Landlock"),
    (
        Limits,
        &[LandlockScopes],
        "write_scope",
        Enforced,
        "Landlock",
    ),
    (
        Limits,
        &[LandlockTruncate],
        "write_scope",
        Enforced,
        "mount namespace",
    ),
    (
        Limits,
        &[Landlock],
        "write_scope",
        Enforced,
        "mount namespace",
    ),
    (
        Limits,
        &[LandlockTruncate, Namespaces],
        "write_scope",
        Partial,
        "cut to nothing",
    ),
    (
        Limits,
        &[Landlock, Namespaces],
        "write_scope",
        Unavailable,
        "nothing",
    ),
    (Limits, &[], "mountns", Enforced, "read-only"),
    (Limits, &[], "userns", Enforced, "quotas"),
    (Limits, &[], "shared_memory", Enforced, "its own"),
    (Limits, &[Namespaces], "mountns", Unavailable, "not used"),
    (
        Limits,
        &[Namespaces],
        "userns",
        Unavailable,
        "cannot be set up",
    ),
    (
        Limits,
        &[Namespaces],
        "shared_memory",
        Unavailable,
        "the host's",
    ),
    (
        Strict,
        &[Landlock],
        "signal_scope",
        Enforced,
        "pid and network namespace",
    ),
    (Limits, &[], "signal_scope", Enforced, "Landlock"),
    (
        Limits,
        &[LandlockScopes],
        "signal_scope",
        Partial,
        "pid namespace",
    ),
    (
        Limits,
        &[Landlock],
        "signal_scope",
        Partial,
        "pid namespace",
    ),
    (
        Limits,
        &[Landlock, Namespaces],
        "signal_scope",
        Unavailable,
        "nothing",
    ),
    (
        Strict,
        &[Landlock, Namespaces],
        "signal_scope",
        Unavailable,
        "nothing",
    ),
    (Limits, &[], "process_scope", Enforced, "seccomp"),
    (
        Limits,
        &[LandlockScopes],
        "process_scope",
        Enforced,
        "pid namespace and seccomp",
    ),
    (
        Limits,
        &[LandlockScopes, Seccomp],
        "process_scope",
        Enforced,
        "pid namespace",
    ),
    (
        Limits,
        &[Seccomp],
        "process_scope",
        Unavailable,
        "same user",
    ),
    (
        Limits,
        &[LandlockScopes],
        "environ_guard",
        Enforced,
        "Landlock",
    ),
    (
        Limits,
        &[Landlock],
        "environ_guard",
        Enforced,
        "pid namespace",
    ),
    (
        Limits,
        &[Landlock, Namespaces],
        "environ_guard",
        Unavailable,
        "readable",
    ),
    (Limits, &[Landlock], "pidns", Enforced, "own /proc"),
    (
        Limits,
        &[Landlock, Namespaces],
        "pidns",
        Unavailable,
        "cannot be set up",
    ),
    (Confined, &[], "read_scope", Enforced, "Landlock"),
    (Confined, &[Landlock], "read_scope", Unavailable, "nothing"),
    (Confined, &[], "network", Enforced, "seccomp"),
    (Confined, &[Seccomp], "network", Unavailable, "the host's"),
    (Confined, &[], "seccomp", Enforced, "deny-list"),
    (Confined, &[Seccomp], "seccomp", Unavailable, "no filters"),
    (Confined, &[], "tree_kill", Enforced, "cgroup.kill"),
    (Confined, &[Cgroups], "tree_kill", Enforced, "init"),
    (
        Confined,
        &[Cgroups, Namespaces],
        "tree_kill",
        Partial,
        "subreaper",
    ),
    (Confined, &[], "signal_scope", Enforced, "Landlock"),
    (Confined, &[], "write_scope", Enforced, "Landlock"),
    (Confined, &[], "environ_guard", Enforced, "Landlock"),
    (Confined, &[], "mountns", Enforced, "read-only"),
    (Confined, &[], "shared_memory", Enforced, "its own"),
    (
        Confined,
        &[Namespaces],
        "shared_memory",
        Partial,
        "cannot be listed",
    ),
    (Strict, &[], "scratch", Enforced, "with a quota"),
    (
        Strict,
        &[Namespaces],
        "scratch",
        Partial,
        "without its quota",
    ),
];

/// What a call did that somebody may have wanted to keep it from.
const TRY: &str = "import os, resource, socket\ndef f(engine, canary, port):\n    done = []\n    def attempt(name, what):\n        \
                   try:\n            what()\n            done.append(name)\n        except OSError:\n            pass\n    \
                   attempt('signal_scope', lambda: os.kill(engine, 0))\n    \
                   attempt('process_scope', lambda: resource.prlimit(engine, resource.RLIMIT_CORE, \
                   resource.prlimit(engine, resource.RLIMIT_CORE)))\n    \
                   attempt('environ_guard', lambda: open('/proc/%d/environ' % engine).read(1))\n    \
                   attempt('read_scope', lambda: open(canary).close())\n    \
                   attempt('write_scope', lambda: open(canary, 'a').close())\n    \
                   attempt('write_scope', lambda: os.truncate(canary, 0))\n    \
                   attempt('network', lambda: socket.create_connection(('127.0.0.1', port), 5).close())\n    \
                   if os.path.isdir('/proc/%d' % os.getpid()) and os.getpid() != int(os.readlink('/proc/self')):\n        \
                   done.append('own number')\n    return sorted(set(done))\n";

fn without(facilities: &[Facility]) -> Story {
    Story::with(|config| config.without.extend(facilities))
}

fn at(level: Level, mut call: Call) -> Call {
    call.sandbox = Sandbox::new(level);
    call.sandbox.on_missing = OnMissing::Degrade;
    call.limits.memory_bytes = Some(1 << 30);
    call.limits.processes = Some(100);
    call
}

fn found(outcome: &Outcome, name: &str) -> (State, &'static str) {
    let mut mechanisms = outcome.in_force.mechanisms.iter();
    let found = mechanisms.find(|mechanism| mechanism.name == name);
    let found = found.unwrap_or_else(|| panic!("{name} is not told of"));
    (found.state, found.via)
}

/// SB-25, SB-41, SB-44, SB-45: what is said of each link, and that nothing said to hold could be done.
#[tokio::test]
async fn each_link_of_each_chain_says_what_it_is_and_holds_what_it_says() {
    if !rustix::process::geteuid().is_root() {
        return note("skipped: the table is root's, who has control groups");
    }
    let mut engines: BTreeMap<(Level, &[Facility]), Vec<&Link>> = BTreeMap::new();
    for link in CHAINS {
        engines.entry((link.0, link.1)).or_default().push(link);
    }
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    for ((level, lacking), links) in engines {
        let story = without(lacking);
        let canary = story.write("outside/canary", "untouched");
        let arguments = j!([std::process::id(), canary, port]).to_string();
        let worker = story.run(at(level, Story::call(TRY, &arguments))).await;
        let command = format!("{TRY}\nimport json\nprint(json.dumps(f(*{arguments})))");
        let command = Call::command(["python3", "-c", &command]);
        let command = story.run(at(level, command)).await;
        assert_eq!(command.verdict, Verdict::Ok, "{:?}", command.stderr.text());
        let by_command = serde_json::from_str(&command.stdout.text()).expect("a list");
        for (outcome, done) in [(&worker, json(&worker)), (&command, by_command)] {
            for (.., name, state, via) in &links {
                let (got, by) = found(outcome, name);
                let right = got == *state && by.contains(via);
                assert!(
                    right,
                    "{level} without {lacking:?}: {name} is {got:?}: {by}"
                );
            }
            for name in done.as_array().expect("a list") {
                let name = name.as_str().expect("a name");
                let mut mechanisms = outcome.in_force.mechanisms.iter();
                let holds = mechanisms.any(|one| one.name == name && one.state == Enforced);
                assert!(!holds, "{level} without {lacking:?}: {name} could be done");
            }
            // Partial or not, a signal leaves no namespace of processes.
            let signalled = done
                .as_array()
                .expect("a list")
                .contains(&j!("signal_scope"));
            let state = found(outcome, "signal_scope").0;
            assert_eq!(signalled, state == Unavailable, "{level} {lacking:?}");
        }
        story.end().await;
    }
}

/// SB-12, SB-25: by each link of `tree_kill` nothing outlives its call, be it in a session of its own and nobody's child.
#[tokio::test]
async fn nothing_outlives_its_call_by_whichever_link_its_tree_is_killed() {
    let leave = "import os, time\ndef f(path):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            \
                 open(path, 'w').write('x')\n            while True:\n                open(path, 'a').write('x')\n                \
                 time.sleep(0.001)\n        os._exit(0)\n    os.wait()\n    while not os.path.exists(path):\n        time.sleep(0.001)\n    \
                 return 1\n";
    for lacking in [
        &[][..],
        &[CgroupKill],
        &[Cgroups],
        &[CgroupKill, Namespaces],
        &[Cgroups, Namespaces],
        &[Landlock],
    ] {
        let story = without(lacking);
        let path = story.write("shared/touched", "");
        std::fs::remove_file(&path).expect("just made");
        let shared = path.parent().expect("below").to_path_buf();
        let mut call = at(Limits, Story::call(leave, &j!([path]).to_string()));
        call.sandbox.write = vec![shared];
        let outcome = story.run(call).await;
        assert_eq!(json(&outcome), 1, "{lacking:?}");
        assert_eq!(outcome.metrics.leaked_processes, Some(1), "{lacking:?}");
        let size = || std::fs::metadata(&path).expect("it wrote").len();
        let before = size();
        tokio::time::sleep(std::time::Duration::from_millis(30)).await; // thirty more lines, if it lived
        assert_eq!(size(), before, "{lacking:?}: it lives");
        story.end().await;
    }
}

/// SB-11, SB-25: the init of a namespace dies with the launcher, and all in it.
#[tokio::test]
async fn calls_in_a_namespace_of_processes_die_with_the_launcher() {
    let story = without(&[Landlock, Cgroups]);
    let call = at(
        Limits,
        Call::command(["sh", "-c", "setsid sleep 77.0625 & sleep 77.0625"]),
    );
    let running = story.backend.submit(call).expect("taken");
    let started = || fairtrial_tests::running_with("77.0625").len() >= 2;
    wait_until("both run", started).await;
    let launcher = Process::find(std::process::id())
        .expect("it is us")
        .children();
    launcher[0].signal(rustix::process::Signal::KILL);
    assert!(running.await.is_err(), "its launcher is lost");
    let gone = || fairtrial_tests::running_with("77.0625").is_empty();
    wait_until("both are gone", gone).await;
    story.end().await;
}

/// SB-25, SB-73: a namespace is lent again only when nobody is left in it, whatever a call does at its very end.
#[tokio::test]
async fn a_namespace_of_processes_that_is_used_again_holds_nobody_of_the_last_call() {
    let story = without(&[Landlock, Cgroups]);
    let fork_late = "import os, threading\ndef f():\n    def fork():\n        for _ in range(3):\n            \
                     if os.fork() == 0:\n                os.setsid()\n                if os.fork():\n                    os._exit(0)\n    \
                     threading.Thread(target=fork, daemon=True).start()\n    return 1\n";
    let look = "import os\ndef f():\n    return sorted(int(name) for name in os.listdir('/proc') if name.isdigit())\n";
    for round in 0..20 {
        story.run(at(Limits, Story::call(fork_late, "[]"))).await;
        let seen = json(&story.run(at(Limits, Story::call(look, "[]"))).await);
        assert_eq!(seen.as_array().map(Vec::len), Some(2), "{round}: {seen}");
    }
    let launcher = Process::find(std::process::id())
        .expect("it is us")
        .children();
    let children = launcher[0].children().len();
    assert!(children < 16, "{children} children after 40 calls");
    story.end().await;
}

/// SB-25: a process that is nobody's child is looked at all the same, and none becomes the launcher's child.
#[tokio::test]
async fn a_process_that_hides_from_the_tree_is_held_to_the_limits() {
    let hog = "held = [bytearray(b'x' * (1 << 20)) for _ in range(250)]\n        while True:\n            time.sleep(1)";
    let orphan = format!(
        "import os, time\ndef f():\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork():\n            os._exit(0)\n        \
         {hog}\n    os.wait()\n    time.sleep(20)\n"
    );
    // CLONE_PARENT | SIGCHLD
    let adopted = format!(
        "import ctypes, os, time\ndef f():\n    pid = ctypes.CDLL(None).syscall(56, 0x8000 | 17, 0, 0, 0, 0)\n    if pid == 0:\n        \
         {hog}\n    if pid < 0:\n        return 'refused'\n    for _ in range(100):\n        try:\n            os.kill(pid, 0)\n        except OSError:\n            return 'gone'\n        \
         time.sleep(0.05)\n    return 'lives'\n"
    );
    for lacking in [&[Cgroups][..], &[Cgroups, Namespaces]] {
        let story = without(lacking);
        let limited = |source: &str| {
            let mut call = at(Limits, Story::call(source, "[]"));
            call.limits.memory_bytes = Some(100 << 20);
            call
        };
        let outcome = story.run(limited(&orphan)).await;
        assert_eq!(outcome.verdict, Verdict::MemoryLimit, "{lacking:?}");
        if cfg!(target_arch = "x86_64") {
            let outcome = story.run(limited(&adopted)).await;
            assert_eq!(json(&outcome), "refused", "{lacking:?}");
        }
        story.end().await;
    }
}
