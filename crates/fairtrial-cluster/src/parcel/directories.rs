//! Directories that calls import from, packed once and again only when something in them changed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairtrial_exec::{EngineError, InvalidCall};

use super::whole;
use crate::blobs::{Blob, Digest};
use crate::pack::{PackError, Signature, pack};

/// Somebody may write there just now.
const TRIES: u32 = 3;

/// A packed directory.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Its name.
    pub blob: Blob,
    /// What it is unpacked from.
    pub archive: Arc<[u8]>,
}

/// Those that were packed, as they were then.
#[derive(Default)]
pub(super) struct Directories {
    // A plain mutex: held while one directory is looked at, so that it is packed once for all who want it.
    known: Mutex<HashMap<PathBuf, (Signature, Directory)>>,
}

impl Directories {
    pub(super) fn packed(&self, path: &Path) -> Result<Directory, EngineError> {
        let refuse = |error: PackError| InvalidCall::new("python_path", error.to_string());
        let mut known = self.lock();
        let signature = Signature::of(path).map_err(refuse)?;
        if let Some((as_it_was, directory)) = known.get(path)
            && *as_it_was == signature
        {
            return Ok(directory.clone());
        }
        let mut tries = 0;
        let archive = loop {
            tries += 1;
            match pack(path, &std::env::temp_dir()) {
                Err(PackError::Changed(_)) if tries < TRIES => {}
                packed => break packed.map_err(refuse)?,
            }
        };
        let archive = whole(archive).map_err(EngineError::io("reading a packed directory"))?;
        let directory = Directory {
            blob: Blob::of(&archive),
            archive: archive.into(),
        };
        known.insert(path.to_owned(), (signature, directory.clone()));
        Ok(directory)
    }

    pub(super) fn find(&self, digest: Digest) -> Option<Directory> {
        let known = self.lock();
        let mut all = known.values().map(|(_, directory)| directory);
        all.find(|directory| directory.blob.digest == digest)
            .cloned()
    }

    /// What a panic left is still sound: each change is one insertion.
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, (Signature, Directory)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
