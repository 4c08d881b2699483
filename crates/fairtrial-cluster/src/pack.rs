//! Directories as blobs: packed where a call comes from, unpacked where it runs (CL-42).
//!
//! The same tree gives the same bytes on any machine: sorted, without times and owners, modes reduced to executable or
//! not. Bytecode and what git keeps are left out, as in snapshots. Links stay links, and lead nowhere outside.

mod cache;
mod listing;
mod lock;
#[cfg(test)]
mod tests;
mod unpack;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fairtrial_exec::linux::{beneath, nameless};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, readlinkat, statat};
use tar::{Builder, EntryType, Header};

use crate::blobs::{BlobError, Fault};
pub use cache::{CachedTree, TreeCache};

/// The largest archive.
pub const MOST_BYTES: u64 = 64 << 20;

/// Why a directory cannot be packed, or an archive not be unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A link that would lead out of the tree.
    #[error(
        "the link `{link}` leads out of the tree, to `{target}`; copy what it leads to, or name another directory"
    )]
    Link {
        /// Below the root.
        link: String,
        /// Where it leads.
        target: String,
    },
    /// A socket, a pipe or a device.
    #[error("`{0}` is neither a file nor a link nor a directory")]
    Special(String),
    /// More than 64 MiB.
    #[error(
        "`{root}` is larger than 64 MiB with `{path}`; name a smaller directory, or put data where nodes share it"
    )]
    TooLarge {
        /// The directory.
        root: PathBuf,
        /// What was one too many.
        path: String,
    },
    /// It changed while it was read.
    #[error("`{0}` changed while it was packed")]
    Changed(String),
    /// A file cannot be read.
    #[error("cannot pack `{path}`")]
    Reading {
        /// What.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// An archive that no [`pack`] made.
    #[error("the archive cannot be unpacked: {0}")]
    Hostile(String),
    /// The cache cannot be used.
    #[error("cannot use the cache `{path}`")]
    Cache {
        /// Where it is.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The store of the blob.
    #[error(transparent)]
    Blob(#[from] BlobError),
}

impl PackError {
    /// Whether there was no room, in the store or on this disk: then another node may do it (CL-27).
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Blob(error) => matches!(error.fault, Fault::Full(_)),
            Self::Reading { source, .. } | Self::Cache { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ),
            _ => false,
        }
    }
}

/// Packs a directory into a nameless file in `scratch`; it stands at its start.
///
/// # Errors
/// The tree is too large, has what cannot be packed, or cannot be read.
pub fn pack(root: &Path, scratch: &Path) -> Result<File, PackError> {
    let reading = |path: &Path| {
        let path = path.display().to_string();
        move |source| PackError::Reading { path, source }
    };
    let from = File::open(root).map_err(reading(root))?;
    let mut paths = listed(root).map_err(reading(root))?;
    paths.sort_unstable();
    let file = File::open(scratch)
        .and_then(nameless::create)
        .map_err(reading(scratch))?;
    let mut archive = Builder::new(BufWriter::new(Capped {
        file: File::from(file),
        left: MOST_BYTES,
    }));
    for path in paths {
        match append(&mut archive, &from, &path) {
            // It went away since it was listed.
            Err(Failed::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            appended => appended.map_err(|error| error.about(root, &path))?,
        }
    }
    let ended = archive
        .into_inner()
        .and_then(|buffer| Ok(buffer.into_inner()?.file));
    let mut file = ended.map_err(|error| Failed::Io(error).about(root, b""))?;
    file.rewind().map_err(reading(scratch))?;
    Ok(file)
}

/// What is packed of a directory: all but what others made of it (caches, environments, repositories) and the directories
/// of our own studies and evaluations, which change while they are written.
fn listed(root: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut tries = 0;
    loop {
        tries += 1;
        match listed_once(root) {
            // A directory went away while it was walked through.
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < 5 => {}
            listed => return listed,
        }
    }
}

fn listed_once(root: &Path) -> io::Result<Vec<Vec<u8>>> {
    fairtrial_exec::list(root, |path| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let made = [&b"__pycache__"[..], b"node_modules"].contains(&name) || name.starts_with(b".");
        let here = root.join(OsStr::from_bytes(path));
        made || ["journal.sqlite", "evaluation.json"]
            .iter()
            .any(|own| here.join(own).exists())
    })
}

/// What a directory looks like from outside: as long as that is the same, it is not packed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature(Vec<(Vec<u8>, u64, i64, i64, u64)>);

