//! What the ids of a study stand for: programs with their terms, and problems.

use std::time::Duration;

use fairtrial_exec::{Isolation, Limits, Sandbox, Time};

use crate::fault::Place;
use crate::host::HostFunction;
use crate::value::Value;

/// A program and its terms.
#[derive(Clone, Debug)]
pub struct Binding {
    /// Where it is written.
    pub place: Place,
    /// What is called.
    pub entry: EntryPoint,
    /// On which terms.
    pub terms: Terms,
    /// As written, a bare string in full.
    pub written: Value,
}

/// What is called.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryPoint {
    /// A function of a file; the path is relative to the study file.
    Python {
        /// The file.
        file: String,
        /// Its function.
        function: String,
    },
    /// A program and its arguments.
    Command(Vec<String>),
    /// A function of a text.
    Source {
        /// The text.
        source: String,
        /// Its function.
        function: String,
    },
    /// A function of the host program's.
    Host(HostFunction),
}

/// On which terms a program runs, the study's defaults filled in.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Longest run.
    pub timeout: Option<Duration>,
    /// What that counts.
    pub time: Time,
    /// Longest wait.
    pub queue_timeout: Option<Duration>,
    /// What it may use.
    pub limits: Limits,
    /// Its isolation; none is the engine's default for studies, `limits`.
    pub sandbox: Option<Sandbox>,
    /// A process of its own, or one that others used.
    pub isolation: Isolation,
    /// Further attempts.
    pub retries: u64,
    /// Statuses that deserve another attempt.
    pub retry_on: Vec<String>,
    /// Wait before it.
    pub retry_delay: Duration,
    /// Variables and their values.
    pub env: Vec<(String, String)>,
    /// Variables that whoever runs it has in the environment; their values are never stored.
    pub pass_env: Vec<String>,
    /// Where they are named.
    pub pass_env_place: Place,
    /// Interpreter.
    pub interpreter: Option<String>,
    /// Directories to import from.
    pub python_path: Vec<String>,
    /// Modules imported before the call.
    pub preload: Vec<String>,
    /// Those among them whose shared memory stays shared by all runs.
    pub preload_shared: Vec<String>,
    /// Globs of further files that belong to it.
    pub files: Vec<String>,
    /// Free text, part of its identity.
    pub version: Option<String>,
    /// Defaults for what an agent says of itself.
    pub metadata: Value,
    /// How a Python function is called.
    pub contract: Contract,
}

/// How a Python function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// With one plain mapping (ST-8).
    Run,
    /// As DRE calls it (SF-45).
    Dre,
}

/// A problem.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Where it is written.
    pub place: Place,
    /// Its family.
    pub family: String,
    /// What is asked.
    pub brief: String,
    /// Its data.
    pub payload: Value,
    /// What else is known of it.
    pub metadata: Value,
    /// Its own evaluator.
    pub evaluator: Option<Binding>,
    /// Globs of further files that belong to it.
    pub files: Vec<String>,
    /// As written, defaults filled in.
    pub written: Value,
}
