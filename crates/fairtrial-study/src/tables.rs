//! A study's directory as a fold over its journal: the canonical tables, made anew from what is recorded.

mod checkpoints;
mod csv_files;
mod database;
mod json_lines;
mod layout;
mod manifest;
#[cfg(not(feature = "parquet"))]
mod no_parquet;
#[cfg(feature = "parquet")]
mod parquet_files;
mod rows;
mod sinks;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::now_ns;
use crate::compat::Compat;
use crate::files::write_whole;
use crate::format::Format;
use crate::journal::{History, JournalError, Reader};
use crate::json_out::pretty_strict;
use crate::plan::{Plan, RunSpec};
use crate::run_record::RunRecord;
use crate::value::Value;
use crate::yaml_out::to_yaml;

use manifest::{Counted, manifest};
use sinks::Sinks;

#[cfg(not(feature = "parquet"))]
use no_parquet as parquet_files;
pub(crate) use parquet_files::IS_BUILT_IN as PARQUET_IS_BUILT_IN;

/// Why tables could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The record could not be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file could not be written.
    #[error("cannot write `{}`: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nobody wants them any more.
    #[error("the export was given up")]
    GivenUp,
}

impl ExportError {
    /// What befell a file.
    fn file<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| {
            let source = match source.into().downcast::<io::Error>() {
                Ok(error) => *error,
                Err(other) => io::Error::other(other),
            };
            Self::File { path, source }
        }
    }
}

/// How tables are to be written.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Where they go, as tables name it.
    pub output_dir: PathBuf,
    /// In which formats. Checkpoints of DRE's come with its tables.
    pub formats: BTreeSet<Format>,
    /// What differs between equal runs is blanked (ST-76).
    pub mask_volatile: bool,
    /// What DRE's manifest says of where and how; none is that nothing is known.
    pub provenance: Option<Value>,
    /// When they are made, in nanoseconds since 1970.
    pub generated_at_ns: i64,
    /// The study file as it was given.
    pub input: Arc<[u8]>,
    /// Once set, what is under way is given up.
    pub given_up: Arc<AtomicBool>,
}

impl ExportOptions {
    /// Options of an export that is made now.
    #[must_use]
    pub fn now() -> Self {
        Self {
            generated_at_ns: now_ns(),
            ..Self::default()
        }
    }
}

/// Everything that is exported.
pub struct Export<'e> {
    /// The plan.
    pub plan: &'e Plan<'e>,
    /// The record.
    pub reader: &'e Reader,
    /// What became of its runs.
    pub history: &'e History,
    /// How.
    pub options: &'e ExportOptions,
}

impl Export<'_> {
    /// Writes the files of all formats, each whole.
    pub fn write(&self, directory: &Path) -> Result<(), ExportError> {
        let formats = &self.options.formats;
        let with_tables = formats.contains(&Format::Csv) || formats.contains(&Format::Dre);
        if with_tables {
            self.write_study(directory)?;
        }
        let counted = self.write_tables(directory, with_tables)?;
        if with_tables {
            let manifest = manifest(self, &counted);
            self.file(
                directory,
                "manifest.json",
                pretty_strict(&manifest).as_bytes(),
            )?;
        }
        Ok(())
    }

    /// Calls `each` with every run that tables show, in plan order.
    pub fn records<E: From<JournalError>>(
        &self,
        mut each: impl FnMut(&RunSpec<'_>, &RunRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        for run in self.plan.runs() {
            if let Some(record) = RunRecord::read(self.plan, &run, self.history, self.reader)? {
                each(&run, &record)?;
            }
        }
        Ok(())
    }

    /// A cell of `runs.csv`; none where there is no such column.
    pub(crate) fn run_cell(
        &self,
        run: &RunSpec<'_>,
        record: &RunRecord,
        column: &str,
    ) -> Option<Value> {
        let place = layout::RUN_COLUMNS
            .iter()
            .position(|(name, _)| *name == column)?;
        match column {
            // Those that outcomes are usually of, without the rest of the row.
            "primary_outcome" | "latency_s" | "cost_usd" | "input_tokens" | "output_tokens" => {
                Some(record.metric(column).cloned().unwrap_or(Value::Null))
            }
            _ => rows::run(self, run, record).into_iter().nth(place),
        }
    }

    /// The study, and what it registered.
    fn write_study(&self, directory: &Path) -> Result<(), ExportError> {
        let study = &self.plan.study;
        let text = to_yaml(&self.study_value());
        self.file(directory, "study.yaml", text.as_bytes())?;
        if study.compat == Compat::Native {
            self.file(directory, "study.input.yaml", &self.options.input)?;
        }
        for (name, key) in [
            ("hypotheses.json", "hypotheses"),
            ("analysis_plan.json", "analysis_plans"),
        ] {
            let value = study.normalised.get(key).cloned().unwrap_or(Value::Null);
            self.file(directory, name, pretty_strict(&value).as_bytes())?;
        }
        Ok(())
    }

    fn write_tables(&self, directory: &Path, with_tables: bool) -> Result<Counted, ExportError> {
        let is_dre = self.plan.study.compat == Compat::Dre;
        let mut counted = Counted::default();
        let mut sinks = Sinks::begin(self, directory, with_tables)?;
        for row in self.plan.condition_rows() {
            sinks.condition(&row)?;
        }
        for run in self.plan.runs() {
            if self.options.given_up.load(Ordering::Relaxed) {
                return Err(ExportError::GivenUp);
            }
            let record = RunRecord::read(self.plan, &run, self.history, self.reader)?;
            sinks.attempts(self, &run, record.as_ref())?;
            if let Some(record) = record {
                counted.add(&record);
                if !is_dre || record.status.is_its_own() {
                    sinks.run(self, &run, &record)?;
                }
            }
        }
        sinks.finish()?;
        Ok(counted)
    }

    fn file(&self, directory: &Path, name: &str, bytes: &[u8]) -> Result<(), ExportError> {
        let path = directory.join(name);
        write_whole(&path, bytes).map_err(ExportError::file(&path))
    }

    /// The study in full; where it went is volatile.
    fn study_value(&self) -> Value {
        let mut value = self.plan.study.exported();
        if let Value::Map(entries) = &mut value {
            for (key, item) in entries {
                if key.as_text() == Some("output_dir") {
                    *item = match self.options.mask_volatile {
                        true => Value::text(""),
                        false => Value::Text(self.options.output_dir.display().to_string()),
                    };
                }
            }
        }
        match self.plan.study.compat {
            Compat::Native => value,
            Compat::Dre => dates_as_text(value),
        }
    }
}

/// As DRE writes a study: its dates are texts (SF-20). Ids are the same.
fn dates_as_text(value: Value) -> Value {
    match value {
        Value::Moment(moment) => Value::Text(moment.to_string()),
        Value::List(items) => Value::List(items.into_iter().map(dates_as_text).collect()),
        Value::Map(entries) => {
            let entries = entries.into_iter();
            Value::Map(
                entries
                    .map(|(key, item)| (key, dates_as_text(item)))
                    .collect(),
            )
        }
        other => other,
    }
}
