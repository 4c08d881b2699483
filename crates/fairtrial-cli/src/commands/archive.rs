//! `fairtrial verify` and `fairtrial bundle`: a study's directory as evidence.

use std::io::{self, Write};

use fairtrial_study::Plan;
use fairtrial_study::{JournalError, JournalReader};

use crate::args::{BundleArgs, VerifyArgs};
use crate::commands::plan::invalid;
use crate::commands::run::recorded_study;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::terminal::Shown;

/// Says what of a directory is not as it was left.
pub(crate) fn verify(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let (study, input) = recorded_study(&args.directory)?;
    let plan = Plan::build(&study, None).map_err(invalid)?;
    let reader = JournalReader::open(&args.directory).map_err(refused)?;
    reader.hold_still().map_err(refused)?;
    let scratch = scratch()?;
    let found = fairtrial_study::verify(&plan, &reader, &args.directory, scratch.path(), input)
        .map_err(Failure::attempting("cannot verify it"))?;
    let mut out = Shown::on(io::stdout());
    let lines = match found.is_empty() {
        true => vec!["all as it was left".to_owned()],
        false => found.clone(),
    };
    for line in lines {
        writeln!(out, "{line}").unwrap_or_default(); // whoever read it is gone
    }
    Ok(match found.is_empty() {
        true => ExitCode::AllWell,
        false => ExitCode::CallFailed,
    })
}

/// Puts a directory into one file.
pub(crate) fn bundle(args: &BundleArgs) -> Result<ExitCode, Failure> {
    let reader = JournalReader::open(&args.directory).map_err(refused)?;
    let target = args.out.clone().unwrap_or_else(|| {
        // `DIR/` and `.` are directories, too.
        let directory = std::path::absolute(&args.directory);
        let directory = directory.unwrap_or_else(|_| args.directory.clone());
        let mut name = directory.file_name().unwrap_or_default().to_owned();
        name.push(".tar.gz");
        match args.directory.file_name() {
            Some(_) => args.directory.with_file_name(name),
            None => directory.with_file_name(name),
        }
    });
    let scratch = scratch()?;
    fairtrial_study::bundle(&args.directory, &reader, &target, scratch.path()).map_err(
        Failure::attempting(format!("cannot write `{}`", target.display())),
    )?;
    writeln!(Shown::on(io::stdout()), "{}", target.display()).unwrap_or_default();
    Ok(ExitCode::AllWell)
}

fn refused(error: JournalError) -> Failure {
    Failure::Usage(error.to_string())
}

/// An empty directory that goes with its handle.
fn scratch() -> Result<tempfile::TempDir, Failure> {
    tempfile::tempdir().map_err(Failure::attempting("cannot make a temporary directory"))
}
