//! What to run and on which terms. Owns the shape of a call and its validity; knows nothing of how it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::limits::Limits;
use crate::linux::perf::Counted;
use crate::linux::selftest::SelfTest;
use crate::sandbox::{DEFAULT_LEVEL, Level, Sandbox};
use crate::workspace::Workspace;

/// One thing to run: the work and the terms it runs under.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What runs.
    pub work: Work,
    /// Environment changes: a value, or `None` to unset a variable for this call only.
    pub env: BTreeMap<OsString, Option<OsString>>,
    /// Variables that it gets from the environment of the engine that runs it, which masks their values in its outcome.
    /// A value in `env` goes first. Where one is not set the call ends as `setup_failed`.
    pub pass_env: BTreeSet<OsString>,
    /// Working directory; `None` is the call's own scratch directory.
    pub cwd: Option<PathBuf>,
    /// Longest run, counted from the acknowledgement.
    pub timeout: Option<Duration>,
    /// What that counts.
    pub time: Time,
    /// Longest wait in the queue.
    pub queue_timeout: Option<Duration>,
    /// Between SIGTERM and SIGKILL at the deadline.
    pub term_grace: Duration,
    /// Between SIGTERM and SIGKILL when it is cancelled.
    pub cancel_grace: Duration,
    /// What the call may use.
    pub limits: Limits,
    /// Isolation asked for.
    pub sandbox: Sandbox,
    /// Of a command: a tree that it finds in a place of the file system, for itself alone.
    pub workspace: Option<Arc<Workspace>>,
    /// Runs as the engine's own user at `strict`, too, where root gives other calls one of their own: it works on files
    /// that belong to that user, and are nobody else's to read or change.
    pub as_caller: bool,
    /// Of a command: whether it goes before others on its processors, where the engine may say so: what is measured.
    pub ahead: bool,
    /// Its name for a backend that outlives this process: asked for again under the same one, the same call is the same
    /// trial. Without one every submission is a trial of its own.
    pub key: Option<String>,
    /// Set when it begins.
    pub beginning: Beginning,
    /// Of a command: found out by trying, instead of running it.
    pub(crate) self_test: Option<SelfTest>,
    /// Of a command: what is to be counted of it and of all that it starts.
    pub counted: Vec<Counted>,
    /// Kept bytes per output stream.
    pub capture_bytes: u64,
}

/// Whether a call has begun, for whoever keeps a copy: a call that is dropped has no outcome to tell it.
#[derive(Clone, Debug, Default)]
pub struct Beginning(Arc<AtomicBool>);

impl Beginning {
    /// Whether it has.
    #[must_use]
    pub fn is_past(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// It has: told by whoever runs it, or hears that somebody does.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Who looks on does not make it another call.
impl PartialEq for Beginning {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The three kinds of work.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// A function in source text.
    Source(SourceWork),
    /// A callable somebody pickled; trusted by whoever made the call.
    Pickled(PickledWork),
    /// A program with arguments.
    Command(CommandWork),
}

/// A function in source text, called with data.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceWork {
    /// The text.
    pub source: String,
    /// What tracebacks call it.
    pub filename: String,
    /// The function to call.
    pub function: String,
    /// `(args, kwargs)`: a tuple of a tuple and a dict, in the data codec.
    pub arguments: Arguments,
    /// Who runs it.
    pub python: PythonTerms,
}

/// A pickled callable with its arguments, opaque to the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct PickledWork {
    /// Pickle of `(function, args, kwargs)`, in the layout of the worker protocol.
    pub body: Arguments,
    /// Who runs it.
    pub python: PythonTerms,
}

/// Encoded arguments.
#[derive(Clone, Debug)]
pub enum Arguments {
    /// In memory.
    Bytes(Vec<u8>),
    /// The first `size` bytes of a sealed file (see [`ArgumentFile`](crate::ArgumentFile)).
    File {
        /// The file.
        file: Arc<OwnedFd>,
        /// How much of it.
        size: u64,
    },
}

impl From<Vec<u8>> for Arguments {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(one), Self::Bytes(two)) => one == two,
            (Self::File { file: one, .. }, Self::File { file: two, .. }) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

/// A program with arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandWork {
    /// Program and arguments; the program is searched in the call's `PATH`.
    pub argv: Vec<OsString>,
    /// Bytes for its standard input.
    pub stdin: Vec<u8>,
}

