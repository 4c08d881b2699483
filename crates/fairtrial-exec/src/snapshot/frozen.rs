//! A directory that is not written to any more, and what it holds: what copies are made from.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, statat};
use sha2::{Digest as _, Sha256};

use super::file::{FileCopier, link_target};
use super::list::{Found, shown, walk};
use super::manifest::{Entry, EntryKind, Manifest, hex};
use crate::linux::beneath;
use crate::linux::clone_file::Sharing;
use crate::linux::file_clock;

/// A tree that copies are made from.
#[derive(Debug)]
pub struct FrozenTree {
    path: PathBuf,
    pub(crate) dir: OwnedFd,
    pub(crate) manifest: Manifest,
    /// Of a snapshot: keeps it from being swept.
    _lock: Option<OwnedFd>,
}

/// Somebody changed what was frozen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` was changed although it was frozen")]
pub struct Damaged(String);

impl From<Damaged> for io::Error {
    fn from(damaged: Damaged) -> Self {
        Self::new(io::ErrorKind::InvalidData, damaged)
    }
}

impl FrozenTree {
    pub(super) fn new(
        path: PathBuf,
        dir: OwnedFd,
        manifest: Manifest,
        lock: Option<OwnedFd>,
    ) -> Self {
        Self {
            path,
            dir,
            manifest,
            _lock: lock,
        }
    }

    /// Notes and hashes all that the directory holds, which nobody changes from now on. Sockets, pipes and devices are
    /// not part of it.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn record(path: &Path) -> io::Result<Self> {
        let dir = OwnedFd::from(File::open(path)?);
        let mut paths = vec![Vec::new()];
        walk(
            dir.as_fd(),
            |_| false,
            |path, entry| match entry {
                Found::Other(stat) if Entry::of(&stat).is_none() => (),
                _ => paths.push(path),
            },
        )?;
        let sharing = Sharing::new(false);
        let mut reader = FileCopier::new(&sharing);
        let entries: io::Result<Vec<_>> = paths
            .into_iter()
            .map(|path| {
                let entry = look(&dir, &path, &mut reader);
                let entry = entry.map_err(|error| named(&path, &error))?;
                Ok((path, entry))
            })
            .collect();
        let manifest = Manifest::new(entries?);
        // A change within the same tick of the clock would not show.
        let stamps = manifest
            .entries
            .iter()
            .map(|(_, entry)| entry.mark.ctime_ns);
        file_clock::pass(stamps.max().unwrap_or(0));
        Ok(Self::new(path.to_owned(), dir, manifest, None))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// SHA-256 over its paths, modes and bytes: 64 hex digits. That of a snapshot is the snapshot's.
    #[must_use]
    pub fn hash(&self) -> String {
        hex(&self.manifest.digest())
    }

    pub(super) fn read(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        match self.manifest.get(path).map(|entry| entry.kind) {
            Some(EntryKind::File) => {
                let file = beneath::open(&self.dir, path, OFlags::RDONLY, Mode::empty())?;
                let mut bytes = Vec::new();
                File::from(file).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            Some(EntryKind::Link) => Ok(link_target(&self.dir, path)?),
            Some(EntryKind::Directory) if !path.is_empty() => {
                Err(io::ErrorKind::IsADirectory.into())
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Looks whether anybody changed it, by size, times, mode and inode of every entry.
    ///
    /// # Errors
    /// Somebody did.
    pub fn check(&self) -> Result<(), Damaged> {
        for (path, entry) in &self.manifest.entries {
            let stat = match &**path {
                [] => fstat(&self.dir),
                path => statat(&self.dir, path, AtFlags::SYMLINK_NOFOLLOW),
            };
            if !stat.is_ok_and(|stat| entry.is_untouched(&stat)) {
                return Err(Damaged(shown(path)));
            }
        }
        Ok(())
    }

    pub(super) fn check_bytes(&self) -> io::Result<()> {
        let sharing = Sharing::new(false);
        let mut reader = FileCopier::new(&sharing);
        for (path, entry) in &self.manifest.entries {
            if look(&self.dir, path, &mut reader)?.sha256 != entry.sha256 {
                return Err(Damaged(shown(path)).into());
            }
        }
        Ok(())
    }
}

/// What is there, read and hashed.
fn look(root: &OwnedFd, path: &[u8], reader: &mut FileCopier<'_>) -> io::Result<Entry> {
    let unsteady = || io::Error::other("it changed while it was read");
    let handle = beneath::open(root, path, OFlags::PATH, Mode::empty())?;
    let entry = Entry::of(&fstat(&handle)?).ok_or_else(unsteady)?;
    let sha256 = match entry.kind {
        EntryKind::Directory => return Ok(entry),
        EntryKind::Link => Sha256::digest(link_target(&handle, b"")?).into(),
        EntryKind::File => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let file = beneath::open(root, path, flags, Mode::empty())?;
            let digest = reader.digest(&file, entry.size)?;
            digest.ok_or_else(unsteady)?
        }
    };
    Ok(Entry { sha256, ..entry })
}

/// The same error, saying of what.
pub(crate) fn named(path: &[u8], error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", shown(path)))
}
