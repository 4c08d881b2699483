//! Why something about cgroups cannot be had, for the report: what was tried, the errno's name, what helps.

use std::fmt;
use std::path::Path;

use rustix::io::Errno;

use crate::linux::errno as errnos;

/// Why a way to cgroups, or a controller, is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The errno's name, where the kernel said one.
    pub errno: Option<&'static str>,
    /// What stood in the way.
    pub what: String,
    /// What helps; empty if nothing is known to.
    pub hint: &'static str,
}

impl Reason {
    pub(super) fn new(what: impl Into<String>, hint: &'static str) -> Self {
        Self {
            errno: None,
            what: what.into(),
            hint,
        }
    }

    /// From a refusal by the kernel.
    pub(super) fn refused(errno: Errno, attempt: &str, path: &Path) -> Self {
        Self {
            errno: Some(errnos::name(errno.raw_os_error())),
            what: format!("cannot {attempt} `{}`", path.display()),
            hint: hint(errno),
        }
    }

    pub(super) fn from_io(error: &std::io::Error, attempt: &str, path: &Path) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => Self::refused(errno, attempt, path),
            None => Self::new(
                format!("cannot {attempt} `{}`: {error}", path.display()),
                "",
            ),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(errno) = self.errno {
            write!(f, "{errno}: ")?;
        }
        f.write_str(&self.what)?;
        if !self.hint.is_empty() {
            write!(f, " (hint: {})", self.hint)?;
        }
        Ok(())
    }
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::ROFS => "the container's cgroups are read-only; give it writable ones",
        Errno::ACCESS | Errno::PERM => "run under `systemd-run --user --scope -p Delegate=yes`",
        Errno::BUSY => {
            "a cgroup that holds processes cannot hand on controllers: start `fairtrial`, which moves itself below, \
             alone in one (`systemd-run --user --scope -p Delegate=yes fairtrial ...`), and a Python host in a group below"
        }
        Errno::AGAIN | Errno::NOSPC => {
            "too many cgroups: see `cgroup.max.descendants` and `cgroup.max.depth`"
        }
        _ => "",
    }
}
