//! Scratch directories of calls: one root per engine inside the spill directory, one directory per call inside that.
//!
//! A living engine holds a lock on its root, so a root without one was left by an engine that is gone, whatever the
//! process id in its name has become since. Removal itself is in `linux::remove`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, RawDir, Stat, flistxattr, fstat, openat, renameat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::error::EngineError;
use crate::foreign_host::Held;
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
    /// Before the descriptor, as it wants.
    _held: Held,
    name: String,
    path: PathBuf,
    /// Open, and locked for as long as it is.
    dir: OwnedFd,
}

/// One call's scratch directory. It stays until [`ScratchDir::remove`], or until its root goes.
#[derive(Debug)]
pub struct ScratchDir {
    root: Arc<Root>,
    /// Before the descriptor, as it wants.
    _held: Held,
    name: String,
    path: PathBuf,
    /// Open since it was made, so that it can be looked at whatever has become of the name.
    dir: OwnedFd,
    /// When it was made, by its own times.
    made: Times,
    /// Whether it was seen to be pristine so long after it was made that any change since would show in its times.
    is_settled: bool,
}

impl ScratchRoot {
    /// A new root in the spill directory, 0700 and locked.
    pub fn create(spill: &SpillDir) -> Result<Self, EngineError> {
        let dir = spill.open()?;
        let attempt = EngineError::io("creating the scratch root in the spill directory");
        let (name, locked) = locked_dir::create(dir.as_fd(), PREFIX).map_err(attempt)?;
        let root = Arc::new(Root {
            _held: Held::new(&locked),
            path: spill.path().join(&name),
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

    /// Whether its path still leads to it.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let (named, ours) = (rustix::fs::lstat(&self.root.path), fstat(&self.root.dir));
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        matches!((named, ours), (Ok(named), Ok(ours)) if identity(named) == identity(ours))
    }

    /// The directory it is in, and its name there: what `linux::remove::remove_tree` takes, for whoever removes it
    /// when this engine no longer can.
    pub fn place(&self) -> io::Result<(OwnedFd, &str)> {
        Ok((self.root.parent()?, &self.root.name))
    }

    /// The directory of call number `n`, 0700 and empty.
    pub fn make(&self, n: u64) -> io::Result<ScratchDir> {
        self.make_named(n.to_string())
    }

    /// As [`ScratchRoot::make`] under a name of the caller's.
    pub fn make_named(&self, name: impl Into<String>) -> io::Result<ScratchDir> {
        let name = name.into();
        locked_dir::make_private(self.root.dir.as_fd(), &*name)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = openat(&self.root.dir, &name, flags, Mode::empty())?;
        Ok(ScratchDir {
            path: self.root.path.join(&name),
            made: Times::of(&fstat(&dir)?),
            _held: Held::new(&dir),
            dir,
            root: Arc::clone(&self.root),
            name,
            is_settled: false,
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
        remove_tree(&self.parent()?, &self.name)
    }

    /// Opened when it is needed: descriptors may be few.
    fn parent(&self) -> io::Result<OwnedFd> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(parent, flags, Mode::empty())?)
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
    /// Whether it is below this root, and not below one from which that took over.
    #[must_use]
    pub fn is_in(&self, root: &ScratchRoot) -> bool {
        Arc::ptr_eq(&self.root, &root.root)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is as it was made, so that another call may have it: most calls write no file, and making and
    /// removing a directory costs more than this look.
    #[must_use]
    pub fn is_pristine(&mut self) -> bool {
        let Ok(stat) = fstat(&self.dir) else {
            return false;
        };
        if Times::of(&stat) != self.made {
            return false;
        }
        if self.is_settled {
            return true;
        }
        // Two links: its name and its own `.`; none once the name is gone. Some file systems count one.
        let is_pristine = (1..=2).contains(&stat.st_nlink)
            && stat.st_mode & 0o7777 == 0o700
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && self.is_empty()
            && self.has_no_attributes();
        self.is_settled = is_pristine && self.made.is_long_ago();
        is_pristine
    }

    /// Whether nothing is attached to it; file systems that attach nothing say so. A label of the kernel's own stays.
    fn has_no_attributes(&self) -> bool {
        let mut names = [0; 256];
        match flistxattr(&self.dir, &mut names) {
            Ok(length) => names[..length]
                .split_inclusive(|byte| *byte == 0)
                .all(|name| name.starts_with(b"security.")),
            Err(error) => error == Errno::NOTSUP,
        }
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

/// When a directory was last written to and last changed, in seconds and nanoseconds. Whatever is made, removed or set in it
/// changes the latter, which nobody can set.
#[derive(Debug, PartialEq, Eq)]
struct Times {
    written: (i64, u64),
    changed: (i64, u64),
}

impl Times {
    fn of(stat: &Stat) -> Self {
        Self {
            written: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether a change now would be noted under another time: kernels count those in steps of some milliseconds, file systems
    /// at worst in seconds.
    fn is_long_ago(&self) -> bool {
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        now.saturating_sub(self.changed.0) > 2
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
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

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

    /// EX-36: however quickly it is done, and whether or not it is undone.
    #[test]
    fn a_directory_that_was_changed_is_not_pristine() {
        let (_parent, spill) = spill();
        let root = ScratchRoot::create(&spill).unwrap();
        let is_pristine_after = |name: &str, change: &dyn Fn(&Path)| {
            let mut dir = root.make_named(name).unwrap();
            assert!(dir.is_pristine(), "{name}");
            change(dir.path());
            let is_pristine = dir.is_pristine();
            dir.is_settled = is_pristine;
            assert_eq!(dir.is_pristine(), is_pristine, "{name}");
            is_pristine
        };
        assert!(is_pristine_after("nothing", &|_| ()));
        assert!(is_pristine_after("read", &|path| {
            assert_eq!(fs::read_dir(path).unwrap().count(), 0);
        }));
        let file = |path: &Path| fs::write(path.join("file"), b"x").unwrap();
        assert!(!is_pristine_after("file", &file));
        let mode = |path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o755));
        assert!(!is_pristine_after("mode", &|path| mode(path).unwrap()));
        let time = |path: &Path| {
            let dir = File::open(path)?;
            dir.set_modified(std::time::UNIX_EPOCH)
        };
        assert!(!is_pristine_after("time", &|path| time(path).unwrap()));
        assert!(!is_pristine_after("gone", &|path| fs::remove_dir(path).unwrap()));
        assert!(!is_pristine_after("attribute", &|path| {
            let name = "user.fairtrial";
            match rustix::fs::setxattr(path, name, b"x", rustix::fs::XattrFlags::empty()) {
                Ok(()) => {}
                Err(Errno::NOTSUP) => file(path), // nothing can be attached there
                Err(error) => panic!("{error}"),
            }
        }));
    }

    /// EX-36: one that was looked at long after it was made is known by its times alone.
    #[test]
    fn a_change_of_a_settled_directory_shows() {
        let (_parent, spill) = spill();
        let root = ScratchRoot::create(&spill).unwrap();
        let mut dir = root.make(1).unwrap();
        let is_a_step_later = |n| root.make(n).unwrap().made != dir.made;
        assert!(
            (2..10_000_000).any(is_a_step_later),
            "the kernel's clock stands"
        );
        dir.is_settled = true;
        assert!(dir.is_pristine());
        fs::write(dir.path().join("file"), b"x").unwrap();
        fs::remove_file(dir.path().join("file")).unwrap();
        assert!(!dir.is_pristine());
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
