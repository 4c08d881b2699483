//! What is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use fairtrial_document::node::Content;
use serde_json::{Value as Json, json};

use super::command::Command;
use super::field::Field;
use super::test_command::{named, tree_json};
use super::units::{minutes, seconds};
use crate::stage::TreePath;

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Bench {
    /// Nothing: candidates are right or wrong.
    None,
    /// The test commands.
    ReuseTests,
    /// Commands of their own; at least one.
    Commands(Vec<BenchCommand>),
}

/// A command that is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchCommand {
    /// Unlike any other's; `bench-1` and so on where none is given.
    pub name: String,
    /// What is run.
    pub command: Command,
    /// How long it may take.
    pub timeout: Duration,
    /// How much it counts.
    pub weight: f64,
    /// What is put in the place of `{loops}`.
    pub loops: Loops,
    /// Where in the workspace it runs; none is the root.
    pub cwd: Option<TreePath>,
    /// Variables of its own.
    pub env: BTreeMap<String, String>,
}

/// How often a bench command does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    /// So often.
    Fixed(u32),
    /// As often as fills a time worth measuring, on each side.
    Auto,
}

const WORDS: [&str; 2] = ["none", "reuse-tests"];

impl Bench {
    pub(super) fn read(field: &Field<'_, '_>) -> Option<Self> {
        match (field.written(), &field.node.content) {
            (Some("none"), _) => Some(Self::None),
            (Some("reuse-tests"), _) => Some(Self::ReuseTests),
            // A word cannot be told from a program; what else there is in a command can.
            (Some(word), _) if !word.contains([' ', '/', '.']) => {
                field.unknown_word(word, WORDS);
                None
            }
            (None, Content::List(_)) => Self::commands(field),
            _ => {
                let hint = "write `[{command: ...}]`";
                field.wrong_type("a list of commands, `none` or `reuse-tests`", hint)
            }
        }
    }

    fn commands(field: &Field<'_, '_>) -> Option<Self> {
        let items = field.items()?;
        if items.is_empty() {
            return field.refuse(
                "empty",
                "must not be empty",
                "write `none` to measure nothing",
            );
        }
        let items = items.iter().zip(1..);
        let commands = items.map(|(item, nth)| BenchCommand::read(item, nth));
        Some(Self::Commands(commands.collect()))
    }

    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::None => json!("none"),
            Self::ReuseTests => json!("reuse-tests"),
            Self::Commands(commands) => commands.iter().map(BenchCommand::to_json).collect(),
        }
    }
}

impl BenchCommand {
    pub(super) const KEYS: &[&str] = &[
        "name", "command", "timeout", "weight", "loops", "cwd", "env",
    ];

    fn read(field: &Field<'_, '_>, nth: usize) -> Self {
        let record = field.record(Self::KEYS);
        let is_weight = |weight: f64| weight > 0.0 && weight.is_finite();
        let bench = Self {
            name: named(&record, "bench", nth),
            timeout: record
                .read("timeout", Field::duration)
                .unwrap_or(minutes(1)),
            weight: record
                .read("weight", |field| {
                    field.number(is_weight, "finite and greater than 0")
                })
                .unwrap_or(1.0),
            loops: record.read("loops", Loops::read).unwrap_or(Loops::Fixed(1)),
            cwd: record.read("cwd", |field| field.tree_path()).flatten(),
            env: record.read("env", Field::variables).unwrap_or_default(),
            command: record.command(),
        };
        if record.is_sound() && bench.loops == Loops::Auto && !bench.command.takes_loops() {
            let message = "`loops: auto` needs `{loops}` in the command";
            let hint = "the command must take how often it does its work";
            record.contradiction(&["command", "loops"], message, hint);
        }
        bench
    }

    fn to_json(&self) -> Json {
        json!({
            "name": self.name,
            "command": self.command.to_json(),
            "timeout": seconds(self.timeout),
            "weight": self.weight,
            "loops": self.loops.to_json(),
            "cwd": self.cwd.as_ref().map(tree_json),
            "env": self.env,
        })
    }
}

impl Loops {
    fn read(field: Field<'_, '_>) -> Option<Self> {
        match field.node.as_text() {
            Some("auto") => Some(Self::Auto),
            Some(word) => {
                field.unknown_word(word, ["auto"]);
                None
            }
            None => field.count(1..=u32::MAX).map(Self::Fixed),
        }
    }

    fn to_json(self) -> Json {
        match self {
            Self::Auto => json!("auto"),
            Self::Fixed(loops) => json!(loops),
        }
    }
}
