//! Which command does what: one file below for each.

mod agent;
mod archive;
mod batch;
mod design;
mod doctor;
mod evaluate;
mod exec;
mod export;
mod plan;
mod report;
mod run;
mod status;
mod status_cluster;

use crate::args::{Cli, Command};
use crate::exit_code::ExitCode;
use crate::failure::Failure;

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Exec(args) => exec::run(&args),
        Command::Batch(args) => batch::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Resume(args) => run::resume(&args),
        Command::Retry(args) => run::retry(&args),
        Command::Status(args) => status::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Rescore(args) => run::rescore(&args),
        Command::Verify(args) => archive::verify(&args),
        Command::Bundle(args) => archive::bundle(&args),
        Command::Report(args) => report::run(&args),
        Command::Design(args) => design::run(&args),
        Command::Evaluate(args) => evaluate::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    }
}
