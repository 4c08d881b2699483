//! `fairtrial status`: how a study stands.

use std::io::{self, Write};
use std::path::Path;

use fairtrial_study::{Failure as Failed, Plan, Standing};
use fairtrial_study::{JournalError, JournalReader, Status};
use serde_json::json;

use crate::args::StatusArgs;
use crate::commands::plan::invalid;
use crate::commands::run::{for_shell, recorded_study};
use crate::commands::status_cluster;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::terminal::{Shown, counted};

/// Failures that are shown.
const SHOWN: usize = 5;

/// Shows how the study of a directory stands.
pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let directory = match (&args.directory, &args.cluster) {
        (Some(directory), _) => directory,
        (None, url) => return status_cluster::run(url.as_deref().unwrap_or_default(), args),
    };
    let (study, _) = recorded_study(directory)?;
    let plan = Plan::build(&study, None).map_err(invalid)?;
    let failed = |error: JournalError| Failure::Usage(error.to_string());
    let reader = JournalReader::open(directory).map_err(failed)?;
    reader.hold_still().map_err(failed)?;
    let standing = Standing::read(&plan, &reader, SHOWN).map_err(failed)?;
    let shown = match args.json {
        true => show_json(&plan, &standing),
        false => show(&plan, &standing, directory),
    };
    match shown {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::attempting("cannot show the status")(error))
        }
        _ => Ok(ExitCode::AllWell),
    }
}

fn show_json(plan: &Plan<'_>, standing: &Standing) -> io::Result<()> {
    let conditions: serde_json::Map<_, _> = standing
        .conditions
        .iter()
        .map(|(id, counts)| (id.clone(), json!(counts)))
        .collect();
    let listed = |failures: &[Failed]| failures.iter().map(failure_json).collect::<Vec<_>>();
    let object = json!({
        "study_id": plan.study.study_id,
        "planned": plan.len(),
        "counts": standing.counts,
        "conditions": conditions,
        "evaluations_failed": standing.evaluations_failed,
        "starts": standing.starts,
        "running": standing.counts.get(Standing::RUNNING).unwrap_or(&0),
        "lost": standing.lost,
        "left": standing.left,
        "orphans": standing.orphans,
        "retried_successes": standing.retried,
        "writer": standing.writer,
        "runs_per_second": standing.rate,
        "last_failures": listed(&standing.failures),
        "last_evaluation_failures": listed(&standing.evaluation_failures),
    });
    writeln!(Shown::on(io::stdout()), "{object}")
}

fn failure_json(failure: &Failed) -> serde_json::Value {
    json!({
        "run_id": failure.run_id,
        "agent_id": failure.agent_id,
        "problem_id": failure.problem_id,
        "status": failure.status,
        "stage": failure.stage,
        "error_type": failure.error_type,
        "message": failure.message,
        "error": failure.error(),
    })
}

fn show(plan: &Plan<'_>, standing: &Standing, directory: &Path) -> io::Result<()> {
    let mut out = Shown::on(io::stdout());
    let planned = counted(plan.len(), "run");
    writeln!(out, "study {}: {planned} planned", plan.study.study_id)?;
    let begun: u64 = standing.counts.values().sum();
    let names = Status::ALL.map(Status::name);
    for name in names.into_iter().chain([Standing::RUNNING]) {
        let left = match name == Status::Lost.name() {
            true => standing.left,
            false => 0,
        };
        match standing.counts.get(name).map(|count| count - left) {
            None | Some(0) => {}
            Some(count) => writeln!(out, "  {count} {name}")?,
        }
    }
    if standing.left > 0 {
        let directory = for_shell(&directory.display().to_string());
        let (left, them) = (
            standing.left,
            if standing.left == 1 { "it" } else { "them" },
        );
        writeln!(
            out,
            "  {left} under way when it was ended; `fairtrial resume {directory}` goes on with {them}"
        )?;
    }
    if begun < plan.len() {
        writeln!(out, "  {} to run", plan.len() - begun)?;
    }
    let retried = match standing.retried {
        1 => "success after an attempt that failed",
        _ => "successes after an attempt that failed",
    };
    for (count, said) in [
        (
            standing.evaluations_failed,
            counted(standing.evaluations_failed, "evaluation") + " not well",
        ),
        (standing.retried, format!("{} {retried}", standing.retried)),
        (
            standing.orphans,
            counted(standing.orphans, "recorded run") + " no longer planned",
        ),
    ] {
        if count > 0 {
            writeln!(out, "  {said}")?;
        }
    }
    if let Some(writer) = &standing.writer {
        let rate = standing
            .rate
            .map_or(String::new(), |rate| format!(", {rate:.1} runs/s"));
        writeln!(out, "being run by {writer}{rate}")?;
    }
    show_failures(&mut out, &standing.failures, standing.failed, "")?;
    let unevaluated = &standing.evaluation_failures;
    show_failures(
        &mut out,
        unevaluated,
        standing.evaluations_failed,
        "evaluation ",
    )
}

/// The last failures, of `all` that there are.
fn show_failures(
    out: &mut impl Write,
    failures: &[Failed],
    all: u64,
    what: &str,
) -> io::Result<()> {
    for failure in failures {
        let (run, status, error) = (&failure.run_id, &failure.status, failure.error());
        let whose = [
            ("agent", &failure.agent_id),
            ("problem", &failure.problem_id),
        ];
        let whose = whose.into_iter().filter_map(|(what, id)| {
            let id = id.as_ref()?;
            Some(format!("{what} {id}"))
        });
        let whose = match whose.collect::<Vec<_>>().join(", ") {
            whose if whose.is_empty() => whose,
            whose => format!(" ({whose})"),
        };
        writeln!(out, "{run} {what}{status}{whose}: {error}")?;
    }
    match all.saturating_sub(failures.len() as u64) {
        0 => Ok(()),
        more => writeln!(out, "… and {more} more"),
    }
}
