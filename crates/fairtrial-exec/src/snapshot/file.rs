//! One file, link or directory made like another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, Mode, OFlags, Timestamps, fchmod, fstat, futimens, openat, readlinkat, statat,
    symlinkat, utimensat,
};
use rustix::io::{pread, retry_on_intr};
use rustix::time::Timespec;
use sha2::{Digest as _, Sha256};

use super::manifest::{Digest, Entry};
use crate::linux::clone_file::{self, Sharing};

const READ_BYTES: usize = 256 << 10;

/// Copies files through one buffer.
pub(crate) struct FileCopier<'a> {
    sharing: &'a Sharing,
    buffer: Vec<u8>,
}

impl<'a> FileCopier<'a> {
    pub(crate) fn new(sharing: &'a Sharing) -> Self {
        Self {
            sharing,
            buffer: Vec::new(),
        }
    }

    /// Makes the new file `path` in `to` like `wanted`, with the bytes of `from`; gives what it is then, its digest
    /// included. A source that is being written may give more or less bytes than `wanted` says.
    pub(crate) fn copy(
        &mut self,
        from: impl AsFd,
        to: BorrowedFd<'_>,
        path: &[u8],
        wanted: &Entry,
    ) -> io::Result<Entry> {
        let file = create(to, path)?;
        let sha256 = if self.sharing.share(&from, &file, wanted.size)? {
            // Of the copy, which nobody changes any more.
            self.read(&file, wanted.size, |_| Ok(()))?
        } else {
            self.read(&from, wanted.size, |bytes| write_all(&file, bytes))?
        };
        let sha256 = sha256.unwrap_or_default(); // then it is the wrong size, too
        let entry = set_times(&file, wanted)?;
        Ok(Entry { sha256, ..entry })
    }

    /// Of a file's bytes; `None` if there are more or less of them than `size`.
    pub(crate) fn digest(
        &mut self,
        file: impl AsFd,
        size: u64,
    ) -> rustix::io::Result<Option<Digest>> {
        self.read(file, size, |_| Ok(()))
    }

    /// Reads until the end, or one piece beyond `size`: a file that grows for ever is not read for ever.
    fn read(
        &mut self,
        file: impl AsFd,
        size: u64,
        mut each: impl FnMut(&[u8]) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<Option<Digest>> {
        self.buffer.resize(READ_BYTES, 0);
        let (mut hash, mut offset) = (Sha256::new(), 0);
        while offset <= size {
            let count = retry_on_intr(|| pread(&file, &mut self.buffer[..], offset))?;
            let bytes = &self.buffer[..count];
            if bytes.is_empty() {
                break;
            }
            hash.update(bytes);
            each(bytes)?;
            offset += count as u64;
        }
        Ok((offset == size).then(|| hash.finalize().into()))
    }
}

/// Makes the new file `path` in `to` like `wanted`, with the bytes of `from`, which nobody changes.
pub(crate) fn duplicate(
    sharing: &Sharing,
    from: impl AsFd,
    to: BorrowedFd<'_>,
    path: &[u8],
    wanted: &Entry,
) -> io::Result<Entry> {
    let file = create(to, path)?;
    if !sharing.share(&from, &file, wanted.size)? {
        clone_file::copy(from, &file, wanted.size)?;
    }
    let entry = set_times(&file, wanted)?;
    Ok(Entry {
        sha256: wanted.sha256,
        ..entry
    })
}

/// A new file: what has the name already, be it a link, is never written to.
fn create(to: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(to, path, flags, Mode::RUSR | Mode::WUSR)
}

fn write_all(file: impl AsFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| rustix::io::write(&file, bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// What a link says.
pub(crate) fn link_target(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    Ok(readlinkat(dir, name, Vec::new())?.into_bytes())
}

/// Makes a link.
pub(crate) fn make_link(
    to: BorrowedFd<'_>,
    path: &[u8],
    target: &[u8],
    wanted: &Entry,
) -> rustix::io::Result<Entry> {
    symlinkat(target, to, path)?;
    utimensat(to, path, &times(wanted), AtFlags::SYMLINK_NOFOLLOW)?;
    let stat = statat(to, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let entry = Entry::of(&stat).ok_or(rustix::io::Errno::IO)?;
    Ok(Entry {
        sha256: Sha256::digest(target).into(),
        ..entry
    })
}

/// Gives an open file or directory the mode and the times of another; gives what it is then.
pub(crate) fn set_times(file: impl AsFd, wanted: &Entry) -> rustix::io::Result<Entry> {
    fchmod(&file, Mode::from_raw_mode(wanted.mode))?;
    futimens(&file, &times(wanted))?;
    Entry::of(&fstat(&file)?).ok_or(rustix::io::Errno::IO)
}

fn times(wanted: &Entry) -> Timestamps {
    let time = Timespec {
        tv_sec: wanted.mtime_ns.div_euclid(1_000_000_000),
        tv_nsec: wanted.mtime_ns.rem_euclid(1_000_000_000),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
