//! What the suite is told: by people as options, by itself as parts.

use clap::Parser;
use fairtrial_exec::{Facility, Level};
use serde::{Deserialize, Serialize};

/// Runs hostile programs in a cage and says whether the engine held.
///
/// Needs root, for the cage. Exit codes: 0 nothing failed; 1 something failed; 2 it refused to start.
#[derive(Clone, Debug, Default, Parser, Serialize, Deserialize)]
#[command(name = "hostile")]
pub(crate) struct Options {
    /// Only these rows, as in `H5,H7`
    #[arg(long, value_delimiter = ',', value_name = "ROWS")]
    pub(crate) only: Vec<String>,
    /// Only this level: none, limits, confined or strict
    #[arg(long, value_parser = level, value_name = "LEVEL")]
    pub(crate) level: Option<String>,
    /// Only what takes little time
    #[arg(long)]
    pub(crate) fast: bool,
    /// One JSON object a line instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Who runs the engine inside the cage; 0 is root
    #[arg(long, default_value_t = 0)]
    pub(crate) uid: u32,
    /// What the engine does without, as in `cgroups,landlock`: the next means of each chain have to do
    #[arg(long, value_delimiter = ',', value_name = "FACILITIES", value_parser = facility)]
    pub(crate) without: Vec<String>,
    /// Also what is claimed at no level asked for: shows that the programs can do harm, judges nothing
    #[arg(long)]
    pub(crate) unclaimed: bool,
}

fn facility(text: &str) -> Result<String, String> {
    let names = Facility::ALL.map(Facility::name);
    match names.contains(&text) {
        true => Ok(text.into()),
        false => Err(format!("one of {}", names.join(", "))),
    }
}

impl Options {
    /// What the engine does without.
    pub(crate) fn withheld(&self) -> impl Iterator<Item = Facility> {
        let all = Facility::ALL.into_iter();
        all.filter(|facility| self.without.iter().any(|name| name == facility.name()))
    }
}

fn level(text: &str) -> Result<String, String> {
    let level = text.parse::<Level>().map_err(|error| error.to_string())?;
    Ok(level.to_string())
}

/// Which part this process is.
pub(crate) enum Part {
    /// The one that people start.
    Outside(Options),
    /// Goes into the cage's control groups and becomes `unshare`.
    Enter(String),
    /// The cage's first process.
    Init(String),
    /// Takes the table row by row.
    Run,
    /// A trial's first process.
    Cell(String),
    /// The engine of a trial, its host.
    Engine(String),
}

pub(crate) fn part() -> Part {
    let mut words = std::env::args().skip(1);
    let word = words.next().unwrap_or_default();
    let mut text = || words.next().unwrap_or_default();
    match word.as_str() {
        "@enter" => Part::Enter(text()),
        "@init" => Part::Init(text()),
        "@run" => Part::Run,
        "@cell" => Part::Cell(text()),
        "@engine" => Part::Engine(text()),
        _ => Part::Outside(Options::parse()),
    }
}
