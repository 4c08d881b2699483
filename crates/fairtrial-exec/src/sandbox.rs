//! Isolation levels, and what is really in force. The mechanisms themselves are in `linux`.

use std::fmt;
use std::str::FromStr;

/// How much isolation a call asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// Own session, tree kill, clean environment, wall and output limits.
    #[default]
    None,
    /// Resource limits and scopes besides.
    Limits,
    /// Namespaces, no network, system call filter besides.
    Strict,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Limits => "limits",
            Self::Strict => "strict",
        })
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "limits" => Ok(Self::Limits),
            "strict" => Ok(Self::Strict),
            other => Err(format!(
                "unknown level `{other}`; the levels are `none`, `limits` and `strict`"
            )),
        }
    }
}

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

#[cfg(feature = "engine")]
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

/// What holds for a call at this stage: the level `none` and the limits that were asked for.
#[cfg(feature = "engine")]
pub(crate) fn in_force(call: &crate::call::Call, mode: &'static str) -> InForce {
    let mut mechanisms = standing().to_vec();
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
        mechanisms.push(Mechanism {
            name: "rlimits",
            state: State::Enforced,
            via: "setrlimit",
        });
    }
    InForce {
        requested: call.sandbox,
        effective: Level::None,
        mode,
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
#[cfg(feature = "engine")]
fn environ_guard() -> Mechanism {
    let hidden = crate::linux::process::is_hidden_from_same_user();
    let (state, via) = match (hidden, rustix::process::geteuid().is_root()) {
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
