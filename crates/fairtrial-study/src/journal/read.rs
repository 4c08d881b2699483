//! Reading a journal, beside its writer or without one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};

use super::history::{History, RunKey};
use super::lock::{Holder, Lock};
use super::record::{Evaluation, Finish, Invocation, Stage, Start, StartId};
use super::rows::{
    EVALUATION, FINISH, INVOCATION, START, evaluation, finish, invocation, parsed, start, status,
};
use super::{FILE_NAME, JournalError, schema};

/// A journal that is being read. Sees what was committed when each question was asked.
#[derive(Debug)]
pub struct Reader {
    database: Connection,
    directory: PathBuf,
    path: PathBuf,
}

/// An invocation, and when and why it ended: none if it was killed, or still runs.
#[derive(Debug, Clone)]
pub struct PastInvocation {
    /// As it began.
    pub begun: Invocation,
    /// Nanoseconds since 1970, and the reason.
    pub end: Option<(i64, String)>,
}

impl Reader {
    /// Opens the journal of a directory. Writes nothing.
    pub fn open(directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join(FILE_NAME);
        if !path.exists() {
            return Err(JournalError::Missing(directory.to_owned()));
        }
        // Not read-only: to read a log that a dead writer left, its index has to be made.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(&path, flags)
            .or_else(|_| {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                Connection::open_with_flags(&path, flags)
            })
            .map_err(JournalError::database(&path))?;
        let reader = Self {
            database,
            directory: directory.to_owned(),
            path,
        };
        reader.ask(|database| {
            database.busy_timeout(Duration::from_secs(10))?;
            database.pragma_update(None, "query_only", true)
        })?;
        let reader = match reader.ask(schema::format) {
            Err(_) => reader.unchanging()?, // perhaps only for want of a place to write in
            Ok(_) => reader,
        };
        match reader.ask(schema::format)? {
            Some(found) if found > schema::FORMAT => {
                let path = reader.path;
                Err(JournalError::Newer { path, found })
            }
            Some(_) => Ok(reader),
            None => Err(JournalError::Missing(directory.to_owned())),
        }
    }

    /// Of a directory that cannot be written: without the index that readers share with a writer. There is none.
    fn unchanging(self) -> Result<Self, JournalError> {
        let log = self.directory.join(format!("{FILE_NAME}-wal"));
        if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
            return Ok(self); // part of it is there, and only a writer can put it together
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut path = self.path.display().to_string();
        for (odd, escaped) in [("%", "%25"), ("?", "%3f"), ("#", "%23")] {
            path = path.replace(odd, escaped);
        }
        let database = Connection::open_with_flags(format!("file:{path}?immutable=1"), flags)
            .map_err(JournalError::database(&self.path))?;
        Ok(Self { database, ..self })
    }

    /// From the next question on it sees what was committed then, whatever is added meanwhile; and answers sooner.
    pub fn hold_still(&self) -> Result<(), JournalError> {
        self.ask(|database| database.execute_batch("BEGIN"))
    }

    /// No longer.
    pub fn let_go(&self) -> Result<(), JournalError> {
        self.ask(|database| database.execute_batch("COMMIT"))
    }

    /// Who writes it now, if anybody does.
    pub fn writer(&self) -> Option<Holder> {
        Lock::holder(&self.directory)
    }

