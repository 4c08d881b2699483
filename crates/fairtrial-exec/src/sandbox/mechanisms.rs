//! Which mechanisms hold for a call on this machine, and how well.

use std::sync::OnceLock;

use super::means::{Inside, Lack, Means};
use super::needs;
use super::report::{Counters, InForce, Mechanism, State};
use super::terms;
use super::{Level, Network, Sandbox};
use crate::call::{Call, Time, Work};
use crate::linux::landlock;
use crate::worker::Mode;
use crate::workspace::{Upper, Workspace, WorkspaceNamespace};

/// What holds for a call: what its level brings on this machine, and the limits that were asked for.
pub(crate) fn in_force(call: &Call, mode: Mode, means: &Means) -> InForce {
    let sandbox = &call.sandbox;
    let level = sandbox.level;
    let mut mechanisms = standing(sandbox, mode, means);
    if matches!(call.work, Work::Pickled(_)) {
        // The caller's own function works in the caller's own directory.
        mechanisms.retain(|mechanism| mechanism.name != "scratch");
    }
    let limits = &call.limits;
    let counts_cpu = limits.cpu.is_some() || call.time == Time::Cpu;
    let asked = [
        counts_cpu.then(|| cpu(level, means)),
        limits.memory_bytes.is_some().then(|| memory(level, means)),
        limits.processes.is_some().then(|| processes(level, means)),
    ];
    mechanisms.extend(asked.into_iter().flatten());
    if level == Level::None && (limits.open_files.is_some() || limits.file_bytes.is_some()) {
        mechanisms.push(rlimits(mode));
    }
    if level < Level::Strict && terms::has_own_memory(call, means) {
        put(&mut mechanisms, own_memory());
    }
    if means.mounts_at(level) && !terms::can_have_mounts(sandbox) {
        for name in ["userns", "mountns"] {
            let via = "too many places to write";
            put(&mut mechanisms, entry(name, State::Unavailable, via));
        }
        put(&mut mechanisms, write_scope(level, mode, means, false));
    }
    if let Some(workspace) = &call.workspace {
        add_workspace(&mut mechanisms, workspace, level, means);
    }
    if call.as_caller && level == Level::Strict {
        let via = "it is its caller's own user, as asked for";
        put(&mut mechanisms, entry("slot_uid", State::Unavailable, via));
    }
    for (_, name) in means.disproved().iter().filter(|(of, _)| *of == level) {
        let found = mechanisms.iter_mut().find(|one| one.name == *name);
        if let Some(mechanism) = found.filter(|one| one.state == State::Enforced) {
            mechanism.state = State::Partial;
            mechanism.hint = "its self-test was not refused, or could not be made";
        }
    }
    InForce {
        requested: level,
        effective: needs::effective(sandbox, &mechanisms),
        on_missing: sandbox.on_missing,
        mode: mode.name(),
        mechanisms,
        preload_shared: call
            .python()
            .map_or(Vec::new(), |terms| terms.preload_shared.clone()),
        counters: Counters::default(),
        elsewhere: None,
    }
}

/// Why a call that wants its whole level cannot have it on this machine.
pub(crate) fn lacking(call: &Call, mode: Mode, means: &Means) -> Option<String> {
    needs::refusal(call, &in_force(call, mode, means).mechanisms)
}

/// What a call's level has and this machine lacks.
pub(crate) fn missing(call: &Call, mode: Mode, means: &Means) -> Vec<Mechanism> {
    let mechanisms = in_force(call, mode, means).mechanisms;
    let missing = needs::missing(call.sandbox.level, &call.sandbox, &mechanisms);
    missing.into_iter().cloned().collect()
}

