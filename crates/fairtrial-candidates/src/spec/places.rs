//! Where each key of an evaluation stands, for faults that only the machine can show (CA-8).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fairtrial_document::fault::{Fault, Place, fault};
use fairtrial_document::node::{Content, Node};

/// The places of an evaluation's keys. Where things stand changes nothing about what they mean: all are equal.
#[derive(Clone, Debug)]
pub struct Places {
    /// The evaluation file, absolute; none of what a program gave.
    pub file: Option<PathBuf>,
    directory: PathBuf,
    root: Place,
    values: HashMap<String, Place>,
}

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Places {
    pub(super) fn of(root: &Node, file: Option<PathBuf>, directory: PathBuf) -> Self {
        let mut places = Self {
            file,
            directory,
            root: root.place.clone(),
            values: HashMap::new(),
        };
        places.note(root, "");
        places
    }

    /// A fault at a key's value: `candidates[0].patches`, `shared[1].path`. One that was not given is looked for where it
    /// would have been.
    #[must_use]
    pub fn fault(&self, key_path: &str, message: impl Into<String>) -> Fault {
        fault(self.place(key_path), "machine", message, "")
    }

    /// Where a key's value stands, or the nearest that was given of what it is in.
    #[must_use]
    pub fn place(&self, key_path: &str) -> &Place {
        let mut path = key_path;
        loop {
            if let Some(place) = self.values.get(path) {
                return place;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return &self.root,
            }
        }
    }

    /// Whether a key was given, be it with its default.
    #[must_use]
    pub fn is_given(&self, key_path: &str) -> bool {
        self.values.contains_key(key_path)
    }

    /// What paths are seen from: the directory of the evaluation file, or what a program said.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn note(&mut self, node: &Node, path: &str) {
        if node.is_null() {
            return;
        }
        if !path.is_empty() {
            self.values.insert(path.into(), node.place.clone());
        }
        match &node.content {
            Content::Scalar(_) => {}
            Content::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.note(item, &item_path(path, index));
                }
            }
            // A single source goes by the name of the first of a list.
            Content::Map(_) if path == "candidates" => self.note(node, "candidates[0]"),
            Content::Map(entries) => {
                for entry in entries {
                    let key = entry.key.to_value().to_str();
                    self.note(&entry.value, &key_path(path, &key));
                }
            }
        }
    }
}

/// The path of a key in a mapping.
pub(super) fn key_path(path: &str, key: &str) -> String {
    match path {
        "" => key.into(),
        path => format!("{path}.{key}"),
    }
}

/// The path of an item in a list.
pub(super) fn item_path(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}
