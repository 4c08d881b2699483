//! What an invocation leaves in its directory beside the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::{ExecuteError, Request};
use crate::ends::Ends;
use crate::journal::{History, Journal, Reader};
use crate::outputs::Outputs;
use crate::plan::Plan;
use crate::ready::Ready;
use crate::runner::Stop;
use crate::seal;
use crate::tables::ExportError;

/// How long whoever is in a hurry waits for a file that is being written. What is left then is not in its place.
const PATIENCE: Duration = Duration::from_millis(500);

/// The last export of an invocation, on a thread of its own: whoever asks twice to stop does not wait for it (ST-55).
pub(super) struct LastExport {
    pub(super) plan: Arc<Plan<'static>>,
    pub(super) journal: Arc<Journal>,
    pub(super) ready: Arc<Ready>,
    pub(super) outputs: Outputs,
}

impl LastExport {
    /// Writes everything, unless it is to be [`Stop::Now`]. Tells how runs ended, and how many are orphans.
    pub(super) async fn unless_now(
        self,
        mut stop: watch::Receiver<Stop>,
    ) -> Result<(Ends, u64), ExecuteError> {
        if *stop.borrow() == Stop::Now {
            return Err(ExecuteError::CutShort);
        }
        let given_up = Arc::<AtomicBool>::default();
        let told = Arc::clone(&given_up);
        let mut writing = tokio::task::spawn_blocking(move || self.write(&told));
        let in_a_hurry = async {
            if stop.wait_for(|stop| *stop == Stop::Now).await.is_err() {
                std::future::pending::<()>().await; // nobody can stop us any more
            }
        };
        tokio::select! {
            biased;
            written = &mut writing => match written {
                Ok(written) => written,
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            },
            () = in_a_hurry => {
                given_up.store(true, Ordering::Relaxed);
                _ = tokio::time::timeout(PATIENCE, writing).await; // however it ended
                Err(ExecuteError::CutShort)
            }
        }
    }

    fn write(self, given_up: &Arc<AtomicBool>) -> Result<(Ends, u64), ExecuteError> {
        let reader = self.journal.reader()?;
        reader.hold_still()?;
        let history = reader.history()?;
        let ends = Ends::read(&self.plan, &reader, &history)?;
        write_all(&self.ready, &reader, &history, &self.outputs, given_up)?;
        Ok((ends, history.len() as u64 - ends.begun()))
    }
}

/// Writes what a directory is to hold, and seals it.
pub(super) fn write_all(
    ready: &Ready,
    reader: &Reader,
    history: &History,
    outputs: &Outputs,
    given_up: &Arc<AtomicBool>,
) -> Result<(), ExportError> {
    outputs.write(reader, history, outputs.formats.clone(), given_up)?;
    outputs.seal(ready, reader)
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
