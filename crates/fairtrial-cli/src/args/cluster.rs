//! The flags of `agent`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fairtrial_cluster::{BadName, Class};
use fairtrial_exec::Level;

use super::duration;

/// Serve calls on this node: lease them from a server, run them, commit what came of them
///
/// One agent for each node. It ends what runs, and itself, at SIGTERM or SIGINT; at the second signal it gives back what
/// runs at once.
#[derive(Debug, Args)]
#[command(override_usage = "fairtrial agent --redis <URL> --slots <N> [OPTIONS]
       fairtrial agent --redis <URL> --sweep-blobs [--blobs <URL>]")]
#[command(after_help = "\
Examples:
  fairtrial agent --redis redis://127.0.0.1:6379 --slots 8 --sandbox strict
  fairtrial agent --redis @/run/secrets/redis-url --slots 16 --sandbox strict --blobs file:///shared/blobs
  echo rediss://agent:PASSWORD@host:6379 | fairtrial agent --redis @- --slots 4")]
pub(crate) struct AgentArgs {
    /// The server: `redis://`, `rediss://` or `redis+unix://`; `@FILE` or `@-` reads that from a file or standard input's
    /// first line
    #[arg(long, value_name = "URL")]
    pub(crate) redis: String,
    /// Calls at a time
    #[arg(long, value_name = "N", value_parser = slots, allow_hyphen_values = true)]
    #[arg(required_unless_present = "sweep_blobs")]
    pub(crate) slots: Option<u32>,
    /// What it serves: cpu, or timing, whose calls are alone on this machine; may be repeated [default: cpu]
    #[arg(long = "class", value_name = "CLASS", value_parser = class)]
    pub(crate) classes: Vec<Class>,
    /// Its name, unlike any other agent's [default: the node's id]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The least isolation of any call: none, limits, confined or strict
    #[arg(long, value_name = "LEVEL", default_value = "limits", value_parser = level)]
    pub(crate) sandbox: Level,
    /// Where what is large is kept: file:///DIR, s3://BUCKET/PREFIX, http(s)://… [default: a directory of this user's]
    #[arg(long, value_name = "URL")]
    pub(crate) blobs: Option<String>,
    /// Where unpacked directories are kept [default: the user's cache directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// A lease that is not renewed so long is lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) lease: Duration,
    /// How long calls may take to end once it is told to
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub(crate) drain_timeout: Duration,
    /// How long it goes on without the server
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub(crate) give_up: Duration,
    /// What keeps timing calls alone: a file that all agents and evaluations of this machine may write to [default:
    /// FAIRTRIAL_MACHINE_LOCK, or one for all users]
    #[arg(long, value_name = "FILE")]
    pub(crate) lock: Option<PathBuf>,
    /// Serve nobody: remove what is older than a day from the store and is named by no call, result or running command
    /// of this server; then end
    #[arg(long, conflicts_with_all = ["slots", "classes", "lock", "open_server_ok"])]
    pub(crate) sweep_blobs: bool,
    /// Serve although calls can reach the server and it has no password, or calls could read the password
    #[arg(long)]
    pub(crate) open_server_ok: bool,
}

fn slots(text: &str) -> Result<u32, String> {
    let slots = text.parse().ok().filter(|slots| (1..=4096).contains(slots));
    slots.ok_or_else(|| format!("`{text}` is not a whole number from 1 to 4096"))
}

fn class(text: &str) -> Result<Class, String> {
    text.parse().map_err(|error: BadName| error.to_string())
}

fn level(text: &str) -> Result<Level, String> {
    text.parse()
        .map_err(|error: fairtrial_exec::InvalidCall| error.problem)
}