/// Which interpreter runs a call, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct PythonTerms {
    /// The interpreter: a path, or a name searched in `PATH`.
    pub python: String,
    /// Directories put before `sys.path`.
    pub python_path: Vec<PathBuf>,
    /// Modules imported once by the zygote: the caller's trusted code.
    pub preload: Vec<String>,
    /// Those among them whose shared memory stays shared by all calls.
    pub preload_shared: Vec<String>,
    /// One process per call, or a process for many.
    pub isolation: Isolation,
    /// How the value travels.
    pub result: ResultFormat,
    /// What a Python host gives its workers of itself.
    pub host: Option<Arc<HostTerms>>,
}

/// What a Python host gives its workers of itself, once per process: their calls are the host's own functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostTerms {
    /// Replaces `sys.path`.
    pub sys_path: Vec<OsString>,
    /// Replaces `sys.argv`.
    pub argv: Vec<OsString>,
    /// Whether a crash writes its stack to stderr.
    pub faulthandler: bool,
    /// The key of `multiprocessing`'s connections, in hexadecimal, so that workers can use the host's managers.
    pub authkey: Option<String>,
    /// How the host's `logging` is set up, for the shim to read; none where it is as Python starts with it.
    pub logging: Option<String>,
    /// A pickled callable with its arguments (laid out as [`PickledWork::body`]), run before a worker's first call.
    pub initializer: Option<Vec<u8>>,
}

impl Default for PythonTerms {
    fn default() -> Self {
        Self {
            python: "python3".into(),
            python_path: Vec::new(),
            preload: Vec::new(),
            preload_shared: Vec::new(),
            isolation: Isolation::Fresh,
            result: ResultFormat::Data,
            host: None,
        }
    }
}

/// What a timeout counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Time {
    /// Wall time.
    #[default]
    Wall,
    /// Processor time of the whole tree: the same however busy the machine is. Wall time only guards against sleepers and
    /// deadlocks (see [`Call::guard`]).
    Cpu,
}

/// The guard is this many times the limit, and this much more: who waits for a disk or sleeps a little is not stopped.
const GUARD_FACTOR: u32 = 3;
const GUARD_PAUSE: Duration = Duration::from_secs(5);

/// How many calls a worker process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// One call, then gone.
    Fresh,
    /// Many calls, for trusted functions.
    Reuse,
}

/// How a value travels from worker to caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResultFormat {
    /// Decoded by code that can only make data.
    Data,
    /// Opaque to the engine, which never unpickles.
    Pickle,
}

