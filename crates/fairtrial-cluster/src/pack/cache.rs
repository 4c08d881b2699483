//! Unpacked trees, by the digest of their archives: read-only, shared by the calls that need them, verified whenever one
//! is used again.
//!
//! A tree is made beside its place and renamed. Whoever uses it has a lock on it; when all are larger together than they
//! may be, those go that nobody uses, the longest unused first.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fairtrial_exec::{SpillDir, remove_tree};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::listing::listing;
use super::{PackError, lock, unpack};
use crate::aside::aside;
use crate::blobs::{Blob, BlobStore, Digest, patiently};
use crate::files::{fresh_name, touch};

/// While it is being made.
const BUILDING: &str = "building-";

/// While it is being removed.
const GONE: &str = "gone-";

const TREE: &str = "tree";

/// Its listing and its size, written when all else is done.
const MARKER: &str = "marker";

/// Those who sweep what was just finished cannot win for ever.
const TRIES: usize = 8;

/// Where trees are kept. Naming it touches nothing.
#[derive(Clone, Debug)]
pub struct TreeCache {
    root: PathBuf,
    max_bytes: u64,
}

/// A tree, and the right to use it for as long as this is held.
#[derive(Debug)]
pub struct CachedTree {
    path: PathBuf,
    /// Shared with all who use it.
    _lock: File,
}

impl CachedTree {
    /// Where it is. Not to be written to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl TreeCache {
    /// The part of a cache directory that trees are in, of no more than `max_bytes` beyond those in use.
    #[must_use]
    pub fn at(cache: &Path, max_bytes: u64) -> Self {
        Self {
            root: cache.join("trees"),
            max_bytes,
        }
    }

    /// The tree of an archive, fetched from a store unless it is here.
    ///
    /// # Errors
    /// The store does not have the archive, it is none, or the cache cannot be used.
    pub async fn fetch(&self, store: &BlobStore, blob: Blob) -> Result<CachedTree, PackError> {
        let cache = self.clone();
        if let Some(tree) = aside(move || cache.get(blob.digest)).await? {
            return Ok(tree);
        }
        if blob.bytes > super::MOST_BYTES {
            let problem = format!("it has {} bytes; the most are 64 MiB", blob.bytes);
            return Err(PackError::Hostile(problem));
        }
        self.open_root()?;
        let archive = patiently(|| store.get_file(blob, &self.root)).await?;
        let cache = self.clone();
        aside(move || cache.add(blob.digest, archive)).await
    }

    /// The tree of this digest, if it is here and as it was made.
    ///
    /// # Errors
    /// The cache cannot be used.
    pub fn get(&self, digest: Digest) -> Result<Option<CachedTree>, PackError> {
        for place in self.places(digest) {
            let Some(lock) = lock::share(&place).map_err(self.failed())? else {
                continue;
            };
            match is_whole(&place) {
                Ok(true) => {
                    // The time of its last use.
                    touch(&lock).map_err(|errno| self.failed()(errno.into()))?;
                    let path = place.join(TREE);
                    return Ok(Some(CachedTree { path, _lock: lock }));
                }
                Ok(false) => log::warn!("`{}` was changed since it was unpacked", place.display()),
                Err(error) => log::warn!("`{}` cannot be read: {error}", place.display()),
            }
            drop(lock);
            // Whoever uses a damaged one keeps it where it is.
            self.remove_unused(&place).map_err(self.failed())?;
        }
        Ok(None)
    }

    /// Unpacks an archive whose digest has been verified. Two at once are harmless: one of them is used by both.
    ///
    /// # Errors
    /// It is no archive of ours, or the cache cannot be used.
    pub fn add(
        &self,
        digest: Digest,
        mut archive: impl Read + io::Seek,
    ) -> Result<CachedTree, PackError> {
        self.open_root()?;
        for _ in 0..TRIES {
            archive.rewind().map_err(self.failed())?;
            let building = self.build(&mut archive)?;
            let kept = self.keep(digest, &building);
            if !matches!(kept, Ok(Some(Kept::Ours(_)))) {
                remove_tree(&building.path).map_err(self.failed())?;
            }
            if let Some(kept) = kept? {
                self.sweep()?;
                return Ok(kept.tree());
            }
        }
        Err(self.failed()(Errno::BUSY.into()))
    }

    /// Removes what was left half made, and trees that nobody uses, the longest unused first, until the rest is no
    /// larger than it may be.
    ///
    /// # Errors
    /// The cache cannot be used.
    pub fn sweep(&self) -> Result<(), PackError> {
        self.sweep_now().map_err(self.failed())
    }

