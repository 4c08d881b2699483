//! Whether a candidate is correct: how its commands ended and what their cases did, beside the base (CA-54).

use serde::{Deserialize, Serialize};

use super::baseline::{Baseline, TestBaseline, end_of};
use super::case::{CaseStatus, Results, ResultsFault, Trust};
use super::compare::{Comparison, compare};
use super::end::Ended;
use super::failure::{CallSummary, Failure, FailureKind};

/// Running cases that a message names: as many as there are workers, mostly one.
const NAMED: usize = 3;

/// What phase 1 says of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Correctness {
    /// Its cases beside the base's.
    pub comparison: Comparison,
    /// Why it is not correct; none if it is.
    pub failure: Option<Failure>,
    /// Who says so: a judge only where a judge had the last word on every test command.
    pub trust: Trust,
}

/// Judges a candidate by its results, one per test command in any order.
#[must_use]
pub fn judge_correctness(baseline: &Baseline, results: &[Results]) -> Correctness {
    let comparison = compare(baseline, results);
    let failure = failure(baseline, results, &comparison);
    let in_process =
        results.is_empty() || results.iter().any(|found| found.trust == Trust::InProcess);
    Correctness {
        failure,
        comparison,
        trust: if in_process {
            Trust::InProcess
        } else {
            Trust::Judge
        },
    }
}

/// What the engine failed at comes first, since then nothing is known; then how a command ended, then its cases.
fn failure(baseline: &Baseline, results: &[Results], comparison: &Comparison) -> Option<Failure> {
    let both = || {
        baseline.tests.iter().filter_map(|test| {
            let found = results.iter().find(|found| found.test == test.name)?;
            Some((test, found))
        })
    };
    if let Some(failure) = both().find_map(|(_, found)| not_tried(found)) {
        return Some(failure);
    }
    if let Some(failure) = both().find_map(|(test, found)| bad_end(test, found)) {
        return Some(failure.with(comparison));
    }
    (comparison.diffs_total > 0 || comparison.total == 0)
        .then(|| mismatch(comparison).with(comparison))
}

fn not_tried(found: &Results) -> Option<Failure> {
    let kind = match found.end.ended() {
        Ended::SetupFailed => FailureKind::Infra,
        Ended::Cancelled => FailureKind::NotRun,
        _ => return None,
    };
    let message = format!("test `{}`: {}", found.test, found.end.described());
    Some(Failure::new(kind, message).shown_by(CallSummary::of(found)))
}

/// A command that ended as the base's never did, or that gave no results.
fn bad_end(test: &TestBaseline, found: &Results) -> Option<Failure> {
    let ended = end_of(found);
    let kind = match ended {
        Ended::Timeout => Some(FailureKind::Timeout),
        Ended::Crash => Some(FailureKind::Crash),
        Ended::Limit => Some(FailureKind::Limit),
        Ended::Finished | Ended::SetupFailed | Ended::Cancelled => None,
    };
    let kind = kind.filter(|_| !test.ends.contains(&ended));
    let (kind, why) = match (kind, &found.fault) {
        (Some(kind), _) => (kind, ending(found)),
        (None, Some(ResultsFault::NoResults(why))) => (FailureKind::NoResults, why.clone()),
        (None, _) if found.cases.is_empty() => {
            (FailureKind::NoResults, "it has no cases".to_owned())
        }
        _ => return None,
    };
    let message = format!("test `{}`: {why}", test.name);
    Some(Failure::new(kind, message).shown_by(CallSummary::of(found)))
}

fn ending(found: &Results) -> String {
    let described = found.end.described();
    match &found.fault {
        Some(ResultsFault::EndedEarly(running)) if !running.is_empty() => {
            let first = running[..running.len().min(NAMED)].join("`, `");
            let more = if running.len() > NAMED {
                " and more"
            } else {
                ""
            };
            format!("{described} while `{first}`{more} was running")
        }
        Some(ResultsFault::EndedEarly(_)) => format!("{described} before its cases were done"),
        _ => described,
    }
}

fn mismatch(comparison: &Comparison) -> Failure {
    let Comparison { diffs, total, .. } = comparison;
    let differing = comparison.diffs_total;
    let late = |status: Option<CaseStatus>| status == Some(CaseStatus::TimedOut);
    let kind = match !diffs.is_empty() && diffs.iter().all(|diff| late(diff.candidate_status)) {
        true => FailureKind::Timeout,
        false => FailureKind::Mismatch,
    };
    let message = match diffs.first() {
        Some(first) => format!("{differing} of {total} cases differ; the first: {first}"),
        None => "no case was compared".to_owned(),
    };
    Failure::new(kind, message)
}

#[cfg(test)]
mod tests;
