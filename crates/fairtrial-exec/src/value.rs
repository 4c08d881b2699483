//! The data codec.

/// Bytes that are no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// The JSON form of encoded bytes.
pub fn to_json(_bytes: &[u8]) -> Result<serde_json::Value, Malformed> {
    Err(Malformed("codec not merged yet".into()))
}

/// The JSON form of a pickle, which stays closed.
#[must_use]
pub fn pickle_to_json(_bytes: &[u8]) -> serde_json::Value {
    serde_json::Value::Null
}
