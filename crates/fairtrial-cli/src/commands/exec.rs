//! `fairtrial exec`: one call, its value or its report.

mod call;

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use fairtrial_exec::{Backend, Call, Captured, LocalBackend, Outcome, Verdict, Work};
use serde_json::Value as Json;

use crate::args::ExecArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Shown;
use crate::{engine, record, show};

/// Longest standard input passed to a command.
const MAX_STDIN: u64 = 64 << 20;

/// Runs the call that `args` describe.
pub(crate) fn run(args: &ExecArgs) -> Result<ExitCode, Failure> {
    let call = call::from_args(args, &current_dir()?)?;
    let json = args.json;
    let config = engine::config(None)?;
    engine::run(async {
        let mut interrupt = Interrupt::listen()?;
        let call = interrupt.or(with_stdin(call)).await??;
        let backend = Arc::new(LocalBackend::new(config));
        let executed = interrupt.or(backend.execute(call.clone())).await;
        match executed {
            Ok(_) => engine::finish(&*backend).await,
            Err(_) => engine::stop(&backend).await,
        }
        let outcome = executed??;
        let shown = tokio::task::spawn_blocking(move || show(&call, &outcome, json));
        interrupt.or(shown).await?.expect("showing does not panic")
    })
}

/// Gives a command our standard input, unless a person sits at it.
async fn with_stdin(mut call: Call) -> Result<Call, Failure> {
    if let Work::Command(work) = &mut call.work
        && !io::stdin().is_terminal()
    {
        let read = tokio::task::spawn_blocking(|| {
            let mut bytes = Vec::new();
            let mut bounded = io::stdin().take(MAX_STDIN + 1);
            bounded.read_to_end(&mut bytes).map(|_| bytes)
        });
        work.stdin = read
            .await
            .expect("reading does not panic")
            .map_err(Failure::attempting("cannot read standard input"))?;
        if work.stdin.len() as u64 > MAX_STDIN {
            return Err(Failure::usage(
                "standard input",
                "more than 64 MiB (let the command open a file instead)",
            ));
        }
    }
    Ok(call)
}

/// Shows the outcome; the exit code is its verdict's.
fn show(call: &Call, outcome: &Outcome, json: bool) -> Result<ExitCode, Failure> {
    let shown = if json {
        record::write_outcome(outcome, &Json::Null, &mut stdout())
    } else {
        show_for_people(call, outcome)
    };
    match shown {
        Err(error) if !record::is_broken_pipe(&error) => {
            Err(Failure::attempting("cannot show the outcome")(error))
        }
        _ if outcome.verdict == Verdict::Ok => Ok(ExitCode::AllWell),
        _ => Ok(ExitCode::CallFailed),
    }
}

fn show_for_people(call: &Call, outcome: &Outcome) -> Result<(), record::RecordError> {
    let mut err = io::BufWriter::new(Shown::on(io::stderr()));
    if matches!(call.work, Work::Command(_)) {
        pass_through(&outcome.stdout, &mut stdout())?;
        if outcome.stdout.dropped > 0 {
            writeln!(
                err,
                "[{} bytes of stdout dropped; see --capture]",
                outcome.stdout.dropped
            )?;
        }
    } else {
        show::write_captured(&outcome.stdout, &mut err)?;
        if show::ends_mid_line(&outcome.stdout) {
            writeln!(err)?;
        }
    }
    show::write_captured(&outcome.stderr, &mut err)?;
    let report = show::report(call, outcome);
    if !report.is_empty() && show::ends_mid_line(&outcome.stderr) {
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

/// A command's bytes and nothing else, not even a note on what is missing.
fn pass_through(stream: &Captured, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&stream.head)?;
    out.write_all(&stream.tail)?;
    out.flush()
}

fn stdout() -> io::BufWriter<Shown<io::Stdout>> {
    io::BufWriter::with_capacity(1 << 16, Shown::on(io::stdout()))
}

fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(Failure::attempting("cannot tell the current directory"))
}
