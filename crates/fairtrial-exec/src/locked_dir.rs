//! Directories whose owner holds a lock on them, so that one without shows that its owner is gone, whatever process has
//! its number since.
//!
//! The lock is a `flock` of a descriptor that is closed by `exec`: no program that is started has it.

use std::ffi::CStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RawDir, chmodat, flock, fstat, mkdirat, openat, statat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::linux::remove::remove_tree;

/// Makes a directory, 0700, of a new name that begins with `prefix`, and locks it.
pub(crate) fn create(
    parent: BorrowedFd<'_>,
    prefix: &str,
) -> rustix::io::Result<(String, OwnedFd)> {
    loop {
        let name = format!("{prefix}{}-{:016x}", std::process::id(), random());
        match create_locked(parent, &name) {
            Ok(Some(locked)) => return Ok((name, locked)),
            // Somebody's sweep was quicker than our lock.
            Ok(None) | Err(Errno::EXIST) => (),
            Err(errno) => return Err(errno),
        }
    }
}

/// Makes a directory that is its owner's alone, whatever the host's umask takes away.
pub(crate) fn make_private(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
) -> rustix::io::Result<()> {
    mkdirat(parent, name, Mode::RWXU)?;
    open_to_owner(parent, name)
}

/// A umask may have taken some of the owner's rights.
fn open_to_owner(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
) -> rustix::io::Result<()> {
    let made = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if Mode::from_raw_mode(made.st_mode).contains(Mode::RWXU) {
        return Ok(());
    }
    chmodat(parent, name, Mode::RWXU, AtFlags::empty())
}

/// `None` if it was swept away in between.
fn create_locked(parent: BorrowedFd<'_>, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
    mkdirat(parent, name, Mode::RWXU)?;
    match open_to_owner(parent, name) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    }
    let Some(dir) = take_if_free(parent, name)? else {
        return Ok(None);
    };
    Ok(is_named(dir.as_fd(), parent, name)?.then_some(dir))
}

/// The directory with its lock, unless it is gone or anybody else has a lock on it.
pub(crate) fn take_if_free(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<Option<OwnedFd>> {
    let Some(dir) = open(parent, name)? else {
        return Ok(None);
    };
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        locked => locked.map(|()| Some(dir)),
    }
}

/// The directory with a lock that others may share; waits while somebody makes or removes it. `None` if it is gone.
pub(crate) fn share(parent: BorrowedFd<'_>, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
    loop {
        let Some(dir) = open(parent, name)? else {
            return Ok(None);
        };
        retry_on_intr(|| flock(&dir, FlockOperation::LockShared))?;
        if is_named(dir.as_fd(), parent, name)? {
            return Ok(Some(dir));
        }
    }
}

fn open(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Whether the name still leads to this directory.
pub(crate) fn is_named(
    dir: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    name: &str,
) -> rustix::io::Result<bool> {
    let named = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        named => named?,
    };
    let ours = fstat(dir)?;
    Ok((named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino) && ours.st_nlink > 0)
}

/// What nobody has a lock on any more: locked by us until it is removed, so that no second sweep works on it too.
#[derive(Debug)]
pub(crate) struct Orphan {
    /// Its name.
    pub(crate) name: String,
    /// The directory itself.
    pub(crate) dir: OwnedFd,
}

/// Calls `found` with each directory of such a name that nobody has a lock on.
pub(crate) fn each_orphan(
    parent: BorrowedFd<'_>,
    prefix: &str,
    mut found: impl FnMut(Orphan),
) -> io::Result<()> {
    let mut listing = vec![MaybeUninit::uninit(); 32 << 10];
    // A description of its own, whose place in the listing is its own too.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = openat(parent, c".", flags, Mode::empty())?;
    let mut entries = RawDir::new(listed, &mut listing);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Some(name) = ours(entry.file_name(), prefix) else {
            continue;
        };
        match take_if_free(parent, name) {
            Ok(Some(dir)) => found(Orphan {
                name: name.to_owned(),
                dir,
            }),
            Ok(None) => (),
            Err(errno) => log::warn!("cannot look at `{name}` of an earlier engine: {errno}"),
        }
    }
    Ok(())
}

fn ours<'a>(name: &'a CStr, prefix: &str) -> Option<&'a str> {
    name.to_str().ok().filter(|name| name.starts_with(prefix))
}

impl Orphan {
    /// Removes it with all it holds.
    pub(crate) fn remove(self, parent: BorrowedFd<'_>) -> io::Result<()> {
        remove_tree(parent, &self.name)
    }
}

pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
