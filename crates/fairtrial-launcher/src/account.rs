//! Deaths: who ended, what they used, what they left behind, and when the engine is told.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use fairtrial_exec::linux::cgroup::Leaf;
use fairtrial_exec::linux::monotonic::now_ns;
use fairtrial_exec::linux::perf::Counter;
use fairtrial_exec::linux::wait::{Reaped, any_ended, reap, reap_any};
use fairtrial_exec::linux::{remove, signals};
use fairtrial_exec::protocol::launcher::{FromLauncher, TaskId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::orphans::{self, Orphan};
use crate::serve::Launcher;
use crate::task::{Dead, Role, SURVIVOR_NS, Task};

/// More than end at once but by intent.
const MOST_REAPED: u32 = 64;

impl Launcher {
    /// Takes in children that ended, and only so many at a time: a call can make them end faster than they are taken in,
    /// and deadlines are due meanwhile.
    pub(crate) fn reap(&mut self) -> io::Result<()> {
        signals::drain(&self.signals);
        self.has_more_to_reap = false;
        for taken in 0.. {
            let Some(pid) = any_ended()? else { break };
            if taken == MOST_REAPED {
                self.has_more_to_reap = true;
                break;
            }
            if let Some(task) = self.by_pid.get(&pid).and_then(|id| self.tasks.get_mut(id)) {
                task.look_at_zombie();
            }
            let session = match self.by_pid.contains_key(&pid) {
                true => None,
                false => Orphan::session(pid),
            };
            let Some(reaped) = reap(pid)? else { continue };
            self.strays.reaped(reaped.pid);
            match self.by_pid.remove(&reaped.pid) {
                Some(id) => self.leader_died(id, reaped)?,
                None => {
                    let orphan = Orphan::new(reaped, session);
                    match self.forks.is_empty() {
                        true => orphans::charge(&mut self.tasks, &orphan),
                        false => drop(self.unclaimed.insert(reaped.pid, orphan)),
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn leader_died(&mut self, id: TaskId, reaped: Reaped) -> io::Result<()> {
        let Some(task) = self.tasks.get_mut(&id) else {
            // An init whose worker no zygote has told of yet.
            let mut forks = self.forks.values_mut();
            if let Some(fork) = forks.find(|fork| fork.task == Some(id)) {
                fork.cell.lose(reaped.pid);
            }
            self.forget_spare(reaped.pid);
            return Ok(());
        };
        if task.pid != reaped.pid {
            // A zygote's first process, whose child carries on; or the init, with whom all in its namespaces ended.
            task.cell.lose(reaped.pid);
            return Ok(());
        }
        if matches!(&task.role, Role::Starting { report, .. } if has_news(report)) {
            // It may have ended before anybody read why it could not begin: that comes first.
            self.started(id)?;
        }
        if reaped.status != 0 && self.tasks.get(&id).is_some_and(|task| !task.killed) {
            self.look_at_shortages_at_once();
        }
        let Some(task) = self.tasks.get_mut(&id) else {
            return Ok(());
        };
        if matches!(task.role, Role::Zygote { .. }) {
            // Before it announced itself its child may carry on; the end of its socket tells.
            task.ended = Some(reaped);
            let announced = !self
                .forks
                .values()
                .any(|fork| fork.zygote == id && fork.task.is_none());
            return if announced {
                self.zygote_lost(id)
            } else {
                Ok(())
            };
        }
        let host_memory = reaped.was_killed()
            && !task.killed
            && task.cell.leaf.is_none()
            && self.memory_kills.any_since(task.started_ns);
        task.bury(&reaped);
        if let Some(dead) = &mut task.dead {
            dead.end.host_memory = host_memory;
            let shortage = self.shortages.since(task.started_ns);
            dead.end.shortage = dead.end.shortage.or(shortage);
        }
        task.cell.vacate();
        task.cell.kill(reaped.pid, false);
        Ok(())
    }

    /// Ends what dead leaders left behind, and reports those whose tree is gone.
    pub(crate) fn settle_deaths(&mut self) -> io::Result<()> {
        if self.forks.is_empty() && !self.unclaimed.is_empty() {
            for orphan in std::mem::take(&mut self.unclaimed).into_values() {
                orphans::charge(&mut self.tasks, &orphan);
            }
        }
        let looks = std::mem::take(&mut self.looks_for_strays);
        let settled = self.tasks.values().all(|task| task.dead.is_none()) && self.strays.is_empty();
        if settled && !looks {
            return Ok(());
        }
        let first_open_fork = self.forks.keys().next().copied();
        let (tasks, forks) = (&self.tasks, &self.forks);
        let living = || {
            let tasks = tasks.values().filter(|task| task.dead.is_none());
            // A worker can be quicker to leave an orphan than its zygote to tell of it.
            let cells = tasks
                .map(|task| &task.cell)
                .chain(forks.values().map(|fork| &fork.cell));
            let leaves = cells.filter_map(|cell| cell.leaf.as_ref());
            leaves.flat_map(Leaf::processes).collect()
        };
        let killed = self
            .strays
            .sweep(&self.by_pid, first_open_fork, self.last_fork, living)?;
        let mut dying = self
            .tasks
            .values_mut()
            .filter_map(|task| task.dead.as_mut());
        if let Some(dead) = dying.find(|dead| dead.counts_strays) {
            dead.end.leaked += killed;
        }
        let now = now_ns();
        let clear = self.strays.is_empty();
        let gone: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, task)| {
                let clear = clear && task.cell.is_empty();
                task.dead
                    .as_ref()
                    .is_some_and(|dead| clear || now >= dead.give_up_ns)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            let Some(Task {
                dead: Some(Dead { mut end, .. }),
                mut cell,
                counters,
                mut watched,
                ..
            }) = self.tasks.remove(&id)
            else {
                continue;
            };
            if let Some(watched) = &mut watched {
                let leaf_ns = end.leaf.as_ref().and_then(|leaf| leaf.cpu_ns);
                let tree_ns = end.user_ns + end.system_ns;
                end.cpu_use = watched.load.used(tree_ns, leaf_ns, end.at_ns);
            }
            // SB-29: what would not go is told.
            let inside = cell.leaf.as_ref().filter(|leaf| !leaf.is_empty());
            end.survivors =
                self.strays.len() + inside.map_or(0, |leaf| leaf.processes().len() as u64);
            // Read last: what its orphans did is in them, too.
            let read = |counter: Result<Counter, _>| counter.and_then(|counter| counter.read());
            end.counted = counters.into_iter().map(read).collect();
            let upper = cell.take_upper();
            self.abandon(cell);
            self.tell_with(&FromLauncher::Exited { task: id, end }, upper.as_ref())?;
        }
        Ok(())
    }

    /// The engine is gone: nothing of it may stay.
    pub(crate) fn end_everything(&mut self) {
        for task in self.tasks.values_mut() {
            task.kill();
        }
        for fork in std::mem::take(&mut self.forks).into_values() {
            self.abandon(fork.cell);
        }
        let give_up = now_ns() + SURVIVOR_NS;
        self.by_pid.clear(); // from here on every child is a stray
        while now_ns() < give_up {
            while let Ok(Some(reaped)) = reap_any() {
                self.strays.reaped(reaped.pid);
            }
            let swept = self.strays.sweep(&self.by_pid, None, 0, HashSet::new);
            if swept.is_err() || self.strays.is_empty() {
                break;
            }
            let mut wait = [rustix::event::PollFd::new(
                &self.signals,
                rustix::event::PollFlags::IN,
            )];
            let pause = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            };
            rustix::event::poll(&mut wait, Some(&pause)).ok(); // woken early or late, the next look decides
            signals::drain(&self.signals);
        }
        if let Some(leaves) = self.leaves.take() {
            leaves.end().ok(); // nobody is left to tell; the next engine sweeps
        }
        if let Some((parent, name)) = self.scratch.take() {
            remove::remove_tree(parent.as_fd(), name).ok(); // nobody is left to tell
        }
    }
}

/// Whether there is something to read, or nobody left to write it.
fn has_news(pipe: &OwnedFd) -> bool {
    let mut news = [PollFd::new(pipe, PollFlags::IN)];
    let no_time = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut news, Some(&no_time)).is_ok_and(|count| count > 0)
}
