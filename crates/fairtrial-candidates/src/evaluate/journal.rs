//! The record of an evaluation: `journal.jsonl`, one checksummed line per fact, only ever added to (CA-95).
//!
//! A line is on the disk before what it says counts. The last line may be torn, by a kill or a full disk, and is then as
//! if never written; damage anywhere else is an error that names the line.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// The file in the output directory.
pub(crate) const JOURNAL: &str = "journal.jsonl";

const HEAD: &str = r#"{"sha256":""#;
const MIDDLE: &str = r#"","record":"#;
const DIGITS: usize = 16;

/// A journal that is written. No second engine writes it at the same time.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// Bytes of whole lines.
    whole: u64,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    #[error("`{}`: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("`{}`: another evaluation is writing it", .0.display())]
    Locked(PathBuf),
    #[error("{}:{line}: damaged: {why}", path.display())]
    Damaged {
        path: PathBuf,
        line: usize,
        why: String,
    },
}

impl Journal {
    /// Opens or begins the journal at `path`; gives it with what it holds.
    pub(crate) fn open<T: DeserializeOwned>(path: &Path) -> Result<(Self, Vec<T>), JournalError> {
        let mut journal = Self::hold(path)?;
        let mut text = Vec::new();
        let found = journal.file.read_to_end(&mut text);
        found.map_err(|error| journal.failed(error))?;
        let (records, whole) = read(path, &text)?;
        if whole < text.len() {
            journal.cut(whole as u64)?;
        }
        Ok((journal, records))
    }

    /// As [`Self::open`], whatever is in it.
    pub(crate) fn hold(path: &Path) -> Result<Self, JournalError> {
        let failed = |error| JournalError::Io {
            path: path.to_owned(),
            error,
        };
        let options = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path);
        let file = options.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(JournalError::Locked(path.to_owned()));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let whole = file.metadata().map_err(failed)?.len();
        Ok(Self {
            file,
            path: path.to_owned(),
            whole,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.whole == 0
    }

    /// Takes all of it back: another evaluation begins.
    pub(crate) fn clear(&mut self) -> Result<(), JournalError> {
        self.cut(0)
    }

    fn cut(&mut self, whole: u64) -> Result<(), JournalError> {
        let cut = self.file.set_len(whole);
        let cut = cut.and_then(|()| self.file.seek(SeekFrom::End(0)));
        cut.map_err(|error| self.failed(error))?;
        self.whole = whole;
        Ok(())
    }

    fn failed(&self, error: io::Error) -> JournalError {
        JournalError::Io {
            path: self.path.clone(),
            error,
        }
    }

    /// Adds records; they are on the disk when this returns.
    pub(crate) fn add<T: Serialize>(&mut self, records: &[T]) -> Result<(), JournalError> {
        let text: String = records.iter().map(line).collect();
        // One write: what is torn is torn at its end.
        let written = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.whole += text.len() as u64,
            // Half a line would be damage once another follows. If this fails too, there is no more to be done.
            Err(_) => drop(self.file.set_len(self.whole)),
        }
        written.map_err(|error| self.failed(error))
    }
}

/// Whether a file begins as journals do, damaged or not.
pub(crate) fn is_journal(path: &Path) -> bool {
    let mut head = [0; HEAD.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == HEAD.as_bytes()
}

/// Whether a text is no more than the torn first line of a journal.
pub(crate) fn is_torn(text: &[u8]) -> bool {
    let head = HEAD.as_bytes();
    let is_begun = head.starts_with(text) || text.starts_with(head);
    is_begun && !text.contains(&b'\n')
}

/// What a journal at `path` holds, without writing.
pub(crate) fn read_journal<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, JournalError> {
    let text = std::fs::read(path).map_err(|error| JournalError::Io {
        path: path.to_owned(),
        error,
    })?;
    Ok(read(path, &text)?.0)
}

fn line<T: Serialize>(record: &T) -> String {
    let record = serde_json::to_string(record).expect("records are plain data");
    format!("{HEAD}{}{MIDDLE}{record}}}\n", checksum(record.as_bytes()))
}

fn checksum(text: &[u8]) -> String {
    let sum = Sha256::digest(text);
    sum.iter()
        .take(DIGITS / 2)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The records, and how many bytes are whole lines.
fn read<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<(Vec<T>, usize), JournalError> {
    let (mut records, mut whole) = (Vec::new(), 0);
    for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        let is_last = whole + line.len() == text.len();
        match read_line(line) {
            Ok(record) => records.push(record),
            Err(_) if is_last => break,
            Err(why) => {
                return Err(JournalError::Damaged {
                    path: path.to_owned(),
                    line: number,
                    why,
                });
            }
        }
        whole += line.len();
    }
    Ok((records, whole))
}

fn read_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    let line = line.strip_suffix(b"\n").ok_or("it has no end")?;
    let line = str::from_utf8(line).map_err(|error| error.to_string())?;
    let sealed = line
        .strip_prefix(HEAD)
        .and_then(|line| line.strip_suffix('}'));
    let sealed = sealed.and_then(|line| line.split_once(MIDDLE));
    let (sum, record) = sealed.ok_or("it is not a line of a journal")?;
    if checksum(record.as_bytes()) != sum {
        return Err("its checksum is another".to_owned());
    }
    serde_json::from_str(record).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, words: &[&str]) {
        let (mut journal, _) = Journal::open::<String>(path).unwrap();
        journal.add(words).unwrap();
    }

    fn words(path: &Path) -> Result<Vec<String>, JournalError> {
        Journal::open(path).map(|(_, words)| words)
    }

    /// CA-95
    #[test]
    fn a_torn_last_line_is_dropped_wherever_it_was_torn() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(JOURNAL);
        write(&path, &["one", "two"]);
        let text = std::fs::read(&path).unwrap();
        let first = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in first..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            assert_eq!(words(&path).unwrap(), ["one"], "cut at {cut}");
            write(&path, &["three"]);
            assert_eq!(words(&path).unwrap(), ["one", "three"], "cut at {cut}");
        }
    }

    /// CA-95
    #[test]
    fn damage_elsewhere_is_an_error_that_names_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(JOURNAL);
        write(&path, &["one", "two", "three"]);
        let text = std::fs::read_to_string(&path).unwrap();
        for damaged in [
            text.replace("two", "tow"),
            text.replacen("\n", "", 1),
            format!("\n{text}"),
        ] {
            std::fs::write(&path, damaged).unwrap();
            let error = words(&path).unwrap_err().to_string();
            assert!(
                error.contains("journal.jsonl:1: damaged")
                    || error.contains("journal.jsonl:2: damaged"),
                "{error}"
            );
        }
    }

    /// CA-95
    #[test]
    fn two_engines_do_not_write_one_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(JOURNAL);
        let _held = Journal::open::<String>(&path).unwrap();
        assert!(matches!(words(&path), Err(JournalError::Locked(_))));
        assert!(read_journal::<String>(&path).unwrap().is_empty());
    }
}
