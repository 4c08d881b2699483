//! What is really in force: each mechanism, and how well it holds.

use std::sync::OnceLock;

use super::Level;
use crate::call::{Call, Work};
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
            .map(|m| {
                (
                    m.name.to_owned(),
                    serde_json::json!({"state": m.state.name(), "via": m.via}),
                )
            })
            .collect();
        serde_json::json!({
            "requested": self.requested.to_string(),
            "effective": self.effective.to_string(),
            "mode": self.mode,
            "mechanisms": mechanisms,
        })
    }
}

/// What holds for a call: the level `none`, the only one there is, and the limits that were asked for.
pub(crate) fn in_force(call: &Call, mode: Mode) -> InForce {
    let mut mechanisms = standing().to_vec();
    if matches!(call.work, Work::Pickled(_)) {
        // The caller's own function works in the caller's own directory.
        mechanisms.retain(|mechanism| mechanism.name != "scratch");
    }
    let limits = &call.limits;
    let sampled = |name| Mechanism {
        name,
        state: State::Sampled,
        via: "proc every 10 ms",
    };
    let asked = [
        ("memory", limits.memory_bytes.is_some()),
        ("cpu", limits.cpu.is_some()),
        ("processes", limits.processes.is_some()),
    ];
    mechanisms.extend(
        asked
            .iter()
            .filter(|(_, asked)| *asked)
            .map(|(name, _)| sampled(name)),
    );
    if limits.open_files.is_some() || limits.file_bytes.is_some() {
        let (state, via) = match mode {
            // The next call may ask for more, so the hard limit stays, and code can raise the soft one to it.
            Mode::Reuse => (State::Partial, "setrlimit, soft limits"),
            Mode::Fresh | Mode::Command => (State::Enforced, "setrlimit"),
        };
        mechanisms.push(Mechanism {
            name: "rlimits",
            state,
            via,
        });
    }
    InForce {
        requested: call.sandbox.level,
        effective: Level::None,
        mode: mode.name(),
        mechanisms,
    }
}

/// What the level `none` always brings.
pub(crate) fn standing() -> [Mechanism; 9] {
    let entry = |name, state, via| Mechanism { name, state, via };
    [
        entry("session", State::Enforced, "setsid"),
        entry("tree_kill", State::Partial, "subreaper"),
        entry(
            "orphan_guard",
            State::Enforced,
            "launcher, parent-death signal",
        ),
        entry("clean_env", State::Enforced, "allow-list"),
        entry("closed_fds", State::Enforced, "close_range"),
        environ_guard(),
        entry("scratch", State::Enforced, "private directory"),
        entry("wall", State::Enforced, "launcher's timer"),
        entry("output", State::Enforced, "counted by the engine"),
    ]
}

/// Whether a candidate can read this process's own environment in `/proc` (EX-40).
fn environ_guard() -> Mechanism {
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
    Mechanism {
        name: "environ_guard",
        state,
        via,
    }
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
