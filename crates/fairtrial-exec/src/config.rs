//! How a local backend is set up: explicit values win over variables, variables over defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::EngineError;
use crate::sandbox::Facility;
use crate::spill::{SpillDir, SpillPolicy};

/// How a [`LocalBackend`](crate::LocalBackend) is set up.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Calls running at once.
    pub max_workers: usize,
    /// Unused workers and zygotes end after this long.
    pub idle_timeout: Duration,
    /// When `reuse` workers are replaced.
    pub recycle: Recycle,
    /// Variables passed to workers besides the built-in list.
    pub env_allow: Vec<String>,
    /// Variables passed to workers by prefix, besides `LC_`.
    pub env_prefixes: Vec<String>,
    /// The host's environment, read once.
    pub host_env: BTreeMap<OsString, OsString>,
    /// Where large values and scratch directories live.
    pub spill_dir: PathBuf,
    /// Values up to this size stay in memory files; `None` is a quarter of what is available.
    pub memfd_cap_bytes: Option<u64>,
    /// This machine's name.
    pub node_id: String,
    /// The launcher; `None` is the one inside this library.
    pub launcher: Option<PathBuf>,
    /// Whether this process has no children but the engine's and inherits their orphans (see
    /// [`adopt_orphans`](crate::adopt_orphans)): then nothing outlives a launcher that was killed.
    pub adopts_orphans: bool,
    /// Whether the engine looks out for a moment before it sleeps while processors are idle: quicker for one caller,
    /// and no help where several engines share them.
    pub stays_awake: bool,
    /// Whether other code of this process may close descriptors that are the engine's, as `os.closerange` does: then that
    /// is noticed, for a few system calls per call.
    pub guards_descriptors: bool,
    /// How long a worker may take to acknowledge.
    pub ack_timeout: Duration,
    /// Whether the next `fresh` worker is forked while a call of its key runs.
    pub fork_ahead: bool,
    /// Warm interpreters kept at once.
    pub max_zygotes: usize,
    /// The shim compiled for the interpreter of this name, which then need not compile it: a list of code objects,
    /// marshalled.
    pub shim_code: Option<(String, Arc<[u8]>)>,
    /// What the engine does without although it may be there: for tests of machines that lack it.
    #[doc(hidden)]
    pub without: BTreeSet<Facility>,
}

/// When a `reuse` worker is replaced, decided between calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recycle {
    /// After so many calls.
    pub max_calls: Option<u64>,
    /// After so long, at the next call's end.
    pub max_age: Option<Duration>,
    /// When its resident size has grown by so many bytes since start-up.
    pub rss_growth: Option<u64>,
    /// After a verdict other than `ok`.
    pub after_error: bool,
}

impl LocalConfig {
    /// Whether scratch directories are in a directory of the usual name, which has nothing else.
    pub(crate) fn has_usual_spill_dir(&self) -> bool {
        self.spill_dir.file_name() == Some(usual_spill_name().as_ref())
    }

    /// Defaults as the process's environment changes them.
    pub fn from_env() -> Result<Self, EngineError> {
        Self::from_vars(std::env::vars_os().collect())
    }

    /// As [`LocalConfig::from_env`] for a given environment. A blank variable counts as unset.
    pub fn from_vars(host_env: BTreeMap<OsString, OsString>) -> Result<Self, EngineError> {
        let text = |name: &str| {
            let value = host_env
                .get(&OsString::from(name))?
                .to_string_lossy()
                .trim()
                .to_owned();
            (!value.is_empty()).then_some(value)
        };
        let max_workers = match text("FAIRTRIAL_MAX_WORKERS") {
            Some(value) => parse(
                "FAIRTRIAL_MAX_WORKERS",
                &value,
                "a whole number above 0",
                |n: &usize| *n > 0,
            )?,
            None => default_workers(match text("PYTEST_XDIST_WORKER_COUNT") {
                Some(value) => Some(parse(
                    "PYTEST_XDIST_WORKER_COUNT",
                    &value,
                    "a whole number",
                    |_: &usize| true,
                )?),
                None => None,
            }),
        };
        let idle_s = match text("FAIRTRIAL_IDLE_TIMEOUT_S") {
            Some(value) => parse(
                "FAIRTRIAL_IDLE_TIMEOUT_S",
                &value,
                "a positive number of seconds",
                |s: &f64| s.is_finite() && *s > 0.0 && *s < 1e12,
            )?,
            None => 300.0,
        };
        let spill_dir = match text("FAIRTRIAL_SPILL_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => PathBuf::from(text("TMPDIR").unwrap_or_else(|| "/tmp".into()))
                .join(usual_spill_name()),
        };
        let node_id = text("FAIRTRIAL_NODE_ID").unwrap_or_else(|| {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned()
        });
        Ok(Self {
            max_workers,
            idle_timeout: Duration::from_secs_f64(idle_s),
            recycle: Recycle::default(),
            env_allow: Vec::new(),
            env_prefixes: Vec::new(),
            spill_dir,
            memfd_cap_bytes: None,
            node_id,
            launcher: None,
            adopts_orphans: false,
            stays_awake: true,
            guards_descriptors: false,
            ack_timeout: Duration::from_secs(30),
            fork_ahead: true,
            max_zygotes: 8,
            shim_code: None,
            without: BTreeSet::new(),
            host_env,
        })
    }
}

