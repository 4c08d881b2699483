//! A small tree: in memory, on disk, as a base.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use fairtrial_candidates::stage::{Image, MemoryBase, PostImages};

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Leaf {
    File { bytes: Vec<u8>, executable: bool },
    Link(Vec<u8>),
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) BTreeMap<Vec<u8>, Leaf>);

impl Tree {
    pub(crate) fn write(&self, root: &Path) {
        fs::create_dir_all(root).expect("room");
        for (path, leaf) in &self.0 {
            let path = root.join(OsStr::from_bytes(path));
            fs::create_dir_all(path.parent().expect("below the root")).expect("room");
            match leaf {
                Leaf::Link(target) => symlink(OsStr::from_bytes(target), path).expect("room"),
                Leaf::File { bytes, executable } => {
                    fs::write(&path, bytes).expect("room");
                    let mode = if *executable { 0o755 } else { 0o644 };
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
                }
            }
        }
    }

    pub(crate) fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        tree.read_below(root, root);
        tree
    }

    fn read_below(&mut self, root: &Path, directory: &Path) {
        for entry in fs::read_dir(directory).expect("there") {
            let path = entry.expect("an entry").path();
            let meta = fs::symlink_metadata(&path).expect("there");
            let name = path
                .strip_prefix(root)
                .expect("below")
                .as_os_str()
                .as_bytes()
                .to_vec();
            if meta.is_dir() {
                self.read_below(root, &path);
            } else if meta.is_symlink() {
                let target = fs::read_link(&path)
                    .expect("a link")
                    .into_os_string()
                    .into_vec();
                self.0.insert(name, Leaf::Link(target));
            } else {
                let executable = meta.permissions().mode() & 0o100 != 0;
                let bytes = fs::read(&path).expect("a file");
                self.0.insert(name, Leaf::File { bytes, executable });
            }
        }
    }

    pub(crate) fn base(&self) -> MemoryBase {
        self.0
            .iter()
            .fold(MemoryBase::new(), |base, (path, leaf)| match leaf {
                Leaf::Link(target) => base.link(path, target),
                Leaf::File { bytes, executable } => {
                    let mode = if *executable { 0o755 } else { 0o644 };
                    base.file_with_mode(path, bytes, mode)
                }
            })
    }

    /// The tree after a candidate's change.
    pub(crate) fn with(&self, images: &PostImages) -> Self {
        let mut tree = self.clone();
        for (path, image) in images.iter() {
            let path = path.as_bytes().to_vec();
            match image {
                None => tree.0.remove(&path),
                Some(Image::Link { target }) => tree.0.insert(path, Leaf::Link(target.to_vec())),
                Some(Image::File { mode, bytes }) => {
                    assert!([0o644, 0o755].contains(mode), "{mode:o}");
                    let (bytes, executable) = (bytes.to_vec(), *mode == 0o755);
                    tree.0.insert(path, Leaf::File { bytes, executable })
                }
            };
        }
        tree
    }

    /// What a plain patch can tell: files that are not empty, none of them executable, under names that GNU diff quotes.
    pub(crate) fn plain(mut self) -> Self {
        self.0.retain(|path, leaf| {
            let tellable = path
                .iter()
                .all(|byte| byte.is_ascii_graphic() && *byte != b'"');
            tellable && matches!(leaf, Leaf::File { bytes, .. } if !bytes.is_empty())
        });
        for leaf in self.0.values_mut() {
            if let Leaf::File { executable, .. } = leaf {
                *executable = false;
            }
        }
        self
    }

    /// The same, without files that stand where `old` has a directory or the other way round: GNU diff cannot tell that.
    pub(crate) fn plain_like(self, old: &Self) -> Self {
        let mut tree = self.plain();
        let below = |one: &[u8], other: &[u8]| {
            one.strip_prefix(other)
                .is_some_and(|rest| rest.starts_with(b"/"))
        };
        tree.0
            .retain(|path, _| !old.0.keys().any(|was| below(path, was) || below(was, path)));
        tree
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, leaf) in &self.0 {
            let path = path.escape_ascii();
            match leaf {
                Leaf::Link(target) => writeln!(out, "{path} -> {}", target.escape_ascii())?,
                Leaf::File { bytes, executable } => {
                    writeln!(out, "{path} {executable} {}", bytes.escape_ascii())?
                }
            }
        }
        Ok(())
    }
}
