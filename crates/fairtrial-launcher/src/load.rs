//! How a call fared among others: how long it was ready to run and did not, and what it used of a time-out by processor
//! time.

use fairtrial_exec::linux::cgroup::Leaf;
use fairtrial_exec::linux::proc_tree::descendants;
use fairtrial_exec::linux::run_delay::{Waits, machine_busy_ns};
use fairtrial_exec::protocol::launcher::{CpuTimeout, CpuUse};

use crate::confine::Cell;

/// Others may use this much of one processor before they count as sharing: engine and launcher do, and clocks are coarse.
const UNSHARED_PART: u64 = 20;
const UNSHARED_NS: u64 = 10_000_000;

/// Between two looks at how long a call waits, if nothing depends on it: longer and longer ones.
const LOOKS_PER_AGE: u64 = 4;

/// Of one call.
#[derive(Debug)]
pub(crate) struct Load {
    began_ns: u64,
    waits: Waits,
    waits_looked_ns: u64,
    cpu: Option<CpuLoad>,
}

/// Of one whose time is counted by processors.
#[derive(Debug)]
struct CpuLoad {
    timeout: CpuTimeout,
    leader_before_ns: u64,
    leaf_before_ns: u64,
    waited_before_ns: u64,
    machine_before_ns: Option<u64>,
    used_ns: u64,
}

impl Load {
    pub(crate) fn new(
        timeout: Option<CpuTimeout>,
        now_ns: u64,
        pid: i32,
        used_ns: impl FnOnce() -> u64,
        leaf_ns: Option<u64>,
    ) -> Self {
        let mut waits = Waits::default();
        let cpu = timeout.map(|timeout| {
            waits.look_at(pid.cast_unsigned(), now_ns);
            CpuLoad {
                timeout,
                leader_before_ns: timeout.before_ns.unwrap_or_else(used_ns),
                leaf_before_ns: leaf_ns.unwrap_or(0),
                waited_before_ns: waits.total_ns().unwrap_or(0),
                machine_before_ns: machine_busy_ns().ok(),
                used_ns: 0,
            }
        });
        Self {
            began_ns: now_ns,
            waits,
            waits_looked_ns: now_ns,
            cpu,
        }
    }

    /// A look at how long the tree waited, if it is time for one.
    pub(crate) fn look(&mut self, now_ns: u64, pid: i32, cell: &Cell) {
        let since_ns = now_ns.saturating_sub(self.waits_looked_ns);
        let age_ns = now_ns.saturating_sub(self.began_ns);
        if self.cpu.is_some() || since_ns >= age_ns / LOOKS_PER_AGE {
            self.look_at_waits(now_ns, pid, cell);
        }
    }

    pub(crate) fn look_at_waits(&mut self, now_ns: u64, pid: i32, cell: &Cell) {
        self.waits_looked_ns = now_ns;
        self.waits.look_at_all(everybody(pid, cell), now_ns);
    }

    /// The leader ended and is not reaped.
    pub(crate) fn look_at_zombie(&mut self, pid: i32, now_ns: u64) {
        self.waits.look_at(pid.cast_unsigned(), now_ns);
    }

    /// Time waited since the leader began.
    pub(crate) fn wait_ns(&self) -> Option<u64> {
        self.waits.total_ns()
    }

    /// Whether it waited for a processor for half of its time.
    pub(crate) fn was_starved(&self, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(self.began_ns);
        self.waits
            .total_ns()
            .is_some_and(|waited| waited > age_ns / 2)
    }

    /// How much later than wall time has it the guard against sleepers is due.
    pub(crate) fn waited_ns(&mut self, now_ns: u64, pid: i32, cell: &Cell) -> u64 {
        self.look_at_waits(now_ns, pid, cell);
        let waited_ns = self.waits.total_ns().unwrap_or(0);
        let before_ns = self.cpu.as_ref().map_or(0, |cpu| cpu.waited_before_ns);
        waited_ns.saturating_sub(before_ns)
    }

    /// Time is counted by processors.
    pub(crate) fn counts_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    /// Whether it is to end for what its tree, or its cgroup, has used by now.
    pub(crate) fn is_over(&mut self, tree_ns: u64, leaf_ns: Option<u64>, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(self.began_ns);
        let Some(cpu) = &mut self.cpu else {
            return false;
        };
        cpu.saw(tree_ns, leaf_ns);
        let CpuTimeout {
            limit_ns, most_ns, ..
        } = cpu.timeout;
        cpu.used_ns > most_ns || (cpu.used_ns > limit_ns && !cpu.is_shared(age_ns))
    }

