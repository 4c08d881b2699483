//! What goes into operations: a queue's terms and owner, tasks, leases, what is committed and released, nodes. Plain
//! values.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::{Agent, Class, Consumer, QueueName, TaskId, Token};

/// Most bytes of a task envelope.
pub const MAX_ENVELOPE: usize = 16 * 1024;
/// Most bytes of a result envelope.
pub const MAX_RESULT: usize = 64 * 1024;

/// Who holds a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// On which machine.
    pub host: String,
    /// Which process.
    pub pid: u32,
    /// Drawn at its start: a restarted process is another owner.
    pub nonce: String,
}

/// An owner is dead this long after its last sign (CL-39); it gives one every third of that.
pub const OWNER_DEAD_AFTER: Duration = Duration::from_secs(30);

/// A queue's terms, noted when it is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Its share among queues, at least 1.
    pub weight: u32,
    /// Most tasks and uncollected results together.
    pub max_queue: u64,
    /// Most leases at a time.
    pub max_inflight: Option<u64>,
    /// Most counted deliveries of a task.
    pub max_deliver: u32,
    /// A lease not renewed for so long is reaped.
    pub lease: Duration,
    /// Somebody may come back for it by name: kept 7 days after the owner's last sign, not 1 h, and after `close`.
    pub named: bool,
    /// The results that dispatch records by itself.
    pub verdicts: Verdicts,
}

impl Terms {
    /// The defaults of the spec, and these verdicts.
    #[must_use]
    pub fn new(verdicts: Verdicts) -> Self {
        Self {
            weight: 1,
            max_queue: 10_000,
            max_inflight: None,
            max_deliver: 3,
            lease: Duration::from_secs(30),
            named: false,
            verdicts,
        }
    }

    /// How long the queue outlives its owner's last sign.
    #[must_use]
    pub fn expiry(&self) -> Duration {
        Duration::from_secs(if self.named { 7 * 86_400 } else { 3_600 })
    }
}

/// Result envelopes that dispatch records by itself, ready-made by the coordinator and kept with its queue: JSON texts
/// in which [`Verdicts::REASON`] stands where a JSON string with the reason belongs, and [`Verdicts::WAITED_S`] where the
/// seconds belong that the task has waited since it was last queued. Each is replaced wherever it stands; neither need
/// stand anywhere. `token` in them is null: nobody ran it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// EX-46: the outcome of a call that waited past its `queue_timeout`.
    pub queue_timeout: String,
    /// The outcome of a call cancelled before it ended.
    pub cancelled: String,
    /// The error of a task delivered `max_deliver` times in vain; the reason has the last agent and the last error.
    pub lost: String,
    /// CL-22: the outcome of a call that every live agent refused; the reason has every agent's.
    pub setup_failed: String,
    /// CL-23: the error of a task that every live agent refused, all of them for its newer protocol.
    pub invalid: String,
}

impl Verdicts {
    /// The place of the reason, quotes included.
    pub const REASON: &str = "\"%REASON%\"";
    /// The place of the seconds waited, quotes included.
    pub const WAITED_S: &str = "\"%WAITED_S%\"";

    /// The one for this.
    pub(crate) fn of(&self, recorded: Recorded) -> &str {
        match recorded {
            Recorded::QueueTimeout => &self.queue_timeout,
            Recorded::Cancelled => &self.cancelled,
            Recorded::Lost => &self.lost,
            Recorded::SetupFailed => &self.setup_failed,
            Recorded::Invalid => &self.invalid,
        }
    }
}

/// A task to be queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its id, by [`TaskId::of`].
    pub id: TaskId,
    /// The slot it needs.
    pub class: Class,
    /// What agents are given; at most [`MAX_ENVELOPE`] bytes, which dispatch does not read.
    pub envelope: Vec<u8>,
    /// Longest wait for a slot (EX-46). Begins anew when a call that had run comes back, and not after a refusal.
    pub queue_timeout: Option<Duration>,
}

