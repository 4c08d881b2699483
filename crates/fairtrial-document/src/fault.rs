//! What is wrong with a file, and where. Found all in one pass; shown by others.

use std::fmt;
use std::sync::Arc;

/// A place in a file; lines and columns count from 1. In what was given without a file, the path of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as the user named it; where there is none, the path of keys.
    pub file: Arc<str>,
    /// Line; 0 where there is no file.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl Place {
    /// The first character of a file.
    #[must_use]
    pub fn start_of(file: &Arc<str>) -> Self {
        Self {
            file: file.clone(),
            line: 1,
            column: 1,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}:{}", self.file, self.column),
        }
    }
}

/// An error or a warning: `file:line:column: message; hint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// Its kind, stable, for programs.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        match self.hint.as_str() {
            "" => Ok(()),
            hint => write!(f, "; {hint}"),
        }
    }
}

/// Why a file cannot be used: every fault that was found, in the order of their places.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", lines(.faults))]
pub struct Invalid {
    /// At least one.
    pub faults: Vec<Fault>,
}

fn lines(faults: &[Fault]) -> String {
    let lines: Vec<_> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Collects faults and warnings while a file is read.
#[derive(Debug, Default)]
pub struct Findings {
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// What is only odd.
    pub warnings: Vec<Fault>,
}

impl Findings {
    /// Notes what is wrong.
    pub fn fault(
        &mut self,
        place: &Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.faults.push(fault(place, code, message, hint));
    }

    /// Notes what is odd.
    pub fn warn(
        &mut self,
        place: &Place,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.warnings.push(fault(place, code, message, hint));
    }

    /// The warnings, if nothing is wrong.
    pub fn settle(mut self) -> Result<Vec<Fault>, Invalid> {
        self.warnings.sort_by(|a, b| a.place.cmp(&b.place));
        if self.faults.is_empty() {
            return Ok(self.warnings);
        }
        self.faults.sort_by(|a, b| a.place.cmp(&b.place));
        self.faults.dedup();
        Err(Invalid {
            faults: self.faults,
        })
    }
}

/// A fault at a place; without a hint, an empty one.
pub fn fault(
    place: &Place,
    code: &'static str,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> Fault {
    Fault {
        place: place.clone(),
        code,
        message: message.into(),
        hint: hint.into(),
    }
}

/// A longer list of words helps nobody.
const MOST_LISTED: usize = 16;

/// ``did you mean `x`?`` for the nearest known word within two edits, else the words there are if they are few.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(word, known.iter().copied()) {
        Some(best) => format!("did you mean `{best}`?"),
        None if known.is_empty() || known.len() > MOST_LISTED => String::new(),
        None => format!("known are {}", listed(known)),
    }
}

/// The nearest known word within two edits, none of a word that short that two edits make any other.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 2 && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance);
    near.map(|(_, candidate)| candidate)
}

/// `` `a`, `b` ``
pub fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

/// Enough of a text to know it by.
#[must_use]
pub fn short(text: &str) -> String {
    const LONGEST: usize = 60;
    let text = text.replace(['\n', '\r', '\t'], " ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
