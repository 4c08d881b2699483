//! A study's directory as a fold over its journal: the canonical tables, made anew from what is recorded.

mod rows;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use num_bigint::BigInt;

use crate::canonical::canonical_json;
use crate::clock::{Precision, now_ns, time_text};
use crate::compat::Compat;
use crate::csv::CsvWriter;
use crate::files::{Whole, write_whole};
use crate::journal::{History, JournalError, Reader, Status};
use crate::json_out::{pretty, pretty_strict};
use crate::plan::{Plan, RunSpec};
use crate::run_record::RunRecord;
use crate::value::Value;
use crate::yaml_out::to_yaml;

/// What an export writes, beside checkpoints.
pub(crate) const TABLES: [&str; 9] = [
    "study.yaml",
    "study.input.yaml",
    "conditions.csv",
    "hypotheses.json",
    "analysis_plan.json",
    "runs.csv",
    "events.csv",
    "evaluations.csv",
    "attempts.csv",
];

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
}

/// How tables are to be written.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Where they go, as tables name it.
    pub output_dir: PathBuf,
    /// What differs between equal runs is blanked (ST-76).
    pub mask_volatile: bool,
    /// Checkpoints that DRE resumes from.
    pub checkpoints: bool,
    /// What DRE's manifest says of where and how; none is that nothing is known.
    pub provenance: Option<Value>,
    /// When they are made, in nanoseconds since 1970.
    pub generated_at_ns: i64,
    /// The study file as it was given.
    pub input: Vec<u8>,
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
    /// Writes the directory's tables, each whole.
    pub fn write(&self, directory: &Path) -> Result<(), ExportError> {
        let plan = self.plan;
        let normalised = &plan.study.normalised;
        self.file(directory, "study.yaml", |out| {
            out.write_all(to_yaml(&self.study_value()).as_bytes())
        })?;
        self.file(directory, "conditions.csv", |out| {
            plan.write_conditions(out)
        })?;
        for (name, key) in [
            ("hypotheses.json", "hypotheses"),
            ("analysis_plan.json", "analysis_plans"),
        ] {
            let value = normalised.get(key).cloned().unwrap_or(Value::Null);
            self.file(directory, name, |out| {
                out.write_all(pretty_strict(&value).as_bytes())
            })?;
        }
        let counted = self.write_runs(directory)?;
        let manifest = self.manifest(&counted);
        self.file(directory, "manifest.json", |out| {
            out.write_all(pretty_strict(&manifest).as_bytes())
        })?;
        if plan.study.compat == Compat::Native {
            let input = &self.options.input;
            self.file(directory, "study.input.yaml", |out| out.write_all(input))?;
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
        let place = rows::RUN_COLUMNS.iter().position(|name| *name == column)?;
        match column {
            // Those that outcomes are usually of, without the rest of the row.
            "primary_outcome" | "latency_s" | "cost_usd" | "input_tokens" | "output_tokens" => {
                Some(record.metric(column).cloned().unwrap_or(Value::Null))
            }
            _ => rows::run(self, run, record).into_iter().nth(place),
        }
    }

    fn write_runs(&self, directory: &Path) -> Result<Counted, ExportError> {
        let compat = self.plan.study.compat;
        let failed = |name: &str| {
            let path = directory.join(name);
            move |source| ExportError::File { path, source }
        };
        let begin = |name: &'static str| Whole::create(&directory.join(name)).map_err(failed(name));
        let (mut runs, mut events, mut evaluations) = (
            Late::new(begin("runs.csv")?),
            Late::new(begin("events.csv")?),
            Late::new(begin("evaluations.csv")?),
        );
        let mut attempts = match compat {
            Compat::Native => Some(Late::new(begin("attempts.csv")?)),
            Compat::Dre => None,
        };
        let mut counted = Counted::default();
        let checkpoints = directory.join("artifacts/checkpoints");
        let mut lines = None;
        if self.options.checkpoints {
            std::fs::create_dir_all(&checkpoints).map_err(failed("artifacts/checkpoints"))?;
            let path = checkpoints.join("runs.jsonl");
            let file = Whole::create(&path).map_err(|source| ExportError::File { path, source })?;
            lines = Some(file);
        }
        let mut show = |run: &RunSpec<'_>, record: &RunRecord| {
            counted.add(record);
            if compat == Compat::Dre && !record.status.is_its_own() {
                return Ok(());
            }
            let row = rows::run(self, run, record);
            runs.row(compat, rows::RUN_COLUMNS, &row)
                .map_err(failed("runs.csv"))?;
            for event in &record.events {
                let row = rows::event(event, self.options.mask_volatile, record);
                events
                    .row(compat, rows::EVENT_COLUMNS, &row)
                    .map_err(failed("events.csv"))?;
            }
            for item in &record.evaluations {
                let row = rows::evaluation(record, item);
                evaluations
                    .row(compat, rows::EVALUATION_COLUMNS, &row)
                    .map_err(failed("evaluations.csv"))?;
            }
            if let Some(lines) = &mut lines {
                let checkpoint = record.checkpoint(self.plan, run);
                let path = checkpoints.join(format!("{}.json", record.run_id));
                let told = |source| ExportError::File {
                    path: path.clone(),
                    source,
                };
                write_whole(&path, pretty(&checkpoint).as_bytes()).map_err(told)?;
                writeln!(lines, "{}", canonical_json(&checkpoint)).map_err(told)?;
            }
            Ok::<(), ExportError>(())
        };
        for run in self.plan.runs() {
            if let Some(attempts) = &mut attempts {
                for row in rows::attempts(self, &run)? {
                    attempts
                        .row(compat, rows::ATTEMPT_COLUMNS, &row)
                        .map_err(failed("attempts.csv"))?;
                }
            }
            if let Some(record) = RunRecord::read(self.plan, &run, self.history, self.reader)? {
                show(&run, &record)?;
            }
        }
        runs.finish(compat, rows::RUN_COLUMNS, rows::REQUIRED_RUN_COLUMNS)
            .map_err(failed("runs.csv"))?;
        events
            .finish(compat, rows::EVENT_COLUMNS, rows::REQUIRED_EVENT_COLUMNS)
            .map_err(failed("events.csv"))?;
        let all = rows::EVALUATION_COLUMNS.len();
        evaluations
            .finish(compat, rows::EVALUATION_COLUMNS, all)
            .map_err(failed("evaluations.csv"))?;
        if let Some(attempts) = attempts {
            let all = rows::ATTEMPT_COLUMNS.len();
            attempts
                .finish(compat, rows::ATTEMPT_COLUMNS, all)
                .map_err(failed("attempts.csv"))?;
        }
        if let Some(lines) = lines {
            lines.finish().map_err(failed("runs.jsonl"))?;
        }
        Ok(counted)
    }

    fn file(
        &self,
        directory: &Path,
        name: &str,
        write: impl FnOnce(&mut Whole) -> io::Result<()>,
    ) -> Result<(), ExportError> {
        let path = directory.join(name);
        let written = Whole::create(&path).and_then(|mut file| {
            write(&mut file)?;
            file.finish()
        });
        written.map_err(|source| ExportError::File { path, source })
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

    /// SF-55
    fn manifest(&self, counted: &Counted) -> Value {
        let mask = self.options.mask_volatile;
        let generated = match mask {
            true => String::new(),
            false => time_text(self.options.generated_at_ns, Precision::Seconds),
        };
        let given = self.plan.study.normalised.get("provenance_metadata");
        let given =
            given.filter(|value| matches!(value, Value::Map(entries) if !entries.is_empty()));
        let provenance = match (given, &self.options.provenance) {
            (Some(given), _) => given.clone(),
            (None, Some(captured)) if !mask => captured.clone(),
            (None, _) => Value::Map(Vec::new()),
        };
        let statuses = counted.statuses.iter().map(|(status, count)| {
            let count = Value::Int(BigInt::from(*count));
            (status.to_string(), count)
        });
        Value::map([
            ("generated_at", Value::Text(generated)),
            ("model_ids", Value::texts(&counted.models)),
            ("provenance", provenance),
            ("run_count", Value::Int(BigInt::from(counted.runs))),
            ("schema_version", Value::text("0.2.0")),
            ("status_counts", Value::map(statuses)),
            ("study_id", Value::text(&self.plan.study.study_id)),
        ])
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

/// What a manifest counts.
#[derive(Debug, Default)]
struct Counted {
    runs: u64,
    statuses: std::collections::BTreeMap<&'static str, u64>,
    models: std::collections::BTreeSet<String>,
}

impl Counted {
    fn add(&mut self, record: &RunRecord) {
        let status = match record.status {
            Status::Success => "success",
            _ => "failed",
        };
        self.runs += 1;
        *self.statuses.entry(status).or_default() += 1;
        match record.metadata.get("model_name") {
            Some(Value::Text(model)) if !model.is_empty() => _ = self.models.insert(model.clone()),
            _ => {}
        }
    }
}

/// A table whose header depends on whether it has a row.
struct Late {
    file: Option<Whole>,
    csv: Option<CsvWriter<Whole>>,
}

impl Late {
    fn new(file: Whole) -> Self {
        Self {
            file: Some(file),
            csv: None,
        }
    }

    fn row(&mut self, compat: Compat, columns: rows::Columns, row: &[Value]) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            let columns = columns.iter().take(row.len()).copied();
            self.csv = Some(CsvWriter::new(file, compat, columns)?);
        }
        match &mut self.csv {
            Some(csv) => csv.row(row),
            None => Ok(()),
        }
    }

    /// `required` columns are there without a row, too.
    fn finish(mut self, compat: Compat, columns: rows::Columns, required: usize) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            let count = match compat {
                Compat::Native => columns.len(),
                Compat::Dre => required,
            };
            let columns = columns.iter().take(count).copied();
            self.csv = Some(CsvWriter::new(file, compat, columns)?);
        }
        match self.csv {
            Some(csv) => csv.into_inner().finish(),
            None => Ok(()),
        }
    }
}
