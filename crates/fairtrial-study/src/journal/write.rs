//! Writing: one thread commits what waits, all of it at once, and syncs soon after.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::lock::Lock;
use super::record::{Record, StartId};
use super::{FILE_NAME, JournalError, Reader, insert, schema};

/// What was committed is synced at most this much later (ST-60).
const SYNC_AFTER: Duration = Duration::from_millis(100);
/// Or once so many records wait for it.
const SYNC_RECORDS: usize = 256;

/// Told when records are committed, or why they never will be.
type Done = Box<dyn FnOnce(Result<(), Arc<JournalError>>) + Send>;

enum Command {
    Append(Vec<Record>, Done),
    Sync(Done),
}

/// What a journal says of itself.
#[derive(Debug)]
pub(crate) struct Meta<'a> {
    /// The study.
    pub study_id: &'a str,
    /// Its mode.
    pub compat: &'a str,
    /// When it was made, in nanoseconds since 1970.
    pub created_at_ns: i64,
    /// Unlike that of any other journal.
    pub journal_id: &'a str,
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    next_start: AtomicI64,
    path: PathBuf,
    directory: PathBuf,
    id: Option<String>,
    /// Given up last.
    _lock: Lock,
}

impl Journal {
    /// Opens the journal of a directory, or makes one there. `who` is what a second writer is told.
    pub(crate) fn open(directory: &Path, meta: &Meta<'_>, who: &str) -> Result<Self, JournalError> {
        let lock = Lock::take(directory, who)?;
        let path = directory.join(FILE_NAME);
        let mut database = Connection::open(&path).map_err(JournalError::database(&path))?;
        prepare(&mut database, &path, meta)?;
        database
            .busy_handler(Some(retry_locked))
            .map_err(JournalError::database(&path))?;
        let id = schema::id(&database).map_err(JournalError::database(&path))?;
        let next_start = database
            .query_row("SELECT coalesce(max(id), 0) + 1 FROM starts", [], |row| {
                row.get(0)
            })
            .map_err(JournalError::database(&path))?;
        let (commands, received) = channel();
        let writer = Writer {
            database,
            path: path.clone(),
            log: None,
            unsynced: 0,
            sync_by: None,
            failed: None,
        };
        let thread = std::thread::Builder::new()
            .name("fairtrial-journal".into())
            .spawn(move || writer.serve(&received))
            .map_err(JournalError::io(&path))?;
        Ok(Self {
            commands: Some(commands),
            thread: Some(thread),
            next_start: AtomicI64::new(next_start),
            path,
            directory: directory.to_owned(),
            id,
            _lock: lock,
        })
    }

    /// The key of a call: who goes on with this journal has the same, who begins another has not. A journal of old has
    /// no name, and its calls keep the keys that they had.
    pub(crate) fn key(&self, call: &str) -> String {
        match &self.id {
            Some(id) => format!("{id}/{call}"),
            None => call.to_owned(),
        }
    }

    /// A number for a start.
    pub(crate) fn next_start(&self) -> StartId {
        StartId(self.next_start.fetch_add(1, Ordering::Relaxed))
    }

    /// Has records committed, in the order of the calls; `done` hears when they are. It is called on the writer's
    /// thread and must not wait.
    pub(crate) fn append(
        &self,
        records: Vec<Record>,
        done: impl FnOnce(Result<(), Arc<JournalError>>) + Send + 'static,
    ) {
        self.send(Command::Append(records, Box::new(done)));
    }

    /// Commits records and waits for it.
    pub(crate) fn record(&self, records: Vec<Record>) -> Result<(), Arc<JournalError>> {
        self.wait(|done| Command::Append(records, done))
    }

    /// Waits until all that was appended survives the machine's death.
    pub(crate) fn sync(&self) -> Result<(), Arc<JournalError>> {
        self.wait(Command::Sync)
    }

    /// Reads beside the writer.
    pub(crate) fn reader(&self) -> Result<Reader, JournalError> {
        Reader::open(&self.directory)
    }

    fn wait(&self, command: impl FnOnce(Done) -> Command) -> Result<(), Arc<JournalError>> {
        let (sender, receiver) = channel();
        self.send(command(Box::new(move |result| {
            _ = sender.send(result); // whoever waited is there
        })));
        receiver.recv().unwrap_or_else(|_| Err(self.gone()))
    }

    fn send(&self, command: Command) {
        let sent = match &self.commands {
            Some(commands) => commands.send(command).map_err(|unsent| unsent.0),
            None => Err(command),
        };
        if let Err(Command::Append(_, done) | Command::Sync(done)) = sent {
            done(Err(self.gone()));
        }
    }

