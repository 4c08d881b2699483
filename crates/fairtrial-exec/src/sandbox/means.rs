//! What this machine has for confining calls: found out once per process, or once per engine by trying it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::thread::{CapabilitySet, capabilities};

use super::Level;
use super::terms::{SHARED_MEMORY, is_in_shared_memory};
use crate::config::LocalConfig;
use crate::linux::cgroup::{Access, Part};
use crate::linux::errno;
use crate::linux::landlock;
use crate::linux::process::hard_limit;
use crate::linux::seccomp;
use crate::linux::user_namespace::SLOT_USERS;
use crate::protocol::launcher::Step;

/// Something that calls are confined by, and that a machine may lack: the links of the chains of fallbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Facility {
    /// Landlock.
    Landlock,
    /// Its scopes for signals and abstract sockets: Linux 6.12.
    LandlockScopes,
    /// Its control of truncation: Linux 6.2.
    LandlockTruncate,
    /// Control groups.
    Cgroups,
    /// Their limits on memory.
    CgroupMemory,
    /// Their limits on processes.
    CgroupProcesses,
    /// Their sharing of processors.
    CgroupShare,
    /// Their end all at once.
    CgroupKill,
    /// Namespaces, and what is seen in them.
    Namespaces,
    /// Filters of system calls.
    Seccomp,
}

impl Facility {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Landlock,
        Self::LandlockScopes,
        Self::LandlockTruncate,
        Self::Cgroups,
        Self::CgroupMemory,
        Self::CgroupProcesses,
        Self::CgroupShare,
        Self::CgroupKill,
        Self::Namespaces,
        Self::Seccomp,
    ];

    /// Its name, for options of tests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::LandlockScopes => "landlock-scopes",
            Self::LandlockTruncate => "landlock-truncate",
            Self::Cgroups => "cgroups",
            Self::CgroupMemory => "cgroup-memory",
            Self::CgroupProcesses => "cgroup-processes",
            Self::CgroupShare => "cgroup-share",
            Self::CgroupKill => "cgroup-kill",
            Self::Namespaces => "namespaces",
            Self::Seccomp => "seccomp",
        }
    }

    /// The part of control groups that it is.
    fn part(self) -> Option<Part> {
        match self {
            Self::CgroupMemory => Some(Part::Memory),
            Self::CgroupProcesses => Some(Part::Processes),
            Self::CgroupShare => Some(Part::CpuShare),
            Self::CgroupKill => Some(Part::Kill),
            _ => None,
        }
    }
}

/// Parts of control groups that an engine does without.
pub(crate) fn parts_withheld(withheld: &BTreeSet<Facility>) -> Vec<Part> {
    withheld
        .iter()
        .filter_map(|facility| facility.part())
        .collect()
}

/// Such means, for one engine.
#[derive(Debug, Default)]
pub(crate) struct Means {
    /// What it does without although it may be there: for tests of machines that lack it.
    withheld: BTreeSet<Facility>,
    /// Whether the namespaces of `strict` can be had, once that was tried.
    namespaces: OnceLock<Result<(), Lack>>,
    /// Whether those can be had by which `limits` makes up for other means, once that was tried.
    fallback: OnceLock<Result<(), Lack>>,
    /// Whether calls below `strict` can have mounts and quotas of their own, once that was tried.
    mounts: OnceLock<Result<(), Lack>>,
    /// How many calls the engine runs at a time.
    calls_at_a_time: u32,
    /// Whether scratch directories are elsewhere than in `/dev/shm`.
    own_memory: bool,
    /// The directory of all engines of this user, if scratch directories are there.
    engines_dir: Option<PathBuf>,
    /// Mechanisms of levels that did not hold when they were last tried.
    // A plain mutex: held to read or change one list, which is empty but on a machine that is broken.
    disproved: Mutex<Vec<(Level, &'static str)>>,
}

/// Namespaces of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// Of processes.
    Processes,
    /// All there are.
    World,
}

/// What can be tried of namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// Those of `strict`.
    World,
    /// Those by which `limits` makes up for other means.
    Fallback,
    /// Mounts and quotas of a call's own, below `strict`.
    Mounts,
}

