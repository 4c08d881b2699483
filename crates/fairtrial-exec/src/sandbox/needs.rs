//! What each level needs of each mechanism, and what follows when the machine has less. Pure.

use super::report::{Mechanism, State};
use super::{Level, Network, OnMissing, Sandbox};
use crate::call::Call;

/// What a level needs of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Nothing.
    No,
    /// Sampled or partial will do: `r` in the table of levels.
    Some,
    /// Enforced: `R`.
    Enforced,
}

/// What `limits`, `confined` and `strict` need beyond what every call has.
const NEEDS: [(&str, Need, Need, Need); 21] = [
    ("tree_kill", Need::Some, Need::Some, Need::Enforced),
    (
        "environ_guard",
        Need::Enforced,
        Need::Enforced,
        Need::Enforced,
    ),
    // Its quota, where that was asked for.
    ("scratch", Need::No, Need::No, Need::Enforced),
    ("cpu", Need::Some, Need::Some, Need::Some),
    ("memory", Need::Some, Need::Some, Need::Some),
    ("processes", Need::Some, Need::Some, Need::Some),
    // A worker that is kept has soft limits only, since its next call may have more: it does not have `limits`.
    ("rlimits", Need::Enforced, Need::Enforced, Need::Enforced),
    ("oom_score", Need::Enforced, Need::Enforced, Need::Enforced),
    (
        "no_new_privs",
        Need::Enforced,
        Need::Enforced,
        Need::Enforced,
    ),
    (
        "capabilities",
        Need::Enforced,
        Need::Enforced,
        Need::Enforced,
    ),
    ("signal_scope", Need::Some, Need::Some, Need::Enforced),
    ("process_scope", Need::Some, Need::Enforced, Need::Enforced),
    ("write_scope", Need::Some, Need::Enforced, Need::Enforced),
    // Where no mount namespace keeps files out of sight.
    ("read_scope", Need::No, Need::Enforced, Need::No),
    ("userns", Need::No, Need::No, Need::Enforced),
    ("pidns", Need::No, Need::No, Need::Enforced),
    ("ipcns", Need::No, Need::No, Need::Enforced),
    ("utsns", Need::No, Need::No, Need::Enforced),
    ("mountns", Need::No, Need::No, Need::Enforced),
    ("network", Need::No, Need::Enforced, Need::Enforced),
    ("seccomp", Need::No, Need::Enforced, Need::Enforced),
];

/// Those that fall short of what a level needs: first what the kernel refused, then what is not there at all.
pub(super) fn missing<'a>(
    level: Level,
    sandbox: &Sandbox,
    mechanisms: &'a [Mechanism],
) -> Vec<&'a Mechanism> {
    let short = |mechanism: &&Mechanism| match need(level, sandbox, mechanism.name) {
        Need::No => false,
        Need::Some => mechanism.state == State::Unavailable,
        Need::Enforced => mechanism.state != State::Enforced,
    };
    let mut missing: Vec<_> = mechanisms.iter().filter(short).collect();
    missing.sort_by_key(|one| (one.errno.is_none(), one.state != State::Unavailable));
    missing
}

fn need(level: Level, sandbox: &Sandbox, mechanism: &str) -> Need {
    if mechanism == "network" && sandbox.network == Network::Host {
        return Need::No; // as asked for
    }
    let needs = NEEDS.iter().find(|(name, ..)| *name == mechanism);
    match (needs, level) {
        (None, _) | (_, Level::None) => Need::No,
        (Some((_, limits, ..)), Level::Limits) => *limits,
        (Some((.., confined, _)), Level::Confined) => *confined,
        (Some((.., strict)), Level::Strict) => *strict,
    }
}

/// The highest level, up to the one asked for, whose needs are met.
pub(super) fn effective(sandbox: &Sandbox, mechanisms: &[Mechanism]) -> Level {
    let met = |level: &Level| missing(*level, sandbox, mechanisms).is_empty();
    let levels = [Level::Strict, Level::Confined, Level::Limits].into_iter();
    levels
        .filter(|level| *level <= sandbox.level)
        .find(met)
        .unwrap_or(Level::None)
}

/// Why a call that wants its whole level cannot have it: the mechanism, why not, and what helps.
pub(super) fn refusal(call: &Call, mechanisms: &[Mechanism]) -> Option<String> {
    let level = call.sandbox.level;
    if call.sandbox.on_missing != OnMissing::Fail {
        return None;
    }
    let missing = missing(level, &call.sandbox, mechanisms);
    let first = missing.first()?;
    let (name, why) = (first.name, first.why());
    Some(format!("level `{level}` cannot be had: `{name}`: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(state: State) -> Vec<Mechanism> {
        let names = NEEDS.iter().map(|(name, ..)| *name);
        names
            .map(|name| Mechanism::new(name, state, "a test"))
            .collect()
    }

    fn effective_with(sandbox: &Sandbox, name: &str, state: State) -> Level {
        let mut mechanisms = all(State::Enforced);
        let found = mechanisms.iter_mut().find(|one| one.name == name);
        found.expect(name).state = state;
        effective(sandbox, &mechanisms)
    }

    /// SB-44: each cell of the table by itself.
    #[test]
    fn a_level_is_had_when_all_that_it_needs_is() {
        let sandbox = Sandbox::new(Level::Strict);
        for (name, limits, confined, strict) in NEEDS {
            for state in [State::Sampled, State::Partial, State::Unavailable] {
                let holds = |need| match need {
                    Need::No => true,
                    Need::Some => state != State::Unavailable,
                    Need::Enforced => false,
                };
                let wanted = match (holds(strict), holds(confined), holds(limits)) {
                    (true, ..) => Level::Strict,
                    (_, true, _) => Level::Confined,
                    (.., true) => Level::Limits,
                    _ => Level::None,
                };
                assert_eq!(
                    effective_with(&sandbox, name, state),
                    wanted,
                    "{name} {state:?}"
                );
            }
        }
        let limits = Sandbox::new(Level::Limits);
        assert_eq!(effective(&limits, &all(State::Enforced)), Level::Limits);
    }

    /// SB-44
    #[test]
    fn the_hosts_network_is_no_weakness_where_it_was_asked_for() {
        let mut sandbox = Sandbox::new(Level::Strict);
        let level = |sandbox: &Sandbox| effective_with(sandbox, "network", State::Unavailable);
        assert_eq!(level(&sandbox), Level::Limits);
        sandbox.network = Network::Host;
        assert_eq!(level(&sandbox), Level::Strict);
    }
}