/// Why a call was refused before anything ran.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {problem}")]
pub struct InvalidCall {
    /// The field as users write it (`timeout_s`, `env.PATH`).
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl InvalidCall {
    /// An objection to one field.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// Kept bytes per output stream unless a call says otherwise.
pub const DEFAULT_CAPTURE_BYTES: u64 = 1 << 20;

impl Call {
    /// A call of `work` on default terms.
    #[must_use]
    pub fn new(work: Work) -> Self {
        let level = match work {
            Work::Source(_) | Work::Command(_) => DEFAULT_LEVEL,
            Work::Pickled(_) => Level::None, // the caller's own function
        };
        Self {
            work,
            env: BTreeMap::new(),
            pass_env: BTreeSet::new(),
            cwd: None,
            timeout: None,
            time: Time::default(),
            queue_timeout: None,
            term_grace: Duration::ZERO,
            cancel_grace: Duration::ZERO,
            limits: Limits::default(),
            sandbox: Sandbox::new(level),
            workspace: None,
            as_caller: false,
            ahead: false,
            key: None,
            beginning: Beginning::default(),
            self_test: None,
            counted: Vec::new(),
            capture_bytes: DEFAULT_CAPTURE_BYTES,
        }
    }

    /// `function` of `source`, called with `arguments` (see [`SourceWork::arguments`]).
    pub fn source(
        source: impl Into<String>,
        function: impl Into<String>,
        arguments: Vec<u8>,
    ) -> Self {
        Self::new(Work::Source(SourceWork {
            source: source.into(),
            filename: "<source>".into(),
            function: function.into(),
            arguments: arguments.into(),
            python: PythonTerms::default(),
        }))
    }

    /// A program with arguments.
    pub fn command<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self::new(Work::Command(CommandWork {
            argv: argv.into_iter().map(Into::into).collect(),
            stdin: Vec::new(),
        }))
    }

    /// The interpreter terms, for the two kinds of work that have them.
    #[must_use]
    pub fn python(&self) -> Option<&PythonTerms> {
        match &self.work {
            Work::Source(work) => Some(&work.python),
            Work::Pickled(work) => Some(&work.python),
            Work::Command(_) => None,
        }
    }

    /// Whether its worker serves no other call.
    #[must_use]
    pub fn has_its_own_worker(&self) -> bool {
        let python = self.python();
        python.is_none_or(|terms| terms.isolation == Isolation::Fresh)
    }

    /// As [`Call::python`], to change them.
    pub fn python_mut(&mut self) -> Option<&mut PythonTerms> {
        match &mut self.work {
            Work::Source(work) => Some(&mut work.python),
            Work::Pickled(work) => Some(&mut work.python),
            Work::Command(_) => None,
        }
    }

    /// What a command is to read; others read nothing.
    pub(crate) fn stdin(&self) -> &[u8] {
        match &self.work {
            Work::Command(work) => &work.stdin,
            Work::Source(_) | Work::Pickled(_) => &[],
        }
    }

    /// Where processor time decides: how long it may have a processor, or want none, before it counts as asleep.
    #[must_use]
    pub fn guard(&self) -> Option<Duration> {
        let limit = self.timeout.filter(|_| self.time == Time::Cpu)?;
        Some(
            limit
                .saturating_mul(GUARD_FACTOR)
                .saturating_add(GUARD_PAUSE),
        )
    }

    /// Refuses what no engine could run: the last gate, whoever built the call.
    pub fn validate(&self) -> Result<(), InvalidCall> {
        self.validate_times()?;
        self.validate_env()?;
        self.limits.validate()?;
        self.validate_workspace()?;
        let reuses = |terms: &PythonTerms| terms.isolation == Isolation::Reuse;
        if self.sandbox.level >= Level::Confined && self.python().is_some_and(reuses) {
            let level = self.sandbox.level;
            return Err(InvalidCall::new(
                "isolation",
                format!("at level `{level}` each call has a process of its own: use `fresh`"),
            ));
        }
        self.validate_work()
    }

    fn validate_workspace(&self) -> Result<(), InvalidCall> {
        let Some(workspace) = &self.workspace else {
            return self.sandbox.validate();
        };
        if !matches!(self.work, Work::Command(_)) {
            let problem = "only a command can have one";
            return Err(InvalidCall::new("workspace", problem));
        }
        workspace.validate()?;
        self.sandbox.validate_beside_workspace()
    }

    fn validate_times(&self) -> Result<(), InvalidCall> {
        for (field, time) in [
            ("timeout_s", self.timeout),
            ("queue_timeout_s", self.queue_timeout),
        ] {
            if time == Some(Duration::ZERO) {
                return Err(InvalidCall::new(field, "must be greater than 0"));
            }
        }
        if self.time == Time::Cpu && self.timeout.is_none() {
            let problem = "`cpu` says what a timeout counts: set `timeout_s`, too";
            return Err(InvalidCall::new("time", problem));
        }
        Ok(())
    }

    fn validate_env(&self) -> Result<(), InvalidCall> {
        let holds = |text: &OsStr, byte| text.as_encoded_bytes().contains(&byte);
        let names = self.env.keys().map(|name| ("env", name));
        let names = names.chain(self.pass_env.iter().map(|name| ("pass_env", name)));
        for (field, name) in names {
            if name.is_empty() || holds(name, b'=') || holds(name, 0) {
                return Err(InvalidCall::new(
                    format!("{field}.{}", name.display()),
                    "a variable's name is not empty and has no `=` or NUL",
                ));
            }
        }
        for (name, value) in &self.env {
            if value.as_ref().is_some_and(|value| holds(value, 0)) {
                let field = format!("env.{}", name.display());
                return Err(InvalidCall::new(field, "a variable's value has no NUL"));
            }
        }
        Ok(())
    }

    fn validate_work(&self) -> Result<(), InvalidCall> {
        let nul = |field: &str, text: &OsStr| {
            if text.as_encoded_bytes().contains(&0) {
                Err(InvalidCall::new(field, "has a NUL character"))
            } else {
                Ok(())
            }
        };
        if let Some(cwd) = &self.cwd {
            nul("cwd", cwd.as_os_str())?;
            let level = self.sandbox.level;
            if level >= Level::Confined && cwd.parent().is_none() {
                let problem = format!("`/` is the whole host; at `{level}` name a directory of it");
                return Err(InvalidCall::new("cwd", problem));
            }
        }
        match &self.work {
            Work::Command(work) => {
                if work.argv.first().is_none_or(|program| program.is_empty()) {
                    return Err(InvalidCall::new("argv", "names no program"));
                }
                work.argv.iter().try_for_each(|word| nul("argv", word))
            }
            Work::Source(work) if work.function.is_empty() => Err(InvalidCall::new(
                "function",
                "is empty; name the function to call",
            )),
            Work::Source(_) | Work::Pickled(_) => {
                let terms = self
                    .python()
                    .expect("source and pickled work have python terms");
                if terms.python.is_empty() {
                    return Err(InvalidCall::new("python", "is empty; name an interpreter"));
                }
                nul("python", terms.python.as_ref())?;
                terms
                    .preload
                    .iter()
                    .try_for_each(|module| nul("preload", module.as_ref()))?;
                let unlisted = |module: &&String| !terms.preload.contains(module);
                match terms.preload_shared.iter().find(unlisted) {
                    Some(module) => Err(InvalidCall::new(
                        "preload_shared",
                        format!("`{module}` is not a module of `preload`"),
                    )),
                    None => Ok(()),
                }
            }
        }
    }
}

/// A time in seconds as users write it: positive and finite.
pub fn seconds(field: &str, value: f64) -> Result<Duration, InvalidCall> {
    if !value.is_finite() || value <= 0.0 {
        return Err(InvalidCall::new(
            field,
            format!("must be a positive number of seconds, not {value}"),
        ));
    }
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| InvalidCall::new(field, format!("{value} seconds is out of range")))
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fresh => "fresh",
            Self::Reuse => "reuse",
        })
    }
}

