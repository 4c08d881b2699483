//! What a snapshot was taken of, file by file, so that a tree that is still the same need not be copied again (CA-22).
//!
//! Size, times and inode of each file are compared with what they were; where they do not show that it is untouched, its
//! bytes are read and hashed. Then the snapshot itself is checked like any other that is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fstat, openat, renameat};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::copying::{Parents, is_absence, open_file};
use super::file::{FileCopier, link_target};
use super::list::ancestors;
use super::manifest::{Entry, EntryKind, Manifest, Mark};
use super::{BUILDING, GONE, Snapshot};
use crate::error::EngineError;
use crate::linux::beneath::{self, parent_and_name};
use crate::linux::clone_file::Sharing;
use crate::linux::file_clock;
use crate::locked_dir;
use crate::store::Store;

/// Beside the manifest.
const SOURCE: &str = "source";

/// Of the file that keeps it; another is not read.
const FORMAT: u32 = 1;

/// Of a hash, in the name of its snapshot.
const HASH_DIGITS: usize = 64;

/// A tree as it was when it was frozen.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Source {
    format: u32,
    root: Root,
    /// Those of which a later change might not show have no mark.
    entries: Vec<(Vec<u8>, Entry)>,
}

/// The directory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Root {
    device: u64,
    inode: u64,
}

impl Root {
    fn of(dir: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let stat = fstat(dir)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }
}

impl Source {
    /// A tree that was just copied: `manifest` is that of the copy, `marks` are those of the source.
    pub(super) fn new(
        from: BorrowedFd<'_>,
        manifest: &Manifest,
        marks: &BTreeMap<Vec<u8>, Mark>,
    ) -> rustix::io::Result<Self> {
        let entries = manifest.entries.iter().map(|(path, entry)| {
            let mark = marks.get(path).copied().unwrap_or_default();
            (
                path.clone(),
                Entry {
                    mark,
                    ..entry.clone()
                },
            )
        });
        Ok(Self {
            format: FORMAT,
            root: Root::of(from)?,
            entries: entries.collect(),
        })
    }

    /// Keeps it in the directory of a snapshot, in the place of an earlier one.
    pub(super) fn keep(&self, dir: impl AsFd) -> io::Result<()> {
        let bytes = postcard::to_allocvec(self).expect("plain data has an encoding");
        let new = format!("{SOURCE}-{:016x}", locked_dir::random());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&dir, &new, flags, Mode::RUSR)?;
        File::from(file).write_all(&bytes)?;
        Ok(renameat(&dir, &new, &dir, SOURCE)?)
    }

    fn read(dir: &OwnedFd) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let kept = beneath::open(dir, SOURCE.as_bytes(), OFlags::RDONLY, Mode::empty())?;
        File::from(kept).read_to_end(&mut bytes)?;
        let source: Self = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        match source.format {
            FORMAT => Ok(source),
            other => Err(io::Error::other(format!("format {other}"))),
        }
    }

    /// Whether a tree is still this one. Gives those whose bytes are to be compared; none if it is another.
    fn unsure<'s>(&'s self, tree: &BTreeMap<Vec<u8>, Entry>) -> Option<Vec<&'s (Vec<u8>, Entry)>> {
        if self.entries.len() != tree.len() {
            return None;
        }
        let mut unsure = Vec::new();
        for (was, (path, now)) in self.entries.iter().zip(tree) {
            let looks_like = Entry {
                sha256: was.1.sha256,
                ..now.clone()
            };
            if was.0 != *path || !looks_like.is_like(&was.1) {
                return None;
            }
            if was.1.kind != EntryKind::Directory && was.1.mark != now.mark {
                unsure.push(was);
            }
        }
        Some(unsure)
    }
}

/// The snapshot of a tree that is still what it was when that was taken.
pub(super) fn reuse(
    store: &Store,
    from: BorrowedFd<'_>,
    files: &BTreeSet<Vec<u8>>,
) -> Result<Option<Snapshot>, EngineError> {
    let place = store.snapshots()?;
    let found = find(store, &place, from, files);
    found.map_err(EngineError::io("looking for a snapshot"))
}

