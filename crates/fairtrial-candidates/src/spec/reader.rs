//! Nodes read as the mappings they must be. Every fault is noted, and reading goes on with a default.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use fairtrial_document::fault::{Fault, Invalid, Place, fault, nearest, short, suggestion};
use fairtrial_document::node::{Content, Entry, Node};

use super::base::SOURCES;
use super::bench::BenchCommand;
use super::command::Command;
use super::field::Field;
use super::guesses::guesses;
use super::measure::Measure;
use super::search::Search;
use super::test_command::TestCommand;
use super::workspace::Workspace;

/// What the mapping of a whole file is called.
pub(super) const TOP: &str = "the evaluation";

/// Collects what is wrong.
pub(super) struct Reader {
    /// What relative paths are seen from; absolute.
    pub(super) directory: PathBuf,
    faults: RefCell<Vec<Fault>>,
}

impl Reader {
    pub(super) fn new(directory: PathBuf) -> Self {
        let faults = RefCell::default();
        Self { directory, faults }
    }

    pub(super) fn fault(
        &self,
        place: &Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        // One line, whatever was written.
        let message = message.into().replace(char::is_control, " ");
        let fault = fault(place, code, message, hint);
        self.faults.borrow_mut().push(fault);
    }

    /// All that was found, first things first.
    pub(super) fn settle(self) -> Result<(), Invalid> {
        match self.faults.into_inner() {
            faults if faults.is_empty() => Ok(()),
            faults => Err(invalid(faults)),
        }
    }

    /// Reads a mapping with known keys.
    pub(super) fn record<'n>(
        &self,
        node: &'n Node,
        what: &str,
        keys: &'static [&'static str],
    ) -> Record<'n, '_> {
        let faults_before = self.faults.borrow().len();
        let (mut given, mut meant) = (Vec::new(), Vec::new());
        let entries = self.entries(node, what, mapping_hint(keys));
        let is_written = |key: &str| {
            let mut entries = entries.iter();
            entries.any(|entry| entry.key.as_text() == Some(key))
        };
        for entry in entries {
            let written = entry.key.to_value().to_str();
            let key = keys.iter().find(|key| **key == written);
            match key.or_else(|| in_seconds(&written, keys)) {
                Some(key) if **key != written && is_written(key) => {
                    let message = format!("`{key}` and `{written}` in {what} say the same");
                    self.fault(&entry.key.place, "repeated_key", message, "keep one");
                }
                Some(key) if !entry.value.is_null() => given.push((*key, &entry.value)),
                Some(_null) => {} // as if it were not there
                None => {
                    let message = format!("unknown key `{}` in {what}", short(&written));
                    let hint = hint(&written, keys, what == TOP);
                    self.fault(&entry.key.place, "unknown_key", message, hint);
                    meant.extend(
                        guess(&written, keys).or_else(|| nearest(&written, keys.iter().copied())),
                    );
                }
            }
        }
        Record {
            reader: self,
            place: node.place.clone(),
            what: what.into(),
            keys,
            given,
            meant,
            is_mapping: matches!(node.content, Content::Map(_)),
            faults_before,
        }
    }

    /// The entries of a mapping, or a fault.
    pub(super) fn entries<'n>(&self, node: &'n Node, what: &str, hint: &str) -> &'n [Entry] {
        match &node.content {
            Content::Map(entries) => entries,
            _ => {
                let message = format!("{what} must be a mapping, not {}", node.kind());
                self.fault(&node.place, "type", message, hint);
                &[]
            }
        }
    }

    /// Repeated keys, here and anywhere below.
    pub(super) fn repeated_keys(&self, node: &Node) {
        match &node.content {
            Content::Scalar(_) => {}
            Content::List(items) => items.iter().for_each(|item| self.repeated_keys(item)),
            Content::Map(entries) => {
                let mut seen = HashSet::new();
                for entry in entries {
                    let key = entry.key.to_value();
                    if !seen.insert(key.equality_key()) {
                        let message = format!("`{}` is given twice", short(&key.to_str()));
                        self.fault(&entry.key.place, "repeated_key", message, "keep one");
                    }
                    self.repeated_keys(&entry.value);
                }
            }
        }
    }
}

/// What to do about an unknown key: what many people call a known one is that one, however near it is to others.
fn hint(written: &str, keys: &[&str], is_top: bool) -> String {
    if let Some(key) = guess(written, keys) {
        return format!("did you mean `{key}`?");
    }
    if let Some(section) = section_of(written).filter(|_| is_top) {
        return format!("it is a key of `{section}`");
    }
    let elsewhere = guesses(written).iter();
    let mut elsewhere = elsewhere.filter_map(|key| Some((key, section_of(key)?)));
    match elsewhere.next().filter(|_| is_top) {
        Some((key, section)) => format!("did you mean `{key}`, a key of `{section}`?"),
        None => suggestion(written, keys.iter().copied()),
    }
}

/// The known key that people mean who write this.
fn guess<'k>(written: &str, keys: &[&'k str]) -> Option<&'k str> {
    let mut known = guesses(written)
        .iter()
        .filter_map(|guess| keys.iter().find(|key| *key == guess));
    known.next().copied()
}

