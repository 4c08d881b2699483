//! One writer: a lock that vanishes with its process.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use super::{JournalError, LOCK_NAME};

const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// Who writes a journal, as it said itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder(String);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() {
            "another process"
        } else {
            &self.0
        })
    }
}

/// The right to write, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Takes it at once or tells who has it; `who` is what others are told.
    pub(super) fn take(directory: &Path, who: &str) -> Result<Self, JournalError> {
        let mut lock = Self::hold(directory)?;
        write(&mut lock.0, who).map_err(JournalError::io(&directory.join(LOCK_NAME)))?;
        Ok(lock)
    }

    /// As [`Lock::take`], by somebody who writes nothing.
    pub(crate) fn hold(directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join(LOCK_NAME);
        let error = JournalError::io(&path);
        let opened = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path);
        let mut file = match opened {
            Ok(file) => file,
            Err(source) => return Err(error(source)),
        };
        match try_for_a_moment(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = Holder(read(&mut file));
                let path = directory.to_owned();
                return Err(JournalError::Locked { path, holder });
            }
            Err(TryLockError::Error(source)) => return Err(error(source)),
        }
        Ok(Self(file))
    }

    /// Who writes now, if anybody does.
    pub(super) fn holder(directory: &Path) -> Option<Holder> {
        let mut file = File::open(directory.join(LOCK_NAME)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(Holder(read(&mut file))),
            _ => None,
        }
    }
}

/// Who only asks who writes holds it for some microseconds; a writer holds it for longer than this.
fn try_for_a_moment(file: &File) -> Result<(), TryLockError> {
    let mut tried = file.try_lock();
    for _ in 0..TRIES {
        if !matches!(tried, Err(TryLockError::WouldBlock)) {
            break;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "nothing tells when a lock is free"
        )]
        std::thread::sleep(BETWEEN_TRIES);
        tried = file.try_lock();
    }
    tried
}

fn read(file: &mut File) -> String {
    let mut text = String::new();
    // What cannot be read is not said; that it is locked is known without.
    _ = file.take(4096).read_to_string(&mut text);
    text.trim().to_owned()
}

fn write(file: &mut File, who: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(who.as_bytes())
}
