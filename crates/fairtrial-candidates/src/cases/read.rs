//! From what a test command left to the results of its cases (CA-48).

mod exit;
mod junit;
mod pytest;

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::case::{CaseResult, Results, ResultsFault, Trust};
use super::end::CallEnd;
use super::output::Output;
use super::paths::Paths;

/// The largest file of results that is read.
pub const MOST_RESULT_BYTES: u64 = 64 << 20;

/// How a test command says what became of its cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultsKind {
    /// By its exit code: one case, with the command's name.
    #[default]
    Exit,
    /// By a JUnit file.
    Junit,
    /// By our plug-in.
    Pytest,
}

/// What was found where the file of results should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultsFile<'a> {
    /// Nothing.
    Absent,
    /// Something that is no regular file.
    NotAFile,
    /// A file of more than [`MOST_RESULT_BYTES`].
    TooLarge,
    /// Its content.
    Bytes(&'a [u8]),
}

/// What a test command left.
#[derive(Clone, Debug)]
pub struct Left<'a> {
    /// The test command, by name.
    pub test: &'a str,
    /// Who says what became of the cases.
    pub trust: Trust,
    /// How it ended.
    pub end: CallEnd,
    /// The file of results; [`ResultsKind::Exit`] has none.
    pub file: ResultsFile<'a>,
    /// Standard output, paths replaced.
    pub stdout: Output,
    /// Standard error, paths replaced.
    pub stderr: Output,
}

/// Reads the results of a test command. Always gives some: where there are none they say why.
#[must_use]
pub fn read_results(kind: ResultsKind, left: Left<'_>, paths: &Paths) -> Results {
    let read = match kind {
        ResultsKind::Exit => Ok(exit::read(&left)),
        ResultsKind::Junit => content(&left).and_then(|bytes| junit::read(bytes, paths)),
        ResultsKind::Pytest => {
            let ended = left.end.ended();
            content(&left).and_then(|bytes| pytest::read(bytes, ended, paths))
        }
    };
    let read = match read {
        Ok(read) if read.cases.is_empty() => Read {
            fault: Some(ResultsFault::NoResults(none(kind, &left.end))),
            ..read
        },
        Ok(read) => read,
        Err(why) => Read {
            fault: Some(ResultsFault::NoResults(why)),
            ..Read::default()
        },
    };
    Results {
        test: left.test.to_owned(),
        trust: left.trust,
        end: left.end,
        cases: read.cases,
        fault: read.fault,
        sources: read.sources,
        stdout: left.stdout,
        stderr: left.stderr,
    }
}

/// What a reader found.
#[derive(Debug, Default, PartialEq)]
struct Read {
    cases: BTreeMap<String, CaseResult>,
    sources: Vec<String>,
    fault: Option<ResultsFault>,
    /// How often ids came that came more than once: a file may have a million cases of one id.
    repeated: HashMap<String, u32>,
}

impl Read {
    /// Adds a case; one of an id that is there already has a number behind it.
    fn add(&mut self, id: &str, result: CaseResult) {
        let mut free = id.to_owned();
        while self.cases.contains_key(&free) {
            let number = self.repeated.entry(id.to_owned()).or_insert(1);
            *number += 1;
            free = format!("{id}#{number}");
        }
        self.cases.insert(free, result);
    }
}

fn content<'a>(left: &Left<'a>) -> Result<&'a [u8], String> {
    let why = match left.file {
        ResultsFile::Bytes(bytes) if bytes.len() as u64 <= MOST_RESULT_BYTES => return Ok(bytes),
        ResultsFile::Bytes(_) | ResultsFile::TooLarge => {
            "its file of results is larger than 64 MiB"
        }
        ResultsFile::NotAFile => "its file of results is no regular file",
        ResultsFile::Absent => "it left no file of results",
    };
    Err(format!("{why} ({})", left.end.described()))
}

/// Why a file that can be read has no cases.
fn none(kind: ResultsKind, end: &CallEnd) -> String {
    let why = match (kind, end.code) {
        (ResultsKind::Pytest, Some(2)) => "pytest was interrupted before its first case",
        (ResultsKind::Pytest, Some(3)) => "pytest had an internal error",
        (ResultsKind::Pytest, Some(4)) => "pytest was used in a way it does not know",
        (ResultsKind::Pytest, Some(5)) => "pytest found no tests",
        _ => "its file of results has no cases",
    };
    format!("{why} ({})", end.described())
}

#[cfg(test)]
mod tests {
    use fairtrial_exec::Verdict;

    use super::super::testing::{end, left};
    use super::*;

    fn fault(kind: ResultsKind, file: ResultsFile<'_>, code: i32) -> String {
        let mut left = left("unit", end(Verdict::Exit));
        (left.file, left.end.code) = (file, Some(code));
        let results = read_results(kind, left, &Paths::default());
        assert!(results.cases.is_empty());
        match results.fault {
            Some(ResultsFault::NoResults(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// CA-48
    #[test]
    fn results_that_cannot_be_had_say_why() {
        use ResultsKind::{Junit, Pytest};
        let session = br#"{"event":"session","format":1}"#;
        let large = vec![b' '; MOST_RESULT_BYTES as usize + 1];
        let table = [
            (
                Junit,
                ResultsFile::Absent,
                127,
                "it left no file of results (exit code 127)",
            ),
            (
                Junit,
                ResultsFile::NotAFile,
                0,
                "its file of results is no regular file (exit code 0)",
            ),
            (
                Junit,
                ResultsFile::TooLarge,
                0,
                "its file of results is larger than 64 MiB (exit code 0)",
            ),
            (
                Pytest,
                ResultsFile::Bytes(&large),
                0,
                "its file of results is larger than 64 MiB (exit code 0)",
            ),
            (
                Junit,
                ResultsFile::Bytes(b"<testsuite/>"),
                0,
                "its file of results has no cases (exit code 0)",
            ),
            (
                Pytest,
                ResultsFile::Bytes(session),
                5,
                "pytest found no tests (exit code 5)",
            ),
            (
                Pytest,
                ResultsFile::Bytes(session),
                4,
                "pytest was used in a way it does not know (exit code 4)",
            ),
            (
                Pytest,
                ResultsFile::Bytes(session),
                3,
                "pytest had an internal error (exit code 3)",
            ),
            (
                Pytest,
                ResultsFile::Bytes(session),
                2,
                "pytest was interrupted before its first case (exit code 2)",
            ),
            (
                Pytest,
                ResultsFile::Bytes(session),
                0,
                "its file of results has no cases (exit code 0)",
            ),
        ];
        for (kind, file, code, why) in table {
            assert_eq!(fault(kind, file, code), why);
        }
    }

    /// CA-48
    #[test]
    fn cases_of_equal_ids_are_kept_apart() {
        let mut read = Read::default();
        for id in ["a", "a#2", "a", "a"] {
            read.add(id, CaseResult::new(super::super::CaseStatus::Passed));
        }
        let ids: Vec<_> = read.cases.keys().cloned().collect();
        assert_eq!(ids, ["a", "a#2", "a#3", "a#4"]);
        for _ in 0..100_000 {
            read.add("b", CaseResult::new(super::super::CaseStatus::Passed));
        }
        assert!(read.cases.contains_key("b#100000"));
    }
}
