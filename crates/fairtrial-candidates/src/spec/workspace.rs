//! Where candidates run, with what variables, and what is looked at afterwards.

use std::collections::BTreeMap;

use fairtrial_document::node::Content;
use serde_json::{Value as Json, json};

use super::command::Command;
use super::field::Field;
use super::worded::worded;

/// Where candidates run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// How workspaces are made.
    pub provider: Provider,
    /// Where changes are kept.
    pub upper: Upper,
    /// How much of them.
    pub upper_bytes: u64,
    /// What a candidate sees of git.
    pub git: Git,
}

/// How workspaces are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// The first of the others that the machine can do.
    #[default]
    Auto,
    /// An overlay in a user namespace.
    OverlayUserns,
    /// An overlay, mounted by root.
    OverlayRoot,
    /// A copy that shares its blocks.
    Reflink,
    /// A copy.
    Copy,
    /// A git worktree.
    Worktree,
}

worded!(Provider {
    Auto => "auto",
    OverlayUserns => "overlay-userns",
    OverlayRoot => "overlay-root",
    Reflink => "reflink",
    Copy => "copy",
    Worktree => "worktree",
});

/// Where changes in a workspace are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upper {
    /// In memory while there is enough.
    #[default]
    Auto,
    /// In memory.
    Tmpfs,
    /// On disk.
    Disk,
}

worded!(Upper { Auto => "auto", Tmpfs => "tmpfs", Disk => "disk" });

/// What a candidate sees of git.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Git {
    /// A repository of one commit.
    #[default]
    OneCommit,
    /// Nothing.
    None,
}

worded!(Git { OneCommit => "one-commit", None => "none" });

impl Default for Workspace {
    fn default() -> Self {
        Self {
            provider: Provider::default(),
            upper: Upper::default(),
            upper_bytes: 1 << 30,
            git: Git::default(),
        }
    }
}

impl Workspace {
    pub(super) const KEYS: &[&str] = &["provider", "upper", "upper_size", "git"];

    pub(super) fn read(field: &Field<'_, '_>) -> Self {
        let record = field.record(Self::KEYS);
        let default = Self::default();
        Self {
            provider: record.read("provider", Field::word).unwrap_or_default(),
            upper: record.read("upper", Field::word).unwrap_or_default(),
            upper_bytes: record
                .read("upper_size", Field::size)
                .unwrap_or(default.upper_bytes),
            git: record.read("git", Field::word).unwrap_or_default(),
        }
    }

    pub(super) fn to_json(&self) -> Json {
        json!({
            "provider": self.provider.to_string(),
            "upper": self.upper.to_string(),
            "upper_size": self.upper_bytes,
            "git": self.git.to_string(),
        })
    }
}

/// Variables besides those that every command has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Env {
    /// Names of those that are handed on, if they are there.
    pub pass: Vec<String>,
    /// Those that are set.
    pub set: BTreeMap<String, String>,
}

impl Env {
    pub(super) fn read(field: &Field<'_, '_>) -> Self {
        let record = field.record(&["pass", "set"]);
        Self {
            pass: record
                .read("pass", Field::variable_names)
                .unwrap_or_default(),
            set: record.read("set", Field::variables).unwrap_or_default(),
        }
    }

    pub(super) fn to_json(&self) -> Json {
        json!({"pass": self.pass, "set": self.set})
    }
}

/// Whether winner and base are profiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Changed Python functions, line by line.
    #[default]
    Auto,
    /// They are not.
    Off,
    /// By a command.
    Command(Command),
}

impl Profile {
    pub(super) fn read(field: Field<'_, '_>) -> Option<Self> {
        if field.is_off() {
            return Some(Self::Off);
        }
        match field.written() {
            Some("auto") => Some(Self::Auto),
            Some(word) => {
                field.unknown_word(word, ["auto", "off"]);
                None
            }
            None if !matches!(field.node.content, Content::Map(_)) => {
                field.wrong_type("`auto`, `off` or a mapping", "")
            }
            None => {
                let record = field.record(&["command"]);
                record.require("command", Field::command).map(Self::Command)
            }
        }
    }

    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::Auto => json!("auto"),
            Self::Off => json!("off"),
            Self::Command(command) => json!({"command": command.to_json()}),
        }
    }
}
