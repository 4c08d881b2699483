//! Candidates against a repository: what each changes, whether that is right, and how fast it is.
//!
//! Most of it decides and touches nothing: it is handed what it reads, says what is to be run, and is told what came of it.
//! Only `evaluate` and the proposers of `search` act, through the engine and on the evaluation's own files.

pub mod cases;
pub mod evaluate;
mod evaluation;
pub mod measure;
mod profile;
mod report;
mod rescore;
pub mod search;
pub mod spec;
pub mod stage;

pub use cases::FailureKind;
pub use evaluate::{Checklist, EvaluateError, Evaluator, Event, Onset, State};
pub use evaluation::{
    BaseFacts, BaselineFacts, BenchFacts, CaseCounts, Compared, Costs, Evaluation,
    EvaluationReport, FunctionProfile, InstructionCount, LineProfile, Machine, Measurement,
    MedianMetrics, ProfileReport, ProviderFacts, QuarantinedCase, REPORT_SCHEMA, REPORT_VERSION,
    SideProfile, SideTimes, StartupSource, Tiebreak,
};
pub use report::figures;
pub use rescore::Rescoring;
