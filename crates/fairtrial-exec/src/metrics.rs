//! Numbers about a call, each with where it came from. What was not measured is `None`, never 0.

use std::fmt;

use crate::measuring::Count;

/// What a call cost, as seen from outside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// From when it began, by the clock reading in its acknowledgement, to when its reply was read.
    pub wall_ns: Option<u64>,
    /// Submission to acknowledgement.
    pub queue_ns: Option<u64>,
    /// Processor time in user mode.
    pub user_ns: Option<u64>,
    /// Processor time in the kernel.
    pub system_ns: Option<u64>,
    /// What counted the processor time.
    pub cpu_source: Option<CpuSource>,
    /// Largest resident size.
    pub peak_rss_bytes: Option<u64>,
    /// What measured the peak.
    pub peak_source: Option<PeakSource>,
    /// The acknowledgement, as Unix time: the monotonic clock anchored once at engine start.
    pub started_at_ns: Option<u64>,
    /// The reply, on the same clock.
    pub finished_at_ns: Option<u64>,
    /// Process that ran it.
    pub worker_pid: Option<u32>,
    /// 12 hex digits: stable for a process, new for each.
    pub worker_id: Option<String>,
    /// Machine that ran it.
    pub node_id: Option<String>,
    /// Resident size at the acknowledgement, preloaded modules included.
    pub base_rss_bytes: Option<u64>,
    /// Processes alive when the call ended, besides the worker.
    pub leaked_processes: Option<u64>,
    /// Who read the counters.
    pub measured_by: Option<MeasuredBy>,
    /// Time in which it was ready to run and no processor was free for it.
    pub wait_ns: Option<u64>,
    /// Who told that time.
    pub wait_source: Option<WaitSource>,
    /// How near it came to a limit: the nearest one.
    pub margin: Option<Margin>,
    /// What the call asked to have counted, in that order.
    pub counted: Vec<Count>,
}

/// What was used of a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Margin {
    /// The limit, as users write it: `timeout_s`, `limits.memory_bytes`.
    pub limit: String,
    /// The part of it that was used: 1 is all.
    pub used: f64,
}

/// Who told how long a call waited for a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitSource {
    /// The scheduler's account of each thread, in `/proc/PID/schedstat`.
    Schedstat,
}

impl fmt::Display for WaitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Schedstat => "schedstat",
        })
    }
}

impl Metrics {
    /// Processor time in user mode and in the kernel.
    #[must_use]
    pub fn cpu_ns(&self) -> Option<u64> {
        Some(self.user_ns?.saturating_add(self.system_ns?))
    }

    /// A large part of its time it was ready to run and did not.
    #[must_use]
    pub fn was_starved(&self) -> bool {
        let times = self.wait_ns.zip(self.wall_ns);
        times.is_some_and(|(wait_ns, wall_ns)| wait_ns > wall_ns / STARVED_PART)
    }
}

/// Who waited for more than this part of its time was starved.
const STARVED_PART: u64 = 10;

/// What counted processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuSource {
    /// The call's own control group: every process of it.
    Cgroup,
    /// The kernel's account of processes that were waited for. A program can have children that nobody waits for, whose
    /// time is then missing.
    Partial,
}

impl fmt::Display for CpuSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup => "cgroup",
            Self::Partial => "partial",
        })
    }
}

/// What measured peak memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeakSource {
    /// The call's own control group.
    Cgroup,
    /// The kernel's high-water mark, reset before the call.
    Vmhwm,
    /// `wait4` of the worker.
    Rusage,
    /// The launcher's samples of the tree.
    Sampled,
}

/// Who read the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredBy {
    /// The engine, from outside.
    Engine,
    /// The worker itself: prefetched calls of trusted functions.
    Worker,
}

impl fmt::Display for PeakSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup => "cgroup",
            Self::Vmhwm => "vmhwm",
            Self::Rusage => "rusage",
            Self::Sampled => "sampled",
        })
    }
}

impl fmt::Display for MeasuredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Engine => "engine",
            Self::Worker => "worker",
        })
    }
}
