//! A snapshot on its way: made under a name of its own, then given the name of what it holds.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, mkdirat, openat, renameat};
use rustix::io::{Errno, retry_on_intr};

use super::manifest::{Manifest, hex};
use super::source::Source;
use super::{BUILDING, GONE, MANIFEST, Snapshot, TREE, name};
use crate::error::EngineError;
use crate::linux::beneath;
use crate::linux::remove::remove_tree;
use crate::locked_dir;
use crate::store::Store;

/// A snapshot that is being made; removed when dropped.
pub(super) struct Building {
    place: OwnedFd,
    /// Empty when it has become a snapshot.
    name: String,
    /// Locked for its maker alone.
    dir: OwnedFd,
    pub(super) tree: OwnedFd,
}

impl Building {
    pub(super) fn start(store: &Store) -> Result<Self, EngineError> {
        let place = store.snapshots()?;
        Self::start_in(place).map_err(EngineError::io("making a snapshot"))
    }

    fn start_in(place: OwnedFd) -> rustix::io::Result<Self> {
        let (name, dir) = locked_dir::create(place.as_fd(), BUILDING)?;
        mkdirat(&dir, TREE, Mode::RWXU)?;
        Ok(Self {
            tree: beneath::open_dir(&dir, TREE.as_bytes())?,
            place,
            name,
            dir,
        })
    }

    /// Gives it its name, or takes what has the name already and is no different. `None` if it was swept away in that
    /// very moment.
    pub(super) fn finish(
        mut self,
        store: &Store,
        manifest: Manifest,
        source: &Source,
    ) -> io::Result<Option<Snapshot>> {
        source.keep(&self.dir)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let kept = openat(&self.dir, MANIFEST, flags, Mode::RUSR)?;
        File::from(kept).write_all(&manifest.to_bytes())?;
        let hash = hex(&manifest.digest());
        let mut variant = 0;
        loop {
            let name = name(&hash, variant);
            match renameat(&self.place, &self.name, &self.place, &name) {
                Ok(()) => {
                    self.name = name;
                    return self.share(store, hash, manifest);
                }
                Err(Errno::EXIST | Errno::NOTEMPTY) => (),
                Err(errno) => return Err(errno.into()),
            }
            let Some(lock) = locked_dir::share(self.place.as_fd(), &name)? else {
                continue; // removed just now
            };
            let dir = lock.try_clone()?;
            match Snapshot::found(store, &hash, &name, lock) {
                Ok(found) if found.tree.manifest.is_like(&manifest) => {
                    source.keep(dir)?;
                    return Ok(Some(found));
                }
                // Of another time, or damaged: it goes unless somebody uses it.
                Ok(_) | Err(_) => {
                    if !remove_unused(self.place.as_fd(), &name, |_| true)? {
                        variant += 1;
                    }
                }
            }
        }
    }

    fn share(
        mut self,
        store: &Store,
        hash: String,
        manifest: Manifest,
    ) -> io::Result<Option<Snapshot>> {
        // Not at once: the lock is given up before the other is had.
        retry_on_intr(|| flock(&self.dir, FlockOperation::LockShared))?;
        if !locked_dir::is_named(self.dir.as_fd(), self.place.as_fd(), &self.name)? {
            self.name.clear();
            return Ok(None);
        }
        let name = std::mem::take(&mut self.name);
        let lock = self.dir.try_clone()?; // the same lock, whoever closes first
        Snapshot::new(store, &name, hash, manifest, lock).map(Some)
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if self.name.is_empty() {
            return; // it has become a snapshot
        }
        if let Err(error) = remove_tree(&self.place, &self.name) {
            log::warn!("cannot remove `{}` from the snapshots: {error}", self.name);
        }
    }
}

/// Removes a snapshot that nobody uses and of which `goes` says so; whether it did.
pub(crate) fn remove_unused(
    place: BorrowedFd<'_>,
    name: &str,
    goes: impl FnOnce(&OwnedFd) -> bool,
) -> io::Result<bool> {
    let Some(dir) = locked_dir::take_if_free(place, name)? else {
        return Ok(false);
    };
    if !locked_dir::is_named(dir.as_fd(), place, name)? || !goes(&dir) {
        return Ok(false);
    }
    // Out of the way first: who finds the name finds all of it.
    let gone = format!("{GONE}{:016x}", locked_dir::random());
    renameat(place, name, place, &gone)?;
    remove_tree(place, &gone)?;
    Ok(true)
}
