//! Test commands, their cases, and whether a candidate's do what the base's do.
//!
//! Pure. Handed what a command left and how it ended, it reads results ([`read_results`]), folds the base's runs into a
//! [`Baseline`], and judges candidates by it ([`judge_correctness`]). Paths that differ between workspaces are replaced as
//! results are read, and cases are kept by id: in which slot and order they ran cannot show.

mod baseline;
mod case;
mod compare;
mod correctness;
mod end;
mod failure;
mod judge;
mod must_pass;
mod output;
mod paths;
mod plugin;
mod read;
mod recorded;
#[cfg(test)]
mod testing;
mod text;

pub use baseline::{BaseCase, Baseline, TestBaseline, TestRuns, Unsteady, Unusable};
pub use case::{CaseKey, CaseResult, CaseStatus, Results, ResultsFault, Trust};
pub use compare::{Comparison, Diff, MOST_DIFFS, OutputTerms, Scope, compare};
pub use correctness::{Correctness, judge_correctness};
pub use end::{CallEnd, Ended};
pub use failure::{CallSummary, Failure, FailureKind};
pub use judge::{EXIT_FILE, exit_json, judged_results};
pub use must_pass::MustPass;
pub use output::{Output, OutputReader};
pub use paths::Paths;
pub use plugin::{PYTEST_PLUGIN, PYTEST_PLUGIN_FILE, PluginTerms, pytest_environment};
pub use read::{Left, MOST_RESULT_BYTES, ResultsFile, ResultsKind, read_results};
pub use recorded::{Items, Large, NotFinite, Numbers, Recorded, Tagged};
pub use text::{ERROR_LINES, VALUE_CHARACTERS};
