//! What is really in force: each mechanism, and how well it holds.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::means::Means;
use super::{Level, Network, OnMissing, Sandbox};
use crate::call::{Call, Work};
use crate::linux::landlock;
use crate::worker::Mode;

/// How well a mechanism holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The kernel sees to it.
    Enforced,
    /// Looked at every so often; spikes can be missed.
    Sampled,
    /// Holds against accidents, not against a determined program.
    Partial,
    /// Not there.
    Unavailable,
}

impl State {
    /// The name in the public contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Sampled => "sampled",
            Self::Partial => "partial",
            Self::Unavailable => "unavailable",
        }
    }
}

/// One mechanism, and how well it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mechanism {
    /// Its name in the contract (`tree_kill`, `memory`).
    pub name: &'static str,
    /// How well it held.
    pub state: State,
    /// By what means, or why not.
    pub via: &'static str,
    /// What would make it better; empty if nothing is known to.
    pub hint: &'static str,
}

/// The isolation that really held for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// The level asked for.
    pub requested: Level,
    /// The level had.
    pub effective: Level,
    /// How the process came about: `fresh`, `reuse` or `command`.
    pub mode: &'static str,
    /// What was in force, the weak spots included.
    pub mechanisms: Vec<Mechanism>,
}

impl InForce {
    /// The contract's `in_force` object.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mechanisms: serde_json::Map<_, _> = self
            .mechanisms
            .iter()
            .map(|m| (m.name.to_owned(), m.to_json()))
            .collect();
        serde_json::json!({
            "requested": self.requested.to_string(),
            "effective": self.effective.to_string(),
            "mode": self.mode,
            "digest": self.digest(),
            "mechanisms": mechanisms,
        })
    }

    /// The same for calls that had the same isolation, on whatever machine.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(format!(
            "{} {} {}\n",
            self.requested, self.effective, self.mode
        ));
        for mechanism in &self.mechanisms {
            let Mechanism {
                name, state, via, ..
            } = mechanism;
            hash.update(format!("{name} {} {via}\n", state.name()));
        }
        let bytes = hash.finalize();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}")
    }
}

impl Mechanism {
    /// The contract's object for it.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mut object = serde_json::json!({"state": self.state.name(), "via": self.via});
        if !self.hint.is_empty() {
            object["hint"] = self.hint.into();
        }
        object
    }
}

/// What holds for a call: what its level brings on this machine, and the limits that were asked for.
pub(crate) fn in_force(call: &Call, mode: Mode) -> InForce {
    let level = call.sandbox.level;
    let mut mechanisms = standing(&call.sandbox, mode);
    if matches!(call.work, Work::Pickled(_)) {
        // The caller's own function works in the caller's own directory.
        mechanisms.retain(|mechanism| mechanism.name != "scratch");
    }
    let limits = &call.limits;
    let asked = [
        limits.cpu.is_some().then(|| cpu(level)),
        limits
            .memory_bytes
            .is_some()
            .then(|| by_cgroup("memory", level)),
        limits
            .processes
            .is_some()
            .then(|| by_cgroup("processes", level)),
    ];
    mechanisms.extend(asked.into_iter().flatten());
    if level == Level::None && (limits.open_files.is_some() || limits.file_bytes.is_some()) {
        mechanisms.push(rlimits(mode));
    }
    InForce {
        requested: level,
        effective: effective(level, &mechanisms),
        mode: mode.name(),
        mechanisms,
    }
}

