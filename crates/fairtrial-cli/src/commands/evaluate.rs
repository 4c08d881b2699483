//! `fairtrial evaluate`: candidates against a repository.

mod progress;
mod table;

use std::io::{self, Write};
use std::path::Path;

use fairtrial_candidates::spec::{Invalid, Spec, SpecPath};
use fairtrial_candidates::{
    Checklist, EvaluateError, EvaluationReport, Evaluator, Onset, REPORT_SCHEMA, Rescoring,
};
use tokio::sync::mpsc;

use crate::args::EvaluateArgs;
use crate::engine;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, reason};
use crate::interrupt::Interrupt;
use crate::terminal::Shown;
use progress::EvaluationProgress;

/// Evaluates what `args` name.
pub(crate) fn run(args: &EvaluateArgs) -> Result<ExitCode, Failure> {
    if args.schema {
        let shown = write!(Shown::on(io::stdout()), "{REPORT_SCHEMA}");
        closed_is_fine(shown, "cannot show the schema")?;
        return Ok(ExitCode::AllWell);
    }
    let file = args
        .file
        .as_ref()
        .expect("without --schema a file is asked for");
    let spec = spec(file, args)?;
    let (page, journal) = ("report.html", "journal.jsonl");
    let [page, journal] = [page, journal].map(|name| spec.output.path.join(name));
    let workers = spec.parallel.and_then(|slots| usize::try_from(slots).ok());
    let config = engine::config(workers)?;
    let shown = progress::Terms::of(&spec);
    let evaluator = Evaluator::new(spec, config)?;
    if args.check {
        let checked = engine::run(interrupted(&evaluator, evaluator.check(onset(args))))?;
        return show_check(&checked, args.json);
    }
    let quiet = args.no_progress || args.json && !io::IsTerminal::is_terminal(&io::stderr());
    let report = engine::run(async {
        let (events, told) = mpsc::unbounded_channel();
        let watching = tokio::spawn(EvaluationProgress::new(quiet, shown).follow(told));
        let evaluated = interrupted(&evaluator, evaluator.evaluate(onset(args), events)).await;
        watching.await.ok(); // it ends with the events
        evaluated
    });
    // Before its first record there is nothing to go on with.
    if matches!(&report, Err(Failure::Interrupted)) && journal.exists() {
        let name = file.display();
        let output = args.output.as_ref();
        let output = output.map_or_else(String::new, |place| {
            format!(" --output {}", place.display())
        });
        writeln!(
            Shown::on(io::stderr()),
            "go on with: fairtrial evaluate {name}{output} --resume"
        )
        .unwrap_or_default(); // nobody is there to be told
    }
    let report = report?;
    show(&report, args.json)?;
    if !quiet && io::IsTerminal::is_terminal(&io::stderr()) {
        writeln!(Shown::on(io::stderr()), "report: {}", page.display()).unwrap_or_default(); // nobody is there to be told
    }
    Ok(exit_code(&report))
}

fn spec(file: &Path, args: &EvaluateArgs) -> Result<Spec, Failure> {
    let mut spec = Spec::load(file).map_err(invalid)?;
    if let Some(fault) = spec.missing_proposer() {
        return Err(Failure::Usage(fault.to_string()));
    }
    if let Some(sandbox) = engine::default_sandbox()?.filter(|_| !spec.places.is_given("sandbox")) {
        spec.sandbox = sandbox;
    }
    if let Some(jobs) = args.jobs {
        spec.parallel = Some(u32::try_from(jobs).unwrap_or(u32::MAX));
    }
    if let Some(output) = &args.output {
        let here = std::env::current_dir();
        let here = here.map_err(Failure::attempting("cannot tell the working directory"))?;
        spec.output = SpecPath::new(output.display().to_string(), &here);
    }
    Ok(spec)
}

fn onset(args: &EvaluateArgs) -> Onset {
    match (args.resume, args.fresh) {
        (true, _) => Onset::Resume,
        (false, true) => Onset::Fresh,
        (false, false) => Onset::Begin,
    }
}

