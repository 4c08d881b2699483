//! The record of a study: an SQLite file that only grows. Progress, resume, tables and report are read from it.
//!
//! One process writes, under a lock; any number read. What was committed survives the writer's death, what was synced
//! survives the machine's.

mod history;
mod insert;
mod lock;
mod read;
mod record;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::path::{Path, PathBuf};

pub use history::{History, Past};
pub use lock::Holder;
pub(crate) use lock::Lock;
pub use read::{PastInvocation, Reader};
pub(crate) use record::{Decision, Record};
pub use record::{Evaluation, Finish, Invocation, Stage, Start, StartId, Status};
pub(crate) use write::{Journal, Meta};

/// The name of the record in a study's directory.
pub(crate) const FILE_NAME: &str = "journal.sqlite";
const LOCK_NAME: &str = "journal.lock";

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another engine writes it.
    #[error("`{}` is being written by {holder}", .path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Who writes.
        holder: Holder,
    },
    /// There is none.
    #[error("`{}` holds no study: it has no {FILE_NAME}", .0.display())]
    Missing(PathBuf),
    /// A later version of Fairtrial wrote it.
    #[error("`{}` has journal format {found}; this version knows up to {}", .path.display(), schema::FORMAT)]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
    /// It is no journal, or damaged.
    #[error("`{}` is no journal of a study: {problem}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        problem: String,
    },
    /// SQLite failed: a full disk, say.
    #[error("`{}`: {source}", .path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What it said.
        #[source]
        source: rusqlite::Error,
    },
    /// The system failed.
    #[error("`{}`: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

impl JournalError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn database(path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.to_owned();
        move |source| match &source {
            rusqlite::Error::SqliteFailure(error, _)
                if matches!(
                    error.code,
                    rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt
                ) =>
            {
                let problem = source.to_string();
                Self::Damaged { path, problem }
            }
            _ => Self::Database { path, source },
        }
    }
}
