//! Removes a directory tree that a stranger made: any depth, any names, any modes, never through a link.
//!
//! Directories are not descended into. A directory found below the root of the removal is moved up into that root
//! under a fresh name, so each is emptied from one level below and depth costs neither stack nor descriptors: at most
//! four are open at a time. Another file system mounted inside is not entered.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, fchmod, fstat, openat,
    openat2, renameat, seek, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

/// One `getdents` takes this much: a million entries in a few thousand calls.
const LISTING_BYTES: usize = 32 << 10;

/// A tree that refills as fast as it is emptied is given up on after so many tries.
const FINAL_TRIES: usize = 8;

/// Removes whatever `name` in `dir` is: a file, a link (not what it points to), or a directory with all it holds.
///
/// A name that is not there counts as removed. What cannot be removed (an immutable file, a mount) is left, everything
/// else goes, and the first such failure is the error.
pub fn remove_tree(dir: impl AsFd, name: impl Arg) -> io::Result<()> {
    name.into_with_c_str(|name| Ok(remove(dir.as_fd(), name)))?
}

/// As [`remove_tree`], by a path. What is above it is taken as it is, links and all.
pub fn remove_path(path: &std::path::Path) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        let problem = format!("`{}` names nothing that could be removed", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    };
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(std::path::Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(rustix::fs::CWD, above, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        above => remove_tree(above?, name),
    }
}

fn remove(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    if remove_if_plain(dir, name)? == Found::Gone {
        return Ok(());
    }
    let root = match open_directory(dir, name) {
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(unlink(dir, name)?),
        opened => opened?,
    };
    for _ in 0..FINAL_TRIES {
        empty(root.as_fd())?;
        match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY) => (),
            Err(other) => return Err(other.into()),
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// What is left after the cheap attempt.
#[derive(PartialEq, Eq)]
enum Found {
    /// Nothing.
    Gone,
    /// Most likely a directory that holds something.
    Full,
}

/// Removes an empty directory or anything that is no directory.
fn remove_if_plain(dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Found> {
    match unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(Found::Gone),
        // EEXIST is another spelling of "not empty" (POSIX leaves the choice to the file system).
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Found::Full),
        // Permission is judged before emptiness: what it holds may still go.
        Err(Errno::ACCESS | Errno::PERM) => Ok(Found::Full),
        Err(Errno::NOTDIR) => unlink(dir, name).map(|()| Found::Gone),
        Err(other) => Err(other),
    }
}

fn unlink(dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Removes all that `root` holds, in as many passes as bring it nearer to empty.
fn empty(root: BorrowedFd<'_>) -> io::Result<()> {
    let mut sweep = Sweep::new(root);
    loop {
        let pass = sweep.pass()?;
        match pass.failed {
            None if pass.seen == 0 => return Ok(()),
            // A later pass may do what this one could not: room in the directory, or its link count, has been freed.
            _ if pass.removed > 0 => (),
            Some(failed) => return Err(failed.into()),
            None => return Ok(()),
        }
    }
}

/// The removal of all below one root.
struct Sweep<'a> {
    root: BorrowedFd<'a>,
    outer: Vec<MaybeUninit<u8>>,
    inner: Vec<MaybeUninit<u8>>,
    /// Makes fresh names; starts where a stranger cannot guess, so that names made to collide do not.
    fresh: u64,
}

/// What one reading of the root came to.
#[derive(Default)]
struct Pass {
    seen: u64,
    removed: u64,
    failed: Option<Errno>,
}

impl Pass {
    fn note(&mut self, result: rustix::io::Result<()>) {
        match result {
            Ok(()) => self.removed += 1,
            Err(failed) => _ = self.failed.get_or_insert(failed),
        }
    }
}

impl<'a> Sweep<'a> {
    fn new(root: BorrowedFd<'a>) -> Self {
        Self {
            root,
            outer: vec![MaybeUninit::uninit(); LISTING_BYTES],
            inner: vec![MaybeUninit::uninit(); LISTING_BYTES],
            fresh: random(),
        }
    }

