//! What a call used, read outside the worker: of a tree that is gone, of a worker that lives on.

use crate::linux::cpu_clock::{CpuTimes, process_cpu_ns, split};
use crate::linux::perf::Uncounted;
use crate::linux::proc_files::ProcFiles;
use crate::linux::proc_status::Status;
use crate::linux::proc_tree::descendants;
use crate::linux::run_delay::run_delay_ns;
use crate::metrics::{CpuSource, MeasuredBy, PeakSource};
use crate::protocol::launcher::{CpuUse, End};
use crate::sandbox::Counters;

/// Counters read outside the worker.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(super) user_ns: Option<u64>,
    pub(super) system_ns: Option<u64>,
    pub(super) cpu_source: Option<CpuSource>,
    pub(crate) peak: Option<(u64, PeakSource)>,
    /// Largest resident size of one process, as `wait4` told it.
    pub(super) max_rss_bytes: Option<u64>,
    pub(super) leaked: Option<u64>,
    pub(super) counters: Counters,
    pub(super) counted: Vec<Result<u64, Uncounted>>,
    pub(super) by: Option<MeasuredBy>,
    /// Ready to run and not running, since its process began.
    pub(super) wait_ns: Option<u64>,
    /// Of a time-out by processor time.
    pub(super) cpu_use: Option<CpuUse>,
    /// Resident now, of a worker that lives on.
    pub(crate) rss_bytes: Option<u64>,
}

impl Measured {
    /// Of a tree that is gone.
    pub(crate) fn of_dead(end: &End) -> Self {
        let of_leaf = end.leaf.as_ref().and_then(|leaf| leaf.peak_bytes);
        let peak = match (of_leaf, end.sampled_rss_bytes) {
            (Some(peak), _) => (peak, PeakSource::Cgroup),
            (None, Some(sampled)) if sampled > end.max_rss_bytes => (sampled, PeakSource::Sampled),
            (None, _) => (end.max_rss_bytes, PeakSource::Rusage),
        };
        // Of processes that nobody waited for only the cgroup knows.
        let all_ns = end.leaf.as_ref().and_then(|leaf| leaf.cpu_ns);
        let rest_ns = all_ns
            .unwrap_or(0)
            .saturating_sub(end.user_ns + end.system_ns);
        Self {
            user_ns: Some(end.user_ns + rest_ns),
            system_ns: Some(end.system_ns),
            cpu_source: Some(all_ns.map_or(CpuSource::Partial, |_| CpuSource::Cgroup)),
            peak: Some(peak),
            max_rss_bytes: Some(end.max_rss_bytes),
            leaked: Some(end.leaked),
            counters: counters(end),
            counted: end.counted.clone(),
            by: Some(MeasuredBy::Engine),
            wait_ns: end.wait_ns,
            cpu_use: end.cpu_use,
            rss_bytes: None,
        }
    }

    /// Of a call among others that were sent ahead: what the worker says, which runs trusted functions.
    pub(crate) fn by_worker(usage: Option<(u64, u64)>) -> Self {
        Self {
            user_ns: usage.map(|(user_ns, _)| user_ns),
            system_ns: usage.map(|(_, system_ns)| system_ns),
            cpu_source: usage.map(|_| CpuSource::Partial),
            by: usage.map(|_| MeasuredBy::Worker),
            ..Self::default()
        }
    }

    /// Of a worker between two calls.
    pub(crate) fn of_living(pid: u32, cpu_before_ns: Option<u64>, files: &mut ProcFiles) -> Self {
        let status = files.read().ok();
        let cpu_ns =
            cpu_before_ns.and_then(|before| Some(process_cpu_ns(pid).ok()?.saturating_sub(before)));
        let cpu = cpu_ns.map(|cpu_ns| share_out(cpu_ns, files));
        let leaked = match &status {
            Some(status) if has_no_child(files, status) => Some(0),
            _ => descendants(pid).ok().map(|below| below.len() as u64),
        };
        Self {
            user_ns: cpu.map(|cpu| cpu.user_ns),
            system_ns: cpu.map(|cpu| cpu.system_ns),
            max_rss_bytes: None,
            cpu_source: cpu.map(|_| CpuSource::Partial),
            peak: status.and_then(|status| Some((status.hwm_bytes?, PeakSource::Vmhwm))),
            leaked,
            counted: Vec::new(),
            counters: Counters::default(), // those of all its calls would mislead
            by: Some(MeasuredBy::Engine),
            wait_ns: run_delay_ns(pid),
            cpu_use: cpu_ns.map(|used_ns| CpuUse {
                used_ns,
                shared: true,
            }),
            rss_bytes: status.and_then(|status| status.rss_bytes),
        }
    }
}

fn counters(end: &End) -> Counters {
    let leaf = end.leaf.as_ref();
    Counters {
        voluntary_switches: Some(end.counts.voluntary_switches),
        involuntary_switches: Some(end.counts.involuntary_switches),
        minor_faults: Some(end.counts.minor_faults),
        major_faults: Some(end.counts.major_faults),
        throttled_ns: leaf.and_then(|leaf| leaf.throttled_ns),
        memory_stall_ns: leaf.and_then(|leaf| leaf.memory_stall_ns),
    }
}

fn has_no_child(files: &mut ProcFiles, status: &Status) -> bool {
    let children = files.children(status.threads);
    children.is_ok_and(|children| children.is_empty())
}

/// The sum is exact; the kernel knows the two parts only by ticks, which say nothing of a call shorter than one.
fn share_out(cpu_ns: u64, files: &mut ProcFiles) -> CpuTimes {
    const TICK_NS: u64 = 10_000_000;
    let stat = (cpu_ns >= TICK_NS).then(|| files.stat().ok()).flatten();
    match stat {
        Some(stat) => split(cpu_ns, &stat),
        None => CpuTimes {
            user_ns: cpu_ns,
            system_ns: 0,
        },
    }
}
