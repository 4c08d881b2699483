//! The ways to have a workspace, by the names that users write; and whether copies work in a directory (CA-27).

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::linux::clone_file::clone_file;
use crate::linux::remove::remove_tree;
use crate::locked_dir::random;

/// A way to have a workspace; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// An overlay mounted in a namespace of the caller's own.
    OverlayUser,
    /// An overlay mounted by root.
    OverlayRoot,
    /// A copy whose files share their bytes with the snapshot until they are written.
    Reflink,
    /// A copy.
    Copy,
    /// A work tree that git makes.
    Worktree,
}

impl Provider {
    /// All of them, in the order in which they are tried.
    pub const ALL: [Self; 5] = [
        Self::OverlayUser,
        Self::OverlayRoot,
        Self::Reflink,
        Self::Copy,
        Self::Worktree,
    ];

    /// Whether commands see the repository's own path.
    #[must_use]
    pub fn has_same_path(self) -> bool {
        matches!(self, Self::OverlayUser | Self::OverlayRoot)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OverlayUser => "overlay(userns)",
            Self::OverlayRoot => "overlay(root)",
            Self::Reflink => "reflink",
            Self::Copy => "copy",
            Self::Worktree => "worktree",
        })
    }
}

/// Not the name of a provider.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a workspace provider: overlay(userns), overlay(root), reflink, copy or worktree"
)]
pub struct UnknownProvider(String);

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, UnknownProvider> {
        let found = Self::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| UnknownProvider(text.to_owned()))
    }
}

/// Why a provider is passed over.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Whether copies can be had in `dir`, and files that share their bytes if `reflink`: a directory with a file is really
/// made, deleted, renamed and made again.
///
/// # Errors
/// What did not work.
pub fn probe_copy(dir: &Path, reflink: bool) -> Result<(), Unavailable> {
    let probe = Probe {
        above: dir,
        at: dir.join(format!("probe-{:016x}", random())),
    };
    probe.run(reflink)
}

struct Probe<'a> {
    above: &'a Path,
    at: PathBuf,
}

impl Probe<'_> {
    fn run(&self, reflink: bool) -> Result<(), Unavailable> {
        let at = |name: &str| self.at.join(name);
        attempt("making a directory", || {
            fs::create_dir(&self.at)?;
            fs::create_dir(at("one"))?;
            fs::write(at("one/file"), [7; 8192])
        })?;
        if reflink {
            attempt("sharing a file's bytes", || {
                let from = File::open(at("one/file"))?;
                clone_file(&from, &File::create(at("one/clone"))?)?;
                match fs::read(at("one/clone"))? == [7; 8192] {
                    true => Ok(()),
                    false => Err(io::Error::other("the copy has other bytes")),
                }
            })?;
        }
        attempt("renaming a directory", || fs::rename(at("one"), at("two")))?;
        attempt("deleting a directory", || fs::remove_dir_all(at("two")))?;
        attempt("making a directory again", || fs::create_dir(at("one")))
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let removed = File::open(self.above).and_then(|dir| match self.at.file_name() {
            Some(name) => remove_tree(dir, name),
            None => Ok(()),
        });
        if let Err(error) = removed {
            log::warn!("cannot remove `{}`: {error}", self.at.display());
        }
    }
}

fn attempt(what: &str, work: impl FnOnce() -> io::Result<()>) -> Result<(), Unavailable> {
    work().map_err(|error| Unavailable(format!("{what}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-27
    #[test]
    fn providers_read_back_as_they_are_shown() {
        for provider in Provider::ALL {
            assert_eq!(provider.to_string().parse(), Ok(provider));
        }
        let unknown = "overlayfs".parse::<Provider>().unwrap_err().to_string();
        assert!(unknown.starts_with("`overlayfs` is not a workspace provider"));
    }

    /// CA-27
    #[test]
    fn a_probe_says_what_did_not_work_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        probe_copy(dir.path(), false).unwrap();
        if let Err(Unavailable(reason)) = probe_copy(dir.path(), true) {
            assert!(reason.starts_with("sharing a file's bytes: "), "{reason}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let Unavailable(reason) = probe_copy(&dir.path().join("no"), false).unwrap_err();
        assert!(reason.starts_with("making a directory: "), "{reason}");
    }
}
