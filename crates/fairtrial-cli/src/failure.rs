//! Why a command could not do its work. A failed candidate is an outcome and none of these.

use std::error::Error;

use fairtrial_exec::EngineError;

use crate::exit_code::ExitCode;

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad usage or a bad file: one line, `place: what (hint)`. Nothing was started.
    Usage(String),
    /// What was asked for cannot be done on the base: one line, as above, of what only running it showed.
    Base(String),
    /// The machine or the engine stood in the way.
    Engine {
        /// What was attempted.
        attempt: String,
        /// What stood in the way.
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The server, the store or the way there stood in the way: one line, as CL-6 has it.
    Cluster(String),
    /// SIGINT, SIGTERM or SIGHUP; whatever ran was killed.
    Interrupted,
    /// The same, and what ran is on machines that may not have heard of it.
    Left,
}

impl Failure {
    /// An objection to what the user wrote at `place`.
    pub(crate) fn usage(place: &str, what: impl std::fmt::Display) -> Self {
        Self::Usage(format!("{place}: {what}"))
    }

    /// For `map_err`: names what was attempted.
    pub(crate) fn attempting<E>(attempt: impl Into<String>) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        |cause| Self::Engine {
            attempt: attempt.into(),
            cause: cause.into(),
        }
    }

    /// What the shell is told.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::BadUsage,
            Self::Base(_) | Self::Cluster(_) | Self::Engine { .. } => ExitCode::EngineFailed,
            Self::Interrupted | Self::Left => ExitCode::Interrupted,
        }
    }
}

/// What the system said, without its number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::InvalidCall(invalid) => Self::Usage(invalid.to_string()),
            error => Self::attempting("the engine failed")(error),
        }
    }
}
