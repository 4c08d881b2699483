//! `runs.jsonl`: one object per run, strict JSON (ST-74, ST-77).

use std::io::Write;
use std::path::{Path, PathBuf};

use super::layout::{Table, Which};
use super::{ExportError, rows};
use crate::canonical::canonical_json;
use crate::files::Whole;
use crate::json_out::strict;
use crate::plan::RunSpec;
use crate::run_record::RunRecord;
use crate::value::Value;

pub(super) struct JsonLines {
    columns: Vec<String>,
    out: Whole,
    path: PathBuf,
}

impl JsonLines {
    pub(super) fn create(layout: &[Table], directory: &Path) -> Result<Self, ExportError> {
        let path = directory.join("runs.jsonl");
        let out = Whole::create(&path).map_err(ExportError::file(&path))?;
        let runs = layout.iter().filter(|table| table.which == Which::Runs);
        let columns = runs.flat_map(|table| &table.columns);
        Ok(Self {
            columns: columns.map(|column| column.name.clone()).collect(),
            out,
            path,
        })
    }

    /// The row of `runs.csv`, and beside it what no cell holds.
    pub(super) fn run(
        &mut self,
        row: &[Value],
        run: &RunSpec<'_>,
        record: &RunRecord,
        mask: bool,
    ) -> Result<(), ExportError> {
        let cells = self.columns.iter().map(String::as_str);
        let mut entries: Vec<(&str, Value)> = cells.zip(row.iter().cloned()).collect();
        let events = record.events.iter();
        let events = events.map(|event| rows::masked_event(event, mask, record).into_owned());
        entries.extend([
            ("factors", owned(run.condition.factors())),
            ("blocks", owned(run.condition.blocks())),
            ("outputs", record.outputs.clone()),
            ("metrics", metrics(record, mask)),
            ("metadata", record.metadata.clone()),
            ("trace_refs", Value::List(record.trace_refs.clone())),
            ("events", Value::List(events.collect())),
            ("evaluations", Value::List(record.evaluations.clone())),
        ]);
        let line = canonical_json(&strict(&Value::map(entries)));
        writeln!(self.out, "{line}").map_err(ExportError::file(&self.path))
    }

    pub(super) fn finish(self) -> Result<(), ExportError> {
        self.out.finish().map_err(ExportError::file(&self.path))
    }
}

fn owned<'v>(entries: impl Iterator<Item = (&'v str, &'v Value)>) -> Value {
    Value::map(entries.map(|(name, value)| (name, value.clone())))
}

/// How long it took is a metric, too.
fn metrics(record: &RunRecord, mask: bool) -> Value {
    let mut metrics = record.metrics.clone();
    if let (Value::Map(entries), true) = (&mut metrics, mask) {
        let latency = entries
            .iter_mut()
            .find(|(key, _)| key.as_text() == Some("latency_s"));
        if let Some((_, value)) = latency {
            *value = Value::Null;
        }
    }
    metrics
}
