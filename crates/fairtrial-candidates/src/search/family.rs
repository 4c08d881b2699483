//! Who descends from whom, among candidates that were checked.

use std::collections::{HashMap, HashSet};

/// Candidates by id. Parents as given may be unknown, and may lead back to their own children.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family(HashMap<String, Member>);

#[derive(Clone, Debug)]
struct Member {
    parent: Option<String>,
    generation: usize,
}

impl Family {
    /// Takes a candidate; the first to have an id keeps it.
    pub(crate) fn add(&mut self, id: &str, parent: Option<&str>, generation: usize) {
        let parent = parent.map(str::to_owned);
        let member = Member { parent, generation };
        self.0.entry(id.to_owned()).or_insert(member);
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// A candidate's generation; 1 for one that is not known.
    pub(crate) fn generation(&self, id: &str) -> usize {
        self.0.get(id).map_or(1, |member| member.generation)
    }

    /// Its ancestors, oldest first, each once.
    pub(crate) fn ancestors(&self, id: &str) -> Vec<String> {
        let mut seen = HashSet::from([id]);
        let mut line = Vec::new();
        let mut above = self.parent(id);
        while let Some(ancestor) = above.filter(|ancestor| seen.insert(ancestor)) {
            line.push(ancestor.to_owned());
            above = self.parent(ancestor);
        }
        line.reverse();
        line
    }

    fn parent(&self, id: &str) -> Option<&str> {
        let parent = self.0.get(id)?.parent.as_deref()?;
        self.has(parent).then_some(parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-19
    #[test]
    fn ancestors_come_oldest_first_and_end_where_they_repeat_or_are_unknown() {
        let mut family = Family::default();
        family.add("a", Some("stranger"), 1);
        family.add("b", Some("a"), 2);
        family.add("c", Some("b"), 3);
        family.add("x", Some("y"), 1);
        family.add("y", Some("x"), 1);
        assert_eq!(family.ancestors("c"), ["a", "b"]);
        assert!(family.ancestors("a").is_empty());
        assert_eq!(family.ancestors("x"), ["y"]);
    }
}
