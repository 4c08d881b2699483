//! `fairtrial status`: how a study stands.

use std::io::{self, Write};

use fairtrial_study::journal::{JournalError, Reader, Status};
use fairtrial_study::{Plan, Standing};
use serde_json::json;

use crate::args::StatusArgs;
use crate::commands::plan::invalid;
use crate::commands::run::recorded_study;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::terminal::Shown;

/// Failures that are shown.
const SHOWN: usize = 5;

/// Shows how the study of a directory stands.
pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let (study, _) = recorded_study(&args.directory)?;
    let plan = Plan::build(&study, None).map_err(invalid)?;
    let failed = |error: JournalError| Failure::Usage(error.to_string());
    let reader = Reader::open(&args.directory).map_err(failed)?;
    let standing = Standing::read(&plan, &reader, SHOWN).map_err(failed)?;
    let shown = match args.json {
        true => show_json(&plan, &standing),
        false => show(&plan, &standing),
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
    let failures: Vec<_> = standing
        .failures
        .iter()
        .map(|(run, status, error)| json!({"run_id": run, "status": status.name(), "error": error}))
        .collect();
    let object = json!({
        "study_id": plan.study.study_id,
        "planned": plan.len(),
        "counts": standing.counts,
        "conditions": conditions,
        "evaluations_failed": standing.evaluations_failed,
        "starts": standing.starts,
        "lost": standing.lost,
        "orphans": standing.orphans,
        "retried_successes": standing.retried,
        "writer": standing.writer,
        "runs_per_second": standing.rate,
        "last_failures": failures,
    });
    writeln!(Shown::on(io::stdout()), "{object}")
}

fn show(plan: &Plan<'_>, standing: &Standing) -> io::Result<()> {
    let mut out = Shown::on(io::stdout());
    writeln!(
        out,
        "study {}: {} runs planned",
        plan.study.study_id,
        plan.len()
    )?;
    let begun: u64 = standing.counts.values().sum();
    for status in Status::ALL {
        if let Some(count) = standing.counts.get(status.name()) {
            writeln!(out, "  {count} {status}")?;
        }
    }
    if begun < plan.len() {
        writeln!(out, "  {} to run", plan.len() - begun)?;
    }
    for (count, what) in [
        (standing.evaluations_failed, "evaluations not well"),
        (standing.retried, "successes after a retry"),
        (standing.orphans, "recorded runs no longer planned"),
    ] {
        if count > 0 {
            writeln!(out, "  {count} {what}")?;
        }
    }
    if let Some(writer) = &standing.writer {
        let rate = standing
            .rate
            .map_or(String::new(), |rate| format!(", {rate:.1} runs/s"));
        writeln!(out, "being run by {writer}{rate}")?;
    }
    for (run, status, error) in &standing.failures {
        writeln!(out, "{run} {status}: {error}")?;
    }
    Ok(())
}
