//! Which cgroups can be had here, found out by trying; the first way that works is taken.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::attempt::{Attempt, Found};
use super::counters::Version;
use super::host::Host;
use super::reason::Reason;

/// A way to cgroups, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A v2 subtree that is ours.
    Delegated,
    /// A directory of our own at the root of v2.
    RootV2,
    /// v1 controllers beneath our own cgroups, with v2 beside them where it is mounted.
    Hybrid,
    /// None at all.
    None,
}

impl Kind {
    /// The word for the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delegated => "delegated v2 subtree",
            Self::RootV2 => "root on v2",
            Self::Hybrid => "root on hybrid",
            Self::None => "none",
        }
    }
}

/// What a leaf can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Part {
    /// Limits memory and counts its peak.
    Memory,
    /// Limits processes and threads.
    Processes,
    /// Counts processor time.
    CpuTime,
    /// Shares processors by leaves, however many processes and sessions each has.
    CpuShare,
    /// Kills all at once.
    Kill,
}

/// Which cgroups there are, and why not more.
#[derive(Debug)]
pub struct Access {
    kind: Kind,
    /// v2 first, where it is used.
    hierarchies: Vec<Hierarchy>,
    missing: Vec<(Part, Reason)>,
    rejected: Vec<(Kind, Reason)>,
}

/// A place where engines' cgroups are made.
#[derive(Debug)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    /// Engines' cgroups are made in it.
    pub(super) base: OwnedFd,
    pub(super) mount: PathBuf,
    pub(super) parts: Vec<Part>,
    /// v2 controllers to hand on.
    pub(super) controllers: Vec<&'static str>,
}

impl Part {
    /// All there are.
    pub const ALL: [Self; 5] = [
        Self::Memory,
        Self::Processes,
        Self::CpuTime,
        Self::CpuShare,
        Self::Kill,
    ];

    /// The file that makes it possible.
    pub(super) fn file(self, version: Version) -> Option<&'static str> {
        Some(match (version, self) {
            (Version::V2, Self::Memory) => "memory.max",
            (Version::V1, Self::Memory) => "memory.limit_in_bytes",
            (_, Self::Processes) => "pids.max",
            (Version::V2, Self::CpuTime) => "cpu.stat",
            (Version::V1, Self::CpuTime) => "cpuacct.usage",
            (Version::V2, Self::CpuShare) => "cpu.weight",
            (Version::V1, Self::CpuShare) => "cpu.shares",
            (Version::V2, Self::Kill) => "cgroup.kill",
            (Version::V1, Self::Kill) => return None,
        })
    }

    /// The v2 controller to enable for it.
    pub(super) fn controller(self) -> Option<&'static str> {
        match self {
            Self::Memory => Some("memory"),
            Self::Processes => Some("pids"),
            // Counted without it; with it throttling is too.
            Self::CpuTime | Self::CpuShare => Some("cpu"),
            Self::Kill => None,
        }
    }

    fn via(self, version: Version) -> &'static str {
        match (version, self) {
            (Version::V2, Self::Memory) => "cgroup v2 memory.max",
            (Version::V1, Self::Memory) => "cgroup v1 memory.limit_in_bytes",
            (Version::V2, Self::Processes) => "cgroup v2 pids.max",
            (Version::V1, Self::Processes) => "cgroup v1 pids.max",
            (Version::V2, Self::CpuTime) => "cgroup v2 cpu.stat",
            (Version::V1, Self::CpuTime) => "cgroup v1 cpuacct.usage",
            (Version::V2, Self::CpuShare) => "cgroup v2 cpu.weight",
            (Version::V1, Self::CpuShare) => "cgroup v1 cpu.shares",
            (_, Self::Kill) => "cgroup v2 cgroup.kill",
        }
    }
}

impl Access {
    /// The first way that limits memory and processes; else the first of those that do most.
    #[must_use]
    pub fn find() -> Self {
        Self::find_without(&[])
    }

