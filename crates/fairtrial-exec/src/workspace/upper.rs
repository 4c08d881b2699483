//! What a command changed in its workspace, looked at after all its processes are gone. Blocks: not for the engine's
//! thread.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fchmod, fgetxattr, fstat, openat,
    openat2, statat,
};
use rustix::io::Errno;

/// Changes that are kept of a command.
pub const MOST_CHANGES: usize = 10_000;

/// Deeper directories are not looked into: each is open while those in it are.
const MOST_DEPTH: usize = 120;

/// What a command changed in its workspace. It is kept, in memory or on disk, as long as this is.
#[derive(Debug)]
pub struct UpperDir {
    directory: OwnedFd,
}

/// What a command changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The first [`MOST_CHANGES`], each directory before what is in it.
    pub paths: Vec<Change>,
    /// How many there are.
    pub total: u64,
    /// Whether all of it was looked at: not what is too deep, or cannot be read.
    pub complete: bool,
}

/// One path that a command changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// What became of it.
    pub kind: ChangeKind,
}

/// What became of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// A regular file that is new, or was opened for writing, or whose attributes were changed.
    Written,
    /// It is gone, and if it was a directory all that was in it.
    Deleted,
    /// A symbolic link.
    Link,
    /// A directory that no layer has; or one that is as it was, but for its attributes and what is told of paths in it.
    Directory,
    /// A directory in which nothing is older than the command: if a layer has something in that place, all of it is gone.
    OpaqueDirectory,
    /// Neither of these: a pipe, a socket.
    Special,
}

impl UpperDir {
    pub(crate) fn new(directory: OwnedFd) -> Self {
        Self { directory }
    }

    /// What was changed, up to a number of paths.
    pub fn changes(&self) -> io::Result<Changes> {
        let mut changes = Changes::default();
        changes.complete = self.visit(|path, kind| {
            changes.total += 1;
            if changes.paths.len() < MOST_CHANGES {
                let path = path.to_path_buf();
                changes.paths.push(Change { path, kind });
            }
        })?;
        Ok(changes)
    }

    /// Tells of each path that was changed, however many there are, a directory before what is in it. `false` if it
    /// could not look at all.
    pub fn visit(&self, mut each: impl FnMut(&Path, ChangeKind)) -> io::Result<bool> {
        let mut walk = Walk {
            each: &mut each,
            path: PathBuf::new(),
            complete: true,
        };
        walk.directory(self.directory.as_fd(), 0)?;
        Ok(walk.complete)
    }

    /// The bytes of a regular file that was written; at most so many, more is an error. `None` if it was not changed, or
    /// is no regular file. No link is followed.
    pub fn read(&self, path: &Path, most_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        read_regular(self.directory.as_fd(), path, most_bytes)
    }

    /// Permission bits of a regular file that was written; `None` as of [`UpperDir::read`].
    pub fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        mode_of_regular(self.directory.as_fd(), path)
    }
}

/// The bytes of a regular file below a directory that a command had for its own; at most so many.
pub(crate) fn read_regular(
    directory: BorrowedFd<'_>,
    path: &Path,
    most_bytes: u64,
) -> io::Result<Option<Vec<u8>>> {
    if mode_of_regular(directory, path)?.is_none() {
        return Ok(None); // a pipe or device is not even opened
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open_beneath(directory, path, flags)?;
    let mut bytes = Vec::new();
    let mut file = std::fs::File::from(file).take(most_bytes.saturating_add(1));
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        let problem = format!("`{}` has more than {most_bytes} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(Some(bytes))
}

fn mode_of_regular(directory: BorrowedFd<'_>, path: &Path) -> io::Result<Option<u32>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match open_beneath(directory, path, flags) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        opened => opened?,
    };
    let stat = fstat(&file)?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok(regular.then_some(stat.st_mode & 0o7777))
}

fn open_beneath(dir: BorrowedFd<'_>, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(dir, path, flags, Mode::empty(), within)
}

struct Walk<'a> {
    each: &'a mut dyn FnMut(&Path, ChangeKind),
    path: PathBuf,
    complete: bool,
}

impl Walk<'_> {
    fn directory(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        for name in names {
            let stat = statat(directory, &name[..], AtFlags::SYMLINK_NOFOLLOW)?;
            self.path.push(OsStr::from_bytes(&name));
            self.entry(directory, &name, &stat, depth);
            self.path.pop();
        }
        Ok(())
    }

    fn entry(&mut self, above: BorrowedFd<'_>, name: &[u8], stat: &Stat, depth: usize) {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => ChangeKind::Written,
            FileType::Symlink => ChangeKind::Link,
            FileType::CharacterDevice if stat.st_rdev == 0 => ChangeKind::Deleted,
            FileType::Directory => return self.enter(above, name, stat, depth),
            _ => ChangeKind::Special,
        };
        (self.each)(&self.path, kind);
    }

    fn enter(&mut self, above: BorrowedFd<'_>, name: &[u8], stat: &Stat, depth: usize) {
        let opened = open_directory(above, name, stat);
        let kind = match &opened {
            Ok(directory) if !hides_below(directory) => ChangeKind::Directory,
            _ => ChangeKind::OpaqueDirectory,
        };
        (self.each)(&self.path, kind);
        let looked = match opened {
            Ok(directory) if depth < MOST_DEPTH => {
                let looked = self.directory(directory.as_fd(), depth + 1);
                let mode = Mode::from_raw_mode(stat.st_mode);
                if !mode.contains(Mode::RWXU) {
                    fchmod(&directory, mode).ok(); // of a file system that goes anyway, or was the command's to spoil
                }
                looked.is_ok()
            }
            _ => false,
        };
        self.complete &= looked;
    }
}

/// Whatever mode it has: it belongs to this user.
fn open_directory(above: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(stat.st_mode);
    if !mode.contains(Mode::RUSR | Mode::XUSR) {
        // By name: nobody is left who could put a link in its place.
        rustix::fs::chmodat(above, name, Mode::RWXU, AtFlags::empty()).ok(); // what follows tells
    }
    openat(above, name, flags, Mode::empty())
}

/// What the kernel marks a directory with that does not show what lower layers have in its place.
const OPAQUE: [(&str, u8); 4] = [
    ("user.overlay.opaque", b'y'),
    ("trusted.overlay.opaque", b'y'),
    ("user.overlay.redirect", 0),
    ("trusted.overlay.redirect", 0),
];

fn hides_below(directory: &OwnedFd) -> bool {
    OPAQUE.iter().any(|(name, value)| {
        let mut found = [0; 1];
        match fgetxattr(directory, *name, &mut found) {
            Ok(length) => *value == 0 || found[..length] == [*value],
            Err(Errno::RANGE) => true, // longer than the mark of one that is opaque: it is another that was moved here
            Err(_) => false,
        }
    })
}
