//! The envelope of a task.

use fairtrial_exec::{Arguments, Call};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use super::call::{CallRecord, HostRecord, WorkRecord};
use super::carried::{Carried, Outgoing};
use super::is_default;
use crate::blobs::Blob;
use crate::terms::MAX_ENVELOPE;

/// The version of envelopes made here. Another major one is not read; of a newer minor one what is not known is ignored.
pub const PROTOCOL: (u32, u32) = (1, 0);

/// Why bytes are no envelope for this side.
pub(super) enum Misread {
    /// Of another major version, this one.
    Other(String),
    Damaged(serde_json::Error),
}

/// Reads an envelope. Only of one that cannot be read otherwise is what all versions have read by itself.
pub(super) fn read_envelope<T: DeserializeOwned>(
    bytes: &[u8],
    protocol: impl FnOnce(&T) -> &str,
) -> Result<T, Misread> {
    #[derive(Deserialize)]
    struct Head {
        protocol: String,
    }
    let other = |protocol: &str| {
        let major = protocol.split('.').next().and_then(|it| it.parse().ok());
        (major != Some(PROTOCOL.0)).then(|| Misread::Other(protocol.to_owned()))
    };
    match serde_json::from_slice(bytes) {
        Ok(envelope) => other(protocol(&envelope)).map_or(Ok(envelope), Err),
        Err(error) => {
            let head: Option<Head> = serde_json::from_slice(bytes).ok(); // else it is damaged
            let other = head.and_then(|head| other(&head.protocol));
            Err(other.unwrap_or(Misread::Damaged(error)))
        }
    }
}

/// One call to be recorded once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEnvelope {
    protocol: String,
    key: String,
    call: CallRecord,
    /// What an agent must have to run it.
    pub needs: Needs,
}

/// What an agent must have to run a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Needs {
    /// The version of Python (`3.12`) that pickled it.
    #[serde(skip_serializing_if = "is_default")]
    pub python: Option<String>,
    /// The level of isolation asked for.
    pub level: String,
    /// Devices by name.
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<String>,
}

/// An envelope ready to be sent.
#[derive(Clone, Debug)]
pub struct SealedTask {
    /// The same for the same call and key.
    pub bytes: Vec<u8>,
    /// What has to be in the store first.
    pub outgoing: Vec<Outgoing>,
    /// How long the task may wait for an agent.
    pub queue_timeout_ns: Option<u64>,
}

/// Why an envelope cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableTask {
    /// Made by another major version.
    #[error("the task speaks protocol {theirs}, this agent {}.{}", PROTOCOL.0, PROTOCOL.1)]
    OtherProtocol {
        /// Theirs.
        theirs: String,
    },
    /// No envelope.
    #[error("the task's envelope cannot be read: {0}")]
    Damaged(String),
    /// What is asked for does not fit any envelope.
    #[error(
        "the call's environment, arguments and paths take {0} bytes, above {MAX_ENVELOPE}: pass less, or in a file"
    )]
    TooLong(usize),
}

/// What a blob of a task is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobUse {
    /// To be read whole: source text, input, an initializer.
    Text,
    /// Arguments, which a worker reads from a file.
    Arguments,
    /// A packed directory.
    Directory,
}

/// Blobs of packed directories, and of arguments that are in a file or go by themselves.
#[derive(Clone, Debug, Default)]
pub struct PackedParts {
    /// One for each directory of the call's `python_path`.
    pub path: Vec<Blob>,
    /// Where it is to run, if that goes with it.
    pub cwd: Option<Blob>,
    /// The arguments.
    pub file: Option<Blob>,
}

impl TaskEnvelope {
    /// Of a call; `python` is the version that pickled it, if one did.
    pub fn seal(
        call: &Call,
        key: &str,
        parts: PackedParts,
        python: Option<String>,
    ) -> Result<SealedTask, UnreadableTask> {
        let record = CallRecord::of(call, parts);
        let needs = Needs {
            python,
            level: record.sandbox.level.clone(),
            devices: record.sandbox.devices.clone(),
        };
        let mut envelope = Self {
            protocol: format!("{}.{}", PROTOCOL.0, PROTOCOL.1),
            key: key.to_owned(),
            call: record,
            needs,
        };
        let mut outgoing = Vec::new();
        let mut bytes = envelope.to_bytes();
        while bytes.len() > MAX_ENVELOPE {
            let longest = envelope
                .call
                .pieces()
                .into_iter()
                .max_by_key(|piece| piece.length());
            match longest
                .filter(|piece| piece.length() > 0)
                .and_then(Carried::put_aside)
            {
                Some(piece) => outgoing.push(piece),
                None => return Err(UnreadableTask::TooLong(bytes.len())),
            }
            bytes = envelope.to_bytes();
        }
        Ok(SealedTask {
            bytes,
            outgoing,
            queue_timeout_ns: envelope.call.queue_timeout_ns,
        })
    }

    /// From the bytes of one.
    pub fn read(bytes: &[u8]) -> Result<Self, UnreadableTask> {
        read_envelope(bytes, |envelope: &Self| &envelope.protocol).map_err(|why| match why {
            Misread::Other(theirs) => UnreadableTask::OtherProtocol { theirs },
            Misread::Damaged(error) => UnreadableTask::Damaged(error.to_string()),
        })
    }

    /// The key it was submitted with.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What has to be fetched before it can be run.
    #[must_use]
    pub fn blobs(&self) -> Vec<(&Blob, BlobUse)> {
        let blob = |carried: &'_ Carried| carried.bytes().is_err();
        let carried: Vec<(&Carried, BlobUse)> = match &self.call.work {
            WorkRecord::Source {
                source, arguments, ..
            } => vec![(source, BlobUse::Text), (arguments, BlobUse::Arguments)],
            WorkRecord::Pickled { body, python } => {
                let initializer = python.host.iter().filter_map(HostRecord::initializer);
                let initializer = initializer.map(|carried| (carried, BlobUse::Text));
                [(body, BlobUse::Arguments)]
                    .into_iter()
                    .chain(initializer)
                    .collect()
            }
            WorkRecord::Command { stdin, .. } => vec![(stdin, BlobUse::Text)],
        };
        let carried = carried.into_iter().filter(|(carried, _)| blob(carried));
        let mut blobs: Vec<(&Blob, BlobUse)> = carried
            .filter_map(|(carried, purpose)| Some((carried.bytes().err()?, purpose)))
            .collect();
        if let Some(python) = self.call.python() {
            blobs.extend(python.path.iter().map(|blob| (blob, BlobUse::Directory)));
        }
        let cwd = self.call.packed_cwd.iter();
        blobs.extend(cwd.map(|blob| (blob, BlobUse::Directory)));
        blobs
    }

    /// The call, with directories unpacked at `path`, in the order of [`TaskEnvelope::blobs`], and other blobs as `fetch` gives them.
    pub fn to_call(
        &self,
        path: Vec<PathBuf>,
        mut fetch: impl FnMut(&Blob) -> Option<Arguments>,
    ) -> Result<Call, UnreadableTask> {
        let unknown = || UnreadableTask::Damaged("a word in it is not known here".to_owned());
        self.call.to_call(path, &mut fetch).ok_or_else(unknown)
    }

    /// The interpreter that it names, if it needs one.
    #[must_use]
    pub fn interpreter(&self) -> Option<&str> {
        self.call.python().map(|python| python.python.as_str())
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("made of what JSON has")
    }
}
