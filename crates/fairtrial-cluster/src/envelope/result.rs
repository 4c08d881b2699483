//! The envelope of a result.

use fairtrial_exec::{Body, EngineError, Outcome};
use serde::{Deserialize, Serialize};

use super::carried::Outgoing;
use super::outcome::OutcomeRecord;
use super::task::{Misread, PROTOCOL, read_envelope};
use crate::blobs::Blob;
use crate::names::Token;
use crate::terms::MAX_RESULT;

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ResultFields")]
pub struct ResultEnvelope {
    /// By which version.
    pub protocol: String,
    /// Of the lease that it was made under; none if dispatch itself recorded it.
    pub token: Option<Token>,
    /// Who made it.
    pub agent: Option<String>,
    /// What became of it.
    #[serde(flatten)]
    pub told: Told,
}

/// The two kinds of results.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Told {
    /// A trial took place, or was called off.
    Outcome {
        /// How it went.
        outcome: Box<OutcomeRecord>,
    },
    /// None did.
    Error {
        /// Why.
        error: TaskError,
    },
}

/// All fields that results of both kinds have. Read in one pass; a flattened enum would be read twice.
#[derive(Deserialize)]
struct ResultFields {
    protocol: String,
    token: Option<Token>,
    agent: Option<String>,
    kind: Kind,
    outcome: Option<Box<OutcomeRecord>>,
    error: Option<TaskError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Outcome,
    Error,
}

impl TryFrom<ResultFields> for ResultEnvelope {
    type Error = &'static str;

    fn try_from(fields: ResultFields) -> Result<Self, Self::Error> {
        let told = match (fields.kind, fields.outcome, fields.error) {
            (Kind::Outcome, Some(outcome), _) => Told::Outcome { outcome },
            (Kind::Error, _, Some(error)) => Told::Error { error },
            _ => return Err("what its kind says is missing"),
        };
        Ok(Self {
            protocol: fields.protocol,
            token: fields.token,
            agent: fields.agent,
            told,
        })
    }
}

/// Why a task has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct TaskError {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
}

/// Why a task has no outcome, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// Agents that had it were lost, or their engines failed.
    Lost,
    /// Its envelope cannot be read by any agent.
    Invalid,
    /// Something it needs is not in the store.
    BlobMissing,
    /// Something it needs, or its value, is not what was stored.
    BlobCorrupt,
    /// Its value does not fit, and there is no store.
    NoStore,
    /// Its value, or something it needs, is more than anybody takes.
    TooLarge,
    /// Made by a later version.
    #[serde(other)]
    Other,
}

/// An envelope ready to be sent.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// The envelope.
    pub bytes: Vec<u8>,
    /// What has to be in the store first.
    pub outgoing: Vec<Outgoing>,
}

impl ResultEnvelope {
    /// Of an outcome.
    #[must_use]
    pub fn seal(outcome: Outcome, token: Token, agent: &str) -> Sealed {
        let mut outgoing = Vec::new();
        let record = OutcomeRecord::of(outcome, &mut outgoing);
        let mut envelope = Self::new(
            Told::Outcome {
                outcome: Box::new(record),
            },
            Some(token),
            Some(agent),
        );
        let mut bytes = envelope.to_bytes();
        while bytes.len() > MAX_RESULT {
            let Told::Outcome { outcome } = &mut envelope.told else {
                break;
            };
            let Some(piece) = outcome.put_longest_aside() else {
                break; // names and numbers alone are not that long
            };
            outgoing.push(piece);
            bytes = envelope.to_bytes();
        }
        Sealed { bytes, outgoing }
    }

    /// Of an error.
    #[must_use]
    pub fn of_error(error: TaskError, token: Token, agent: &str) -> Vec<u8> {
        Self::new(Told::Error { error }, Some(token), Some(agent)).to_bytes()
    }

    /// Of an outcome that nobody's run led to.
    #[must_use]
    pub fn unsigned(outcome: Outcome) -> Vec<u8> {
        let outcome = Box::new(OutcomeRecord::of(outcome, &mut Vec::new()));
        Self::new(Told::Outcome { outcome }, None, None).to_bytes()
    }

    /// Of an error that is nobody's.
    #[must_use]
    pub fn unsigned_error(error: TaskError) -> Vec<u8> {
        Self::new(Told::Error { error }, None, None).to_bytes()
    }

    /// Whether it is an outcome that says so.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(&self.told, Told::Outcome { outcome } if outcome.is_cancelled())
    }

    fn new(told: Told, token: Option<Token>, agent: Option<&str>) -> Self {
        Self {
            protocol: format!("{}.{}", PROTOCOL.0, PROTOCOL.1),
            token,
            agent: agent.map(str::to_owned),
            told,
        }
    }

    /// From the bytes of one.
    pub fn read(bytes: &[u8]) -> Result<Self, TaskError> {
        let unreadable = |problem: String| TaskError {
            code: ErrorCode::Invalid,
            message: format!("the recorded result cannot be read: {problem}"),
        };
        read_envelope(bytes, |envelope: &Self| &envelope.protocol).map_err(|why| match why {
            Misread::Other(theirs) => unreadable(format!("it speaks protocol {theirs}")),
            Misread::Damaged(error) => unreadable(error.to_string()),
        })
    }

    /// What has to be fetched before it can be used.
    #[must_use]
    pub fn blobs(&self) -> Vec<&Blob> {
        match &self.told {
            Told::Outcome { outcome } => outcome.blobs(),
            Told::Error { .. } => Vec::new(),
        }
    }

    /// The outcome, with blobs as `fetch` gives them: asked for once for each of [`blobs`](Self::blobs), which may
    /// have the same one twice.
    pub fn to_outcome(
        &self,
        mut fetch: impl FnMut(&Blob) -> Option<Body>,
    ) -> Result<Outcome, TaskError> {
        let outcome = match &self.told {
            Told::Outcome { outcome } => outcome,
            Told::Error { error } => return Err(error.clone()),
        };
        let mut lacking = None;
        let made = outcome.to_outcome(|blob| {
            let body = fetch(blob);
            lacking = lacking.or(body.is_none().then_some(*blob));
            body
        });
        made.ok_or_else(|| match lacking {
            Some(blob) => TaskError {
                code: ErrorCode::BlobMissing,
                message: format!(
                    "the blob {} of the recorded result is not here",
                    blob.digest
                ),
            },
            None => TaskError {
                code: ErrorCode::Invalid,
                message: "the recorded result holds a word that is not known here".to_owned(),
            },
        })
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("made of what JSON has")
    }
}

impl From<TaskError> for EngineError {
    fn from(error: TaskError) -> Self {
        Self::Elsewhere {
            code: error.code.name(),
            problem: error.message,
        }
    }
}

impl ErrorCode {
    /// The name in the public contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Invalid => "invalid",
            Self::BlobMissing => "blob_missing",
            Self::BlobCorrupt => "blob_corrupt",
            Self::NoStore => "no_store",
            Self::TooLarge => "too_large",
            Self::Other => "other",
        }
    }
}
