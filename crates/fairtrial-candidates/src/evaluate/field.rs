//! The candidates of an evaluation: who they are, who stands for whom, how far each got.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::event::State;
use crate::cases::{Failure, FailureKind};
use crate::evaluation::CaseCounts;
use crate::stage::{
    Ancestor, Arrival, Base, CandidateKey, Content, Dedup, Given, LineFault, Lineage, Member,
    Origin, PostImages, PythonKeys, Rejection, StageError, Staged, Terms, lineages, stage,
};

/// A candidate, by its place among all.
pub(crate) type Number = usize;

/// A candidate as the evaluation knows it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) parent: Option<String>,
    pub(crate) origin: Origin,
    pub(crate) meta: Option<Map<String, Value>>,
    /// Its change as it was given.
    pub(crate) content: Option<Content>,
    /// What it changes; none if it could not be staged.
    pub(crate) staged: Option<Arc<Staged>>,
    key: Option<CandidateKey>,
    /// Who stands for it.
    pub(crate) duplicate_of: Option<Number>,
    pub(crate) state: State,
    pub(crate) failure: Option<Failure>,
    pub(crate) cases: Option<CaseCounts>,
}

impl Entry {
    /// Its id as shown.
    pub(crate) fn id(&self) -> Option<String> {
        self.staged.as_ref().map(|staged| staged.id.to_string())
    }

    /// The same, of one that waits to be tested or was, or that others are the same as.
    pub(crate) fn staged_id(&self) -> String {
        self.id()
            .expect("only what could be staged is tested or stands for others")
    }

    /// It has a result of its own, and a good one.
    pub(crate) fn is_correct(&self) -> bool {
        matches!(self.state, State::Correct | State::Racing | State::Done) && self.failure.is_none()
    }
}

/// A candidate that came, from a source or a proposer.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) given: Result<Given, LineFault>,
    pub(crate) origin: Origin,
}

/// All candidates so far.
#[derive(Debug, Default)]
pub(crate) struct Field {
    pub(crate) entries: Vec<Entry>,
    dedup: Dedup,
    pub(crate) python: PythonKeys,
    by_id: HashMap<String, Number>,
}

/// A newcomer with its change applied, or why it cannot be.
pub(crate) type Applied = (Newcomer, Result<Staged, Failure>);

/// Applies what newcomers change. An error is a base that cannot be read.
pub(crate) fn apply(
    newcomers: impl IntoIterator<Item = Newcomer>,
    base: &dyn Base,
    terms: &Terms,
) -> Result<Vec<Applied>, StageError> {
    let applied = newcomers.into_iter().map(|newcomer| {
        let staged = match &newcomer.given {
            Err(fault) => Err(Failure::new(FailureKind::ApplyFailed, fault.to_string())),
            Ok(given) => match stage(&given.content, base, terms) {
                Ok(staged) => Ok(staged),
                Err(StageError::Rejected(rejection)) => Err(rejected(&rejection)),
                Err(error) => return Err(error),
            },
        };
        Ok((newcomer, staged))
    });
    applied.collect()
}

fn rejected(rejection: &Rejection) -> Failure {
    let kind = match rejection {
        Rejection::ApplyFailed(_) => FailureKind::ApplyFailed,
        Rejection::NoOp => FailureKind::NoOp,
        Rejection::ProtectedPath { .. } => FailureKind::ProtectedPath,
    };
    Failure::new(kind, rejection.to_string())
}

/// The changes of those that could be applied.
pub(crate) fn changes(applied: &[Applied]) -> impl Iterator<Item = &PostImages> {
    applied
        .iter()
        .filter_map(|(_, staged)| staged.as_ref().ok())
        .map(|staged| &staged.images)
}

impl Field {
    /// Takes newcomers in; Python's word on their files is in [`Field::python`] already. Gives who is to be tried.
    pub(crate) fn add(
        &mut self,
        applied: Vec<Applied>,
        base: &dyn Base,
    ) -> Result<Vec<Number>, StageError> {
        let first = self.entries.len();
        for (newcomer, staged) in applied {
            self.enter(newcomer, staged, base)?;
        }
        let new = first..self.entries.len();
        Ok(new
            .filter(|number| self.entries[*number].state == State::Waiting)
            .collect())
    }

