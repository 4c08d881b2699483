//! Texts: names, paths, globs, variables.

use std::collections::BTreeMap;

use fairtrial_document::fault::short;
use fairtrial_document::node::Content;

use super::Field;
use crate::spec::path::SpecPath;
use crate::stage::{Protect, TreePath};

impl Field<'_, '_> {
    pub(in crate::spec) fn text(&self) -> Option<String> {
        match self.node.as_text() {
            Some(text) if text.contains('\0') => self.refuse("text", "has a zero byte", ""),
            Some(text) => Some(text.into()),
            None => match &self.node.content {
                Content::Scalar(_) if !self.node.is_null() => self.wrong_type("text", "quote it"),
                _ => self.wrong_type("text", ""),
            },
        }
    }

    /// Text that says something, on one line.
    pub(in crate::spec) fn line(&self) -> Option<String> {
        let text = self.text()?;
        if text.trim().is_empty() {
            return self.refuse("blank", "must not be blank", "");
        }
        if text.contains(char::is_control) {
            return self.refuse("text", "must be text of one line", "");
        }
        Some(text)
    }

    pub(in crate::spec) fn lines(self) -> Option<Vec<String>> {
        let items = self.items()?;
        Some(items.iter().filter_map(Self::line).collect())
    }

    /// A path of the machine, seen from the evaluation file.
    pub(in crate::spec) fn path(&self) -> Option<SpecPath> {
        let text = self.text()?;
        if text.is_empty() {
            return self.refuse("blank", "names no path", "");
        }
        Some(SpecPath::new(text, &self.reader.directory))
    }

    /// A path inside a workspace; none is its root.
    pub(in crate::spec) fn tree_path(&self) -> Option<Option<TreePath>> {
        let text = self.line()?;
        let trimmed = text.trim_end_matches('/');
        if trimmed == "." || trimmed == "./" {
            return Some(None);
        }
        let trimmed = if trimmed.is_empty() { &text } else { trimmed };
        match TreePath::new(trimmed) {
            Ok(path) => Some(Some(path)),
            Err(problem) => {
                let hint = "paths in a workspace begin at the root of `repo`";
                self.refuse(
                    "path",
                    &format!("must stay inside the workspace: {problem}"),
                    hint,
                )
            }
        }
    }

    pub(in crate::spec) fn globs(self) -> Option<Vec<String>> {
        let items = self.items()?;
        Some(items.iter().filter_map(Self::glob).collect())
    }

    fn glob(&self) -> Option<String> {
        let glob = self.text()?;
        match Protect::new([&glob]) {
            Ok(_) => Some(glob),
            Err(problem) => self.refuse("glob", &format!("is no glob: {}", problem.message), ""),
        }
    }

    /// Variables and their values.
    pub(in crate::spec) fn variables(self) -> Option<BTreeMap<String, String>> {
        let entries = self
            .reader
            .entries(self.node, &format!("`{}`", self.name), "");
        let mut variables = BTreeMap::new();
        for entry in entries {
            let name = entry.key.as_text().unwrap_or_default();
            if !is_variable(name) {
                let shown = short(&entry.key.to_value().to_str());
                let message = format!("`{shown}` is no name of a variable");
                self.reader.fault(&entry.key.place, "env", message, "");
            }
            let value = Self {
                reader: self.reader,
                name: short(name),
                node: &entry.value,
            };
            if let Some(value) = value.text() {
                variables.insert(name.to_owned(), value);
            }
        }
        Some(variables)
    }

    /// Names of variables.
    pub(in crate::spec) fn variable_names(self) -> Option<Vec<String>> {
        let items = self.items()?;
        let name = |item: &Self| {
            let name = item.line()?;
            match is_variable(&name) {
                true => Some(name),
                false => item.refuse(
                    "env",
                    "is no name of a variable",
                    "write `NAME`, without `=`",
                ),
            }
        };
        Some(items.iter().filter_map(name).collect())
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}
