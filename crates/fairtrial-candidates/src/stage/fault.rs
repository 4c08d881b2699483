//! Why a candidate cannot be staged. Each names the file, and the hunk where there is one.

use std::io;

use super::patch::{HunkFault, SyntaxError};
use super::path::{PathFault, TreePath};

/// Staging ended without a candidate.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The candidate is at fault; its siblings are not concerned.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The base could not be read: the engine's misfortune.
    #[error("cannot read `{path}` of the base")]
    Base {
        /// Which file.
        path: TreePath,
        /// What the system said.
        source: io::Error,
    },
}

/// A candidate that will not be run, and why (the `failure` of CA-54).
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    /// Its change cannot be made as it is written.
    #[error(transparent)]
    ApplyFailed(#[from] ApplyError),
    /// Its tree is the base.
    #[error("changes nothing")]
    NoOp,
    /// It touches what it may not.
    #[error("`{path}` is protected by `{glob}`")]
    ProtectedPath {
        /// The path that it adds, changes or deletes.
        path: TreePath,
        /// The glob, as written, that covers the path.
        glob: String,
    },
}

impl Rejection {
    /// The failure's kind as reports have it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ApplyFailed(_) => "apply_failed",
            Self::NoOp => "no_op",
            Self::ProtectedPath { .. } => "protected_path",
        }
    }
}

/// Why a change cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The text is no patch.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// A path is none of the tree.
    #[error(transparent)]
    Path(#[from] PathFault),
    /// A hunk has no place.
    #[error("`{file}`, hunk {number} (`{header}`): {fault}")]
    Hunk {
        /// The file to be changed.
        file: TreePath,
        /// Counted from 1 within the file's part of the patch.
        number: usize,
        /// The hunk's `@@` line.
        header: String,
        /// What stood in the way.
        fault: HunkFault,
    },
    /// A file is not as the change needs it.
    #[error("`{file}` {fault}")]
    File {
        /// The file to be changed.
        file: TreePath,
        /// What stood in the way.
        fault: FileFault,
    },
    /// The candidate is larger than any change should be.
    #[error("{what} has {bytes} bytes; a candidate has at most {most}")]
    TooLarge {
        /// The patch, or the files together.
        what: &'static str,
        /// How large it is.
        bytes: u64,
        /// What is allowed.
        most: u64,
    },
}

/// What is wrong with a file; the sentence starts with the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says in its message what it is")]
pub enum FileFault {
    #[error("is not in the base")]
    Missing,
    #[error("is there already")]
    Exists,
    #[error("is a directory")]
    Directory,
    #[error("is a device, a socket or a pipe")]
    Special,
    #[error("is a symbolic link: nothing is written through one")]
    Link,
    #[error("lies below the symbolic link `{0}`: nothing is written through one")]
    ThroughLink(TreePath),
    #[error("lies below `{0}`, which is a file")]
    BelowFile(TreePath),
    #[error("is no symbolic link, as the patch has it")]
    NotALink,
    #[error("has {0} bytes, more than a candidate may change")]
    TooLarge(u64),
    #[error("would keep content that the patch does not delete")]
    LeavesContent,
    #[error("is a submodule, which candidates cannot change")]
    Submodule,
    #[error("would become a link to nothing")]
    LinkTarget,
    #[error("is binary, and the patch has no data for it: make it with `git diff --binary`")]
    NoBinaryData,
    #[error(
        "is binary, and the patch does not say for which content it was made: it has no `index` line"
    )]
    NoIndexLine,
    #[error("is not the file that the binary patch was made for")]
    OtherPreimage,
    #[error("would not become what the binary patch says it should")]
    OtherPostimage,
    #[error("has damaged binary data: {0}")]
    Damaged(&'static str),
    #[error("is named twice")]
    Twice,
    #[error("is in the place of `{0}`, which is shared")]
    Shared(TreePath),
}

impl FileFault {
    /// This fault, of that file.
    pub(crate) fn of(self, file: &TreePath) -> StageError {
        ApplyError::File {
            file: file.clone(),
            fault: self,
        }
        .into()
    }
}

impl From<ApplyError> for StageError {
    fn from(error: ApplyError) -> Self {
        Self::Rejected(error.into())
    }
}

impl From<PathFault> for StageError {
    fn from(fault: PathFault) -> Self {
        ApplyError::Path(fault).into()
    }
}
