//! A request that was sent, and what it brought.

use super::super::answer::{Failure, Malformed, Proposed};
use super::super::ask::{Ask, ProposalId};
use super::super::ledger::{Entry, EntryCandidate, Fate, State};

#[derive(Clone, Debug)]
pub(super) struct Requested {
    pub(super) ask: Ask,
    pub(super) asked_s: f64,
    /// By this process: one that a journal tells of must be sent again.
    pub(super) sent: bool,
    pub(super) standing: Standing,
    pub(super) proposals: Vec<Held>,
}

#[derive(Clone, Debug)]
pub(super) enum Standing {
    Open,
    Answered {
        at_s: f64,
        tokens: Option<u64>,
        malformed: Vec<Malformed>,
    },
    Failed {
        at_s: f64,
        failure: Failure,
    },
    Cancelled {
        at_s: f64,
        why: String,
    },
}

/// A proposed candidate, its parent and its fate.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) proposed: Proposed,
    pub(super) parent: String,
    pub(super) fate: Fate,
}

impl Requested {
    pub(super) fn new(ask: Ask, asked_s: f64) -> Self {
        Self {
            ask,
            asked_s,
            sent: false,
            standing: Standing::Open,
            proposals: Vec::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.standing, Standing::Open)
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.is_open() && !self.sent
    }

    pub(super) fn tokens(&self) -> Option<u64> {
        match &self.standing {
            Standing::Answered { tokens, .. } => *tokens,
            Standing::Failed { failure, .. } => failure.tokens,
            Standing::Open | Standing::Cancelled { .. } => None,
        }
    }

    /// Candidates that are tried or were, or are the same as others: those that count against the budget.
    pub(super) fn admitted(&self) -> usize {
        let counts = |held: &&Held| !matches!(held.fate, Fate::NotRun { .. });
        self.proposals.iter().filter(counts).count()
    }

    pub(super) fn entry(&self) -> Entry {
        let (state, ended_s, error, malformed) = match &self.standing {
            Standing::Open => (State::Open, None, None, Vec::new()),
            Standing::Answered {
                at_s, malformed, ..
            } => (State::Answered, Some(*at_s), None, malformed.clone()),
            Standing::Failed { at_s, failure } => {
                let malformed = failure.malformed.iter().cloned().collect();
                (
                    State::Failed,
                    Some(*at_s),
                    Some(failure.message.clone()),
                    malformed,
                )
            }
            Standing::Cancelled { at_s, why } => {
                (State::Cancelled, Some(*at_s), Some(why.clone()), Vec::new())
            }
        };
        Entry {
            id: self.ask.id,
            kind: self.ask.kind,
            n: self.ask.n,
            parents: self.ask.parents.clone(),
            ancestry: self.ask.ancestry.clone(),
            state,
            asked_s: self.asked_s,
            ended_s,
            tokens: self.tokens(),
            error,
            malformed,
            candidates: self.candidates(),
        }
    }

    fn candidates(&self) -> Vec<EntryCandidate> {
        let named = self.proposals.iter().enumerate().map(|(index, held)| {
            let request = self.ask.id;
            EntryCandidate {
                name: ProposalId { request, index }.to_string(),
                parent: held.parent.clone(),
                note: held.proposed.note.clone(),
                fate: held.fate.clone(),
            }
        });
        named.collect()
    }
}
