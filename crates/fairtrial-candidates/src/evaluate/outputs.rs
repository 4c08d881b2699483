//! What an evaluation leaves in its directory, and what is read from there.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::error::EvaluateError;
use super::field::Field;
use super::telling::{RUNS, read_runs};
use crate::evaluation::{EvaluationReport, REPORT_VERSION};
use crate::measure::Run;
use crate::search::sources;
use crate::stage::Origin;

/// The report.
pub(super) const REPORT: &str = "evaluation.json";
/// The report for people.
pub(super) const PAGE: &str = "report.html";

/// The candidates of proposers.
pub(super) const PROPOSED: &str = "proposed.jsonl";

/// Writes the report, and the page, each whole or not at all.
pub(crate) fn write_report(output: &Path, report: &EvaluationReport) -> Result<(), EvaluateError> {
    let text = serde_json::to_string_pretty(report).expect("a report is plain data");
    write_whole(&output.join(REPORT), text + "\n")?;
    let runs = runs_of(output)?;
    write_whole(&output.join(PAGE), report.html(&runs))
}

/// Writes what proposers proposed, as a source of candidates has it: `{jsonl: proposed.jsonl}` would try it again.
pub(crate) fn write_proposed(output: &Path, field: &Field) -> Result<(), EvaluateError> {
    let proposed = field
        .entries
        .iter()
        .filter(|entry| entry.origin != Origin::Given);
    let lines = proposed.filter_map(|entry| {
        let staged = entry.staged.as_ref()?;
        let meta = json!({"id": entry.id()});
        let line = json!({"name": entry.name, "files": sources(&staged.images), "meta": meta});
        Some(format!("{line}\n"))
    });
    match lines.collect::<String>() {
        none if none.is_empty() => Ok(()),
        lines => write_whole(&output.join(PROPOSED), lines),
    }
}

impl EvaluationReport {
    /// The report that an evaluation left in its directory, and its runs: both are needed to show it or to judge it again.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn read(directory: &Path) -> Result<(Self, Vec<Run>), EvaluateError> {
        let place = directory.join(REPORT);
        let text = fs::read_to_string(&place);
        let text = text.map_err(EvaluateError::attempting(format!(
            "reading `{}`",
            place.display()
        )))?;
        let broken = |why: String| {
            EvaluateError::Invalid(format!("`{}` is no report: {why}", place.display()))
        };
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        if value["version"] != REPORT_VERSION {
            return Err(broken(format!(
                "its version is {}, and this Fairtrial reads {REPORT_VERSION}",
                value["version"]
            )));
        }
        let report = serde_json::from_value(value).map_err(|error| broken(error.to_string()))?;
        Ok((report, runs_of(directory)?))
    }

    /// Writes the report as a page, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_html(&self, runs: &[Run], place: &Path) -> Result<(), EvaluateError> {
        write_whole(place, self.html(runs))
    }
}

/// Nothing was measured, nothing is there.
fn runs_of(directory: &Path) -> Result<Vec<Run>, EvaluateError> {
    let place = directory.join(RUNS);
    match place.exists() {
        true => read_runs(&place),
        false => Ok(Vec::new()),
    }
}

fn write_whole(place: &Path, text: String) -> Result<(), EvaluateError> {
    let failed = || EvaluateError::attempting(format!("writing `{}`", place.display()));
    let new = unfinished(place);
    fs::write(&new, text).map_err(failed())?;
    fs::rename(&new, place).map_err(failed())
}

/// Where a file is until it is whole.
pub(super) fn unfinished(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.new"))
}
