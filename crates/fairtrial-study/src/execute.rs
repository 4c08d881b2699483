//! A study run into its directory: what is there is looked at, what is missing is run, tables are written.

mod directory;
mod export;
mod invocation;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairtrial_exec::Backend;
use tokio::sync::watch;

use self::directory::{check_study, open_journal};
use self::export::{LastExport, write_all, write_missing};
use self::wishes::check_changes;
use crate::batches::{Batches, Pace, Reached};
use crate::fault::Invalid;
use crate::format::Format;
use crate::import;
use crate::journal::{FILE_NAME, Journal, JournalError, Reader};
use crate::outputs::Outputs;
use crate::plan::{Decide, Fresh, Plan};
use crate::ready::Ready;
use crate::recorded::{Recorded, Wishes};
use crate::runner::{self, End, Site, Stop, Tally};
use crate::seal;
use crate::tables::ExportError;
use crate::value::Value;

/// What to do with a directory that holds a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: it is refused.
    New,
    /// Go on with it.
    Resume,
    /// Move it aside.
    Fresh,
}

/// What is to be run, where, and how.
#[derive(Debug)]
pub struct Request<'r> {
    /// What is planned.
    pub plan: &'r Arc<Plan<'static>>,
    /// Where it is recorded.
    pub directory: &'r Path,
    /// What to do with what is there.
    pub mode: Mode,
    /// What to do with which runs.
    pub wishes: Wishes,
    /// How many at once.
    pub workers: usize,
    /// Who runs it, as the record names it.
    pub backend: String,
    /// The study file's bytes.
    pub input: Vec<u8>,
    /// The command, for the record.
    pub argv: Vec<String>,
    /// This machine's name.
    pub host: String,
    /// What DRE's manifest says of where and how.
    pub provenance: Option<Value>,
    /// Formats that are written at the end beside those of the study file.
    pub formats: BTreeSet<Format>,
    /// How often tables are written meanwhile.
    pub pace: Pace,
    /// What a journal is called that is made now: another run of the same study has another.
    pub journal_id: String,
}

/// What became of it.
#[derive(Debug)]
pub struct Summary {
    /// Why it ended; none if there was nothing to do.
    pub end: Option<End>,
    /// Of this invocation.
    pub tally: Tally,
    /// Of all runs of the plan, by status; those that never began are not here.
    pub counts: BTreeMap<&'static str, u64>,
    /// Evaluations that did not go well.
    pub evaluations_failed: u64,
    /// Recorded runs that are no longer planned.
    pub orphans: u64,
    /// What was odd about what was there.
    pub warnings: Vec<String>,
    /// Why the backend can run nothing any more, if that ended it: what is left is for whoever goes on.
    pub failure: Option<String>,
}

impl Summary {
    /// Runs and evaluations that are not well.
    #[must_use]
    pub fn unwell(&self, planned: u64) -> u64 {
        let well = self.counts.get("success").copied().unwrap_or(0);
        planned - well.min(planned) + self.evaluations_failed
    }
}

/// Why it could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The file is at fault.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is a study already.
    #[error("`{}` holds a study already; go on with `--resume`, or put it aside with `--fresh`", .0.display())]
    Exists(PathBuf),
    /// Finished runs would be run again.
    #[error(
        "{count} finished runs would be run again: {reasons}; say `--rerun changed` to do so, or `--accept changed` to \
         keep them"
    )]
    Changed {
        /// How many.
        count: u64,
        /// Why, with counts.
        reasons: String,
    },
    /// A wish names what is not there.
    #[error("there is no {what} `{name}` in this study{hint}")]
    Unknown {
        /// A run, a condition, an agent, a problem or a change.
        what: &'static str,
        /// What was named.
        name: String,
        /// What may have been meant.
        hint: String,
    },
    /// Another study's journal is there.
    #[error("`{}` holds the study `{found}`, not `{wanted}`", .path.display())]
    Other {
        /// The directory.
        path: PathBuf,
        /// Whose journal it is.
        found: String,
        /// Whose it should be.
        wanted: String,
    },
    /// The record could not be read or written.
    #[error(transparent)]
    Journal(#[from] Arc<JournalError>),
    /// The tables could not be written.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// It was cut short: runs are recorded, tables are not written.
    #[error("it was stopped before its tables were written; `fairtrial resume` writes them")]
    CutShort,
    /// The directory could not be made or moved.
    #[error("`{}`: {source}", .path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl From<JournalError> for ExecuteError {
    fn from(error: JournalError) -> Self {
        Self::Journal(Arc::new(error))
    }
}

