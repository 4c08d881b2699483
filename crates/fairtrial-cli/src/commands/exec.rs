//! `fairtrial exec`: one call, its value or its report.

mod call;
mod streams;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use fairtrial_exec::{Call, LocalBackend, Outcome, Streams, Verdict, Work};
use serde_json::Value as Json;

use crate::advice::{self, Place};
use crate::args::ExecArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Shown;
use crate::{engine, record, show};
use streams::{MidLine, Passage};

/// Runs the call that `args` describe.
pub(crate) fn run(args: &ExecArgs) -> Result<ExitCode, Failure> {
    // Where the directory is gone, absolute paths still lead somewhere.
    let here = std::env::current_dir().unwrap_or_default();
    let mut call = call::from_args(args, &here)?;
    let json = args.json;
    let config = engine::config(None)?;
    engine::run(async {
        let mut interrupt = Interrupt::listen()?;
        let (streams, passage) = match call.work {
            Work::Command(_) => streams::open(json)?,
            _ => (Streams::default(), Passage::default()),
        };
        let backend = Arc::new(LocalBackend::new(config));
        engine::spare_a_loop(&backend)?;
        backend.fill_limits(&mut call)?; // so that a report can name the limits that nobody gave
        let execution = backend.submit_with(call.clone(), streams)?;
        let executed = interrupt.or(execution).await;
        match executed {
            Ok(_) => engine::finish(&*backend).await,
            Err(_) => engine::stop(&backend).await,
        }
        let outcome = executed??;
        let mid_line = interrupt.or(passage.end()).await??;
        let shown =
            tokio::task::spawn_blocking(move || show(&call, outcome, json, mid_line, &here));
        interrupt.or(shown).await?.expect("showing does not panic")
    })
}

/// Shows the outcome, of a command what was not passed through; the exit code is its verdict's.
fn show(
    call: &Call,
    mut outcome: Outcome,
    json: bool,
    mid_line: MidLine,
    here: &Path,
) -> Result<ExitCode, Failure> {
    let place = Place::of_shell(here);
    let shown = if json {
        advice::add_to(&mut outcome, call, place);
        record::write_outcome(&outcome, &Json::Null, &mut stdout())
    } else {
        let hint = advice::hint(call, &outcome, place);
        show_for_people(call, &outcome, mid_line, hint)
    };
    match shown {
        Err(error) if !record::is_broken_pipe(&error) => {
            Err(Failure::attempting("cannot show the outcome")(error))
        }
        _ if outcome.verdict == Verdict::Ok => Ok(ExitCode::AllWell),
        _ => Ok(ExitCode::CallFailed),
    }
}

fn show_for_people(
    call: &Call,
    outcome: &Outcome,
    mut mid_line: MidLine,
    hint: Option<String>,
) -> Result<(), record::RecordError> {
    let mut err = io::BufWriter::new(Shown::on(io::stderr()));
    if !matches!(call.work, Work::Command(_)) {
        show::write_captured(&outcome.stdout, &mut err)?;
        if show::ends_mid_line(&outcome.stdout) {
            writeln!(err)?;
        }
        show::write_captured(&outcome.stderr, &mut err)?;
        mid_line = show::ends_mid_line(&outcome.stderr);
    }
    let mut report = show::report(call, outcome);
    if let Some(hint) = hint {
        report += &format!("hint: {hint}\n");
    }
    if !report.is_empty() && mid_line {
        writeln!(err)?;
    }
    err.write_all(report.as_bytes())?;
    err.flush()?;
    if let Some(value) = &outcome.value {
        let mut out = stdout();
        record::write_value(value, &mut out)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

fn stdout() -> io::BufWriter<Shown<io::Stdout>> {
    io::BufWriter::with_capacity(1 << 16, Shown::on(io::stdout()))
}
