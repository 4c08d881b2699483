//! The output directory: what it holds before an evaluation begins, and what becomes of that (CA-96).
//!
//! Only names that evaluations give are ever removed from it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::EvaluateError;
use super::journal::{JOURNAL, Journal, JournalError, is_journal, is_torn, read_journal};
use super::outputs::{PAGE, PROPOSED, REPORT, unfinished};
use super::record::{Past, Record};
use super::telling::RUNS;

/// What is wanted of what an output directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Onset {
    /// To begin where nothing is.
    #[default]
    Begin,
    /// To go on with what is on record.
    Resume,
    /// To begin anew where an evaluation is; what it left is removed.
    Fresh,
}

/// What an output directory holds.
#[derive(Debug)]
pub(crate) enum Holds {
    /// It is empty, or not there.
    Nothing,
    /// An evaluation of which nothing counts: nobody can tell any candidate from its base, or it was hardly begun.
    Forgotten,
    /// An evaluation, or damage where its record should be.
    Evaluation(Result<Box<Past>, JournalError>),
    /// What is not ours.
    Others,
}

/// Where what commands write to their streams is kept.
pub(crate) const LOGS: &str = "logs";
/// What a proposer writes to its standard error.
pub(crate) const PROPOSER_LOG: &str = "proposer.log";
/// Keeps what is in the output directory out of the user's repository.
const IGNORE: &str = ".gitignore";
const IGNORE_ALL: &str = "*\n";

/// Looks at what is there.
pub(crate) fn look(output: &Path) -> Holds {
    let holds = |mut entries: fs::ReadDir| entries.next().is_some();
    if !fs::read_dir(output).is_ok_and(holds) {
        return Holds::Nothing;
    }
    if is_hardly_begun(output) {
        return Holds::Forgotten;
    }
    let journal = output.join(JOURNAL);
    if !is_journal(&journal) {
        return Holds::Others;
    }
    let records = read_journal::<Record>(&journal);
    match records.map(|records| records.into_iter().collect::<Past>()) {
        Ok(past) if past.forgotten => Holds::Forgotten,
        past => Holds::Evaluation(past.map(Box::new)),
    }
}

/// Whether a directory has nothing but what comes before the first record: somebody was killed in between.
fn is_hardly_begun(output: &Path) -> bool {
    let ours = |entry: io::Result<fs::DirEntry>| {
        let place = entry.map(|entry| entry.path());
        place.is_ok_and(|place| {
            let Ok(text) = fs::read(&place) else {
                return false;
            };
            match place.file_name().and_then(|name| name.to_str()) {
                Some(IGNORE) => IGNORE_ALL.as_bytes().starts_with(&text),
                Some(JOURNAL) => is_torn(&text),
                Some(RUNS) => text.is_empty(),
                _ => false,
            }
        })
    };
    fs::read_dir(output).is_ok_and(|mut entries| entries.all(ours))
}

/// Whether results can go there, as far as that can be told without writing; the rest is told by whoever makes it.
pub(crate) fn check(output: &Path) -> Result<(), EvaluateError> {
    let there = output
        .ancestors()
        .find(|path| path.symlink_metadata().is_ok());
    match there.filter(|there| !there.is_dir()) {
        None => Ok(()),
        Some(there) => {
            let problem = format!("`{}` is no directory", there.display());
            Err(refused(output, &problem))
        }
    }
}

/// Makes the directory, if it is not there.
pub(crate) fn make(output: &Path) -> Result<(), EvaluateError> {
    fs::create_dir_all(output)
        .and_then(|()| fs::write(output.join(IGNORE), IGNORE_ALL))
        .map_err(|error| unwritable(output, &error))
}

/// Removes what an earlier evaluation left, and nothing else; its journal is empty then. Killed in between, it leaves an
/// evaluation of which nothing counts.
pub(crate) fn clear(output: &Path, journal: &mut Journal) -> Result<(), EvaluateError> {
    if !journal.is_empty() {
        journal.add(&[Record::Forgotten])?;
    }
    for place in left(output) {
        fairtrial_exec::remove_tree(&place).map_err(EvaluateError::attempting(format!(
            "removing `{}`",
            place.display()
        )))?;
    }
    Ok(journal.clear()?)
}

/// What evaluations leave beside their journal.
fn left(output: &Path) -> impl Iterator<Item = PathBuf> {
    let whole = [REPORT, PAGE, PROPOSED].map(|name| output.join(name));
    let halves = whole.clone().map(|place| unfinished(&place));
    let others = [RUNS, LOGS, PROPOSER_LOG].map(|name| output.join(name));
    whole.into_iter().chain(halves).chain(others)
}

/// What the system said of a place that was asked for. A disk that is full is nobody's mistake.
fn unwritable(output: &Path, error: &io::Error) -> EvaluateError {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::PermissionDenied
        | Kind::ReadOnlyFilesystem
        | Kind::NotADirectory
        | Kind::NotFound
        | Kind::AlreadyExists
        | Kind::InvalidFilename => refused(output, &error.to_string()),
        _ => EvaluateError::Failed(format!("making `{}`: {error}", output.display())),
    }
}

fn refused(output: &Path, why: &str) -> EvaluateError {
    EvaluateError::Invalid(format!(
        "results cannot be written to `{}`: {why} (name another `output`)",
        output.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    /// CA-96: nobody else's file is taken for an evaluation, whatever it is called.
    #[test]
    fn what_is_not_ours_is_told_from_what_is() {
        let table: [(&[(&str, &str)], &str); 9] = [
            (&[], "Nothing"),
            (&[(".gitignore", "*\n")], "Forgotten"),
            (&[(".gitignore", "")], "Forgotten"),
            (&[(".gitignore", "mine\n")], "Others"),
            (&[("notes.txt", "")], "Others"),
            (
                &[
                    (".gitignore", "*\n"),
                    ("journal.jsonl", "{\"sha"),
                    ("runs.jsonl", ""),
                ],
                "Forgotten",
            ),
            (&[("journal.jsonl", "{\"day\": 1}\n")], "Others"),
            (
                &[("journal.jsonl", "{\"day\": 1}\n{\"day\": 2}\n")],
                "Others",
            ),
            (&[("journal.jsonl", ""), ("report.html", "mine")], "Others"),
        ];
        for (files, expected) in table {
            let directory = directory(files);
            let found = format!("{:?}", look(directory.path()));
            assert_eq!(found, expected, "{files:?}");
        }
        assert!(matches!(look(Path::new("/nowhere/at/all")), Holds::Nothing));
    }

    /// CA-96: what users put beside it stays.
    #[test]
    fn only_what_evaluations_leave_is_removed() {
        let files = [
            "evaluation.json",
            ".report.html.new",
            "runs.jsonl",
            "proposer.log",
            "notes.txt",
        ];
        let directory = directory(&files.map(|name| (name, "text")));
        fs::create_dir_all(directory.path().join("logs/base")).unwrap();
        let journal = directory.path().join(JOURNAL);
        let mut held = Journal::hold(&journal).unwrap();
        held.add(&["a record"]).unwrap();
        clear(directory.path(), &mut held).unwrap();
        assert!(held.is_empty());
        let mut names: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["journal.jsonl", "notes.txt"]);
        assert_eq!(fs::read(journal).unwrap(), b"");
    }
}
