//! What an invocation leaves in its directory beside the journal.

use std::sync::Arc;

use super::{ExecuteError, Request};
use crate::journal::{History, Reader};
use crate::outputs::Outputs;
use crate::ready::Ready;
use crate::seal;

/// Writes what a request's directory is to hold, and seals it.
pub(super) fn export(
    request: &Request<'_>,
    ready: &Ready,
    reader: &Reader,
    history: &History,
    outputs: &Outputs,
) -> Result<(), ExecuteError> {
    let formats = &outputs.formats;
    outputs.write(reader, history, formats.clone(), &Arc::default())?;
    let directory = request.directory;
    Ok(seal::write(
        request.plan,
        ready,
        reader,
        directory,
        formats,
    )?)
}

/// Writes formats that are asked for and not there, where there is nothing else to do.
pub(super) fn write_missing(
    request: &Request<'_>,
    reader: &Reader,
    history: &History,
) -> Result<(), ExecuteError> {
    let outputs = Outputs::of(request);
    let missing = outputs.missing();
    if !missing.is_empty() {
        outputs.write(reader, history, missing.clone(), &Arc::default())?;
        seal::note_files(request.directory, &missing)?;
    }
    Ok(())
}
