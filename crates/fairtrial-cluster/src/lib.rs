//! Calls past one machine. Redis Streams hand out leased work and take results; an agent on each node runs it by the
//! local engine; blobs carry what is large.
//!
//! Knows no study: queue, task key, weight and class are plain values. Never starts a process and never prints.

mod answers;
mod dispatch;
pub mod envelope;
mod fold;
mod hints;
mod memory;
mod names;
mod redis;
mod rounds;
mod terms;

pub use self::redis::{Endpoint, RedisDispatch, Suited};
pub use answers::{
    Announced, Cancelled, Committed, DeadLetter, Events, Kept, Leased, ListedQueue, Nodes, Opened,
    Place, QueueCancelled, QueueStatus, Reaped, Released, Renewed, ServerStatus, StoredEvent,
    Submitted,
};
pub use dispatch::{Answer, Dispatch, DispatchError};
pub use fold::Fold;
pub use hints::{Hint, Hints};
pub use memory::MemoryDispatch;
pub use names::{Agent, BadName, Class, Consumer, QueueName, StreamId, TaskId, Token};
pub use rounds::Rounds;
pub use terms::{
    Commit, Lease, MAX_ENVELOPE, MAX_RESULT, NODE_LOST_AFTER, NewEvent, Node, NodeState,
    OWNER_DEAD_AFTER, Owner, Refusal, Release, Task, Terms, Verdicts,
};