    fn gone(&self) -> Arc<JournalError> {
        let source = std::io::Error::other("its writer has ended");
        Arc::new(JournalError::io(&self.path)(source))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.commands = None; // it commits and syncs what is there, and ends
        if let Some(thread) = self.thread.take() {
            _ = thread.join(); // if it panicked, whoever waited for it was told
        }
    }
}

/// Checks what is there, or makes it.
fn prepare(database: &mut Connection, path: &Path, meta: &Meta<'_>) -> Result<(), JournalError> {
    database
        .busy_timeout(Duration::from_secs(10))
        .map_err(JournalError::database(path))?;
    let found = schema::format(database).map_err(JournalError::database(path))?;
    match found {
        Some(found) if found > schema::FORMAT => {
            let path = path.to_owned();
            return Err(JournalError::Newer { path, found });
        }
        Some(_) => {}
        None => {
            let created = meta.created_at_ns.to_string();
            let said = [
                ("study_id", meta.study_id),
                ("compat", meta.compat),
                ("version", env!("CARGO_PKG_VERSION")),
                ("created_at_ns", &created),
                ("journal_id", meta.journal_id),
            ];
            schema::create(database, &said).map_err(JournalError::database(path))?;
        }
    }
    // In the log a commit survives our death; we sync it ourselves, for many commits at once.
    database
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -8000;",
        )
        .map_err(JournalError::database(path))
}

/// Tries again for as long as another process locks the journal: a candidate at `limits` can read the journal, and so
/// lock it for reading until its timeout. That must not cost the study a record.
fn retry_locked(tries: i32) -> bool {
    if tries == WARN_AFTER_TRIES {
        log::warn!(target: fairtrial_exec::ADVICE, "another process locks the journal: results are recorded once the lock is released");
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the release of a lock is no event that SQLite tells of"
    )]
    std::thread::sleep(RETRY_AFTER);
    true
}

const RETRY_AFTER: Duration = Duration::from_millis(20);
const WARN_AFTER_TRIES: i32 = 500;

/// Whether an open file is the one of that name: what is written to one without a name is lost.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let (open, there) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
}

/// The thread's own.
struct Writer {
    database: Connection,
    path: PathBuf,
    /// The log, once there is one: what is synced.
    log: Option<File>,
    unsynced: usize,
    sync_by: Option<Instant>,
    failed: Option<Arc<JournalError>>,
}

impl Writer {
    fn serve(mut self, commands: &Receiver<Command>) {
        loop {
            let first = match self.sync_by {
                None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(by) => commands.recv_timeout(by.saturating_duration_since(Instant::now())),
            };
            match first {
                Ok(first) => self.take(std::iter::once(first).chain(commands.try_iter())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let is_due = self.sync_by.is_some_and(|by| by <= Instant::now());
            if is_due || self.unsynced >= SYNC_RECORDS {
                _ = self.try_to(Self::sync); // the next to ask is told
            }
        }
        _ = self.try_to(Self::sync); // nobody is left to be told
    }

    /// Commits what there is in one transaction, then tells.
    fn take(&mut self, commands: impl Iterator<Item = Command>) {
        let (mut records, mut told, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
        for command in commands {
            match command {
                Command::Append(more, done) => {
                    records.extend(more);
                    told.push(done);
                }
                Command::Sync(done) => syncs.push(done),
            }
        }
        let committed = self.try_to(|writer| writer.commit(&records));
        for done in told {
            done(committed.clone());
        }
        if !syncs.is_empty() {
            let synced = self.try_to(Self::sync);
            for done in syncs {
                done(synced.clone());
            }
        }
    }

    /// After a failure nothing is written any more: what came later must not look like all there was.
    fn try_to(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<(), JournalError>,
    ) -> Result<(), Arc<JournalError>> {
        if let Some(error) = &self.failed {
            return Err(Arc::clone(error));
        }
        act(self).map_err(|error| {
            let error = Arc::new(error);
            self.failed = Some(Arc::clone(&error));
            self.sync_by = None;
            error
        })
    }

    fn commit(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        insert::all(&mut self.database, records).map_err(JournalError::database(&self.path))?;
        self.unsynced += records.len();
        self.sync_by
            .get_or_insert_with(|| Instant::now() + SYNC_AFTER);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        if self.unsynced == 0 {
            return Ok(());
        }
        let path = self.path.with_file_name(format!("{FILE_NAME}-wal"));
        let log = match self.log.take() {
            Some(log) => log,
            None => File::open(&path).map_err(JournalError::io(&path))?,
        };
        log.sync_data().map_err(JournalError::io(&path))?;
        if !is_at(&log, &path).map_err(JournalError::io(&path))? {
            let problem = "it was moved or removed while it was written";
            return Err(JournalError::io(&path)(std::io::Error::other(problem)));
        }
        self.log = Some(log);
        self.unsynced = 0;
        self.sync_by = None;
        Ok(())
    }
}
