//! Staging: from what was given to what is to be tried.

use super::base::Base;
use super::fault::{FileFault, Rejection, StageError};
use super::files::apply_files;
use super::given::{Content, Given};
use super::identity::CandidateId;
use super::image::PostImages;
use super::patch;
use super::path::TreePath;
use super::protect::Protect;
use super::size::DiffSize;

/// What is the same for all candidates of an evaluation.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The hash of the snapshot, part of every identity.
    pub base_hash: String,
    /// What candidates may not touch.
    pub protect: Protect,
    /// Directories that are put over the tree: no candidate has anything in, at or above them.
    pub shared: Vec<TreePath>,
}

impl Terms {
    /// The first changed path that what is shared would be in the way of, or the other way round.
    fn first_shared<'a>(&'a self, images: &'a PostImages) -> Option<(&'a TreePath, &'a TreePath)> {
        let meets = |path: &TreePath, shared: &TreePath| {
            path == shared || path.is_below(shared) || shared.is_below(path)
        };
        let mut paths = images.iter().map(|(path, _)| path);
        paths.find_map(|path| {
            let mut all = self.shared.iter();
            Some((path, all.find(|shared| meets(path, shared))?))
        })
    }
}

/// A candidate that can be tried.
#[derive(Debug, Clone)]
pub struct Staged {
    /// Who it is.
    pub id: CandidateId,
    /// What it changes.
    pub images: PostImages,
    /// How much it changes.
    pub size: DiffSize,
}

/// Applies a candidate to the base, whole or not at all. Neither writes nor starts anything (CA-15).
pub fn stage(content: &Content, base: &dyn Base, terms: &Terms) -> Result<Staged, StageError> {
    let images = match content {
        Content::Patch(text) => patch::apply(text, base)?,
        Content::Files(files) => apply_files(files, base)?,
    };
    if images.is_empty() {
        return Err(Rejection::NoOp.into());
    }
    if let Some((path, shared)) = terms.first_shared(&images) {
        return Err(FileFault::Shared(shared.clone()).of(path));
    }
    if let Some((path, glob)) = terms.protect.first_touched(&images) {
        let (path, glob) = (path.clone(), glob.to_owned());
        return Err(Rejection::ProtectedPath { path, glob }.into());
    }
    Ok(Staged {
        id: CandidateId::new(&terms.base_hash, &images),
        size: DiffSize::measure(&images, base)?,
        images,
    })
}

impl Given {
    /// [`stage`]s its content.
    pub fn stage(&self, base: &dyn Base, terms: &Terms) -> Result<Staged, StageError> {
        stage(&self.content, base, terms)
    }
}
