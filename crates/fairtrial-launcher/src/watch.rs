//! Limits of one running call: when to look, and what a look says. Pure but for the look itself.

use fairtrial_exec::linux::cgroup::Leaf;
use fairtrial_exec::linux::run_delay::processors;
use fairtrial_exec::linux::tree_usage::{TreeUsage, tree_usage, usage_below};
use fairtrial_exec::protocol::launcher::{Cause, LeafCounts, Watch};

use crate::confine::Cell;
use crate::load::Load;

/// Between two looks at a tree's memory, processor time and processes.
const SAMPLE_NS: u64 = 10_000_000;
/// If it may be over its time sooner than that.
const SHORTEST_SAMPLE_NS: u64 = 2_000_000;
/// A hung interpreter gets this long to write its stacks.
const DUMP_NS: u64 = 5_000_000;
/// Or this long, if it hardly ran for want of a processor.
const STARVED_DUMP_NS: u64 = 100_000_000;

/// The engine gets this long to confirm that a call passed a limit: it may have answered while its tree was looked
/// at, and then the worker has another call by now.
const CONFIRM_NS: u64 = 500_000_000;

/// A call being watched.
#[derive(Debug)]
pub(crate) struct Watched {
    watch: Watch,
    /// Which dispatch.
    pub(crate) generation: u32,
    next_sample_ns: Option<u64>,
    cpu_base_ns: u64,
    pub(crate) load: Load,
    /// Processor time of orphans that ended outside its tree.
    pub(crate) orphans_ns: u64,
    /// When time is up, if only time with a processor counts.
    guard_ns: Option<u64>,
    /// Largest tree seen.
    pub(crate) peak_rss_bytes: Option<u64>,
    /// Set once a limit was passed.
    kill_at_ns: Option<u64>,
    /// Which, if that was found by looking.
    seen: Option<Cause>,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing yet.
    Nothing,
    /// Tell the engine, send this signal if any; the kill comes later.
    Warn(Cause, Option<i32>),
    /// Tell the engine and kill.
    Stop(Cause),
    /// The warning time is over: kill.
    Kill,
}

impl Watched {
    pub(crate) fn new(watch: Watch, generation: u32, now_ns: u64, pid: i32, cell: &Cell) -> Self {
        let samples = watch.memory_bytes.is_some()
            || watch.cpu_ns.is_some()
            || watch.processes.is_some()
            || watch.cpu_timeout.is_some();
        let leaf_ns = match watch.cpu_ns.is_some() || watch.cpu_timeout.is_some() {
            true => cell.counts().and_then(|counts| counts.cpu_ns),
            false => None,
        };
        let tree_ns = || usage(pid, cell).cpu_ns;
        let cpu_base_ns = match (watch.cpu_ns, leaf_ns) {
            (None, _) => 0,
            (Some(_), Some(leaf_ns)) => leaf_ns,
            (Some(_), None) => tree_ns(),
        };
        let load = Load::new(watch.cpu_timeout, now_ns, pid, tree_ns, leaf_ns);
        let next_sample_ns = samples.then_some(now_ns + SAMPLE_NS);
        let guard_ns = watch.deadline_ns.filter(|_| load.counts_cpu());
        Self {
            watch,
            generation,
            next_sample_ns,
            cpu_base_ns,
            load,
            orphans_ns: 0,
            guard_ns,
            peak_rss_bytes: None,
            kill_at_ns: None,
            seen: None,
        }
    }

    /// It is to end by then, whatever it does.
    pub(crate) fn kill_at(&mut self, at_ns: u64) {
        self.kill_at_ns = Some(at_ns);
    }

