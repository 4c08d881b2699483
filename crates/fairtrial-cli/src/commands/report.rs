//! `fairtrial report`: one HTML file from a study's journal, or from what an evaluation left.

use std::io::{self, Write};
use std::path::Path;

use fairtrial_study::{JournalError, JournalReader};
use fairtrial_study::{Plan, Report};

use crate::args::ReportArgs;
use crate::commands::evaluate::{is_evaluation, write_evaluation};
use crate::commands::plan::invalid;
use crate::commands::run::recorded_study;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::terminal::Shown;

/// Writes the report of the directory that `args` name.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let place = match &args.out {
        Some(place) => place.clone(),
        None => args.directory.join("report.html"),
    };
    match is_evaluation(&args.directory)? {
        true => write_evaluation(&args.directory, &place)?,
        false => of_study(&args.directory, &place)?,
    }
    let shown = writeln!(Shown::on(io::stdout()), "{}", place.display());
    shown.unwrap_or_default(); // whoever read it is gone; the report is there
    Ok(ExitCode::AllWell)
}

fn of_study(directory: &Path, place: &Path) -> Result<(), Failure> {
    let (study, _) = recorded_study(directory)?;
    let plan = Plan::build(&study, None).map_err(invalid)?;
    let failed = |error: JournalError| Failure::Usage(error.to_string());
    let reader = JournalReader::open(directory).map_err(failed)?;
    reader.hold_still().map_err(failed)?;
    let history = reader.history().map_err(failed)?;
    let report = Report {
        plan: &plan,
        reader: &reader,
        history: &history,
        directory,
    };
    report
        .write(place)
        .map_err(Failure::attempting("cannot write the report"))
}
