//! The base on the disk, as staging asks for it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::git::below;
use crate::stage::{Base, Kind, TreePath};

/// Files below a directory; what is not listed is not there.
#[derive(Debug, Clone)]
pub(crate) struct DirectoryBase {
    root: PathBuf,
    files: BTreeSet<TreePath>,
}

impl DirectoryBase {
    pub(crate) fn new(root: PathBuf, files: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let files = files
            .into_iter()
            .filter_map(|path| TreePath::new(path).ok());
        Self {
            root,
            files: files.collect(),
        }
    }

    fn place(&self, path: &TreePath) -> PathBuf {
        below(&self.root, path.as_bytes())
    }

    /// From the first path below a directory on, those that are below it.
    fn inside<'a>(&'a self, directory: &'a TreePath) -> impl Iterator<Item = &'a TreePath> {
        let first = TreePath::new([directory.as_bytes(), b"/\x01"].concat());
        let from = first.unwrap_or_else(|_| directory.clone());
        let near = self.files.range(from..);
        near.take_while(move |path| path.is_below(directory))
    }
}

impl Base for DirectoryBase {
    fn kind(&self, path: &TreePath) -> io::Result<Kind> {
        if !self.files.contains(path) {
            return Ok(match self.inside(path).next() {
                Some(_) => Kind::Directory,
                None => Kind::Missing,
            });
        }
        let found = fs::symlink_metadata(self.place(path))?;
        Ok(match found.file_type() {
            kind if kind.is_file() => Kind::File {
                mode: found.permissions().mode() & 0o777,
                size: found.len(),
            },
            kind if kind.is_symlink() => Kind::Link,
            kind if kind.is_dir() => Kind::Directory,
            _ => Kind::Special,
        })
    }

    fn read(&self, path: &TreePath) -> io::Result<Vec<u8>> {
        let place = self.place(path);
        match fs::symlink_metadata(&place)?.is_symlink() {
            true => Ok(fs::read_link(place)?.as_os_str().as_bytes().to_vec()),
            false => fs::read(place),
        }
    }

    fn below(&self, directory: &TreePath) -> io::Result<Vec<TreePath>> {
        Ok(self.inside(directory).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("pkg/sub")).unwrap();
        for (path, text) in [
            ("pkg/a.py", "a"),
            ("pkg/sub/b.py", "b"),
            ("pkg.txt", "t"),
            ("left-out", "x"),
        ] {
            fs::write(root.join(path), text).unwrap();
        }
        std::os::unix::fs::symlink("a.py", root.join("pkg/link")).unwrap();
        let listed = ["pkg/a.py", "pkg/sub/b.py", "pkg.txt", "pkg/link"];
        let base = DirectoryBase::new(root.to_owned(), listed.map(|path| path.as_bytes().to_vec()));
        let path = |text: &str| TreePath::new(text).unwrap();
        let kind = |text: &str| base.kind(&path(text)).unwrap();
        assert_eq!(kind("left-out"), Kind::Missing);
        assert_eq!(kind("pkg"), Kind::Directory);
        assert_eq!(kind("pkg/link"), Kind::Link);
        assert!(matches!(kind("pkg.txt"), Kind::File { size: 1, .. }));
        assert_eq!(base.read(&path("pkg/link")).unwrap(), b"a.py");
        let inside = base.below(&path("pkg")).unwrap();
        assert_eq!(inside, ["pkg/a.py", "pkg/link", "pkg/sub/b.py"].map(path));
    }
}
