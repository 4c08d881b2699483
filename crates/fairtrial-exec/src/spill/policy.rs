//! Memory or disk: which one holds a value of a given size.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::EngineError;
use crate::linux::{file_io, memfd, nameless};
use crate::spill::SpillDir;

/// Of what there is, one value may take this part.
const SHARE: u64 = 4;

/// Up to this size the state of the machine's memory is not asked: the answer would cost more than it could change.
const UNASKED_BYTES: u64 = 1 << 20;

/// What decides where a large value is kept.
#[derive(Clone, Debug)]
pub struct SpillPolicy {
    /// For what does not go to memory.
    pub dir: SpillDir,
    /// The most that one value may take of memory, however much there is.
    pub memfd_cap_bytes: u64,
    /// The call's memory limit, if it has one.
    pub memory_limit_bytes: Option<u64>,
}

/// Where a value's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    Memory,
    Disk,
}

impl SpillPolicy {
    /// An empty file with room for `size` bytes.
    pub(super) fn create(&self, size: u64) -> Result<(Storage, OwnedFd), EngineError> {
        if self.fits_memory(size)? {
            let file = memfd::create(size).map_err(EngineError::io("creating a file in memory"))?;
            return Ok((Storage::Memory, file));
        }
        Ok((Storage::Disk, self.create_on_disk(size)?))
    }

    fn fits_memory(&self, size: u64) -> Result<bool, EngineError> {
        let limit = self
            .memory_limit_bytes
            .map_or(u64::MAX, |limit| limit / SHARE);
        if size > limit.min(self.memfd_cap_bytes) {
            return Ok(false);
        }
        if size <= UNASKED_BYTES {
            return Ok(true);
        }
        let available =
            memfd::available_bytes().map_err(EngineError::io("reading how much memory is left"))?;
        Ok(size <= available / SHARE)
    }

    fn create_on_disk(&self, size: u64) -> Result<OwnedFd, EngineError> {
        let dir = self.dir.open()?;
        let free = nameless::free_bytes(&dir).map_err(EngineError::io("asking for free space"))?;
        let full = || EngineError::Spill {
            needed: size,
            free,
            dir: self.dir.path().to_path_buf(),
        };
        // Asked first: a reservation that cannot succeed would fill the disk for everybody before it fails.
        if size > free {
            return Err(full());
        }
        let file = nameless::create(&dir)
            .map_err(EngineError::io("creating a file in the spill directory"))?;
        match nameless::reserve(&file, size) {
            Ok(()) => Ok(file),
            Err(error) if is_full(&error) => Err(full()),
            Err(error) => Err(EngineError::io("reserving room in the spill directory")(
                error,
            )),
        }
    }
}

/// The disk, a quota, or the file system's largest file.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// A file for large arguments: filled by whoever makes the call, then mapped privately by the worker.
#[derive(Debug)]
pub struct ArgumentFile {
    storage: Storage,
    file: OwnedFd,
}

impl ArgumentFile {
    /// A file with room for `size` bytes where `policy` wants it.
    pub fn create(size: u64, policy: &SpillPolicy) -> Result<Self, EngineError> {
        let (storage, file) = policy.create(size)?;
        Ok(Self { storage, file })
    }

    /// To be filled.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Filled: a fully sealed memfd, or a file open for reading only.
    ///
    /// The kernel refuses seals while it holds one of the pages itself, to move it, say. The worker could still open an
    /// unsealed file anew for writing; that harms nobody else, since the engine maps no argument and sends each file
    /// to one worker.
    pub fn seal(self) -> Result<OwnedFd, EngineError> {
        if matches!(self.storage, Storage::Memory) && memfd::seal(&self.file) {
            return Ok(self.file);
        }
        nameless::reopen_readonly(&self.file).map_err(EngineError::io("reopening a large argument"))
    }
}

/// A sealed file with `bytes` for a worker.
pub fn sealed_argument(bytes: &[u8], policy: &SpillPolicy) -> Result<OwnedFd, EngineError> {
    let file = ArgumentFile::create(bytes.len() as u64, policy)?;
    file_io::write_all(file.fd(), bytes).map_err(EngineError::io("writing a large argument"))?;
    file.seal()
}

#[cfg(test)]
mod tests {
    use rustix::io::{Errno, pwrite};

    use super::*;

    /// EX-58
    #[test]
    fn an_argument_that_the_kernel_does_not_seal_can_be_read_only() {
        let file = ArgumentFile {
            storage: Storage::Memory,
            file: memfd::create(3).unwrap(),
        };
        file_io::write_all(file.fd(), b"abc").unwrap();
        rustix::fs::fcntl_add_seals(file.fd(), rustix::fs::SealFlags::SEAL).unwrap();
        let argument = file.seal().unwrap();
        assert_eq!(pwrite(&argument, b"x", 0), Err(Errno::BADF));
        assert_eq!(rustix::io::pread(&argument, &mut [0; 4], 0), Ok(3));
    }
}
