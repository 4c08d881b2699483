//! `fairtrial export`: tables from a journal.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use fairtrial_study::{
    Compat, Export, ExportError, ExportOptions, Format, JournalError, JournalReader, Plan,
    journal_damage, named_output_dir, note_files,
};

use crate::args::ExportArgs;
use crate::commands::plan::invalid;
use crate::commands::run::recorded_study;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::terminal::Shown;

/// Writes the tables of the directory that `args` name.
pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let mut formats: BTreeSet<Format> = args.format.iter().copied().collect();
    if let Some(format) = formats.iter().find(|format| !format.is_built_in()) {
        let problem =
            format!("{format} is not built in (build fairtrial with `--features {format}`)");
        return Err(Failure::usage("--format", problem));
    }
    if let Err(JournalError::Damaged { problem, .. }) = JournalReader::open(&args.directory) {
        return Ok(unreadable(&args.directory, &problem));
    }
    let (study, input) = recorded_study(&args.directory)?;
    if study.compat == Compat::Dre && formats.contains(&Format::Csv) {
        formats.insert(Format::Dre);
    }
    let plan = Plan::build(&study, None).map_err(invalid)?;
    let failed = |error: fairtrial_study::JournalError| Failure::Usage(error.to_string());
    let reader = JournalReader::open(&args.directory).map_err(failed)?;
    reader.hold_still().map_err(failed)?;
    let target = args.to.as_ref().unwrap_or(&args.directory);
    let damage = match journal_damage(&reader, &args.directory) {
        Err(JournalError::Damaged { problem, .. }) => Some(problem),
        other => other.map_err(failed)?,
    };
    if let Some(problem) = &damage {
        say_damaged(&args.directory, problem);
        if is_one(target, &args.directory) {
            say(
                "nothing was exported: the tables that are there may be what is left (`--to DIR` exports what can be read)",
            );
            return Ok(ExitCode::CallFailed);
        }
    }
    let history = match reader.history() {
        Err(JournalError::Damaged { problem, .. }) => {
            return Ok(unreadable(&args.directory, &problem));
        }
        other => other.map_err(failed)?,
    };
    fs::create_dir_all(target)
        .map_err(|error| Failure::usage("--to", format!("cannot make it: {error}")))?;
    let options = ExportOptions {
        output_dir: named_output_dir(&args.directory),
        formats,
        mask_volatile: args.mask_volatile,
        provenance: Some(crate::provenance::captured()),
        input: input.into(),
        ..ExportOptions::now()
    };
    let export = Export {
        plan: &plan,
        reader: &reader,
        history: &history,
        options: &options,
    };
    match export.write(target) {
        Err(ExportError::Journal(JournalError::Damaged { problem, .. })) => {
            return Ok(unreadable(&args.directory, &problem));
        }
        other => other.map_err(Failure::attempting("cannot export the tables"))?,
    }
    if damage.is_some() {
        return Ok(ExitCode::CallFailed);
    }
    if !args.mask_volatile && is_one(target, &args.directory) {
        let failed = Failure::attempting("cannot note the hashes of what was exported");
        note_files(&args.directory, &options.formats).map_err(failed)?;
    }
    Ok(ExitCode::AllWell)
}

fn unreadable(directory: &Path, problem: &str) -> ExitCode {
    say_damaged(directory, problem);
    say("the tables were not exported");
    ExitCode::CallFailed
}

fn say_damaged(directory: &Path, problem: &str) {
    let path = directory.join("journal.sqlite");
    say(&format!("{}: damaged: {problem}", path.display()));
}

fn say(line: &str) {
    writeln!(Shown::on(io::stderr()), "{line}").unwrap_or_default(); // nobody is there to be told
}

/// Whether two names are of one directory.
fn is_one(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