    /// What the journal says of itself under a key.
    pub fn meta(&self, key: &str) -> Result<Option<String>, JournalError> {
        self.ask(|database| {
            database
                .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| {
                    row.get(0)
                })
                .optional()
        })
    }

    /// What became of every run.
    pub fn history(&self) -> Result<History, JournalError> {
        let mut history = History::default();
        self.ask(|database| {
            let mut query = database.prepare(
                "SELECT starts.id, starts.run_id, finishes.status, starts.identity FROM starts LEFT JOIN finishes USING (id)
                 ORDER BY starts.id",
            )?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let Some(key) = RunKey::parse(row.get_ref(1)?.as_str()?) else {
                    continue; // of a plan with other ids; it is nobody's
                };
                let identity = row.get_ref(3)?.as_str()?;
                history.add(key, StartId(row.get(0)?), identity, status(row, 2)?);
            }
            Ok(())
        })?;
        history.seal();
        Ok(history)
    }

    /// A start.
    pub fn start(&self, id: StartId) -> Result<Option<Start>, JournalError> {
        self.ask(|database| {
            let query = format!("SELECT {START} FROM starts WHERE id = ?1");
            let mut query = database.prepare_cached(&query)?;
            query.query_row([id.0], start).optional()
        })
    }

    /// The end of a start.
    pub fn finish(&self, id: StartId) -> Result<Option<Finish>, JournalError> {
        self.ask(|database| {
            let query = format!("SELECT {FINISH} FROM finishes WHERE id = ?1");
            let mut query = database.prepare_cached(&query)?;
            query.query_row([id.0], finish).optional()
        })
    }

    /// Where the first of all ends was.
    pub fn first_stage(&self) -> Result<Option<Stage>, JournalError> {
        self.ask(|database| {
            let query = "SELECT stage FROM finishes ORDER BY id LIMIT 1";
            let stage = |row: &Row<'_>| parsed(row, 0, str::parse);
            database.query_row(query, [], stage).optional()
        })
    }

    /// The last evaluation of a start's output.
    pub fn evaluation(&self, id: StartId) -> Result<Option<Evaluation>, JournalError> {
        self.ask(|database| {
            let query = format!(
                "SELECT {EVALUATION} FROM evaluations WHERE start = ?1 ORDER BY id DESC LIMIT 1"
            );
            let mut query = database.prepare_cached(&query)?;
            query.query_row([id.0], evaluation).optional()
        })
    }

    /// The starts whose last evaluation did not go well.
    pub fn failed_evaluations(&self) -> Result<HashSet<StartId>, JournalError> {
        self.ask(|database| {
            let mut query = database.prepare(
                "SELECT start FROM evaluations WHERE id IN (SELECT max(id) FROM evaluations GROUP BY start)
                 AND status <> 'ok'",
            )?;
            query
                .query_map([], |row| row.get(0).map(StartId))?
                .collect()
        })
    }

    /// What SQLite finds wrong with the file, if anything.
    pub(crate) fn fault(&self) -> Result<Option<String>, JournalError> {
        let found = self.ask(|database| {
            database.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        })?;
        Ok((found != "ok").then_some(found))
    }

    /// SHA-256 over all records, in the order in which they were made.
    pub fn digest(&self) -> Result<String, JournalError> {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        self.ask(|database| {
            for table in [
                "meta",
                "invocations",
                "invocation_ends",
                "starts",
                "finishes",
                "evaluations",
                "decisions",
                "blobs",
            ] {
                hash.update(table);
                let order = if table == "meta" { "key" } else { "rowid" };
                let mut query =
                    database.prepare(&format!("SELECT * FROM {table} ORDER BY {order}"))?;
                let columns = query.column_count();
                let mut rows = query.query([])?;
                while let Some(row) = rows.next()? {
                    for column in 0..columns {
                        match row.get_ref(column)? {
                            ValueRef::Null => hash.update([0]),
                            ValueRef::Integer(int) => {
                                hash.update([1]);
                                hash.update(int.to_le_bytes());
                            }
                            ValueRef::Real(real) => {
                                hash.update([2]);
                                hash.update(real.to_le_bytes());
                            }
                            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                                hash.update([3]);
                                hash.update((bytes.len() as u64).to_le_bytes());
                                hash.update(bytes);
                            }
                        }
                    }
                }
            }
            Ok(())
        })?;
        Ok(crate::canonical::hex(&hash.finalize()))
    }

    /// Isolation in force, by its digest, and how many attempts had it.
    pub fn isolation(&self) -> Result<Vec<(String, u64)>, JournalError> {
        self.ask(|database| {
            let mut query = database.prepare(
                "SELECT coalesce(json_extract(outcome, '$.in_force.level') || ' ' ||
                                 json_extract(outcome, '$.in_force.digest'), 'none'), count(*)
                 FROM finishes GROUP BY 1 ORDER BY 1",
            )?;
            query
                .query_map([], |row| {
                    Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
                })?
                .collect()
        })
    }

    /// The journal without its log, into a new file.
    pub fn compact_into(&self, path: &Path) -> Result<(), JournalError> {
        self.ask(|database| {
            database.pragma_update(None, "query_only", false)?;
            database.execute("VACUUM INTO ?1", [path.display().to_string()])?;
            database.pragma_update(None, "query_only", true)
        })
    }

    /// Ends a second, of the last invocation.
    pub fn rate(&self) -> Result<Option<f64>, JournalError> {
        self.ask(|database| {
            let query = "SELECT count(*), max(finished_at_ns) - min(started_at_ns) FROM finishes JOIN starts USING (id)
                         WHERE invocation = (SELECT max(id) FROM invocations)";
            database.query_row(query, [], |row| {
                let (count, span): (i64, Option<i64>) = (row.get(0)?, row.get(1)?);
                let seconds = span.filter(|ns| *ns > 0).map(|ns| ns as f64 / 1e9);
                Ok(seconds.map(|seconds| count as f64 / seconds))
            })
        })
    }

    /// All starts of a run, in order.
    pub fn starts_of(&self, run_id: &str) -> Result<Vec<Start>, JournalError> {
        self.ask(|database| {
            let query = format!("SELECT {START} FROM starts WHERE run_id = ?1 ORDER BY id");
            let mut query = database.prepare_cached(&query)?;
            query.query_map([run_id], start)?.collect()
        })
    }

    /// All invocations, in order.
    pub fn invocations(&self) -> Result<Vec<PastInvocation>, JournalError> {
        self.ask(|database| {
            let query = format!(
                "SELECT {INVOCATION} FROM invocations LEFT JOIN invocation_ends USING (id) ORDER BY id"
            );
            let mut query = database.prepare(&query)?;
            query.query_map([], invocation)?.collect()
        })
    }

    /// Bytes that were kept under their SHA-256.
    pub fn blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, JournalError> {
        self.ask(|database| {
            database
                .query_row(
                    "SELECT bytes FROM blobs WHERE sha256 = ?1",
                    [sha256],
                    |row| row.get(0),
                )
                .optional()
        })
    }

    /// Of accepted changes: the runs and why (ST-67).
    pub fn accepted(&self) -> Result<Vec<(String, String)>, JournalError> {
        self.ask(|database| {
            let mut query = database.prepare(
                "SELECT run_id, reason FROM decisions WHERE action = 'reuse' ORDER BY rowid",
            )?;
            query
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
    }

    /// What is there is not what was written.
    pub(crate) fn damaged(&self, problem: String) -> JournalError {
        let path = self.path.clone();
        JournalError::Damaged { path, problem }
    }

    fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        question(&self.database).map_err(JournalError::database(&self.path))
    }
}