    /// Reads the root once and removes what it names.
    fn pass(&mut self) -> io::Result<Pass> {
        let mut pass = Pass::default();
        let mut listing = std::mem::take(&mut self.outer);
        seek(self.root, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(self.root, &mut listing);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if is_dots(entry.file_name()) {
                continue;
            }
            pass.seen += 1;
            let result = if entry.file_type() == FileType::Directory {
                self.remove_directory(entry.file_name(), &mut pass)
            } else {
                self.remove_other(entry.file_name(), &mut pass)
            };
            pass.note(result);
        }
        self.outer = listing;
        Ok(pass)
    }

    /// For entries that the listing does not call directories (it may not know).
    fn remove_other(&mut self, name: &CStr, pass: &mut Pass) -> rustix::io::Result<()> {
        match unlink(self.root, name) {
            Err(Errno::ISDIR) => self.remove_directory(name, pass),
            other => other,
        }
    }

    fn remove_directory(&mut self, name: &CStr, pass: &mut Pass) -> rustix::io::Result<()> {
        if remove_if_plain(self.root, name)? == Found::Gone {
            return Ok(());
        }
        let child = open_directory(self.root, name)?;
        self.flatten(child.as_fd(), pass)?;
        unlinkat(self.root, name, AtFlags::REMOVEDIR)
    }

    /// Empties a directory of the root: files go, directories that hold something move up.
    fn flatten(&mut self, child: BorrowedFd<'_>, pass: &mut Pass) -> rustix::io::Result<()> {
        let mut listing = std::mem::take(&mut self.inner);
        let mut entries = RawDir::new(child, &mut listing);
        let mut failed = None;
        while let Some(entry) = entries.next() {
            let result = match entry {
                Ok(entry) if is_dots(entry.file_name()) => continue,
                Ok(entry) => self.remove_or_move(child, entry.file_name(), entry.file_type()),
                Err(unreadable) => {
                    failed = Some(unreadable);
                    break;
                }
            };
            match result {
                Ok(()) => pass.removed += 1,
                Err(problem) => _ = failed.get_or_insert(problem),
            }
        }
        self.inner = listing;
        failed.map_or(Ok(()), Err)
    }

    fn remove_or_move(
        &mut self,
        child: BorrowedFd<'_>,
        name: &CStr,
        kind: FileType,
    ) -> rustix::io::Result<()> {
        if kind != FileType::Directory {
            match unlink(child, name) {
                Err(Errno::ISDIR) => (),
                other => return other,
            }
        }
        match remove_if_plain(child, name)? {
            Found::Gone => Ok(()),
            Found::Full => self.move_up(child, name),
        }
    }

    /// Moves a directory into the root. Replacing an empty directory there is harmless: it was to go anyway.
    fn move_up(&mut self, child: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
        let mut opened_up = false;
        loop {
            self.fresh = self.fresh.wrapping_add(1);
            match renameat(child, name, self.root, format!("{:016x}", self.fresh)) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => (),
                // A move changes the directory's own `..`, which takes write permission on it.
                Err(Errno::ACCESS) if !opened_up => {
                    make_accessible(child, name)?;
                    opened_up = true;
                }
                other => return other,
            }
        }
    }
}

/// Opens a directory, never a link or a mount, with whatever mode it has, so that its entries can be removed.
fn open_directory(dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let opened = match open_here(dir, name, OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            make_accessible(dir, name)?;
            open_here(dir, name, OFlags::RDONLY)?
        }
        opened => opened?,
    };
    let mode = Mode::from_raw_mode(fstat(&opened)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        fchmod(&opened, Mode::RWXU)?;
    }
    Ok(opened)
}

/// Gives the owner all rights on a directory that may not even be opened. Through an `O_PATH` descriptor and its link
/// in `/proc`, since `fchmodat` by name would follow a link put in its place meanwhile.
pub(crate) fn make_accessible(dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    let handle = open_here(dir, name, OFlags::PATH)?;
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    rustix::fs::chmod(path, Mode::RWXU)
}

fn open_here(dir: BorrowedFd<'_>, name: &CStr, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(dir, name, flags, Mode::empty(), within) {
        // Some seccomp filters of container hosts answer so to calls they do not know.
        Err(Errno::NOSYS) => openat(dir, name, flags, Mode::empty()),
        opened => opened,
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
