//! A copy of a frozen tree that is put back to what it was, byte for byte (CA-33, CA-36).
//!
//! Files are never written in place: what is not as it was made is removed and made anew, so that a link, hard or
//! symbolic, that somebody put there leads no write out of the directory.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Mode, OFlags, fchmod, flistxattr, fremovexattr, fstat, mkdirat, openat, statat,
};
use rustix::io::Errno;

use crate::linux::beneath::{self, parent_and_name};
use crate::linux::clone_file::Sharing;
use crate::linux::file_clock;
use crate::linux::remove::{make_accessible, remove_tree};
use crate::snapshot::FrozenTree;
use crate::snapshot::file::{duplicate, link_target, make_link, set_times};
use crate::snapshot::frozen::named;
use crate::snapshot::list::join;
use crate::snapshot::manifest::{Entry, EntryKind, Manifest};

/// A directory that commands run in, one after the other.
#[derive(Debug)]
pub struct CopySlot {
    path: PathBuf,
    pub(super) dir: OwnedFd,
    source: Arc<FrozenTree>,
    /// As each entry was when it was made.
    pub(super) made: Manifest,
    sharing: Sharing,
}

/// What a reset came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// Entries, with all below them, that were not to be there, or not so.
    pub removed: usize,
    /// Entries that were made anew.
    pub restored: usize,
}

impl CopySlot {
    /// Copies a tree into the new directory `path`; with `reflink`, files share their bytes until they are written,
    /// where the file system can do that.
    ///
    /// # Errors
    /// There is something at the path already, or no room.
    pub fn make(source: Arc<FrozenTree>, path: &Path, reflink: bool) -> io::Result<Self> {
        rustix::fs::mkdir(path, Mode::RWXU)?;
        let mut slot = Self {
            path: path.to_owned(),
            dir: File::open(path)?.into(),
            source: Arc::clone(&source),
            made: Manifest::default(),
            sharing: Sharing::new(reflink),
        };
        slot.reset_to(source)?;
        Ok(slot)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it back to what it was made from. All processes that had it are gone by now.
    ///
    /// # Errors
    /// Something cannot be removed or made; then it can be tried again, but not used.
    pub fn reset(&mut self) -> io::Result<Reset> {
        self.reset_to(Arc::clone(&self.source))
    }

    /// Makes it a copy of another tree: what the two have in common stays.
    ///
    /// # Errors
    /// As for [`CopySlot::reset`].
    pub fn reset_to(&mut self, source: Arc<FrozenTree>) -> io::Result<Reset> {
        self.source = Arc::clone(&source);
        self.check_place()?;
        let mut resetting = Resetting {
            slot: self,
            children: children_of(&source.manifest),
            source: &source,
            now: Vec::with_capacity(source.manifest.entries.len()),
            reset: Reset::default(),
            latest_ns: i64::MIN,
        };
        resetting.go()?;
        // What is changed within the same tick of the clock could not be told from what is not.
        file_clock::pass(resetting.latest_ns);
        let Resetting { now, reset, .. } = resetting;
        self.made = Manifest::new(now);
        Ok(reset)
    }
}

impl CopySlot {
    /// Whoever renames the directory and puts another in its place would have that one run in.
    fn check_place(&self) -> io::Result<()> {
        let named = rustix::fs::lstat(&self.path)?;
        let ours = fstat(&self.dir)?;
        match (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino) {
            true => Ok(()),
            false => Err(io::Error::other("the slot itself was replaced")),
        }
    }
}

/// What each directory holds, by name.
type Children<'a> = HashMap<&'a [u8], Vec<(&'a [u8], &'a Entry)>>;

fn children_of(manifest: &Manifest) -> Children<'_> {
    let mut children = Children::new();
    for (path, entry) in &manifest.entries {
        if entry.kind == EntryKind::Directory {
            children.entry(path).or_default();
        }
        if !path.is_empty() {
            let (parent, name) = parent_and_name(path);
            children.entry(parent).or_default().push((name, entry));
        }
    }
    children
}

struct Resetting<'a> {
    slot: &'a CopySlot,
    source: &'a FrozenTree,
    children: Children<'a>,
    now: Vec<(Vec<u8>, Entry)>,
    reset: Reset,
    /// When the youngest of what was made was made.
    latest_ns: i64,
}