    /// When to look again at the latest: it cannot use more than all processors have.
    pub(crate) fn may_be_over_in_ns(&self, processors: u64) -> Option<u64> {
        let cpu = self.cpu.as_ref()?;
        let next_ns = match cpu.used_ns > cpu.timeout.limit_ns {
            true => cpu.timeout.most_ns,
            false => cpu.timeout.limit_ns,
        };
        Some(next_ns.saturating_sub(cpu.used_ns) / processors)
    }

    /// All that it used, when it is gone.
    pub(crate) fn used(
        &mut self,
        tree_ns: u64,
        leaf_ns: Option<u64>,
        ended_ns: u64,
    ) -> Option<CpuUse> {
        let age_ns = ended_ns.saturating_sub(self.began_ns);
        let cpu = self.cpu.as_mut()?;
        cpu.saw(tree_ns, leaf_ns);
        Some(CpuUse {
            used_ns: cpu.used_ns,
            shared: cpu.is_shared(age_ns),
        })
    }
}

impl CpuLoad {
    fn saw(&mut self, tree_ns: u64, leaf_ns: Option<u64>) {
        let by_tree_ns = tree_ns.saturating_sub(self.leader_before_ns);
        let by_leaf_ns = leaf_ns.unwrap_or(0).saturating_sub(self.leaf_before_ns);
        self.used_ns = self.used_ns.max(by_tree_ns).max(by_leaf_ns);
    }

    /// Whether others used the processors, or nobody can tell.
    fn is_shared(&self, age_ns: u64) -> bool {
        let (Some(before_ns), Ok(now_ns)) = (self.machine_before_ns, machine_busy_ns()) else {
            return true;
        };
        let others_ns = now_ns
            .saturating_sub(before_ns)
            .saturating_sub(self.used_ns);
        others_ns > age_ns / UNSHARED_PART + UNSHARED_NS
    }
}

/// The processes of a tree, its leader first.
pub(crate) fn everybody(pid: i32, cell: &Cell) -> Vec<u32> {
    let inside = cell.leaf.as_ref().map(Leaf::processes);
    if let Some(inside) = inside.filter(|inside| !inside.is_empty()) {
        let others = inside.into_iter().filter(|inside| *inside != pid);
        return [pid]
            .into_iter()
            .chain(others)
            .map(i32::cast_unsigned)
            .collect();
    }
    let below = |pid: i32| descendants(pid.cast_unsigned()).unwrap_or_default();
    let orphans = cell.init.iter().flat_map(|init| below(init.pid));
    [pid.cast_unsigned()]
        .into_iter()
        .chain(below(pid))
        .chain(orphans)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(limit_ns: u64, most_ns: u64) -> Load {
        let timeout = CpuTimeout {
            limit_ns,
            most_ns,
            before_ns: Some(1000),
        };
        Load::new(Some(timeout), 0, i32::MAX, || 0, Some(500))
    }

    /// FA-14: what a worker did before its call began is not the call's.
    #[test]
    fn what_was_used_before_is_not_counted() {
        let mut call = load(100, 100);
        assert!(!call.is_over(1100, Some(600), 0));
        assert_eq!(call.used(1050, None, 0).map(|it| it.used_ns), Some(100)); // it is never less than was seen
        assert!(call.is_over(1000, Some(601), 0));
        assert_eq!(
            call.used(1101, Some(700), 0).map(|it| it.used_ns),
            Some(200)
        );
    }

    /// FA-15: on a machine that others use it may go on, but not for ever.
    #[test]
    fn beyond_the_excess_it_is_over_whoever_shares_the_processors() {
        let mut call = load(100, 150);
        assert!(call.is_over(1151, None, 0));
        // So long ago that what others used since is next to nothing.
        let mut unshared = load(100, 150);
        assert!(unshared.is_over(1101, None, u64::MAX));
        assert!(
            !unshared
                .used(1101, None, u64::MAX)
                .is_some_and(|it| it.shared)
        );
    }

    /// FA-14: no more processors can be used than there are.
    #[test]
    fn the_next_look_is_when_it_may_be_over() {
        let mut call = load(100, 150);
        assert_eq!(call.may_be_over_in_ns(4), Some(25));
        call.is_over(1120, None, 0);
        assert_eq!(call.may_be_over_in_ns(1), Some(30));
    }
}
