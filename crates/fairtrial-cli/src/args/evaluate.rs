//! The flags of `fairtrial evaluate`.

use std::path::PathBuf;

use clap::Args;

use super::workers;

/// Compare rival changes of a repository: which are right, which is fastest
///
/// Tests run on the base and on each candidate, several at a time; then the correct ones are measured, one process at a
/// time, against the base and each other. The repository itself is never written to. Standard output holds the table, or
/// with --json one JSON report.
///
/// Exit codes: 0 a candidate is correct, faster or not; 1 the engine failed, or the base's own tests cannot be used;
/// 2 bad usage or file; 3 no candidate is correct; 130 interrupted: `--resume` goes on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairtrial evaluate EVAL.yaml
  fairtrial evaluate EVAL.yaml --check
  fairtrial evaluate EVAL.yaml -j 4 --out results/monday --json > report.json
  fairtrial evaluate EVAL.yaml --resume

A file:
  version: 1
  candidates: {patches: patches/}
  tests:
    - {command: [python3, -m, pytest, -q], results: pytest, timeout: 5m}
  bench:
    - {command: [python3, bench/topo.py, \"{loops}\"], loops: auto}")]
pub(crate) struct EvaluateArgs {
    /// Evaluation file: YAML or JSON
    #[arg(value_name = "EVAL.yaml", required_unless_present = "schema")]
    pub(crate) file: Option<PathBuf>,
    /// Print the report as one JSON object, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Check the file, apply and compare candidates, show what would be run; start none of them, leave no file
    #[arg(long)]
    pub(crate) check: bool,
    /// Tests that run at a time [default: the file's `parallel`, else the processors there are]
    #[arg(long, short, value_name = "N", value_parser = workers, allow_hyphen_values = true)]
    pub(crate) jobs: Option<usize>,
    /// Go on with the evaluation that the output directory holds
    #[arg(long)]
    pub(crate) resume: bool,
    /// Begin anew where the output directory holds an evaluation; what that left is removed
    #[arg(long, conflicts_with = "resume")]
    pub(crate) fresh: bool,
    /// Where results go [default: the file's `output`, else fairtrial-out/<name of the file>]
    #[arg(long = "out", alias = "output", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Show no progress
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Print the JSON schema of the report, and do nothing else
    #[arg(long, exclusive = true)]
    pub(crate) schema: bool,
}
