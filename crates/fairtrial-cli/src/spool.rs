//! Where finished records wait for their turn: in memory up to a budget, beyond it in one nameless file.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fairtrial_exec::linux::nameless;
use fairtrial_exec::{EngineError, SpillDir};

use crate::record::RecordError;

/// Bytes of waiting records kept in memory.
pub(crate) const MEMORY_BUDGET: u64 = 64 << 20;

/// Takes records in and keeps them until they are written out.
#[derive(Clone, Debug)]
pub(crate) struct Spool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    dir: SpillDir,
    budget: u64,
    in_memory: AtomicU64,
    /// A plain mutex: held for one record's writing, by threads that may block, never by the event loop.
    disk: Mutex<Option<Disk>>,
}

/// The nameless file; written at the end only, holes where records have left.
#[derive(Debug)]
struct Disk {
    file: Arc<File>,
    end: u64,
    /// Why the last write failed: whoever writes may say no more than that it did.
    failed: Option<io::Error>,
}

/// A finished record, waiting.
#[derive(Debug)]
pub(crate) enum Record {
    /// In memory, counted in the budget.
    Memory(Vec<u8>, Reserved),
    /// In the nameless file.
    Disk(Arc<File>, Range<u64>),
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Spool {
    /// Starts nothing and creates nothing; `dir` is where the nameless file will be, if there must be one.
    pub(crate) fn new(dir: SpillDir, budget: u64) -> Self {
        let shared = Shared {
            dir,
            budget,
            in_memory: AtomicU64::new(0),
            disk: Mutex::new(None),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Keeps `bytes` in memory if the budget allows, else gives them back.
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> Result<Record, Vec<u8>> {
        match self.reserve(bytes.len() as u64) {
            Some(reserved) => Ok(Record::Memory(bytes, reserved)),
            None => Err(bytes),
        }
    }

    /// Keeps `bytes` in memory whatever the budget: for the few that say why another record could not be kept.
    pub(crate) fn keep_anyway(&self, bytes: Vec<u8>) -> Record {
        let length = bytes.len() as u64;
        self.shared.in_memory.fetch_add(length, Ordering::Relaxed);
        let reserved = self.reserved(length);
        Record::Memory(bytes, reserved)
    }

    /// Keeps what `write` writes in the nameless file. May block.
    pub(crate) fn store(
        &self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), RecordError>,
    ) -> Result<Record, RecordError> {
        let mut disk = self.shared.disk.lock().expect("no holder panics");
        let disk = match &mut *disk {
            Some(disk) => disk,
            none => none.insert(Disk::create(&self.shared.dir)?),
        };
        let start = disk.end;
        let mut out = io::BufWriter::with_capacity(1 << 16, disk.at_end());
        let written = write(&mut out).and_then(|()| Ok(out.flush()?));
        drop(out);
        if let Some(source) = disk.failed.take() {
            let directory = self.shared.dir.path().display();
            return Err(format!("cannot write waiting records to `{directory}`: {source}").into());
        }
        let record = Record::Disk(disk.file.clone(), start..disk.end);
        written.map(|()| record)
    }

    fn reserve(&self, bytes: u64) -> Option<Reserved> {
        let fits = |used: u64| Some(used + bytes).filter(|sum| *sum <= self.shared.budget);
        self.shared
            .in_memory
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .ok()?;
        Some(self.reserved(bytes))
    }

    fn reserved(&self, bytes: u64) -> Reserved {
        let shared = self.shared.clone();
        Reserved { shared, bytes }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.shared
            .in_memory
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Disk {
    fn create(dir: &SpillDir) -> Result<Self, EngineError> {
        let attempt = "making a file for waiting records";
        let file = nameless::create(dir.open()?);
        let file = file.map_err(|source| EngineError::Io { attempt, source })?;
        Ok(Self {
            file: Arc::new(file.into()),
            end: 0,
            failed: None,
        })
    }

    fn at_end(&mut self) -> impl Write {
        struct AtEnd<'a>(&'a mut Disk);
        impl Write for AtEnd<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let written = self.0.file.write_at(bytes, self.0.end);
                let written = written.map_err(|error| {
                    let kind = error.kind();
                    self.0.failed = Some(error);
                    io::Error::from(kind)
                })?;
                self.0.end += written as u64;
                Ok(written)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        AtEnd(self)
    }
}

impl Record {
    /// Its bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes, _) => bytes.len() as u64,
            Self::Disk(_, range) => range.end - range.start,
        }
    }

    /// Writes the record out and frees its room.
    pub(crate) fn write_to(self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Memory(bytes, _reserved) => out.write_all(&bytes),
            Self::Disk(file, range) => {
                copy_range(&file, range.clone(), out)?;
                free(&file, range);
                Ok(())
            }
        }
    }
}

