//! What isolation a call asks for, and whether its level has it. Brings nothing about: the mechanisms are in `linux`.

mod command_line;
mod examine;
mod means;
mod mechanisms;
mod needs;
mod remembered;
mod report;
mod selftest;
mod terms;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::call::InvalidCall;
use crate::linux::affinity;
pub use examine::SandboxReport;
pub use means::Facility;
pub(crate) use means::{Lack, Means, Trial, is_lasting, parts_withheld};
pub(crate) use mechanisms::{in_force, lacking, missing};
pub use report::{Counters, InForce, Mechanism, State};
pub use selftest::{Attempts, Proof};

pub(crate) use terms::{Terms, groundwork, scratch_seen};

/// The level of source and command calls that do not say.
pub const DEFAULT_LEVEL: Level = Level::Limits;

/// The variable that replaces a default, and never an explicit choice.
pub const SANDBOX_VARIABLE: &str = "FAIRTRIAL_SANDBOX";

/// What a call's `sandbox` can hold.
pub const SANDBOX_KEYS: [&str; 10] = [
    "level",
    "on_missing",
    "network",
    "read",
    "write",
    "scratch_bytes",
    "scratch_inodes",
    "address_space",
    "devices",
    "cpus",
];

/// The devices a call can ask for.
const DEVICES: [&str; 1] = ["nvidia"];

/// More processors than any kernel has.
const MAX_CPUS: usize = 8192;

/// Isolation as a call asks for it.
///
/// ```
/// use fairtrial_exec::{Level, Network, Sandbox};
/// let sandbox: Sandbox = "strict,read=/data".parse()?;
/// assert_eq!((sandbox.level, sandbox.network), (Level::Strict, Network::None));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sandbox {
    /// How much of it.
    pub level: Level,
    /// When the machine lacks a mechanism of the level.
    pub on_missing: OnMissing,
    /// What of the network is there.
    pub network: Network,
    /// What can be read besides the system and the interpreter.
    pub read: Vec<PathBuf>,
    /// What can be written besides scratch and working directory.
    pub write: Vec<PathBuf>,
    /// Size of the scratch directory; `None` is no quota.
    pub scratch_bytes: Option<u64>,
    /// Files in the scratch directory; `None` is no quota.
    pub scratch_inodes: Option<u64>,
    /// Address space of each process: never set unasked, for it breaks CUDA, JITs and sanitizers.
    pub address_space: Option<u64>,
    /// Devices that are there.
    pub devices: Vec<String>,
    /// Processors it runs on; `None` is all that the engine may use.
    pub cpus: Option<Vec<usize>>,
}

/// How much isolation a call asks for, each level with all of those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Own session, tree kill, clean environment, wall and output limits.
    #[default]
    None,
    /// Resource limits and scopes besides.
    Limits,
    /// Reads, network and system calls confined without namespaces.
    Confined,
    /// Namespaces, no network, system call filter besides.
    Strict,
}

/// What becomes of a call when the machine lacks a mechanism of its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnMissing {
    /// It does not run.
    Fail,
    /// It runs, and its outcome says what was missing.
    #[default]
    Degrade,
}

/// What of the network a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// Nothing.
    None,
    /// A loopback interface of its own.
    Loopback,
    /// All that the host has.
    Host,
}

impl Level {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::None, Self::Limits, Self::Confined, Self::Strict];
}

impl Sandbox {
    /// A level, with all else as that level has it.
    #[must_use]
    pub fn new(level: Level) -> Self {
        let (walled, strict) = (level >= Level::Confined, level == Level::Strict);
        Self {
            level,
            on_missing: if walled {
                OnMissing::Fail
            } else {
                OnMissing::Degrade
            },
            network: if walled { Network::None } else { Network::Host },
            read: Vec::new(),
            write: Vec::new(),
            scratch_bytes: strict.then_some(1 << 30),
            scratch_inodes: strict.then_some(50_000),
            address_space: None,
            devices: Vec::new(),
            cpus: None,
        }
    }