impl LocalConfig {
    /// Where what outlives an engine is kept: `FAIRTRIAL_CACHE_DIR`, or `fairtrial` in the user's cache directory.
    /// None if no variable says where that is.
    #[must_use]
    pub fn cache_dir(&self) -> Option<PathBuf> {
        let variable = |name: &str| {
            let value = self.host_env.get(std::ffi::OsStr::new(name))?;
            Some(PathBuf::from(value)).filter(|path| path.is_absolute())
        };
        variable("FAIRTRIAL_CACHE_DIR")
            .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("fairtrial")))
            .or_else(|| Some(variable("HOME")?.join(".cache/fairtrial")))
    }

    /// Where large values go that belong to no call, so that no limit of one counts.
    #[must_use]
    pub fn spill_policy(&self) -> SpillPolicy {
        SpillPolicy {
            dir: SpillDir::new(&self.spill_dir),
            memfd_cap_bytes: self.memfd_cap_bytes.unwrap_or(u64::MAX),
            memory_limit_bytes: None,
        }
    }
}

fn parse<T: std::str::FromStr>(
    name: &str,
    text: &str,
    wanted: &str,
    good: impl Fn(&T) -> bool,
) -> Result<T, EngineError> {
    text.parse()
        .ok()
        .filter(good)
        .ok_or_else(|| EngineError::Config {
            name: name.into(),
            problem: format!("`{text}` is not {wanted}"),
        })
}

/// The CPUs this process may use, shared among the test processes of `pytest -n`.
fn usual_spill_name() -> String {
    format!("fairtrial-{}", rustix::process::geteuid().as_raw())
}

fn default_workers(xdist_workers: Option<usize>) -> usize {
    (available_cpus() / xdist_workers.filter(|count| *count > 1).unwrap_or(1)).max(1)
}

/// CPUs allowed by affinity and by control group quota.
#[must_use]
pub fn available_cpus() -> usize {
    // The standard library reads both: sched_getaffinity, and cpu.max or cpu.cfs_quota_us up the hierarchy.
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vars: &[(&str, &str)]) -> Result<LocalConfig, EngineError> {
        LocalConfig::from_vars(
            vars.iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    /// EX-94
    #[test]
    fn a_variable_that_does_not_parse_is_named_and_a_blank_one_is_unset() {
        for (name, bad) in [
            ("FAIRTRIAL_MAX_WORKERS", "0"),
            ("FAIRTRIAL_MAX_WORKERS", "many"),
            ("FAIRTRIAL_MAX_WORKERS", "-1"),
            ("FAIRTRIAL_IDLE_TIMEOUT_S", "nan"),
            ("FAIRTRIAL_IDLE_TIMEOUT_S", "-5"),
        ] {
            let message = config(&[(name, bad)]).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains(bad), "{message}");
        }
        let blank = config(&[
            ("FAIRTRIAL_MAX_WORKERS", " "),
            ("FAIRTRIAL_IDLE_TIMEOUT_S", ""),
        ])
        .unwrap();
        assert_eq!(blank.max_workers, available_cpus());
        assert_eq!(blank.idle_timeout, Duration::from_secs(300));
    }

    /// EX-94
    #[test]
    fn workers_are_the_cpus_shared_among_test_processes_unless_said() {
        assert_eq!(
            config(&[("FAIRTRIAL_MAX_WORKERS", "7")])
                .unwrap()
                .max_workers,
            7
        );
        assert_eq!(
            config(&[("PYTEST_XDIST_WORKER_COUNT", "1000")])
                .unwrap()
                .max_workers,
            1
        );
        assert_eq!(
            config(&[("PYTEST_XDIST_WORKER_COUNT", "1")])
                .unwrap()
                .max_workers,
            available_cpus()
        );
    }

    /// CA-20
    #[test]
    fn the_cache_is_where_the_first_variable_of_three_says() {
        let cache = |vars: &[(&str, &str)]| config(vars).unwrap().cache_dir();
        let all = [
            ("FAIRTRIAL_CACHE_DIR", "/own"),
            ("XDG_CACHE_HOME", "/xdg"),
            ("HOME", "/home/me"),
        ];
        assert_eq!(cache(&all), Some("/own".into()));
        assert_eq!(cache(&all[1..]), Some("/xdg/fairtrial".into()));
        assert_eq!(cache(&all[2..]), Some("/home/me/.cache/fairtrial".into()));
        assert_eq!(cache(&[("XDG_CACHE_HOME", "relative")]), None);
    }

    /// EX-56, EX-87
    #[test]
    fn places_and_names_come_from_variables_or_the_system() {
        let set = config(&[("FAIRTRIAL_SPILL_DIR", "/x/y"), ("FAIRTRIAL_NODE_ID", "n7")]).unwrap();
        assert_eq!(
            (set.spill_dir, set.node_id),
            (PathBuf::from("/x/y"), "n7".to_owned())
        );
        let unset = config(&[("TMPDIR", "/t")]).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(
            unset.spill_dir,
            PathBuf::from(format!("/t/fairtrial-{uid}"))
        );
        assert!(!unset.node_id.is_empty());
    }
}
