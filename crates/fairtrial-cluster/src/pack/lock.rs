//! Directories that are in use while somebody has a lock on them. The lock is a `flock` of a descriptor that is closed
//! by `exec`: no program that is started has it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, retry_on_intr};

/// The directory with a lock that all who use it share. None if it is not there.
pub(super) fn share(path: &Path) -> io::Result<Option<File>> {
    loop {
        let Some(dir) = open(path)? else {
            return Ok(None);
        };
        retry_on_intr(|| flock(&dir, FlockOperation::LockShared))?;
        if is_at(&dir, path)? {
            return Ok(Some(dir));
        }
    }
}

/// The directory with a lock of our own. None if it is gone, or in use.
pub(super) fn take_if_free(path: &Path) -> io::Result<Option<File>> {
    let Some(dir) = open(path)? else {
        return Ok(None);
    };
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        locked => {
            locked?;
            Ok(is_at(&dir, path)?.then_some(dir))
        }
    }
}

/// Lets others use what was ours alone.
pub(super) fn give_up_alone(dir: &File) -> io::Result<()> {
    Ok(retry_on_intr(|| flock(dir, FlockOperation::LockShared))?)
}

/// Whether the path still leads to this directory.
pub(super) fn is_at(dir: &File, path: &Path) -> io::Result<bool> {
    let named = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        named => named?,
    };
    let ours = dir.metadata()?;
    Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino()))
}

fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}
