//! What this machine has for confining calls: found out once per process, or once per engine by trying it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::Level;
use crate::linux::cgroup::{Access, Part};
use crate::linux::errno;
use crate::linux::landlock;
use crate::linux::user_namespace::UserNamespace;
use crate::protocol::launcher::Step;

/// Something that calls are confined by, and that a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Facility {
    /// Landlock.
    Landlock,
    /// Control groups.
    Cgroups,
    /// Namespaces, and what is seen in them.
    Namespaces,
}

/// Such means, for one engine.
#[derive(Debug, Default)]
pub(crate) struct Means {
    /// What it does without although it may be there: for tests of machines that lack it.
    withheld: BTreeSet<Facility>,
    /// Whether namespaces can be had, once that was tried.
    namespaces: OnceLock<Result<(), Lack>>,
    /// Mechanisms of levels that did not hold when they were last tried.
    // A plain mutex: held to read or change one list, which is empty but on a machine that is broken.
    disproved: Mutex<Vec<(Level, &'static str)>>,
}

/// Why namespaces cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    /// The mechanism that failed.
    pub(crate) mechanism: &'static str,
    /// The kernel's answer, by name.
    pub(crate) errno: Option<&'static str>,
    pub(crate) hint: &'static str,
}

/// By what a cgroup does something, or what helps to have that.
type ByCgroup = Result<&'static str, &'static str>;

impl Means {
    /// Those of this machine, but for what is withheld.
    pub(crate) fn without(withheld: &BTreeSet<Facility>) -> Self {
        let means = Self {
            withheld: withheld.clone(),
            ..Self::default()
        };
        if means.withholds(Facility::Namespaces) {
            means.tried_namespaces(Err(Lack {
                mechanism: "userns",
                errno: None,
                hint: WITHHELD,
            }));
        }
        means
    }

    /// The kernel's version of Landlock; 0 is none.
    pub(crate) fn landlock(&self) -> u32 {
        match self.withholds(Facility::Landlock) {
            true => 0,
            false => Found::here().landlock,
        }
    }

    pub(crate) fn cgroups(&self) -> bool {
        !self.withholds(Facility::Cgroups)
    }

    pub(crate) fn memory(&self) -> ByCgroup {
        self.by_cgroup(Found::here().memory)
    }

    pub(crate) fn processes(&self) -> ByCgroup {
        self.by_cgroup(Found::here().processes)
    }

    pub(crate) fn cpu_time(&self) -> ByCgroup {
        self.by_cgroup(Found::here().cpu_time)
    }

    pub(crate) fn kill(&self) -> ByCgroup {
        self.by_cgroup(Found::here().kill)
    }

    /// Which way to cgroups is used.
    pub(crate) fn cgroup_access(&self) -> &'static str {
        match self.cgroups() {
            true => Found::here().cgroup_access,
            false => "none",
        }
    }

    pub(crate) fn root(&self) -> bool {
        Found::here().root
    }

    /// Whether a limit for a user's tasks holds for a call at that level, and is needed: no cgroup counts them. It never
    /// holds for root, which calls of root's are at `limits`.
    pub(crate) fn counts_users_at(&self, level: Level) -> bool {
        static COUNTS: OnceLock<bool> = OnceLock::new();
        let own_user = level == Level::Strict || !self.root();
        own_user
            && self.processes().is_err()
            && self.no_namespaces().is_none()
            && *COUNTS.get_or_init(counts_users)
    }

    /// Why there are no namespaces; none also as long as nobody tried.
    pub(crate) fn no_namespaces(&self) -> Option<Lack> {
        self.namespaces.get()?.err()
    }

    /// Whether anybody tried.
    pub(crate) fn knows_namespaces(&self) -> bool {
        self.namespaces.get().is_some()
    }

    /// What came of trying; the first answer stays.
    pub(crate) fn tried_namespaces(&self, result: Result<(), Lack>) {
        self.namespaces.set(result).ok(); // the first answer is as good
    }

    /// Which mechanisms of a level did not hold when they were tried.
    pub(super) fn tried(&self, level: Level, mechanisms: &[&'static str]) {
        let mut disproved = self.disproved();
        disproved.retain(|(of, _)| *of != level);
        disproved.extend(mechanisms.iter().map(|name| (level, *name)));
    }

    /// Mechanisms that are known not to hold, each with the level.
    pub(super) fn disproved(&self) -> MutexGuard<'_, Vec<(Level, &'static str)>> {
        let disproved = self.disproved.lock();
        disproved.unwrap_or_else(PoisonError::into_inner) // whatever panicked, a list is a list
    }

    fn withholds(&self, facility: Facility) -> bool {
        self.withheld.contains(&facility)
    }

    fn by_cgroup(&self, found: ByCgroup) -> ByCgroup {
        if self.cgroups() { found } else { Err(WITHHELD) }
    }
}

