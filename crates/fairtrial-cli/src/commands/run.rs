//! `fairtrial run`, `resume`, `retry`, `rescore`: a study into its directory.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairtrial_candidates::Rescoring;
use fairtrial_cluster::{nonce, without_secrets};
use fairtrial_study::{
    Changed, CommonestError, Compat, End, ExecuteError, Format, Mode, Pace, Plan, Request, Rescore,
    Stop, Study, Summary, Wishes, execute,
};
use fairtrial_study::{JournalError, JournalReader, PastInvocation, Status};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::any_backend::{AnyBackend, reach};
use crate::args::{
    AgainArgs, HowArgs, RescoreArgs, ResumeArgs, RetryArgs, RunArgs, TermsArgs, statuses,
};
use crate::commands::evaluate::is_evaluation;
use crate::commands::plan::{invalid, planned, warn};
use crate::engine;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::show::LEFT;
use crate::study_progress::StudyProgress;
use crate::terminal::{Shown, counted};

/// How long the record of what was killed may take; a disk that takes longer has failed.
const RECORDING: Duration = Duration::from_secs(5);

/// After Ctrl-C agents have so long to say what became of what they ran (CL-56).
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// Runs the study that `args` name.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let mode = match (args.resume, args.fresh) {
        (true, _) => Mode::Resume,
        (_, true) => Mode::Fresh,
        _ => Mode::New,
    };
    let (study, input) = Study::load_with_input(&args.study, args.compat).map_err(invalid)?;
    let directory = args.out.clone().unwrap_or_else(|| study.output_dir.clone());
    let wishes = wishes(&args.again)?;
    perform(&study, input, &directory, mode, wishes, &args.how)
}

/// Goes on with the study of a directory.
pub(crate) fn resume(args: &ResumeArgs) -> Result<ExitCode, Failure> {
    let wishes = wishes(&args.again)?;
    go_on(&args.directory, wishes, &args.how)
}

/// Runs failed runs again.
pub(crate) fn retry(args: &RetryArgs) -> Result<ExitCode, Failure> {
    let wishes = Wishes {
        retry: statuses(&args.status).map_err(|problem| Failure::usage("--status", problem))?,
        only_retries: true,
        retry_runs: args.runs.iter().cloned().collect(),
        retry_conditions: args.conditions.iter().cloned().collect(),
        ..Wishes::default()
    };
    go_on(&args.directory, wishes, &args.how)
}

/// Judges again what is on record, of whichever kind the directory is.
pub(crate) fn rescore(args: &RescoreArgs) -> Result<ExitCode, Failure> {
    let TermsArgs {
        alpha,
        min_effect,
        metric,
        json,
    } = args.terms;
    let of_evaluation = [
        ("--alpha", alpha.is_some()),
        ("--min-effect", min_effect.is_some()),
        ("--metric", metric.is_some()),
        ("--json", json),
    ];
    let how = &args.how;
    let of_study = [
        ("--problem", args.problem.is_some()),
        ("--all", args.all),
        ("--jobs", how.jobs.is_some()),
        ("--sqlite", how.sqlite),
        ("--allow-failures", how.allow_failures.is_some()),
    ];
    if is_evaluation(&args.directory)? {
        refuse(&of_study, "is for studies, and this is an evaluation")?;
        let terms = Rescoring {
            alpha,
            min_effect,
            metric,
        };
        return super::evaluate::rescore(&args.directory, &terms, json);
    }
    refuse(&of_evaluation, "is for evaluations, and this is none")?;
    let wishes = Wishes {
        rescore: Some(Rescore {
            problem: args.problem.clone(),
            all: args.all,
        }),
        ..Wishes::default()
    };
    go_on(&args.directory, wishes, &args.how)
}

/// Flags of the other kind of directory.
fn refuse(flags: &[(&str, bool)], why: &str) -> Result<(), Failure> {
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Failure::usage(flag, why)),
        None => Ok(()),
    }
}

fn go_on(directory: &Path, wishes: Wishes, how: &HowArgs) -> Result<ExitCode, Failure> {
    let (study, input) = study_to_go_on_with(directory)?;
    perform(&study, input, directory, Mode::Resume, wishes, how)
}

