//! Calls past one machine. Redis Streams hand out leased work and take results; an agent on each node runs it by the
//! local engine; blobs carry what is large.
//!
//! Knows no study: queue, task key, weight and class are plain values. Starts processes by the local engine alone, and never
//! prints.

mod answers;
mod aside;
mod away;
mod backend;
mod blobs;
mod dispatch;
pub mod envelope;
mod files;
mod fold;
mod hints;
mod jitter;
mod memory;
mod named;
mod names;
mod node;
mod options;
mod pack;
pub mod parcel;
mod redis;
mod terms;
mod worker_events;

pub use self::redis::{Endpoint, RedisDispatch, Suited, without_secrets};
pub use answers::{
    Announced, Cancelled, Committed, DeadLetter, Events, Holding, Kept, Leased, ListedQueue, Nodes,
    Opened, Place, QueueCancelled, QueueStatus, Reaped, Released, Renewed, ServerStatus,
    StoredEvent, Submitted,
};
pub use backend::{ClusterBackend, ClusterConfig, OnFull, unrun};
pub use blobs::{BadDigest, BadStore, Blob, BlobError, BlobStore, Digest, Fault, Swept, patiently};
pub use dispatch::{Answer, Dispatch, DispatchError};
pub use fold::Fold;
pub use hints::{Hint, Hints};
pub use jitter::nonce;
pub use memory::MemoryDispatch;
pub use named::{NamedError, named_blobs};
pub use names::{Agent, BadName, Class, Consumer, QueueName, StreamId, TaskId, Token};
pub use node::{NodeAgent, NodeConfig, NodeError, Stop};
pub use options::{BadOption, Options};
pub use pack::{CachedTree, MOST_BYTES, PackError, TreeCache, pack};
pub use terms::{
    Commit, Lease, MAX_ENVELOPE, MAX_RESULT, NODE_LOST_AFTER, NewEvent, Node, NodeState,
    OWNER_DEAD_AFTER, Owner, Refusal, Release, Task, Terms, Verdicts,
};
