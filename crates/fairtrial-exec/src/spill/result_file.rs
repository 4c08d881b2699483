//! A file a worker fills, and its bytes once they can be relied on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::fstat;

use crate::error::EngineError;
use crate::linux::mapping::Mapping;
use crate::linux::{file_io, lease, memfd, nameless};
use crate::spill::Body;
use crate::spill::policy::{SpillPolicy, Storage};

/// A nameless file for one large result: made by the engine, filled by a worker, then settled.
#[derive(Debug)]
pub struct ResultFile {
    storage: Storage,
    file: OwnedFd,
    policy: SpillPolicy,
}

/// Who may still have the file when it is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// The worker and all it started are gone.
    Dead,
    /// The worker lives on: it may have kept a descriptor or a mapping.
    MayLive,
}

/// Why a filled file gives no value. All but [`SettleError::Engine`] are the worker's fault.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// The worker's word and its file disagree.
    #[error("the worker claims {claimed} bytes, its file holds {actual}")]
    Size {
        /// What the worker said.
        claimed: u64,
        /// What is there.
        actual: u64,
    },
    /// The file was cut while it was read.
    #[error("the file was cut while it was read")]
    Changed,
    /// The engine could not do its part.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ResultFile {
    /// A file of `size` bytes where `policy` wants it, with room reserved if that is the disk.
    ///
    /// A worker can fill it but not grow it beyond `size` in memory; on disk it can.
    pub fn create(size: u64, policy: &SpillPolicy) -> Result<Self, EngineError> {
        let (storage, file) = policy.create(size)?;
        Ok(Self {
            storage,
            file,
            policy: policy.clone(),
        })
    }

    /// To hand down to the worker.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The first `size` bytes, which nobody can change any more: mapped if that is certain, copied if not.
    ///
    /// | file | certain when | because |
    /// |---|---|---|
    /// | in memory | all seals hold | they bind every holder for ever; a writable mapping that lives makes the kernel refuse them |
    /// | on disk | its tree is dead and nobody else has it open | while the tree lives no lease is proof, see `linux::lease` |
    ///
    /// A copy goes to another file under the same policy, so the engine's own memory does not grow with the value.
    pub fn settle(self, size: u64, writers: Writers) -> Result<Body, SettleError> {
        let policy = self.policy.clone();
        let (file, fixed) = self.fix(writers)?;
        let actual = size_of(&file)?;
        if size > actual {
            return Err(SettleError::Size {
                claimed: size,
                actual,
            });
        }
        if size == 0 {
            return Ok(Body::Inline(Vec::new()));
        }
        if fixed {
            map(&file, size)
        } else {
            map(&copy(&file, size, &policy)?, size)
        }
    }

    /// The file, and whether it can no longer change.
    fn fix(self, writers: Writers) -> Result<(OwnedFd, bool), EngineError> {
        match (self.storage, writers) {
            (Storage::Memory, _) => {
                let sealed = memfd::seal(&self.file);
                Ok((self.file, sealed))
            }
            (Storage::Disk, Writers::MayLive) => Ok((self.file, false)),
            (Storage::Disk, Writers::Dead) => {
                // The description made here was shared with the worker, so it cannot be told from the worker's: only
                // once it is closed does a lease on another one say that nobody is left. A descriptor can have gone
                // to a process outside the tree, over a socket.
                let reopened = nameless::reopen_readonly(&self.file)
                    .map_err(EngineError::io("reopening a result"))?;
                drop(self.file);
                let alone = lease::is_only_opener(&reopened);
                Ok((reopened, alone))
            }
        }
    }
}

fn size_of(file: &OwnedFd) -> Result<u64, EngineError> {
    let stat = fstat(file).map_err(EngineError::io("reading the size of a result"))?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// The bytes as they are now, in a file that never leaves the engine.
fn copy(from: &OwnedFd, size: u64, policy: &SpillPolicy) -> Result<OwnedFd, SettleError> {
    let (_, to) = policy.create(size)?;
    match file_io::copy(from, &to, size) {
        Ok(()) => Ok(to),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(SettleError::Changed),
        Err(error) => Err(EngineError::io("copying a result")(error).into()),
    }
}

fn map(file: &OwnedFd, size: u64) -> Result<Body, SettleError> {
    let mapping = usize::try_from(size)
        .map_err(io::Error::other)
        .and_then(|size| Mapping::new(file, size))
        .map_err(EngineError::io("mapping a result"))?;
    Ok(Body::Mapped(mapping))
}

#[cfg(test)]
mod tests;
