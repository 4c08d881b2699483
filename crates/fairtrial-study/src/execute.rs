//! A study run into its directory: what is there is looked at, what is missing is run, tables are written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairtrial_exec::Backend;
use tokio::sync::watch;

use crate::batches::{Batches, Pace, Reached};
use crate::canonical::{canonical_json, sha256_hex};
use crate::clock::{Precision, now_ns, time_text};
use crate::fault::{Invalid, nearest};
use crate::format::Format;
use crate::import;
use crate::journal::{
    Decision as DecisionRecord, FILE_NAME, History, Invocation, Journal, JournalError, Lock, Meta,
    Reader, Record, Status,
};
use crate::outputs::Outputs;
use crate::plan::{Action, Decide, Plan};
use crate::ready::Ready;
use crate::recorded::{Changed, RETRY, Recorded, Wishes};
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
    let ready = Ready::load(request.plan)?;
    check_wishes(request)?;
    prepare_directory(request)?;
    if request.directory.join(FILE_NAME).exists() {
        let reader = Reader::open(request.directory)?;
        check_study(request, &reader)?;
        let history = reader.history()?;
        let recorded = Recorded::new(request.plan, &history, &reader, &ready, &request.wishes)?;
        check_changes(request, &recorded)?;
        let counts = recorded.counts(request.plan);
        if counts.run + counts.rerun + counts.evaluate == 0 {
            if let Some(holder) = reader.writer() {
                let path = request.directory.to_owned();
                return Err(JournalError::Locked { path, holder }.into());
            }
            if !accepted(request, &recorded, 0)?.is_empty() || is_another(request, &reader)? {
                record_anew(request, &ready)?;
            } else if !seal::is_of(&reader, request.directory)? {
                // It was killed when all was run and before that was written down.
                let journal = open_journal(request)?;
                export(request, &ready, &journal.reader()?, &Outputs::of(request))?;
            }
            write_missing(request, &reader, &history)?;
            return summarise(request, &reader, None, Tally::default());
        }
    }
    let io = |source| ExecuteError::Io {
        path: request.directory.to_owned(),
        source,
    };
    fs::create_dir_all(request.directory).map_err(io)?;
    let journal = Arc::new(open_journal(request)?);
    let is_new = journal.reader()?.invocations()?.is_empty();
    let imports = request.mode == Mode::Resume && is_new && journal.reader()?.history()?.is_empty();
    let mut warnings = match imports {
        true => import::import(request.plan, &ready, &journal, request.directory)?,
        false => Vec::new(),
    };
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
        ran = run_under(request, &ready, &journal, backend, stop, told) => ran,
        () = batches.keep_current(news) => unreachable!("it goes on for ever"),
    };
    warnings.extend(batches.end().await);
    let (end, tally) = ran?;
    let reader = journal.reader()?;
    reader.hold_still()?;
    let mut summary = summarise(request, &reader, Some(end), tally)?;
    summary.warnings = warnings;
    export(request, &ready, &reader, &outputs)?;
    Ok(summary)
}

