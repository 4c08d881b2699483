//! Scratch directories of calls: one root per engine inside the spill directory, one directory per call inside that.
//!
//! A living engine holds a lock on its root, so a root without one was left by an engine that is gone, whatever the
//! process id in its name has become since. Removal itself is in `linux::remove`.

use std::ffi::CStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RawDir, flock, fstat, mkdirat, openat, statat,
};
use rustix::io::Errno;

use crate::error::EngineError;
use crate::linux::remove::remove_tree;
use crate::spill::SpillDir;

const PREFIX: &str = "scratch-";

/// An engine's own directory for scratch; goes with all it holds when dropped.
#[derive(Debug)]
pub struct ScratchRoot {
    root: Arc<Root>,
}

#[derive(Debug)]
struct Root {
    spill: OwnedFd,
    name: String,
    path: PathBuf,
    /// Open, and locked for as long as it is.
    dir: OwnedFd,
}

/// One call's scratch directory. It stays until [`ScratchDir::remove`], or until its root goes.
#[derive(Debug)]
pub struct ScratchDir {
    root: Arc<Root>,
    name: String,
    path: PathBuf,
    /// Open since it was made, so that it can be looked at whatever has become of the name.
    dir: OwnedFd,
}

impl ScratchRoot {
    /// A new root in the spill directory, 0700 and locked.
    pub fn create(spill: &SpillDir) -> Result<Self, EngineError> {
        let dir = spill.open()?;
        let attempt = EngineError::io("creating the scratch root in the spill directory");
        loop {
            let name = format!("{PREFIX}{}-{:016x}", std::process::id(), random());
            match create_locked(dir.as_fd(), &name) {
                Ok(Some(locked)) => {
                    let path = spill.path().join(&name);
                    let root = Arc::new(Root {
                        spill: dir,
                        name,
                        path,
                        dir: locked,
                    });
                    return Ok(Self { root });
                }
                // Somebody's sweep was quicker than our lock.
                Ok(None) | Err(Errno::EXIST) => (),
                Err(errno) => return Err(attempt(errno)),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root.path
    }

    /// The directory it is in, and its name there: what `linux::remove::remove_tree` takes, for whoever removes it
    /// when this engine no longer can.
    #[must_use]
    pub fn place(&self) -> (BorrowedFd<'_>, &str) {
        (self.root.spill.as_fd(), &self.root.name)
    }

    /// The directory of call number `n`, 0700 and empty.
    pub fn make(&self, n: u64) -> io::Result<ScratchDir> {
        let name = n.to_string();
        mkdirat(&self.root.dir, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(ScratchDir {
            path: self.root.path.join(&name),
            dir: openat(&self.root.dir, &name, flags, Mode::empty())?,
            root: Arc::clone(&self.root),
            name,
        })
    }
}

impl Root {
    fn remove(&self) -> io::Result<()> {
        remove_tree(&self.spill, &self.name)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            log::warn!("cannot remove scratch `{}`: {error}", self.path.display());
        }
    }
}

impl ScratchDir {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is as it was made, so that another call may have it: most calls write no file, and making and
    /// removing a directory costs more than this look.
    #[must_use]
    pub fn is_pristine(&self) -> bool {
        let untouched = fstat(&self.dir).is_ok_and(|stat| {
            // Two links: its name and its own `.`; none once the name is gone. Some file systems count one.
            (1..=2).contains(&stat.st_nlink)
                && stat.st_mode & 0o7777 == 0o700
                && stat.st_uid == rustix::process::geteuid().as_raw()
        });
        untouched && self.is_empty()
    }

    fn is_empty(&self) -> bool {
        if rustix::fs::seek(&self.dir, rustix::fs::SeekFrom::Start(0)).is_err() {
            return false;
        }
        let mut listing = [MaybeUninit::uninit(); 512];
        let mut entries = RawDir::new(&self.dir, &mut listing);
        loop {
            match entries.next() {
                None => return true,
                Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Some(_) => return false,
            }
        }
    }

    /// Removes it with all it holds. An empty one costs one system call; a full one takes its time, so not on the
    /// call's path.
    pub fn remove(self) -> io::Result<()> {
        remove_tree(&self.root.dir, &self.name)
    }
}

/// Makes and locks a root; `None` if it was swept away in between.
fn create_locked(spill: BorrowedFd<'_>, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
    mkdirat(spill, name, Mode::RWXU)?;
    let Some(dir) = open_and_lock(spill, name)? else {
        return Ok(None);
    };
    let named = match statat(spill, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        named => named?,
    };
    let ours = fstat(&dir)?;
    let same = (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino) && ours.st_nlink > 0;
    Ok(same.then_some(dir))
}

/// The directory with its lock, unless it is gone or locked by another.
fn open_and_lock(
    spill: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match openat(spill, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        locked => locked.map(|()| Some(dir)),
    }
}

/// Removes the scratch roots of engines that no longer live; gives how many. What cannot be removed is logged and
/// left for the next time. A spill directory that does not exist yet has none, and is not made for this.
pub fn sweep_dead_roots(spill: &SpillDir) -> Result<usize, EngineError> {
    if !spill.path().exists() {
        return Ok(0);
    }
    let dir = spill.open()?;
    let mut listing = vec![MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(dir.as_fd(), &mut listing);
    let mut removed = 0;
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(EngineError::io("reading the spill directory"))?;
        match sweep(dir.as_fd(), entry.file_name()) {
            Ok(swept) => removed += usize::from(swept),
            Err(error) => log::warn!(
                "cannot remove scratch {:?} of an earlier engine: {error}",
                entry.file_name()
            ),
        }
    }
    Ok(removed)
}

fn sweep(spill: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
    if !name.to_bytes().starts_with(PREFIX.as_bytes()) {
        return Ok(false);
    }
    // Locked until it is gone, so that no second sweep works on it too.
    let Some(_locked) = open_and_lock(spill, name)? else {
        return Ok(false);
    };
    remove_tree(spill, name)?;
    Ok(true)
}

pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use tempfile::TempDir;

    use super::*;

    fn spill() -> (TempDir, SpillDir) {
        let parent = tempfile::tempdir().unwrap();
        let spill = SpillDir::new(parent.path().join("spill"));
        (parent, spill)
    }

    fn names(spill: &SpillDir) -> usize {
        fs::read_dir(spill.path()).unwrap().count()
    }

    /// EX-36
    #[test]
    fn each_call_has_an_empty_directory_for_its_owner_alone() {
        let (_parent, spill) = spill();
        let root = ScratchRoot::create(&spill).unwrap();
        let (a, b) = (root.make(1).unwrap(), root.make(2).unwrap());
        assert_ne!(a.path(), b.path());
        for dir in [a.path(), b.path(), root.path()] {
            assert_eq!(fs::metadata(dir).unwrap().mode() & 0o7777, 0o700);
        }
        assert!(root.make(1).is_err(), "a directory is never shared");
    }

    /// EX-21
    #[test]
    fn removed_directories_go_at_once_and_the_others_with_the_root() {
        let (_parent, spill) = spill();
        let root = ScratchRoot::create(&spill).unwrap();
        let (removed, forgotten) = (root.make(1).unwrap(), root.make(2).unwrap());
        for dir in [&removed, &forgotten] {
            fs::create_dir_all(dir.path().join("deep/er")).unwrap();
            fs::write(dir.path().join("deep/file"), b"x").unwrap();
        }
        let path = removed.path().to_path_buf();
        removed.remove().unwrap();
        assert!(!path.exists() && forgotten.path().exists());
        drop((root, forgotten));
        assert_eq!(names(&spill), 0);
    }

    /// EX-3
    #[test]
    fn a_sweep_removes_the_roots_of_dead_engines_and_nothing_else() {
        let (_parent, spill) = spill();
        assert_eq!(sweep_dead_roots(&spill).unwrap(), 0);
        assert!(!spill.path().exists());
        let living = ScratchRoot::create(&spill).unwrap();
        living.make(1).unwrap();
        // A living process's number in the name saves nobody.
        let dead = spill
            .path()
            .join(format!("{PREFIX}{}-dead", std::process::id()));
        fs::create_dir_all(dead.join("7/deep")).unwrap();
        fs::create_dir(spill.path().join("other")).unwrap();
        assert_eq!(sweep_dead_roots(&spill).unwrap(), 1);
        assert!(!dead.exists() && living.path().join("1").exists());
        assert_eq!(names(&spill), 2);
    }

    /// EX-22
    #[test]
    fn engines_that_start_and_sweep_at_once_never_lose_a_root() {
        let (_parent, spill) = spill();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..50 {
                        let root = ScratchRoot::create(&spill).unwrap();
                        sweep_dead_roots(&spill).unwrap();
                        root.make(n).unwrap();
                        assert!(root.path().join(n.to_string()).exists());
                    }
                });
            }
        });
        sweep_dead_roots(&spill).unwrap();
        assert_eq!(names(&spill), 0);
    }
}
