//! The lock among all evaluations and agents on a machine: whoever measures is alone, whoever builds, tests or runs other
//! calls shares it (CA-62, CL-37).
//!
//! Two bytes of one file that every user may open. The second is the lock; the first is a turnstile that everybody
//! passes on the way to it, so that who waits for the lock keeps others from overtaking. Each passes it as it wants the
//! lock: sharers are in nobody's way but that of who wants to be alone, who needs a moment without any of them there. They
//! are locks of a process: no child has them, not even one that is forked and never runs a program, and death frees them.
//! Within a process, `room.rs` keeps its holders apart.
//!
//! Who has the lock must not wait for it once more: somebody in between may wait for both.

mod file;
mod room;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::LocalConfig;
use crate::linux::record_lock::Kind;
use room::Room;

/// The lock of a machine, or of those who name the same file.
#[derive(Clone, Debug)]
pub struct MachineLock {
    path: PathBuf,
}

/// Who has what somebody waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its process; none if that cannot be seen from here.
    pub pid: Option<u32>,
    /// What it said about itself, or else the name of its program.
    pub label: Option<String>,
}

/// The lock, until it is dropped.
#[derive(Debug)]
#[must_use = "the lock is given up when this is dropped"]
pub struct Held {
    room: Arc<Room>,
    kind: Kind,
}

/// Why the lock cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot use the machine-wide lock `{path}`: {problem}; remove the file, or set `FAIRTRIAL_MACHINE_LOCK` to another"
)]
pub struct LockError {
    path: String,
    problem: String,
}

impl LockError {
    /// What is wrong, for whoever named the file otherwise.
    #[must_use]
    pub fn without_hint(&self) -> String {
        format!("cannot use `{}`: {}", self.path, self.problem)
    }
}

impl MachineLock {
    /// The one that all evaluations and agents on this machine use: `FAIRTRIAL_MACHINE_LOCK`, or a file in the first of `/run/lock`
    /// and `/tmp` that every user may write to.
    #[must_use]
    pub fn of(config: &LocalConfig) -> Self {
        let named = config
            .host_env
            .get(std::ffi::OsStr::new("FAIRTRIAL_MACHINE_LOCK"));
        match named.map(PathBuf::from).filter(|path| path.is_absolute()) {
            Some(path) => Self::at(path),
            None => Self::at(file::common_directory().join("fairtrial-measuring.lock")),
        }
    }

    /// The lock that this file is.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file can be used; waits for nobody.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self) -> Result<(), LockError> {
        let room = Room::at(&self.path);
        room.map(drop).map_err(|error| self.failed(&error))
    }

    /// Waits until nobody measures, and keeps others from it. `label` tells others what for; `waiting` is called once if
    /// somebody is in the way. Dropping the future gives up at once.
    ///
    /// # Errors
    /// The file cannot be used.
    pub async fn shared(
        &self,
        label: &str,
        waiting: impl FnOnce(Holder),
    ) -> Result<Held, LockError> {
        self.acquire(Kind::Shared, label, waiting).await
    }

    /// Waits until nobody else has the lock in any way. The rest as for [`MachineLock::shared`].
    ///
    /// # Errors
    /// The file cannot be used.
    pub async fn exclusive(
        &self,
        label: &str,
        waiting: impl FnOnce(Holder),
    ) -> Result<Held, LockError> {
        self.acquire(Kind::Exclusive, label, waiting).await
    }

    async fn acquire(
        &self,
        kind: Kind,
        label: &str,
        waiting: impl FnOnce(Holder),
    ) -> Result<Held, LockError> {
        let mut waiting = Some(waiting);
        let mut tell = |holder: Holder| {
            if let Some(waiting) = waiting.take() {
                waiting(holder);
            }
        };
        loop {
            let room = Room::at(&self.path).map_err(|error| self.failed(&error))?;
            let entered = room.enter(kind, label, &mut tell).await;
            entered.map_err(|error| self.failed(&error))?;
            let held = Held { room, kind };
            // Somebody may have removed the file: then others have another lock.
            if held.room.file().is_at(&self.path) {
                return Ok(held);
            }
        }
    }

    fn failed(&self, error: &io::Error) -> LockError {
        LockError {
            path: self.path.display().to_string(),
            problem: error.to_string(),
        }
    }
}

impl Held {
    /// Whether somebody waits for this to be given up, here or in another process. Who holds on to it for one turn after
    /// another looks between two of them, and lets go. Somebody who is only passing may look the same.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.room.is_wanted(self.kind)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.leave(self.kind);
    }
}

#[cfg(test)]
mod tests;
