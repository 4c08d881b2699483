//! Bytes in an envelope, or beside it.

use std::fs::File;
use std::sync::Arc;

use fairtrial_exec::Body;
use serde::{Deserialize, Serialize};

use super::base64::Base64;
use crate::blobs::{Blob, Digest};

/// Bytes: in the envelope, or in a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "CarriedFields")]
pub enum Carried {
    /// Here, as people read it.
    Text {
        /// The text.
        text: String,
    },
    /// Here.
    Bytes {
        /// As JSON has them.
        base64: Base64,
    },
    /// In the store.
    Blob(Blob),
}

/// All fields that bytes of any kind have. Read in one pass; an untagged enum would be read once for each kind.
#[derive(Deserialize)]
struct CarriedFields {
    text: Option<String>,
    base64: Option<Base64>,
    digest: Option<Digest>,
    bytes: Option<u64>,
}

impl TryFrom<CarriedFields> for Carried {
    type Error = &'static str;

    fn try_from(fields: CarriedFields) -> Result<Self, Self::Error> {
        match fields {
            CarriedFields {
                text: Some(text), ..
            } => Ok(Self::Text { text }),
            CarriedFields {
                base64: Some(base64),
                ..
            } => Ok(Self::Bytes { base64 }),
            CarriedFields {
                digest: Some(digest),
                bytes: Some(bytes),
                ..
            } => Ok(Self::Blob(Blob { digest, bytes })),
            _ => Err("neither text, bytes nor a blob"),
        }
    }
}

impl Default for Carried {
    fn default() -> Self {
        Self::Text {
            text: String::new(),
        }
    }
}

/// What has to be in the store before an envelope may be read.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its name there.
    pub blob: Blob,
    /// What it holds.
    pub body: OutgoingBody,
}

/// What a blob is made of.
#[derive(Clone, Debug)]
pub enum OutgoingBody {
    /// In memory.
    Bytes(Vec<u8>),
    /// All of a file.
    File(Arc<File>),
    /// A value, perhaps mapped.
    Value(Arc<Body>),
}

impl Carried {
    /// In the envelope, as text where that is possible.
    #[must_use]
    pub fn here(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            // Control characters would each take six bytes of JSON.
            Ok(text) if !text.bytes().any(|byte| byte < b' ' && byte != b'\n') => Self::Text {
                text: text.to_owned(),
            },
            _ => Self::Bytes {
                base64: bytes.to_vec().into(),
            },
        }
    }

    /// How much of an envelope it takes, about.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::Bytes { base64 } => base64.length(),
            Self::Blob(_) => 0,
        }
    }

    /// The bytes, if they are here; those of a blob are asked for from the store.
    pub fn bytes(&self) -> Result<Vec<u8>, &Blob> {
        match self {
            Self::Text { text } => Ok(text.clone().into_bytes()),
            Self::Bytes { base64 } => Ok(base64.bytes().to_vec()),
            Self::Blob(blob) => Err(blob),
        }
    }

    /// Puts what is here into a blob; what is in one already stays there.
    pub(super) fn put_aside(&mut self) -> Option<Outgoing> {
        let bytes = self.bytes().ok()?;
        let outgoing = Outgoing::of(bytes);
        *self = Self::Blob(outgoing.blob);
        Some(outgoing)
    }
}

impl Outgoing {
    /// A blob of these bytes.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        Self {
            blob: Blob::of(&bytes),
            body: OutgoingBody::Bytes(bytes),
        }
    }
}
