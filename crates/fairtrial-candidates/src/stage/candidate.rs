//! Staging: from what was given to what is to be tried.

use super::base::Base;
use super::fault::{Rejection, StageError};
use super::files::apply_files;
use super::given::{Content, Given};
use super::identity::CandidateId;
use super::image::PostImages;
use super::patch;
use super::protect::Protect;
use super::size::DiffSize;

/// What is the same for all candidates of an evaluation.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The hash of the snapshot, part of every identity.
    pub base_hash: String,
    /// What candidates may not touch.
    pub protect: Protect,
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