impl Trial {
    /// The level whose calls need it first.
    pub(crate) fn level(self) -> Level {
        match self {
            Self::World => Level::Strict,
            Self::Fallback | Self::Mounts => Level::Limits,
        }
    }
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
    /// Those that an engine has on this machine.
    pub(crate) fn of(config: &LocalConfig) -> Self {
        let means = Self {
            withheld: config.without.clone(),
            calls_at_a_time: u32::try_from(config.max_workers).unwrap_or(u32::MAX),
            own_memory: !is_in_shared_memory(&config.spill_dir),
            engines_dir: config
                .has_usual_spill_dir()
                .then(|| config.spill_dir.clone()),
            ..Self::default()
        };
        if means.withholds(Facility::Namespaces) {
            let lack = Lack {
                mechanism: "userns",
                errno: None,
                hint: WITHHELD,
            };
            means.tried(Trial::World, Err(lack));
            means.tried(Trial::Fallback, Err(lack));
            means.tried(Trial::Mounts, Err(lack));
        }
        means
    }

    /// The kernel's version of Landlock; 0 is none.
    pub(crate) fn landlock(&self) -> u32 {
        let most = match () {
            () if self.withholds(Facility::Landlock) => 0,
            () if self.withholds(Facility::LandlockTruncate) => landlock::TRUNCATE_ABI - 1,
            () if self.withholds(Facility::LandlockScopes) => landlock::SCOPES_ABI - 1,
            () => u32::MAX,
        };
        Found::here().landlock.min(most)
    }

    /// Whether system calls can be filtered.
    pub(crate) fn seccomp(&self) -> bool {
        !self.withholds(Facility::Seccomp) && Found::here().seccomp
    }

    pub(crate) fn cgroups(&self) -> bool {
        !self.withholds(Facility::Cgroups) && !Found::here().few_descriptors
    }

    pub(crate) fn memory(&self) -> ByCgroup {
        self.by_cgroup(Facility::CgroupMemory, Found::here().memory)
    }

    pub(crate) fn processes(&self) -> ByCgroup {
        self.by_cgroup(Facility::CgroupProcesses, Found::here().processes)
    }

    pub(crate) fn cpu_time(&self) -> ByCgroup {
        self.by_cgroup(Facility::Cgroups, Found::here().cpu_time)
    }

    pub(crate) fn cpu_share(&self) -> ByCgroup {
        self.by_cgroup(Facility::CgroupShare, Found::here().cpu_share)
    }

    /// Whether the kernel shares processors by sessions where no control group does (`sched_autogroup_enabled`).
    pub(crate) fn groups_sessions(&self) -> bool {
        Found::here().groups_sessions
    }

    pub(crate) fn kill(&self) -> ByCgroup {
        self.by_cgroup(Facility::CgroupKill, Found::here().kill)
    }

