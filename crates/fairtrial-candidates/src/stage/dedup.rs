//! Candidates that are the same program: one stands for all (CA-17, CA-18).

use std::collections::HashMap;

use super::base::Base;
use super::fault::StageError;
use super::file_key::CandidateKey;
use super::identity::CandidateId;
use super::image::PostImages;
use super::size::content;

/// A candidate among those that may be its equals. Two that were given may have one id, so entries are told by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The caller's number for it; the smaller came first.
    pub entry: usize,
    /// Who it is.
    pub id: CandidateId,
    /// How much longer the tree's text is with it than without. Counted so, candidates with other comments in other files
    /// compare fairly.
    pub growth: i64,
}

impl Member {
    /// Measures a candidate.
    pub fn new(
        entry: usize,
        id: CandidateId,
        images: &PostImages,
        base: &dyn Base,
    ) -> Result<Self, StageError> {
        let mut growth = 0;
        for (path, image) in images.iter() {
            let new = image.map_or(0, |image| image.content().len());
            growth += new as i64 - content(path, base)?.len() as i64;
        }
        Ok(Self { entry, id, growth })
    }
}

/// What an arriving candidate is to those that came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The first of its kind: it is to be tried.
    New,
    /// One that stands for it is tried or will be; it inherits the result.
    DuplicateOf(Member),
    /// Shorter than the one that stood for both, which has not been tried: it takes that one's place, and that one is now
    /// its duplicate.
    Replaces(Member),
    /// Shorter than the one that stands for both, which has been tried. It inherits the result, but must itself pass
    /// phase 1 before it is delivered instead.
    LateShorter(Member),
}

/// The groups of equals so far.
#[derive(Debug, Clone, Default)]
pub struct Dedup {
    groups: HashMap<CandidateKey, Group>,
}

#[derive(Debug, Clone)]
struct Group {
    stands: Member,
    tried: bool,
}

impl Dedup {
    /// No candidates yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a candidate, and says what it is to those before it. Of equals of one length the earlier stands for both.
    pub fn add(&mut self, key: CandidateKey, member: Member) -> Arrival {
        let Some(group) = self.groups.get_mut(&key) else {
            let (stands, tried) = (member, false);
            self.groups.insert(key, Group { stands, tried });
            return Arrival::New;
        };
        let stood = group.stands;
        match (member.growth < stood.growth, group.tried) {
            (false, _) => Arrival::DuplicateOf(stood),
            (true, true) => Arrival::LateShorter(stood),
            (true, false) => {
                group.stands = member;
                Arrival::Replaces(stood)
            }
        }
    }

    /// The trial of a group has begun: from now on nobody takes its representative's place before passing phase 1.
    pub fn begin(&mut self, key: &CandidateKey) {
        if let Some(group) = self.groups.get_mut(key) {
            group.tried = true;
        }
    }

    /// A late, shorter candidate has passed phase 1 and stands for its group.
    pub fn deliver(&mut self, key: &CandidateKey, member: Member) {
        if let Some(group) = self.groups.get_mut(key) {
            group.stands = member;
        }
    }

    /// Who stands for a group.
    #[must_use]
    pub fn representative(&self, key: &CandidateKey) -> Option<Member> {
        self.groups.get(key).map(|group| group.stands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::patch::apply;
    use crate::stage::{MemoryBase, PythonKeys};

    fn arrive(entry: usize, line: &str) -> (CandidateKey, Member) {
        let base = MemoryBase::new()
            .file("a.py", "x = 1\n")
            .file("b.py", "long comment\n");
        let patch = format!("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+{line}\n");
        let images = apply(patch.as_bytes(), &base).expect("applies");
        let mut python = PythonKeys::new();
        let text = format!("{line}\n");
        let bare = text.split('#').next().map(|code| code.trim().to_owned());
        python.learn(text.as_bytes(), bare);
        let key = CandidateKey::new(&images, &base, &python).expect("reads");
        let id = CandidateId::new("base", &images);
        let member = Member::new(entry, id, &images, &base).expect("reads");
        (key.expect("a change"), member)
    }

    /// CA-17, CA-18
    #[test]
    fn of_equals_the_shorter_stands_for_all() {
        let mut dedup = Dedup::new();
        let (key, long) = arrive(0, "x = 2  # a comment");
        assert_eq!(dedup.add(key, long), Arrival::New);
        let (_, longer) = arrive(1, "x = 2  # a longer comment");
        assert_eq!(dedup.add(key, longer), Arrival::DuplicateOf(long));
        let (_, short) = arrive(2, "x = 2");
        assert_eq!(dedup.add(key, short), Arrival::Replaces(long));
        let (_, equal) = arrive(3, "x = 2");
        assert_eq!(dedup.add(key, equal), Arrival::DuplicateOf(short));
        let (other, rival) = arrive(4, "x = 3");
        assert_eq!(dedup.add(other, rival), Arrival::New);
        assert_eq!(dedup.representative(&key), Some(short));
        assert_eq!(short.growth, 0);
    }

    /// CA-18
    #[test]
    fn who_comes_late_does_not_stand_for_what_was_tried() {
        let mut dedup = Dedup::new();
        let (key, long) = arrive(0, "x = 2  # a comment");
        dedup.add(key, long);
        dedup.begin(&key);
        let (_, short) = arrive(1, "x = 2");
        assert_eq!(dedup.add(key, short), Arrival::LateShorter(long));
        assert_eq!(dedup.representative(&key), Some(long));
        dedup.deliver(&key, short);
        assert_eq!(dedup.representative(&key), Some(short));
    }
}
