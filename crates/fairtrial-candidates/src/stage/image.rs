//! What a path holds after a candidate's change.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::base::{Base, Kind};
use super::path::TreePath;

/// What is at a path. Bytes are shared, since renames and copies hand them on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image {
    /// A regular file.
    File {
        /// Permission bits, `0o644` or the like.
        mode: u32,
        /// All of it.
        bytes: Arc<[u8]>,
    },
    /// A symbolic link.
    Link {
        /// What it leads to, as written.
        target: Arc<[u8]>,
    },
}

impl Image {
    /// The bytes of a file, or of a link's target.
    #[must_use]
    pub fn content(&self) -> &Arc<[u8]> {
        match self {
            Self::File { bytes, .. } => bytes,
            Self::Link { target } => target,
        }
    }

    /// The same kind of thing, with the same mode, holding other bytes.
    #[must_use]
    pub(crate) fn with_content(&self, content: Vec<u8>) -> Self {
        let content = content.into();
        match self {
            Self::File { mode, .. } => Self::File {
                mode: *mode,
                bytes: content,
            },
            Self::Link { .. } => Self::Link { target: content },
        }
    }
}

/// Every path that a candidate changes, sorted, with what it then holds; none where it is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PostImages(pub(crate) BTreeMap<TreePath, Option<Image>>);

impl PostImages {
    /// The changed paths in order.
    pub fn iter(&self) -> impl Iterator<Item = (&TreePath, Option<&Image>)> {
        self.0.iter().map(|(path, image)| (path, image.as_ref()))
    }

    /// What a changed path holds: `Some(None)` where it is deleted, `None` where it is as in the base.
    #[must_use]
    pub fn get(&self, path: &TreePath) -> Option<Option<&Image>> {
        self.0.get(path).map(Option::as_ref)
    }

    /// What the base has at these paths. What cannot be read is left out.
    pub(crate) fn of_base(base: &dyn Base, paths: impl IntoIterator<Item = TreePath>) -> Self {
        let found = paths.into_iter().filter_map(|path| {
            let image = match base.kind(&path).ok()? {
                Kind::File { mode, .. } => Some(Image::File {
                    mode,
                    bytes: base.read(&path).ok()?.into(),
                }),
                Kind::Link => Some(Image::Link {
                    target: base.read(&path).ok()?.into(),
                }),
                Kind::Missing => None,
                Kind::Directory | Kind::Special => return None,
            };
            Some((path, image))
        });
        Self(found.collect())
    }

    /// Whether the tree is the base.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many paths are changed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