impl Signature {
    /// That of a directory now.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn of(root: &Path) -> Result<Self, PackError> {
        let reading = |source| PackError::Reading {
            path: root.display().to_string(),
            source,
        };
        let mut seen = Vec::new();
        for path in listed(root).map_err(reading)? {
            let metadata = root.join(OsStr::from_bytes(&path)).symlink_metadata();
            let metadata = metadata.map_err(reading)?;
            let (size, inode) = (metadata.size(), metadata.ino());
            // Whatever changes a file, its contents or its mode, changes this time, which nobody can set.
            seen.push((path, size, metadata.ctime(), metadata.ctime_nsec(), inode));
        }
        seen.sort_unstable();
        Ok(Self(seen))
    }
}

/// What went wrong with one entry.
enum Failed {
    Io(io::Error),
    Link(Vec<u8>),
    Special,
    Changed,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for Failed {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl Failed {
    fn about(self, root: &Path, path: &[u8]) -> PackError {
        let path = shown(path);
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => PackError::TooLarge {
                root: root.to_owned(),
                path,
            },
            Self::Io(source) => PackError::Reading { path, source },
            Self::Link(target) => PackError::Link {
                link: path,
                target: shown(&target),
            },
            Self::Special => PackError::Special(path),
            Self::Changed => PackError::Changed(path),
        }
    }
}

fn append(archive: &mut Builder<impl Write>, root: &File, path: &[u8]) -> Result<(), Failed> {
    let (above, name) = beneath::parent_and_name(path);
    let folder = beneath::open_dir(root, above)?;
    let found = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let name_in_archive = Path::new(OsStr::from_bytes(path));
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {
            // Should it be a pipe by now, opening it must not wait.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let file = File::from(beneath::open(&folder, name, flags, Mode::empty())?);
            let opened = fstat(&file)?;
            if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
                return Err(Failed::Changed);
            }
            append_file(archive, name_in_archive, file, opened.st_mode)
        }
        FileType::Symlink => {
            let target = readlinkat(&folder, name, Vec::new())?.into_bytes();
            if !stays_inside(path, &target) {
                return Err(Failed::Link(target));
            }
            let target = Path::new(OsStr::from_bytes(&target));
            let mut header = header(EntryType::Symlink, 0, 0o777);
            Ok(archive.append_link(&mut header, name_in_archive, target)?)
        }
        FileType::Directory => {
            let mut header = header(EntryType::Directory, 0, 0o755);
            Ok(archive.append_data(&mut header, name_in_archive, io::empty())?)
        }
        // Sockets and pipes of whoever works there: nothing is imported from them.
        FileType::Socket | FileType::Fifo => Ok(()),
        _ => Err(Failed::Special),
    }
}

fn append_file(
    archive: &mut Builder<impl Write>,
    name: &Path,
    file: File,
    mode: u32,
) -> Result<(), Failed> {
    let size = file.metadata()?.len();
    if size > MOST_BYTES {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge).into());
    }
    let mode = if mode & 0o100 != 0 { 0o755 } else { 0o644 };
    let mut header = header(EntryType::Regular, size, mode);
    let mut bytes = Exactly { file, left: size };
    archive.append_data(&mut header, name, &mut bytes)?;
    match bytes.left == 0 && bytes.file.read(&mut [0])? == 0 {
        true => Ok(()),
        false => Err(Failed::Changed),
    }
}

fn header(kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Whether a link at `path` leads to something in its tree, whatever other links are on the way: it climbs only at its
/// beginning, from a directory that is one, and no higher than the root. So does every link that it may come across.
pub(crate) fn stays_inside(path: &[u8], target: &[u8]) -> bool {
    let depth = path.iter().filter(|byte| **byte == b'/').count();
    let mut parts = target
        .split(|byte| *byte == b'/')
        .filter(|part| *part != b".");
    let ups = parts.clone().take_while(|part| *part == b"..").count();
    let is_relative = !target.is_empty() && target[0] != b'/';
    is_relative && ups <= depth && !parts.by_ref().skip(ups).any(|part| part == b"..")
}

/// For messages.
fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// A file read to the size it had when it was opened, and no further. `left` shows what was missing.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = self.file.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// A file that takes so many bytes.
struct Capped {
    file: File,
    left: u64,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64);
        let left = left.ok_or(io::ErrorKind::FileTooLarge)?;
        let written = self.file.write(bytes)?;
        self.left = left + (bytes.len() - written) as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