/// What a level brings to every call, whatever its limits.
fn standing(sandbox: &Sandbox, mode: Mode, means: &Means) -> Vec<Mechanism> {
    // Without namespaces `strict` is what `confined` is.
    let level = match means.no_namespaces() {
        Some(_) => sandbox.level.min(Level::Confined),
        None => sandbox.level,
    };
    let mut all = vec![
        entry("session", State::Enforced, "setsid"),
        tree_kill(level, means),
        entry(
            "orphan_guard",
            State::Enforced,
            "launcher, parent-death signal",
        ),
        entry("clean_env", State::Enforced, "allow-list"),
        entry("closed_fds", State::Enforced, "close_range"),
        environ_guard(level, means),
        scratch(level, sandbox),
        entry("wall", State::Enforced, "launcher's timer"),
        entry("output", State::Enforced, "counted by the engine"),
    ];
    if level >= Level::Limits {
        all.extend([
            rlimits(mode),
            entry("oom_score", State::Enforced, "oom_score_adj +800"),
            entry("no_new_privs", State::Enforced, "prctl"),
            entry("capabilities", State::Enforced, "all sets empty"),
            signal_scope(level, means),
            process_scope(level, means),
            write_scope(level, mode, means, means.mounts_at(level)),
            shared_memory(level, means),
            cpu_share(level, means),
        ]);
    }
    if level == Level::Confined {
        all.push(read_scope(means));
    }
    if sandbox.cpus.is_some() {
        all.push(entry(
            "cpus",
            State::Partial,
            "affinity, which a program can change",
        ));
    }
    match sandbox.level {
        Level::None => {}
        Level::Limits => {
            all.push(entry(
                "network",
                State::Unavailable,
                "the host's: open at this level",
            ));
            all.extend(pidns(means));
            all.extend(own_mounts(means));
        }
        Level::Confined => {
            all.push(network(
                sandbox.network,
                Some(NO_NAMESPACES),
                means.seccomp(),
            ));
            all.push(seccomp(means));
            all.extend(pidns(means));
            all.extend(own_mounts(means));
            let via = "calls of this level have the engine's user";
            all.push(entry("slot_uid", State::Unavailable, via));
        }
        Level::Strict => all.extend(world(sandbox, means)),
    }
    all
}

/// What `confined` never has: nothing was refused.
const NO_NAMESPACES: Lack = Lack {
    mechanism: "",
    errno: None,
    hint: "",
};

/// At `limits` and `confined` only where it makes up for something.
fn pidns(means: &Means) -> Option<Mechanism> {
    let via = "namespace of its own, with its own /proc";
    let entry = match means.no_fallback() {
        None => entry("pidns", State::Enforced, via),
        Some(lack) => Mechanism {
            errno: lack.errno,
            hint: lack.hint,
            ..entry("pidns", State::Unavailable, "cannot be set up")
        },
    };
    means.wants_processes_apart().then_some(entry)
}

/// What of a world of its own a call below `strict` has.
fn own_mounts(means: &Means) -> [Mechanism; 2] {
    let (quotas, mounts) = (
        "quotas for a user are counted for the call alone",
        "the host is read-only, modes and times of files included",
    );
    let Some(lack) = means.no_mounts() else {
        return [
            entry("userns", State::Enforced, quotas),
            entry("mountns", State::Enforced, mounts),
        ];
    };
    ["userns", "mountns"].map(|name| namespace(name, Some(lack)))
}

/// A quota that was asked for, and is not there, is told.
fn scratch(level: Level, sandbox: &Sandbox) -> Mechanism {
    let quota = sandbox.scratch_bytes.is_some() || sandbox.scratch_inodes.is_some();
    let (state, via) = match (level, quota) {
        (Level::Strict, true) => (State::Enforced, "file system of its own, with a quota"),
        (Level::Strict, false) => (State::Enforced, "file system of its own, without a quota"),
        (_, true) => (
            State::Partial,
            "private directory, without its quota: that needs namespaces",
        ),
        (_, false) => (State::Enforced, "private directory"),
    };
    entry("scratch", state, via)
}