    /// When to look next.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        match self.kill_at_ns {
            Some(at) => Some(at),
            None => [self.watch.deadline_ns, self.next_sample_ns]
                .into_iter()
                .flatten()
                .min(),
        }
    }

    /// Decides what is due at `now_ns`, looking at the tree if it is time to.
    pub(crate) fn due(&mut self, now_ns: u64, pid: i32, cell: &Cell) -> Due {
        if let Some(at) = self.kill_at_ns {
            return if now_ns >= at {
                Due::Kill
            } else {
                Due::Nothing
            };
        }
        let is_past = |deadline: Option<u64>| deadline.is_some_and(|at| now_ns >= at);
        if let Some(guard_ns) = self.guard_ns.filter(|_| is_past(self.watch.deadline_ns)) {
            let waited_ns = self.load.waited_ns(now_ns, pid, cell);
            self.watch.deadline_ns = Some(guard_ns.saturating_add(waited_ns));
        }
        if is_past(self.watch.deadline_ns) {
            self.load.look_at_waits(now_ns, pid, cell);
            return self.time_is_up(now_ns);
        }
        if self.next_sample_ns.is_some_and(|at| now_ns >= at) {
            let leaf = cell.counts();
            let leaf_ns = leaf.as_ref().and_then(|counts| counts.cpu_ns);
            let counts_tree = self.load.counts_cpu() && leaf_ns.is_none();
            let usage = (outside(cell) || counts_tree).then(|| self.usage(pid, cell));
            self.load.look(now_ns, pid, cell);
            let tree_ns = usage.map_or(0, |usage| usage.cpu_ns);
            if self.load.is_over(tree_ns, leaf_ns, now_ns) {
                return self.time_is_up(now_ns);
            }
            let soon_ns = self.load.may_be_over_in_ns(processors());
            let sample_ns = soon_ns.map_or(SAMPLE_NS, |soon_ns| {
                soon_ns.clamp(SHORTEST_SAMPLE_NS, SAMPLE_NS)
            });
            self.next_sample_ns = Some(now_ns + sample_ns);
            let by_leaf = leaf.as_ref().and_then(|counts| self.judge_leaf(counts));
            let passed = by_leaf.or_else(|| usage.and_then(|usage| self.judge(&usage)));
            if let Some(cause) = passed {
                self.seen = passed;
                self.kill_at_ns = Some(now_ns + CONFIRM_NS);
                return Due::Warn(cause, None);
            }
        }
        Due::Nothing
    }

    /// Whether a tree that is about to be killed has, or was seen to have, more processes than it may: it may have answered
    /// before anybody looked, or was told (SB-26). Its cgroup, if it has one, counts by itself.
    pub(crate) fn last_look(&mut self, pid: i32, cell: &Cell) -> Option<Cause> {
        if self.watch.processes.is_none() || !outside(cell) {
            return None;
        }
        let seen = self.seen.or_else(|| self.judge(&self.usage(pid, cell)));
        seen.filter(|cause| *cause == Cause::ProcessLimit)
    }

    /// Whether looking at its tree is all that holds it to its limits.
    pub(crate) fn is_sampled(&self, cell: &Cell) -> bool {
        self.next_sample_ns.is_some() && outside(cell)
    }

    /// The engine's word that this dispatch runs past its deadline.
    pub(crate) fn confirmed(&mut self, generation: u32, now_ns: u64) -> Due {
        if generation == self.generation {
            self.deadline(now_ns)
        } else {
            Due::Nothing
        }
    }

    fn time_is_up(&mut self, now_ns: u64) -> Due {
        if self.watch.confirm {
            self.kill_at_ns = Some(now_ns + CONFIRM_NS);
            return Due::Warn(Cause::Timeout, None);
        }
        self.deadline(now_ns)
    }

    fn deadline(&mut self, now_ns: u64) -> Due {
        let (wait_ns, signal) = match (self.watch.grace_ns, self.watch.dump_signal) {
            (0, None) => {
                self.kill_at_ns = Some(now_ns);
                return Due::Stop(Cause::Timeout);
            }
            (0, dump) if self.load.was_starved(now_ns) => (STARVED_DUMP_NS, dump),
            (0, dump) => (DUMP_NS, dump),
            (grace, _) => (grace, Some(rustix::process::Signal::TERM.as_raw())),
        };
        self.kill_at_ns = Some(now_ns + wait_ns);
        Due::Warn(Cause::Timeout, signal)
    }

    /// What its tree uses, and what orphans used that left the tree and ended.
    fn usage(&self, pid: i32, cell: &Cell) -> TreeUsage {
        let mut usage = usage(pid, cell);
        usage.cpu_ns += self.orphans_ns;
        usage
    }

    /// The kernel keeps its limits on a cgroup by itself, and counts when it had to.
    fn judge_leaf(&self, counts: &LeafCounts) -> Option<Cause> {
        let cpu_ns = counts.cpu_ns.unwrap_or(0).saturating_sub(self.cpu_base_ns);
        if self.watch.cpu_ns.is_some_and(|limit| cpu_ns > limit) {
            Some(Cause::CpuLimit)
        } else if counts.memory_limit {
            Some(Cause::MemoryLimit)
        } else if counts.refused > 0 {
            Some(Cause::ProcessLimit)
        } else {
            None
        }
    }

    fn judge(&mut self, usage: &TreeUsage) -> Option<Cause> {
        self.peak_rss_bytes = self.peak_rss_bytes.max(Some(usage.rss_bytes));
        let above = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        if above(
            self.watch.cpu_ns,
            usage.cpu_ns.saturating_sub(self.cpu_base_ns),
        ) {
            Some(Cause::CpuLimit)
        } else if above(self.watch.memory_bytes, usage.rss_bytes) {
            Some(Cause::MemoryLimit)
        } else if above(self.watch.processes, usage.tasks) {
            Some(Cause::ProcessLimit)
        } else {
            None
        }
    }
}

/// What no cgroup limits is looked at from outside.
fn outside(cell: &Cell) -> bool {
    !cell.leaf.as_ref().is_some_and(Leaf::limits_all)
}