fn copy_range(file: &File, mut range: Range<u64>, out: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    while !range.is_empty() {
        let wanted = buffer.len().min((range.end - range.start) as usize);
        let read = file.read_at(&mut buffer[..wanted], range.start)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.write_all(&buffer[..read])?;
        range.start += read as u64;
    }
    Ok(())
}

/// Gives the disk its room back. A file system that cannot keeps the room until the file is closed: no harm but size.
fn free(file: &File, range: Range<u64>) {
    use rustix::fs::{FallocateFlags, fallocate};
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, range.start, range.end - range.start).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn spool_in(dir: &std::path::Path, budget: u64) -> Spool {
        Spool::new(SpillDir::new(dir.join("spill")), budget)
    }

    fn text(record: Record) -> String {
        let mut out = Vec::new();
        record.write_to(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn store(spool: &Spool, bytes: &[u8]) -> Record {
        spool.store(|out| Ok(out.write_all(bytes)?)).unwrap()
    }

    /// EX-101
    #[test]
    fn memory_is_kept_to_the_budget_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let spool = spool_in(dir.path(), 10);
        let first = spool.keep(b"1234567".to_vec()).unwrap();
        assert_eq!(spool.keep(b"abcd".to_vec()).unwrap_err(), b"abcd");
        assert_eq!(text(first), "1234567");
        assert_eq!(text(spool.keep(b"abcd".to_vec()).unwrap()), "abcd");
    }

    /// EX-101
    #[test]
    fn stored_records_have_no_name_and_leave_no_room_taken() {
        let dir = tempfile::tempdir().unwrap();
        let spool = spool_in(dir.path(), 0);
        let big = vec![b'x'; 1 << 20];
        let (first, second) = (store(&spool, &big), store(&spool, b"second"));
        assert_eq!(
            std::fs::read_dir(dir.path().join("spill")).unwrap().count(),
            0
        );
        let Record::Disk(file, _) = &second else {
            panic!("stored on disk")
        };
        let (file, before) = (file.clone(), file.metadata().unwrap().blocks());
        assert_eq!(text(first).len(), big.len());
        assert!(file.metadata().unwrap().blocks() < before);
        assert_eq!(text(second), "second");
    }

    /// FA-13: a full disk, which a limit on the file's size stands for.
    #[test]
    fn a_full_disk_is_told_with_its_directory_and_the_systems_word() {
        let dir = tempfile::tempdir().unwrap();
        let spool = spool_in(dir.path(), 0);
        store(&spool, b"first");
        // Beyond the largest offset that a file has.
        spool.shared.disk.lock().unwrap().as_mut().unwrap().end = i64::MAX as u64;
        let failed = spool.store(|out| Ok(out.write_all(b"more")?)).unwrap_err();
        let said = failed.to_string();
        let place = dir.path().join("spill").display().to_string();
        assert!(
            said.starts_with("cannot write waiting records to `"),
            "{said}"
        );
        assert!(
            said.contains(&place) && said.contains("(os error "),
            "{said}"
        );
    }

    #[test]
    fn a_failed_write_costs_only_its_own_record() {
        let dir = tempfile::tempdir().unwrap();
        let spool = spool_in(dir.path(), 0);
        let failed = spool.store(|out| {
            out.write_all(b"half")?;
            Err("no more".into())
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(text(store(&spool, b"whole")), "whole");
    }
}
