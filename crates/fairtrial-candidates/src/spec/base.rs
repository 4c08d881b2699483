//! What candidates change, and where they come from.

use fairtrial_document::node::Content;
use serde_json::{Value as Json, json};

use super::field::Field;
use super::path::SpecPath;
use super::worded::worded;

/// What the base is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseRef {
    /// The files as they are: tracked, changed, and untracked ones that are not ignored.
    WorkingTree,
    /// `HEAD`, or whatever else git takes for a commit.
    Commit(String),
}

const WORKING_TREE: &str = "working-tree";

impl BaseRef {
    pub(super) fn read(field: Field<'_, '_>) -> Option<Self> {
        let text = field.line()?;
        if text == WORKING_TREE {
            return Some(Self::WorkingTree);
        }
        // It is handed to git, which would take it for an option.
        if text.starts_with('-') || text.contains(char::is_whitespace) {
            let hint = "write `HEAD`, a commit or `working-tree`";
            return field.refuse("base", "names no commit", hint);
        }
        Some(Self::Commit(text))
    }

    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::WorkingTree => json!(WORKING_TREE),
            Self::Commit(commit) => json!(commit),
        }
    }
}

/// A directory that all workspaces share: dependencies, mostly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Where it is.
    pub path: SpecPath,
    /// What may be done to it.
    pub mode: SharedMode,
}

/// What a command may do to a shared directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedMode {
    /// Read it.
    #[default]
    ReadOnly,
    /// Change it, for itself alone.
    CopyOnWrite,
}

worded!(SharedMode { ReadOnly => "ro", CopyOnWrite => "cow" });

impl Shared {
    pub(super) fn read(field: &Field<'_, '_>) -> Option<Self> {
        if field.node.as_text().is_some() {
            let mode = SharedMode::default();
            return field.path().map(|path| Self { path, mode });
        }
        if !matches!(field.node.content, Content::Map(_)) {
            return field.wrong_type("a path or a mapping", "");
        }
        let record = field.record(&["path", "mode"]);
        let mode = record.read("mode", Field::word).unwrap_or_default();
        let path = record.require("path", |field| field.path())?;
        Some(Self { path, mode })
    }

    pub(super) fn to_json(&self) -> Json {
        json!({"path": self.path.to_json(), "mode": self.mode.to_string()})
    }
}

/// Where candidates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory of patches.
    Patches(SpecPath),
    /// A directory with one directory per candidate.
    Trees(SpecPath),
    /// A file of JSON lines.
    Jsonl(SpecPath),
}

pub(super) const SOURCES: &[&str] = &["patches", "trees", "jsonl"];

impl Source {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &SpecPath {
        match self {
            Self::Patches(path) | Self::Trees(path) | Self::Jsonl(path) => path,
        }
    }

    /// Its key: `patches`, `trees` or `jsonl`.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Patches(_) => "patches",
            Self::Trees(_) => "trees",
            Self::Jsonl(_) => "jsonl",
        }
    }

    pub(super) fn read(field: &Field<'_, '_>) -> Option<Self> {
        let record = field.record(SOURCES);
        let given = SOURCES.iter().filter_map(|key| record.field(key));
        let given: Vec<_> = given.collect();
        let [source] = given.as_slice() else {
            const HINT: &str = "a source is one of `patches`, `trees` and `jsonl`";
            match given.len() {
                0 => record.missing_any(&format!("`{}` names no source", field.name), HINT),
                _ => record.contradiction(SOURCES, "a source of candidates has one key", HINT),
            }
            return None;
        };
        let path = source.path()?;
        Some(match source.name.as_str() {
            "patches" => Self::Patches(path),
            "trees" => Self::Trees(path),
            _ => Self::Jsonl(path),
        })
    }

    pub(super) fn to_json(&self) -> Json {
        json!({self.key(): self.path().to_json()})
    }
}
