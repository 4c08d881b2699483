//! `fairtrial export`: tables from a journal.

use std::fs;

use fairtrial_study::journal::Reader;
use fairtrial_study::{Compat, Export, ExportOptions, Plan};

use crate::args::ExportArgs;
use crate::commands::plan::invalid;
use crate::commands::run::recorded_study;
use crate::exit_code::ExitCode;
use crate::failure::Failure;

/// Writes the tables of the directory that `args` name.
pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let (study, input) = recorded_study(&args.directory)?;
    let plan = Plan::build(&study, None).map_err(invalid)?;
    let failed = |error: fairtrial_study::journal::JournalError| Failure::Usage(error.to_string());
    let reader = Reader::open(&args.directory).map_err(failed)?;
    let history = reader.history().map_err(failed)?;
    let target = args.to.as_ref().unwrap_or(&args.directory);
    fs::create_dir_all(target)
        .map_err(|error| Failure::usage("--to", format!("cannot make it: {error}")))?;
    let options = ExportOptions {
        output_dir: args.directory.clone(),
        mask_volatile: args.mask_volatile,
        checkpoints: study.compat == Compat::Dre
            || args.format.iter().any(|format| format == "dre"),
        provenance: Some(crate::provenance::captured()),
        input,
        ..ExportOptions::now()
    };
    let export = Export {
        plan: &plan,
        reader: &reader,
        history: &history,
        options: &options,
    };
    export
        .write(target)
        .map_err(Failure::attempting("cannot export the tables"))?;
    Ok(ExitCode::AllWell)
}