/// What a level brings to every call, whatever its limits.
fn standing(sandbox: &Sandbox, mode: Mode) -> Vec<Mechanism> {
    let level = sandbox.level;
    let mut all = vec![
        entry("session", State::Enforced, "setsid"),
        tree_kill(level),
        entry(
            "orphan_guard",
            State::Enforced,
            "launcher, parent-death signal",
        ),
        entry("clean_env", State::Enforced, "allow-list"),
        entry("closed_fds", State::Enforced, "close_range"),
        environ_guard(level),
        match level {
            Level::Strict => entry(
                "scratch",
                State::Enforced,
                "file system of its own, with a quota",
            ),
            _ => entry("scratch", State::Enforced, "private directory"),
        },
        entry("wall", State::Enforced, "launcher's timer"),
        entry("output", State::Enforced, "counted by the engine"),
    ];
    if level >= Level::Limits {
        all.extend([
            rlimits(mode),
            entry("oom_score", State::Enforced, "oom_score_adj +800"),
            entry("no_new_privs", State::Enforced, "prctl"),
            entry("capabilities", State::Enforced, "all sets empty"),
            signal_scope(level),
            write_scope(level, mode),
        ]);
    }
    if sandbox.cpus.is_some() {
        all.push(entry(
            "cpus",
            State::Partial,
            "affinity, which a program can change",
        ));
    }
    if level == Level::Strict {
        let namespaces = ["userns", "pidns", "ipcns", "utsns", "mountns"];
        all.extend(namespaces.map(|name| entry(name, State::Enforced, "namespace of its own")));
        all.push(match sandbox.network {
            Network::None => entry(
                "network",
                State::Enforced,
                "network namespace without any interface up",
            ),
            Network::Loopback => entry(
                "network",
                State::Enforced,
                "network namespace with its own loopback",
            ),
            Network::Host => entry("network", State::Unavailable, "the host's, as asked for"),
        });
        all.push(entry("seccomp", State::Enforced, "deny-list"));
        all.push(match Means::here().root {
            true => entry("slot_uid", State::Enforced, "a user of its own"),
            false => entry("slot_uid", State::Unavailable, "only root can have one"),
        });
    } else if level == Level::Limits {
        all.push(entry(
            "network",
            State::Unavailable,
            "the host's: open at this level",
        ));
    }
    all
}

/// What a level needs of each mechanism.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Nothing.
    No,
    /// Sampled or partial will do.
    Some,
    /// Enforced.
    Enforced,
}

/// What `limits` and `strict` need beyond `none`.
const NEEDS: [(&str, Need, Need); 17] = [
    ("tree_kill", Need::Some, Need::Enforced),
    ("environ_guard", Need::Enforced, Need::Enforced),
    ("cpu", Need::Some, Need::Some),
    ("memory", Need::Some, Need::Some),
    ("processes", Need::Some, Need::Some),
    ("rlimits", Need::Some, Need::Enforced),
    ("oom_score", Need::Enforced, Need::Enforced),
    ("no_new_privs", Need::Enforced, Need::Enforced),
    ("capabilities", Need::Enforced, Need::Enforced),
    ("signal_scope", Need::Some, Need::Enforced),
    ("write_scope", Need::Some, Need::Enforced),
    ("userns", Need::No, Need::Enforced),
    ("pidns", Need::No, Need::Enforced),
    ("ipcns", Need::No, Need::Enforced),
    ("utsns", Need::No, Need::Enforced),
    ("mountns", Need::No, Need::Enforced),
    ("seccomp", Need::No, Need::Enforced),
];

/// Why a call that wants its whole level cannot have it on this machine.
pub(crate) fn lacking(call: &Call, mode: Mode) -> Option<String> {
    let level = call.sandbox.level;
    if level != Level::Limits || call.sandbox.on_missing != OnMissing::Fail {
        return None; // what `strict` lacks is found when it is set up, and fails it there
    }
    let in_force = in_force(call, mode);
    let first = *missing(level, &in_force.mechanisms).first()?;
    let Mechanism {
        name, via, hint, ..
    } = first;
    Some(format!(
        "level `{level}` cannot be had: `{name}`: {via} ({hint})"
    ))
}

/// Those that fall short of what the level needs.
fn missing(level: Level, mechanisms: &[Mechanism]) -> Vec<&Mechanism> {
    let short = |mechanism: &&Mechanism| {
        let needs = NEEDS.iter().find(|(name, ..)| *name == mechanism.name);
        let need = match (needs, level) {
            (None, _) | (_, Level::None) => Need::No,
            (Some((_, limits, _)), Level::Limits) => *limits,
            (Some((.., strict)), Level::Strict) => *strict,
        };
        match need {
            Need::No => false,
            Need::Some => mechanism.state == State::Unavailable,
            Need::Enforced => mechanism.state != State::Enforced,
        }
    };
    mechanisms.iter().filter(short).collect()
}

/// The highest level whose needs are met.
fn effective(level: Level, mechanisms: &[Mechanism]) -> Level {
    let met = |level: &Level| missing(*level, mechanisms).is_empty();
    let below = [Level::Strict, Level::Limits].into_iter();
    below
        .filter(|each| *each <= level)
        .find(met)
        .unwrap_or(Level::None)
}