    fn enter(
        &mut self,
        newcomer: Newcomer,
        staged: Result<Staged, Failure>,
        base: &dyn Base,
    ) -> Result<(), StageError> {
        let number = self.entries.len();
        let (name, parent, meta, content) = match newcomer.given {
            Ok(given) => (given.name, given.parent, given.meta, Some(given.content)),
            Err(fault) => (format!("{}:{}", fault.file, fault.line), None, None, None),
        };
        let mut entry = Entry {
            name,
            parent,
            origin: newcomer.origin,
            meta,
            content,
            staged: None,
            key: None,
            duplicate_of: None,
            state: State::Failed,
            failure: None,
            cases: None,
        };
        match staged {
            Err(failure) => entry.failure = Some(failure),
            Ok(staged) if self.has_another_of(&staged) => {
                let why = format!("another candidate is shown as {} too", staged.id);
                entry.failure = Some(Failure::new(FailureKind::ApplyFailed, why));
            }
            Ok(staged) => {
                match CandidateKey::new(&staged.images, base, &self.python)? {
                    None => entry.failure = Some(rejected(&Rejection::NoOp)),
                    Some(key) => {
                        let member = Member::new(number, staged.id, &staged.images, base)?;
                        entry.key = Some(key);
                        self.meet(&mut entry, number, key, member);
                    }
                }
                self.by_id.entry(staged.id.to_string()).or_insert(number);
                entry.staged = Some(Arc::new(staged));
            }
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Whether somebody else has the same digits of an id. By chance nobody has; but to find two that have takes seconds,
    /// and each would be taken for the other.
    fn has_another_of(&self, staged: &Staged) -> bool {
        let number = self.find(&staged.id.to_string());
        let known = number.and_then(|number| self.entries[number].staged.as_ref());
        known.is_some_and(|known| known.id != staged.id)
    }

    fn meet(&mut self, entry: &mut Entry, number: Number, key: CandidateKey, member: Member) {
        match self.dedup.add(key, member) {
            Arrival::New => entry.state = State::Waiting,
            Arrival::DuplicateOf(stands) => entry.stand_behind(stands.entry),
            Arrival::Replaces(stood) => {
                entry.state = State::Waiting;
                for other in &mut self.entries {
                    if other.key == Some(key) {
                        other.stand_behind(number);
                    }
                }
                debug_assert!(self.entries[stood.entry].duplicate_of == Some(number));
            }
            // It must pass by itself before it is delivered instead of the one that stands for it (CA-18).
            Arrival::LateShorter(_) => entry.state = State::Waiting,
        }
    }

    /// The tests of a candidate begin: nobody takes its place any more.
    pub(crate) fn begin(&mut self, number: Number) {
        if let Some(key) = self.entries[number].key {
            self.dedup.begin(&key);
        }
        self.entries[number].state = State::Checking;
    }

    /// A late, shorter equal passed its tests: from now on it stands for its group, and has the speed of the one before.
    pub(crate) fn deliver(
        &mut self,
        number: Number,
        base: &dyn Base,
    ) -> Result<Option<Number>, StageError> {
        let entry = &self.entries[number];
        let (Some(key), Some(staged)) = (entry.key, entry.staged.clone()) else {
            return Ok(None);
        };
        let stood = self.dedup.representative(&key).map(|member| member.entry);
        let Some(stood) = stood.filter(|stood| *stood != number) else {
            return Ok(None);
        };
        self.dedup
            .deliver(&key, Member::new(number, staged.id, &staged.images, base)?);
        for other in &mut self.entries {
            if other.key == Some(key) && other.state != State::Failed {
                other.stand_behind(number);
            }
        }
        let entry = &mut self.entries[number];
        (entry.state, entry.duplicate_of) = (State::Done, None);
        Ok(Some(stood))
    }

    /// Where everybody comes from, in their order.
    pub(crate) fn lineages(&self) -> Vec<Lineage> {
        let ancestors: Vec<Ancestor> = self
            .entries
            .iter()
            .map(|entry| Ancestor {
                // What could not be staged has none, and is nobody's parent.
                id: entry.id().unwrap_or_default(),
                name: entry.name.clone(),
                parent: entry.parent.clone(),
                origin: entry.origin,
            })
            .collect();
        lineages(&ancestors)
    }

    /// What people should be told of where those from `first` on come from (CA-19).
    pub(crate) fn doubts(&self, first: Number) -> Vec<String> {
        let new = &self.entries[first..];
        if new.iter().all(|entry| entry.parent.is_none()) {
            return Vec::new();
        }
        let lineages = self.lineages().into_iter().skip(first);
        lineages.filter_map(|lineage| lineage.warning).collect()
    }

    /// The candidate with this id.
    pub(crate) fn find(&self, id: &str) -> Option<Number> {
        self.by_id.get(id).copied()
    }
}

impl Entry {
    fn stand_behind(&mut self, number: Number) {
        self.state = State::Duplicate;
        self.duplicate_of = Some(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::{MemoryBase, Protect};

    fn base() -> MemoryBase {
        MemoryBase::new()
            .file("a.txt", "one\ntwo\n")
            .file("tests/t.py", "x\n")
    }

    fn newcomer(name: &str, file: &str, text: &str) -> Newcomer {
        let patch = if text.is_empty() {
            format!("--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-absent\n+x\n")
        } else {
            format!("--- a/{file}\n+++ b/{file}\n@@ -1,2 +1,2 @@\n-one\n+{text}\n two\n")
        };
        let mut given = Given::patch(0, name.as_bytes(), Vec::new());
        given.content = Content::Patch(patch.into_bytes());
        Newcomer {
            given: Ok(given),
            origin: Origin::Given,
        }
    }

    fn add(field: &mut Field, newcomers: Vec<Newcomer>) -> Vec<Number> {
        let terms = Terms {
            base_hash: "b".to_owned(),
            protect: Protect::default(),
            shared: Vec::new(),
        };
        let base = base();
        let applied = apply(newcomers, &base, &terms).unwrap();
        field.add(applied, &base).unwrap()
    }

    /// CA-13, CA-15, CA-17, CA-18
    #[test]
    fn of_a_batch_only_those_are_tried_that_can_be_and_stand_for_themselves() {
        let mut field = Field::default();
        let tried = add(
            &mut field,
            vec![
                newcomer("first", "a.txt", "1"),
                newcomer("again", "a.txt", "1"),
                newcomer("broken", "a.txt", ""),
                newcomer("nothing", "a.txt", "one"),
                newcomer("other", "a.txt", "2"),
            ],
        );
        assert_eq!(tried, [0, 4]);
        assert_eq!(field.entries[1].duplicate_of, Some(0));
        let kind = |number: Number| {
            field.entries[number]
                .failure
                .as_ref()
                .map(|failure| failure.kind)
        };
        assert_eq!(kind(2), Some(FailureKind::ApplyFailed));
        assert_eq!(kind(3), Some(FailureKind::NoOp));
        let id = field.entries[4].id().unwrap();
        assert_eq!(field.find(&id), Some(4));
    }

    /// CA-12, CA-14: found among thirty million texts.
    #[test]
    fn two_of_one_shown_id_are_not_taken_for_each_other() {
        let mut field = Field::default();
        let pair = [("one", "02704832"), ("other", "10853288")];
        let tried = add(
            &mut field,
            pair.map(|(name, text)| newcomer(name, "a.txt", text))
                .into(),
        );
        assert_eq!(field.entries[0].id().as_deref(), Some("c-51ec2639993a"));
        assert_eq!(tried, [0]);
        let failure = field.entries[1].failure.as_ref().unwrap();
        assert_eq!(failure.kind, FailureKind::ApplyFailed);
        assert!(failure.message.contains("c-51ec2639993a"), "{failure:?}");
        let again = newcomer("again", "a.txt", "02704832");
        assert!(add(&mut field, vec![again]).is_empty());
        assert_eq!(field.entries[2].duplicate_of, Some(0));
    }
}
