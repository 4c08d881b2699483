//! The flags of the commands on studies.

use std::path::PathBuf;

use clap::Args;
use fairtrial_study::{Compat, DesignKind};

/// Validate a study file and show what it would run; starts nothing
///
/// Every fault of the file is printed on a line of its own, with its place and a hint.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairtrial plan study.yaml
  fairtrial plan study.yaml --json | jq '.counts'
  fairtrial plan study.yaml --conditions conditions.csv")]
pub(crate) struct PlanArgs {
    /// Study file, `.yaml` or `.json`
    #[arg(value_name = "STUDY")]
    pub(crate) study: PathBuf,
    /// Print the whole plan as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Whose rules hold: native or dre-0.2 [default: the file's]
    #[arg(long, value_name = "MODE", value_parser = str::parse::<Compat>)]
    pub(crate) compat: Option<Compat>,
    /// Where results are or will be: what it holds is not run again [default: the file's `output_dir`]
    #[arg(long, alias = "output", value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write the conditions as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) conditions: Option<PathBuf>,
    /// Take warnings for errors
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Make a design table without a study: full, lhs, frac2 or sobol
///
/// Factors are a JSON object of name to levels (full), to [low, high] (lhs, sobol) or to anything (frac2, whose table is
/// coded -1.0 and 1.0), or the name of a file that holds one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairtrial design full --factors '{\"a\": [0, 1], \"b\": [10, 20]}' --no-randomize
  fairtrial design lhs --factors '{\"x\": [0, 1], \"y\": [10, 20]}' --n-samples 8 --seed 7 --out design.csv")]
pub(crate) struct DesignArgs {
    /// Kind of design
    #[arg(value_name = "KIND", value_parser = kind)]
    pub(crate) kind: DesignKind,
    /// Factors, as JSON or a file of JSON
    #[arg(long, value_name = "JSON")]
    pub(crate) factors: String,
    /// File for the table: CSV, or JSON with its summary if it ends in `.json` [default: CSV on standard output]
    #[arg(long, alias = "output", short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Rows of lhs and sobol
    #[arg(long, value_name = "N", value_parser = super::count)]
    pub(crate) n_samples: Option<u64>,
    /// Where randomness begins
    #[arg(long, value_name = "INTEGER", default_value = "0", value_parser = integer, allow_hyphen_values = true)]
    pub(crate) seed: num_bigint::BigInt,
    /// Rows to append at the centre
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) center_points: u64,
    /// Repeats of the whole table
    #[arg(long, value_name = "N", default_value = "1", value_parser = super::count)]
    pub(crate) replicates: u64,
    /// Column within whose values rows are shuffled
    #[arg(long, value_name = "COLUMN")]
    pub(crate) block_randomization_key: Option<String>,
    /// Implementation whose numbers are wanted: stdlib
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Keep the rows in order
    #[arg(long)]
    pub(crate) no_randomize: bool,
    /// Scramble Sobol points
    #[arg(long)]
    pub(crate) scramble: bool,
    /// Whose rules hold: native or dre-0.2
    #[arg(long, value_name = "MODE", default_value = "native", value_parser = str::parse::<Compat>)]
    pub(crate) compat: Compat,
    /// Print rows and summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn kind(text: &str) -> Result<DesignKind, String> {
    DesignKind::from_name(&text.trim().to_lowercase())
        .ok_or_else(|| format!("unknown kind `{text}`; the kinds are full, lhs, frac2 and sobol"))
}

fn integer(text: &str) -> Result<num_bigint::BigInt, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not an integer"))
}
