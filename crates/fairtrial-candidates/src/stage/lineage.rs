//! Where candidates come from: parent, origin, generation (CA-19).

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How a candidate came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// It was given.
    Given,
    /// A proposer's answer to a failure.
    Repair,
    /// A proposer's variation of a good one.
    Refine,
    /// A proposer's answer to a whole ancestry.
    Adaptive,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Given => "given",
            Self::Repair => "repair",
            Self::Refine => "refine",
            Self::Adaptive => "adaptive",
        })
    }
}

/// A candidate as lineages see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// Its id as shown; empty of one that could not be staged.
    pub id: String,
    /// Its label.
    pub name: String,
    /// The parent as given.
    pub parent: Option<String>,
    /// How it came to be.
    pub origin: Origin,
}

/// Where one candidate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// The parent: its id where it is known, else as given.
    pub parent: Option<String>,
    /// How it came to be.
    pub origin: Origin,
    /// 1 without a known parent, else one more than the parent's.
    pub generation: usize,
    /// What people should be told: the parent is not known, or descends from its own child.
    pub warning: Option<String>,
}

/// The lineages of candidates, in their order. A parent is meant by its id, or by a name that only one candidate has.
#[must_use]
pub fn lineages(candidates: &[Ancestor]) -> Vec<Lineage> {
    let parents: Vec<_> = candidates
        .iter()
        .map(|one| parent_of(one, candidates))
        .collect();
    let mut generations = HashMap::new();
    let numbered = (0..candidates.len()).map(|at| generation(at, &parents, &mut generations));
    let numbered: Vec<_> = numbered.collect();
    let all = candidates.iter().enumerate().map(|(at, one)| {
        let (known, generation) = (parents[at], numbered[at]);
        let warning = one
            .parent
            .as_ref()
            .and_then(|parent| match (known, generation) {
                (None, _) => Some(format!(
                    "the parent `{parent}` of `{}` is not known",
                    one.name
                )),
                (Some(_), None) => Some(format!(
                    "`{}` descends from itself, by its parent `{parent}`",
                    one.name
                )),
                (Some(_), Some(_)) => None,
            });
        Lineage {
            parent: match known {
                Some(at) => Some(candidates[at].id.clone()),
                None => one.parent.clone(),
            },
            origin: one.origin,
            generation: generation.unwrap_or(1),
            warning,
        }
    });
    all.collect()
}

/// The number of the parent, if it is known.
fn parent_of(one: &Ancestor, candidates: &[Ancestor]) -> Option<usize> {
    let parent = one.parent.as_ref()?;
    let staged = |other: &&(usize, &Ancestor)| !other.1.id.is_empty();
    let numbered: Vec<_> = candidates.iter().enumerate().collect();
    let by_id = numbered
        .iter()
        .filter(staged)
        .find(|(_, other)| other.id == *parent);
    let mut by_name = numbered
        .iter()
        .filter(staged)
        .filter(|(_, other)| other.name == *parent);
    let found = by_id.or(match (by_name.next(), by_name.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    });
    found.map(|(at, _)| *at)
}

/// The generation of one candidate; none for one whose ancestry leads back to itself.
fn generation(
    at: usize,
    parents: &[Option<usize>],
    known: &mut HashMap<usize, Option<usize>>,
) -> Option<usize> {
    let mut line = vec![at];
    let mut next = parents[at];
    let start = loop {
        match next {
            None => break Some(0),
            Some(above) if line.contains(&above) => break None,
            Some(above) => match known.get(&above) {
                Some(generation) => break *generation,
                None => {
                    line.push(above);
                    next = parents[above];
                }
            },
        }
    };
    for (above, member) in line.iter().rev().enumerate() {
        known.insert(*member, start.map(|start| start + above + 1));
    }
    known[&at]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: &str, name: &str, parent: Option<&str>) -> Ancestor {
        Ancestor {
            id: id.to_owned(),
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            origin: Origin::Given,
        }
    }

    /// CA-19
    #[test]
    fn a_generation_is_one_more_than_the_parents() {
        let all = [
            candidate("c-3", "three", Some("c-2")),
            candidate("c-1", "one", None),
            candidate("c-2", "two", Some("one")),
        ];
        let found: Vec<_> = lineages(&all)
            .into_iter()
            .map(|one| (one.generation, one.parent))
            .collect();
        let expected = [(3, Some("c-2")), (1, None), (2, Some("c-1"))];
        assert_eq!(
            found,
            expected.map(|(generation, parent)| (generation, parent.map(str::to_owned)))
        );
    }

    /// CA-19
    #[test]
    fn an_unknown_parent_is_recorded_and_warned_of() {
        let all = [
            candidate("c-1", "one", Some("c-9")),
            candidate("", "broken", None),
            candidate("c-2", "two", Some("broken")),
            candidate("c-3", "twin", None),
            candidate("c-4", "twin", None),
            candidate("c-5", "child", Some("twin")),
        ];
        let found = lineages(&all);
        assert_eq!(found[0].parent.as_deref(), Some("c-9"));
        assert_eq!(found[0].generation, 1);
        assert_eq!(
            found[0].warning.as_deref(),
            Some("the parent `c-9` of `one` is not known")
        );
        assert!(found[2].warning.is_some() && found[5].warning.is_some());
        assert!(found[1].warning.is_none() && found[3].warning.is_none());
    }

    /// CA-19
    #[test]
    fn an_ancestry_that_leads_back_to_itself_is_warned_of() {
        let all = [
            candidate("c-1", "one", Some("c-2")),
            candidate("c-2", "two", Some("c-1")),
            candidate("c-3", "three", Some("c-3")),
            candidate("c-4", "four", Some("c-1")),
        ];
        for one in lineages(&all) {
            assert_eq!(one.generation, 1);
            assert!(
                one.warning
                    .expect("a warning")
                    .contains("descends from itself")
            );
        }
    }

    #[test]
    fn origins_show_as_reports_have_them() {
        let all = [
            Origin::Given,
            Origin::Repair,
            Origin::Refine,
            Origin::Adaptive,
        ];
        assert_eq!(
            all.map(|one| one.to_string()),
            ["given", "repair", "refine", "adaptive"]
        );
    }
}