/// The study as a directory's journal has it, in the mode that it was run in.
pub(crate) fn recorded_study(directory: &Path) -> Result<(Study, Vec<u8>), Failure> {
    let last = LastRun::of(directory)?;
    let input = last.study_text()?;
    let path = Path::new(&last.invocation.begun.study_path);
    if std::fs::read(path).is_ok_and(|now| now != input) {
        let note = "has changed since it was last run; what follows is of the study as it was run";
        writeln!(Shown::on(io::stderr()), "{}: {note}", path.display()).unwrap_or_default(); // nobody is there to be told
    }
    let text = String::from_utf8_lossy(&input);
    let study = Study::parse(path, &text, last.compat).map_err(invalid)?;
    Ok((study, input))
}

/// The study file that a directory's journal names, as it is now.
fn study_to_go_on_with(directory: &Path) -> Result<(Study, Vec<u8>), Failure> {
    let last = LastRun::of(directory)?;
    let path = PathBuf::from(&last.invocation.begun.study_path);
    Study::load_with_input(&path, last.compat).map_err(invalid)
}

/// What a directory's journal says of its last invocation.
struct LastRun {
    reader: JournalReader,
    invocation: PastInvocation,
    compat: Option<Compat>,
    name: String,
}

impl LastRun {
    fn of(directory: &Path) -> Result<Self, Failure> {
        let name = directory.display().to_string();
        let journal = |error| Failure::usage(&name, error);
        let reader =
            JournalReader::open(directory).map_err(|error| Failure::Usage(error.to_string()))?;
        let Some(invocation) = reader.invocations().map_err(journal)?.pop() else {
            let problem =
                "its journal names no study file (run it with `fairtrial run STUDY --resume`)";
            return Err(Failure::usage(&name, problem));
        };
        let compat = reader.meta("compat").map_err(journal)?;
        let compat = compat.map(|text| text.parse::<Compat>()).transpose();
        let compat = compat.map_err(|problem| Failure::usage(&name, problem))?;
        Ok(Self {
            reader,
            invocation,
            compat,
            name,
        })
    }

    fn study_text(&self) -> Result<Vec<u8>, Failure> {
        let text = self.reader.blob(&self.invocation.begun.study_blob);
        let text = text.map_err(|error| Failure::usage(&self.name, error))?;
        text.ok_or_else(|| Failure::usage(&self.name, "its journal has lost the study's text"))
    }
}

fn wishes(args: &AgainArgs) -> Result<Wishes, Failure> {
    let accepts_all = args.accept.iter().any(|what| what == "changed");
    let changed = match (&args.rerun, accepts_all) {
        (Some(_), true) => {
            let problem = "`--rerun changed` and `--accept changed` exclude each other";
            return Err(Failure::usage("--rerun", problem));
        }
        (Some(_), false) => Changed::Rerun,
        (None, true) => Changed::Accept,
        (None, false) => Changed::Refuse,
    };
    Ok(Wishes {
        retry: statuses(&args.retry).map_err(|problem| Failure::usage("--retry", problem))?,
        changed,
        accepted: args.accept.iter().cloned().collect(),
        ..Wishes::default()
    })
}

/// Runs that wait for agents at a time, unless told otherwise.
const REMOTE_RUNS: usize = 256;

