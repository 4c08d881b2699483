//! The vocabulary of these tests.

use fairtrial_exec::Verdict;

use super::case::{CaseResult, CaseStatus, Results, Trust};
use super::end::CallEnd;
use super::output::Output;
use super::read::{Left, ResultsFile};

pub(crate) fn end(verdict: Verdict) -> CallEnd {
    CallEnd {
        verdict,
        code: None,
        signal: None,
        wall_s: None,
        message: String::new(),
    }
}

pub(crate) fn left(test: &str, end: CallEnd) -> Left<'_> {
    Left {
        test,
        trust: Trust::InProcess,
        end,
        file: ResultsFile::Absent,
        stdout: Output::default(),
        stderr: Output::default(),
    }
}

pub(crate) fn passed() -> CaseResult {
    CaseResult::new(CaseStatus::Passed)
}

/// A passing case that recorded one value.
pub(crate) fn valued(name: &str, value: &str) -> CaseResult {
    let value = serde_json::from_str(value).expect("a recorded value");
    CaseResult {
        values: vec![(name.to_owned(), value)],
        ..passed()
    }
}

/// Results of a command that ended well.
pub(crate) fn results<'a>(
    test: &str,
    cases: impl IntoIterator<Item = (&'a str, CaseResult)>,
) -> Results {
    let cases = cases.into_iter().map(|(id, case)| (id.to_owned(), case));
    Results {
        test: test.to_owned(),
        trust: Trust::InProcess,
        end: end(Verdict::Ok),
        cases: cases.collect(),
        fault: None,
        sources: Vec::new(),
        stdout: Output::default(),
        stderr: Output::default(),
    }
}
