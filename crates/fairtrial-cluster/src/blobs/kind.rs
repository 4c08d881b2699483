//! What every kind of store can do. All of it blocks: [`BlobStore`](super::BlobStore) gives each operation a thread.

use std::fmt::Debug;
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

use super::checked::Source;
use super::digest::{Blob, Digest};
use super::fault::Fault;

/// A kind of store.
pub(super) trait Kind: Debug + Send + Sync {
    /// Stores a blob, over whatever has its name. It is there whole or not at all (CL-50).
    fn put(&self, blob: Blob, source: &Source) -> Result<(), Fault>;

    /// Whether a blob of this size is there and will not be swept soon, so that it need not be stored again. What it
    /// holds is not looked at.
    fn is_kept(&self, blob: Blob) -> Result<bool, Fault>;

    /// The bytes of a blob, as they come: nothing of them is verified yet.
    fn open(&self, blob: Blob) -> Result<Box<dyn Read>, Fault>;

    /// What is there under this name.
    fn find(&self, digest: Digest) -> Result<Option<Found>, Fault>;

    /// Removes a blob. That there was none is no error.
    fn delete(&self, digest: Digest) -> Result<(), Fault>;

    /// All blobs, with the time of the store's own clock at which each was last stored.
    fn list(&self) -> Result<Vec<Listed>, Fault>;

    /// Removes what was left half written before then; gives how many.
    fn remove_partial(&self, _before: SystemTime) -> Result<usize, Fault> {
        Ok(0)
    }

    /// How often an operation is tried while the store cannot be reached.
    fn tries(&self) -> u32 {
        3
    }

    /// The file that holds its secret, if there is one.
    fn secret_file(&self) -> Option<&Path> {
        None
    }
}

/// What is there under a name. That it is the blob of this name is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) bytes: u64,
    /// When it was last stored, by the store's own clock, if it tells.
    pub(super) stored: Option<SystemTime>,
}

/// A blob that a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) digest: Digest,
    pub(super) stored: SystemTime,
}
