//! Stands for Parquet where it is not built in.

use std::io;
use std::path::Path;

use super::ExportError;
use super::layout::{Table, Which};
use super::sinks::TableSink;
use crate::value::Value;

/// It is not.
pub(crate) const IS_BUILT_IN: bool = false;

/// Files that cannot be written.
pub(super) enum ParquetFiles {}

impl ParquetFiles {
    pub(super) fn create(_layout: &[Table], directory: &Path) -> Result<Self, ExportError> {
        let problem = "parquet is not built in (build with `--features parquet`)";
        let error = io::Error::new(io::ErrorKind::Unsupported, problem);
        Err(ExportError::file(&directory.join("runs.parquet"))(error))
    }
}

impl TableSink for ParquetFiles {
    fn row(&mut self, _which: Which, _row: &[Value]) -> Result<(), ExportError> {
        match *self {}
    }

    fn finish(self: Box<Self>) -> Result<(), ExportError> {
        match *self {}
    }
}