/// Runs a study. `told` hears of every end; `stop` is watched throughout. The backend is made when it is needed.
pub async fn execute<B: Backend + 'static>(
    request: &Request<'_>,
    backend: impl FnOnce() -> Arc<B>,
    stop: watch::Receiver<Stop>,
    told: impl FnMut(&Tally),
) -> Result<Summary, ExecuteError> {
    let ready = Arc::new(Ready::load(request.plan)?);
    wishes::check_named(request)?;
    directory::prepare(request)?;
    if let Some(summary) = stand(request, &ready)? {
        return Ok(summary);
    }
    fs::create_dir_all(request.directory).map_err(|source| ExecuteError::Io {
        path: request.directory.to_owned(),
        source,
    })?;
    let journal = Arc::new(open_journal(request)?);
    let mut warnings = import_if_new(request, &ready, &journal)?;
    let outputs = Outputs::of(request);
    let mut batches = Batches::new(outputs.clone(), Arc::clone(&journal), request.pace);
    let (reached, news) = watch::channel(Reached::default());
    let mut told = told;
    let told = |tally: &Tally| {
        told(tally);
        reached.send_replace(Reached {
            ended: tally.all_ended(),
            reused: tally.reused,
        });
    };
    let ran = tokio::select! {
        biased;
        ran = run_under(request, &ready, &journal, backend, stop.clone(), told) => ran,
        () = batches.keep_current(news) => unreachable!("it goes on for ever"),
    };
    warnings.extend(batches.end().await);
    let (end, tally, failure) = ran?;
    let last = LastExport {
        plan: Arc::clone(request.plan),
        journal,
        ready,
        outputs,
    };
    let (ends, orphans) = last.unless_now(stop).await?;
    Ok(Summary {
        end: Some(end),
        tally,
        counts: ends.counts(),
        evaluations_failed: ends.evaluations_failed,
        orphans,
        warnings,
        failure,
    })
}

/// How it stands, where there is nothing to run: what was left undone beside that is made up for. None where there is.
fn stand(request: &Request<'_>, ready: &Ready) -> Result<Option<Summary>, ExecuteError> {
    if !request.directory.join(FILE_NAME).exists() {
        return Ok(None);
    }
    let reader = Reader::open(request.directory)?;
    reader.hold_still()?;
    check_study(request, &reader)?;
    let history = reader.history()?;
    let survey = Recorded::new(&history, &reader, ready, &request.wishes)?.survey(request.plan)?;
    reader.let_go()?;
    check_changes(request, &survey)?;
    if survey.to_do() > 0 {
        return Ok(None);
    }
    if let Some(holder) = reader.writer() {
        let path = request.directory.to_owned();
        return Err(JournalError::Locked { path, holder }.into());
    }
    if !survey.accepted.is_empty() || invocation::is_another(request, &reader)? {
        record_anew(request, ready)?;
    } else if !seal::is_of(&reader, request.directory)? {
        // It was killed when all was run and before that was written down.
        let journal = open_journal(request)?;
        let reader = journal.reader()?;
        let outputs = Outputs::of(request);
        write_all(
            ready,
            &reader,
            &reader.history()?,
            &outputs,
            &Arc::default(),
        )?;
    }
    write_missing(request, &reader, &history)?;
    Ok(Some(Summary {
        end: None,
        tally: Tally::default(),
        counts: survey.ends.counts(),
        evaluations_failed: survey.ends.evaluations_failed,
        orphans: survey.orphans,
        warnings: Vec::new(),
        failure: None,
    }))
}

/// Records the study and what was accepted where there is nothing to run.
fn record_anew(request: &Request<'_>, ready: &Ready) -> Result<(), ExecuteError> {
    let journal = open_journal(request)?;
    let reader = journal.reader()?;
    // Under the lock: what was looked at before may have changed.
    let history = reader.history()?;
    let survey = Recorded::new(&history, &reader, ready, &request.wishes)?.survey(request.plan)?;
    let id = invocation::next_id(&reader)?;
    let mut records = invocation::begin(request, id, &survey);
    records.push(invocation::end(id, End::Finished));
    journal.record(records)?;
    journal.sync()?;
    let outputs = Outputs::of(request);
    Ok(write_all(
        ready,
        &reader,
        &history,
        &outputs,
        &Arc::default(),
    )?)
}

/// What DRE left in the directory of a new journal that goes on with it (ST-84).
fn import_if_new(
    request: &Request<'_>,
    ready: &Ready,
    journal: &Journal,
) -> Result<Vec<String>, ExecuteError> {
    let reader = journal.reader()?;
    let is_new = reader.invocations()?.is_empty() && reader.history()?.is_empty();
    match request.mode == Mode::Resume && is_new {
        true => Ok(import::import(
            request.plan,
            ready,
            journal,
            request.directory,
        )?),
        false => Ok(Vec::new()),
    }
}

async fn run_under<B: Backend + 'static>(
    request: &Request<'_>,
    ready: &Ready,
    journal: &Arc<Journal>,
    backend: impl FnOnce() -> Arc<B>,
    stop: watch::Receiver<Stop>,
    told: impl FnMut(&Tally),
) -> Result<(End, Tally, Option<String>), ExecuteError> {
    // Under the lock: what was looked at before may have changed.
    let reader = journal.reader()?;
    let history = reader.history()?;
    if request.mode == Mode::New && !history.is_empty() {
        return Err(ExecuteError::Exists(request.directory.to_owned()));
    }
    check_study(request, &reader)?;
    let recorded = Recorded::new(&history, &reader, ready, &request.wishes)?;
    let survey = match history.is_empty() {
        true => Fresh.survey(request.plan)?,
        false => recorded.survey(request.plan)?,
    };
    check_changes(request, &survey)?;
    let invocation = invocation::next_id(&reader)?;
    journal.record(invocation::begin(request, invocation, &survey))?;
    drop(survey);
    let site = Site {
        plan: request.plan,
        ready,
        recorded: &recorded,
        journal: Arc::clone(journal),
        backend: backend(),
        workers: request.workers,
        invocation,
    };
    let (end, tally, failure) = runner::run(&site, stop, told).await?;
    journal.record(vec![invocation::end(invocation, end)])?;
    journal.sync()?;
    Ok((end, tally, failure))
}
