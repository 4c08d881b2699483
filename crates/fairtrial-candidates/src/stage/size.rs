//! How much a candidate changes, in lines.

use std::fmt;
use std::ops::AddAssign;

use super::base::{Base, Kind};
use super::fault::StageError;
use super::image::PostImages;
use super::myers::added_and_removed;
use super::overlay::unreadable;
use super::path::TreePath;

/// Lines that come and go. Counted from the files, so it does not depend on how the change was written; a moved file
/// comes and goes whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DiffSize {
    /// Lines that come.
    pub added: usize,
    /// Lines that go.
    pub removed: usize,
    /// Changed files that have no lines.
    pub binary_files: usize,
}

/// Git's measure of what is text: no zero byte near the beginning.
const LOOKED_AT: usize = 8000;

impl DiffSize {
    /// Lines that come or go, for ranking.
    #[must_use]
    pub fn changed_lines(&self) -> usize {
        self.added + self.removed
    }

    pub(crate) fn measure(images: &PostImages, base: &dyn Base) -> Result<Self, StageError> {
        let mut size = Self::default();
        for (path, image) in images.iter() {
            let old = content(path, base)?;
            let new = image.map(|image| &**image.content()).unwrap_or_default();
            size += Self::between(&old, new);
        }
        Ok(size)
    }

    fn between(old: &[u8], new: &[u8]) -> Self {
        let binary = |content: &[u8]| content.iter().take(LOOKED_AT).any(|byte| *byte == 0);
        if binary(old) || binary(new) {
            return Self {
                binary_files: 1,
                ..Self::default()
            };
        }
        let (added, removed) = added_and_removed(old, new);
        Self {
            added,
            removed,
            binary_files: 0,
        }
    }
}

/// What the base has at a path; nothing where it has no file and no link.
pub(crate) fn content(path: &TreePath, base: &dyn Base) -> Result<Vec<u8>, StageError> {
    match base.kind(path).map_err(unreadable(path))? {
        Kind::File { .. } | Kind::Link => base.read(path).map_err(unreadable(path)),
        Kind::Missing | Kind::Directory | Kind::Special => Ok(Vec::new()),
    }
}

impl AddAssign for DiffSize {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.removed += other.removed;
        self.binary_files += other.binary_files;
    }
}

impl fmt::Display for DiffSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "+{} -{}", self.added, self.removed)?;
        match self.binary_files {
            0 => Ok(()),
            count => write!(out, " ({count} binary)"),
        }
    }
}
