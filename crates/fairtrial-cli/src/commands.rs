//! Which command does what: one file below for each.

mod batch;
mod doctor;
mod exec;

use crate::args::{Cli, Command};
use crate::exit_code::ExitCode;
use crate::failure::Failure;

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Exec(args) => exec::run(&args),
        Command::Batch(args) => batch::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    }
}
