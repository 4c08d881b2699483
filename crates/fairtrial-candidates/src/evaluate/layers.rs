//! The directories that trees are made of: the frozen base, a history of one commit, and each candidate's own files.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fairtrial_exec::{LayerEntry, Snapshot, write_layer};
use sha2::{Digest, Sha256};

use super::error::EvaluateError;
use super::ground::Tree;
use crate::stage::{Image, PostImages, Staged};

/// Files of candidates have one time, for it says nothing about them. Not 0: some tools take that for none.
const MTIME: Duration = Duration::from_secs(1_000_000_000);

/// Where layers are kept, and what is below all of them.
#[derive(Debug)]
pub(crate) struct Layers {
    directory: PathBuf,
    /// Topmost first.
    below: Vec<PathBuf>,
    hash: String,
}

impl Layers {
    /// Layers go into `directory`, which is there; `history` is a layer with a `.git`, if there is one.
    pub(crate) fn new(directory: PathBuf, snapshot: &Snapshot, history: Option<PathBuf>) -> Self {
        let below = history
            .into_iter()
            .chain([snapshot.path().to_owned()])
            .collect();
        Self {
            directory,
            below,
            hash: snapshot.hash().to_owned(),
        }
    }

    /// The base as it is.
    pub(crate) fn base(&self) -> Tree {
        Tree {
            name: "base".to_owned(),
            layers: self.below.clone(),
            hash: self.hash.clone(),
            own: None,
            built: None,
        }
    }

    /// A candidate's tree; its layer is written.
    pub(crate) async fn write(&self, staged: &Staged) -> Result<Tree, EvaluateError> {
        let layer = self.directory.join(staged.id.full());
        let (below, images, place) = (self.below.clone(), staged.images.clone(), layer.clone());
        let writing = tokio::task::spawn_blocking(move || write(&place, &images, &below));
        let written = writing.await.map_err(std::io::Error::other).flatten();
        let digest = written.map_err(EvaluateError::attempting(format!(
            "writing the files of {}",
            staged.id
        )))?;
        Ok(Tree {
            name: staged.id.to_string(),
            layers: std::iter::once(layer.clone())
                .chain(self.below.iter().cloned())
                .collect(),
            hash: staged.id.full(),
            own: Some((layer, digest)),
            built: None,
        })
    }
}

/// Writes a layer, unless it is there already from another phase; gives what it holds.
fn write(place: &Path, images: &PostImages, below: &[PathBuf]) -> io::Result<String> {
    if place.exists() {
        fairtrial_exec::remove_tree(place)?;
    }
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
    write_layer(place, entries, below, SystemTime::UNIX_EPOCH + MTIME)?;
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