/// The section that a key was meant for, where it stands above all of them.
fn section_of(key: &str) -> Option<&'static str> {
    const SECTIONS: [(&str, &[&str]); 6] = [
        ("candidates", SOURCES),
        ("tests", TestCommand::KEYS),
        ("bench", BenchCommand::KEYS),
        ("measure", Measure::KEYS),
        ("search", Search::KEYS),
        ("workspace", Workspace::KEYS),
    ];
    let found = SECTIONS.iter().find(|(_, keys)| keys.contains(&key));
    found.map(|(section, _)| *section)
}

/// How a mapping is written for which people write its main value alone.
fn mapping_hint(keys: &[&str]) -> &'static str {
    if keys.contains(&"command") {
        "write `{command: ...}`"
    } else if keys.contains(&"patches") {
        "say what is there, as in `{patches: DIR}`"
    } else {
        ""
    }
}

/// What is wrong, in the order it was written.
pub(super) fn invalid(mut faults: Vec<Fault>) -> Invalid {
    faults.sort_by_key(|fault| (fault.place.line, fault.place.column));
    faults.dedup();
    Invalid { faults }
}

/// A mapping that was read. A key whose value is `null` counts as not given.
pub(super) struct Record<'n, 'r> {
    reader: &'r Reader,
    place: Place,
    what: String,
    keys: &'static [&'static str],
    given: Vec<(&'static str, &'n Node)>,
    /// Keys that seem to be meant by unknown ones.
    meant: Vec<&'static str>,
    is_mapping: bool,
    faults_before: usize,
}

impl<'n, 'r> Record<'n, 'r> {
    /// What relative paths are seen from.
    pub(super) fn directory(&self) -> &Path {
        &self.reader.directory
    }

    /// A key that was given.
    pub(super) fn field(&self, key: &'static str) -> Option<Field<'n, 'r>> {
        debug_assert!(self.keys.contains(&key), "`{key}` is in no table");
        let found = self.given.iter().rev().find(|(known, _)| *known == key);
        found.map(|(_, node)| Field {
            reader: self.reader,
            name: key.into(),
            node,
        })
    }

    /// As [`Self::field`], where the word `none` says that there is none.
    pub(super) fn field_or_none(&self, key: &'static str) -> Option<Field<'n, 'r>> {
        self.field(key)
            .filter(|field| field.written() != Some("none"))
    }

    /// What is read from a key, if it was given and can be read.
    pub(super) fn read<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(Field<'n, 'r>) -> Option<T>,
    ) -> Option<T> {
        self.field(key).and_then(read)
    }

    /// As [`Self::read`]; a key that was not given is a fault.
    pub(super) fn require<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(Field<'n, 'r>) -> Option<T>,
    ) -> Option<T> {
        if self.field(key).is_none() {
            self.missing(key, "add it");
        }
        self.read(key, read)
    }

    /// The key `command`. Where it is not as it must be, a fault is noted, and nobody sees what stands in.
    pub(super) fn command(&self) -> Command {
        let command = self.require("command", Field::command);
        command.unwrap_or(Command::Argv(Vec::new()))
    }

    /// Whether nothing is wrong in it so far: else what keys say together would be guessed from defaults.
    pub(super) fn is_sound(&self) -> bool {
        self.reader.faults.borrow().len() == self.faults_before
    }

    /// Nothing is said where another fault already explains it: a key that is spelled wrong, a list for a mapping.
    pub(super) fn missing(&self, key: &'static str, hint: &str) {
        if !self.is_mapping || self.meant.contains(&key) {
            return;
        }
        let message = format!("`{key}` is missing in {}", self.what);
        self.reader.fault(&self.place, "missing_key", message, hint);
    }

    /// None of the keys was given, or seems to be meant.
    pub(super) fn missing_any(&self, message: &str, hint: &str) {
        if self.is_mapping && self.meant.is_empty() {
            self.reader.fault(&self.place, "missing_key", message, hint);
        }
    }

    /// A contradiction between keys, shown where the later one stands (CA-7).
    pub(super) fn contradiction(&self, keys: &[&'static str], message: &str, hint: &str) {
        let nodes = keys.iter().filter_map(|key| self.field(key));
        let place = later(nodes.map(|field| &field.node.place)).unwrap_or(&self.place);
        self.reader.fault(place, "contradiction", message, hint);
    }
}

/// The place of what was written last.
pub(super) fn later<'p>(places: impl IntoIterator<Item = &'p Place>) -> Option<&'p Place> {
    let places = places.into_iter();
    places.max_by_key(|place| (place.line, place.column))
}

/// The key that is meant by its name in calls: `timeout_s` is `timeout`.
fn in_seconds(written: &str, keys: &'static [&'static str]) -> Option<&'static &'static str> {
    let name = written.strip_suffix("_s")?;
    let mut times = keys.iter().filter(|key| key.ends_with("timeout"));
    times.find(|key| **key == name)
}