/// A slot's claim on a task: what renew, commit and release are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The queue.
    pub queue: QueueName,
    /// The class it was leased in.
    pub class: Class,
    /// The task.
    pub task: TaskId,
    /// What proves it.
    pub token: Token,
    /// Who holds it.
    pub consumer: Consumer,
}

/// What a lease ended in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The lease.
    pub lease: Lease,
    /// The result envelope, at most [`MAX_RESULT`] bytes: a JSON object with `token` and `agent` (as [`Consumer`] is
    /// shown), so that whoever commits again knows its own (CL-59). Dispatch does not read it.
    pub result: Vec<u8>,
    /// Events to be added before `complete` if, and only if, this is `committed`; at most 50.
    pub events: Vec<NewEvent>,
    /// What the event `complete` says: JSON, or empty.
    pub complete: String,
}

/// Why an agent gives a task back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Nothing the task did: drain, disk full (CL-27, CL-28). Its delivery number goes down again.
    Uncounted {
        /// In words.
        reason: String,
    },
    /// The agent's engine failed (CL-26). Past `max_deliver` the task is `lost`.
    Counted {
        /// The error.
        reason: String,
    },
    /// This agent cannot run it (CL-22, CL-23). Uncounted, and this life of the agent is not given it again.
    Refused {
        /// Whether it could not even read it.
        refusal: Refusal,
        /// What is missing.
        reason: String,
    },
}

/// What kind of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// CL-22: mechanism, interpreter, device or shared path missing. At the end `setup_failed`.
    Setup,
    /// CL-23: a newer protocol. At the end `invalid`, if nobody refused for another reason.
    Protocol,
}

/// An event to be added to a queue's stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewEvent {
    /// Its name, as in CL-61.
    pub name: String,
    /// The task it is about.
    pub task: Option<TaskId>,
    /// The agent that says it, by name.
    pub agent: Option<String>,
    /// What else it says: JSON, or empty.
    pub data: String,
}

/// An agent as it announces itself in `ft:node:NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Who.
    #[serde(flatten)]
    pub agent: Agent,
    /// The classes it serves.
    pub classes: Vec<Class>,
    /// How it is.
    pub state: NodeState,
    /// Node id, slots, busy, version, level: what dispatch does not read.
    pub about: serde_json::Value,
}

/// How an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Leases.
    Up,
    /// Leases nothing and will end.
    Draining,
    /// Leases nothing until its start checks pass.
    Unhealthy,
}

/// A node is lost this long after its last sign.
pub const NODE_LOST_AFTER: Duration = Duration::from_secs(30);

/// A queue's rate is that of so long, or of all its time.
pub(crate) const LATELY: Duration = Duration::from_secs(60);

/// Which of the results that dispatch records by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    QueueTimeout,
    Cancelled,
    Lost,
    SetupFailed,
    Invalid,
}

impl Recorded {
    /// Each of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::QueueTimeout,
        Self::Cancelled,
        Self::Lost,
        Self::SetupFailed,
        Self::Invalid,
    ];

    /// The name in events.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::QueueTimeout => "queue_timeout",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::SetupFailed => "setup_failed",
            Self::Invalid => "invalid",
        }
    }
}

/// Refuses what no operation takes.
pub(crate) mod too_large {
    use super::{MAX_ENVELOPE, MAX_RESULT};
    use crate::dispatch::DispatchError;

    pub(crate) fn envelope(bytes: &[u8]) -> Result<(), DispatchError> {
        checked("task envelope", bytes.len(), MAX_ENVELOPE)
    }

    pub(crate) fn result(bytes: &[u8]) -> Result<(), DispatchError> {
        checked("result envelope", bytes.len(), MAX_RESULT)
    }

    fn checked(what: &'static str, bytes: usize, limit: usize) -> Result<(), DispatchError> {
        match bytes > limit {
            true => Err(DispatchError::TooLarge { what, bytes, limit }),
            false => Ok(()),
        }
    }
}
