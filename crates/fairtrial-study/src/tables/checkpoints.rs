//! Checkpoints as DRE keeps them: a file per run, and all of them as lines (SF-56).

use std::io::Write;
use std::path::{Path, PathBuf};

use super::ExportError;
use crate::canonical::canonical_json;
use crate::files::{Whole, write_whole};
use crate::json_out::pretty;
use crate::run_record::RunRecord;
use crate::value::Value;

pub(super) struct Checkpoints {
    directory: PathBuf,
    lines: Whole,
    lines_path: PathBuf,
}

impl Checkpoints {
    pub(super) fn create(directory: &Path) -> Result<Self, ExportError> {
        let directory = directory.join("artifacts/checkpoints");
        std::fs::create_dir_all(&directory).map_err(ExportError::file(&directory))?;
        let lines_path = directory.join("runs.jsonl");
        let lines = Whole::create(&lines_path).map_err(ExportError::file(&lines_path))?;
        Ok(Self {
            directory,
            lines,
            lines_path,
        })
    }

    pub(super) fn run(
        &mut self,
        record: &RunRecord,
        checkpoint: &Value,
    ) -> Result<(), ExportError> {
        let path = self.directory.join(format!("{}.json", record.run_id));
        write_whole(&path, pretty(checkpoint).as_bytes()).map_err(ExportError::file(&path))?;
        writeln!(self.lines, "{}", canonical_json(checkpoint))
            .map_err(ExportError::file(&self.lines_path))
    }

    pub(super) fn finish(self) -> Result<(), ExportError> {
        self.lines
            .finish()
            .map_err(ExportError::file(&self.lines_path))
    }
}
