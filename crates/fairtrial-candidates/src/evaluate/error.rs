//! Why an evaluation could not be made. What a candidate does wrong is never one of these.

use std::path::PathBuf;

use fairtrial_exec::EngineError;

use crate::spec::{Fault, Invalid};

/// Why an evaluation could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// What was asked for makes no sense here: a file, a commit, a directory.
    #[error("{0}")]
    Invalid(String),
    /// An evaluation is where results would go, and nobody said what is to become of it (CA-96).
    #[error("`{}` is not empty: it holds an evaluation (go on with it by --resume, begin anew by --fresh, or name another directory by --output)", .0.display())]
    NotEmpty(PathBuf),
    /// Something else is there.
    #[error("`{}` is not empty, and holds no evaluation (name another directory by --output)", .0.display())]
    Occupied(PathBuf),
    /// No evaluation is there.
    #[error("`{}` holds no evaluation: there is nothing to go on with (leave out --resume to begin one)", .0.display())]
    NothingToResume(PathBuf),
    /// What is to be judged by makes no sense.
    #[error("`{term}` {problem}")]
    Term {
        /// `alpha`, `min_effect` or `metric`.
        term: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The base cannot be compared with.
    #[error("baseline unusable: {0}")]
    Baseline(String),
    /// Nothing can be measured: a bench command fails in the base.
    #[error("{0}")]
    Bench(Fault),
    /// The machine, or a program that is not a candidate's, would not do its part.
    #[error("{0}")]
    Failed(String),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl EvaluateError {
    /// For `map_err`: what was attempted when the system said no.
    pub(crate) fn attempting<E: std::fmt::Display>(
        what: impl std::fmt::Display,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::Failed(format!("{what}: {error}"))
    }
}

impl From<Fault> for EvaluateError {
    fn from(fault: Fault) -> Self {
        Self::Invalid(fault.to_string())
    }
}

impl From<Invalid> for EvaluateError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid.to_string())
    }
}