/// Of all in a tree: in a namespace of its own orphans are the init's.
fn usage(pid: i32, cell: &Cell) -> TreeUsage {
    let usage = tree_usage(pid.cast_unsigned());
    match &cell.init {
        Some(init) => usage.with(&usage_below(init.pid.cast_unsigned())),
        None => usage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairtrial_exec::protocol::launcher::CpuTimeout;

    fn watched(watch: Watch) -> Watched {
        Watched::new(watch, 1, 0, i32::MAX, &Cell::default())
    }

    /// EX-50
    #[test]
    fn with_grace_the_kill_comes_that_long_after_the_deadline() {
        let mut call = watched(Watch {
            deadline_ns: Some(100),
            grace_ns: 50,
            dump_signal: Some(40),
            ..Watch::default()
        });
        assert_eq!(call.due(99, i32::MAX, &Cell::default()), Due::Nothing);
        assert_eq!(
            call.due(100, i32::MAX, &Cell::default()),
            Due::Warn(Cause::Timeout, Some(15))
        );
        assert_eq!(call.wake_at_ns(), Some(150));
        assert_eq!(call.due(149, i32::MAX, &Cell::default()), Due::Nothing);
        assert_eq!(call.due(150, i32::MAX, &Cell::default()), Due::Kill);
    }

    /// EX-51
    #[test]
    fn a_hung_interpreter_is_asked_for_its_stacks_first() {
        let mut call = watched(Watch {
            deadline_ns: Some(100),
            dump_signal: Some(40),
            ..Watch::default()
        });
        assert_eq!(
            call.due(100, i32::MAX, &Cell::default()),
            Due::Warn(Cause::Timeout, Some(40))
        );
        assert_eq!(call.wake_at_ns(), Some(100 + DUMP_NS));
    }

    /// EX-30, SB-5: a worker with calls ahead may be at the next one, which nobody is to end for the last one's sake.
    #[test]
    fn a_worker_of_many_calls_is_stopped_when_the_engine_says_that_the_call_still_runs() {
        let mut call = watched(Watch {
            deadline_ns: Some(100),
            confirm: true,
            dump_signal: Some(40),
            ..Watch::default()
        });
        assert_eq!(
            call.due(100, i32::MAX, &Cell::default()),
            Due::Warn(Cause::Timeout, None)
        );
        assert_eq!(call.wake_at_ns(), Some(100 + CONFIRM_NS)); // SB-6: but not for ever
        assert_eq!(call.confirmed(2, 110), Due::Nothing);
        assert_eq!(call.confirmed(1, 110), Due::Warn(Cause::Timeout, Some(40)));
        assert_eq!(call.wake_at_ns(), Some(110 + DUMP_NS));
    }

    /// EX-70: the kill waits for the engine, but not for ever.
    #[test]
    fn a_limit_is_told_before_the_kill() {
        let mut call = watched(Watch {
            cpu_ns: Some(0),
            ..Watch::default()
        });
        let mine = std::process::id().cast_signed();
        assert_eq!(
            call.due(SAMPLE_NS, mine, &Cell::default()),
            Due::Warn(Cause::CpuLimit, None)
        );
        assert_eq!(call.wake_at_ns(), Some(SAMPLE_NS + CONFIRM_NS));
        assert_eq!(
            call.due(SAMPLE_NS + CONFIRM_NS, mine, &Cell::default()),
            Due::Kill
        );
    }

    /// FA-14
    #[test]
    fn processor_time_ends_a_call_however_long_it_took() {
        let mut call = watched(Watch {
            deadline_ns: Some(u64::MAX),
            cpu_timeout: Some(CpuTimeout {
                limit_ns: 0,
                most_ns: 0,
                before_ns: Some(0),
            }),
            ..Watch::default()
        });
        let mine = std::process::id().cast_signed();
        let due = call.due(SAMPLE_NS, mine, &Cell::default());
        assert_eq!(due, Due::Stop(Cause::Timeout));
    }

    /// FA-14
    #[test]
    fn a_sleeper_is_stopped_by_the_guard() {
        let mut call = watched(Watch {
            deadline_ns: Some(100),
            cpu_timeout: Some(CpuTimeout {
                limit_ns: u64::MAX,
                most_ns: u64::MAX,
                before_ns: Some(0),
            }),
            ..Watch::default()
        });
        let nobody = Cell::default();
        assert_eq!(call.due(99, i32::MAX, &nobody), Due::Nothing);
        assert_eq!(call.due(100, i32::MAX, &nobody), Due::Stop(Cause::Timeout));
    }

    /// SB-7
    #[test]
    fn limits_are_judged_in_order_of_precedence() {
        let mut call = watched(Watch {
            memory_bytes: Some(10),
            processes: Some(1),
            ..Watch::default()
        });
        assert_eq!(
            call.judge(&TreeUsage {
                rss_bytes: 11,
                tasks: 2,
                cpu_ns: 0
            }),
            Some(Cause::MemoryLimit)
        );
        assert_eq!(
            call.judge(&TreeUsage {
                rss_bytes: 10,
                tasks: 2,
                cpu_ns: 0
            }),
            Some(Cause::ProcessLimit)
        );
        assert_eq!(
            call.judge(&TreeUsage {
                rss_bytes: 1,
                tasks: 1,
                cpu_ns: 0
            }),
            None
        );
        assert_eq!(call.peak_rss_bytes, Some(11));
    }
}
