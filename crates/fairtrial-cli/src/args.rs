//! The flags, in small groups, and usage errors on one line. What the flags mean is for the commands to say.

use std::path::PathBuf;
use std::time::Duration;

mod cluster;
mod evaluate;
mod run;
mod study;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};
use fairtrial_document::fault::nearest;
use fairtrial_exec::Sandbox;

use crate::failure::Failure;

pub(crate) use cluster::AgentArgs;
pub(crate) use evaluate::EvaluateArgs;
pub(crate) use run::{
    AgainArgs, BundleArgs, ExportArgs, HowArgs, ReportArgs, RescoreArgs, ResumeArgs, RetryArgs,
    RunArgs, StatusArgs, TermsArgs, VerifyArgs, statuses,
};
pub(crate) use study::{DesignArgs, PlanArgs};

/// Runs candidate programs nobody vouches for, each in its own process, and says what they did
///
/// Exit codes: 0 all well; 1 the engine failed; 2 bad usage or invalid file; 3 finished, but a call failed;
/// 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "fairtrial", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Exec(Box<ExecArgs>),
    Batch(BatchArgs),
    Plan(PlanArgs),
    Run(Box<RunArgs>),
    Resume(ResumeArgs),
    Retry(RetryArgs),
    Status(StatusArgs),
    Export(ExportArgs),
    Rescore(RescoreArgs),
    Verify(VerifyArgs),
    Bundle(BundleArgs),
    Report(ReportArgs),
    Design(Box<DesignArgs>),
    Evaluate(EvaluateArgs),
    Agent(Box<AgentArgs>),
    Doctor(DoctorArgs),
}

/// Run one call: a function of a Python file, or a command
///
/// For a function, standard output holds its value as one line of JSON and nothing else; what it printed, and the
/// report if it failed, go to standard error. A command's streams are passed through as they come; what is typed at a
/// terminal reaches it unless this runs in the background.
#[derive(Debug, Args)]
#[command(
    override_usage = "fairtrial exec FILE.py --function F [OPTIONS]\n       fairtrial exec [OPTIONS] -- ARGV...",
    after_help = "\
Examples:
  fairtrial exec solve.py --function solve --args '[3]' --timeout 5s
  fairtrial exec solve.py --function solve --kwargs '{\"n\": 3}' --memory 512M --json
  fairtrial exec --cwd . --timeout 1m -- make test"
)]
pub(crate) struct ExecArgs {
    /// Python file that holds the function
    #[arg(value_name = "FILE.py")]
    pub(crate) file: Option<PathBuf>,
    /// Program and arguments, after `--`
    #[arg(last = true, value_name = "ARGV")]
    pub(crate) argv: Vec<String>,
    /// Print the whole outcome as one line of JSON, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) python: PythonArgs,
    #[command(flatten)]
    pub(crate) terms: TermArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// How a function is called.
#[derive(Debug, Args)]
#[command(next_help_heading = "Function")]
pub(crate) struct PythonArgs {
    /// Function to call
    #[arg(long, short, value_name = "NAME")]
    pub(crate) function: Option<String>,
    /// Its arguments, a JSON array; `@FILE` reads it from a file, `@-` from standard input
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,
    /// Its keyword arguments, a JSON object; `@FILE` and `@-` as above
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) kwargs: Option<String>,
    /// Interpreter: a path, or a name searched in PATH [default: python3]
    #[arg(long = "interpreter", alias = "python", value_name = "PATH")]
    pub(crate) python: Option<String>,
    /// Directory to import from before all others; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) python_path: Vec<PathBuf>,
    /// Trusted module to import before the call; may be repeated
    #[arg(long, value_name = "MODULE")]
    pub(crate) preload: Vec<String>,
    /// Module among those of `--preload` whose shared memory stays shared by all calls; may be repeated
    #[arg(long, value_name = "MODULE")]
    pub(crate) preload_shared: Vec<String>,
}

/// On which terms a call runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Terms")]
pub(crate) struct TermArgs {
    /// Longest run, as in `5s`, `250ms`, `2m`
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
    /// Most processor time, whatever else the machine does; wall time only guards against sleepers
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true, conflicts_with = "timeout")]
    pub(crate) cpu_timeout: Option<Duration>,
    /// Isolation: none, limits, confined or strict, and options, as in `strict,network=loopback,read=/data`
    ///
    /// Options, of which read, write, devices and cpus may be repeated: on_missing=fail|degrade,
    /// network=none|loopback|host, read=PATH, write=PATH, scratch_bytes=SIZE|none, scratch_inodes=N|none,
    /// address_space=SIZE, devices=nvidia, cpus=N or cpus=N-N. FAIRTRIAL_SANDBOX replaces the default.
    #[arg(long, value_name = "LEVEL[,KEY=VALUE]", value_parser = str::parse::<Sandbox>)]
    pub(crate) sandbox: Option<Sandbox>,
    /// Environment variable; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Working directory [default: a scratch directory of the call's own]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Kept bytes of each output stream [default: 1M; a command's are kept for --json only]
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub(crate) capture: Option<u64>,
}

