//! The tables of a journal, and how an older journal becomes one of today.

use rusqlite::{Connection, OptionalExtension};

/// What this version writes.
pub(super) const FORMAT: i64 = 1;

/// A finish has the number of its start, so that the two are joined without an index and rows are only ever appended.
const TABLES: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE invocations (
    id INTEGER PRIMARY KEY, started_at_ns INTEGER NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL,
    argv TEXT NOT NULL, study_path TEXT NOT NULL, study_blob TEXT NOT NULL, study_sha256 TEXT NOT NULL,
    digest_runs TEXT NOT NULL, workers INTEGER NOT NULL, backend TEXT NOT NULL, run_order TEXT NOT NULL
);
CREATE TABLE invocation_ends (id INTEGER PRIMARY KEY, ended_at_ns INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE blobs (sha256 TEXT PRIMARY KEY, bytes BLOB NOT NULL);
CREATE TABLE starts (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL, attempt INTEGER NOT NULL,
    invocation INTEGER NOT NULL, plan_index INTEGER NOT NULL, order_index INTEGER NOT NULL, seed INTEGER NOT NULL,
    identity TEXT NOT NULL, started_at_ns INTEGER NOT NULL
);
CREATE INDEX starts_of_run ON starts (run_id);
CREATE TABLE finishes (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL, status TEXT NOT NULL, verdict TEXT,
    stage TEXT NOT NULL, finished_at_ns INTEGER NOT NULL, outcome TEXT NOT NULL, result TEXT,
    stdout TEXT NOT NULL, stderr TEXT NOT NULL, warnings TEXT NOT NULL
);
CREATE TABLE evaluations (
    id INTEGER PRIMARY KEY, start INTEGER NOT NULL, run_id TEXT NOT NULL, seq INTEGER NOT NULL,
    number INTEGER NOT NULL, evaluator_sha256 TEXT NOT NULL, status TEXT NOT NULL, rows TEXT NOT NULL,
    outcome TEXT NOT NULL
);
CREATE INDEX evaluations_of_start ON evaluations (start);
CREATE TABLE decisions (invocation INTEGER NOT NULL, run_id TEXT NOT NULL, action TEXT NOT NULL, reason TEXT NOT NULL);
";

/// The format of a journal; none of an empty file.
pub(super) fn format(database: &Connection) -> rusqlite::Result<Option<i64>> {
    let tables: i64 =
        database.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(None);
    }
    database
        .query_row(
            "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'format'",
            [],
            |row| row.get(0),
        )
        .optional()
}

/// Makes the tables, all or none.
/// What the journal is called; those of old have no name.
pub(super) fn id(database: &Connection) -> rusqlite::Result<Option<String>> {
    let found = "SELECT value FROM meta WHERE key = 'journal_id'";
    database.query_row(found, [], |row| row.get(0)).optional()
}

pub(super) fn create(database: &mut Connection, meta: &[(&str, &str)]) -> rusqlite::Result<()> {
    let transaction = database.transaction()?;
    transaction.execute_batch(TABLES)?;
    let format = FORMAT.to_string();
    for (key, value) in meta.iter().chain([&("format", format.as_str())]) {
        transaction.execute("INSERT INTO meta VALUES (?1, ?2)", (key, value))?;
    }
    transaction.commit()
}
