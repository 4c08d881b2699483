//! A candidate given as files: what each path is to hold.

use std::collections::HashSet;

use super::base::{Base, Kind};
use super::fault::{FileFault, StageError};
use super::image::{Image, PostImages};
use super::overlay::{MOST_BYTES, Overlay, When, too_large};
use super::path::TreePath;

/// What a path is to hold. The path is as somebody wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// A file.
    File {
        /// All of it.
        bytes: Vec<u8>,
        /// Its mode.
        mode: Mode,
    },
    /// A symbolic link.
    Link {
        /// What it leads to.
        target: Vec<u8>,
    },
    /// Nothing: what is there is deleted.
    Deleted,
    /// A device, a socket or a pipe: refused.
    Special,
}

/// The mode of a file that is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The base's own where it has the file (CA-14), else this.
    KeptOr(u32),
    /// This one.
    Exactly(u32),
}

/// What replaced files make of the base.
pub(crate) fn apply_files(
    files: &[(Vec<u8>, Replacement)],
    base: &dyn Base,
) -> Result<PostImages, StageError> {
    let sizes = files.iter().map(|(_, replacement)| replacement.size());
    let bytes: u64 = sizes.sum();
    if bytes > MOST_BYTES {
        return Err(too_large("its files together", bytes).into());
    }
    let mut overlay = Overlay::new(base);
    let mut seen = HashSet::new();
    for (path, replacement) in files {
        let path = TreePath::new(path)?;
        if !seen.insert(path.clone()) {
            return Err(FileFault::Twice.of(&path));
        }
        let image = successor(&overlay, &path, replacement)?;
        overlay.put(path, image);
    }
    overlay.finish()
}

fn successor(
    overlay: &Overlay<'_>,
    path: &TreePath,
    replacement: &Replacement,
) -> Result<Option<Image>, StageError> {
    let kind = overlay.kind(path, When::Now)?;
    Ok(match replacement {
        Replacement::Special => return Err(FileFault::Special.of(path)),
        Replacement::Deleted => {
            check_deletable(overlay, path, kind)?;
            None
        }
        Replacement::Link { target } => Some(Image::Link {
            target: target[..].into(),
        }),
        Replacement::File { .. } if kind == Kind::Link => return Err(FileFault::Link.of(path)),
        Replacement::File { bytes, mode } => Some(Image::File {
            mode: match (kind, mode) {
                (Kind::File { mode: kept, .. }, Mode::KeptOr(_)) => kept,
                (_, Mode::KeptOr(mode) | Mode::Exactly(mode)) => *mode,
            },
            bytes: bytes[..].into(),
        }),
    })
}

fn check_deletable(overlay: &Overlay<'_>, path: &TreePath, kind: Kind) -> Result<(), StageError> {
    match kind {
        Kind::File { .. } | Kind::Link => Ok(()),
        Kind::Directory => Err(FileFault::Directory.of(path)),
        Kind::Special => Err(FileFault::Special.of(path)),
        // Tells a path below a link from one that is simply not there.
        Kind::Missing => overlay.image(path, When::Now).map(drop),
    }
}

impl Replacement {
    fn size(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => bytes.len() as u64,
            Self::Link { target } => target.len() as u64,
            Self::Deleted | Self::Special => 0,
        }
    }
}
