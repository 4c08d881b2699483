//! Where facts go: into the journal first, then to those who watch.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::error::EvaluateError;
use super::event::Event;
use super::journal::{Journal, JournalError};
use super::record::Record;
use crate::measure::Run;

/// Raw records of measured runs, beside the journal.
pub(crate) const RUNS: &str = "runs.jsonl";

/// Those who watch. A slow one changes nothing: it is told when it has time.
#[derive(Clone, Debug)]
pub(crate) struct Audience(pub(crate) mpsc::UnboundedSender<Event>);

impl Audience {
    /// Nobody listening is as good as somebody.
    pub(crate) fn tell(&self, event: Event) {
        self.0.send(event).ok();
    }

    pub(crate) fn warn(&self, message: impl Into<String>) {
        self.tell(Event::Warning {
            message: message.into(),
        });
    }
}

/// The record of an evaluation, while it is being made.
#[derive(Debug)]
pub(crate) struct Telling {
    journal: Journal,
    runs: File,
    runs_path: PathBuf,
    pub(crate) audience: Audience,
}

impl Telling {
    pub(crate) fn new(
        journal: Journal,
        output: &Path,
        audience: Audience,
    ) -> Result<Self, EvaluateError> {
        let path = output.join(RUNS);
        let opened = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut file| drop_torn_line(&mut file).map(|()| file));
        let runs = opened.map_err(EvaluateError::attempting(format!(
            "opening `{}`",
            path.display()
        )))?;
        Ok(Self {
            journal,
            runs,
            runs_path: path,
            audience,
        })
    }

    /// Keeps a fact. It counts from now on.
    pub(crate) fn keep(&mut self, record: &Record) -> Result<(), EvaluateError> {
        Ok(self.journal.add(std::slice::from_ref(record))?)
    }

    /// Keeps the runs of a block.
    pub(crate) fn keep_runs(&mut self, runs: &[Run]) -> Result<(), EvaluateError> {
        let lines: String = runs
            .iter()
            .map(|run| serde_json::to_string(run).expect("runs are plain data") + "\n")
            .collect();
        let written = self
            .runs
            .write_all(lines.as_bytes())
            .and_then(|()| self.runs.sync_data());
        written.map_err(EvaluateError::attempting(format!("writing `{RUNS}`")))
    }

    /// All runs that were kept. A torn last line, of a block that is not whole, is none.
    pub(crate) fn runs(&self) -> Result<Vec<Run>, EvaluateError> {
        read_runs(&self.runs_path)
    }

    pub(crate) fn tell(&self, event: Event) {
        self.audience.tell(event);
    }
}

/// What follows a torn line would be read as a part of it.
fn drop_torn_line(file: &mut File) -> io::Result<()> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n');
    let whole = whole.map_or(0, |newline| newline + 1);
    match whole < text.len() {
        true => file.set_len(whole as u64),
        false => Ok(()),
    }
}

/// The runs of a file, up to a torn last line.
pub(crate) fn read_runs(path: &Path) -> Result<Vec<Run>, EvaluateError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(EvaluateError::attempting(format!(
        "reading `{}`",
        path.display()
    )))?;
    let mut runs = Vec::new();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        match (serde_json::from_str(line), line.ends_with('\n')) {
            (Ok(run), _) => runs.push(run),
            (Err(_), false) => break,
            (Err(error), true) => {
                return Err(EvaluateError::Failed(format!(
                    "{}:{number}: damaged: {error}",
                    path.display()
                )));
            }
        }
    }
    Ok(runs)
}

impl From<JournalError> for EvaluateError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Locked(_) => Self::Invalid(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