    /// The same with parts left out.
    #[must_use]
    pub fn find_without(parts: &[Part]) -> Self {
        Self::search(&[Kind::Delegated, Kind::RootV2, Kind::Hybrid], parts)
    }

    /// This way or none, with parts left out. Without `Kill` the v2 side of a hybrid host is not used at all.
    #[must_use]
    pub fn forced(kind: Kind, without: &[Part]) -> Self {
        Self::search(&[kind], without)
    }

    /// Which way it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// By what means a part is there, or why it is not.
    pub fn via(&self, part: Part) -> Result<&'static str, &Reason> {
        let with = self
            .hierarchies
            .iter()
            .find(|hierarchy| hierarchy.parts.contains(&part));
        match with {
            Some(hierarchy) => Ok(part.via(hierarchy.version)),
            None => Err(&self
                .missing
                .iter()
                .find(|(missing, _)| *missing == part)
                .expect("every part is there or missing")
                .1),
        }
    }

    /// The ways that were tried and do not work, or do less, each with its reason.
    #[must_use]
    pub fn rejected(&self) -> &[(Kind, Reason)] {
        &self.rejected
    }

    pub(super) fn hierarchies(&self) -> &[Hierarchy] {
        &self.hierarchies
    }

    fn search(kinds: &[Kind], without: &[Part]) -> Self {
        match Host::read() {
            Ok(host) => Self::search_on(&host, kinds, without),
            Err(error) => {
                let reason =
                    Reason::from_io(&error, "read", Path::new("/proc/thread-self/mountinfo"));
                Self::none(&reason, Vec::new())
            }
        }
    }

    pub(super) fn search_on(host: &Host, kinds: &[Kind], without: &[Part]) -> Self {
        let mut rejected = Vec::new();
        let mut best: Option<Self> = None;
        for &kind in kinds {
            let found = Attempt { host, without }.make(kind);
            match found.map(|found| Self::new(kind, found, without)) {
                Err(reason) => rejected.push((kind, reason)),
                Ok(found) if best.as_ref().is_none_or(|best| found.does_more_than(best)) => {
                    let limits = found.limits();
                    rejected.extend(best.replace(found).map(Self::into_rejected));
                    if limits {
                        break;
                    }
                }
                Ok(found) => rejected.push(found.into_rejected()),
            }
        }
        match best {
            Some(best) => Self { rejected, ..best },
            None => {
                let last = rejected.last().map_or_else(
                    || Reason::new("not looked for", ""),
                    |(_, reason)| reason.clone(),
                );
                Self::none(&last, rejected)
            }
        }
    }

    fn new(kind: Kind, found: Found, without: &[Part]) -> Self {
        let reasons = Part::ALL
            .iter()
            .filter_map(|&part| Some((part, found.reason(part, without)?)));
        Self {
            kind,
            missing: reasons.collect(),
            rejected: Vec::new(),
            hierarchies: found.hierarchies,
        }
    }

    fn none(reason: &Reason, rejected: Vec<(Kind, Reason)>) -> Self {
        Self {
            kind: Kind::None,
            hierarchies: Vec::new(),
            missing: Part::ALL.map(|part| (part, reason.clone())).into(),
            rejected,
        }
    }

    fn has(&self, part: Part) -> bool {
        self.via(part).is_ok()
    }

    fn limits(&self) -> bool {
        self.has(Part::Memory) && self.has(Part::Processes)
    }

    fn does_more_than(&self, other: &Self) -> bool {
        let parts = |access: &Self| Part::ALL.iter().filter(|part| access.has(**part)).count();
        (self.limits(), parts(self)) > (other.limits(), parts(other))
    }

    /// As the way not taken: what it lacks most.
    fn into_rejected(self) -> (Kind, Reason) {
        let lacking = self.missing.into_iter().next().map(|(_, reason)| reason);
        (
            self.kind,
            lacking.unwrap_or_else(|| Reason::new("another way does as much", "")),
        )
    }
}
