//! Why a store could not do what was asked.

use std::io;
use std::path::Path;

use fairtrial_exec::EngineError;
use rustix::io::Errno;

use super::digest::Digest;
use crate::envelope::{ErrorCode, TaskError};

/// What a store could not do. Names the store, never a secret.
#[derive(Debug, thiserror::Error)]
#[error("blob store `{store}`: {fault}")]
pub struct BlobError {
    /// The store's URL, without user, password or query.
    pub store: String,
    /// What went wrong.
    #[source]
    pub fault: Fault,
}

impl BlobError {
    /// What a task ends as whose blob this is about; none where the same may work later, or on another node.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match &self.fault {
            Fault::Missing(_) => Some(ErrorCode::BlobMissing),
            Fault::Corrupt { .. } | Fault::Source(_) => Some(ErrorCode::BlobCorrupt),
            Fault::TooLarge { .. } => Some(ErrorCode::TooLarge),
            Fault::Full(_) | Fault::Denied(_) | Fault::Unreachable(_) | Fault::Unusable(_) => None,
        }
    }

    /// The error that a task ends with; what may work later has no code of its own.
    #[must_use]
    pub fn to_task_error(&self) -> TaskError {
        TaskError {
            code: self.code().unwrap_or(ErrorCode::Other),
            message: self.to_string(),
        }
    }
}

impl From<BlobError> for EngineError {
    fn from(error: BlobError) -> Self {
        match error.code() {
            Some(_) => error.to_task_error().into(),
            None => Self::Elsewhere {
                code: "blobs",
                problem: error.to_string(),
            },
        }
    }
}

/// The kinds of what can go wrong, by what can be done about them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is no such blob.
    #[error(
        "there is no blob `{0}`; do agents (`--blobs`) and who calls them (`blobs`) name the same store?"
    )]
    Missing(Digest),
    /// What is there under this name is something else (CL-52).
    #[error("blob `{digest}` is corrupt: {problem}")]
    Corrupt {
        /// The blob that was asked for.
        digest: Digest,
        /// How what came differs from it.
        problem: String,
    },
    /// More than the store, or whoever asked, takes. Another node would not help.
    #[error("blob `{digest}` is too large: {problem}")]
    TooLarge {
        /// The blob.
        digest: Digest,
        /// What it is too large for.
        problem: String,
    },
    /// No room, or a quota is used up: in the store, or on the disk that a blob was to be read to (CL-27).
    #[error("no room: {0}")]
    Full(String),
    /// Not allowed.
    #[error("not allowed: {0}")]
    Denied(String),
    /// No answer, or not a whole one. Trying again may help.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// An answer that makes no sense, or an operation that such a store does not have.
    #[error("{0}")]
    Unusable(String),
    /// What was to be stored could not be read, or changed meanwhile.
    #[error("what was to be stored cannot be used: {0}")]
    Source(String),
}

impl Fault {
    /// The system's answer about a path, or about a file without one.
    pub(super) fn of_file(what: &str, path: &Path, error: &io::Error) -> Self {
        let problem = format!("{what} `{}`: {error}", path.display());
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Full(problem),
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Self::Denied(problem),
            _ => Self::Unreachable(problem),
        }
    }

    /// What was to be stored cannot be read.
    pub(super) fn of_source(error: &io::Error) -> Self {
        Self::Source(error.to_string())
    }

    pub(super) fn corrupt(digest: Digest, problem: impl Into<String>) -> Self {
        Self::Corrupt {
            digest,
            problem: problem.into(),
        }
    }

    /// Whether the same might work in a moment.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}