/// Refuses, moves aside or leaves what is there.
fn prepare_directory(request: &Request<'_>) -> Result<(), ExecuteError> {
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

fn check_study(request: &Request<'_>, reader: &Reader) -> Result<(), ExecuteError> {
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

/// What is named must be there: a slip of the pen would otherwise do nothing, and say so.
fn check_wishes(request: &Request<'_>) -> Result<(), ExecuteError> {
    let (plan, wishes) = (request.plan, &request.wishes);
    let rescored = wishes.rescore.iter().flat_map(|rescore| &rescore.problem);
    let named = [
        ("run", wishes.retry_runs.iter().collect::<Vec<_>>()),
        ("condition", wishes.retry_conditions.iter().collect()),
        ("change", wishes.accepted.iter().collect()),
        ("problem", rescored.collect()),
    ];
    for (what, names) in named.into_iter().filter(|(_, names)| !names.is_empty()) {
        let mut known: BTreeSet<String> = match what {
            "change" => ["changed", "seed", "terms", "identity"]
                .map(str::to_owned)
                .into(),
            _ => BTreeSet::new(),
        };
        for run in plan.runs() {
            let (agent, problem) = (run.agent_id().to_str(), run.problem_id().to_str());
            match what {
                "run" => _ = known.insert(run.run_id.to_string()),
                "condition" => _ = known.insert(run.condition.id().to_string()),
                "problem" => _ = known.insert(problem),
                _ => known.extend([format!("agent:{agent}"), format!("problem:{problem}")]),
            }
        }
        if let Some(name) = names.into_iter().find(|name| !known.contains(*name)) {
            let hint = match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => String::new(),
            };
            let name = name.clone();
            return Err(ExecuteError::Unknown { what, name, hint });
        }
    }
    Ok(())
}

/// ST-67: what would be thrown away is asked about first.
fn check_changes(request: &Request<'_>, recorded: &Recorded<'_>) -> Result<(), ExecuteError> {
    if request.wishes.changed != Changed::Refuse {
        return Ok(());
    }
    let mut reasons = BTreeMap::<String, u64>::new();
    for run in request.plan.runs() {
        let decision = recorded.look(&run)?;
        if decision.action == Action::Rerun && decision.reason != RETRY {
            let short = decision.reason.split(" (").next().unwrap_or_default();
            *reasons.entry(short.to_owned()).or_default() += 1;
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let listed: Vec<_> = reasons
        .iter()
        .map(|(reason, count)| format!("{reason} ({count})"))
        .collect();
    Err(ExecuteError::Changed {
        count: reasons.values().sum(),
        reasons: listed.join(", "),
    })
}

/// Changes that this invocation accepts for the first time.
fn accepted(
    request: &Request<'_>,
    recorded: &Recorded<'_>,
    invocation: i64,
) -> Result<Vec<Record>, JournalError> {
    let wishes = &request.wishes;
    if wishes.changed != Changed::Accept && wishes.accepted.is_empty() {
        return Ok(Vec::new());
    }
    let mut records = Vec::new();
    for run in request.plan.runs() {
        let decision = recorded.look(&run)?;
        if recorded.is_newly_accepted(&run, &decision) {
            records.push(Record::Decision(DecisionRecord {
                invocation,
                run_id: run.run_id.to_string(),
                action: decision.action.name().into(),
                reason: decision.reason,
            }));
        }
    }
    Ok(records)
}

/// Whether the study is not the one that the tables are of: one of fewer runs has nothing to run, and other tables.
fn is_another(request: &Request<'_>, reader: &Reader) -> Result<bool, JournalError> {
    let invocations = reader.invocations()?;
    Ok(invocations.last().is_some_and(|last| {
        last.study_sha256 != request.plan.study_sha256
            || last.digest_runs != request.plan.digest_runs
    }))
}

/// Records the study and what was accepted where there is nothing to run.
fn record_anew(request: &Request<'_>, ready: &Ready) -> Result<(), ExecuteError> {
    let journal = open_journal(request)?;
    let reader = journal.reader()?;
    let history = reader.history()?;
    let recorded = Recorded::new(request.plan, &history, &reader, ready, &request.wishes)?;
    let id = reader.invocations()?.last().map_or(1, |last| last.id + 1);
    let mut records = begin(request, id);
    records.extend(accepted(request, &recorded, id)?);
    records.push(Record::InvocationEnd {
        id,
        ended_at_ns: now_ns(),
        reason: "finished".into(),
    });
    journal.record(records)?;
    journal.sync()?;
    export(request, ready, &reader, &Outputs::of(request))
}

fn open_journal(request: &Request<'_>) -> Result<Journal, JournalError> {
    let study = &*request.plan.study;
    let meta = Meta {
        study_id: &study.study_id,
        compat: study.compat.name(),
        created_at_ns: now_ns(),
    };
    Journal::open(request.directory, &meta, &who(request))
}

/// What a second writer is told.
fn who(request: &Request<'_>) -> String {
    let (pid, host) = (std::process::id(), &request.host);
    let since = time_text(now_ns(), Precision::Seconds);
    format!("process {pid} on {host}, since {since}")
}

async fn run_under<B: Backend + 'static>(
    request: &Request<'_>,
    ready: &Ready,
    journal: &Arc<Journal>,
    backend: impl FnOnce() -> Arc<B>,
    stop: watch::Receiver<Stop>,
    told: impl FnMut(&Tally),
) -> Result<(End, Tally), ExecuteError> {
    // Under the lock: what was looked at before may have changed.
    let reader = journal.reader()?;
    let history = reader.history()?;
    if request.mode == Mode::New && !history.is_empty() {
        return Err(ExecuteError::Exists(request.directory.to_owned()));
    }
    let recorded = Recorded::new(request.plan, &history, &reader, ready, &request.wishes)?;
    check_study(request, &reader)?;
    check_changes(request, &recorded)?;
    let invocation = reader.invocations()?.last().map_or(1, |last| last.id + 1);
    let mut records = begin(request, invocation);
    records.extend(accepted(request, &recorded, invocation)?);
    journal.record(records)?;
    let site = Site {
        plan: request.plan,
        ready,
        recorded: &recorded,
        journal: Arc::clone(journal),
        backend: backend(),
        workers: request.workers,
        invocation,
    };
    let (end, tally) = runner::run(&site, stop, told).await?;
    let reason = match end {
        End::Finished => "finished",
        End::Stopped => "stopped",
        End::Interrupted => "interrupted",
    };
    journal.record(vec![Record::InvocationEnd {
        id: invocation,
        ended_at_ns: now_ns(),
        reason: reason.into(),
    }])?;
    journal.sync()?;
    Ok((end, tally))
}

fn begin(request: &Request<'_>, id: i64) -> Vec<Record> {
    let plan = request.plan;
    let study_blob = sha256_hex(&request.input);
    let order = &plan.study.order;
    let run_order = Value::map([
        ("policy", Value::text(order.policy.name())),
        ("seed", order.seed.clone()),
    ]);
    let absolute = std::path::absolute(&*plan.study.file);
    let study_path = absolute.unwrap_or_else(|_| PathBuf::from(&*plan.study.file));
    vec![
        Record::Blob {
            sha256: study_blob.clone(),
            bytes: request.input.clone(),
        },
        Record::Invocation(Invocation {
            id,
            started_at_ns: now_ns(),
            pid: std::process::id(),
            host: request.host.clone(),
            argv: canonical_json(&Value::texts(&request.argv)),
            study_path: study_path.display().to_string(),
            study_blob,
            study_sha256: plan.study_sha256.clone(),
            digest_runs: plan.digest_runs.clone(),
            workers: u32::try_from(request.workers).unwrap_or(u32::MAX),
            backend: request.backend.clone(),
            run_order: canonical_json(&run_order),
        }),
    ]
}

fn summarise(
    request: &Request<'_>,
    reader: &Reader,
    end: Option<End>,
    tally: Tally,
) -> Result<Summary, ExecuteError> {
    let history = reader.history()?;
    let (counts, evaluations_failed, known) = count(request.plan, reader, &history)?;
    Ok(Summary {
        end,
        tally,
        counts,
        evaluations_failed,
        orphans: history.len() as u64 - known,
        warnings: Vec::new(),
    })
}

/// Of the plan's runs: how they ended, evaluations that did not go well, and how many ever began.
pub(crate) fn count(
    plan: &Plan<'_>,
    reader: &Reader,
    history: &History,
) -> Result<(BTreeMap<&'static str, u64>, u64, u64), JournalError> {
    let failed = reader.failed_evaluations()?;
    let (mut counts, mut evaluations_failed, mut known) = (BTreeMap::new(), 0, 0);
    for run in plan.runs() {
        let Some(past) = history.find(run.run_id.number()) else {
            continue;
        };
        known += 1;
        let status = past.shown().map_or(past.last, |(_, status)| status);
        *counts.entry(status.name()).or_default() += 1;
        if let Some((start, Status::Success)) = past.shown() {
            evaluations_failed += u64::from(failed.contains(&start));
        }
    }
    Ok((counts, evaluations_failed, known))
}

/// Writes what a request's directory is to hold, and seals it.
fn export(
    request: &Request<'_>,
    ready: &Ready,
    reader: &Reader,
    outputs: &Outputs,
) -> Result<(), ExecuteError> {
    let (history, formats) = (reader.history()?, &outputs.formats);
    outputs.write(reader, &history, formats.clone(), &Arc::default())?;
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
fn write_missing(
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
