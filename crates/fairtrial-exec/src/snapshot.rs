//! A frozen copy of a tree in the user's cache, named by what it holds (CA-20 to CA-23).
//!
//! Whoever uses one shares a lock on it, so a sweep removes only what nobody uses. Nothing writes to a finished copy;
//! that somebody did all the same is seen by [`Snapshot::check`]. Which files belong to a tree is the caller's business.

mod building;
mod copying;
pub(crate) mod file;
pub(crate) mod frozen;
pub(crate) mod list;
pub(crate) mod manifest;
mod source;
mod watch;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_NOW, futimens};
use rustix::io::Errno;

use crate::error::EngineError;
use crate::linux::beneath;
use crate::locked_dir;
use crate::store::Store;
use building::Building;
pub(crate) use building::remove_unused;
pub use frozen::{Damaged, FrozenTree};
pub use list::list;
pub use manifest::{Digest, Entry, EntryKind};
use manifest::{Manifest, hex};
use source::Source;
pub use watch::TreeWatch;

/// While it is being made.
pub(crate) const BUILDING: &str = "building-";

/// While it is being removed.
pub(crate) const GONE: &str = "gone-";

const TREE: &str = "tree";
const MANIFEST: &str = "manifest";

/// Those who sweep what was just finished cannot win for ever.
const TRIES: usize = 8;

/// A frozen tree, and the right to use it for as long as this is held.
#[derive(Debug)]
pub struct Snapshot {
    hash: String,
    /// Keeps the lock that all who use it share.
    tree: Arc<FrozenTree>,
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A listed path is absolute, or has a `..` or the like.
    #[error("`{0}` is not a path inside the tree")]
    BadPath(String),
    /// A socket, a pipe or a device.
    #[error("`{0}` is neither a file nor a link nor a directory; exclude it")]
    Special(String),
    /// It changed whenever it was read.
    #[error(
        "`{0}` changed each of the 3 times it was read; exclude it, or wait until nothing writes to it"
    )]
    Unsteady(String),
    /// A file of the tree cannot be read.
    #[error("cannot read `{path}`")]
    Reading {
        /// Below the root.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A copy cannot be made.
    #[error("cannot copy `{path}` to the snapshot")]
    Copying {
        /// Below the root.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The store itself.
    #[error(transparent)]
    Store(#[from] EngineError),
}

impl Snapshot {
    /// Freezes `files`, relative paths below `root`: regular files, links, and directories as empty ones. What is not
    /// there is left out, as is what `left_out` says yes to with all below it, bytecode and `.git`. A tree that is still
    /// what it was when it was last frozen is not copied again.
    ///
    /// # Errors
    /// A file cannot be taken, or the store has no room for it.
    pub fn take<P: AsRef<[u8]>>(
        store: &Store,
        root: &Path,
        files: impl IntoIterator<Item = P>,
        left_out: impl Fn(&[u8]) -> bool,
    ) -> Result<Self, SnapshotError> {
        let files = list::chosen(files, left_out)?;
        let keeping = || EngineError::io::<io::Error>("keeping a snapshot");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let from = rustix::fs::open(root, flags, Mode::empty());
        let from = from.map_err(|errno| SnapshotError::Reading {
            path: root.display().to_string(),
            source: errno.into(),
        })?;
        if let Some(snapshot) = source::reuse(store, from.as_fd(), &files)? {
            return Ok(snapshot);
        }
        for _ in 0..TRIES {
            let building = Building::start(store)?;
            let copied = copying::copy(from.as_fd(), building.tree.as_fd(), files.clone())?;
            let source = Source::new(from.as_fd(), &copied.manifest, &copied.marks);
            let source = source.map_err(|errno| keeping()(errno.into()))?;
            let finished = building.finish(store, copied.manifest, &source);
            let finished = finished.map_err(keeping())?;
            if let Some(snapshot) = finished {
                return Ok(snapshot);
            }
        }
        Err(keeping()(Errno::BUSY.into()).into())
    }

    /// The snapshot of this hash, if there is one and it is whole.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn open(store: &Store, hash: &str) -> Result<Option<Self>, EngineError> {
        let place = store.snapshots()?;
        for variant in 0.. {
            let name = name(hash, variant);
            let shared = locked_dir::share(place.as_fd(), &name);
            let Some(lock) = shared.map_err(EngineError::io("opening a snapshot"))? else {
                return Ok(None);
            };
            match Self::found(store, hash, &name, lock) {
                Ok(snapshot) => return Ok(Some(snapshot)),
                Err(error) => log::warn!("snapshot `{name}` is not used: {error}"),
            }
        }
        Ok(None)
    }

    /// What is there under a name, whole.
    fn found(store: &Store, hash: &str, name: &str, lock: OwnedFd) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let kept = beneath::open(&lock, MANIFEST.as_bytes(), OFlags::RDONLY, Mode::empty())?;
        File::from(kept).read_to_end(&mut bytes)?;
        let (manifest, this_boot) = Manifest::from_bytes(&bytes)?;
        let wrong = |problem| io::Error::new(io::ErrorKind::InvalidData, problem);
        if hex(&manifest.digest()) != hash {
            return Err(wrong("its manifest is that of another"));
        }
        let snapshot = Self::new(store, name, hash.to_owned(), manifest, lock)?;
        snapshot.tree.check()?;
        if !this_boot {
            // What was not on disk when the machine stopped may be there by name and size only.
            snapshot.tree.check_bytes()?;
        }
        Ok(snapshot)
    }

    fn new(
        store: &Store,
        name: &str,
        hash: String,
        manifest: Manifest,
        lock: OwnedFd,
    ) -> io::Result<Self> {
        touch(&lock)?;
        let path = store.snapshots_path().join(name).join(TREE);
        let dir = beneath::open_dir(&lock, TREE.as_bytes())?;
        Ok(Self {
            hash,
            tree: Arc::new(FrozenTree::new(path, dir, manifest, Some(lock))),
        })
    }

    /// SHA-256 over its paths, modes and bytes: 64 hex digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Where the tree is. Not to be written to.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.tree.path()
    }

    /// The tree itself, for copies of it. It stays in use for as long as anybody has it.
    #[must_use]
    pub fn tree(&self) -> &Arc<FrozenTree> {
        &self.tree
    }

    /// All entries, directories included, by path in the order of bytes.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.below(&[])
    }

    /// What is at a path itself; no link is followed.
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        self.tree.manifest.get(path).filter(|_| !path.is_empty())
    }

    /// The entries below a directory, at any depth.
    pub fn below<'a>(&'a self, directory: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a Entry)> {
        self.tree.manifest.below(directory)
    }

    /// The bytes of a file, or the target of a link.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn read(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        self.tree.read(path)
    }

    /// Looks whether anybody changed it, by size, times, mode and inode of every entry.
    ///
    /// # Errors
    /// Somebody did.
    pub fn check(&self) -> Result<(), Damaged> {
        self.tree.check()
    }
}

/// Several of one hash may be in use that differ in times, or of which one is damaged.
fn name(hash: &str, variant: u32) -> String {
    match variant {
        0 => hash.to_owned(),
        variant => format!("{hash}-{variant}"),
    }
}

/// The time of the directory is when it was last used.
fn touch(dir: &OwnedFd) -> io::Result<()> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(futimens(dir, &times)?)
}

#[cfg(test)]
mod tests;