/// What only `strict` has.
fn world(sandbox: &Sandbox, means: &Means) -> Vec<Mechanism> {
    let lack = means.no_namespaces();
    let namespaces = ["userns", "pidns", "ipcns", "utsns", "mountns"];
    let mut all: Vec<_> = namespaces.map(|name| namespace(name, lack)).into();
    all.push(network(sandbox.network, lack, means.seccomp()));
    all.push(seccomp(means));
    all.push(match (means.gives_users(), lack) {
        (true, None) => entry("slot_uid", State::Enforced, "a user of its own"),
        (true, Some(_)) => entry("slot_uid", State::Unavailable, "needs namespaces"),
        (false, _) if means.root() => {
            let via = "root without the capability to change users, or without ids for them";
            entry("slot_uid", State::Unavailable, via)
        }
        (false, _) => entry("slot_uid", State::Unavailable, "only root can have one"),
    });
    all
}

/// In the place of what was said of it before.
fn put(mechanisms: &mut Vec<Mechanism>, mechanism: Mechanism) {
    let same = |one: &&mut Mechanism| one.name == mechanism.name;
    match mechanisms.iter_mut().find(same) {
        Some(found) => *found = mechanism,
        None => mechanisms.push(mechanism),
    }
}

/// What a workspace brings to a call of any level, and what of `strict` it takes away.
fn add_workspace(
    mechanisms: &mut Vec<Mechanism>,
    workspace: &Workspace,
    level: Level,
    means: &Means,
) {
    let by_root = workspace.namespace == WorkspaceNamespace::Root;
    let mut put = |mechanism| put(mechanisms, mechanism);
    let via = match by_root {
        false => "overlay in a user namespace",
        true => "overlay mounted by root",
    };
    put(match workspace.upper {
        Upper::Memory { .. } => entry("workspace", State::Enforced, via),
        Upper::Disk { .. } => Mechanism {
            hint: "its changes go to the disk, without a quota",
            ..entry("workspace", State::Enforced, via)
        },
    });
    if level == Level::None {
        put(entry("no_new_privs", State::Enforced, "prctl"));
        put(entry("capabilities", State::Enforced, "all sets empty"));
    }
    if means.namespaces_at(level).is_none() {
        let via = "namespace of its own, with its own /proc";
        put(entry("pidns", State::Enforced, via));
        let via = "pid namespace with its own /proc";
        put(entry("environ_guard", State::Enforced, via));
        let via = "death of the namespace's init";
        put(entry("tree_kill", State::Enforced, via));
    }
    if level == Level::Strict {
        let via = "with a workspace it is its caller's own user";
        put(entry("slot_uid", State::Unavailable, via));
        if by_root {
            put(entry("userns", State::Unavailable, "mounted by root"));
        }
    }
}

fn namespace(name: &'static str, lack: Option<Lack>) -> Mechanism {
    match lack {
        None => entry(name, State::Enforced, "namespace of its own"),
        Some(lack) if lack.mechanism == name => Mechanism {
            errno: lack.errno,
            hint: lack.hint,
            ..entry(name, State::Unavailable, "cannot be set up")
        },
        Some(_) => entry(
            name,
            State::Unavailable,
            "not used without the other namespaces",
        ),
    }
}

fn seccomp(means: &Means) -> Mechanism {
    match means.seccomp() {
        true => entry("seccomp", State::Enforced, "deny-list"),
        false => Mechanism {
            hint: SECCOMP_HINT,
            ..entry("seccomp", State::Unavailable, "no filters of system calls")
        },
    }
}

fn network(asked: Network, lack: Option<Lack>, filtered: bool) -> Mechanism {
    let (state, via) = match (asked, lack) {
        (Network::Host, _) => (State::Unavailable, "the host's, as asked for"),
        (Network::None, None) => (
            State::Enforced,
            "network namespace without any interface up",
        ),
        (Network::Loopback, None) => (State::Enforced, "network namespace with its own loopback"),
        (_, Some(_)) if filtered => (State::Enforced, "seccomp: only pairs of sockets"),
        (_, Some(_)) => (State::Unavailable, "nothing keeps it from the host's"),
    };
    let failed = lack.filter(|lack| lack.mechanism == "network");
    Mechanism {
        errno: failed.and_then(|lack| lack.errno),
        hint: failed.map_or("", |lack| lack.hint),
        ..entry("network", state, via)
    }
}

