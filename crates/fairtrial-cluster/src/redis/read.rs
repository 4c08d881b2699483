//! Answers of scripts read: a word, then what it carries.

use std::str::FromStr;

use redis::Value;

use crate::dispatch::DispatchError;

/// An answer, read from its front.
pub(super) struct Reply {
    operation: &'static str,
    values: std::vec::IntoIter<Value>,
}

impl Reply {
    pub(super) fn new(operation: &'static str, value: Value) -> Self {
        let values = match value {
            Value::Array(values) => values,
            other => vec![other],
        };
        Self {
            operation,
            values: values.into_iter(),
        }
    }

    /// What is next, as bytes.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, DispatchError> {
        match self.values.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            Some(Value::Int(number)) => Ok(number.to_string().into_bytes()),
            other => Err(self.odd(&format!("{other:?}"))),
        }
    }

    /// What is next, as text.
    pub(super) fn text(&mut self) -> Result<String, DispatchError> {
        String::from_utf8(self.bytes()?).map_err(|_| self.odd("text that is not UTF-8"))
    }

    /// What is next, parsed.
    pub(super) fn parse<T: FromStr>(&mut self) -> Result<T, DispatchError> {
        let text = self.text()?;
        text.parse().map_err(|_| self.odd(&text))
    }

    /// Whether nothing is left of it.
    pub(super) fn is_read(&self) -> bool {
        self.values.as_slice().is_empty()
    }

    /// What is next, or nothing.
    pub(super) fn optional(&mut self) -> Result<Option<Vec<u8>>, DispatchError> {
        match self.values.next() {
            None | Some(Value::Nil) => Ok(None),
            Some(Value::BulkString(bytes)) => Ok(Some(bytes)),
            other => Err(self.odd(&format!("{other:?}"))),
        }
    }

    /// What is next, an answer of its own.
    pub(super) fn inner(&mut self) -> Self {
        Self::new(self.operation, self.values.next().unwrap_or(Value::Nil))
    }

    /// The JSON that is next.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, DispatchError> {
        let text = self.text()?;
        serde_json::from_str(&text).map_err(|_| self.odd(&text))
    }

    /// The error for an answer we do not understand.
    pub(super) fn odd(&self, what: &str) -> DispatchError {
        let problem = format!(
            "the server answered `{}`",
            what.chars().take(200).collect::<String>()
        );
        DispatchError::Protocol {
            operation: self.operation,
            problem,
        }
    }
}
