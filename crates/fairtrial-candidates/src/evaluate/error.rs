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
    /// Results are where they would go, and nobody asked to go on with them (CA-96).
    #[error("`{}` is not empty (go on with it by --resume, or remove it, or name another directory)", .0.display())]
    NotEmpty(PathBuf),
    /// The base cannot be compared with.
    #[error("baseline unusable: {0}")]
    Baseline(String),
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