    /// What [`SANDBOX_VARIABLE`] says, if it says anything; relative paths are those of the process.
    pub fn from_env() -> Result<Option<Self>, InvalidCall> {
        Self::from_variable(std::env::var_os(SANDBOX_VARIABLE).as_deref())
    }

    fn from_variable(value: Option<&OsStr>) -> Result<Option<Self>, InvalidCall> {
        let text = value.unwrap_or_default().to_string_lossy();
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let refuse = |problem| InvalidCall::new(SANDBOX_VARIABLE, problem);
        let mut sandbox: Self = text.parse().map_err(refuse)?;
        // Without a working directory they stay relative, and are refused as such.
        sandbox.resolve(&std::env::current_dir().unwrap_or_default());
        sandbox
            .validate()
            .map_err(|invalid| refuse(Self::worded(&invalid)))?;
        Ok(Some(sandbox))
    }

    /// Makes relative paths those of `base`.
    pub fn resolve(&mut self, base: &Path) {
        let paths = self.read.iter_mut().chain(&mut self.write);
        for path in paths.filter(|path| !path.as_os_str().is_empty()) {
            *path = base.join(&path);
        }
    }

    /// An objection without the word `sandbox`, for places that say it themselves.
    #[must_use]
    pub fn worded(invalid: &InvalidCall) -> String {
        match invalid.field.strip_prefix("sandbox.") {
            Some(key) => format!("`{key}`: {}", invalid.problem),
            None => invalid.problem.clone(),
        }
    }

    /// Refuses options for a mechanism that the level lacks, and values that mean nothing.
    pub fn validate(&self) -> Result<(), InvalidCall> {
        self.validate_level()?;
        self.validate_sizes()?;
        self.validate_paths()?;
        self.validate_devices()?;
        self.validate_cpus()
    }

    /// As [`Sandbox::validate`], of a call with a workspace: it has namespaces at every level, and can be kept to
    /// processors.
    pub(crate) fn validate_beside_workspace(&self) -> Result<(), InvalidCall> {
        if self.level != Level::None {
            return self.validate();
        }
        self.validate_cpus()?;
        let mut rest = self.clone();
        rest.cpus = None;
        rest.validate()
    }

    fn validate_level(&self) -> Result<(), InvalidCall> {
        let network_level = match self.network {
            Network::Loopback => Level::Strict,
            Network::None | Network::Host => Level::Confined,
        };
        let needed = [
            ("network", network_level, self.network != Network::Host),
            ("read", Level::Confined, !self.read.is_empty()),
            ("write", Level::Limits, !self.write.is_empty()),
            ("scratch_bytes", Level::Strict, self.scratch_bytes.is_some()),
            (
                "scratch_inodes",
                Level::Strict,
                self.scratch_inodes.is_some(),
            ),
            ("address_space", Level::Limits, self.address_space.is_some()),
            ("devices", Level::Strict, !self.devices.is_empty()),
            ("cpus", Level::Limits, self.cpus.is_some()),
        ];
        let lacking = |(_, least, asked): &&(_, Level, bool)| *asked && self.level < *least;
        match needed.iter().find(lacking) {
            Some((key, least, _)) => {
                let level = self.level;
                let problem =
                    format!("level `{level}` cannot do that; use `{least}`, or leave it out");
                Err(refusal(key, problem))
            }
            None => Ok(()),
        }
    }

    fn validate_sizes(&self) -> Result<(), InvalidCall> {
        let sizes = [
            ("scratch_bytes", self.scratch_bytes),
            ("scratch_inodes", self.scratch_inodes),
            ("address_space", self.address_space),
        ];
        match sizes.iter().find(|(_, size)| *size == Some(0)) {
            Some((key, _)) => Err(refusal(key, "must be greater than 0")),
            None => Ok(()),
        }
    }

