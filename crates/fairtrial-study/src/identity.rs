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
    ) -> Option<Change> {
        if self.0 == recorded {
            return None;
        }
        let change = |aspect, then: &dyn fmt::Display, now: &dyn fmt::Display| Change {
            aspect,
            then: then.to_string(),
            now: now.to_string(),
        };
        if seed != recorded_seed {
            return Some(change(Aspect::Seed, &recorded_seed, &seed));
        }
        let (now, then): (Vec<_>, Vec<_>) =
            (self.0.split(':').collect(), recorded.split(':').collect());
        let places = [(2, Aspect::Agent), (3, Aspect::Terms), (4, Aspect::Problem)];
        let changed = places.into_iter().find_map(|(place, aspect)| {
            let then = then.get(place).copied().unwrap_or("?");
            (now[place] != then).then(|| change(aspect, &then, &now[place]))
        });
        Some(changed.unwrap_or_else(|| change(Aspect::Version, &"another", &"this")))
    }
}

/// Something about a run that can change its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// What its generators are seeded with.
    Seed,
    /// Who runs it.
    Agent,
    /// Time, limits, sandbox and isolation.
    Terms,
    /// On what.
    Problem,
    /// How identities are made.
    Version,
}

impl Aspect {
    /// As the user names it when it is accepted.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Agent => "agent",
            Self::Terms => "terms",
            Self::Problem => "problem",
            Self::Version => "identity",
        }
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changed", self.name())
    }
}

/// How a run is not what it was when it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What of it.
    pub aspect: Aspect,
    /// As it was: a seed, or a short hash.
    pub then: String,
    /// As it is.
    pub now: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aspect, then, now } = self;
        match aspect {
            Aspect::Version => write!(f, "{aspect} (another version)"),
            _ => write!(f, "{aspect} ({then} to {now})"),
        }
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
            let difference = differs(&after, seed).unwrap().to_string();
            assert!(difference.starts_with(named), "{difference}");
        }
        assert!(before.difference("0:x", 1, 1).is_some());
    }
}
