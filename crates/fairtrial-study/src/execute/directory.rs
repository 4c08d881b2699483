//! The directory of a study: whether it may be used, and the journal in it.

use std::fs;

use super::{ExecuteError, Mode, Request};
use crate::clock::{Precision, now_ns, time_text};
use crate::import;
use crate::journal::{FILE_NAME, Journal, JournalError, Lock, Meta, Reader};

/// Refuses, moves aside or leaves what is there.
pub(super) fn prepare(request: &Request<'_>) -> Result<(), ExecuteError> {
    let directory = request.directory;
    // DRE's too: its tables would be overwritten.
    let holds = directory.join(FILE_NAME).exists()
        || !import::checkpoints(directory).is_empty()
        || ["fairtrial.json", "runs.csv", "manifest.json"]
            .iter()
            .any(|name| directory.join(name).exists());
    match request.mode {
        Mode::New if holds => Err(ExecuteError::Exists(directory.to_owned())),
        Mode::Fresh if holds => {
            let is_ours = directory.join(FILE_NAME).exists();
            let _lock = is_ours.then(|| Lock::hold(directory)).transpose()?;
            let name = directory.file_name().unwrap_or_default().to_string_lossy();
            let free = (1..)
                .map(|number| directory.with_file_name(format!("{name}.old-{number}")))
                .find(|path| !path.exists());
            let Some(free) = free else { return Ok(()) };
            fs::rename(directory, free).map_err(|source| ExecuteError::Io {
                path: directory.to_owned(),
                source,
            })
        }
        _ => Ok(()),
    }
}

/// Whether the journal is that of the study.
pub(super) fn check_study(request: &Request<'_>, reader: &Reader) -> Result<(), ExecuteError> {
    let wanted = &request.plan.study.study_id;
    let found = reader.meta("study_id")?.unwrap_or_default();
    match found == *wanted {
        true => Ok(()),
        false => Err(ExecuteError::Other {
            path: request.directory.to_owned(),
            found,
            wanted: wanted.clone(),
        }),
    }
}

/// Opens the journal for writing; a new one if there is none.
pub(super) fn open_journal(request: &Request<'_>) -> Result<Journal, JournalError> {
    let study = &*request.plan.study;
    let meta = Meta {
        study_id: &study.study_id,
        compat: study.compat.name(),
        created_at_ns: now_ns(),
        journal_id: &request.journal_id,
    };
    Journal::open(request.directory, &meta, &who(request))
}

/// What a second writer is told.
fn who(request: &Request<'_>) -> String {
    let (pid, host) = (std::process::id(), &request.host);
    let since = time_text(now_ns(), Precision::Seconds);
    format!("process {pid} on {host}, since {since}")
}