fn entry(name: &'static str, state: State, via: &'static str) -> Mechanism {
    Mechanism::new(name, state, via)
}

fn tree_kill(level: Level, means: &Means) -> Mechanism {
    const NAME: &str = "tree_kill";
    let partial = entry(NAME, State::Partial, "subreaper");
    let by_init = entry(NAME, State::Enforced, "death of the namespace's init");
    match (level, means.kill()) {
        (Level::None, _) => partial,
        (Level::Strict, _) => by_init,
        (Level::Limits | Level::Confined, Ok(via)) if cannot_leave_cgroup(level, means) => {
            entry(NAME, State::Enforced, via)
        }
        (Level::Limits | Level::Confined, _) if means.namespaces_at(level).is_some() => by_init,
        (Level::Limits | Level::Confined, Ok(via)) => Mechanism {
            hint: LANDLOCK_HINT,
            ..entry(NAME, State::Partial, via)
        },
        (Level::Limits | Level::Confined, Err(hint)) => Mechanism { hint, ..partial },
    }
}

/// By the cgroup of a confined call, where there is one.
fn by_cgroup(
    name: &'static str,
    level: Level,
    means: &Means,
    group: Result<&'static str, &'static str>,
) -> Mechanism {
    let sampled = entry(name, State::Sampled, "proc every 10 ms");
    match (level, group) {
        (Level::None, _) => sampled,
        (_, Err(hint)) => Mechanism { hint, ..sampled },
        (_, Ok(via)) if cannot_leave_cgroup(level, means) => entry(name, State::Enforced, via),
        (_, Ok(via)) => Mechanism {
            hint: "a program can leave its control group; what keeps it inside needs Landlock: Linux 5.13",
            ..entry(name, State::Partial, via)
        },
    }
}

/// Whether it cannot write to the files by which processes are moved: they belong to its own user.
fn cannot_leave_cgroup(level: Level, means: &Means) -> bool {
    means.landlock() > 0 || means.namespaces_at(level) == Some(Inside::World)
}

fn memory(level: Level, means: &Means) -> Mechanism {
    by_cgroup("memory", level, means, means.memory())
}

fn processes(level: Level, means: &Means) -> Mechanism {
    const NAME: &str = "processes";
    if level != Level::None && means.counts_users_at(level) {
        let via = "RLIMIT_NPROC of a user counted alone";
        return entry(NAME, State::Enforced, via);
    }
    by_cgroup(NAME, level, means, means.processes())
}

fn cpu(level: Level, means: &Means) -> Mechanism {
    if level != Level::None && means.cpu_time().is_ok() {
        entry("cpu", State::Sampled, "cgroup every 10 ms")
    } else {
        entry("cpu", State::Sampled, "proc every 10 ms")
    }
}

/// How a call's processes are kept from taking the processors from other calls.
fn cpu_share(level: Level, means: &Means) -> Mechanism {
    const NAME: &str = "cpu_share";
    match (means.cpu_share(), means.groups_sessions()) {
        (Ok(_), _) => by_cgroup(NAME, level, means, means.cpu_share()),
        (Err(hint), true) => Mechanism {
            hint,
            ..entry(
                NAME,
                State::Partial,
                "by sessions, of which a call can make more",
            )
        },
        (Err(hint), false) => Mechanism {
            hint,
            ..entry(
                NAME,
                State::Unavailable,
                "by threads: who has more gets more",
            )
        },
    }
}

fn rlimits(mode: Mode) -> Mechanism {
    match mode {
        // The next call may ask for more, so the hard limit stays, and code can raise the soft one to it.
        Mode::Reuse => Mechanism {
            hint: "a call with a process of its own (`fresh`) has hard ones",
            ..entry("rlimits", State::Partial, "setrlimit, soft limits")
        },
        Mode::Fresh | Mode::Command => entry("rlimits", State::Enforced, "setrlimit"),
    }
}

