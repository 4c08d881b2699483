//! What a worker's frame says, out of bytes that nobody vouches for. Pure: whether it is believed is decided elsewhere.

use crate::protocol::Kind;

/// A frame's meaning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It begins a call, at this time by its own clock, having used so much processor time.
    Began { stamp_ns: u64, used_ns: u64 },
    /// The user's code starts now.
    RunsUserCode,
    /// A call sent ahead had been taken back.
    Skipped,
    /// Processor time of the call whose reply follows.
    Used { user_ns: u64, system_ns: u64 },
    /// It has so many bytes to deliver.
    Needs { bytes: u64 },
    /// The value.
    Value(Vec<u8>),
    /// An error record.
    Error(Vec<u8>),
    /// The answer, of the kind with this number, is in the file.
    Filed { kind: u8, bytes: u64 },
}

impl Said {
    /// What a frame says during a call; the reason if it has no place there.
    pub(crate) fn read(kind: Kind, payload: Vec<u8>) -> Result<Self, String> {
        let word = |at: usize| payload.get(at..)?.first_chunk().copied();
        let number = |at| word(at).map(u64::from_le_bytes).unwrap_or_default();
        Ok(match (kind, payload.len()) {
            (Kind::Ack, 16) => Self::Began {
                stamp_ns: number(0),
                used_ns: number(8),
            },
            (Kind::Run, 0) => Self::RunsUserCode,
            (Kind::Skipped, 0) => Self::Skipped,
            (Kind::Usage, 16) => Self::Used {
                user_ns: number(0),
                system_ns: number(8),
            },
            (Kind::Need, 8) => Self::Needs { bytes: number(0) },
            (Kind::Filed, 9) => Self::Filed {
                kind: payload[0],
                bytes: number(1),
            },
            (Kind::Value, _) => Self::Value(payload),
            (Kind::Error, _) => Self::Error(payload),
            (kind, length) => {
                return Err(format!(
                    "a frame of kind {kind:?} with {length} bytes is out of place"
                ));
            }
        })
    }

    /// The frame's kind and payload that say it.
    pub(crate) fn write(self) -> (Kind, Vec<u8>) {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        match self {
            Self::Began { stamp_ns, used_ns } => (Kind::Ack, words(&[stamp_ns, used_ns])),
            Self::RunsUserCode => (Kind::Run, Vec::new()),
            Self::Skipped => (Kind::Skipped, Vec::new()),
            Self::Used { user_ns, system_ns } => (Kind::Usage, words(&[user_ns, system_ns])),
            Self::Needs { bytes } => (Kind::Need, words(&[bytes])),
            Self::Value(payload) => (Kind::Value, payload),
            Self::Error(payload) => (Kind::Error, payload),
            Self::Filed { kind, bytes } => {
                let payload = [&[kind][..], &bytes.to_le_bytes()].concat();
                (Kind::Filed, payload)
            }
        }
    }
}