fn find(
    store: &Store,
    place: &OwnedFd,
    from: BorrowedFd<'_>,
    files: &BTreeSet<Vec<u8>>,
) -> io::Result<Option<Snapshot>> {
    let root = Root::of(from)?;
    let mut tree = None;
    for name in last_used_first(place)? {
        let Some(lock) = locked_dir::share(place.as_fd(), &name)? else {
            continue; // removed just now
        };
        let Some(mut source) = Source::read(&lock)
            .ok()
            .filter(|source| source.root == root)
        else {
            continue;
        };
        if tree.is_none() {
            tree = look(from, files)?;
        }
        let Some(tree) = &tree else {
            return Ok(None);
        };
        let Some(unsure) = source.unsure(tree) else {
            continue;
        };
        let is_known = unsure.is_empty();
        if !hold_the_same(from, &unsure, tree) {
            continue;
        }
        if !is_known {
            let now_ns = file_clock::now_ns();
            for ((_, was), now) in source.entries.iter_mut().zip(tree.values()) {
                was.mark = mark(now, now_ns);
            }
            source.keep(&lock)?;
        }
        let hash = &name[..name.len().min(HASH_DIGITS)];
        match Snapshot::found(store, hash, &name, lock) {
            Ok(snapshot) => return Ok(Some(snapshot)),
            Err(error) => log::warn!("snapshot `{name}` is not used: {error}"),
        }
    }
    Ok(None)
}

/// What shows that an entry was touched since `now_ns`; nothing, if it was touched so shortly before that more would not
/// show.
pub(super) fn mark(entry: &Entry, now_ns: i64) -> Mark {
    match file_clock::is_past(entry.mark.ctime_ns, now_ns) {
        true => entry.mark,
        false => Mark::default(),
    }
}

fn last_used_first(place: &OwnedFd) -> io::Result<Vec<String>> {
    let names = beneath::names(place)?.into_iter();
    let names = names.filter_map(|name| String::from_utf8(name).ok());
    let names = names.filter(|name| !name.starts_with(BUILDING) && !name.starts_with(GONE));
    let mut dated: Vec<(i64, String)> = names
        .filter_map(|name| Some((crate::store::used_at(place, &name)?, name)))
        .collect();
    dated.sort_unstable_by(|one, other| other.cmp(one));
    Ok(dated.into_iter().map(|(_, name)| name).collect())
}

/// What is there of these files, and the directories that lead to them, as a copy would have it. None if that cannot be
/// said, for whatever reason: who copies will be told.
fn look(
    from: BorrowedFd<'_>,
    files: &BTreeSet<Vec<u8>>,
) -> io::Result<Option<BTreeMap<Vec<u8>, Entry>>> {
    let Some(tree) = look_once(from, files)? else {
        return Ok(None);
    };
    // What is changed within the same tick of the clock as it was looked at could not be told from what is not.
    let stamps = tree.values().map(|entry| entry.mark.ctime_ns);
    let latest = stamps.max().unwrap_or(i64::MIN);
    if file_clock::is_past(latest, file_clock::now_ns()) {
        return Ok(Some(tree));
    }
    file_clock::pass(latest);
    look_once(from, files)
}

fn look_once(
    from: BorrowedFd<'_>,
    files: &BTreeSet<Vec<u8>>,
) -> io::Result<Option<BTreeMap<Vec<u8>, Entry>>> {
    let mut tree = BTreeMap::new();
    let above: BTreeSet<&[u8]> = files.iter().flat_map(|path| ancestors(path)).collect();
    for path in [&[][..]].into_iter().chain(above) {
        let opened = beneath::open(from, path, OFlags::PATH, Mode::empty());
        let stat = match opened.and_then(fstat) {
            Err(errno) if is_absence(errno) => continue,
            stat => stat?,
        };
        let entry = Entry::of(&stat).filter(|entry| entry.kind == EntryKind::Directory);
        tree.extend(entry.map(|entry| (path.to_vec(), entry)));
    }
    let mut parents = Parents::new(from);
    for path in files {
        if tree.contains_key(path) || !tree.contains_key(parent_and_name(path).0) {
            continue;
        }
        if let Some((_, _, stat)) = parents.look(path)? {
            let Some(entry) = Entry::of(&stat) else {
                return Ok(None);
            };
            tree.insert(path.clone(), entry);
        }
    }
    Ok(Some(tree))
}

/// Whether these hold the bytes that they held, and are not being changed.
fn hold_the_same(
    from: BorrowedFd<'_>,
    unsure: &[&(Vec<u8>, Entry)],
    tree: &BTreeMap<Vec<u8>, Entry>,
) -> bool {
    let sharing = Sharing::new(false);
    let (mut parents, mut reader) = (Parents::new(from), FileCopier::new(&sharing));
    let mut holds = |path: &[u8], was: &Entry| -> Option<bool> {
        let (dir, name, _) = parents.look(path).ok()??;
        let sha256 = match was.kind {
            EntryKind::Link => Sha256::digest(link_target(dir, name).ok()?).into(),
            _ => {
                let (file, _) = open_file(dir, name, path).ok()?;
                reader.digest(&file, was.size).ok()??
            }
        };
        let (_, _, stat) = parents.look(path).ok()??;
        Some(sha256 == was.sha256 && tree.get(path)?.is_untouched(&stat))
    };
    let all = unsure.iter();
    all.map(|(path, was)| holds(path, was))
        .all(|held| held == Some(true))
}