    /// Which way to cgroups is used.
    pub(crate) fn cgroup_access(&self) -> &'static str {
        match self.cgroups() {
            true => Found::here().cgroup_access,
            false => "none",
        }
    }

    /// Whether `strict` calls can have users of their own.
    pub(crate) fn gives_users(&self) -> bool {
        Found::here().gives_users
    }

    pub(crate) fn root(&self) -> bool {
        Found::here().root
    }

    /// Whether a limit for a user's tasks holds for a call at that level, and is needed: no cgroup counts them. It never
    /// holds for root, which calls of root's are at `limits`.
    pub(crate) fn counts_users_at(&self, level: Level) -> bool {
        self.wants_users_counted(level)
            && match self.namespaces_at(level) {
                Some(Inside::World) => true,
                // Who could not mount had a user namespace to try that in.
                _ => self
                    .no_fallback()
                    .is_none_or(|lack| lack.mechanism == "mountns"),
            }
    }

    fn wants_users_counted(&self, level: Level) -> bool {
        let own_user = level == Level::Strict || !self.root();
        own_user && self.processes().is_err() && Found::here().counts_users
    }

    /// Which namespaces a call at that level has; as if all could be had as long as nobody tried.
    pub(crate) fn namespaces_at(&self, level: Level) -> Option<Inside> {
        match level {
            Level::Strict if self.no_namespaces().is_none() => Some(Inside::World),
            Level::None => None,
            _ => {
                let used = self.wants_processes_apart() && self.no_fallback().is_none();
                used.then_some(Inside::Processes)
            }
        }
    }

    /// Whether `limits` is better with a namespace of processes: nothing else keeps signals inside, or ends a tree at once.
    pub(crate) fn wants_processes_apart(&self) -> bool {
        self.landlock() < landlock::SCOPES_ABI || self.kill().is_err()
    }

    /// Why there are no namespaces for `strict`; none also as long as nobody tried.
    pub(crate) fn no_namespaces(&self) -> Option<Lack> {
        self.namespaces.get()?.err()
    }

    /// Why there are none for `limits`; none also as long as nobody tried.
    pub(crate) fn no_fallback(&self) -> Option<Lack> {
        self.fallback.get()?.err()
    }

    /// Whether a call at that level has mounts of its own, without a world of its own; as if that could be had as long
    /// as nobody tried.
    pub(crate) fn mounts_at(&self, level: Level) -> bool {
        level != Level::None
            && self.namespaces_at(level) != Some(Inside::World)
            && self.no_mounts().is_none()
    }

    /// Why calls below `strict` have no mounts of their own; none also as long as nobody tried.
    pub(crate) fn no_mounts(&self) -> Option<Lack> {
        self.mounts.get()?.err()
    }

    /// Whether a call that has mounts of its own can have `/dev/shm` of its own.
    pub(crate) fn own_memory(&self) -> bool {
        self.own_memory && Path::new(SHARED_MEMORY).is_dir()
    }

    /// The directory that holds the scratch directories of all engines of this user and nothing else, if it is used.
    pub(crate) fn engines_dir(&self) -> Option<&Path> {
        self.engines_dir.as_deref()
    }

    pub(crate) fn calls_at_a_time(&self) -> u32 {
        self.calls_at_a_time
    }

    /// What is to be tried before a call of that level can be judged, or set up.
    pub(crate) fn untried(&self, level: Level) -> Option<Trial> {
        let wants_world = level == Level::Strict;
        let falls_back = level != Level::None && !(wants_world && self.no_namespaces().is_none());
        let wants_fallback =
            falls_back && (self.wants_processes_apart() || self.wants_users_counted(Level::Limits));
        if wants_world && self.namespaces.get().is_none() {
            Some(Trial::World)
        } else if falls_back && self.mounts.get().is_none() {
            Some(Trial::Mounts)
        } else if wants_fallback && self.fallback.get().is_none() {
            Some(Trial::Fallback)
        } else {
            None
        }
    }

    /// What came of trying; the first answer stays.
    pub(crate) fn tried(&self, trial: Trial, result: Result<(), Lack>) {
        let known = match trial {
            Trial::World => &self.namespaces,
            Trial::Fallback => &self.fallback,
            Trial::Mounts => &self.mounts,
        };
        known.set(result).ok(); // the first answer is as good
    }

    /// Which mechanisms of a level did not hold when they were tried.
    pub(super) fn self_tested(&self, level: Level, mechanisms: &[&'static str]) {
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

    fn by_cgroup(&self, part: Facility, found: ByCgroup) -> ByCgroup {
        match self.cgroups() && !self.withholds(part) {
            true => found,
            false if Found::here().few_descriptors => Err(FEW_DESCRIPTORS),
            false => Err(WITHHELD),
        }
    }
}

/// A control group takes the launcher some twenty descriptors per call.
const FEWEST_FOR_CGROUPS: u64 = 128;
const FEW_DESCRIPTORS: &str =
    "too few descriptors for control groups: raise the hard limit (`ulimit -Hn`)";
const WITHHELD: &str = "this engine was set up to do without";

impl Lack {
    /// Trying told nothing.
    pub(crate) fn unknown() -> Self {
        Self {
            mechanism: "pidns",
            errno: None,
            hint: "trying it told nothing; see the log",
        }
    }

    /// From a step of setting up namespaces that the kernel refused.
    pub(crate) fn at(step: Step, number: i32) -> Self {
        let (mechanism, hint) = match (step, number) {
            (Step::Network, _) => ("network", CONTAINER_HINT),
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

/// Linux 5.12 and later let root be mapped only by a process with this capability, be it into a namespace of its own.
const SETFCAP_HINT: &str =
    "root needs the capability SETFCAP for it: add that, or run as another user";

/// The switch by which a machine forbids user namespaces, or what root lacks.
fn userns_hint() -> &'static str {
    if rustix::process::geteuid().is_root() && !has(CapabilitySet::SETFCAP) {
        return SETFCAP_HINT;
    }
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
        libc::ENOMEM | libc::EAGAIN | libc::EMFILE | libc::ENFILE | libc::ETIMEDOUT => false,
        _ => true,
    }
}

/// What is the same for all engines of a process.
#[derive(Debug)]
struct Found {
    landlock: u32,
    seccomp: bool,
    /// Whether the kernel counts a user's tasks in each user namespace.
    counts_users: bool,
    memory: ByCgroup,
    processes: ByCgroup,
    cpu_time: ByCgroup,
    cpu_share: ByCgroup,
    groups_sessions: bool,
    kill: ByCgroup,
    few_descriptors: bool,
    cgroup_access: &'static str,
    root: bool,
    gives_users: bool,
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
                seccomp: seccomp::is_there(),
                counts_users: kernel_version() >= (5, 14),
                memory: part(Part::Memory),
                processes: part(Part::Processes),
                cpu_time: part(Part::CpuTime),
                cpu_share: part(Part::CpuShare),
                groups_sessions: is_switched_on("/proc/sys/kernel/sched_autogroup_enabled"),
                kill: part(Part::Kill),
                few_descriptors: hard_limit(libc::RLIMIT_NOFILE) < FEWEST_FOR_CGROUPS,
                cgroup_access: access.kind().name(),
                root: rustix::process::geteuid().is_root(),
                gives_users: rustix::process::geteuid().is_root()
                    && may_change_users()
                    && is_mapped(SLOT_USERS.0)
                    && is_mapped(SLOT_USERS.0 + SLOT_USERS.1 - 1),
            }
        })
    }
}

