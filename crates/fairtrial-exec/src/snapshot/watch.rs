//! Whether a tree that is not ours to change was changed (CA-30).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::list::{Found, shown, walk};
use super::manifest::{Entry, Manifest};

/// A tree as it was, by what the kernel says of each entry. Nothing is read.
#[derive(Debug)]
pub struct TreeWatch {
    root: OwnedFd,
    before: Manifest,
}

impl TreeWatch {
    /// Looks at all below `root`, but for what `left_out` says yes to.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn start(root: &Path, left_out: impl Fn(&[u8]) -> bool) -> io::Result<Self> {
        let root = OwnedFd::from(File::open(root)?);
        let before = look(&root, left_out)?;
        Ok(Self { root, before })
    }

    /// The paths that came, went or were touched since, in order. A directory counts as touched only by its coming or
    /// going: what is left out may come and go in it.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn changes(&self, left_out: impl Fn(&[u8]) -> bool) -> io::Result<Vec<String>> {
        let now = look(&self.root, left_out)?;
        let differs =
            |(path, entry): &&(Vec<u8>, Entry), other: &Manifest| other.get(path) != Some(entry);
        let gone = self
            .before
            .entries
            .iter()
            .filter(|entry| differs(entry, &now));
        let new = now
            .entries
            .iter()
            .filter(|(path, _)| self.before.get(path).is_none());
        let mut changed: Vec<String> = gone.chain(new).map(|(path, _)| shown(path)).collect();
        changed.sort_unstable();
        Ok(changed)
    }
}

/// Sockets and the like are not looked at: they are no part of what is kept.
fn look(root: &OwnedFd, left_out: impl Fn(&[u8]) -> bool) -> io::Result<Manifest> {
    let mut entries = Vec::new();
    walk(root.as_fd(), left_out, |path, found| match found {
        Found::Directory { .. } => entries.push((path, Entry::some_directory())),
        Found::Other(stat) => entries.extend(Entry::of(&stat).map(|entry| (path, entry))),
    })?;
    Ok(Manifest::new(entries))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// CA-30
    #[test]
    fn every_write_is_seen_and_no_look_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("src/deep")).unwrap();
        fs::create_dir_all(at("out")).unwrap();
        for path in ["a", "b", "c", "src/d", "src/deep/e"] {
            fs::write(at(path), "text").unwrap();
        }
        crate::linux::file_clock::pass(crate::linux::file_clock::now_ns());
        let left_out = |path: &[u8]| path == b"out";
        let watch = TreeWatch::start(dir.path(), left_out).unwrap();
        fs::read(at("a")).unwrap();
        fs::write(at("out/report"), "ours").unwrap();
        assert_eq!(watch.changes(left_out).unwrap(), [""; 0]);
        fs::write(at("b"), "TEXT").unwrap();
        fs::remove_file(at("c")).unwrap();
        fs::write(at("src/new"), "").unwrap();
        fs::rename(at("src/deep"), at("src/moved")).unwrap();
        assert_eq!(
            watch.changes(left_out).unwrap(),
            [
                "b",
                "c",
                "src/deep",
                "src/deep/e",
                "src/moved",
                "src/moved/e",
                "src/new"
            ]
        );
    }
}
