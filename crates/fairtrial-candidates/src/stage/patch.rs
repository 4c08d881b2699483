//! Patches, unified or of git's format: read as bytes, applied exactly (CA-13).
//!
//! Written by hand, after a look at `diffy` 0.5, `gitpatch`, `patch-apply`, `flickzeug` and `patcher`. `diffy` comes
//! nearest, but it takes the nearest of several places for a hunk, drops in silence what follows a hunk whose counts are
//! wrong, reads plain parts of a git patch not at all, does not compare a binary patch with the file it was made for,
//! and bounds nothing that it inflates. The others read no binary patches or are fuzzy.

mod apply;
mod base85;
mod binary;
mod blob;
mod delta;
mod epoch;
mod file_mode;
mod git_header;
mod hunk;
mod lines;
mod names;
mod parse;
mod place;
mod quote;
mod search;

pub use apply::apply;
pub use binary::BinaryData;
pub use file_mode::FileMode;
pub use hunk::{Hunk, HunkLine, Side};
pub use parse::{Patch, SyntaxError};
pub use place::HunkFault;

use super::path::TreePath;

/// What a patch does to one file.
#[derive(Debug, Clone)]
pub struct Section<'a> {
    /// The file it reads and the file it leaves.
    pub verb: Verb,
    /// What the header says of the mode; none where it does not say.
    pub old_mode: Option<FileMode>,
    /// The mode that the file gets; none where it keeps its own.
    pub new_mode: Option<FileMode>,
    /// The change of content.
    pub body: Body<'a>,
}

/// What becomes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// It is new.
    Create(TreePath),
    /// It goes.
    Delete(TreePath),
    /// It stays, with other content or another mode.
    Modify(TreePath),
    /// It goes on under another name.
    Rename {
        /// Its name before.
        from: TreePath,
        /// Its name afterwards.
        to: TreePath,
    },
    /// Another begins as it is.
    Copy {
        /// The one that stays.
        from: TreePath,
        /// The new one.
        to: TreePath,
    },
}

impl Verb {
    /// The file that it leaves, or takes away.
    #[must_use]
    pub fn file(&self) -> &TreePath {
        match self {
            Self::Create(file) | Self::Delete(file) | Self::Modify(file) => file,
            Self::Rename { to, .. } | Self::Copy { to, .. } => to,
        }
    }
}

/// How the content changes.
#[derive(Debug, Clone)]
pub enum Body<'a> {
    /// Line by line; without a hunk the content stays.
    Text(Vec<Hunk<'a>>),
    /// Byte by byte.
    Binary(BinaryData<'a>),
    /// Binary, but the patch was made without the data.
    Absent,
}
