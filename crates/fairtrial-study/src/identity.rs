//! What a run is, as far as that can change its result (ST-65): computed before a run, and compared with the record.

use std::fmt;

use crate::canonical::{canonical_json, sha256_hex};
use crate::value::Value;

/// Of how identities are made; a record of another version is never the same.
const VERSION: &str = "1";
const SHORT: usize = 12;

/// The parts of a run's identity that many runs share, hashed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part(String);

impl Part {
    /// Of what it is.
    pub(crate) fn of(value: &Value) -> Self {
        let mut hash = sha256_hex(canonical_json(value).as_bytes());
        hash.truncate(SHORT);
        Self(hash)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a run is. As text: version, hash of all, and the parts, by which a difference is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity(String);

impl Identity {
    /// Of a run.
    pub(crate) fn of(run_id: &str, seed: u64, agent: &Part, terms: &Part, problem: &Part) -> Self {
        let all = format!("{VERSION} {run_id} {seed} {agent} {terms} {problem}");
        let mut hash = sha256_hex(all.as_bytes());
        hash.truncate(2 * SHORT);
        Self(format!("{VERSION}:{hash}:{agent}:{terms}:{problem}"))
    }

    /// As it is recorded.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// What differs from a recorded one; none if nothing does. `recorded_seed` is that of the record.
    pub(crate) fn difference(
        &self,
        recorded: &str,
        seed: u64,
        recorded_seed: u64,
    ) -> Option<String> {
        if self.0 == recorded {
            return None;
        }
        if seed != recorded_seed {
            return Some(format!("seed changed ({recorded_seed} to {seed})"));
        }
        let (now, then): (Vec<_>, Vec<_>) =
            (self.0.split(':').collect(), recorded.split(':').collect());
        let named = [(2, "agent"), (3, "terms"), (4, "problem")].into_iter();
        let changed = named
            .filter_map(|(place, name)| match (now.get(place), then.get(place)) {
                (Some(now), Some(then)) if now == then => None,
                (Some(now), then) => {
                    let then = then.copied().unwrap_or("?");
                    Some(format!("{name} changed ({then} to {now})"))
                }
                (None, _) => None,
            })
            .next();
        Some(changed.unwrap_or_else(|| "identity changed (another version)".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-65, ST-66
    #[test]
    fn a_difference_is_named_by_its_part() {
        let part = |text: &str| Part::of(&Value::text(text));
        let identity = |seed, agent: &str, terms: &str, problem: &str| {
            Identity::of("run-1", seed, &part(agent), &part(terms), &part(problem))
        };
        let before = identity(1, "a", "t", "p");
        let differs = |after: &Identity, seed| after.difference(before.text(), seed, 1);
        assert_eq!(differs(&identity(1, "a", "t", "p"), 1), None);
        for (after, seed, named) in [
            (identity(2, "a", "t", "p"), 2, "seed changed (1 to 2)"),
            (identity(1, "b", "t", "p"), 1, "agent changed ("),
            (identity(1, "a", "u", "p"), 1, "terms changed ("),
            (identity(1, "a", "t", "q"), 1, "problem changed ("),
        ] {
            let difference = differs(&after, seed).unwrap();
            assert!(difference.starts_with(named), "{difference}");
        }
        assert!(before.difference("0:x", 1, 1).is_some());
    }
}
