//! The search loop: who is asked for more candidates, when, and what becomes of every answer.
//!
//! [`Search`] decides. It is pure: told of results, answers and time, it says whom to ask, what to try and when a race is
//! due; what it was told is a list of [`Record`]s, from which it is made again. A [`Proposer`] asks: a program, a server or
//! a function of the caller's. Neither stages, tests nor measures a candidate.

mod answer;
mod ask;
mod command;
mod family;
mod fence;
mod function;
mod http;
mod ledger;
mod policy;
mod proposer;
mod secrets;
mod settings;
mod wire;

pub use answer::{Answer, Failure, FailureKind, LONGEST_ANSWER, Malformed, Proposed};
pub use ask::{Ask, Kind, ProposalId, RequestId};
pub use command::{CommandProposer, CommandTerms};
pub use function::{Callable, FunctionProposer};
pub use http::{BadServer, HttpProposer};
pub use ledger::{Entry, EntryCandidate, Fate, Found, Ledger, Record, State, Stray};
pub use policy::{Checked, Proposal, Search, Step, Terms};
pub use proposer::{Asking, News, Proposer};
pub use settings::{Adaptive, Budget, CommandSettings, HttpSettings, Refine, Repair, Settings};
pub(crate) use settings::{PROPOSER_RESTARTS, PROPOSER_TIMEOUT};
pub use wire::{BaseFacts, Parent, Request, said_by, sources};
