//! What evaluations keep in the user's cache: snapshots, and directories for workspaces.
//!
//! Each has a lock that its user holds. What has none is removed by a sweep: workspaces at once, for their engine is
//! gone; snapshots when they are old or many. No process id is asked.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::fstat;

use crate::clock::Clock;
use crate::config::LocalConfig;
use crate::error::EngineError;
use crate::linux::beneath;
use crate::linux::monotonic::now_ns;
use crate::locked_dir;
use crate::scratch::{DeadRoot, ScratchRoot, dead_roots};
use crate::snapshot::{self, BUILDING, GONE};
use crate::spill::SpillDir;

/// The part of the cache that evaluations use. Naming it touches nothing.
#[derive(Clone, Debug)]
pub struct Store {
    snapshots: SpillDir,
    workspaces: SpillDir,
}

/// Which snapshots a sweep leaves although nobody uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// So many, those that were used last.
    pub count: usize,
    /// Of these, those that were used within this time.
    pub age: Duration,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            count: 8,
            age: Duration::from_secs(7 * 86_400),
        }
    }
}

impl Store {
    /// The store of a backend's user.
    ///
    /// # Errors
    /// No variable says where the user's cache is.
    pub fn of(config: &LocalConfig) -> Result<Self, EngineError> {
        let cache = config.cache_dir().ok_or_else(|| EngineError::Config {
            name: "FAIRTRIAL_CACHE_DIR".to_owned(),
            problem: "neither it nor `XDG_CACHE_HOME` nor `HOME` is an absolute path".to_owned(),
        })?;
        Ok(Self::at(cache))
    }

    /// The store in this directory.
    #[must_use]
    pub fn at(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        Self {
            snapshots: SpillDir::in_cache(directory.join("snapshots")),
            workspaces: SpillDir::in_cache(directory.join("workspaces")),
        }
    }

    /// A directory of this engine's own for workspaces: goes with all it holds when it is dropped, and by another
    /// engine's sweep if this one is killed. Names in it are the caller's choice; those of slots should be of one
    /// length, so that no path is longer than another's (CA-28).
    ///
    /// # Errors
    /// The cache cannot be used.
    pub fn workspace_dir(&self) -> Result<ScratchRoot, EngineError> {
        make_parents(&self.workspaces)?;
        ScratchRoot::create(&self.workspaces)
    }

    /// The workspace directories of engines that are gone. Nobody else removes them while these are held: so what they
    /// noted can be undone first.
    ///
    /// # Errors
    /// The cache cannot be used.
    pub fn orphans(&self) -> Result<Vec<DeadRoot>, EngineError> {
        dead_roots(&self.workspaces)
    }

    /// Removes snapshots that nobody uses, but for those to keep, and what engines left half made; gives how many. What
    /// cannot be removed is logged and left for the next time.
    ///
    /// # Errors
    /// The cache cannot be used.
    pub fn sweep(&self, keep: Keep) -> Result<usize, EngineError> {
        if !self.snapshots.path().exists() {
            return Ok(0);
        }
        let place = self.snapshots.open()?;
        let mut removed = 0;
        let mut note = |name: &str, swept: std::io::Result<bool>| match swept {
            Ok(swept) => removed += usize::from(swept),
            Err(error) => log::warn!("cannot remove snapshot `{name}`: {error}"),
        };
        for prefix in [BUILDING, GONE] {
            locked_dir::each_orphan(place.as_fd(), prefix, |orphan| {
                let name = orphan.name.clone();
                note(&name, orphan.remove(place.as_fd()).map(|()| true));
            })
            .map_err(EngineError::io("reading the snapshots"))?;
        }
        for name in self.beyond(&place, keep)? {
            // It may have been used since.
            let seen = used_at(&place, &name);
            let goes = |dir: &OwnedFd| fstat(dir).ok().map(|stat| stat.st_mtime) == seen;
            let swept = snapshot::remove_unused(place.as_fd(), &name, goes);
            note(&name, swept);
        }
        Ok(removed)
    }

    /// The snapshots that are not kept for their own sake.
    fn beyond(&self, place: &OwnedFd, keep: Keep) -> Result<Vec<String>, EngineError> {
        let names = beneath::names(place).map_err(EngineError::io("reading the snapshots"))?;
        let names = names
            .into_iter()
            .filter_map(|name| String::from_utf8(name).ok());
        let names = names.filter(|name| !name.starts_with(BUILDING) && !name.starts_with(GONE));
        let mut dated: Vec<(i64, String)> = names
            .filter_map(|name| Some((used_at(place, &name)?, name)))
            .collect();
        dated.sort_unstable_by(|a, b| b.cmp(a));
        let now_s = (Clock::start().unix_ns(now_ns()) / 1_000_000_000).cast_signed();
        let oldest = now_s.saturating_sub_unsigned(keep.age.as_secs());
        let beyond = dated.into_iter().enumerate();
        let beyond = beyond.filter(|(at, (used, _))| *at >= keep.count || *used < oldest);
        Ok(beyond.map(|(_, (_, name))| name).collect())
    }

    pub(crate) fn snapshots(&self) -> Result<OwnedFd, EngineError> {
        make_parents(&self.snapshots)?;
        self.snapshots.open()
    }

    pub(crate) fn snapshots_path(&self) -> PathBuf {
        self.snapshots.path().to_owned()
    }
}

pub(crate) fn used_at(place: &OwnedFd, name: &str) -> Option<i64> {
    let stat = rustix::fs::statat(place, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    Some(stat.ok()?.st_mtime)
}

fn make_parents(dir: &SpillDir) -> Result<(), EngineError> {
    let parent = dir.path().parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(|error| EngineError::CacheDir {
        dir: parent.to_owned(),
        problem: format!(
            "it cannot be created: {error}; set `FAIRTRIAL_CACHE_DIR` to another place"
        ),
    })
}
