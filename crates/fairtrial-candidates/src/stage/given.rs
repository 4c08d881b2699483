//! A candidate as it was given, and where.

use serde_json::{Map, Value};

use super::files::Replacement;

/// A candidate before anything was made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// What people call it. A label, no identity.
    pub name: String,
    /// Where it came from; candidates are taken in this order.
    pub place: Place,
    /// Its change.
    pub content: Content,
    /// The candidate it was made from, as given.
    pub parent: Option<String>,
    /// Whatever its maker wants to keep with it.
    pub meta: Option<Map<String, Value>>,
}

/// A change, in either of its forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A patch's text.
    Patch(Vec<u8>),
    /// Files as they are to be, by path.
    Files(Vec<(Vec<u8>, Replacement)>),
}

/// Where a candidate was given. Its order is that of candidates: source, then name, then line (CA-11).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which source, in the order of the evaluation file.
    pub source: usize,
    /// The name of the file or directory within it.
    pub name: Vec<u8>,
    /// The line, of a file with a candidate a line; else 0.
    pub line: usize,
}

impl Given {
    /// A candidate from a patch file, called as the file is without its suffix.
    #[must_use]
    pub fn patch(source: usize, file_name: &[u8], text: Vec<u8>) -> Self {
        let stem = file_name
            .strip_suffix(b".patch")
            .or(file_name.strip_suffix(b".diff"));
        let name = stem.filter(|stem| !stem.is_empty()).unwrap_or(file_name);
        Self::unnamed(source, file_name, 0, Content::Patch(text)).called(name)
    }

    /// A candidate from a directory of replaced files; see [`read_tree`](super::read_tree).
    #[must_use]
    pub fn tree(source: usize, directory: &[u8], files: Vec<(Vec<u8>, Replacement)>) -> Self {
        Self::unnamed(source, directory, 0, Content::Files(files)).called(directory)
    }

    pub(crate) fn unnamed(source: usize, file: &[u8], line: usize, content: Content) -> Self {
        let name = file.to_vec();
        Self {
            name: String::new(),
            place: Place { source, name, line },
            content,
            parent: None,
            meta: None,
        }
    }

    fn called(mut self, name: &[u8]) -> Self {
        self.name = super::path::shown(name);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-11
    #[test]
    fn candidates_come_by_source_then_name_then_line() {
        let patch = |source, name: &str| Given::patch(source, name.as_bytes(), Vec::new());
        let line =
            |source, line| Given::unnamed(source, b"all.jsonl", line, Content::Patch(Vec::new()));
        let mut given = [
            line(1, 10),
            patch(0, "b.diff"),
            line(1, 9),
            patch(2, "a.patch"),
            patch(0, "a.patch"),
        ];
        given.sort_by(|one, other| one.place.cmp(&other.place));
        let order: Vec<_> = given
            .iter()
            .map(|g| (g.name.as_str(), g.place.source, g.place.line))
            .collect();
        assert_eq!(
            order,
            [
                ("a", 0, 0),
                ("b", 0, 0),
                ("", 1, 9),
                ("", 1, 10),
                ("a", 2, 0)
            ]
        );
    }
}
