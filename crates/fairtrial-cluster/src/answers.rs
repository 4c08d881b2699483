//! What operations answer: one type for each, as the table of the spec has them. Plain values.

use std::time::Duration;

use crate::names::{QueueName, StreamId, TaskId};
use crate::terms::{Lease, Node, Owner};

/// To `open`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is ours. Was there before or not: its tasks and results are kept, its state is open.
    Opened {
        /// Its event `queue.opened`: read on from here.
        event: StreamId,
    },
    /// Somebody else, who is alive, has it.
    Owned {
        /// Who.
        by: Owner,
    },
}

/// To `keep` and `close`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Done.
    Ok,
    /// Somebody else has it now.
    Owned {
        /// Who.
        by: Owner,
    },
    /// There is no such queue: expired, deleted or flushed. Open it and submit again what is outstanding.
    Gone,
}

/// To `submit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Queued.
    Ok,
    /// Was there already; if its entry or group had vanished, it was queued anew.
    Dup,
    /// Has a result already: collect it.
    Done,
    /// No room: wait (CL-33).
    Full,
    /// The queue is not open, or not there.
    Closed,
}

/// To `lease`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leased {
    /// Work.
    Task {
        /// What proves it.
        lease: Lease,
        /// The envelope as it was submitted.
        envelope: Vec<u8>,
        /// The queue's lease: renew every third of it.
        renew_within: Duration,
        /// How long it waited for this slot, since it was submitted or given back.
        waited: Duration,
    },
    /// Nothing now: none queued, paused, cancelled or at `max_inflight`.
    Empty,
    /// No such queue, or its group was destroyed.
    Gone,
}

/// To `renew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// Go on.
    Ok,
    /// Still yours, but it was cancelled: kill it and commit `cancelled`.
    Cancel,
    /// Not yours any more: kill it and discard (CL-16).
    Lost,
}

/// To `commit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Recorded.
    Committed,
    /// There was a result already.
    Duplicate {
        /// The one that stands. If token and agent in it are the caller's own, its earlier commit came through (CL-59).
        stored: Vec<u8>,
    },
    /// Not yours any more: discard (CL-16).
    Fenced,
    /// No such task: collected long ago, or cancelled and collected.
    Unknown,
}

/// To `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Somebody else may have it; or it was cancelled meanwhile and is recorded so.
    Released,
    /// Not yours any more.
    Lost,
    /// That was its last delivery: recorded as `lost`, with a dead letter.
    Dead,
}

/// To `reap`: how many of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Leases taken back and parked.
    pub parked: u32,
    /// Delivered too often: dead letters.
    pub dead: u32,
    /// Entries that had been deleted: their tasks were added anew.
    pub anew: u32,
    /// Refused by every live agent: recorded as `setup_failed` or `invalid`.
    pub refused: u32,
    /// Cancelled while leased, and their agent never said so: recorded as `cancelled`.
    pub cancelled: u32,
    /// Entries of no task: acknowledged and deleted.
    pub stale: u32,
    /// Where the next page begins; none after the last.
    pub next: Option<StreamId>,
    /// There is no such queue, or it has expired and is deleted now.
    pub gone: bool,
}

impl Reaped {
    /// Adds another page's counts; `next` and `gone` become the other's.
    pub fn add(&mut self, page: &Self) {
        self.parked += page.parked;
        self.dead += page.dead;
        self.anew += page.anew;
        self.refused += page.refused;
        self.cancelled += page.cancelled;
        self.stale += page.stale;
        self.next = page.next;
        self.gone = page.gone;
    }
}

/// To `cancel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Was queued or parked: recorded as `cancelled`.
    Removed,
    /// Is leased: flagged, and its agent told.
    Signalled,
    /// Has a result, which stands.
    Done,
    /// No such task.
    Unknown,
}

/// To `cancel_queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCancelled {
    /// Queued tasks recorded as `cancelled` by this call.
    pub recorded: u32,
    /// Some may be left: call again.
    pub more: bool,
}

/// To `check`: where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Waits for a slot, parked ones included.
    Queued,
    /// A slot has it.
    Leased,
    /// Its result waits to be collected.
    Done,
    /// Nowhere, or where no lease finds it: submit it again.
    Missing,
}

/// To `announce` and `remove_node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// Done.
    Ok,
    /// The name is that of another, live agent.
    Taken,
}

/// Agents known to the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nodes {
    /// Those that gave a sign in the last 30 s.
    pub live: Vec<Node>,
    /// When each of these last did, in ms of the server's clock; none if it does not say.
    pub seen_ms: Vec<Option<u64>>,
    /// Names of those that did not, and did not say that they end.
    pub lost: Vec<String>,
}

/// Something that a queue holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holding {
    /// A task without a result: its envelope.
    Task(Vec<u8>),
    /// A result that was not collected.
    Result(Vec<u8>),
    /// A word that its owner pinned.
    Pin(String),
}

/// An event of a queue's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its id; `id.ms` is the server's time.
    pub id: StreamId,
    /// What it says.
    pub event: crate::terms::NewEvent,
}

/// Events after an id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Oldest first.
    pub events: Vec<StoredEvent>,
    /// Some before these may be lost (trimmed, flushed): fall back to `check`.
    pub gap: bool,
}

/// A task that was delivered too often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// When, and which.
    pub id: StreamId,
    /// The task.
    pub task: TaskId,
    /// How often.
    pub deliveries: u32,
    /// Who had it last, as a consumer is shown.
    pub agent: String,
    /// The last error, if an agent told one.
    pub reason: String,
}

/// A queue as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedQueue {
    /// Its name.
    pub queue: QueueName,
    /// Its weight.
    pub weight: u32,
}

/// A queue's numbers (CL-60).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Never handed out yet.
    pub queued: u64,
    /// With a slot.
    pub leased: u64,
    /// Given back, and first in line.
    pub parked: u64,
    /// Results that the coordinator has not dropped yet.
    pub uncollected: u64,
    /// Dead letters kept.
    pub dead: u64,
    /// How long the oldest that was never handed out has waited.
    pub oldest_wait: Option<Duration>,
    /// Results ever recorded.
    pub recorded: u64,
    /// How many lately, and in what time: their rate. None if the server tells no time.
    pub lately: Option<(u64, Duration)>,
    /// Who holds it, and how long ago it last said so, if that is known.
    pub owner: Option<(Owner, Option<Duration>)>,
    /// `open`, `paused`, `cancelled`, `closed`.
    pub state: String,
}

/// The server, as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStatus {
    /// `redis`, `valkey`, `memory`.
    pub name: String,
    /// Of that.
    pub version: String,
    /// Bytes used; none if it does not say.
    pub used_memory: Option<u64>,
    /// Most bytes it may use; 0 if unlimited, none if it does not say.
    pub max_memory: Option<u64>,
    /// What it does then.
    pub memory_policy: String,
    /// Whether every write is appended to a file.
    pub append_only: bool,
    /// Whether it is part of a Redis Cluster.
    pub cluster_mode: bool,
    /// Its clock, in ms since 1970; none if it does not say.
    pub time_ms: Option<u64>,
}
