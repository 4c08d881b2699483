//! The tables as Parquet files, one each: optional columns, uncompressed, groups of rows that fit into memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::Result as ParquetResult;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::ExportError;
use super::layout::{Column, Kind, Table, Which};
use super::sinks::TableSink;
use crate::compat::Compat;
use crate::csv::cell_text;
use crate::files::Whole;
use crate::value::Value;

/// It is.
pub(crate) const IS_BUILT_IN: bool = true;

/// A group of rows is written when it has so many,
const GROUP_ROWS: usize = 1 << 16;
/// or takes so much memory.
const GROUP_BYTES: usize = 16 << 20;

pub(super) struct ParquetFiles {
    files: Vec<ParquetFile>,
}

impl ParquetFiles {
    pub(super) fn create(layout: &[Table], directory: &Path) -> Result<Self, ExportError> {
        let create = |table: &Table| {
            let path = directory.join(format!("{}.parquet", table.name));
            let file = Whole::create(&path).map_err(ExportError::file(&path))?;
            ParquetFile::begin(table, file, &path).map_err(ExportError::file(&path))
        };
        let files = layout.iter().map(create).collect::<Result<_, _>>()?;
        Ok(Self { files })
    }
}

impl TableSink for ParquetFiles {
    fn row(&mut self, which: Which, row: &[Value]) -> Result<(), ExportError> {
        let mut files = self.files.iter_mut();
        match files.find(|file| file.which == which) {
            Some(file) => file.row(row).map_err(ExportError::file(&file.path)),
            None => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> Result<(), ExportError> {
        for mut file in self.files {
            file.write_group().map_err(ExportError::file(&file.path))?;
            let whole = file.writer.into_inner();
            let whole = whole.map_err(ExportError::file(&file.path))?;
            whole.finish().map_err(ExportError::file(&file.path))?;
        }
        Ok(())
    }
}

struct ParquetFile {
    which: Which,
    path: PathBuf,
    writer: SerializedFileWriter<Whole>,
    columns: Vec<Buffer>,
    rows: usize,
    bytes: usize,
}

impl ParquetFile {
    fn begin(table: &Table, file: Whole, path: &Path) -> ParquetResult<Self> {
        let fields = table.columns.iter().map(field);
        let schema = Type::group_type_builder(table.name)
            .with_fields(fields.collect::<ParquetResult<_>>()?)
            .build()?;
        let properties = WriterProperties::builder().set_created_by("fairtrial".into());
        let properties = Arc::new(properties.build());
        Ok(Self {
            which: table.which,
            path: path.to_owned(),
            writer: SerializedFileWriter::new(file, Arc::new(schema), properties)?,
            columns: table.columns.iter().map(Buffer::of).collect(),
            rows: 0,
            bytes: 0,
        })
    }

    fn row(&mut self, row: &[Value]) -> ParquetResult<()> {
        for (column, value) in self.columns.iter_mut().zip(row) {
            self.bytes += column.push(value);
        }
        self.rows += 1;
        match self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            true => self.write_group(),
            false => Ok(()),
        }
    }

    fn write_group(&mut self) -> ParquetResult<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        let mut columns = self.columns.iter_mut();
        while let (Some(mut writer), Some(column)) = (group.next_column()?, columns.next()) {
            column.write(writer.untyped())?;
            writer.close()?;
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

fn field(column: &Column) -> ParquetResult<Arc<Type>> {
    let (physical, logical) = match column.kind {
        Kind::Integer => (Physical::INT64, None),
        Kind::Real => (Physical::DOUBLE, None),
        Kind::Boolean => (Physical::BOOLEAN, None),
        Kind::Text | Kind::Mixed => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical);
    Ok(Arc::new(field.build()?))
}

/// The values of a column, and for every row whether it has one.
struct Buffer {
    values: Values,
    levels: Vec<i16>,
}

enum Values {
    Integer(Vec<i64>),
    Real(Vec<f64>),
    Boolean(Vec<bool>),
    Text(Vec<ByteArray>),
}

impl Buffer {
    fn of(column: &Column) -> Self {
        Self {
            values: match column.kind {
                Kind::Integer => Values::Integer(Vec::new()),
                Kind::Real => Values::Real(Vec::new()),
                Kind::Boolean => Values::Boolean(Vec::new()),
                Kind::Text | Kind::Mixed => Values::Text(Vec::new()),
            },
            levels: Vec::new(),
        }
    }

    /// Adds a cell, and says what it takes. What is not of the column's kind is null; any value has a text.
    fn push(&mut self, value: &Value) -> usize {
        let mut size = 10;
        let is_there = match (&mut self.values, value) {
            (_, Value::Null) => false,
            (Values::Integer(all), Value::Int(int)) => put(all, i64::try_from(int).ok()),
            (Values::Boolean(all), Value::Bool(truth)) => put(all, Some(*truth)),
            (Values::Real(all), Value::Bool(truth)) => put(all, Some(f64::from(*truth))),
            (Values::Real(all), number) => put(all, number.as_number()),
            (Values::Text(all), value) => {
                let text = cell_text(value, Compat::Native);
                size += text.len() + size_of::<ByteArray>();
                put(all, Some(ByteArray::from(text.into_bytes())))
            }
            (Values::Integer(_) | Values::Boolean(_), _) => false,
        };
        self.levels.push(is_there.into());
        size
    }

    /// Writes what there is, and forgets it.
    fn write(&mut self, writer: &mut ColumnWriter<'_>) -> ParquetResult<()> {
        let levels = Some(self.levels.as_slice());
        match (writer, &mut self.values) {
            (ColumnWriter::Int64ColumnWriter(out), Values::Integer(all)) => {
                out.write_batch(all, levels, None)?;
                all.clear();
            }
            (ColumnWriter::DoubleColumnWriter(out), Values::Real(all)) => {
                out.write_batch(all, levels, None)?;
                all.clear();
            }
            (ColumnWriter::BoolColumnWriter(out), Values::Boolean(all)) => {
                out.write_batch(all, levels, None)?;
                all.clear();
            }
            (ColumnWriter::ByteArrayColumnWriter(out), Values::Text(all)) => {
                out.write_batch(all, levels, None)?;
                all.clear();
            }
            _ => unreachable!("the schema was made of the same columns"),
        }
        self.levels.clear();
        Ok(())
    }
}

fn put<T>(all: &mut Vec<T>, value: Option<T>) -> bool {
    let is_there = value.is_some();
    all.extend(value);
    is_there
}

#[cfg(test)]
mod tests {
    use num_bigint::BigInt;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    fn column(name: &str, kind: Kind) -> Column {
        Column {
            name: name.into(),
            kind,
        }
    }

    /// ST-74
    #[test]
    fn parquet_gives_back_what_it_was_given() {
        let directory = tempfile::tempdir().unwrap();
        let layout = [Table {
            which: Which::Runs,
            name: "runs",
            columns: vec![
                column("order", Kind::Integer),
                column("prompt-frame", Kind::Text),
                column("a\"b", Kind::Mixed),
                column("x", Kind::Real),
                column("y", Kind::Boolean),
            ],
            required: 5,
        }];
        let mut files = Box::new(ParquetFiles::create(&layout, directory.path()).unwrap());
        let rows = GROUP_ROWS + 2;
        for index in 0..rows {
            let row = match index % 2 {
                0 => [
                    Value::Int(BigInt::from(index)),
                    Value::text("é"),
                    Value::List(vec![Value::Bool(true)]),
                    Value::Float(f64::INFINITY),
                    Value::Bool(true),
                ],
                _ => [
                    Value::Null,
                    Value::Null,
                    Value::Int(BigInt::from(2).pow(80)),
                    Value::Bool(true),
                    Value::text("neither"),
                ],
            };
            files.row(Which::Runs, &row).unwrap();
            files.row(Which::Attempts, &row).unwrap(); // there is no such table
        }
        files.finish().unwrap();
        let file = std::fs::File::open(directory.path().join("runs.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        let shown: Vec<String> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().to_string())
            .collect();
        assert_eq!(shown.len(), rows);
        assert_eq!(
            shown[2],
            "{order: 2, prompt-frame: \"é\", a\"b: \"[true]\", x: inf, y: true}"
        );
        assert_eq!(
            shown[rows - 1],
            "{order: null, prompt-frame: null, a\"b: \"1208925819614629174706176\", x: 1.0, y: null}"
        );
    }

    /// ST-74: a table without a row is there, with its columns.
    #[test]
    fn parquet_of_no_rows_has_columns() {
        let directory = tempfile::tempdir().unwrap();
        let layout = [Table {
            which: Which::Events,
            name: "events",
            columns: vec![column("text", Kind::Text)],
            required: 1,
        }];
        Box::new(ParquetFiles::create(&layout, directory.path()).unwrap())
            .finish()
            .unwrap();
        let file = std::fs::File::open(directory.path().join("events.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let metadata = reader.metadata().file_metadata();
        assert_eq!(
            (metadata.num_rows(), metadata.schema().get_fields().len()),
            (0, 1)
        );
        assert_eq!(metadata.created_by(), Some("fairtrial"));
    }
}
