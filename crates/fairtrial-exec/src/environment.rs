//! The environment of what the engine starts: built from lists, never inherited.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::config::{LocalConfig, available_cpus};

/// Passed on from the host unless a call says otherwise.
const ALLOWED: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CUDA_VISIBLE_DEVICES",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
const ALLOWED_PREFIX: &str = "LC_";

/// Libraries start a thread per CPU in each worker unless these say otherwise.
const THREAD_CAPS: [&str; 7] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
];

/// Where a worker's id is written in a zygote's environment; the worker overwrites it in place.
pub(crate) const WORKER_ID_PLACE: &str = "000000000000";

/// Changes to an environment: a value, or `None` to unset.
pub(crate) type Changes = BTreeMap<OsString, Option<OsString>>;

/// What every process of a backend starts from.
#[derive(Clone, Debug)]
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The host's allowed variables and the thread caps.
    pub(crate) fn new(config: &LocalConfig) -> Self {
        let allowed = |name: &OsStr| {
            let has = |list: &[String]| list.iter().any(|entry| name == OsStr::new(entry));
            let starts = |prefix: &str| name.as_bytes().starts_with(prefix.as_bytes());
            ALLOWED.iter().any(|entry| name == OsStr::new(entry))
                || has(&config.env_allow)
                || starts(ALLOWED_PREFIX)
                || config.env_prefixes.iter().any(|prefix| starts(prefix))
        };
        let mut vars: BTreeMap<_, _> = config.host_env.clone();
        let caps: Vec<_> = THREAD_CAPS
            .iter()
            .filter_map(|name| vars.remove_entry(OsStr::new(name)))
            .collect();
        vars.retain(|name, _| allowed(name));
        let share = (available_cpus() / config.max_workers).max(1).to_string();
        vars.extend(
            THREAD_CAPS
                .iter()
                .map(|name| (name.into(), share.clone().into())),
        );
        vars.extend(caps); // what the user set stays
        vars.insert("FAIRTRIAL_NODE_ID".into(), config.node_id.clone().into());
        Self(vars)
    }

    /// With a call's changes, as `NAME=value` entries for `execve`.
    pub(crate) fn entries(&self, changes: &Changes) -> Vec<Vec<u8>> {
        self.with(changes)
            .into_iter()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
            .collect()
    }

    /// One variable after a call's changes.
    pub(crate) fn get(&self, name: &str, changes: &Changes) -> Option<OsString> {
        match changes.get(OsStr::new(name)) {
            Some(value) => value.clone(),
            None => self.0.get(OsStr::new(name)).cloned(),
        }
    }

    fn with(&self, changes: &Changes) -> BTreeMap<OsString, OsString> {
        let mut vars = self.0.clone();
        for (name, value) in changes {
            match value {
                Some(value) => vars.insert(name.into(), value.into()),
                None => vars.remove(name),
            };
        }
        vars
    }

    /// Where `program` may be, in order: itself if it names a place, else the entries of the call's `PATH`.
    pub(crate) fn search(&self, program: impl AsRef<OsStr>, changes: &Changes) -> Vec<Vec<u8>> {
        let program = program.as_ref();
        if program.as_bytes().contains(&b'/') {
            return vec![program.as_bytes().to_vec()];
        }
        let path = self
            .get("PATH", changes)
            .unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
            .into_vec();
        path.split(|byte| *byte == b':')
            .map(|dir| {
                if dir.is_empty() {
                    program.as_bytes().to_vec()
                } else {
                    [dir, b"/", program.as_bytes()].concat()
                }
            })
            .collect()
    }
}

/// Whether an interpreter reads this variable only once, at its start: a call that sets it needs another zygote.
pub(crate) fn is_read_at_startup(name: &OsStr) -> bool {
    let starts = |prefix: &str| name.as_bytes().starts_with(prefix.as_bytes());
    starts("PYTHON") || starts("LD_") || THREAD_CAPS.iter().any(|cap| name == *cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(vars: &[(&str, &str)], change: impl Fn(&mut LocalConfig)) -> Environment {
        let vars = vars
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let mut config = LocalConfig::from_vars(vars).unwrap();
        config.node_id = "node".into();
        change(&mut config);
        Environment::new(&config)
    }

    fn names(environment: &Environment) -> Vec<&str> {
        let mine = |name: &&str| !THREAD_CAPS.contains(name) && *name != "FAIRTRIAL_NODE_ID";
        environment
            .0
            .keys()
            .map(|name| name.to_str().unwrap())
            .filter(mine)
            .collect()
    }

    /// EX-38, EX-39
    #[test]
    fn only_listed_variables_pass() {
        let host = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("PYTHONPATH", "/y"),
            ("Q", "1"),
        ];
        assert_eq!(names(&environment(&host, |_| {})), ["LC_ALL", "PATH"]);
    }

    /// EX-41
    #[test]
    fn a_backend_extends_the_lists() {
        let host = [
            ("MY_TOKEN", "x"),
            ("MINE_A", "1"),
            ("MINE_B", "2"),
            ("OTHER", "3"),
        ];
        let environment = environment(&host, |config| {
            config.env_allow = vec!["MY_TOKEN".into()];
            config.env_prefixes = vec!["MINE_".into()];
        });
        assert_eq!(names(&environment), ["MINE_A", "MINE_B", "MY_TOKEN"]);
    }

    /// EX-44
    #[test]
    fn thread_caps_share_the_cpus_unless_the_user_set_them() {
        let environment = environment(&[("OMP_NUM_THREADS", "9")], |config| {
            config.max_workers = 1000
        });
        let none = Changes::new();
        assert_eq!(environment.get("OMP_NUM_THREADS", &none).unwrap(), "9");
        assert_eq!(environment.get("OPENBLAS_NUM_THREADS", &none).unwrap(), "1");
    }

    /// EX-42
    #[test]
    fn a_call_sets_and_unsets() {
        let environment = environment(&[("PATH", "/bin"), ("HOME", "/h")], |_| {});
        let changes = Changes::from([("HOME".into(), None), ("NEW".into(), Some("1".into()))]);
        assert_eq!(environment.get("HOME", &changes), None);
        let entries = environment.entries(&changes);
        assert!(
            entries.contains(&b"NEW=1".to_vec())
                && !entries.iter().any(|entry| entry.starts_with(b"HOME="))
        );
    }

    /// EX-95
    #[test]
    fn a_program_is_searched_in_the_calls_path() {
        let environment = environment(&[("PATH", "/a:/b")], |_| {});
        let changes = Changes::from([("PATH".into(), Some("/c".into()))]);
        assert_eq!(
            environment.search("x", &Changes::new()),
            [b"/a/x".to_vec(), b"/b/x".to_vec()]
        );
        assert_eq!(environment.search("x", &changes), [b"/c/x".to_vec()]);
        assert_eq!(environment.search("./x", &changes), [b"./x".to_vec()]);
    }
}
