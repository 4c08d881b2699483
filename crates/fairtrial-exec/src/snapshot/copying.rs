//! The copying of a tree that may change meanwhile: what changed since it was read is read again, three times at most.
//!
//! A look at every file after the last was copied shows that all of them were so at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::SnapshotError;
use super::file::{FileCopier, link_target, make_link, set_times};
use super::list::{ancestors, shown};
use super::manifest::{Entry, EntryKind, Manifest, Mark};
use crate::config::available_cpus;
use crate::linux::beneath::{self, parent_and_name};
use crate::linux::clone_file::Sharing;
use crate::linux::file_clock;

/// How often a file is read that changes all the time.
const TRIES: u32 = 3;

/// More threads find nothing more to do: a directory takes one new name at a time.
const MOST_THREADS: usize = 4;

/// Fewer files than this are not worth another thread.
const FILES_PER_THREAD: usize = 64;

/// Copies `files` from the directory `from` into the empty directory `to`, which nobody else knows.
///
/// What a list names and is not there is left out: so git lists a file that was deleted.
pub(super) fn copy(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    files: BTreeSet<Vec<u8>>,
) -> Result<Copied, SnapshotError> {
    let sharing = Sharing::new(true);
    let copying = Copying {
        from,
        to,
        sharing: &sharing,
    };
    let mut directories = copying.make_directories(&files)?;
    // A directory that comes into being only now is too late.
    let has_place = |path: &[u8]| directories.contains_key(parent_and_name(path).0);
    let files = files.into_iter();
    let files = files.filter(|path| !directories.contains_key(path) && has_place(path));
    let (mut entries, marks) = copying.copy_until_steady(files.collect())?;
    let listed = entries.extract_if(.., |(_, entry)| entry.kind == EntryKind::Directory);
    directories.extend(listed);
    entries.extend(copying.finish_directories(directories)?);
    Ok(Copied {
        manifest: Manifest::new(entries),
        marks,
    })
}

/// A copy.
pub(super) struct Copied {
    pub(super) manifest: Manifest,
    /// What would show a later change of each file of the source.
    pub(super) marks: BTreeMap<Vec<u8>, Mark>,
}

/// What was copied, and the marks of its sources.
type Steady = (Vec<(Vec<u8>, Entry)>, BTreeMap<Vec<u8>, Mark>);

struct Copying<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    sharing: &'a Sharing,
}

/// What was copied.
struct Taken {
    /// As the copy is; of a directory, as it is to be.
    copy: Entry,
    /// As the source was.
    source: Entry,
    /// The source was changed so shortly before that another change might not show.
    fresh: bool,
    tries: u32,
}

/// Paths, and how often each was read before.
type Work = Vec<(Vec<u8>, u32)>;
type Done = Vec<(Vec<u8>, Taken)>;

