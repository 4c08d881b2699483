//! `fairtrial design`: a design table by itself.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use fairtrial_study::{CsvWriter, DesignTable, TableRequest, Value, canonical_json};

use crate::args::DesignArgs;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, reason};
use crate::terminal::Shown;

/// Makes the table that `args` describe.
pub(crate) fn run(args: &DesignArgs) -> Result<ExitCode, Failure> {
    let request = TableRequest {
        n_samples: args.n_samples,
        seed: args.seed.clone(),
        center_points: args.center_points,
        replicates: args.replicates,
        block_randomization_key: args.block_randomization_key.clone(),
        backend: args.backend.clone(),
        randomize: !args.no_randomize,
        scramble: args.scramble,
        compat: args.compat,
        ..TableRequest::new(args.kind, factors(&args.factors)?)
    };
    let table = DesignTable::build(&request).map_err(|what| Failure::usage("design", what))?;
    let written = match &args.out {
        Some(path) => to_file(&table, args, path).map_err(|error| {
            let (place, reason) = (path.display(), reason(&error));
            Failure::usage("--out", format!("cannot write `{place}`: {reason}"))
        })?,
        None => write(
            &table,
            args,
            args.json,
            BufWriter::new(Shown::on(io::stdout())),
        ),
    };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Failure::attempting("cannot show the table")(error));
        }
        _ => {}
    }
    for column in &table.summary.imbalanced {
        let mut err = Shown::on(io::stderr());
        let warning = format!(
            "warning: some values of `{column}` occur more than twice as often as others\n"
        );
        // Nobody is left to warn if standard error itself is gone.
        err.write_all(warning.as_bytes()).unwrap_or_default();
    }
    Ok(ExitCode::AllWell)
}

/// JSON, or the name of a file that holds it.
fn factors(text: &str) -> Result<Value, Failure> {
    if text.trim_start().starts_with('{') {
        return TableRequest::factors_from_json("--factors", text).map_err(Failure::Usage);
    }
    let held = std::fs::read_to_string(text).map_err(|error| {
        let reason = reason(&error);
        Failure::usage(
            "--factors",
            format!("cannot read `{text}`: {reason} (give JSON, or a file of it)"),
        )
    })?;
    TableRequest::factors_from_json(text, &held).map_err(Failure::Usage)
}

fn to_file(table: &DesignTable, args: &DesignArgs, path: &Path) -> io::Result<io::Result<()>> {
    let json = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let file = File::create(path)?;
    write(table, args, json, BufWriter::new(file))?;
    if args.json {
        return Ok(write(
            table,
            args,
            true,
            BufWriter::new(Shown::on(io::stdout())),
        ));
    }
    Ok(Ok(()))
}

fn write(
    table: &DesignTable,
    args: &DesignArgs,
    json: bool,
    mut out: impl Write,
) -> io::Result<()> {
    if json {
        writeln!(out, "{}", canonical_json(&table.to_value()))?;
        return out.flush();
    }
    let mut csv = CsvWriter::new(out, args.compat, table.columns())?;
    for row in table.rows() {
        csv.row(row)?;
    }
    csv.flush()
}
