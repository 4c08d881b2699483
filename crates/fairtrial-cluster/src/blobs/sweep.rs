//! Blobs that nobody needs any more, removed when somebody asks (CL-53).

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::digest::Digest;
use super::fault::{BlobError, Fault};
use super::kind::Kind;
use super::{BlobStore, probe};

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Blobs removed.
    pub removed: usize,
    /// Old blobs that are named, and stay.
    pub named: usize,
    /// Blobs too young to be looked at.
    pub young: usize,
    /// Files removed that were left half written.
    pub partial: usize,
}

impl BlobStore {
    /// Removes blobs older than `age` that are not among the `named`. Ages are by the store's own clock: ours may be
    /// wrong.
    ///
    /// # Errors
    /// The store cannot be listed or does not let us remove from it; what was removed until then is gone.
    pub async fn sweep(&self, age: Duration, named: HashSet<Digest>) -> Result<Swept, BlobError> {
        self.run(move |kind| sweep(kind, age, &named)).await
    }
}

fn sweep(kind: &dyn Kind, age: Duration, named: &HashSet<Digest>) -> Result<Swept, Fault> {
    let (probe, source) = probe();
    kind.put(probe, &source)?;
    let listed = kind.list();
    kind.delete(probe.digest)?;
    let listed = listed?;
    let now = listed.iter().find(|blob| blob.digest == probe.digest);
    let now = now.ok_or_else(|| {
        Fault::Unusable("a blob just stored is not in its list; nothing was removed".to_owned())
    })?;
    let before = now
        .stored
        .checked_sub(age)
        .unwrap_or(SystemTime::UNIX_EPOCH);
    let mut swept = Swept::default();
    for blob in listed.iter().filter(|blob| blob.digest != probe.digest) {
        if blob.stored >= before {
            swept.young += 1;
        } else if named.contains(&blob.digest) {
            swept.named += 1;
        } else if is_old(kind, blob.digest, before)? {
            kind.delete(blob.digest)?;
            swept.removed += 1;
        } else {
            swept.young += 1;
        }
    }
    swept.partial = kind.remove_partial(before)?;
    Ok(swept)
}

/// Looked at once more, for it may have been stored again since it was listed.
fn is_old(kind: &dyn Kind, digest: Digest, before: SystemTime) -> Result<bool, Fault> {
    let stored = kind.find(digest)?.and_then(|found| found.stored);
    Ok(stored.is_some_and(|stored| stored < before))
}
