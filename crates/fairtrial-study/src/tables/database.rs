//! `study.sqlite`: the tables in one database. Natively typed, with keys and indexes; under `dre-0.2` all text (SF-57).

use std::path::{Path, PathBuf};

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, params_from_iter};

use super::ExportError;
use super::layout::{Kind, Table, Which};
use super::rows::spaced_json;
use super::sinks::TableSink;
use crate::canonical::canonical_json;
use crate::compat::Compat;
use crate::files::Beside;
use crate::value::Value;

/// What tables without an id of their own count their rows of one run by.
const NUMBER: &str = "number";

pub(super) struct Database {
    connection: Connection,
    tables: Vec<DatabaseTable>,
    compat: Compat,
    path: PathBuf,
    beside: Beside,
}

struct DatabaseTable {
    table: Table,
    is_made: bool,
    insert: String,
    /// The run of the last row, and the row's number.
    last: (Value, i64),
}

impl Database {
    pub(super) fn create(
        layout: &[Table],
        directory: &Path,
        compat: Compat,
    ) -> Result<Self, ExportError> {
        let path = directory.join("study.sqlite");
        let beside = Beside::create(&path).map_err(ExportError::file(&path))?;
        let connection = begin(beside.path()).map_err(ExportError::file(&path))?;
        let tables = layout.iter().map(|table| DatabaseTable {
            table: table.clone(),
            is_made: false,
            insert: insert(table, compat),
            last: (Value::Null, 0),
        });
        let mut database = Self {
            tables: tables.collect(),
            connection,
            compat,
            path,
            beside,
        };
        // DRE's has no table without a row.
        if compat == Compat::Native {
            for table in &mut database.tables {
                let made = table.make(&database.connection, compat);
                made.map_err(ExportError::file(&database.path))?;
            }
        }
        Ok(database)
    }

    fn end(&self) -> rusqlite::Result<()> {
        if self.compat == Compat::Native {
            for (table, column) in INDEXED {
                let name = quoted(&format!("{table}_{column}"));
                let (table, column) = (quoted(table), quoted(column));
                self.connection
                    .execute_batch(&format!("CREATE INDEX {name} ON {table} ({column})"))?;
            }
        }
        self.connection.execute_batch("COMMIT")
    }
}

/// Columns that are asked by, beside keys.
const INDEXED: [(&str, &str); 6] = [
    ("runs", "condition_id"),
    ("runs", "agent_id"),
    ("runs", "problem_id"),
    ("runs", "status"),
    ("events", "event_type"),
    ("evaluations", "metric_name"),
];

impl TableSink for Database {
    fn row(&mut self, which: Which, row: &[Value]) -> Result<(), ExportError> {
        let mut tables = self.tables.iter_mut();
        let Some(table) = tables.find(|table| table.table.which == which) else {
            return Ok(());
        };
        let written = table.row(&self.connection, self.compat, row);
        written.map_err(ExportError::file(&self.path))
    }

    fn finish(self: Box<Self>) -> Result<(), ExportError> {
        self.end().map_err(ExportError::file(&self.path))?;
        let closed = self.connection.close().map_err(|(_, error)| error);
        closed.map_err(ExportError::file(&self.path))?;
        self.beside.finish().map_err(ExportError::file(&self.path))
    }
}

impl DatabaseTable {
    fn row(
        &mut self,
        connection: &Connection,
        compat: Compat,
        row: &[Value],
    ) -> rusqlite::Result<()> {
        if !self.is_made {
            self.make(connection, compat)?;
        }
        let mut cells: Vec<Cell> = match compat {
            Compat::Native => row.iter().map(typed).collect(),
            Compat::Dre => row.iter().map(as_text).collect(),
        };
        if compat == Compat::Native && is_numbered(self.table.which) {
            cells.push(Cell::Integer(self.next_number(row)));
        }
        let mut statement = connection.prepare_cached(&self.insert)?;
        statement.execute(params_from_iter(cells))?;
        Ok(())
    }

    fn make(&mut self, connection: &Connection, compat: Compat) -> rusqlite::Result<()> {
        self.is_made = true;
        connection.execute_batch(&match compat {
            Compat::Native => typed_table(&self.table),
            Compat::Dre => text_table(&self.table),
        })
    }

    fn next_number(&mut self, row: &[Value]) -> i64 {
        let mut columns = self.table.columns.iter();
        let place = columns.position(|column| column.name == "run_id");
        let run = place
            .and_then(|place| row.get(place))
            .unwrap_or(&Value::Null);
        match self.last.0 == *run {
            true => self.last.1 += 1,
            false => self.last = (run.clone(), 1),
        }
        self.last.1
    }
}

/// A file of one transaction, which is nobody else's until it is whole.
fn begin(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; BEGIN",
    )?;
    Ok(connection)
}

fn is_numbered(which: Which) -> bool {
    !matches!(which, Which::Conditions | Which::Runs)
}

fn typed_table(table: &Table) -> String {
    let typed = |kind| match kind {
        Kind::Text => " TEXT",
        Kind::Integer => " INTEGER",
        Kind::Real => " REAL",
        Kind::Boolean => " BOOLEAN",
        Kind::Mixed => "", // each value is of its own type
    };
    let columns = table.columns.iter();
    let columns = columns.map(|column| format!("{}{}", quoted(&column.name), typed(column.kind)));
    let mut parts: Vec<String> = columns.collect();
    parts.push(match table.which {
        Which::Conditions => "PRIMARY KEY (\"condition_id\")".into(),
        Which::Runs => "PRIMARY KEY (\"run_id\")".into(),
        _ => format!("{NUMBER} INTEGER NOT NULL, PRIMARY KEY (\"run_id\", {NUMBER})"),
    });
    format!("CREATE TABLE {} ({})", quoted(table.name), parts.join(", "))
}

fn text_table(table: &Table) -> String {
    let columns = table.columns.iter();
    let columns: Vec<String> = columns
        .map(|column| format!("{} TEXT", quoted(&column.name)))
        .collect();
    format!(
        "CREATE TABLE {} ({})",
        quoted(table.name),
        columns.join(", ")
    )
}

fn insert(table: &Table, compat: Compat) -> String {
    let is_numbered = compat == Compat::Native && is_numbered(table.which);
    let count = table.columns.len() + usize::from(is_numbered);
    let places = vec!["?"; count].join(", ");
    format!("INSERT INTO {} VALUES ({places})", quoted(table.name))
}

/// A name, whatever is in it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// By its own type. What SQLite has no type for is null (nan) or text (large integers, dates, lists, mappings).
fn typed(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Null,
        Value::Bool(truth) => Cell::Integer((*truth).into()),
        Value::Int(int) => match i64::try_from(int) {
            Ok(int) => Cell::Integer(int),
            Err(_) => Cell::Text(int.to_string()),
        },
        Value::Float(float) if float.is_nan() => Cell::Null,
        Value::Float(float) => Cell::Real(*float),
        Value::Text(text) => Cell::Text(text.clone()),
        Value::Moment(moment) => Cell::Text(moment.to_string()),
        Value::List(_) | Value::Map(_) => Cell::Text(canonical_json(value)),
    }
}

/// SF-57
fn as_text(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Null,
        Value::List(_) | Value::Map(_) => Cell::Text(spaced_json(value)),
        scalar => Cell::Text(scalar.to_str()),
    }
}
