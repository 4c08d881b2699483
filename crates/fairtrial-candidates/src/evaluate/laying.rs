//! How the base comes to stand where commands find it: as layers to be mounted, or as copies in slots or worktrees.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairtrial_exec::{CopySlot, FrozenTree, Level, ScratchRoot, Snapshot};

use super::error::EvaluateError;
use super::evaluator::Evaluator;
use super::ground::Kind;
use super::layers::Layers;
use super::prepare::Places;
use super::provider::How;
use super::scene::directory;
use super::slots::Slots;
use super::worktrees::Worktrees;
use crate::evaluation::BaseFacts;
use crate::spec::{self, Git};

/// What sides are made on.
pub(super) struct Laid {
    pub(super) layers: Layers,
    pub(super) kind: Kind,
    pub(super) worktrees: Option<Worktrees>,
    pub(super) warnings: Vec<String>,
}

impl Evaluator {
    /// Makes room for sides.
    pub(super) async fn lay(
        &self,
        places: &Places,
        snapshot: &Snapshot,
        facts: &BaseFacts,
        root: &ScratchRoot,
        how: How,
    ) -> Result<Laid, EvaluateError> {
        let history = self.history(snapshot, root.path()).await?;
        let place = directory(root.path(), "layers")?;
        let layers = Layers::new(place, snapshot, history.clone())
            .map_err(EvaluateError::attempting("making room for candidates"))?;
        if let How::Overlay(namespace) = how {
            return Ok(Laid {
                layers,
                kind: Kind::Overlay(namespace),
                worktrees: None,
                warnings: Vec::new(),
            });
        }
        let reflink = how == How::Copy { reflink: true };
        let base = self
            .base_copy(places, snapshot, history, root.path(), reflink)
            .await?;
        let worktrees = match how {
            How::Worktree => Some(self.worktrees(places, facts, root).await?),
            How::Overlay(_) | How::Copy { .. } => None,
        };
        let slots = Slots::make(root.path(), self.slots(), &base, reflink).await;
        let (slots, problems) = slots.map_err(EvaluateError::Failed)?;
        let problems = problems.into_iter();
        Ok(Laid {
            layers: layers.copying(base, reflink),
            kind: Kind::Copies(slots),
            worktrees,
            warnings: problems
                .map(|why| format!("one slot less: {why}"))
                .collect(),
        })
    }

    async fn worktrees(
        &self,
        places: &Places,
        facts: &BaseFacts,
        root: &ScratchRoot,
    ) -> Result<Worktrees, EvaluateError> {
        let git = self.tools.git();
        let (Some(tree), Some(commit)) = (git.work_tree(&places.root).await?, &facts.commit) else {
            let problem = format!(
                "worktree: `{}` is no git work tree with a commit",
                places.root.display()
            );
            return Err(EvaluateError::Failed(problem));
        };
        let slots = (0..self.slots()).map(|number| Slots::place(root.path(), number));
        Worktrees::add(&git, &tree, commit, slots.collect(), root).await
    }

    /// The base as copies are made of it: with its history, and with what is shared, which nothing can be mounted over.
    async fn base_copy(
        &self,
        places: &Places,
        snapshot: &Snapshot,
        history: Option<PathBuf>,
        root: &Path,
        reflink: bool,
    ) -> Result<Arc<FrozenTree>, EvaluateError> {
        if let Some(judge) = places.judges.first() {
            let problem = format!(
                "`{}` cannot be hidden without mounts: a judge needs an overlay",
                judge.display()
            );
            return Err(EvaluateError::Failed(problem));
        }
        // A link is enough where nobody can write through it (CA-32).
        let links = self.spec.sandbox.level != Level::None && self.backend.limits_writes();
        let shared: Vec<(PathBuf, bool)> = self
            .spec
            .shared
            .iter()
            .zip(&places.shared)
            .map(|(asked, path)| {
                (
                    path.clone(),
                    links && asked.mode == spec::SharedMode::ReadOnly,
                )
            })
            .collect();
        let (repository, tree, place) = (
            places.root.clone(),
            Arc::clone(snapshot.tree()),
            root.join("base"),
        );
        let copying = move || -> std::io::Result<FrozenTree> {
            CopySlot::make(tree, &place, reflink)?;
            if let Some(history) = history {
                let history = Arc::new(FrozenTree::record(&history.join(".git"))?);
                CopySlot::make(history, &place.join(".git"), reflink)?;
            }
            for (path, is_link) in shared {
                let target = place.join(path.strip_prefix(&repository).unwrap_or(&path));
                if let Some(above) = target.parent() {
                    fs::create_dir_all(above)?;
                }
                match is_link {
                    true => std::os::unix::fs::symlink(&path, target)?,
                    false => drop(CopySlot::make(
                        Arc::new(FrozenTree::record(&path)?),
                        &target,
                        reflink,
                    )?),
                }
            }
            FrozenTree::record(&place)
        };
        let copied = tokio::task::spawn_blocking(copying).await;
        let copied = copied.map_err(std::io::Error::other).flatten();
        copied
            .map(Arc::new)
            .map_err(EvaluateError::attempting("copying the base"))
    }

    /// A layer with a history of one commit (CA-31).
    async fn history(
        &self,
        snapshot: &Snapshot,
        root: &Path,
    ) -> Result<Option<PathBuf>, EvaluateError> {
        if self.spec.workspace.git == Git::None {
            return Ok(None);
        }
        let layer = directory(root, "history")?;
        let git_dir = layer.join(".git");
        self.tools
            .git()
            .one_commit(snapshot.path(), &git_dir)
            .await?;
        let exclude = git_dir.join("info");
        fs::create_dir_all(&exclude)
            .and_then(|()| fs::write(exclude.join("exclude"), ".fairtrial-*\n"))
            .map_err(EvaluateError::attempting("writing a history of one commit"))?;
        Ok(Some(layer))
    }
}