/// What a call may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory, as in `512M`, or `none` [default above level none: 80 % of what there is]
    #[arg(long, value_name = "SIZE", value_parser = cap(size), allow_hyphen_values = true)]
    pub(crate) memory: Option<Cap<u64>>,
    /// Processor time, as in `2s`, or `none`
    #[arg(long, value_name = "TIME", value_parser = cap(duration), allow_hyphen_values = true)]
    pub(crate) cpu: Option<Cap<Duration>>,
    /// Processes and threads, or `none` [default above level none: 512]
    #[arg(long, value_name = "N", value_parser = cap(count), allow_hyphen_values = true)]
    pub(crate) processes: Option<Cap<u64>>,
    /// Open files per process, or `none` [default above level none: 1024]
    #[arg(long, value_name = "N", value_parser = cap(count), allow_hyphen_values = true)]
    pub(crate) open_files: Option<Cap<u64>>,
    /// Size of a file, and of the value, or `none` [default above level none: 1G]
    #[arg(long, value_name = "SIZE", value_parser = cap(size), allow_hyphen_values = true)]
    pub(crate) file_size: Option<Cap<u64>>,
    /// Output on both streams together, or `none` [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = cap(size), allow_hyphen_values = true)]
    pub(crate) output: Option<Cap<u64>>,
}

/// A limit as given; none lifts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cap<T>(pub(crate) Option<T>);

/// Run many calls, one JSON object a line; results in input order
///
/// Each line is a call: {"id", "source" or "file", "function", "args", "kwargs", ...} or {"id", "argv", "stdin",
/// ...}. Each result is one line, written as soon as those before it are. A bad line starts nothing and has a record
/// with a null verdict in its place; all others run. Relative paths are relative to the file of calls.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairtrial batch calls.jsonl --out results.jsonl -j 8
  generate | fairtrial batch - | jq -c 'select(.verdict != \"ok\")'

A line:
  {\"id\": 1, \"file\": \"solve.py\", \"function\": \"solve\", \"args\": [3], \"timeout_s\": 5}")]
pub(crate) struct BatchArgs {
    /// File of calls, or `-` for standard input
    #[arg(value_name = "CALLS.jsonl")]
    pub(crate) calls: PathBuf,
    /// File for the results, replaced and then written as they come [default: standard output]
    #[arg(long, alias = "output", short, value_name = "RESULTS.jsonl")]
    pub(crate) out: Option<PathBuf>,
    /// Calls that run at a time [default: FAIRTRIAL_MAX_WORKERS, else the processors there are; by agents, their free slots]
    #[arg(long, short, value_name = "N", value_parser = workers, allow_hyphen_values = true)]
    pub(crate) jobs: Option<usize>,
    /// Who runs them: `local`, or agents that lease them from a server, as in `redis://127.0.0.1:6379`; `@FILE` or `@-` reads
    /// that from a file or standard input's first line
    #[arg(long, value_name = "URL")]
    pub(crate) backend: Option<String>,
    /// Show no progress
    #[arg(long)]
    pub(crate) no_progress: bool,
}

/// Say what isolation and measuring this machine can do
///
/// Runs a small command and a small Python function as a self-test. Exits 1 if even that does not work.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print all that was found: each mechanism of each level, measuring, workspaces
    #[arg(long, conflicts_with_all = ["fix", "json"])]
    pub(crate) all: bool,
    /// Print the commands that would provide what is missing on this host, and run none of them
    #[arg(long, conflicts_with = "json")]
    pub(crate) fix: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The command line, parsed. Help and version are printed by clap, which then ends the process.
pub(crate) fn parse() -> Result<Cli, Failure> {
    Cli::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => Failure::Usage(one_line(&error)),
    })
}

/// `place: what (hint)`.
fn one_line(error: &clap::Error) -> String {
    let context = |kind| error.get(kind).map(ToString::to_string);
    if let (Some(option), Some(cause)) = (
        context(ContextKind::InvalidArg),
        std::error::Error::source(error),
    ) {
        let name = option.split([' ', '=']).next().unwrap_or(&option);
        return format!("{name}: {cause}");
    }
    if let (ErrorKind::InvalidSubcommand, Some(given)) =
        (error.kind(), context(ContextKind::InvalidSubcommand))
    {
        return no_command(&given);
    }
    let text = error.render().to_string();
    let command = text
        .split_once("Usage: fairtrial ")
        .and_then(|(_, usage)| usage.split_whitespace().next())
        .filter(|word| word.chars().all(|c| c.is_ascii_lowercase()));
    let mut paragraphs = text.split("\n\n").map(|paragraph| {
        let words: Vec<_> = paragraph.split_whitespace().collect();
        words.join(" ").replace('\'', "`")
    });
    let what = paragraphs.next().unwrap_or_default();
    let what = what.trim_start_matches("error: ").to_owned();
    // Of several tips the first is the likely one.
    let hint =
        paragraphs.find_map(|tips| tips.split("tip: ").nth(1).map(|tip| tip.trim().to_owned()));
    let hint = match command {
        Some("exec") if what.contains("`--backend`") => {
            Some("`exec` runs on this machine; `batch` and `run` have it".into())
        }
        // The spelling that is documented, not its alias.
        Some("exec") => hint.map(|hint| hint.replace("`--python`", "`--interpreter`")),
        _ => hint.map(|hint| hint.replace("`--output`", "`--out`")),
    };
    let hint = hint.unwrap_or_else(|| match command {
        Some(command) => format!("see `fairtrial {command} --help`"),
        None => "see `fairtrial --help`".into(),
    });
    format!("fairtrial: {what} ({hint})")
}

