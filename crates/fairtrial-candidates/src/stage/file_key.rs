//! When two candidates are the same: keys of files, and of candidates made of them (CA-17).
//!
//! A Python file's key is made by Python, from its own syntax tree: [`PYTHON_KEY_SOURCE`], which the engine runs as a source
//! call. The published Rust parsers are either no longer kept (`rustpython-parser` stops before Python 3.12's syntax) or not
//! published by their makers (ruff's), and both would lag behind the interpreter that runs the candidates, and cost more to
//! build than the rest of this crate. Without an interpreter, or for what it cannot parse, the exact text is the key.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::base::{Base, Kind};
use super::fault::StageError;
use super::image::{Image, PostImages};
use super::overlay::{MOST_BYTES, unreadable};
use super::path::TreePath;

/// Python text, for 3.8 and later, that needs the standard library alone.
pub const PYTHON_KEY_SOURCE: &str = include_str!("python_key.py");

/// The function in it: takes a list of `bytes`, each a file, and gives for each a text, or `None` for what is no Python.
pub const PYTHON_KEY_FUNCTION: &str = "keys";

/// Whether a path is that of a Python file.
#[must_use]
pub fn is_python(path: &TreePath) -> bool {
    let suffixes: [&[u8]; 3] = [b".py", b".pyi", b".pyw"];
    suffixes
        .iter()
        .any(|suffix| path.as_bytes().ends_with(suffix))
}

type Sha = [u8; 32];

/// What Python said of files, by their text.
#[derive(Debug, Clone, Default)]
pub struct PythonKeys(HashMap<Sha, Option<String>>);

impl PythonKeys {
    /// Nothing is known: every file's key is its text.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The texts that Python has yet to be asked about, for these candidates and the files of the base that they replace.
    /// Each comes once.
    pub fn wanted<'a>(
        &self,
        candidates: impl IntoIterator<Item = &'a PostImages>,
        base: &dyn Base,
    ) -> Result<Vec<Vec<u8>>, StageError> {
        let mut wanted = HashMap::new();
        let mut texts = Vec::new();
        let mut want = |text: &[u8]| {
            let sha = sha(text);
            if !self.0.contains_key(&sha) && wanted.insert(sha, ()).is_none() {
                texts.push(text.to_vec());
            }
        };
        for images in candidates {
            for (path, image) in images.iter().filter(|(path, _)| is_python(path)) {
                if let Some(Image::File { bytes, .. }) = image {
                    want(bytes);
                    if let Some((_, old)) = base_file(path, base)? {
                        want(&old);
                    }
                }
            }
        }
        Ok(texts)
    }

    /// Keeps Python's answer for a text.
    pub fn learn(&mut self, text: &[u8], key: Option<String>) {
        self.0.insert(sha(text), key);
    }

    /// A key for a file: Python's where it gave one, else the text itself.
    fn of(&self, path: &TreePath, text: &[u8]) -> String {
        let sha = sha(text);
        match self.0.get(&sha) {
            Some(Some(key)) if is_python(path) => format!("python {key}"),
            _ => format!("exact {}", hex(&sha)),
        }
    }
}

/// What is the same for candidates that are the same program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CandidateKey(Sha);

impl CandidateKey {
    /// The key of a candidate; none if it is the same program as the base (`no_op`). Files that differ from the base in
    /// nothing that matters do not count.
    pub fn new(
        images: &PostImages,
        base: &dyn Base,
        python: &PythonKeys,
    ) -> Result<Option<Self>, StageError> {
        let mut digest = Sha256::new();
        let mut any = false;
        for (path, image) in images.iter() {
            let key = match image {
                None => "deleted".to_owned(),
                Some(Image::Link { target }) => format!("link {}", hex(&sha(target))),
                Some(Image::File { mode, bytes }) => {
                    let key = python.of(path, bytes);
                    let old = base_file(path, base)?;
                    if old.is_some_and(|(was, old)| was == *mode && python.of(path, &old) == key) {
                        continue;
                    }
                    format!("{mode:o} {key}")
                }
            };
            any = true;
            for field in [path.as_bytes(), key.as_bytes()] {
                digest.update((field.len() as u64).to_be_bytes());
                digest.update(field);
            }
        }
        Ok(any.then(|| Self(digest.finalize().into())))
    }
}

/// Mode and bytes of a file of the base; none where there is no file, or one too large to be worth comparing.
fn base_file(path: &TreePath, base: &dyn Base) -> Result<Option<(u32, Vec<u8>)>, StageError> {
    match base.kind(path).map_err(unreadable(path))? {
        Kind::File { mode, size } if size <= MOST_BYTES => {
            let bytes = base.read(path).map_err(unreadable(path))?;
            Ok(Some((mode, bytes)))
        }
        _ => Ok(None),
    }
}

fn sha(bytes: &[u8]) -> Sha {
    Sha256::digest(bytes).into()
}

fn hex(sha: &Sha) -> String {
    sha.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::MemoryBase;
    use crate::stage::patch::apply;

    fn change(base: &MemoryBase, file: &str, to: &str) -> PostImages {
        let old = base
            .read(&TreePath::new(file).expect("a path"))
            .expect("there");
        let old = String::from_utf8(old).expect("text");
        let patch = format!("--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-{old}+{to}");
        apply(patch.as_bytes(), base).expect("applies")
    }

    /// CA-17
    #[test]
    fn what_python_calls_equal_to_the_base_is_a_no_op() {
        let base = MemoryBase::new()
            .file("a.py", "x = 1\n")
            .file("a.txt", "x = 1\n");
        let commented = change(&base, "a.py", "x = 1  # one\n");
        let text = change(&base, "a.txt", "x = 1  # one\n");
        let mut python = PythonKeys::new();
        let asked = python
            .wanted([&commented, &text, &commented], &base)
            .expect("reads");
        assert_eq!(asked, [b"x = 1  # one\n".to_vec(), b"x = 1\n".to_vec()]);
        assert!(
            CandidateKey::new(&commented, &base, &python)
                .expect("reads")
                .is_some()
        );
        for text in asked {
            python.learn(&text, Some("same".to_owned()));
        }
        assert_eq!(
            CandidateKey::new(&commented, &base, &python).expect("reads"),
            None
        );
        // The same text under a name that is not Python's is no Python.
        assert!(
            CandidateKey::new(&text, &base, &python)
                .expect("reads")
                .is_some()
        );
        assert!(
            python
                .wanted([&commented], &base)
                .expect("reads")
                .is_empty()
        );
    }

    /// CA-17
    #[test]
    fn what_python_cannot_parse_goes_by_its_text() {
        let base = MemoryBase::new().file("a.py", "x = 1\n");
        let (one, other) = (
            change(&base, "a.py", "x = (\n"),
            change(&base, "a.py", "x =  (\n"),
        );
        let mut python = PythonKeys::new();
        python.learn(b"x = (\n", None);
        python.learn(b"x =  (\n", None);
        let key = |images| CandidateKey::new(images, &base, &python).expect("reads");
        assert_ne!(key(&one), key(&other));
        assert_eq!(key(&one), key(&one.clone()));
    }
}
