//! What this machine has for confining calls, found out once per process.

use std::sync::OnceLock;

use crate::linux::cgroup::{Access, Part};
use crate::linux::landlock;

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
}

impl Means {
    /// As found at the first call that is confined.
    pub(crate) fn here() -> &'static Self {
        static MEANS: OnceLock<Means> = OnceLock::new();
        MEANS.get_or_init(|| {
            let access = Access::find();
            let part = |part| access.via(part).map_err(|reason| reason.hint);
            Self {
                landlock: landlock::abi().unwrap_or(0),
                memory: part(Part::Memory),
                processes: part(Part::Processes),
                cpu_time: part(Part::CpuTime),
                kill: part(Part::Kill),
                root: rustix::process::geteuid().is_root(),
            }
        })
    }
}
