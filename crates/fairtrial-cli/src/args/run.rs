//! The flags of the commands that run studies and work on their directories.

use std::path::PathBuf;

use clap::Args;
use fairtrial_candidates::measure::Metric;
use fairtrial_study::Status;
use fairtrial_study::{Compat, Format};

/// Run a study: every planned run that its directory does not hold yet
///
/// Exit codes: 0 all runs are well; 3 finished, but some are not; 130 interrupted: what ran was stopped and recorded,
/// and `fairtrial resume DIR` goes on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairtrial run study.yaml -j 4
  fairtrial run study.yaml --resume
  fairtrial run study.yaml --out results/first --fresh")]
pub(crate) struct RunArgs {
    /// Study file: YAML or JSON
    #[arg(value_name = "STUDY")]
    pub(crate) study: PathBuf,
    /// Where results go [default: the file's `output_dir`, else artifacts/<study_id>]
    #[arg(long, alias = "output", value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with what the directory holds
    #[arg(long, conflicts_with = "fresh")]
    pub(crate) resume: bool,
    /// Move what the directory holds aside, and begin anew
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Whose rules hold: native or dre-0.2 [default: as the file says]
    #[arg(long, value_name = "MODE", value_parser = str::parse::<Compat>)]
    pub(crate) compat: Option<Compat>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
    #[command(flatten)]
    pub(crate) again: AgainArgs,
}

/// Go on with the study that a directory holds
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The study's directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) how: HowArgs,
    #[command(flatten)]
    pub(crate) again: AgainArgs,
}

/// Run failed runs again, and nothing else
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// The study's directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Which: failed, timeout, memory, crashed, or all
    #[arg(
        long,
        value_name = "STATUS,…",
        default_value = "all",
        value_delimiter = ','
    )]
    pub(crate) status: Vec<String>,
    /// Only this run; may be given again
    #[arg(long = "run", value_name = "ID")]
    pub(crate) runs: Vec<String>,
    /// Only runs of this condition; may be given again
    #[arg(long = "condition", value_name = "ID")]
    pub(crate) conditions: Vec<String>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// Judge again what is on record: a study's outputs, or an evaluation's runs
///
/// Of a study, outputs are evaluated again; agents are never run. Of an evaluation, looks, races, verdicts and ranks are made
/// again from its runs, on other terms if wanted: nothing is started, and nothing written.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairtrial rescore artifacts/first --all
  fairtrial rescore fairtrial-out/EVAL --min-effect 1% --json")]
pub(crate) struct RescoreArgs {
    /// The directory of a study, or of an evaluation
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Of a study: only outputs for this problem
    #[arg(long, value_name = "ID")]
    pub(crate) problem: Option<String>,
    /// Of a study: all outputs, not only those whose evaluator changed or failed
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) terms: TermsArgs,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// What an evaluation is judged by.
#[derive(Debug, Args)]
#[command(next_help_heading = "Judging an evaluation")]
pub(crate) struct TermsArgs {
    /// The chance of a wrong verdict, as 0.05 or 5% [default: as it was]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) alpha: Option<f64>,
    /// The least difference that counts, as 0.03 or 3% [default: as it was]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) min_effect: Option<f64>,
    /// By what sides are compared: wall, cpu or instructions [default: as it was]
    #[arg(long, value_name = "METRIC", value_parser = metric)]
    pub(crate) metric: Option<Metric>,
    /// Print the report as one JSON object, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// Check that a study's directory is as it was left
///
/// Exit codes: 0 it is; 3 it is not: each difference is a line on standard output.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The study's directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Put a study's directory into one file, the same bytes each time
#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    /// The study's directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The file [default: DIR.tar.gz]
    #[arg(long, alias = "output", short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// How runs are run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct HowArgs {
    /// Runs at a time [default: the study's `parallelism`, else the usable CPUs; by agents, their free slots]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) jobs: Option<u64>,
    /// Who runs them: `local`, or agents that lease them from a server, as in `redis://127.0.0.1:6379`; `@FILE` or `@-` reads
    /// that from a file or standard input's first line
    #[arg(long, value_name = "URL")]
    pub(crate) backend: Option<String>,
    /// Write `study.sqlite` at the end, too
    #[arg(long)]
    pub(crate) sqlite: bool,
    /// Show no progress
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Runs and evaluations that may fail without exit code 3: a number or a percentage
    #[arg(long, value_name = "N|P%", value_parser = allowance)]
    pub(crate) allow_failures: Option<Allowance>,
}

