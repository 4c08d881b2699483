//! What comes back of a parcel: sealed where its call ran, opened where somebody waits for it.

use fairtrial_exec::{Answer, Body, EngineError, ResultFile, Verdict, Writers};

use super::{Packer, named, waited};
use crate::blobs::{Blob, BlobError, BlobStore};
use crate::envelope::{ErrorCode, Outgoing, OutgoingBody, ResultEnvelope, TaskError};
use crate::names::{StreamId, Token};

/// What is larger is not held in memory of our own.
const SMALL: u64 = 1 << 20;

/// Which try of which task: what a reply answers (CL-66).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The task's number at its driver.
    pub task: u64,
    /// From 1.
    pub attempt: u32,
}

/// An answer as it travels.
#[derive(Debug)]
pub struct Reply {
    /// What is to be done with it: `outcome` and `error` are final, `refused` may be better elsewhere (CL-22), `failed`
    /// is worth another try (CL-26).
    pub kind: &'static str,
    /// The envelope.
    pub envelope: Vec<u8>,
    /// What goes beside it; nothing if there is a store.
    pub beside: Vec<OutgoingBody>,
}

impl Reply {
    /// Of the local engine's answer. Blocks while it is stored, if there is a store.
    #[must_use]
    pub fn seal(answer: Answer, attempt: Attempt, node: &str, store: Option<&BlobStore>) -> Self {
        let outcome = match answer {
            Ok(outcome) => outcome,
            Err(error @ EngineError::InvalidCall(_)) => {
                return Self::of_error(
                    "error",
                    ErrorCode::Invalid,
                    error.to_string(),
                    attempt,
                    node,
                );
            }
            Err(error) => {
                return Self::of_error("failed", ErrorCode::Lost, error.to_string(), attempt, node);
            }
        };
        let kind = match outcome.verdict {
            Verdict::SetupFailed => "refused",
            _ => "outcome",
        };
        let sealed = ResultEnvelope::seal(outcome, attempt.into(), node);
        let beside = match store {
            None => sealed
                .outgoing
                .into_iter()
                .map(|piece| piece.body)
                .collect(),
            Some(store) => match keep(store, sealed.outgoing) {
                Ok(()) => Vec::new(),
                Err(error) => return Self::unrun(error, attempt, node),
            },
        };
        Self {
            kind,
            envelope: sealed.bytes,
            beside,
        }
    }

    /// Of a parcel that could not be run, or whose outcome could not be stored.
    #[must_use]
    pub fn unrun(error: TaskError, attempt: Attempt, node: &str) -> Self {
        let kind = match error.code {
            ErrorCode::Other | ErrorCode::Lost => "failed", // a store that could not be reached
            _ => "error",
        };
        Self::of_error(kind, error.code, error.message, attempt, node)
    }

    fn of_error(
        kind: &'static str,
        code: ErrorCode,
        message: String,
        attempt: Attempt,
        node: &str,
    ) -> Self {
        let error = TaskError { code, message };
        Self {
            kind,
            envelope: ResultEnvelope::of_error(error, attempt.into(), node),
            beside: Vec::new(),
        }
    }
}

fn keep(store: &BlobStore, outgoing: Vec<Outgoing>) -> Result<(), TaskError> {
    let kept = waited(async {
        for piece in outgoing {
            store.keep_outgoing(piece).await?;
        }
        Ok(())
    });
    let kept = kept.map_err(|error| lost(error.to_string()))?;
    kept.map_err(|error: BlobError| match error.code() {
        Some(_) => error.to_task_error(),
        None => lost(error.to_string()),
    })
}

fn lost(message: String) -> TaskError {
    let code = ErrorCode::Lost;
    TaskError { code, message }
}

impl Packer {
    /// The answer that a reply holds; none if it answers another attempt than this.
    pub fn open(&self, envelope: &[u8], beside: Vec<Vec<u8>>, attempt: Attempt) -> Option<Answer> {
        let envelope = match ResultEnvelope::read(envelope) {
            Ok(envelope) => envelope,
            Err(error) => return Some(Err(error.into())),
        };
        if envelope.token != Some(attempt.into()) {
            return None;
        }
        Some(self.opened(&envelope, named(beside)))
    }

    fn opened(&self, envelope: &ResultEnvelope, mut beside: Vec<(Blob, Vec<u8>)>) -> Answer {
        let mut bodies = Vec::new();
        for blob in envelope.blobs() {
            let at = beside.iter().position(|(named, _)| named == blob);
            let body = match (at, &self.store) {
                (Some(at), _) => self.body(&beside[at].1)?,
                (None, Some(store)) => {
                    let got = waited(store.get(*blob, u64::MAX))??;
                    self.body(&got)?
                }
                (None, None) => return Err(missing(blob).into()),
            };
            bodies.push((*blob, body));
        }
        beside.clear();
        let outcome = envelope.to_outcome(|wanted| {
            let at = bodies.iter().position(|(blob, _)| blob == wanted)?;
            Some(bodies.remove(at).1)
        });
        Ok(outcome?)
    }

    fn body(&self, bytes: &[u8]) -> Result<Body, EngineError> {
        let size = bytes.len() as u64;
        if size <= SMALL {
            return Ok(Body::Inline(bytes.to_vec()));
        }
        let file = ResultFile::create(size, &self.spill)?;
        let mut left = bytes;
        while !left.is_empty() {
            let at = size - left.len() as u64;
            let written = rustix::io::pwrite(file.fd(), left, at);
            let written = written.map_err(EngineError::io("writing a value to its file"))?;
            left = &left[written..];
        }
        let settled = file.settle(size, Writers::Dead);
        settled.map_err(|error| EngineError::Elsewhere {
            code: "blobs",
            problem: error.to_string(),
        })
    }
}

fn missing(blob: &Blob) -> TaskError {
    TaskError {
        code: ErrorCode::BlobCorrupt,
        message: format!("what came with the result is not {}", blob.digest),
    }
}

impl From<Attempt> for Token {
    fn from(Attempt { task, attempt }: Attempt) -> Self {
        let entry = StreamId { ms: 0, seq: task };
        Self {
            entry,
            delivery: attempt,
        }
    }
}
