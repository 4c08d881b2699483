//! Where rows and records go: each format takes what it needs of every run, as it comes.

use std::path::Path;

use super::checkpoints::Checkpoints;
use super::csv_files::CsvFiles;
use super::database::Database;
use super::json_lines::JsonLines;
use super::layout::{Table, Which, tables};
use super::parquet_files::ParquetFiles;
use super::{Export, ExportError, rows};
use crate::format::Format;
use crate::plan::RunSpec;
use crate::run_record::RunRecord;
use crate::value::Value;

/// A format that holds tables.
pub(super) trait TableSink {
    fn row(&mut self, which: Which, row: &[Value]) -> Result<(), ExportError>;

    /// Puts what was written in its place.
    fn finish(self: Box<Self>) -> Result<(), ExportError>;
}

pub(super) struct Sinks {
    tables: Vec<Box<dyn TableSink>>,
    lines: Option<JsonLines>,
    checkpoints: Option<Checkpoints>,
    with_attempts: bool,
}

impl Sinks {
    /// Begins all files, in the same order each time: of two exports to one directory, one waits for the other.
    pub(super) fn begin(
        export: &Export<'_>,
        directory: &Path,
        with_csv: bool,
    ) -> Result<Self, ExportError> {
        let (formats, compat) = (&export.options.formats, export.plan.study.compat);
        let layout: Vec<Table> = tables(export.plan);
        let mut sinks = Self {
            tables: Vec::new(),
            lines: None,
            checkpoints: None,
            with_attempts: layout.iter().any(|table| table.which == Which::Attempts),
        };
        if with_csv {
            let files = CsvFiles::create(&layout, directory, compat)?;
            sinks.tables.push(Box::new(files));
        }
        if formats.contains(&Format::Json) {
            sinks.lines = Some(JsonLines::create(&layout, directory)?);
        }
        if formats.contains(&Format::Parquet) {
            let files = ParquetFiles::create(&layout, directory)?;
            sinks.tables.push(Box::new(files));
        }
        if formats.contains(&Format::Sqlite) {
            let database = Database::create(&layout, directory, compat)?;
            sinks.tables.push(Box::new(database));
        }
        if formats.contains(&Format::Dre) {
            sinks.checkpoints = Some(Checkpoints::create(directory)?);
        }
        Ok(sinks)
    }

    pub(super) fn condition(&mut self, row: &[Value]) -> Result<(), ExportError> {
        self.row(Which::Conditions, row)
    }

    /// Every start of a run; `record` if it came to an end of its own.
    pub(super) fn attempts(
        &mut self,
        export: &Export<'_>,
        run: &RunSpec<'_>,
        record: Option<&RunRecord>,
    ) -> Result<(), ExportError> {
        if self.with_attempts && !self.tables.is_empty() {
            for row in rows::attempts(export, run, record)? {
                self.row(Which::Attempts, &row)?;
            }
        }
        Ok(())
    }

    pub(super) fn run(
        &mut self,
        export: &Export<'_>,
        run: &RunSpec<'_>,
        record: &RunRecord,
    ) -> Result<(), ExportError> {
        let mask = export.options.mask_volatile;
        let row = rows::run(export, run, record);
        self.row(Which::Runs, &row)?;
        for event in &record.events {
            self.row(Which::Events, &rows::event(event, mask, record))?;
        }
        for item in &record.evaluations {
            self.row(Which::Evaluations, &rows::evaluation(record, item))?;
        }
        if let Some(lines) = &mut self.lines {
            lines.run(&row, run, record, mask)?;
        }
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.run(record, &record.checkpoint(export.plan, run))?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), ExportError> {
        for tables in self.tables {
            tables.finish()?;
        }
        if let Some(lines) = self.lines {
            lines.finish()?;
        }
        if let Some(checkpoints) = self.checkpoints {
            checkpoints.finish()?;
        }
        Ok(())
    }

    fn row(&mut self, which: Which, row: &[Value]) -> Result<(), ExportError> {
        let mut tables = self.tables.iter_mut();
        tables.try_for_each(|tables| tables.row(which, row))
    }
}
