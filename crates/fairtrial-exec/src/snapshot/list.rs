//! Which files a snapshot is taken of: lists given, a directory walked, and what is always left out.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Stat, statat};
use rustix::io::Errno;

use super::SnapshotError;
use crate::linux::beneath;

/// Every file, link and empty directory below `root`, as a list for [`Snapshot::take`](super::Snapshot::take). What
/// `left_out` says yes to is not entered.
///
/// # Errors
/// A directory cannot be read.
pub fn list(root: &Path, left_out: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Vec<u8>>> {
    let goes = |path: &[u8]| is_never_taken(path) || left_out(path);
    let mut found = Vec::new();
    walk(File::open(root)?.as_fd(), goes, |path, entry| match entry {
        Found::Directory { is_empty: false } => (),
        Found::Directory { is_empty: true } | Found::Other(_) => found.push(path),
    })?;
    Ok(found)
}

/// What a walk finds.
pub(crate) enum Found {
    /// A directory, by what of it is not left out.
    Directory {
        /// There is nothing in it.
        is_empty: bool,
    },
    /// Anything else.
    Other(Stat),
}

/// Calls `found` with all below `root`, in no order. What `left_out` says yes to is not entered.
pub(crate) fn walk(
    root: BorrowedFd<'_>,
    left_out: impl Fn(&[u8]) -> bool,
    mut found: impl FnMut(Vec<u8>, Found),
) -> io::Result<()> {
    let mut to_look = vec![Vec::new()];
    while let Some(path) = to_look.pop() {
        let dir = match beneath::open_dir(root, &path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue, // gone since it was listed
            opened => opened?,
        };
        let mut names = beneath::names(&dir)?;
        names.retain(|name| !left_out(&join(&path, name)));
        let is_empty = names.is_empty();
        for name in names {
            match statat(&dir, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => (),
                Err(errno) => return Err(errno.into()),
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    to_look.push(join(&path, &name));
                }
                Ok(stat) => found(join(&path, &name), Found::Other(stat)),
            }
        }
        if !path.is_empty() {
            found(path, Found::Directory { is_empty });
        }
    }
    Ok(())
}

pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        [] => name.to_vec(),
        directory => [directory, b"/", name].concat(),
    }
}

/// The paths of a list, each once and in order, without what is left out.
pub(super) fn chosen<P: AsRef<[u8]>>(
    files: impl IntoIterator<Item = P>,
    left_out: impl Fn(&[u8]) -> bool,
) -> Result<BTreeSet<Vec<u8>>, SnapshotError> {
    let mut chosen = BTreeSet::new();
    for file in files {
        let path = file.as_ref();
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if !is_plain(path) {
            return Err(SnapshotError::BadPath(shown(path)));
        }
        let mut ways = ancestors(path).chain([path]);
        if !is_never_taken(path) && !ways.any(&left_out) {
            chosen.insert(path.to_vec());
        }
    }
    Ok(chosen)
}

fn is_plain(path: &[u8]) -> bool {
    let mut components = path.split(|byte| *byte == b'/');
    !path.contains(&0) && !components.any(|component| matches!(component, b"" | b"." | b".."))
}

/// The directories above a path, outermost first, the root not among them.
pub(crate) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}

/// Caches of bytecode, which would be run in place of a source of equal size and time; and what git keeps.
fn is_never_taken(path: &[u8]) -> bool {
    let mut components = path.split(|byte| *byte == b'/');
    path.ends_with(b".pyc") || components.any(|name| matches!(name, b"__pycache__" | b".git"))
}

/// For messages.
pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn texts(paths: impl IntoIterator<Item = Vec<u8>>) -> Vec<String> {
        let mut texts: Vec<String> = paths.into_iter().map(|path| shown(&path)).collect();
        texts.sort();
        texts
    }

    /// CA-23
    #[test]
    fn bytecode_git_and_what_is_named_are_left_out() {
        let files = [
            "a.py",
            "__pycache__/a.cpython-312.pyc",
            "pkg/__pycache__/x",
            "b.pyc",
            ".git/config",
            "sub/.git",
            "out/deep/file",
            "outer",
            "dir/",
            "a.py",
        ];
        let chosen = chosen(files, |path| path == b"out").unwrap();
        assert_eq!(texts(chosen), ["a.py", "dir", "outer"]);
    }

    #[test]
    fn a_path_that_is_none_of_a_tree_is_refused() {
        for path in ["", "/etc", "a//b", "a/../b", "./a", "a\0b", "/"] {
            let refused = chosen([path], |_| false).unwrap_err();
            assert!(matches!(refused, SnapshotError::BadPath(_)), "{path:?}");
        }
    }

    /// CA-21
    #[test]
    fn a_directory_is_listed_with_links_and_empty_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("empty")).unwrap();
        fs::create_dir_all(root.join("cached/__pycache__")).unwrap();
        fs::create_dir_all(root.join("out/more")).unwrap();
        fs::write(root.join("a/b/file"), b"").unwrap();
        fs::write(root.join("a/name\nline"), b"").unwrap();
        std::os::unix::fs::symlink("/", root.join("top")).unwrap();
        let listed = list(root, |path| path == b"out").unwrap();
        assert_eq!(
            texts(listed),
            ["a/b/file", "a/name\nline", "cached", "empty", "top"]
        );
    }
}