/// One line per fault, the first first.
fn invalid(invalid: Invalid) -> Failure {
    let lines: Vec<String> = invalid.faults.iter().map(ToString::to_string).collect();
    Failure::Usage(lines.join("\n"))
}

/// Dropped when a signal comes: then all it started is ended before this returns.
async fn interrupted<T>(
    evaluator: &Evaluator,
    work: impl Future<Output = Result<T, EvaluateError>>,
) -> Result<T, Failure> {
    let mut interrupt = Interrupt::listen()?;
    let ended = interrupt.or(work).await;
    engine::stop(evaluator.backend()).await;
    ended?.map_err(failure)
}

fn failure(error: EvaluateError) -> Failure {
    match error {
        EvaluateError::Invalid(problem) => Failure::Usage(problem),
        EvaluateError::Term { term, problem } => {
            Failure::usage(&format!("--{}", term.replace('_', "-")), problem)
        }
        error @ (EvaluateError::NotEmpty(_)
        | EvaluateError::Occupied(_)
        | EvaluateError::NothingToResume(_)) => Failure::Usage(error.to_string()),
        EvaluateError::Bench(fault) => Failure::Base(fault.to_string()),
        EvaluateError::Engine(error) => error.into(),
        error => Failure::attempting("the evaluation failed")(error.to_string()),
    }
}

fn exit_code(report: &EvaluationReport) -> ExitCode {
    if report.any_correct() {
        ExitCode::AllWell
    } else if report.only_infra().is_some() {
        ExitCode::EngineFailed
    } else {
        ExitCode::CallFailed
    }
}

fn show(report: &EvaluationReport, json: bool) -> Result<(), Failure> {
    let mut out = Shown::on(io::stdout());
    let written = match json {
        true => serde_json::to_string(report)
            .map_err(io::Error::from)
            .and_then(|text| writeln!(out, "{text}")),
        false => table::lines(report)
            .iter()
            .try_for_each(|line| writeln!(out, "{line}")),
    };
    closed_is_fine(written, "cannot show the report")
}

fn show_check(checked: &Checklist, json: bool) -> Result<ExitCode, Failure> {
    let mut out = Shown::on(io::stdout());
    let written = match json {
        true => writeln!(out, "{}", checked.to_json()),
        false => checked
            .lines()
            .iter()
            .try_for_each(|line| writeln!(out, "{line}")),
    };
    closed_is_fine(written, "cannot show the plan")?;
    Ok(ExitCode::AllWell)
}

fn closed_is_fine(written: io::Result<()>, attempt: &str) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::attempting(attempt.to_owned())(reason(&error)))
        }
        _ => Ok(()),
    }
}

/// Whether a directory is that of an evaluation, and not that of a study.
pub(crate) fn is_evaluation(directory: &Path) -> Result<bool, Failure> {
    let has = |name: &str| directory.join(name).exists();
    if has("evaluation.json") || has("journal.sqlite") {
        return Ok(has("evaluation.json"));
    }
    let why = match has("journal.jsonl") {
        true => {
            "holds an evaluation that did not end (go on with it: `fairtrial evaluate FILE --resume`)"
        }
        false => {
            "holds no study and no evaluation: it has no journal.sqlite and no evaluation.json"
        }
    };
    Err(Failure::Usage(format!("`{}` {why}", directory.display())))
}

/// Writes the page of the evaluation in a directory.
pub(crate) fn write_evaluation(directory: &Path, place: &Path) -> Result<(), Failure> {
    let (report, runs) = EvaluationReport::read(directory).map_err(failure)?;
    report
        .write_html(&runs, place)
        .map_err(|error| match error {
            EvaluateError::Failed(problem) => {
                Failure::attempting("cannot write the report")(problem)
            }
            error => failure(error),
        })
}

/// Judges the evaluation in a directory again, from its record. Starts nothing, writes nothing (CA-81).
pub(crate) fn rescore(
    directory: &Path,
    terms: &Rescoring,
    json: bool,
) -> Result<ExitCode, Failure> {
    let (report, runs) = EvaluationReport::read(directory).map_err(failure)?;
    let again = report.rescore(&runs, terms).map_err(failure)?;
    show(&again, json)?;
    Ok(ExitCode::AllWell)
}
