//! Calls past one machine. Redis Streams hand out leased work and take results; an agent on each node runs it by the
//! local engine; blobs carry what is large.
//!
//! Knows no study: queue, task key, weight and class are plain values. Never starts a process and never prints.

mod blobs;
mod pack;

pub use {
    blobs::{BadDigest, BadStore, Blob, BlobError, BlobStore, Digest, Fault, Swept, patiently},
    pack::{CachedTree, MOST_BYTES, PackError, TreeCache, pack},
};
