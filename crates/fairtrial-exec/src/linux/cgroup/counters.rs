//! What the kernel counted for a leaf.

use std::fmt;

/// Which cgroup interface something comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// The older, with a hierarchy per controller.
    V1,
    /// The unified one.
    V2,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "cgroup v1",
            Self::V2 => "cgroup v2",
        })
    }
}

/// The most memory that was charged at once, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Of all processes, page cache and kernel memory included.
    pub bytes: u64,
    /// Which interface it was read from.
    pub source: Version,
}

/// Counts of one call, from its begin on. What was not measured is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// How often the leaf's own memory limit could not be kept by reclaiming (v1: `failcnt`, which counts tries).
    pub oom: Option<u64>,
    /// Processes of the leaf that were killed for want of memory, whoever's want it was.
    pub oom_kill: Option<u64>,
    /// Forks and threads refused for the number of processes.
    pub refused: Option<u64>,
    /// None also where the kernel cannot reset it and an earlier call had more.
    pub peak: Option<Peak>,
    /// Charged already when the call began: page cache that an earlier one left. At most a little (see `Leaves`).
    pub residue_bytes: Option<u64>,
    /// Processor time.
    pub cpu_ns: Option<u64>,
    /// Time in which the leaf had to wait because a processor quota, its own or one above, was used up.
    pub throttled_ns: Option<u64>,
    /// Time in which some task waited for memory.
    pub memory_stall_ns: Option<u64>,
}

impl Counters {
    /// What came since `base`; peak and residue are not sums and stay.
    pub(super) fn since(self, base: &Self) -> Self {
        let less = |now: Option<u64>, then: Option<u64>| {
            now.map(|now| now.saturating_sub(then.unwrap_or(0)))
        };
        Self {
            oom: less(self.oom, base.oom),
            oom_kill: less(self.oom_kill, base.oom_kill),
            refused: less(self.refused, base.refused),
            cpu_ns: less(self.cpu_ns, base.cpu_ns),
            throttled_ns: less(self.throttled_ns, base.throttled_ns),
            memory_stall_ns: less(self.memory_stall_ns, base.memory_stall_ns),
            ..self
        }
    }

    /// Whether a process was killed for the leaf's own limit; a kill without `oom` is the host's shortage (SB-30).
    #[must_use]
    pub fn memory_limit_killed(&self) -> bool {
        self.oom_kill.unwrap_or(0) > 0 && self.oom.unwrap_or(0) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SB-30
    #[test]
    fn a_kill_without_the_own_limit_is_the_hosts() {
        let counted = |oom, oom_kill| Counters {
            oom,
            oom_kill,
            ..Counters::default()
        };
        assert!(counted(Some(3), Some(1)).memory_limit_killed());
        assert!(!counted(Some(0), Some(1)).memory_limit_killed());
        assert!(!counted(Some(3), Some(0)).memory_limit_killed());
        assert!(!counted(None, None).memory_limit_killed());
        let since = counted(Some(5), None).since(&counted(Some(4), Some(9)));
        assert_eq!((since.oom, since.oom_kill), (Some(1), None));
    }
}
