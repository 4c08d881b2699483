//! The embedded line profiler: its text, what it is told, and what it says (CA-83). Pure; `evaluate` runs it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::evaluation::FunctionProfile;

/// The tracer, to be written as [`TRACER_FILE`] into a directory with nothing but its [`Terms`].
pub(crate) const TRACER: &str = include_str!("profile/tracer.py");
/// Interpreters load it by this name.
pub(crate) const TRACER_FILE: &str = "sitecustomize.py";
/// The name of its terms.
pub(crate) const TERMS_FILE: &str = "terms.json";
/// The variable that names the file for what it says.
pub(crate) const PROFILE_VARIABLE: &str = "FAIRTRIAL_PROFILE";
/// That file, at the root of the tree.
pub(crate) const PROFILE_FILE: &str = ".fairtrial-profile.json";
/// More than that nobody reads; a candidate may have written it.
pub(crate) const MOST_BYTES: u64 = 4 << 20;
/// Functions that are kept of a side, and lines of each.
const MOST_FUNCTIONS: usize = 100;
const MOST_LINES: usize = 1000;

/// What the tracer is told.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Terms<'a> {
    /// By path: both sides' texts, none where a side has no such file.
    pub(crate) files: &'a BTreeMap<String, Texts>,
    /// `base` or `winner`: whose functions are traced.
    pub(crate) side: &'static str,
    pub(crate) other: &'static str,
    /// As it was without the tracer.
    pub(crate) pythonpath: Option<String>,
    /// How long it traces; then the program runs on without.
    pub(crate) seconds: f64,
}

/// A file that the winner changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Texts {
    pub(crate) base: Option<String>,
    pub(crate) winner: Option<String>,
}

/// What the tracer says.
#[derive(Debug, Deserialize)]
struct Said {
    functions: Vec<FunctionProfile>,
    /// It stopped before the program did.
    is_cut: bool,
}

/// The functions, and a note where there is less than was hoped for.
pub(crate) fn read(
    bytes: &[u8],
    seconds: f64,
) -> Result<(Vec<FunctionProfile>, Option<String>), String> {
    let said: Said = serde_json::from_slice(bytes)
        .map_err(|error| format!("the tracer's file is damaged: {error}"))?;
    let mut functions = said.functions;
    let note = match (said.is_cut, functions.is_empty()) {
        (true, _) => Some(format!("traced for {seconds:.0} s only")),
        (_, true) => Some("no function is changed".to_owned()),
        _ => None,
    };
    functions.truncate(MOST_FUNCTIONS);
    for function in &mut functions {
        function.lines.truncate(MOST_LINES);
        // Figures may be a candidate's own: what is no number is none.
        let finite = |seconds: f64| if seconds.is_finite() { seconds } else { 0.0 };
        function.total_s = finite(function.total_s);
        for line in &mut function.lines {
            line.total_s = finite(line.total_s);
            line.text = line.text.chars().take(300).collect();
        }
    }
    Ok((functions, note))
}

#[cfg(test)]
mod tests;
