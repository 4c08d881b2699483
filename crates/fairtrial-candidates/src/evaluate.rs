//! An evaluation from its file to its report. Starts processes through the engine alone, and prints nothing.

mod asking;
mod base;
mod baseline;
mod checklist;
mod correctness;
mod course;
mod error;
mod evaluator;
mod event;
mod field;
mod git;
mod ground;
mod journal;
mod judging;
mod layers;
mod logs;
mod machine;
mod measuring;
mod outputs;
mod prepare;
mod profiling;
mod provider;
mod python_keys;
mod racing;
mod record;
mod repository;
mod scene;
mod slots;
mod sources;
mod standing;
mod telling;
mod worktrees;

pub use checklist::Checklist;
pub use error::EvaluateError;
pub use evaluator::Evaluator;
pub use event::{Event, State};