impl Copying<'_> {
    /// Makes the directories that files are in, open to their owner until all is copied; gives what they are in the
    /// source.
    fn make_directories(
        &self,
        files: &BTreeSet<Vec<u8>>,
    ) -> Result<BTreeMap<Vec<u8>, Entry>, SnapshotError> {
        let wanted: BTreeSet<&[u8]> = files.iter().flat_map(|path| ancestors(path)).collect();
        let mut made = BTreeMap::new();
        for path in [&[][..]].into_iter().chain(wanted) {
            let opened = beneath::open(self.from, path, OFlags::PATH, Mode::empty());
            let stat = match opened.and_then(fstat) {
                Err(errno) if is_absence(errno) => continue,
                stat => stat.map_err(reading(path))?,
            };
            // Where it is none, nothing is below it.
            let Some(entry) = Entry::of(&stat).filter(|entry| entry.kind == EntryKind::Directory)
            else {
                continue;
            };
            if !path.is_empty() {
                mkdirat(self.to, path, Mode::RWXU).map_err(writing(path))?;
            }
            made.insert(path.to_vec(), entry);
        }
        Ok(made)
    }

    fn copy_until_steady(&self, files: Vec<Vec<u8>>) -> Result<Steady, SnapshotError> {
        let mut work: Work = files.into_iter().map(|path| (path, 0)).collect();
        let mut done: Done = Vec::with_capacity(work.len());
        loop {
            done.extend(self.copy_all(&work)?);
            (work, done) = self.sort_out(done)?;
            if work.is_empty() {
                let known = done.iter().filter(|(_, taken)| !taken.fresh);
                let marks = known.map(|(path, taken)| (path.clone(), taken.source.mark));
                let marks = marks.collect();
                let copied = done.into_iter().map(|(path, taken)| (path, taken.copy));
                return Ok((copied.collect(), marks));
            }
        }
    }

    /// Those that changed since they were copied, whose copies are removed; and the others.
    fn sort_out(&self, done: Done) -> Result<(Work, Done), SnapshotError> {
        let (mut work, mut steady) = (Vec::new(), Vec::with_capacity(done.len()));
        let (mut source, mut files) = (Parents::new(self.from), FileCopier::new(self.sharing));
        for (path, taken) in done {
            if is_steady(&mut source, &mut files, &path, &taken).map_err(reading(&path))? {
                steady.push((path, taken));
                continue;
            }
            if taken.tries == TRIES {
                return Err(SnapshotError::Unsteady(shown(&path)));
            }
            let how = match taken.copy.kind {
                EntryKind::Directory => AtFlags::REMOVEDIR,
                _ => AtFlags::empty(),
            };
            unlinkat(self.to, &*path, how).map_err(writing(&path))?;
            work.push((path, taken.tries));
        }
        Ok((work, steady))
    }

    fn copy_all(&self, work: &[(Vec<u8>, u32)]) -> Result<Done, SnapshotError> {
        let threads = available_cpus().min(MOST_THREADS);
        let threads = threads.min(work.len() / FILES_PER_THREAD).max(1);
        let mut chunks = work.chunks(work.len().div_ceil(threads).max(1));
        let own = chunks.next().unwrap_or_default();
        std::thread::scope(|scope| {
            let start = |chunk| {
                let thread = std::thread::Builder::new().name("fairtrial-copy".into());
                (
                    chunk,
                    thread.spawn_scoped(scope, move || self.copy_some(chunk)),
                )
            };
            let others: Vec<_> = chunks.map(start).collect();
            let mut done = self.copy_some(own)?;
            for (chunk, thread) in others {
                done.extend(match thread {
                    Ok(thread) => thread.join().expect("copying does not panic")?,
                    Err(_) => self.copy_some(chunk)?, // no thread is to be had
                });
            }
            Ok(done)
        })
    }

    fn copy_some(&self, work: &[(Vec<u8>, u32)]) -> Result<Done, SnapshotError> {
        let mut done = Vec::with_capacity(work.len());
        let (mut source, mut files) = (Parents::new(self.from), FileCopier::new(self.sharing));
        for (path, tries) in work {
            let now_ns = file_clock::now_ns();
            let found = source.look(path).map_err(reading(path))?;
            let Some((dir, name, stat)) = found else {
                continue;
            };
            let taken = match self.copy_one(&mut files, dir, name, path, &stat) {
                Err(SnapshotError::Reading { source, .. }) if is_gone(&source) => continue,
                taken => taken?,
            };
            let (source, copy) = taken;
            done.push((
                path.clone(),
                Taken {
                    fresh: !file_clock::is_past(source.mark.ctime_ns, now_ns),
                    source,
                    copy,
                    tries: tries + 1,
                },
            ));
        }
        Ok(done)
    }

    /// As the source was, and as the copy is.
    fn copy_one(
        &self,
        files: &mut FileCopier<'_>,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
    ) -> Result<(Entry, Entry), SnapshotError> {
        let source = Entry::of(stat).ok_or_else(|| SnapshotError::Special(shown(path)))?;
        match source.kind {
            EntryKind::File => {
                let (from, source) = open_file(dir, name, path)?;
                let copy = files.copy(&from, self.to, path, &source);
                Ok((source, copy.map_err(writing(path))?))
            }
            EntryKind::Link => {
                let target = link_target(dir, name).map_err(reading(path))?;
                let copy = make_link(self.to, path, &target, &source);
                Ok((source, copy.map_err(writing(path))?))
            }
            EntryKind::Directory => {
                mkdirat(self.to, path, Mode::RWXU).map_err(writing(path))?;
                Ok((source.clone(), source))
            }
        }
    }

    /// Gives directories their modes and times; the deepest first, for a mode may close it.
    fn finish_directories(
        &self,
        directories: BTreeMap<Vec<u8>, Entry>,
    ) -> Result<Vec<(Vec<u8>, Entry)>, SnapshotError> {
        let mut finished = Vec::with_capacity(directories.len());
        for (path, wanted) in directories.into_iter().rev() {
            let dir = beneath::open_dir(self.to, &path).map_err(writing(&path))?;
            let entry = set_times(&dir, &wanted).map_err(writing(&path))?;
            finished.push((path, entry));
        }
        Ok(finished)
    }
}

/// Opens a regular file, of which only the descriptor is certain to be one.
pub(super) fn open_file(
    dir: BorrowedFd<'_>,
    name: &[u8],
    path: &[u8],
) -> Result<(OwnedFd, Entry), SnapshotError> {
    // Not blocking, lest it is a pipe by now.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty()).map_err(reading(path))?;
    let stat = fstat(&file).map_err(reading(path))?;
    match Entry::of(&stat) {
        Some(entry) if entry.kind == EntryKind::File => Ok((file, entry)),
        _ => Err(SnapshotError::Special(shown(path))),
    }
}

/// Whether the source is as it was when it was copied.
fn is_steady(
    source: &mut Parents<'_>,
    files: &mut FileCopier<'_>,
    path: &[u8],
    taken: &Taken,
) -> rustix::io::Result<bool> {
    let Some((dir, name, stat)) = source.look(path)? else {
        return Ok(false);
    };
    if taken.source.kind == EntryKind::Directory {
        // What comes and goes in it is not listed.
        return Ok(Entry::of(&stat).is_some_and(|now| now.kind == EntryKind::Directory));
    }
    // More or less than its size was read: it was being written.
    if taken.copy.size != taken.source.size || !taken.source.is_untouched(&stat) {
        return Ok(false);
    }
    if !taken.fresh || taken.source.kind == EntryKind::Link {
        return Ok(true);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty())?;
    Ok(files.digest(&file, taken.source.size)? == Some(taken.copy.sha256))
}

