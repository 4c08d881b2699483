//! What an evaluation leaves in its directory.

use std::fs;
use std::path::Path;

use super::error::EvaluateError;
use crate::evaluation::EvaluationReport;

/// Writes the report, whole or not at all.
pub(crate) fn write_report(output: &Path, report: &EvaluationReport) -> Result<(), EvaluateError> {
    let text = serde_json::to_string_pretty(report).expect("a report is plain data");
    let (place, new) = (
        output.join("evaluation.json"),
        output.join(".evaluation.json.new"),
    );
    let failed = || EvaluateError::attempting(format!("writing `{}`", place.display()));
    fs::write(&new, text + "\n").map_err(failed())?;
    fs::rename(&new, &place).map_err(failed())
}
