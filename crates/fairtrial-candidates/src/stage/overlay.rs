//! The tree while a candidate is being applied: the base, and what is laid over it. Nothing counts until `finish`, so a
//! candidate applies whole or not at all (CA-14).

use std::collections::BTreeMap;
use std::io;

use super::base::{Base, Kind};
use super::fault::{ApplyError, FileFault, StageError};
use super::image::{Image, PostImages};
use super::path::TreePath;

/// The most that a candidate's text, or the files it changes, may have together (CA-14).
pub const MOST_BYTES: u64 = 16 << 20;

pub(crate) struct Overlay<'a> {
    base: &'a dyn Base,
    entries: BTreeMap<TreePath, Option<Image>>,
    /// Of paths that were put since [`Overlay::remember`]: what was laid over them then, if anything.
    remembered: BTreeMap<TreePath, Option<Option<Image>>>,
}

/// Which tree is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// As it stands.
    Now,
    /// As it was at [`Overlay::remember`].
    Before,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(base: &'a dyn Base) -> Self {
        Self {
            base,
            entries: BTreeMap::new(),
            remembered: BTreeMap::new(),
        }
    }

    /// From now on the tree as it stands can be asked after later changes. Costs as much as was put since the last time,
    /// not as much as there is: a patch may have as many parts as lines.
    pub(crate) fn remember(&mut self) {
        self.remembered.clear();
    }

    pub(crate) fn put(&mut self, path: TreePath, image: Option<Image>) {
        let before = self.entries.insert(path.clone(), image);
        self.remembered.entry(path).or_insert(before);
    }

    fn laid_over(&self, path: &TreePath, when: When) -> Option<&Option<Image>> {
        match (when, self.remembered.get(path)) {
            (When::Before, Some(before)) => before.as_ref(),
            _ => self.entries.get(path),
        }
    }

    pub(crate) fn kind(&self, path: &TreePath, when: When) -> Result<Kind, StageError> {
        Ok(match self.laid_over(path, when) {
            Some(Some(Image::File { mode, bytes })) => Kind::File {
                mode: *mode,
                size: bytes.len() as u64,
            },
            Some(Some(Image::Link { .. })) => Kind::Link,
            Some(None) => Kind::Missing,
            None => self.base.kind(path).map_err(unreadable(path))?,
        })
    }

    /// The file or link at a path; a fault where there is neither.
    pub(crate) fn image(&self, path: &TreePath, when: When) -> Result<Image, StageError> {
        self.guard_ancestors(path, when)?;
        if let Some(Some(image)) = self.laid_over(path, when) {
            return Ok(image.clone());
        }
        match self.kind(path, when)? {
            Kind::Missing => Err(FileFault::Missing.of(path)),
            Kind::Directory => Err(FileFault::Directory.of(path)),
            Kind::Special => Err(FileFault::Special.of(path)),
            Kind::File { size, .. } if size > MOST_BYTES => Err(FileFault::TooLarge(size).of(path)),
            Kind::File { mode, .. } => Ok(Image::File {
                mode,
                bytes: self.read(path)?.into(),
            }),
            Kind::Link => Ok(Image::Link {
                target: self.read(path)?.into(),
            }),
        }
    }

    /// What the candidate changes, if the tree it leaves can exist.
    pub(crate) fn finish(mut self) -> Result<PostImages, StageError> {
        let mut changed = BTreeMap::new();
        let entries = std::mem::take(&mut self.entries);
        let bytes: usize = entries.values().flatten().map(|i| i.content().len()).sum();
        if bytes as u64 > MOST_BYTES {
            return Err(too_large("the changed files together", bytes as u64).into());
        }
        for (path, image) in entries {
            if !self.base_holds(&path, image.as_ref())? {
                changed.insert(path, image);
            }
        }
        self.entries = changed;
        for (path, image) in &self.entries {
            if let Some(image) = image {
                self.guard_ancestors(path, When::Now)?;
                self.guard_place(path, image)?;
            }
        }
        Ok(PostImages(self.entries))
    }

    /// Nothing may be written below a link or a file.
    fn guard_ancestors(&self, path: &TreePath, when: When) -> Result<(), StageError> {
        for above in path.ancestors() {
            match self.kind(&above, when)? {
                Kind::Link => return Err(FileFault::ThroughLink(above).of(path)),
                Kind::File { .. } | Kind::Special => {
                    return Err(FileFault::BelowFile(above).of(path));
                }
                Kind::Directory | Kind::Missing => {}
            }
        }
        Ok(())
    }

    /// A file may take a directory's place only when nothing is left in it.
    fn guard_place(&self, path: &TreePath, image: &Image) -> Result<(), StageError> {
        if let Image::Link { target } = image
            && (target.is_empty() || target.contains(&0))
        {
            return Err(FileFault::LinkTarget.of(path));
        }
        match self.base.kind(path).map_err(unreadable(path))? {
            Kind::Special => Err(FileFault::Special.of(path)),
            Kind::Directory => {
                let below = self.base.below(path).map_err(unreadable(path))?;
                let gone = |path: &TreePath| matches!(self.entries.get(path), Some(None));
                match below.iter().all(gone) {
                    true => Ok(()),
                    false => Err(FileFault::Directory.of(path)),
                }
            }
            Kind::Missing | Kind::File { .. } | Kind::Link => Ok(()),
        }
    }

    fn base_holds(&self, path: &TreePath, image: Option<&Image>) -> Result<bool, StageError> {
        let kind = self.base.kind(path).map_err(unreadable(path))?;
        Ok(match (kind, image) {
            (Kind::Missing, None) => true,
            (Kind::File { mode, size }, Some(Image::File { mode: now, bytes })) => {
                mode == *now && size == bytes.len() as u64 && *self.read(path)? == **bytes
            }
            (Kind::Link, Some(Image::Link { target })) => *self.read(path)? == **target,
            _ => false,
        })
    }

    fn read(&self, path: &TreePath) -> Result<Vec<u8>, StageError> {
        self.base.read(path).map_err(unreadable(path))
    }
}

pub(crate) fn too_large(what: &'static str, bytes: u64) -> ApplyError {
    let most = MOST_BYTES;
    ApplyError::TooLarge { what, bytes, most }
}

pub(crate) fn unreadable(path: &TreePath) -> impl FnOnce(io::Error) -> StageError + '_ {
    |source| StageError::Base {
        path: path.clone(),
        source,
    }
}
