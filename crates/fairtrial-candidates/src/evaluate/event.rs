//! What those who watch an evaluation are told (CA-93). The bar, `on_event` and the journal hear the same.

use serde::{Deserialize, Serialize};

use crate::measure::{Judgement, SeriesId};

/// Something happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The base is frozen.
    Snapshot {
        /// Its hash.
        hash: String,
        /// What people call it.
        base: String,
        /// How many files it has.
        files: u64,
        /// How workspaces are made of it.
        provider: String,
    },
    /// A test command ran on the base.
    Baseline {
        /// Which.
        test: String,
        /// Which of its repeats, from 1.
        run: u32,
        /// Of so many.
        runs: u32,
        /// How many cases it had.
        cases: u64,
    },
    /// A candidate got on.
    Candidate {
        /// Its id; none of one that could not be staged.
        id: Option<String>,
        /// Its label.
        name: String,
        /// Where it is now.
        state: State,
    },
    /// A block of a race is complete.
    Block {
        /// Of this series.
        series: SeriesId,
        /// Its number.
        block: u32,
    },
    /// A race was judged.
    Look {
        /// Of this series.
        series: SeriesId,
        /// After so many blocks.
        blocks: u32,
        /// Who was judged, and how.
        judgements: Vec<(String, Judgement)>,
    },
    /// A candidate left a race.
    Eliminated {
        /// Who.
        id: String,
    },
    /// Another evaluation has the machine.
    LockWait {
        /// Who has it, as far as that is known.
        holder: String,
    },
    /// A proposer was asked, or answered.
    Proposal {
        /// The request.
        request: String,
        /// `asked`, `answered`, `failed` or `cancelled`.
        what: String,
        /// How many candidates came of it.
        candidates: u64,
    },
    /// Something people should know.
    Warning {
        /// What.
        message: String,
    },
    /// It is over.
    Done {
        /// The id of the winner.
        winner: Option<String>,
    },
}

/// How far a candidate got. It only ever gets further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for its tests.
    Waiting,
    /// They run.
    Checking,
    /// They gave what the base gave; it waits to be measured.
    Correct,
    /// It is being measured.
    Racing,
    /// It was measured, or need not be.
    Done,
    /// It is the same program as another, and has its result.
    Duplicate,
    /// It is no candidate, or its tests differed.
    Failed,
    /// Its turn never came.
    NotRun,
}