impl FromStr for Isolation {
    type Err = InvalidCall;
    fn from_str(text: &str) -> Result<Self, InvalidCall> {
        match text {
            "fresh" => Ok(Self::Fresh),
            "reuse" => Ok(Self::Reuse),
            other => Err(InvalidCall::new(
                "isolation",
                format!("`{other}` is neither `fresh` nor `reuse`"),
            )),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wall => "wall",
            Self::Cpu => "cpu",
        })
    }
}

impl FromStr for Time {
    type Err = InvalidCall;
    fn from_str(text: &str) -> Result<Self, InvalidCall> {
        match text {
            "wall" => Ok(Self::Wall),
            "cpu" => Ok(Self::Cpu),
            other => Err(InvalidCall::new(
                "time",
                format!("`{other}` is neither `wall` nor `cpu`"),
            )),
        }
    }
}

impl fmt::Display for ResultFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Pickle => "pickle",
        })
    }
}

impl FromStr for ResultFormat {
    type Err = InvalidCall;
    fn from_str(text: &str) -> Result<Self, InvalidCall> {
        match text {
            "data" => Ok(Self::Data),
            "pickle" => Ok(Self::Pickle),
            other => Err(InvalidCall::new(
                "result",
                format!("`{other}` is neither `data` nor `pickle`"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EX-42
    #[test]
    fn a_bad_variable_name_is_refused_by_name() {
        for name in ["A=B", "", "A\0"] {
            let mut call = Call::command(["true"]);
            call.env.insert(name.into(), None);
            assert!(
                call.validate().unwrap_err().field.starts_with("env."),
                "{name:?}"
            );
        }
    }

    /// FA-14
    #[test]
    fn where_processor_time_decides_wall_time_is_a_guard() {
        let mut call = Call::command(["true"]);
        call.timeout = Some(Duration::from_secs(2));
        assert_eq!(call.guard(), None);
        call.time = Time::Cpu;
        assert_eq!(call.guard(), Some(Duration::from_secs(11)));
        assert_eq!(call.validate(), Ok(()));
        call.timeout = None;
        assert_eq!(call.validate().unwrap_err().field, "time");
        for time in [Time::Wall, Time::Cpu] {
            assert_eq!(time.to_string().parse(), Ok(time));
        }
    }

    /// EX-46
    #[test]
    fn a_time_that_is_not_positive_and_finite_is_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300] {
            assert!(seconds("timeout_s", bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("timeout_s", 0.5), Ok(Duration::from_millis(500)));
        let mut call = Call::command(["true"]);
        call.queue_timeout = Some(Duration::ZERO);
        assert_eq!(call.validate().unwrap_err().field, "queue_timeout_s");
    }
}
