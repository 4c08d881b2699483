//! Want of memory: which call the kernel is to end first, and whether it has ended any.

use std::collections::HashMap;

use fairtrial_exec::linux::machine_memory::MemoryBound;
use fairtrial_exec::linux::monotonic::now_ns;
use fairtrial_exec::linux::proc_status::Stat;

use crate::load::everybody;
use crate::task::Task;

/// Points the kernel at the call that takes most. Left alone the kernel ends the largest process, and a call of many
/// small ones outlives its rivals.
pub(crate) struct KillOrder {
    bound: MemoryBound,
    next_look_ns: u64,
}

/// Between two looks.
const LOOK_NS: u64 = 20_000_000;
/// Memory is short from this share of the bound on.
const SHORT: f64 = 0.7;
/// Scores of the processes of the largest call, and of all others. The kernel adds that many thousandths of the bound to
/// a process's size. Neither is below the score of the engine's own processes.
const FIRST: &str = "1000";
const LATER: &str = "500";

impl KillOrder {
    pub(crate) fn new() -> Self {
        Self {
            bound: MemoryBound::read(),
            next_look_ns: 0,
        }
    }

    /// A look at how much is left, and at the calls if that is little.
    pub(crate) fn look<'a>(&mut self, now_ns: u64, calls: impl Iterator<Item = &'a Task>) {
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns + LOOK_NS;
        if self.bound.taken().is_some_and(|taken| taken > SHORT) {
            let calls = calls.map(|task| everybody(task.pid, &task.cell)).collect();
            for (pid, score) in scores(calls, resident_pages) {
                // A process that has just ended needs none.
                std::fs::write(format!("/proc/{pid}/oom_score_adj"), score).ok();
            }
        }
    }
}

fn resident_pages(pid: u32) -> u64 {
    Stat::read(pid).map_or(0, |stat| stat.rss_pages)
}

fn scores(calls: Vec<Vec<u32>>, pages: impl Fn(u32) -> u64) -> HashMap<u32, &'static str> {
    let total = |call: &Vec<u32>| call.iter().map(|pid| pages(*pid)).sum::<u64>();
    let largest = (0..calls.len()).max_by_key(|call| total(&calls[*call]));
    let scored = calls.into_iter().enumerate().flat_map(|(call, processes)| {
        let score = if Some(call) == largest { FIRST } else { LATER };
        processes.into_iter().map(move |pid| (pid, score))
    });
    scored.collect()
}

/// The kernel's count as last read, and when it was seen to have grown.
pub(crate) struct MemoryKills {
    count: Option<u64>,
    grew_at_ns: Option<u64>,
}

impl MemoryKills {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self {
            count: read(),
            grew_at_ns: None,
        }
    }

    /// Whether anything was killed since then, perhaps on behalf of another container: whoever asks runs the call again.
    pub(crate) fn any_since(&mut self, began_ns: u64) -> bool {
        self.update(read(), now_ns());
        self.grew_at_ns.is_some_and(|at| at >= began_ns)
    }

    fn update(&mut self, count: Option<u64>, now_ns: u64) {
        if count > self.count && self.count.is_some() {
            self.grew_at_ns = Some(now_ns);
        }
        self.count = count.or(self.count);
    }
}

fn read() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FA-7
    #[test]
    fn the_call_that_takes_most_is_first_however_small_its_processes_are() {
        let pages = |pid: u32| u64::from(pid);
        let scored = scores(vec![vec![60], vec![25, 26, 27], vec![]], pages);
        let first = |pid| scored[&pid] == FIRST;
        assert_eq!([60, 25, 26, 27].map(first), [false, true, true, true]);
        assert!(scores(Vec::new(), pages).is_empty());
    }

    /// FA-7
    #[test]
    fn a_kill_counts_for_all_that_ran_when_it_was_seen_and_for_nothing_that_began_later() {
        let mut kills = MemoryKills {
            count: Some(3),
            grew_at_ns: None,
        };
        kills.update(Some(3), 10);
        assert_eq!(kills.grew_at_ns, None);
        kills.update(Some(4), 20);
        kills.update(None, 30);
        kills.update(Some(4), 40);
        assert_eq!((kills.count, kills.grew_at_ns), (Some(4), Some(20)));
    }

    /// FA-7
    #[test]
    fn this_kernel_counts_them() {
        assert!(read().is_some(), "`oom_kill` in /proc/vmstat: Linux 4.13");
    }
}
