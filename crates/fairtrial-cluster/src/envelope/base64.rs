//! Bytes in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Bytes that JSON has as base64. What is none is refused when it is read, and is never other bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Base64(Vec<u8>);

impl Base64 {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// How long it is in JSON.
    pub(super) fn length(&self) -> usize {
        self.0.len().div_ceil(3) * 4
    }
}

impl From<Vec<u8>> for Base64 {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<Base64> for String {
    fn from(Base64(bytes): Base64) -> Self {
        STANDARD.encode(bytes)
    }
}

impl TryFrom<String> for Base64 {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, base64::DecodeError> {
        STANDARD.decode(text).map(Self)
    }
}