/// A subcommand that there is not: meant was one that is spelt much alike, or that it is the beginning of.
fn no_command(given: &str) -> String {
    let command = Cli::command();
    let names: Vec<_> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let mut names_alike = names.iter().copied();
    let begun =
        |name: &&str| given.len() > 1 && (name.starts_with(given) || given.starts_with(*name));
    let meant = names_alike.find(begun).or_else(|| nearest(given, names));
    let hint = match meant {
        Some(name) => format!("did you mean `{name}`?"),
        None => "see `fairtrial --help`".to_owned(),
    };
    format!("fairtrial: unrecognized subcommand `{given}` ({hint})")
}

fn positive(text: &str) -> Result<(), String> {
    if text.trim_start().starts_with('-') {
        return Err(format!("must be greater than 0, not `{text}`"));
    }
    Ok(())
}

fn duration(text: &str) -> Result<Duration, String> {
    positive(text)?;
    fairtrial_exec::parse_duration(text)
}

fn size(text: &str) -> Result<u64, String> {
    positive(text)?;
    fairtrial_exec::parse_size(text)
}

/// Reads `none`, or what `read` reads.
fn cap<T>(read: fn(&str) -> Result<T, String>) -> impl Fn(&str) -> Result<Cap<T>, String> + Clone {
    move |text| match text {
        "none" => Ok(Cap(None)),
        text => read(text).map(|limit| Cap(Some(limit))),
    }
}

fn count(text: &str) -> Result<u64, String> {
    positive(text)?;
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("`{text}` is not a whole number greater than 0"))
}

fn workers(text: &str) -> Result<usize, String> {
    let workers = count(text)?;
    usize::try_from(workers).map_err(|_| format!("`{text}` is out of range"))
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!(
            "`{text}` is not NAME=VALUE; write for example `LANG=C`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    /// EX-97
    #[test]
    fn a_usage_error_is_one_line_with_a_hint() {
        let table = [
            (
                "exec a.py --tmeout 5s",
                "fairtrial: unexpected argument `--tmeout` found (a similar argument exists: `--timeout`)",
            ),
            (
                "batch c.jsonl --ouput r.jsonl",
                "fairtrial: unexpected argument `--ouput` found (a similar argument exists: `--out`)",
            ),
            (
                "exec a.py --pythn p",
                "fairtrial: unexpected argument `--pythn` found (a similar argument exists: `--interpreter`)",
            ),
            (
                "exce a.py",
                "fairtrial: unrecognized subcommand `exce` (did you mean `exec`?)",
            ),
            (
                "exec a.py --timeout 5parsecs",
                "--timeout: unknown unit `parsecs` in `5parsecs`; use ms, s, m or h, as in `5s`",
            ),
            (
                "exec a.py --timeout -1s",
                "--timeout: must be greater than 0, not `-1s`",
            ),
            (
                "exec a.py --memory -5",
                "--memory: must be greater than 0, not `-5`",
            ),
            (
                "exec a.py --memory 5X",
                "--memory: unknown unit `x` in `5X`; use K, M, G or T, as in `512M`",
            ),
            (
                "exec a.py --processes x",
                "--processes: `x` is not a whole number greater than 0",
            ),
            (
                "exec a.py --sandbox jail",
                "--sandbox: unknown level `jail`; the levels are `none`, `limits`, `confined` and `strict`",
            ),
            (
                "exec a.py --sandbox strict,netwrk=none",
                "--sandbox: unknown key `netwrk` (did you mean `network`?)",
            ),
            (
                "exec a.py --env A",
                "--env: `A` is not NAME=VALUE; write for example `LANG=C`",
            ),
            (
                "batch c.jsonl -j 0",
                "--jobs: `0` is not a whole number greater than 0",
            ),
            (
                "batch",
                "fairtrial: the following required arguments were not provided: <CALLS.jsonl> (see `fairtrial batch --help`)",
            ),
        ];
        for (line, message) in table {
            let words = std::iter::once("fairtrial").chain(line.split(' '));
            let error = Cli::try_parse_from(words).expect_err(line);
            assert_eq!(one_line(&error), message, "{line}");
        }
    }
}
