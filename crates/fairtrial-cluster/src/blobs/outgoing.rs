//! Blobs as envelopes name them, and what has to be stored before one may be read.

use std::fs::File;
use std::sync::Arc;

use super::checked::Source;
use super::{BadDigest, Blob, BlobError, BlobStore, Fault};
use crate::envelope::{self, Outgoing, OutgoingBody};

impl TryFrom<&envelope::Blob> for Blob {
    type Error = BadDigest;

    fn try_from(named: &envelope::Blob) -> Result<Self, BadDigest> {
        Ok(Self {
            digest: named.blob.parse()?,
            bytes: named.size,
        })
    }
}

impl From<Blob> for envelope::Blob {
    fn from(blob: Blob) -> Self {
        Self {
            blob: blob.digest.to_string(),
            size: blob.bytes,
        }
    }
}

impl BlobStore {
    /// Stores what goes with a task, unless it is there already.
    ///
    /// # Errors
    /// It could not be stored.
    pub async fn put_outgoing(&self, outgoing: Outgoing) -> Result<Blob, BlobError> {
        let (source, blob) = self.source(outgoing)?;
        self.put_source(source, Some(blob)).await
    }

    /// Stores what goes with a result, and reads it back (CL-17).
    ///
    /// # Errors
    /// It is not there, whole, when this returns.
    pub async fn keep_outgoing(&self, outgoing: Outgoing) -> Result<Blob, BlobError> {
        let (source, blob) = self.source(outgoing)?;
        self.keep_source(source, Some(blob)).await
    }

    fn source(&self, outgoing: Outgoing) -> Result<(Source, Blob), BlobError> {
        let unusable = |problem: String| BlobError {
            store: self.url().to_owned(),
            fault: Fault::Source(problem),
        };
        let blob = Blob::try_from(&outgoing.blob).map_err(|error| unusable(error.to_string()))?;
        let source = match outgoing.body {
            OutgoingBody::Bytes(bytes) => Source::Bytes(bytes.into()),
            OutgoingBody::Value(body) => Source::Value(body),
            OutgoingBody::File(file) => {
                let file = file
                    .try_clone()
                    .map_err(|error| unusable(error.to_string()))?;
                Source::File(Arc::new(File::from(file)))
            }
        };
        Ok((source, blob))
    }
}
