//! What goes with an envelope, stored.

use std::sync::Arc;

use super::checked::Source;
use super::{Blob, BlobError, BlobStore};
use crate::envelope::{Outgoing, OutgoingBody};

impl BlobStore {
    /// Stores what goes with a task, unless it is there already.
    ///
    /// # Errors
    /// It could not be stored.
    pub async fn put_outgoing(&self, outgoing: Outgoing) -> Result<Blob, BlobError> {
        self.put_source(source(outgoing.body), Some(outgoing.blob))
            .await
    }

    /// As [`put`](Self::put), of bytes whose name is known: they are not hashed again.
    ///
    /// # Errors
    /// They could not be stored.
    pub async fn put_named(&self, blob: Blob, bytes: Arc<[u8]>) -> Result<(), BlobError> {
        let put = self.put_source(Source::Bytes(bytes), Some(blob)).await;
        put.map(drop)
    }

    /// Stores what goes with a result, and reads it back (CL-17).
    ///
    /// # Errors
    /// It is not there, whole, when this returns.
    pub async fn keep_outgoing(&self, outgoing: Outgoing) -> Result<Blob, BlobError> {
        self.keep_source(source(outgoing.body), Some(outgoing.blob))
            .await
    }
}

fn source(body: OutgoingBody) -> Source {
    match body {
        OutgoingBody::Bytes(bytes) => Source::Bytes(bytes.into()),
        OutgoingBody::Value(body) => Source::Value(body),
        OutgoingBody::File(file) => Source::File(file),
    }
}
