//! A processor for one task, which all other tasks leave until its end.

use std::collections::HashMap;

use fairtrial_exec::linux::affinity;
use fairtrial_exec::linux::proc_tree::threads;
use fairtrial_exec::protocol::launcher::{Confine, TaskId};
use rustix::process::Pid;

use crate::load::everybody;
use crate::serve::Launcher;

/// What runs while others are moved may have forked: those are found by another look.
const LOOKS: usize = 3;

/// Who has a processor to itself, and what the others had before.
pub(crate) struct Alone {
    task: TaskId,
    cpu: usize,
    /// The processors that others leave: this one, and those that share its core if others have any besides.
    cleared: Vec<usize>,
    /// Of this process, and so of what it starts.
    usual: Vec<usize>,
    /// The same without those.
    reduced: Vec<usize>,
    /// Threads that were moved, with what they had.
    moved: HashMap<u32, Vec<usize>>,
}

impl Alone {
    /// Of these processors the last: the first has most of a machine's interrupts. With one there is nowhere to go.
    fn choose(
        task: TaskId,
        usual: Vec<usize>,
        wanted: &[u32],
        siblings: impl Fn(usize) -> Vec<usize>,
    ) -> Option<Self> {
        let is_wanted = |cpu: &usize| {
            wanted.is_empty() || u32::try_from(*cpu).is_ok_and(|cpu| wanted.contains(&cpu))
        };
        let cpu = usual.iter().copied().rfind(is_wanted)?;
        let mut cleared = siblings(cpu);
        if !cleared.contains(&cpu) || without(&usual, &cleared).is_empty() {
            cleared = vec![cpu];
        }
        let reduced = without(&usual, &cleared);
        Some(Self {
            task,
            cpu,
            cleared,
            usual,
            reduced,
            moved: HashMap::new(),
        })
    }

    /// Moves these processes off the processor. Whoever has no other, or is gone, stays. Tells whether any was moved.
    fn keep_off(&mut self, processes: Vec<u32>) -> bool {
        let mut any = false;
        for thread in processes.into_iter().flat_map(threads) {
            let Some((handle, had)) = masked(thread) else {
                continue;
            };
            let stays = without(&had, &self.cleared);
            if !stays.is_empty() && stays != had && affinity::set(Some(handle), &stays).is_ok() {
                self.moved.entry(thread).or_insert(had);
                any = true;
            }
        }
        any
    }

    /// Lets these processes back. What they started meanwhile has what they had.
    fn let_back(&self, processes: Vec<u32>) {
        let leader = processes.first();
        let had = leader.and_then(|leader| self.moved.get(leader));
        let had = had.unwrap_or(&self.usual);
        for thread in processes.into_iter().flat_map(threads) {
            let Some((handle, has)) = masked(thread) else {
                continue;
            };
            let had = self.moved.get(&thread).unwrap_or(had);
            if has == without(had, &self.cleared) {
                affinity::set(Some(handle), had).ok(); // it ended just now
            }
        }
    }
}

fn without(cpus: &[usize], cleared: &[usize]) -> Vec<usize> {
    let others = cpus.iter().copied();
    others.filter(|other| !cleared.contains(other)).collect()
}

fn masked(thread: u32) -> Option<(Pid, Vec<usize>)> {
    let handle = Pid::from_raw(thread.cast_signed())?;
    Some((handle, affinity::of(Some(handle)).ok()?))
}

impl Launcher {
    /// Gives a task that is about to be made a processor to itself. What is confined goes there by itself.
    pub(crate) fn clear_processor_for(&mut self, task: TaskId, confine: Option<&mut Confine>) {
        let wanted = confine.as_deref().map_or(&[][..], |confine| &confine.cpus);
        let cpu = self.clear_processor(task, wanted);
        if let (Some(cpu), Some(confine)) = (cpu, confine) {
            confine.cpus = vec![cpu];
        }
    }

    /// `wanted` are the only ones it may use, if any are named. Tells which it has, if any can be had.
    fn clear_processor(&mut self, task: TaskId, wanted: &[u32]) -> Option<u32> {
        self.release_processor();
        let mut alone = Alone::choose(task, affinity::of(None).ok()?, wanted, affinity::siblings)?;
        if !alone.reduced.is_empty() {
            affinity::set(None, &alone.reduced).ok(); // then what it starts meanwhile may run there, too
        }
        for _ in 0..LOOKS {
            let others = self.tasks.values().filter(|task| task.dead.is_none());
            let others = others.flat_map(|task| everybody(task.pid, &task.cell));
            if !alone.keep_off(others.collect()) {
                break;
            }
        }
        let cpu = u32::try_from(alone.cpu).ok()?;
        self.alone = Some(alone);
        Some(cpu)
    }

    /// A process of a task exists: one that has a processor goes there, others stay off it.
    pub(crate) fn place(&mut self, task: TaskId, pid: i32) {
        let Some(alone) = &mut self.alone else { return };
        if alone.task == task {
            let cpu = [alone.cpu];
            affinity::set(Pid::from_raw(pid), &cpu).ok(); // it ended just now
        } else {
            alone.keep_off(vec![pid.cast_unsigned()]); // its zygote may have forked it before it was moved
        }
    }

    /// Whether the task that has a processor to itself is gone, or never was.
    pub(crate) fn frees_processor(&self) -> bool {
        self.alone.as_ref().is_some_and(|alone| {
            let to_come = self
                .forks
                .values()
                .any(|fork| fork.task == Some(alone.task));
            !to_come && !self.tasks.contains_key(&alone.task)
        })
    }

    pub(crate) fn release_processor(&mut self) {
        let Some(alone) = self.alone.take() else {
            return;
        };
        affinity::set(None, &alone.usual).ok(); // processors can be taken offline; then it keeps what it has
        for task in self.tasks.values().filter(|task| task.dead.is_none()) {
            alone.let_back(everybody(task.pid, &task.cell));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FA-15
    #[test]
    fn it_is_the_last_processor_of_those_that_the_call_may_use() {
        let cpu = |usual: &[usize], wanted: &[u32]| {
            let alone = Alone::choose(TaskId(1), usual.to_vec(), wanted, |_| Vec::new())?;
            Some((alone.cpu, alone.reduced))
        };
        assert_eq!(cpu(&[0, 1, 3], &[]), Some((3, vec![0, 1])));
        assert_eq!(cpu(&[0, 1, 3], &[1, 7]), Some((1, vec![0, 3])));
        assert_eq!(cpu(&[2], &[]), Some((2, vec![])));
        assert_eq!(cpu(&[0, 1], &[7]), None);
    }

    /// FA-15: a busy sibling takes up to half of a core.
    #[test]
    fn others_leave_the_whole_core_if_they_have_another() {
        let cleared = |usual: &[usize]| {
            let siblings = |cpu| vec![cpu % 4, cpu % 4 + 4];
            let alone = Alone::choose(TaskId(1), usual.to_vec(), &[], siblings);
            alone.map(|alone| (alone.cleared, alone.reduced))
        };
        assert_eq!(cleared(&[2, 3, 7]), Some((vec![3, 7], vec![2])));
        assert_eq!(cleared(&[3, 7]), Some((vec![7], vec![3])));
    }
}
