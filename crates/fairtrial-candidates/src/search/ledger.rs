//! What is kept of a search: the records it can be made again from, and the ledger that reports show.

use serde::{Deserialize, Serialize};

use super::answer::{Answer, Failure, Malformed};
use super::ask::{Ask, Kind, ProposalId, RequestId};
use super::policy::Checked;
use crate::cases;

/// Something the search was told or decided. In a journal they are its memory: [`Search::replay`](super::Search::replay)
/// makes the search again from them. Ends that a resumed search may take back (a spent budget, an interruption, a dead
/// proposer) are no records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A request went out.
    Asked {
        /// The request.
        ask: Ask,
        /// Seconds since the evaluation began.
        at_s: f64,
    },
    /// It was answered.
    Answered {
        /// The request.
        request: RequestId,
        /// Seconds since the evaluation began.
        at_s: f64,
        /// What it brought.
        answer: Answer,
    },
    /// It was not answered, and will not be.
    Failed {
        /// The request.
        request: RequestId,
        /// Seconds since the evaluation began.
        at_s: f64,
        /// Why.
        failure: Failure,
    },
    /// The proposer said something that belongs to no request.
    Stray(Stray),
    /// A given candidate was checked.
    Checked(Checked),
    /// A proposed candidate was checked, or is the same as another.
    Settled {
        /// Which.
        proposal: ProposalId,
        /// What became of it.
        fate: Fate,
    },
    /// A race ended.
    Raced {
        /// Its number.
        round: u32,
        /// Who took part.
        entrants: Vec<String>,
        /// Who was faster than the base, beyond the noise floor, best first.
        faster: Vec<String>,
        /// The best so far: it runs in the next race, too.
        best: Option<String>,
    },
}

/// What phase 1 found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// It does what the base does.
    Correct,
    /// It does not.
    Failed {
        /// The failure's kind (CA-54).
        kind: cases::FailureKind,
        /// Cases that differ.
        differing: usize,
        /// Cases that were judged.
        cases: usize,
    },
}

/// What became of a proposed candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Nobody tried it yet.
    Waiting,
    /// It is being tried.
    Running,
    /// It was tried, as far as it could be.
    Evaluated {
        /// Its id; none if it could not be staged.
        id: Option<String>,
        /// What phase 1 found.
        found: Found,
    },
    /// It is the same as another.
    Duplicate {
        /// The other's id.
        of: String,
    },
    /// It was not tried.
    NotRun {
        /// Why not.
        why: String,
    },
}

/// Something that belongs to no request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stray {
    /// Seconds since the evaluation began.
    pub at_s: f64,
    /// What it was.
    #[serde(flatten)]
    pub malformed: Malformed,
}

/// How a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No answer yet.
    Open,
    /// Answered.
    Answered,
    /// Not answered, and it will not be.
    Failed,
    /// Nobody waits for an answer any more.
    Cancelled,
}

/// A request in the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number.
    pub id: RequestId,
    /// What for.
    pub kind: Kind,
    /// How many candidates were wanted.
    pub n: usize,
    /// The candidates it was about.
    pub parents: Vec<String>,
    /// Their ancestors, of an adaptive request.
    pub ancestry: Vec<String>,
    /// How it stands.
    pub state: State,
    /// When it was asked, in seconds since the evaluation began.
    pub asked_s: f64,
    /// When it ended.
    pub ended_s: Option<f64>,
    /// What it cost, if the proposer says.
    pub tokens: Option<u64>,
    /// Why it failed or was cancelled.
    pub error: Option<String>,
    /// What was not understood of the answer.
    pub malformed: Vec<Malformed>,
    /// What it brought.
    pub candidates: Vec<EntryCandidate>,
}

/// A proposed candidate in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryCandidate {
    /// What it is called.
    pub name: String,
    /// The candidate it was made from.
    pub parent: String,
    /// What its maker says of it.
    pub note: Option<String>,
    /// What became of it.
    pub fate: Fate,
}

/// All requests and what became of them. `requests` is the sum of the open, answered, failed and cancelled ones, and
/// `proposed` that of the pending, evaluated, duplicate ones and those not run (CA-90).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Requests sent.
    pub requests: usize,
    /// Of these, without an answer yet.
    pub open: usize,
    /// Of these, answered.
    pub answered: usize,
    /// Of these, failed.
    pub failed: usize,
    /// Of these, cancelled.
    pub cancelled: usize,
    /// Candidates proposed.
    pub proposed: usize,
    /// Of these, not yet settled.
    pub pending: usize,
    /// Of these, evaluated.
    pub evaluated: usize,
    /// Of these, the same as another.
    pub duplicates: usize,
    /// Of these, not run.
    pub not_run: usize,
    /// Tokens, as far as the proposer tells.
    pub tokens: u64,
    /// Why there is no proposer any more.
    pub proposer_dead: Option<String>,
    /// Why the search stopped before it had nothing left to ask.
    pub stopped: Option<String>,
    /// The requests.
    pub entries: Vec<Entry>,
    /// What belongs to no request.
    pub strays: Vec<Stray>,
}

impl Ledger {
    pub(crate) fn add(&mut self, entry: Entry) {
        self.requests += 1;
        *match entry.state {
            State::Open => &mut self.open,
            State::Answered => &mut self.answered,
            State::Failed => &mut self.failed,
            State::Cancelled => &mut self.cancelled,
        } += 1;
        self.tokens += entry.tokens.unwrap_or(0);
        for candidate in &entry.candidates {
            self.proposed += 1;
            *match candidate.fate {
                Fate::Waiting | Fate::Running => &mut self.pending,
                Fate::Evaluated { .. } => &mut self.evaluated,
                Fate::Duplicate { .. } => &mut self.duplicates,
                Fate::NotRun { .. } => &mut self.not_run,
            } += 1;
        }
        self.entries.push(entry);
    }
}