/// The directory that was last looked into, kept open: a list in order names many files of each.
pub(super) struct Parents<'a> {
    root: BorrowedFd<'a>,
    open: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> Parents<'a> {
    pub(super) fn new(root: BorrowedFd<'a>) -> Self {
        Self { root, open: None }
    }

    /// The directory a path is in, its name there, and what it is; `None` if there is nothing.
    pub(super) fn look<'p>(
        &mut self,
        path: &'p [u8],
    ) -> rustix::io::Result<Option<(BorrowedFd<'_>, &'p [u8], Stat)>> {
        let (parent, name) = parent_and_name(path);
        if self.open.as_ref().is_none_or(|(open, _)| open != parent) {
            let dir = match beneath::open_dir(self.root, parent) {
                Err(errno) if is_absence(errno) => return Ok(None),
                opened => opened?,
            };
            self.open = Some((parent.to_vec(), dir));
        }
        let (_, dir) = self.open.as_ref().expect("opened just now");
        match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => Ok(Some((std::os::fd::AsFd::as_fd(dir), name, stat?))),
        }
    }
}

/// Nothing is at such a path, or something else than a directory is on the way.
pub(super) fn is_absence(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

fn is_gone(error: &std::io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(is_absence)
}

fn reading<E: Into<std::io::Error>>(path: &[u8]) -> impl FnOnce(E) -> SnapshotError {
    move |source| SnapshotError::Reading {
        path: shown(path),
        source: source.into(),
    }
}

fn writing<E: Into<std::io::Error>>(path: &[u8]) -> impl FnOnce(E) -> SnapshotError {
    move |source| SnapshotError::Copying {
        path: shown(path),
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use tempfile::TempDir;

    use super::*;

    struct Trees {
        from: TempDir,
        to: TempDir,
    }

    impl Trees {
        fn new() -> Self {
            let trees = Self {
                from: tempfile::tempdir().unwrap(),
                to: tempfile::tempdir().unwrap(),
            };
            fs::write(trees.from.path().join("log"), "a").unwrap();
            fs::write(trees.from.path().join("quiet"), "q").unwrap();
            trees
        }

        /// Copies both files, with `change` after each time.
        fn copy(&self, mut change: impl FnMut(u32)) -> Result<Vec<String>, SnapshotError> {
            let (from, to) = (
                File::open(&self.from).unwrap(),
                File::open(&self.to).unwrap(),
            );
            let sharing = Sharing::new(true);
            let copying = Copying {
                from: from.as_fd(),
                to: to.as_fd(),
                sharing: &sharing,
            };
            let mut work: Work = vec![(b"log".to_vec(), 0), (b"quiet".to_vec(), 0)];
            let mut done = Vec::new();
            for round in 1.. {
                done.extend(copying.copy_all(&work)?);
                change(round);
                (work, done) = copying.sort_out(done)?;
                if work.is_empty() {
                    break;
                }
            }
            let read = |(path, _): &(Vec<u8>, Taken)| {
                fs::read_to_string(self.to.path().join(shown(path))).unwrap()
            };
            Ok(done.iter().map(read).collect())
        }
    }

    /// CA-22
    #[test]
    fn a_file_that_changes_meanwhile_is_read_again() {
        let trees = Trees::new();
        let log = trees.from.path().join("log");
        let copied = trees.copy(|round| {
            if round < 3 {
                fs::write(&log, format!("changed {round}")).unwrap();
            }
        });
        assert_eq!(copied.unwrap(), ["q", "changed 2"]);
    }

    /// CA-22
    #[test]
    fn a_file_that_never_rests_is_named_after_three_tries() {
        let trees = Trees::new();
        let log = trees.from.path().join("log");
        let mut rounds = 0;
        let copied = trees.copy(|round| {
            rounds = round;
            // Of one size, and often within one tick of the clock that files are stamped with.
            fs::write(&log, round.to_string()).unwrap();
        });
        let error = copied.unwrap_err().to_string();
        assert!(
            error.starts_with("`log` changed each of the 3 times"),
            "{error}"
        );
        assert_eq!(rounds, 3);
    }

    /// CA-22
    #[test]
    fn a_file_that_goes_or_is_replaced_meanwhile_is_as_it_is_at_the_end() {
        let trees = Trees::new();
        let log = trees.from.path().join("log");
        let gone = trees.copy(|_| drop(fs::remove_file(&log)));
        assert_eq!(gone.unwrap(), ["q"]);
        assert!(!trees.to.path().join("log").exists());
        let trees = Trees::new();
        let (from, log) = (trees.from.path(), trees.from.path().join("log"));
        let replaced = trees.copy(|round| {
            if round == 1 {
                fs::write(from.join("new"), "b").unwrap();
                fs::rename(from.join("new"), &log).unwrap();
            }
        });
        assert_eq!(replaced.unwrap(), ["q", "b"]);
    }
}
