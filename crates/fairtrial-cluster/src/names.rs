//! What dispatch calls things: queues, tasks, classes, tokens, agents. Plain values that check themselves; no I/O.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Why a name cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no {what}: {problem}")]
pub struct BadName {
    /// What it was to be.
    pub what: &'static str,
    /// As given.
    pub name: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// Names go into keys, channels and consumers: `{`, `}` and `/` have a meaning there.
fn checked(what: &'static str, name: String) -> Result<String, BadName> {
    let problem = match &name {
        name if name.is_empty() => "it is empty",
        name if name.len() > 200 => "it is longer than 200 bytes",
        name if name
            .contains(|c: char| c.is_control() || c.is_whitespace() || "{}/*".contains(c)) =>
        {
            "it has a space, a control character or one of `{}/*`"
        }
        _ => return Ok(name),
    };
    Err(BadName {
        what,
        name,
        problem,
    })
}

/// The opaque name under which one submitter's calls are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QueueName(String);

impl QueueName {
    /// A queue of this name.
    pub fn new(name: impl Into<String>) -> Result<Self, BadName> {
        checked("queue name", name.into()).map(Self)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for QueueName {
    type Error = BadName;

    fn try_from(name: String) -> Result<Self, BadName> {
        Self::new(name)
    }
}

impl From<QueueName> for String {
    fn from(name: QueueName) -> Self {
        name.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names a task: SHA-256 of queue, task key and canonical envelope, in base64url (CL-14).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(String);

impl TaskId {
    /// The task with this key and these envelope bytes, which the caller made canonical, in this queue.
    #[must_use]
    pub fn of(queue: &QueueName, key: &str, envelope: &[u8]) -> Self {
        let mut digest = Sha256::new();
        for part in [queue.as_str().as_bytes(), key.as_bytes(), envelope] {
            // Lengths first, so that no two triples give the same bytes.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self(URL_SAFE_NO_PAD.encode(digest.finalize()))
    }

    /// The 43 characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TaskId {
    type Error = BadName;

    fn try_from(name: String) -> Result<Self, BadName> {
        let digits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        if name.len() == 43 && name.bytes().all(digits) {
            Ok(Self(name))
        } else {
            let problem = "it is not a SHA-256 in base64url";
            Err(BadName {
                what: "task id",
                name,
                problem,
            })
        }
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> Self {
        id.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of slot a call needs. Each class of a queue has its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// One slot among others.
    Cpu,
    /// The node to itself.
    Timing,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Timing];

    /// The name in keys, flags and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Timing => "timing",
        }
    }
}

impl FromStr for Class {
    type Err = BadName;

    fn from_str(name: &str) -> Result<Self, BadName> {
        let named = Self::ALL.into_iter().find(|class| class.as_str() == name);
        named.ok_or_else(|| BadName {
            what: "class",
            name: name.to_owned(),
            problem: "classes are `cpu` and `timing`",
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The id of a stream's entry: the server's time in ms when it was added, and a number within that ms.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct StreamId {
    /// Server time in ms since 1970.
    pub ms: u64,
    /// Which of those of that ms.
    pub seq: u64,
}

impl StreamId {
    /// Before every entry.
    pub const START: Self = Self { ms: 0, seq: 0 };
}

impl FromStr for StreamId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let parts = text
            .split_once('-')
            .and_then(|(ms, seq)| Some((ms.parse().ok()?, seq.parse().ok()?)));
        match parts {
            Some((ms, seq)) => Ok(Self { ms, seq }),
            None => Err(BadName {
                what: "stream id",
                name: text.to_owned(),
                problem: "it is not two numbers with `-` between",
            }),
        }
    }
}

impl TryFrom<String> for StreamId {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<StreamId> for String {
    fn from(id: StreamId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// What a lease is known by: stream entry and delivery number. In JSON `["1700000000000-0", 1]`.
///
/// A number given back by an uncounted release is used again, so a token is a slot's own only together with its
/// [`Consumer`]: a result envelope names both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(StreamId, u32)", into = "(StreamId, u32)")]
pub struct Token {
    /// The stream entry.
    pub entry: StreamId,
    /// How many times it was handed out, this time included and uncounted ones left out; from 1.
    pub delivery: u32,
}

impl From<(StreamId, u32)> for Token {
    fn from((entry, delivery): (StreamId, u32)) -> Self {
        Self { entry, delivery }
    }
}

impl From<Token> for (StreamId, u32) {
    fn from(token: Token) -> Self {
        (token.entry, token.delivery)
    }
}

/// One life of an agent: its name, and a nonce drawn when it started (CL-8).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Agent {
    name: String,
    nonce: String,
}

impl Agent {
    /// The agent `name`, started as `nonce`.
    pub fn new(name: impl Into<String>, nonce: impl Into<String>) -> Result<Self, BadName> {
        Ok(Self {
            name: checked("agent name", name.into())?,
            nonce: checked("nonce", nonce.into())?,
        })
    }

    /// The name, the same after a restart.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The nonce, new at each start.
    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// One of its slots as a consumer.
    #[must_use]
    pub fn slot(&self, slot: u32) -> Consumer {
        Consumer {
            agent: self.clone(),
            slot,
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.nonce)
    }
}

/// Who leases: one slot of one life of an agent, `NAME/nonce/slot`. Holds one entry of a queue at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Consumer {
    /// Whose slot.
    pub agent: Agent,
    /// Which of them.
    pub slot: u32,
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.agent, self.slot)
    }
}
