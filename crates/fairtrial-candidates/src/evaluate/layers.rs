//! The directories that trees are made of: the frozen base, a history of one commit, and each candidate's own files.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use fairtrial_exec::{
    CopySlot, Deletions, FrozenTree, LayerEntry, Snapshot, Written, write_changes, write_layer,
};
use sha2::{Digest, Sha256};

use super::error::EvaluateError;
use super::ground::{BASE, Ran, Tree};
use crate::stage::{Image, PostImages, Staged};

/// Where layers are kept, and what is below all of them.
#[derive(Debug)]
pub(crate) struct Layers {
    directory: PathBuf,
    /// Topmost first.
    below: Vec<PathBuf>,
    hash: String,
    /// Of the files of all candidates alike: later than any of the base's, so that build tools see what was changed.
    mtime: SystemTime,
    /// Where trees are copied, the base of all copies, and whether they share bytes.
    copies: Option<(Arc<FrozenTree>, bool)>,
}

impl Layers {
    /// Layers go into `directory`, which is there; `history` is a layer with a `.git`, if there is one.
    pub(crate) fn new(
        directory: PathBuf,
        snapshot: &Snapshot,
        history: Option<PathBuf>,
    ) -> io::Result<Self> {
        // The directory is new: its time is now.
        let mtime = fs::metadata(&directory)?.modified()?;
        let below = history
            .into_iter()
            .chain([snapshot.path().to_owned()])
            .collect();
        Ok(Self {
            directory,
            below,
            hash: snapshot.hash().to_owned(),
            mtime,
            copies: None,
        })
    }

    /// Whole trees instead of layers, copied from `base`.
    pub(crate) fn copying(self, base: Arc<FrozenTree>, reflink: bool) -> Self {
        Self {
            copies: Some((base, reflink)),
            ..self
        }
    }

    /// The base as it is.
    pub(crate) fn base(&self) -> Tree {
        Tree {
            name: BASE.to_owned(),
            layers: self.below.clone(),
            hash: self.hash.clone(),
            own: None,
            built: None,
            frozen: self.copies.as_ref().map(|(base, _)| Arc::clone(base)),
        }
    }

    /// A candidate's tree; its layer is written.
    pub(crate) async fn write(&self, staged: &Staged) -> Result<Tree, EvaluateError> {
        let place = self.directory.join(staged.id.full());
        let (attempt, mtime) = (format!("writing the files of {}", staged.id), self.mtime);
        let (below, images, layer, copies) = (
            self.below.clone(),
            staged.images.clone(),
            place.clone(),
            self.copies.clone(),
        );
        let writing = tokio::task::spawn_blocking(move || match copies {
            None => Ok((Some(write(&layer, &images, &below, mtime)?), None)),
            Some((base, reflink)) => Ok((None, Some(copy(&layer, &images, base, reflink)?))),
        });
        let written = writing.await.map_err(io::Error::other).flatten();
        let (digest, frozen) = written.map_err(EvaluateError::attempting(attempt))?;
        Ok(Tree {
            name: staged.id.to_string(),
            layers: std::iter::once(place.clone())
                .chain(self.below.iter().cloned())
                .collect(),
            hash: staged.id.full(),
            own: digest.map(|digest| (place, digest)),
            built: None,
            frozen: frozen.map(Arc::new),
        })
    }

    /// What a build left in its copy, as a tree of its own.
    pub(crate) async fn freeze_copy(&self, ran: Ran, name: &str) -> io::Result<Arc<FrozenTree>> {
        let place = self.directory.join(format!("{name}-built"));
        let reflink = self.copies.as_ref().is_some_and(|(_, reflink)| *reflink);
        let freezing = tokio::task::spawn_blocking(move || {
            let (built, _) = ran
                .copy()
                .ok_or_else(|| io::Error::other("it ran in no copy"))?;
            fresh(&place)?;
            CopySlot::make(Arc::new(FrozenTree::record(built)?), &place, reflink)?;
            FrozenTree::record(&place).map(Arc::new)
        });
        freezing.await.map_err(io::Error::other).flatten()
    }
}

/// What was there is not.
fn fresh(place: &Path) -> io::Result<()> {
    match place.exists() {
        true => fairtrial_exec::remove_tree(place),
        false => Ok(()),
    }
}

/// The base with a candidate's files, whole.
fn copy(
    place: &Path,
    images: &PostImages,
    base: Arc<FrozenTree>,
    reflink: bool,
) -> io::Result<FrozenTree> {
    fresh(place)?;
    CopySlot::make(base, place, reflink)?;
    let changes = images.iter().map(|(path, image)| {
        let change = match image {
            None => Written::Deleted,
            Some(Image::File { mode, bytes }) => Written::File { mode: *mode, bytes },
            Some(Image::Link { target }) => Written::Link { target },
        };
        (path.as_bytes(), change)
    });
    write_changes(place, changes, Deletions::Remove)?;
    FrozenTree::record(place)
}

/// Writes a layer, unless it is there already from another phase; gives what it holds.
fn write(
    place: &Path,
    images: &PostImages,
    below: &[PathBuf],
    mtime: SystemTime,
) -> io::Result<String> {
    fresh(place)?;
    let entries = images.iter().map(|(path, image)| {
        let entry = image.map(|image| match image {
            Image::File { mode, bytes } => LayerEntry::File {
                bytes: bytes.to_vec(),
                mode: *mode,
            },
            Image::Link { target } => LayerEntry::Link {
                target: target.to_vec(),
            },
        });
        (
            PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes())),
            entry,
        )
    });
    write_layer(place, entries, below, mtime)?;
    digest(place)
}

/// Of all that a layer holds: paths, kinds, modes, bytes.
pub(crate) fn digest(layer: &Path) -> io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = Sha256::new();
    let mut left = vec![layer.to_owned()];
    while let Some(place) = left.pop() {
        let found = fs::symlink_metadata(&place)?;
        let name = place
            .strip_prefix(layer)
            .unwrap_or(&place)
            .as_os_str()
            .as_bytes();
        sum.update((name.len() as u64).to_be_bytes());
        sum.update(name);
        sum.update(found.mode().to_be_bytes());
        let content = match found.file_type() {
            kind if kind.is_file() => fs::read(&place)?,
            kind if kind.is_symlink() => {
                fs::read_link(&place)?.into_os_string().into_encoded_bytes()
            }
            kind if kind.is_dir() => {
                let entries = fs::read_dir(&place)?.map(|entry| entry.map(|entry| entry.path()));
                let mut entries: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
                entries.sort();
                left.extend(entries);
                Vec::new()
            }
            _ => Vec::new(), // what says that a file of the base is gone
        };
        sum.update((content.len() as u64).to_be_bytes());
        sum.update(content);
    }
    Ok(sum
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-75
    #[test]
    fn a_layer_that_somebody_changed_has_another_digest() {
        let directory = tempfile::tempdir().unwrap();
        let layer = directory.path().join("layer");
        fs::create_dir_all(layer.join("pkg")).unwrap();
        fs::write(layer.join("pkg/a.py"), "one").unwrap();
        let before = digest(&layer).unwrap();
        assert_eq!(before, digest(&layer).unwrap());
        fs::write(layer.join("pkg/a.py"), "two").unwrap();
        let changed = digest(&layer).unwrap();
        fs::write(layer.join("pkg/a.py"), "one").unwrap();
        fs::write(layer.join("pkg/b.py"), "").unwrap();
        let added = digest(&layer).unwrap();
        assert!(before != changed && before != added && changed != added);
    }
}
