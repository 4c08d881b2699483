//! Work trees that git knows of, for those who want slots to be such (CA-29). Only our own entries are ever removed: by
//! the place they lead to, which nobody else has.

use std::fs;
use std::path::{Path, PathBuf};

use fairtrial_exec::{Backend, DeadRoot, ScratchRoot, remove_tree};
use serde::{Deserialize, Serialize};

use super::error::EvaluateError;
use super::git::{Git, WorkTree};

/// What is noted for whoever comes after an engine that was killed.
const NOTE: &str = "worktrees";

/// Entries in the user's repository, removed when this is dropped.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Worktrees {
    /// Where the repository keeps its own files.
    repository: PathBuf,
    places: Vec<PathBuf>,
}

impl Worktrees {
    /// Has git make detached, locked work trees of a commit at these places, and takes them down to the entry: the link
    /// to the repository is out of any candidate's reach, and the places are free.
    pub(crate) async fn add<B: Backend>(
        git: &Git<'_, B>,
        tree: &WorkTree,
        commit: &str,
        places: Vec<PathBuf>,
        root: &ScratchRoot,
    ) -> Result<Self, EvaluateError> {
        let worktrees = Self {
            repository: git.common_dir(tree).await?,
            places,
        };
        let note = serde_json::to_vec(&worktrees).expect("paths of ours are text");
        let noted = root.note(NOTE, &note);
        noted.map_err(EvaluateError::attempting("noting work trees"))?;
        for place in &worktrees.places {
            git.add_worktree(tree, place, commit).await?;
            remove_tree(place).map_err(EvaluateError::attempting("making a work tree"))?;
        }
        Ok(worktrees)
    }

    /// Removes the entries that an engine which is gone left behind (CA-42).
    pub(crate) fn forget_those_of(orphan: &DeadRoot) {
        let left = orphan
            .noted(NOTE)
            .and_then(|note| serde_json::from_slice::<Self>(&note).ok());
        drop(left);
    }

    fn is_ours(&self, entry: &Path) -> bool {
        let leads_to = fs::read_to_string(entry.join("gitdir")).unwrap_or_default();
        self.places
            .iter()
            .any(|place| Path::new(leads_to.trim_end()) == place.join(".git"))
    }
}

impl Drop for Worktrees {
    fn drop(&mut self) {
        let entries = fs::read_dir(self.repository.join("worktrees"))
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries.filter(|entry| self.is_ours(&entry.path())) {
            remove_tree(&entry.path()).ok(); // git shows it as missing, and prunes it some day
        }
        // As git does when the last one goes.
        fs::remove_dir(self.repository.join("worktrees")).ok();
    }
}
