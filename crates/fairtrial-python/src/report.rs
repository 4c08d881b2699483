//! An evaluation's report judged again, and shown.

use std::path::{Path, PathBuf};

use fairtrial_candidates::measure::{Metric, Run};
use fairtrial_candidates::{EvaluateError, EvaluationReport, Rescoring};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::evaluation::refused;

/// The report, which is JSON, as it would be on other terms: JSON again. Its runs are in `directory`.
#[pyfunction]
pub(crate) fn rescore(
    py: Python<'_>,
    report: &str,
    directory: PathBuf,
    alpha: Option<f64>,
    min_effect: Option<f64>,
    metric: Option<String>,
) -> PyResult<String> {
    let terms = Rescoring {
        alpha,
        min_effect,
        metric: metric.map(known).transpose()?,
    };
    let rescored = py.detach(|| {
        let (report, runs) = read(report, &directory)?;
        report.rescore(&runs, &terms)
    });
    let rescored = rescored.map_err(refused)?;
    Ok(serde_json::to_string(&rescored).expect("a report is plain data"))
}

/// Writes the report as a page.
#[pyfunction]
pub(crate) fn write_html(
    py: Python<'_>,
    report: &str,
    directory: PathBuf,
    place: PathBuf,
) -> PyResult<()> {
    let written = py.detach(|| {
        let (report, runs) = read(report, &directory)?;
        report.write_html(&runs, &place)
    });
    written.map_err(|error| PyOSError::new_err(error.to_string()))
}

fn known(metric: String) -> PyResult<Metric> {
    serde_json::from_value(metric.into()).map_err(|_| {
        PyValueError::new_err("`metric` must be \"wall\", \"cpu\" or \"instructions\"")
    })
}

/// The report itself need not be the one that is on record.
fn read(report: &str, directory: &Path) -> Result<(EvaluationReport, Vec<Run>), EvaluateError> {
    let (_, runs) = EvaluationReport::read(directory)?;
    let report = serde_json::from_str(report);
    let broken = |error: serde_json::Error| EvaluateError::Invalid(format!("no report: {error}"));
    Ok((report.map_err(broken)?, runs))
}