impl Resetting<'_> {
    fn go(&mut self) -> io::Result<()> {
        open_to_owner(&self.slot.dir)?; // else not even its own name can be looked up
        let source = self.source;
        let directories = source.manifest.entries.iter();
        let directories = directories.filter(|(_, entry)| entry.kind == EntryKind::Directory);
        // Outermost first, each opened to its owner before anything in it is looked at.
        for (path, _) in directories.clone() {
            self.fill(path).map_err(|error| named(path, &error))?;
        }
        // Innermost first, for a mode may close what is below.
        for (path, wanted) in directories.rev() {
            self.finish(path, wanted)
                .map_err(|error| named(path, &error))?;
        }
        Ok(())
    }

    /// Makes one directory hold what it should.
    fn fill(&mut self, path: &[u8]) -> io::Result<()> {
        let dir = self.open(path)?;
        drop_attributes(&dir)?;
        let wanted = self.children.remove(path).unwrap_or_default();
        let there = beneath::names(&dir)?;
        for name in &there {
            // A manifest's order is that of whole paths; among the names of one directory it is the same.
            if wanted
                .binary_search_by(|(other, _)| other.cmp(&&**name))
                .is_err()
            {
                remove_tree(&dir, &**name)?;
                self.reset.removed += 1;
            }
        }
        for (name, entry) in wanted {
            if entry.kind != EntryKind::Directory {
                let whole = join(path, name);
                self.keep_or_restore(dir.as_fd(), name, &whole, entry)
                    .map_err(|error| named(&whole, &error))?;
            }
        }
        Ok(())
    }

    /// Opens a directory of the tree, which is made if need be, with all rights for its owner.
    fn open(&mut self, path: &[u8]) -> io::Result<OwnedFd> {
        let opened = match beneath::open_dir(&self.slot.dir, path) {
            Err(Errno::ACCESS) => {
                let (above, name) = self.above(path)?;
                let name = std::ffi::CString::new(name)?;
                make_accessible(above.as_fd(), &name)?;
                beneath::open_dir(&self.slot.dir, path)?
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                let (above, name) = self.above(path)?;
                remove_tree(&above, name)?;
                mkdirat(&above, name, Mode::RWXU)?;
                self.reset.restored += 1;
                beneath::open_dir(&self.slot.dir, path)?
            }
            opened => opened?,
        };
        open_to_owner(&opened)?;
        Ok(opened)
    }

    fn above<'p>(&self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        let (parent, name) = parent_and_name(path);
        Ok((beneath::open_dir(&self.slot.dir, parent)?, name))
    }

    /// A file or link stays only if it is the very one that was made, untouched since.
    fn keep_or_restore(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        wanted: &Entry,
    ) -> io::Result<()> {
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            stat => Some(stat?),
        };
        let made = self.slot.made.get(path);
        let untouched = made.filter(|made| {
            made.is_like(wanted) && stat.is_some_and(|stat| made.is_untouched(&stat))
        });
        if let Some(untouched) = untouched {
            self.now.push((path.to_vec(), untouched.clone()));
            return Ok(());
        }
        if stat.is_some() {
            remove_tree(dir, name)?;
            self.reset.removed += 1;
        }
        let entry = self.restore(dir, name, path, wanted)?;
        self.reset.restored += 1;
        self.note(path, entry);
        Ok(())
    }

    fn restore(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        wanted: &Entry,
    ) -> io::Result<Entry> {
        let (above, source_name) = parent_and_name(path);
        let above = beneath::open_dir(&self.source.dir, above)?;
        if wanted.kind == EntryKind::Link {
            let target = link_target(&above, source_name)?;
            return Ok(make_link(dir, name, &target, wanted)?);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = openat(&above, source_name, flags, Mode::empty())?;
        duplicate(&self.slot.sharing, &from, dir, name, wanted)
    }

    /// Gives a directory its mode and time again, if it has not.
    fn finish(&mut self, path: &[u8], wanted: &Entry) -> io::Result<()> {
        let dir = beneath::open_dir(&self.slot.dir, path)?;
        let stat = fstat(&dir)?;
        // All bits of the mode, also those that are not kept.
        let same_mode = stat.st_mode & 0o7777 == wanted.mode;
        let entry = match Entry::of(&stat) {
            Some(now) if same_mode && now.mtime_ns == wanted.mtime_ns => now,
            _ => set_times(&dir, wanted)?,
        };
        self.note(path, entry);
        Ok(())
    }

    fn note(&mut self, path: &[u8], entry: Entry) {
        self.latest_ns = self.latest_ns.max(entry.mark.ctime_ns);
        self.now.push((path.to_vec(), entry));
    }
}

fn open_to_owner(dir: &OwnedFd) -> rustix::io::Result<()> {
    match Mode::from_raw_mode(fstat(dir)?.st_mode).contains(Mode::RWXU) {
        true => Ok(()),
        false => fchmod(dir, Mode::RWXU),
    }
}

/// What a stranger may have said about a directory beside its mode. Files that have such a thing are made anew.
fn drop_attributes(dir: &OwnedFd) -> io::Result<()> {
    let mut names = Vec::with_capacity(64 << 10); // the most there can be
    match flistxattr(dir, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => (),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    for name in names.split(|byte| *byte == 0) {
        if name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") {
            fremovexattr(dir, name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
