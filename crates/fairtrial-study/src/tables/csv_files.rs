//! The canonical tables: a CSV file each.

use std::io;
use std::path::{Path, PathBuf};

use super::ExportError;
use super::layout::{Table, Which};
use super::sinks::TableSink;
use crate::compat::Compat;
use crate::csv::CsvWriter;
use crate::files::Whole;
use crate::value::Value;

pub(super) struct CsvFiles {
    files: Vec<CsvFile>,
}

impl CsvFiles {
    pub(super) fn create(
        layout: &[Table],
        directory: &Path,
        compat: Compat,
    ) -> Result<Self, ExportError> {
        let create = |table: &Table| {
            let path = directory.join(format!("{}.csv", table.name));
            let file = Whole::create(&path).map_err(ExportError::file(&path))?;
            Ok::<_, ExportError>(CsvFile {
                table: table.clone(),
                path,
                compat,
                state: State::Begun(file),
            })
        };
        let files = layout.iter().map(create).collect::<Result<_, _>>()?;
        Ok(Self { files })
    }
}

impl TableSink for CsvFiles {
    fn row(&mut self, which: Which, row: &[Value]) -> Result<(), ExportError> {
        let mut files = self.files.iter_mut();
        match files.find(|file| file.table.which == which) {
            Some(file) => file.row(row).map_err(ExportError::file(&file.path)),
            None => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> Result<(), ExportError> {
        let mut files = self.files.into_iter();
        files.try_for_each(|file| {
            let path = file.path.clone();
            file.finish().map_err(ExportError::file(&path))
        })
    }
}

/// A table whose header depends on whether it has a row.
struct CsvFile {
    table: Table,
    path: PathBuf,
    compat: Compat,
    state: State,
}

enum State {
    Begun(Whole),
    Headed(CsvWriter<Whole>),
    /// Its header could not be written.
    Failed,
}

impl CsvFile {
    fn row(&mut self, row: &[Value]) -> io::Result<()> {
        self.head(self.table.columns.len())?.row(row)
    }

    fn finish(mut self) -> io::Result<()> {
        self.head(match self.compat {
            Compat::Native => self.table.columns.len(),
            Compat::Dre => self.table.required,
        })?;
        match self.state {
            State::Headed(csv) => csv.into_inner().finish(),
            State::Begun(_) | State::Failed => Ok(()),
        }
    }

    /// With so many columns, unless it has its header.
    fn head(&mut self, count: usize) -> io::Result<&mut CsvWriter<Whole>> {
        let state = std::mem::replace(&mut self.state, State::Failed);
        self.state = match state {
            State::Begun(file) => {
                let columns = self.table.columns.iter().take(count);
                let names = columns.map(|column| column.name.as_str());
                State::Headed(CsvWriter::new(file, self.compat, names)?)
            }
            other => other,
        };
        match &mut self.state {
            State::Headed(csv) => Ok(csv),
            State::Begun(_) | State::Failed => Err(io::Error::other("it has no header")),
        }
    }
}