/// Root in a container may lack the capability.
fn may_change_users() -> bool {
    has(CapabilitySet::SETUID | CapabilitySet::SETGID)
}

/// Whether the user namespace that this process is in has that user and group: some have one id only.
fn is_mapped(id: u32) -> bool {
    ["/proc/self/uid_map", "/proc/self/gid_map"]
        .iter()
        .all(|file| {
            let map = std::fs::read_to_string(file);
            map.is_ok_and(|map| maps(&map, id))
        })
}

/// Each line has the first id inside, the first outside, and how many.
fn maps(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse().ok());
        let (first, count): (Option<u64>, Option<u64>) = (numbers.next(), numbers.nth(1));
        let id = u64::from(id);
        first
            .zip(count)
            .is_some_and(|(first, count)| (first..first + count).contains(&id))
    })
}

fn has(needed: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

fn is_switched_on(switch: &str) -> bool {
    std::fs::read_to_string(switch).is_ok_and(|text| text.trim() == "1")
}

fn kernel_version() -> (u32, u32) {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RE-10: `strict` gives no user to a call where the engine's namespace has none to give.
    #[test]
    fn a_user_is_had_where_the_map_holds_it() {
        let all = "         0          0 4294967295\n";
        let one = "         0       1000          1\n";
        let two = "0 1000 1\n1 100000 65536\n";
        let first = SLOT_USERS.0;
        assert_eq!(
            [all, one, two].map(|map| maps(map, first)),
            [true, false, false]
        );
        assert_eq!(
            [all, one, two].map(|map| maps(map, 65534)),
            [true, false, true]
        );
        assert!(!maps("", 0) && !maps("nonsense\n", 0));
    }
}