fn perform(
    study: &Study,
    input: Vec<u8>,
    directory: &Path,
    mode: Mode,
    wishes: Wishes,
    how: &HowArgs,
) -> Result<ExitCode, Failure> {
    let plan = Arc::new(planned(study)?);
    warn(&plan).unwrap_or_default(); // nobody is there to be told
    let workers = how.jobs.or(study.budget.parallelism);
    let workers = workers.and_then(|count| usize::try_from(count).ok());
    let config = engine::config(workers)?;
    let is_local = AnyBackend::is_local(how.backend.as_deref());
    let request = Request {
        plan: &plan,
        directory,
        mode,
        wishes,
        workers: match (is_local, workers) {
            (true, _) => config.max_workers,
            // Who runs how many at a time, agents say.
            (false, workers) => workers.unwrap_or(REMOTE_RUNS),
        },
        backend: AnyBackend::name(how.backend.as_deref())?,
        input,
        argv: std::env::args()
            .map(|word| fairtrial_cluster::without_secrets(&word))
            .collect(),
        host: host(),
        provenance: Some(crate::provenance::captured()),
        formats: how.sqlite.then_some(Format::Sqlite).into_iter().collect(),
        pace: Pace::default(),
        journal_id: nonce(),
    };
    let queue = match is_local {
        true => None,
        false => Some(queue(study, &request)?),
    };
    let summary = engine::run(async {
        let mut interrupt = Interrupt::listen()?;
        let (stop, stopped) = watch::channel(Stop::No);
        let mut progress = StudyProgress::new(plan.len(), how.no_progress);
        let remote = how.backend.as_deref();
        if mode != Mode::Resume {
            interrupt.or(reach(remote, &config)).await??;
        }
        let backend = AnyBackend::new(remote, config, workers, queue.as_deref())?;
        let backend = Arc::new(backend);
        let made = Arc::clone(&backend);
        let running = execute(
            &request,
            || made,
            stopped,
            move |tally| {
                progress.ended(tally);
            },
        );
        tokio::pin!(running);
        let mut asked = false;
        let mut patience = None;
        let ended = loop {
            let out_of_patience = async {
                match patience {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = interrupt.received() => {
                    if asked {
                        stop.send_replace(Stop::Now);
                        // What is killed now is recorded.
                        let recorded = tokio::time::timeout(RECORDING, running);
                        _ = tokio::join!(engine::stop(&backend), recorded);
                        return Err(backend.interrupted());
                    }
                    asked = true;
                    stop.send_replace(Stop::Cancel);
                    say("stopping; once more to stop at once");
                    patience = (!is_local).then(|| Instant::now() + CANCEL_PATIENCE);
                }
                () = out_of_patience => {
                    patience = None;
                    stop.send_replace(Stop::Leave);
                }
                ended = &mut running => break ended,
            }
        };
        let is_left = *stop.borrow() == Stop::Leave;
        drop(stop);
        // What was stopped may use its grace; who asks once more waits for nobody.
        match &ended {
            Ok(summary) if is_left || summary.failure.is_some() => engine::stop(&backend).await,
            Ok(_) if interrupt.or(engine::finish(&*backend)).await.is_ok() => {}
            Ok(_) => {
                engine::stop(&backend).await;
                return Err(backend.interrupted());
            }
            Err(_) => engine::stop(&backend).await,
        }
        if is_left {
            say(LEFT);
        }
        ended.map_err(failure)
    })?;
    for warning in &summary.warnings {
        say(warning);
    }
    let done = match request.wishes.rescore {
        Some(_) => "evaluated",
        None => "run now",
    };
    let resume = to_go_on(directory, how.backend.as_deref());
    show(&plan, directory, &summary, (done, &resume));
    if let Some(failure) = &summary.failure {
        let line = format!("{failure}; go on with: {resume}");
        return Err(Failure::Cluster(line));
    }
    Ok(exit_code(&summary, plan.len(), how))
}

fn say(line: &str) {
    writeln!(Shown::on(io::stderr()), "{line}").unwrap_or_default(); // nobody is there to be told
}

/// The queue of a journal's calls: who goes on with it finds what agents left there, and a new run of the same study finds
/// nothing of another's. A journal of old has no name, and its queue was called as the study is.
fn queue(study: &Study, request: &Request<'_>) -> Result<String, Failure> {
    let study_id = &study.study_id;
    let named = |id: &str| format!("{study_id}-{id}");
    if request.mode != Mode::Resume {
        return Ok(named(&request.journal_id));
    }
    let found = match JournalReader::open(request.directory) {
        Ok(reader) => reader,
        Err(JournalError::Missing(_)) => return Ok(named(&request.journal_id)),
        Err(error) => return Err(Failure::Usage(error.to_string())),
    };
    let id = found.meta("journal_id");
    let id = id.map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(id.map_or_else(|| study_id.clone(), |id| named(&id)))
}

fn failure(error: ExecuteError) -> Failure {
    match error {
        ExecuteError::Invalid(faults) => invalid(faults),
        ExecuteError::CutShort => Failure::Interrupted,
        ExecuteError::Journal(error) => match &*error {
            JournalError::Database { .. } | JournalError::Io { .. } => {
                Failure::attempting("the journal failed, and the study was stopped")(
                    error.to_string(),
                )
            }
            refused => Failure::Usage(refused.to_string()),
        },
        error @ (ExecuteError::Export(_) | ExecuteError::Io { .. }) => {
            Failure::attempting("cannot write the study's directory")(error.to_string())
        }
        refused => Failure::Usage(refused.to_string()),
    }
}

fn exit_code(summary: &Summary, planned: u64, how: &HowArgs) -> ExitCode {
    let unwell = summary.unwell(planned);
    match &summary.end {
        Some(End::Interrupted) => ExitCode::Interrupted,
        Some(End::Failed) => ExitCode::EngineFailed,
        Some(End::Stopped) => ExitCode::CallFailed,
        _ if unwell == 0 => ExitCode::AllWell,
        _ => match how.allow_failures {
            Some(allowance) if allowance.covers(unwell, planned) => ExitCode::AllWell,
            _ => ExitCode::CallFailed,
        },
    }
}

/// The command that goes on with a study, where it was run.
fn to_go_on(directory: &Path, backend: Option<&str>) -> String {
    let directory = for_shell(&directory.display().to_string());
    let backend = backend.filter(|_| !AnyBackend::is_local(backend));
    let backend = backend.map(|url| format!(" --backend {}", for_shell(&without_secrets(url))));
    format!(
        "fairtrial resume {directory}{}",
        backend.unwrap_or_default()
    )
}

/// The closing summary, all that goes to standard output: what was `done` with runs that ended, and how to go on.
fn show(plan: &Plan<'_>, directory: &Path, summary: &Summary, (done, resume): (&str, &str)) {
    let ran = summary.tally.all_ended();
    let begun = counted(summary.tally.all_begun(), "run");
    let what = match (&summary.end, ran) {
        (None, _) => "nothing to do".to_owned(),
        (Some(End::Finished), ran) => format!(
            "{ran} {done}, {} taken from the record",
            summary.tally.reused
        ),
        (Some(End::Stopped), ran) => {
            let ran = counted(ran, "run");
            format!("stopped after {ran} by the policy on failures")
        }
        (Some(End::Interrupted), _) => format!("interrupted after {begun}"),
        (Some(End::Failed), _) => format!("given up after {begun}"),
    };
    let mut lines = vec![format!("study {}: {what}", plan.study.study_id)];
    let ended = Status::ALL.into_iter().filter_map(|status| {
        let count = summary.counts.get(status.name())?;
        Some(format!("{count} {status}"))
    });
    let mut counts: Vec<_> = ended.collect();
    let begun: u64 = summary.counts.values().sum();
    if begun < plan.len() {
        counts.push(format!("{} to run", plan.len() - begun));
    }
    if summary.evaluations_failed > 0 {
        counts.push(counted(summary.evaluations_failed, "evaluation") + " not well");
    }
    let runs = counted(plan.len(), "run");
    lines.push(format!("{runs}: {}", counts.join(", ")));
    lines.push(format!("in {}", directory.display()));
    lines.extend(commonest_error(plan, directory, summary));
    if summary.counts.contains_key(Status::Lost.name()) {
        let directory = for_shell(&directory.display().to_string());
        lines.push(format!(
            "what was lost, and why: fairtrial status {directory}"
        ));
    }
    if matches!(summary.end, Some(End::Stopped | End::Interrupted)) {
        lines.push(format!("go on with: {resume}"));
    }
    let mut out = Shown::on(io::stdout());
    for line in lines {
        writeln!(out, "{line}").unwrap_or_default(); // whoever read it is gone
    }
}

/// What most failures say, so that one cause of many is seen at once.
fn commonest_error(plan: &Plan<'_>, directory: &Path, summary: &Summary) -> Option<String> {
    let mut statuses = Status::ALL.into_iter().filter(|status| status.is_failure());
    let has_failed = statuses.any(|status| summary.counts.contains_key(status.name()));
    if summary.end.is_none() || (!has_failed && summary.evaluations_failed == 0) {
        return None;
    }
    // The study has ended: a journal that cannot be read any more is told by whoever needs it.
    let reader = JournalReader::open(directory).ok()?;
    let found = CommonestError::read(plan, &reader).ok()??;
    let CommonestError {
        error,
        count,
        compared,
    } = found;
    let of = match compared {
        1 => String::new(),
        compared => format!(" ({count} of {compared} failures)"),
    };
    Some(format!("commonest error{of}: {error}"))
}

/// A word that a shell takes as it is.
pub(crate) fn for_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    match !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        true => word.to_owned(),
        false if word.starts_with('-') => for_shell(&format!("./{word}")),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// This machine's name.
pub(crate) fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