fn entry(name: &'static str, state: State, via: &'static str) -> Mechanism {
    Mechanism {
        name,
        state,
        via,
        hint: "",
    }
}

fn tree_kill(level: Level) -> Mechanism {
    let partial = entry("tree_kill", State::Partial, "subreaper");
    match level {
        Level::None => partial,
        Level::Limits => match Means::here().kill {
            Ok(via) => entry("tree_kill", State::Enforced, via),
            Err(hint) => Mechanism { hint, ..partial },
        },
        Level::Strict => entry(
            "tree_kill",
            State::Enforced,
            "death of the namespace's init",
        ),
    }
}

/// By the cgroup of a confined call, where there is one.
fn by_cgroup(name: &'static str, level: Level) -> Mechanism {
    let sampled = entry(name, State::Sampled, "proc every 10 ms");
    if level == Level::None {
        return sampled;
    }
    let means = Means::here();
    match if name == "memory" {
        means.memory
    } else {
        means.processes
    } {
        Ok(via) => entry(name, State::Enforced, via),
        Err(_) if name == "processes" && means.counts_users_at(level) => entry(
            name,
            State::Enforced,
            "RLIMIT_NPROC of a user counted alone",
        ),
        Err(hint) => Mechanism { hint, ..sampled },
    }
}

fn cpu(level: Level) -> Mechanism {
    if level != Level::None && Means::here().cpu_time.is_ok() {
        entry("cpu", State::Sampled, "cgroup every 10 ms")
    } else {
        entry("cpu", State::Sampled, "proc every 10 ms")
    }
}

fn rlimits(mode: Mode) -> Mechanism {
    match mode {
        // The next call may ask for more, so the hard limit stays, and code can raise the soft one to it.
        Mode::Reuse => entry("rlimits", State::Partial, "setrlimit, soft limits"),
        Mode::Fresh | Mode::Command => entry("rlimits", State::Enforced, "setrlimit"),
    }
}

const LANDLOCK_HINT: &str = "needs Landlock: Linux 5.13 with `landlock` in the `lsm=` list";
const SCOPES_HINT: &str = "needs Landlock ABI 6: Linux 6.12";

fn signal_scope(level: Level) -> Mechanism {
    match (level, Means::here().landlock) {
        (Level::Strict, _) => entry("signal_scope", State::Enforced, "pid and network namespace"),
        (_, landlock::SCOPES_ABI..) => entry("signal_scope", State::Enforced, "Landlock"),
        _ => Mechanism {
            hint: SCOPES_HINT,
            ..entry(
                "signal_scope",
                State::Unavailable,
                "nothing keeps signals inside",
            )
        },
    }
}

fn write_scope(level: Level, mode: Mode) -> Mechanism {
    match (level, mode, Means::here().landlock) {
        (Level::Strict, _, 1..) => entry(
            "write_scope",
            State::Enforced,
            "mount namespace and Landlock",
        ),
        (Level::Strict, ..) => entry("write_scope", State::Enforced, "mount namespace"),
        (_, Mode::Reuse, 1..) => entry(
            "write_scope",
            State::Partial,
            "Landlock; the directories of all calls",
        ),
        (_, _, 1..) => entry("write_scope", State::Enforced, "Landlock"),
        _ => Mechanism {
            hint: LANDLOCK_HINT,
            ..entry(
                "write_scope",
                State::Unavailable,
                "nothing keeps it from writing",
            )
        },
    }
}

/// Whether a candidate can read this process's own environment in `/proc` (EX-40).
fn environ_guard(level: Level) -> Mechanism {
    match level {
        Level::Strict => {
            return entry(
                "environ_guard",
                State::Enforced,
                "pid namespace with its own /proc",
            );
        }
        Level::Limits if Means::here().landlock > 0 => {
            return entry(
                "environ_guard",
                State::Enforced,
                "Landlock, no capabilities",
            );
        }
        _ => {}
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
    entry("environ_guard", state, via)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{PickledWork, PythonTerms};

    fn state(call: &Call, mode: Mode, name: &str) -> Option<State> {
        let mechanisms = in_force(call, mode).mechanisms;
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
}