const LANDLOCK_HINT: &str = "needs Landlock: Linux 5.13 with `landlock` in the `lsm=` list";
const TRUNCATE_HINT: &str = "needs Landlock ABI 3: Linux 6.2";
const SECCOMP_HINT: &str = "needs a kernel with `CONFIG_SECCOMP_FILTER`";
const SCOPES_HINT: &str = "needs Landlock ABI 6: Linux 6.12";

fn signal_scope(level: Level, means: &Means) -> Mechanism {
    const NAME: &str = "signal_scope";
    let weak = |state, via| Mechanism {
        hint: SCOPES_HINT,
        ..entry(NAME, state, via)
    };
    match (level, means.landlock(), means.namespaces_at(level)) {
        (Level::Strict, ..) => entry(NAME, State::Enforced, "pid and network namespace"),
        (_, landlock::SCOPES_ABI.., _) => entry(NAME, State::Enforced, "Landlock"),
        (.., Some(_)) => weak(
            State::Partial,
            "pid namespace; abstract sockets can be reached",
        ),
        (.., None) => weak(State::Unavailable, "nothing keeps signals inside"),
    }
}

/// What keeps a call from the limits, priorities and processors of other processes.
fn process_scope(level: Level, means: &Means) -> Mechanism {
    const NAME: &str = "process_scope";
    match (means.namespaces_at(level), means.seccomp()) {
        (Some(_), true) => entry(NAME, State::Enforced, "pid namespace and seccomp"),
        (Some(_), false) => entry(NAME, State::Enforced, "pid namespace"),
        (None, true) => entry(NAME, State::Enforced, "seccomp"),
        (None, false) => Mechanism {
            hint: SECCOMP_HINT,
            ..entry(
                NAME,
                State::Unavailable,
                "processes of the same user can change each other's limits and priorities",
            )
        },
    }
}

/// Where no mount namespace hides the host's files. What it leaves open is in docs/security.md: names, owners and times.
fn read_scope(means: &Means) -> Mechanism {
    const NAME: &str = "read_scope";
    match means.landlock() {
        1.. => entry(NAME, State::Enforced, "Landlock"),
        0 => Mechanism {
            hint: LANDLOCK_HINT,
            ..entry(NAME, State::Unavailable, "nothing keeps it from reading")
        },
    }
}

fn write_scope(level: Level, mode: Mode, means: &Means, own_mounts: bool) -> Mechanism {
    const NAME: &str = "write_scope";
    let has_mounts = level == Level::Strict || own_mounts;
    match (has_mounts, mode, means.landlock()) {
        (true, Mode::Fresh | Mode::Command, 1..) => {
            entry(NAME, State::Enforced, "mount namespace and Landlock")
        }
        (true, Mode::Fresh | Mode::Command, 0) => entry(NAME, State::Enforced, "mount namespace"),
        (_, Mode::Reuse, 1..) => entry(
            NAME,
            State::Partial,
            "Landlock; the directories of all calls",
        ),
        (_, _, landlock::TRUNCATE_ABI..) => entry(NAME, State::Enforced, "Landlock"),
        (_, _, 1..) => Mechanism {
            hint: TRUNCATE_HINT,
            ..entry(
                NAME,
                State::Partial,
                "Landlock, but files anywhere can be cut to nothing",
            )
        },
        (_, _, 0) => Mechanism {
            hint: LANDLOCK_HINT,
            ..entry(NAME, State::Unavailable, "nothing keeps it from writing")
        },
    }
}

fn own_memory() -> Mechanism {
    let via = "its own /dev/shm and ipc namespace";
    entry("shared_memory", State::Enforced, via)
}

/// No owner tells whose it was: calls at `limits` and `confined` have the engine's user.
fn shared_memory(level: Level, means: &Means) -> Mechanism {
    const NAME: &str = "shared_memory";
    match level {
        Level::Strict => own_memory(),
        Level::Confined if means.seccomp() && means.landlock() > 0 => entry(
            NAME,
            State::Partial,
            "the host's /dev/shm, which cannot be listed; no System V objects",
        ),
        _ => Mechanism {
            hint: "what a call leaves in /dev/shm stays there; at `strict` it has its own",
            ..entry(NAME, State::Unavailable, "the host's: open at this level")
        },
    }
}

