//! What this machine has for confining calls, found out once per process.

use std::sync::OnceLock;

use super::Level;
use crate::linux::cgroup::{Access, Part};
use crate::linux::landlock;
use crate::linux::user_namespace::UserNamespace;

/// Such means. By what a cgroup limits something, or what helps to have it.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    /// The kernel's version of Landlock; 0 is none.
    pub(crate) landlock: u32,
    pub(crate) memory: Result<&'static str, &'static str>,
    pub(crate) processes: Result<&'static str, &'static str>,
    pub(crate) cpu_time: Result<&'static str, &'static str>,
    pub(crate) kill: Result<&'static str, &'static str>,
    pub(crate) root: bool,
    /// Whether the kernel counts the tasks of a user by namespace, and lets anybody make one. Asked only if no cgroup
    /// counts them.
    pub(crate) counted_users: bool,
}

impl Means {
    /// As found at the first call that is confined.
    pub(crate) fn here() -> &'static Self {
        static MEANS: OnceLock<Means> = OnceLock::new();
        MEANS.get_or_init(|| {
            let access = Access::find();
            let part = |part| access.via(part).map_err(|reason| reason.hint);
            let processes = part(Part::Processes);
            Self {
                counted_users: processes.is_err() && counts_users(),
                landlock: landlock::abi().unwrap_or(0),
                memory: part(Part::Memory),
                processes,
                cpu_time: part(Part::CpuTime),
                kill: part(Part::Kill),
                root: rustix::process::geteuid().is_root(),
            }
        })
    }
}

impl Means {
    /// Whether a limit for a user's tasks holds for a call at that level. It never does for root, which calls of root's
    /// are at `limits`.
    pub(crate) fn counts_users_at(&self, level: Level) -> bool {
        self.counted_users && (level == Level::Strict || !self.root)
    }
}

fn counts_users() -> bool {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 14) && UserNamespace::create(0).is_ok()
}