/// What is done with runs that are there already.
#[derive(Debug, Args)]
#[command(next_help_heading = "Runs that are there already")]
pub(crate) struct AgainArgs {
    /// Run those again that ended so: failed, timeout, memory, crashed, or all
    #[arg(long, value_name = "STATUS,…", value_delimiter = ',')]
    pub(crate) retry: Vec<String>,
    /// `changed`: run successes again whose seed, agent, terms or problem changed
    #[arg(long, value_name = "changed", value_parser = ["changed"])]
    pub(crate) rerun: Option<String>,
    /// Keep successes although something changed: changed (all), agent:ID, problem:ID, terms, seed
    #[arg(long, value_name = "WHAT")]
    pub(crate) accept: Vec<String>,
}

/// Show how a study stands, or a cluster
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairtrial status results/first
  fairtrial status --cluster redis://127.0.0.1:6379 --json")]
pub(crate) struct StatusArgs {
    /// The study's directory
    #[arg(value_name = "DIR", required_unless_present = "cluster")]
    pub(crate) directory: Option<PathBuf>,
    /// Agents, queues and the server behind this URL, or behind the one in `@FILE` or `@-`; on a terminal it is kept up to date
    /// until Ctrl-C
    #[arg(long, value_name = "URL", conflicts_with = "directory")]
    pub(crate) cluster: Option<String>,
    /// Show the cluster once, on a terminal too
    #[arg(long, requires = "cluster")]
    pub(crate) once: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write a study's tables from its journal
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairtrial export results/first
  fairtrial export results/first --format sqlite,json --to elsewhere
  fairtrial export results/first --mask-volatile --to masked")]
pub(crate) struct ExportArgs {
    /// The study's directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Where the tables go [default: DIR]
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Formats: csv (the tables), json (an object per run, as lines), sqlite, parquet, dre (the tables, and checkpoints that
    /// DRE resumes from)
    #[arg(
        long,
        value_name = "F,…",
        value_delimiter = ',',
        default_value = "csv",
        value_parser = str::parse::<Format>
    )]
    pub(crate) format: Vec<Format>,
    /// Blank times, durations and places, so that equal studies give equal bytes
    #[arg(long)]
    pub(crate) mask_volatile: bool,
}

/// Write the report of a study or an evaluation: one HTML file that needs nothing else
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directory of a study, or of an evaluation
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Where the report goes [default: DIR/report.html]
    #[arg(long, alias = "output", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// How much may fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Allowance {
    Count(u64),
    Percent(f64),
}

impl Allowance {
    /// Whether so many of all runs are within it.
    pub(crate) fn covers(self, unwell: u64, planned: u64) -> bool {
        match self {
            Self::Count(most) => unwell <= most,
            Self::Percent(most) => unwell as f64 <= planned as f64 * most / 100.0,
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let number = number
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite());
    let number = number.ok_or("expected a share such as 0.03, or a percentage such as 3%")?;
    Ok(number / unit)
}

fn metric(text: &str) -> Result<Metric, String> {
    let all = [Metric::Wall, Metric::Cpu, Metric::Instructions];
    let found = all.into_iter().find(|metric| metric.to_string() == text);
    found.ok_or_else(|| "expected wall, cpu or instructions".to_owned())
}

fn allowance(text: &str) -> Result<Allowance, String> {
    let wrong = || "expected a number such as 3, or a percentage such as 5%".to_owned();
    match text.strip_suffix('%') {
        Some(number) => match number.parse() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Allowance::Percent(percent)),
            _ => Err(wrong()),
        },
        None => text.parse().map(Allowance::Count).map_err(|_| wrong()),
    }
}

/// The statuses that words name.
pub(crate) fn statuses(words: &[String]) -> Result<Vec<Status>, String> {
    let mut found = Vec::new();
    for word in words {
        if word == "all" {
            found.extend(Status::ALL.into_iter().filter(|status| status.is_failure()));
            continue;
        }
        match word.parse::<Status>() {
            Ok(status) if status.is_failure() => found.push(status),
            _ => {
                return Err(format!(
                    "`{word}` is none of failed, timeout, memory, crashed and all"
                ));
            }
        }
    }
    Ok(found)
}
