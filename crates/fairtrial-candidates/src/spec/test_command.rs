//! What shows whether a candidate is right: building, tests, their judge, the base's own runs.

use std::collections::BTreeMap;
use std::time::Duration;

use fairtrial_exec::Time;
use serde_json::{Value as Json, json};

use super::command::Command;
use super::field::Field;
use super::path::SpecPath;
use super::reader::Record;
use super::units::{minutes, seconds};
use super::worded::{Worded, worded};
pub use crate::cases::{OutputTerms as OutputCheck, ResultsKind};
use crate::stage::TreePath;

/// The time of a command that does not say.
const TIMEOUT: Duration = minutes(10);

/// What is run once per side, and whose output is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// What is run.
    pub command: Command,
    /// How long it may take.
    pub timeout: Duration,
}

impl Build {
    pub(super) fn read(field: &Field<'_, '_>) -> Option<Self> {
        let record = field.record(&["command", "timeout"]);
        let timeout = record.read("timeout", Field::duration).unwrap_or(TIMEOUT);
        let command = record.require("command", Field::command)?;
        Some(Self { command, timeout })
    }

    pub(super) fn to_json(&self) -> Json {
        json!({"command": self.command.to_json(), "timeout": seconds(self.timeout)})
    }
}

/// A command that tests a side.
#[derive(Clone, Debug, PartialEq)]
pub struct TestCommand {
    /// Unlike any other's; `test-1` and so on where none is given.
    pub name: String,
    /// What is run.
    pub command: Command,
    /// How long all of it may take.
    pub timeout: Duration,
    /// What that counts.
    pub time: Time,
    /// How long one case may take.
    pub case_timeout: Option<Duration>,
    /// How its results are read.
    pub results: ResultsKind,
    /// Where it leaves them, seen from `cwd`; with [`ResultsKind::Junit`], and with it alone.
    pub junit_path: Option<TreePath>,
    /// Where in the workspace it runs; none is the root.
    pub cwd: Option<TreePath>,
    /// Variables of its own.
    pub env: BTreeMap<String, String>,
    /// Whether its output counts.
    pub output: OutputCheck,
    /// Who judges what it leaves, if not itself.
    pub judge: Option<Judge>,
}

worded!(ResultsKind { Exit => "exit", Junit => "junit", Pytest => "pytest" });

impl Worded for Time {
    const WORDS: &'static [(&'static str, Self)] = &[("wall", Self::Wall), ("cpu", Self::Cpu)];
}

worded!(OutputCheck { Ignore => "ignore", Compare => "compare" });

impl TestCommand {
    pub(super) const KEYS: &[&str] = &[
        "name",
        "command",
        "timeout",
        "time",
        "case_timeout",
        "results",
        "junit_path",
        "cwd",
        "env",
        "output",
        "judge",
    ];

    /// `nth` counts from 1.
    pub(super) fn read(field: &Field<'_, '_>, nth: usize) -> Self {
        let record = field.record(Self::KEYS);
        let results = record.read("results", Field::word).unwrap_or_default();
        let junit_path = record.read("junit_path", |field| match field.tree_path()? {
            Some(path) => Some(path),
            None => field.refuse("path", "names no file", ""),
        });
        check_junit(&record, results);
        let judge = record.field_or_none("judge");
        Self {
            name: named(&record, "test", nth),
            timeout: record.read("timeout", Field::duration).unwrap_or(TIMEOUT),
            time: record.read("time", Field::word).unwrap_or_default(),
            case_timeout: record
                .field_or_none("case_timeout")
                .and_then(Field::duration),
            results,
            junit_path,
            cwd: record.read("cwd", |field| field.tree_path()).flatten(),
            env: record.read("env", Field::variables).unwrap_or_default(),
            output: record.read("output", Field::word).unwrap_or_default(),
            judge: judge.and_then(|field| Judge::read(&field)),
            command: record.command(),
        }
    }

    pub(super) fn to_json(&self) -> Json {
        let mut written = json!({
            "name": self.name,
            "command": self.command.to_json(),
            "timeout": seconds(self.timeout),
            "case_timeout": self.case_timeout.map(seconds),
            "results": self.results.to_string(),
            "junit_path": self.junit_path.as_ref().map(tree_json),
            "cwd": self.cwd.as_ref().map(tree_json),
            "env": self.env,
            "output": self.output.to_string(),
            "judge": self.judge.as_ref().map(Judge::to_json),
        });
        // Evaluations that count wall time are written as before there was a choice.
        if self.time != Time::default() {
            written["time"] = self.time.to_string().into();
        }
        written
    }
}

/// CA-7
fn check_junit(record: &Record<'_, '_>, results: ResultsKind) {
    if !record.is_sound() {
        return;
    }
    const KEYS: [&str; 2] = ["results", "junit_path"];
    match (results, record.field("junit_path").is_some()) {
        (ResultsKind::Junit, false) => {
            let hint = "say where the file is";
            record.contradiction(&KEYS, "`results: junit` needs a `junit_path`", hint);
        }
        (ResultsKind::Exit | ResultsKind::Pytest, true) => {
            let message = format!("`junit_path` goes with `results: junit`, not with `{results}`");
            record.contradiction(&KEYS, &message, "leave one of them out");
        }
        _ => {}
    }
}

/// The name that was given, or one by position.
pub(super) fn named(record: &Record<'_, '_>, kind: &str, nth: usize) -> String {
    let given = record.read("name", |field| field.line());
    given.unwrap_or_else(|| format!("{kind}-{nth}"))
}

/// A path that was made of text.
pub(super) fn tree_json(path: &TreePath) -> Json {
    json!(String::from_utf8_lossy(path.as_bytes()))
}

/// Who judges what a test command leaves, in a workspace that no candidate has touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judge {
    /// What is run.
    pub command: Command,
    /// What only the judge sees.
    pub files: Option<SpecPath>,
    /// What it is shown of what the candidate left.
    pub outputs: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

impl Judge {
    fn read(field: &Field<'_, '_>) -> Option<Self> {
        let record = field.record(&["command", "files", "outputs", "timeout"]);
        Some(Self {
            files: record.read("files", |field| field.path()),
            outputs: record.read("outputs", Field::globs).unwrap_or_default(),
            timeout: record.read("timeout", Field::duration).unwrap_or(TIMEOUT),
            command: record.require("command", Field::command)?,
        })
    }

    fn to_json(&self) -> Json {
        json!({
            "command": self.command.to_json(),
            "files": self.files.as_ref().map(SpecPath::to_json),
            "outputs": self.outputs,
            "timeout": seconds(self.timeout),
        })
    }
}

/// How the base's own results are had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// How often each test runs on the base.
    pub runs: u32,
    /// Ids or globs of cases that must pass, whatever the base did.
    pub must_pass: Vec<String>,
}

impl Default for Baseline {
    fn default() -> Self {
        Self {
            runs: 3,
            must_pass: Vec::new(),
        }
    }
}

impl Baseline {
    pub(super) fn read(field: &Field<'_, '_>) -> Self {
        let record = field.record(&["runs", "must_pass"]);
        let default = Self::default();
        Self {
            runs: record
                .read("runs", |field| field.count(1..=1000))
                .unwrap_or(default.runs),
            must_pass: record.read("must_pass", Field::lines).unwrap_or_default(),
        }
    }

    pub(super) fn to_json(&self) -> Json {
        json!({"runs": self.runs, "must_pass": self.must_pass})
    }
}
