//! What a command changed in a copy, looked at after all its processes are gone, and told as of a workspace that is
//! mounted. Blocks: not for the engine's thread.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, statat};
use rustix::io::Errno;

use super::slot::CopySlot;
use crate::linux::beneath;
use crate::snapshot::list::join;
use crate::snapshot::manifest::EntryKind;
use crate::workspace::{ChangeKind, read_regular};

impl CopySlot {
    /// The bytes of a regular file that is new, or was touched since the slot was put back; at most so many, more is an
    /// error. `None` if it is neither, or no regular file. No link is followed.
    ///
    /// # Errors
    /// It has more bytes, or cannot be read.
    pub fn read(&self, path: &Path, most_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let name = path.as_os_str().as_bytes();
        let stat = beneath::open(&self.dir, name, OFlags::PATH, Mode::empty()).and_then(fstat);
        let made = self.made.get(name);
        if made.is_some_and(|made| stat.is_ok_and(|stat| made.is_untouched(&stat))) {
            return Ok(None); // it came with the tree, and says nothing about this command
        }
        read_regular(self.dir.as_fd(), path, most_bytes)
    }

    /// Tells of each path that was changed since the slot was put back. What cannot be looked into any more was changed.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn visit(&self, mut each: impl FnMut(&Path, ChangeKind)) -> io::Result<()> {
        let mut each = |path: &[u8], kind| each(Path::new(OsStr::from_bytes(path)), kind);
        let mut found = vec![false; self.made.entries.len()];
        let mut to_look = vec![Vec::new()];
        while let Some(path) = to_look.pop() {
            let dir = match beneath::open_dir(&self.dir, &path) {
                Err(Errno::ACCESS) => {
                    each(&path, ChangeKind::OpaqueDirectory);
                    continue;
                }
                opened => opened?,
            };
            for name in beneath::names(&dir)? {
                let stat = statat(&dir, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
                let whole = join(&path, &name);
                let kind = kind(&stat);
                let made = self.made.place(&whole).ok();
                let entry = made.map(|place| &self.made.entries[place].1);
                let is_directory = kind == ChangeKind::Directory;
                let same_kind =
                    entry.filter(|entry| (entry.kind == EntryKind::Directory) == is_directory);
                if let Some(place) = made.filter(|_| same_kind.is_some()) {
                    found[place] = true;
                }
                if !same_kind.is_some_and(|entry| is_directory || entry.is_untouched(&stat)) {
                    each(&whole, kind);
                }
                if is_directory {
                    to_look.push(whole);
                }
            }
        }
        let all = self.made.entries.iter().zip(found);
        for ((path, _), _) in all.filter(|((path, _), found)| !path.is_empty() && !found) {
            each(path, ChangeKind::Deleted);
        }
        Ok(())
    }
}

fn kind(stat: &Stat) -> ChangeKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => ChangeKind::Written,
        FileType::Symlink => ChangeKind::Link,
        FileType::Directory => ChangeKind::Directory,
        _ => ChangeKind::Special,
    }
}
