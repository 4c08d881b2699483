//! The file of the lock: opened as carefully as anything in a directory that everybody writes to.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{
    CWD, FileType, Mode, OFlags, RenameFlags, fchmod, fstat, lstat, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::Holder;
use crate::linux::file_watch::{FileWatch, Woken};
use crate::linux::record_lock::{self, Kind};
use crate::locked_dir::random;

/// The bytes that are locked. What is written there means nothing: a write wakes those who wait.
pub(super) const TURNSTILE: u32 = 0;
pub(super) const LOCK: u32 = 1;

/// Where the last who got the lock says who it is.
const RECORD_AT: u64 = 2;
const RECORD_BYTES: usize = 254;

/// A death of which nobody tells, because a forked child still has the file open, is found out after this long.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Somebody else may make the file, or remove it, between two looks.
const TRIES: usize = 16;

/// The open file.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    pub(super) id: FileId,
}

/// Device and inode.
pub(super) type FileId = (u64, u64);

/// Which file has this name now; no link is followed.
pub(super) fn id_at(path: &Path) -> Option<FileId> {
    let stat = lstat(path).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// The first directory that is there for everybody to write to.
pub(super) fn common_directory() -> PathBuf {
    let common = |path: &&str| {
        let mode = std::fs::metadata(path).map_or(0, |meta| meta.mode());
        FileType::from_raw_mode(mode) == FileType::Directory && mode & 0o1777 == 0o1777
    };
    let found = ["/run/lock"].into_iter().find(|path| common(path));
    found.unwrap_or("/tmp").into()
}

impl LockFile {
    /// Opens it; makes it if it is not there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            match open_existing(path) {
                Err(Errno::NOENT) => make(path)?,
                opened => return Self::checked(opened?),
            }
        }
        Err(Errno::BUSY.into())
    }

    fn checked(file: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // Another name would mean that it is somebody's file, put here to be locked and written to.
        if !is_file || stat.st_nlink > 1 {
            return Err(io::Error::other("it is not a file of its own"));
        }
        Ok(Self {
            file: file.into(),
            id: (stat.st_dev, stat.st_ino),
        })
    }

    /// Whether this name still leads to it.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        id_at(path) == Some(self.id)
    }

    /// Who else has the lock, or else waits for it.
    pub(super) fn other_holder(&self) -> Option<Holder> {
        let found = |byte| {
            let holder = record_lock::other_holder(&self.file, byte, Kind::Exclusive);
            holder.ok().flatten()
        };
        let pid = found(LOCK).or_else(|| found(TURNSTILE))?;
        let label = self.label(pid).or_else(|| program(pid));
        Some(Holder {
            pid: (pid != 0).then_some(pid),
            label,
        })
    }

    /// Whether another process is at the turnstile that a holder of this kind is in the way of. Who cannot be asked might be.
    pub(super) fn others_wait(&self, held: Kind) -> bool {
        let holder = record_lock::other_holder(&self.file, TURNSTILE, held);
        !matches!(holder, Ok(None))
    }

    /// Says who has the lock.
    pub(super) fn sign(&self, label: &str) {
        let mut record = format!("{} {label}", std::process::id()).into_bytes();
        record.resize(RECORD_BYTES, 0);
        _ = self.file.write_all_at(&record, RECORD_AT); // only a courtesy to those who wait
    }

    fn label(&self, pid: u32) -> Option<String> {
        let mut record = [0; RECORD_BYTES];
        self.file.read_exact_at(&mut record, RECORD_AT).ok()?;
        let text = record.split(|byte| *byte == 0).next()?;
        let text = String::from_utf8_lossy(text);
        let (signed, label) = text.split_once(' ')?;
        // Of several who share the lock the last has signed.
        (signed == pid.to_string()).then(|| label.to_owned())
    }

    fn wake_others(&self) {
        _ = self.file.write_all_at(&[0], 0); // else they look again by themselves
    }
}

fn program(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

fn open_existing(path: &Path) -> rustix::io::Result<OwnedFd> {
    // Without `O_CREAT`, with which some systems refuse another user's file. Not blocking, lest it is a pipe.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
}

/// Under another name first: nobody finds it before everybody may open it.
fn make(path: &Path) -> io::Result<()> {
    let other = path.with_extension(format!("{:016x}", random()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, &other, flags, Mode::RUSR | Mode::WUSR)?;
    let everybody = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    let made = fchmod(&file, everybody)
        .and_then(|()| renameat_with(CWD, &other, CWD, path, RenameFlags::NOREPLACE));
    match made {
        Ok(()) => Ok(()),
        Err(errno) => {
            unlinkat(CWD, &other, rustix::fs::AtFlags::empty())?;
            if errno == Errno::EXIST {
                Ok(())
            } else {
                Err(errno.into())
            }
        }
    }
}

/// A byte, locked for this process until it is dropped.
#[derive(Debug)]
pub(super) struct LockedByte {
    file: Arc<LockFile>,
    byte: u32,
}

impl Drop for LockedByte {
    fn drop(&mut self) {
        if let Err(error) = record_lock::unlock(&self.file.file, self.byte) {
            log::error!("cannot give up the machine-wide lock: {error}");
        }
        self.file.wake_others();
    }
}

/// Locks a byte if that can be had at once.
pub(super) fn try_lock(
    file: &Arc<LockFile>,
    byte: u32,
    kind: Kind,
) -> io::Result<Option<LockedByte>> {
    let locked = record_lock::try_lock(&file.file, byte, kind)?;
    Ok(locked.then(|| LockedByte {
        file: Arc::clone(file),
        byte,
    }))
}

/// Waits for a byte, on a thread of its own that ends when this is dropped.
pub(super) async fn lock(file: &Arc<LockFile>, byte: u32, kind: Kind) -> io::Result<LockedByte> {
    let (given_up, wanted) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (done, finished) = oneshot::channel::<()>();
    let file = Arc::clone(file);
    let wait = move || {
        let _done = done; // dropped at the end, however that comes
        wait_for(&file, byte, kind, &given_up)
    };
    let thread = std::thread::Builder::new().name("fairtrial-lock".into());
    let mut waiting = Waiting {
        wanted: Some(wanted),
        thread: Some(thread.spawn(wait)?),
    };
    _ = finished.await; // never sent, only dropped
    waiting.end()
}

/// A thread that waits. It is always joined: a lock that it gets is the process's, so nobody else of the process may go
/// for the byte before it has ended.
struct Waiting {
    /// When this is closed the thread gives up.
    wanted: Option<OwnedFd>,
    thread: Option<JoinHandle<io::Result<LockedByte>>>,
}

impl Waiting {
    fn end(&mut self) -> io::Result<LockedByte> {
        self.wanted = None;
        let ended = || io::Error::other("the thread that waited for the lock ended");
        let thread = self.thread.take().ok_or_else(ended)?;
        thread.join().map_err(|_| ended())?
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.end()); // nobody wants it any more, so it is given up
    }
}

fn wait_for(
    file: &Arc<LockFile>,
    byte: u32,
    kind: Kind,
    given_up: &OwnedFd,
) -> io::Result<LockedByte> {
    let watch = FileWatch::new(file.file.as_fd());
    loop {
        if let Some(locked) = try_lock(file, byte, kind)? {
            return Ok(locked);
        }
        if watch.wait(given_up, LOOK_AGAIN)? == Woken::GivenUp {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}
