//! Paths of an evaluation: as written, and where they lead.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

/// A path of the machine. Two are equal if they lead to the same place, however they were written.
#[derive(Clone, Debug, Eq)]
pub struct SpecPath {
    /// As it was written.
    pub text: String,
    /// From the evaluation file's directory on, absolute.
    pub path: PathBuf,
}

impl PartialEq for SpecPath {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl SpecPath {
    /// A path as written, seen from a directory. `.` and doubled slashes are dropped; `..` stays, for what is before it may
    /// be a link.
    #[must_use]
    pub fn new(text: impl Into<String>, directory: &Path) -> Self {
        let text = text.into();
        let path = directory.join(&text).components().collect();
        Self { text, path }
    }

    /// Where it leads, so that it means the same from every directory. A directory whose name is no text cannot be in
    /// JSON; what was written means the same from there.
    pub(super) fn to_json(&self) -> Json {
        json!(self.path.to_str().unwrap_or(&self.text))
    }
}