    fn sweep_now(&self) -> io::Result<()> {
        let mut trees: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(BUILDING) || name.starts_with(GONE) {
                if let Some(_ours) = lock::take_if_free(&path)? {
                    remove_tree(&path)?;
                }
                continue;
            }
            // One without a marker is damaged, and goes when it is next asked for or when its turn comes.
            let bytes = marker(&path).map_or(0, |(_, bytes)| bytes);
            if let Ok(used) = fs::symlink_metadata(&path).and_then(|found| found.modified()) {
                trees.push((used, bytes, path.clone()));
            }
        }
        trees.sort_unstable();
        let mut bytes: u64 = trees.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, size, path) in trees {
            if bytes <= self.max_bytes {
                break;
            }
            if self.remove_unused(&path)? {
                bytes -= size;
            }
        }
        Ok(())
    }

    fn build(&self, archive: &mut impl Read) -> Result<Building, PackError> {
        let private = || {
            let mut builder = DirBuilder::new();
            builder.mode(0o700);
            builder
        };
        let begin = || -> io::Result<(PathBuf, File)> {
            loop {
                let path = self.root.join(format!("{BUILDING}{}", fresh_name()));
                private().create(&path)?;
                // Another process's sweep may take the directory before it is locked.
                if let Some(lock) = lock::take_if_free(&path)? {
                    return Ok((path, lock));
                }
            }
        };
        let (path, lock) = begin().map_err(self.failed())?;
        let fill = || -> Result<(), PackError> {
            let tree = path.join(TREE);
            private().create(&tree).map_err(self.failed())?;
            let opened = File::open(&tree).map_err(self.failed())?;
            let bytes = unpack::unpack(archive, &opened.into())?;
            let listing = listing(&tree).map_err(self.failed())?;
            fs::write(path.join(MARKER), format!("{listing} {bytes}\n")).map_err(self.failed())
        };
        match fill() {
            Ok(()) => Ok(Building { path, lock }),
            Err(error) => {
                remove_tree(&path).map_err(self.failed())?;
                Err(error)
            }
        }
    }

    /// Puts a finished tree in its place, or finds one there that is as good. None if it was swept meanwhile.
    fn keep(&self, digest: Digest, building: &Building) -> Result<Option<Kept>, PackError> {
        for place in self.places(digest) {
            match renameat_with(CWD, &building.path, CWD, &place, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    let lock = building.lock.try_clone().map_err(self.failed())?;
                    lock::give_up_alone(&lock).map_err(self.failed())?;
                    let is_there = lock::is_at(&lock, &place).map_err(self.failed())?;
                    let path = place.join(TREE);
                    return Ok(is_there.then_some(Kept::Ours(CachedTree { path, _lock: lock })));
                }
                Err(Errno::EXIST | Errno::NOTEMPTY) => {
                    if let Some(theirs) = self.get(digest)? {
                        return Ok(Some(Kept::Theirs(theirs)));
                    }
                }
                Err(errno) => return Err(self.failed()(errno.into())),
            }
        }
        Ok(None)
    }

    /// Removes a tree unless somebody uses it.
    fn remove_unused(&self, place: &Path) -> io::Result<bool> {
        let Some(_ours) = lock::take_if_free(place)? else {
            return Ok(false);
        };
        // Moved first: whoever looks for it from now on finds nothing, rather than half of it.
        let gone = self.root.join(format!("{GONE}{}", fresh_name()));
        fs::rename(place, &gone)?;
        remove_tree(&gone)?;
        Ok(true)
    }

    /// Where a tree may be: a damaged one that is in use stays where it is, and another is made beside it.
    fn places(&self, digest: Digest) -> [PathBuf; 4] {
        std::array::from_fn(|at| match at {
            0 => self.root.join(digest.to_string()),
            at => self.root.join(format!("{digest}.{at}")),
        })
    }

    fn open_root(&self) -> Result<(), PackError> {
        let parent = self.root.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(self.failed())?;
        let opened = SpillDir::in_cache(&self.root).open();
        opened
            .map(drop)
            .map_err(|error| self.failed()(io::Error::other(error)))
    }

    fn failed(&self) -> impl Fn(io::Error) -> PackError {
        |source| PackError::Cache {
            path: self.root.clone(),
            source,
        }
    }
}

/// A finished tree that has no name yet, and the lock that keeps sweeps from it.
struct Building {
    path: PathBuf,
    lock: File,
}

enum Kept {
    Ours(CachedTree),
    Theirs(CachedTree),
}

impl Kept {
    fn tree(self) -> CachedTree {
        match self {
            Self::Ours(tree) | Self::Theirs(tree) => tree,
        }
    }
}

fn is_whole(place: &Path) -> io::Result<bool> {
    let Some((noted, _)) = marker(place) else {
        return Ok(false);
    };
    Ok(listing(&place.join(TREE))? == noted)
}

fn marker(place: &Path) -> Option<(Digest, u64)> {
    let text = fs::read_to_string(place.join(MARKER)).ok()?;
    let (listing, bytes) = text.trim_end().split_once(' ')?;
    Some((listing.parse().ok()?, bytes.parse().ok()?))
}