    fn validate_paths(&self) -> Result<(), InvalidCall> {
        for (key, paths) in [("read", &self.read), ("write", &self.write)] {
            for path in paths {
                if path.as_os_str().as_encoded_bytes().contains(&0) {
                    return Err(refusal(key, "has a NUL character"));
                }
                if !path.is_absolute() {
                    let problem = format!("must be an absolute path, not `{}`", path.display());
                    return Err(refusal(key, problem));
                }
                if path.parent().is_none() {
                    return Err(refusal(
                        key,
                        "`/` is the whole host; name what is needed of it",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether what is named is there: asked when a call is submitted, which may be elsewhere than where it was made.
    pub(crate) fn validate_here(&self) -> Result<(), InvalidCall> {
        if let Some(cpus) = &self.cpus {
            let allowed = crate::measuring::for_calls();
            if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
                let those = affinity::ranges(&allowed);
                let problem =
                    format!("there is no processor {cpu} for this process; it has {those}");
                return Err(refusal("cpus", problem));
            }
        }
        for (key, paths) in [("read", &self.read), ("write", &self.write)] {
            if let Some(path) = paths.iter().find(|path| !path.exists()) {
                let problem = format!("`{}` is not there, or cannot be seen", path.display());
                return Err(refusal(key, problem));
            }
        }
        Ok(())
    }

    fn validate_devices(&self) -> Result<(), InvalidCall> {
        let unknown = |device: &&String| !DEVICES.contains(&device.as_str());
        if let Some(device) = self.devices.iter().find(unknown) {
            let problem = format!("unknown device `{device}`; the only one is `nvidia`");
            return Err(refusal("devices", problem));
        }
        if self.address_space.is_some() && !self.devices.is_empty() {
            let problem = "does not go with device `nvidia`, whose driver reserves far more than it \
                           uses; leave one of them out";
            return Err(refusal("address_space", problem));
        }
        Ok(())
    }

    fn validate_cpus(&self) -> Result<(), InvalidCall> {
        let Some(cpus) = &self.cpus else {
            return Ok(());
        };
        if cpus.is_empty() {
            return Err(refusal(
                "cpus",
                "names no processor; leave it out to allow all",
            ));
        }
        match cpus.iter().find(|cpu| **cpu >= MAX_CPUS) {
            Some(cpu) => Err(refusal("cpus", format!("there is no processor {cpu}"))),
            None => Ok(()),
        }
    }
}

fn refusal(key: &str, problem: impl Into<String>) -> InvalidCall {
    InvalidCall::new(format!("sandbox.{key}"), problem)
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Limits => "limits",
            Self::Confined => "confined",
            Self::Strict => "strict",
        })
    }
}

impl FromStr for Level {
    type Err = InvalidCall;
    fn from_str(text: &str) -> Result<Self, InvalidCall> {
        match text {
            "none" => Ok(Self::None),
            "limits" => Ok(Self::Limits),
            "confined" => Ok(Self::Confined),
            "strict" => Ok(Self::Strict),
            other => {
                let problem = format!(
                    "unknown level `{other}`; the levels are `none`, `limits`, `confined` and `strict`"
                );
                Err(InvalidCall::new("sandbox", problem))
            }
        }
    }
}

impl fmt::Display for OnMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fail => "fail",
            Self::Degrade => "degrade",
        })
    }
}

impl FromStr for OnMissing {
    type Err = InvalidCall;
    fn from_str(text: &str) -> Result<Self, InvalidCall> {
        match text {
            "fail" => Ok(Self::Fail),
            "degrade" => Ok(Self::Degrade),
            other => {
                let problem = format!("`{other}` is neither `fail` nor `degrade`");
                Err(refusal("on_missing", problem))
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Loopback => "loopback",
            Self::Host => "host",
        })
    }
}

impl FromStr for Network {
    type Err = InvalidCall;
    fn from_str(text: &str) -> Result<Self, InvalidCall> {
        match text {
            "none" => Ok(Self::None),
            "loopback" => Ok(Self::Loopback),
            "host" => Ok(Self::Host),
            other => {
                let problem = format!("`{other}` is none of `none`, `loopback` and `host`");
                Err(refusal("network", problem))
            }
        }
    }
}

#[cfg(test)]
mod tests;
