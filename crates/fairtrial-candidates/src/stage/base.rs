//! The frozen tree that candidates change, as staging sees it. Who reads a disk implements [`Base`] elsewhere.

use std::collections::BTreeMap;
use std::io;

use super::image::Image;
use super::path::TreePath;

/// What is at a path itself; no link is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Missing,
    /// A regular file.
    File {
        /// Permission bits.
        mode: u32,
        /// In bytes, so that what is too large need not be read.
        size: u64,
    },
    /// A symbolic link.
    Link,
    /// A directory.
    Directory,
    /// A device, a socket or a pipe.
    Special,
}

/// The base: asked for what is there, never told to change.
///
/// An error is the engine's misfortune, not a fault of the candidate.
pub trait Base {
    /// What is at `path`. Of a path below a link, a file or nothing: [`Kind::Missing`].
    fn kind(&self, path: &TreePath) -> io::Result<Kind>;

    /// The bytes of the file, or the target of the link, at `path`.
    fn read(&self, path: &TreePath) -> io::Result<Vec<u8>>;

    /// Every file, link and special file below a directory, at any depth.
    fn below(&self, directory: &TreePath) -> io::Result<Vec<TreePath>>;
}

/// A base that is held in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryBase {
    entries: BTreeMap<TreePath, Option<Image>>,
}

impl MemoryBase {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file of mode `0o644`.
    ///
    /// # Panics
    /// If the path is none of a tree.
    #[must_use]
    pub fn file(self, path: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> Self {
        self.file_with_mode(path, bytes, 0o644)
    }

    /// Adds a file.
    ///
    /// # Panics
    /// If the path is none of a tree.
    #[must_use]
    pub fn file_with_mode(
        mut self,
        path: impl AsRef<[u8]>,
        bytes: impl AsRef<[u8]>,
        mode: u32,
    ) -> Self {
        let bytes = bytes.as_ref().into();
        self.insert(path, Some(Image::File { mode, bytes }));
        self
    }

    /// Adds a symbolic link.
    ///
    /// # Panics
    /// If the path is none of a tree.
    #[must_use]
    pub fn link(mut self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        let target = target.as_ref().into();
        self.insert(path, Some(Image::Link { target }));
        self
    }

    /// Adds a device or the like.
    ///
    /// # Panics
    /// If the path is none of a tree.
    #[must_use]
    pub fn special(mut self, path: impl AsRef<[u8]>) -> Self {
        self.insert(path, None);
        self
    }

    fn insert(&mut self, path: impl AsRef<[u8]>, entry: Option<Image>) {
        let path = TreePath::new(path).expect("a path of a tree");
        self.entries.insert(path, entry);
    }
}

impl Base for MemoryBase {
    fn kind(&self, path: &TreePath) -> io::Result<Kind> {
        Ok(match self.entries.get(path) {
            Some(Some(Image::File { mode, bytes })) => Kind::File {
                mode: *mode,
                size: bytes.len() as u64,
            },
            Some(Some(Image::Link { .. })) => Kind::Link,
            Some(None) => Kind::Special,
            None if self.below(path)?.is_empty() => Kind::Missing,
            None => Kind::Directory,
        })
    }

    fn read(&self, path: &TreePath) -> io::Result<Vec<u8>> {
        match self.entries.get(path) {
            Some(Some(image)) => Ok(image.content().to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn below(&self, directory: &TreePath) -> io::Result<Vec<TreePath>> {
        let paths = self.entries.keys().filter(|path| path.is_below(directory));
        Ok(paths.cloned().collect())
    }
}