const WITHHELD: &str = "this engine was set up to do without";

impl Lack {
    /// From a step of setting up namespaces that the kernel refused.
    pub(crate) fn at(step: Step, number: i32) -> Self {
        let (mechanism, hint) = match (step, number) {
            (Step::Network, _) => ("network", CONTAINER_HINT),
            (Step::Seccomp, _) => ("seccomp", "needs a kernel with `CONFIG_SECCOMP_FILTER`"),
            // The init ended before anybody entered: it could not mount what the call is to see.
            (Step::Mounts, _) | (_, libc::ESRCH) => ("mountns", CONTAINER_HINT),
            _ => ("userns", userns_hint()),
        };
        Self {
            mechanism,
            errno: Some(errno::name(number)),
            hint,
        }
    }
}

const CONTAINER_HINT: &str = "in a container, run that with `--security-opt seccomp=unconfined \
                              --security-opt systempaths=unconfined`";

/// The switch by which a machine forbids user namespaces.
fn userns_hint() -> &'static str {
    let switches = [
        (
            "/proc/sys/user/max_user_namespaces",
            "0",
            "user.max_user_namespaces=0",
        ),
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            "kernel.unprivileged_userns_clone=0",
        ),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=1",
        ),
    ];
    let set = |file: &str, value: &str| {
        // What is not there forbids nothing.
        std::fs::read_to_string(file).is_ok_and(|text| text.trim() == value)
    };
    let found = switches.iter().find(|(file, value, _)| set(file, value));
    found.map_or(CONTAINER_HINT, |(.., hint)| hint)
}

/// Whether a step that failed so can never succeed here, rather than for want of room just now.
pub(crate) fn is_lasting(number: i32) -> bool {
    match number {
        // Also said where none is allowed at all.
        libc::ENOSPC => userns_hint() != CONTAINER_HINT,
        libc::ENOMEM | libc::EAGAIN | libc::EMFILE | libc::ENFILE => false,
        _ => true,
    }
}

/// What is the same for all engines of a process.
#[derive(Debug)]
struct Found {
    landlock: u32,
    memory: ByCgroup,
    processes: ByCgroup,
    cpu_time: ByCgroup,
    kill: ByCgroup,
    cgroup_access: &'static str,
    root: bool,
}

impl Found {
    /// As found at the first call that is confined.
    fn here() -> &'static Self {
        static FOUND: OnceLock<Found> = OnceLock::new();
        FOUND.get_or_init(|| {
            let access = Access::find();
            let part = |part| access.via(part).map_err(|reason| reason.hint);
            Self {
                landlock: landlock::abi().unwrap_or(0),
                memory: part(Part::Memory),
                processes: part(Part::Processes),
                cpu_time: part(Part::CpuTime),
                kill: part(Part::Kill),
                cgroup_access: access.kind().name(),
                root: rustix::process::geteuid().is_root(),
            }
        })
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
