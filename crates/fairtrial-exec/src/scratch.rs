//! Scratch directories of calls: one root per engine inside the spill directory, one directory per call inside that.
//!
//! A living engine holds a lock on its root, so a root without one was left by an engine that is gone, whatever the
//! process id in its name has become since. Removal itself is in `linux::remove`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, RawDir, fstat, mkdirat, openat, renameat};

use crate::error::EngineError;
use crate::linux::remove::remove_tree;
use crate::locked_dir::{self, Orphan};
use crate::spill::SpillDir;

const PREFIX: &str = "scratch-";

/// Notes are short.
const MOST_NOTED: u64 = 16 << 20;

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
        let (name, locked) = locked_dir::create(dir.as_fd(), PREFIX).map_err(attempt)?;
        let root = Arc::new(Root {
            path: spill.path().join(&name),
            spill: dir,
            name,
            dir: locked,
        });
        Ok(Self { root })
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
        self.make_named(n.to_string())
    }

    /// As [`ScratchRoot::make`] under a name of the caller's.
    pub fn make_named(&self, name: impl Into<String>) -> io::Result<ScratchDir> {
        let name = name.into();
        mkdirat(&self.root.dir, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(ScratchDir {
            path: self.root.path.join(&name),
            dir: openat(&self.root.dir, &name, flags, Mode::empty())?,
            root: Arc::clone(&self.root),
            name,
        })
    }

    /// Leaves a note in the root for whoever sweeps it if this engine cannot: what else is to be undone. All of it is
    /// there or nothing.
    pub fn note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fresh = format!("{name}.{:016x}", locked_dir::random());
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.root.dir, &fresh, flags | OFlags::CLOEXEC, mode)?;
        File::from(file).write_all(bytes)?;
        Ok(renameat(&self.root.dir, &fresh, &self.root.dir, name)?)
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

/// Removes the scratch roots of engines that no longer live; gives how many. What cannot be removed is logged and
/// left for the next time. A spill directory that does not exist yet has none, and is not made for this.
pub fn sweep_dead_roots(spill: &SpillDir) -> Result<usize, EngineError> {
    let mut removed = 0;
    for orphan in dead_roots(spill)? {
        match orphan.remove() {
            Ok(()) => removed += 1,
            Err(error) => log::warn!("cannot remove scratch of an earlier engine: {error}"),
        }
    }
    Ok(removed)
}

/// The roots of engines that no longer live.
pub(crate) fn dead_roots(spill: &SpillDir) -> Result<Vec<DeadRoot>, EngineError> {
    let mut found = Vec::new();
    if !spill.path().exists() {
        return Ok(found);
    }
    let dir = Arc::new(spill.open()?);
    let reading = EngineError::io("reading the spill directory");
    locked_dir::each_orphan(dir.as_fd(), PREFIX, |orphan| {
        found.push(DeadRoot {
            path: spill.path().join(&orphan.name),
            spill: Arc::clone(&dir),
            orphan,
        });
    })
    .map_err(reading)?;
    Ok(found)
}

/// What an engine left that lives no more. Nobody else takes it while this is held.
#[derive(Debug)]
pub struct DeadRoot {
    spill: Arc<OwnedFd>,
    orphan: Orphan,
    path: PathBuf,
}

impl DeadRoot {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its engine noted under this name; see [`ScratchRoot::note`].
    #[must_use]
    pub fn noted(&self, name: &str) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.orphan.dir, name, flags, Mode::empty()).ok()?;
        let mut bytes = Vec::new();
        File::from(file)
            .take(MOST_NOTED)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(bytes)
    }

    /// Removes it with all it holds.
    pub fn remove(self) -> io::Result<()> {
        self.orphan.remove(self.spill.as_fd())
    }
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