/// Whether a candidate can read this process's own environment in `/proc` (EX-40).
fn environ_guard(level: Level, means: &Means) -> Mechanism {
    const NAME: &str = "environ_guard";
    let by_namespace = entry(NAME, State::Enforced, "pid namespace with its own /proc");
    match level {
        Level::None => {}
        Level::Strict => return by_namespace,
        Level::Limits | Level::Confined if means.landlock() > 0 => {
            return entry(NAME, State::Enforced, "Landlock, no capabilities");
        }
        Level::Limits | Level::Confined if means.namespaces_at(level).is_some() => {
            return by_namespace;
        }
        Level::Limits | Level::Confined => {}
    }
    // A host decides this before it makes a backend, if at all; to ask for each call takes two system calls.
    static HIDDEN: OnceLock<(bool, bool)> = OnceLock::new();
    let (state, via) = match *HIDDEN.get_or_init(|| {
        let hidden = crate::linux::process::is_hidden_from_same_user();
        (hidden, rustix::process::geteuid().is_root())
    }) {
        (true, false) => (State::Enforced, "undumpable engine"),
        (true, true) => (
            State::Partial,
            "undumpable engine, but a candidate that is root reads it all the same",
        ),
        (false, _) => (
            State::Unavailable,
            "the host process stays readable, for debuggers",
        ),
    };
    let hint = match (level, state) {
        (Level::None, _) | (_, State::Enforced) => "",
        _ => LANDLOCK_HINT,
    };
    Mechanism {
        hint,
        ..entry(NAME, state, via)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{PickledWork, PythonTerms};

    fn state(call: &Call, mode: Mode, name: &str) -> Option<State> {
        let mechanisms = in_force(call, mode, &Means::default()).mechanisms;
        let found = mechanisms.iter().find(|mechanism| mechanism.name == name)?;
        Some(found.state)
    }

    #[test]
    fn a_limit_that_code_can_raise_again_is_not_called_enforced() {
        let mut call = Call::source("", "f", Vec::new());
        call.sandbox = Sandbox::new(Level::None);
        assert_eq!(state(&call, Mode::Fresh, "rlimits"), None);
        call.limits.open_files = Some(64);
        assert_eq!(state(&call, Mode::Fresh, "rlimits"), Some(State::Enforced));
        assert_eq!(state(&call, Mode::Reuse, "rlimits"), Some(State::Partial));
    }

    #[test]
    fn only_a_call_that_has_a_directory_is_said_to_have_one() {
        let source = Call::source("", "f", Vec::new());
        let pickled = Call::new(Work::Pickled(PickledWork {
            body: Vec::new().into(),
            python: PythonTerms::default(),
        }));
        assert_eq!(
            state(&source, Mode::Fresh, "scratch"),
            Some(State::Enforced)
        );
        assert_eq!(state(&pickled, Mode::Reuse, "scratch"), None);
    }

    /// SB-41
    #[test]
    fn what_did_not_hold_when_it_was_tried_is_not_called_enforced() {
        let means = Means::default();
        means.self_tested(Level::Limits, &["write_scope", "oom_score"]);
        let mut call = Call::command(["true"]);
        call.sandbox = Sandbox::new(Level::Limits);
        let in_force = |call: &Call| in_force(call, Mode::Command, &means);
        let weak = in_force(&call);
        let is_weak = |name| weak.weak().any(|mechanism| mechanism.name == name);
        assert!(is_weak("write_scope") && is_weak("oom_score"));
        assert_eq!(weak.effective, Level::None);
        call.sandbox = Sandbox::new(Level::Strict);
        assert!(in_force(&call).weak().all(|one| one.name != "oom_score"));
        call.sandbox = Sandbox::new(Level::Limits);
        means.self_tested(Level::Limits, &[]);
        assert!(in_force(&call).weak().all(|one| one.name != "oom_score"));
    }
}
