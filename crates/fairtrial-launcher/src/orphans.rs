//! Orphans: processes that a call left behind and that ended as children of the launcher. Their processor time is their
//! call's, dead or alive. A call gets the time of an orphan that is surely its own; other time is dropped, so that no
//! call pays for another.

use std::collections::HashMap;

use fairtrial_exec::linux::proc_status::Stat;
use fairtrial_exec::linux::wait::{Counts, Reaped};
use fairtrial_exec::protocol::launcher::{End, TaskId};

use crate::task::{Role, Task};

/// A process that nobody asked for, after its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orphan {
    reaped: Reaped,
    session: Option<i32>,
}

impl Orphan {
    /// The session of a child that ended and is not reaped yet: later nobody can tell.
    pub(crate) fn session(pid: i32) -> Option<i32> {
        Some(Stat::read(pid.cast_unsigned()).ok()?.session)
    }

    pub(crate) fn new(reaped: Reaped, session: Option<i32>) -> Self {
        Self { reaped, session }
    }

    /// The reaped process: it may be a worker that its zygote has not told of yet.
    pub(crate) fn into_reaped(self) -> Reaped {
        self.reaped
    }
}

/// What the orphans of one task used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OrphanUsage {
    user_ns: u64,
    system_ns: u64,
    max_rss_bytes: u64,
    counts: Counts,
}

impl OrphanUsage {
    fn add(&mut self, reaped: &Reaped) {
        self.user_ns += reaped.user_ns;
        self.system_ns += reaped.system_ns;
        self.max_rss_bytes = self.max_rss_bytes.max(reaped.max_rss_bytes);
        self.counts.add(&reaped.counts);
    }

    /// Adds what they used to what their leader did.
    pub(crate) fn add_to(&self, end: &mut End) {
        end.user_ns += self.user_ns;
        end.system_ns += self.system_ns;
        end.max_rss_bytes = end.max_rss_bytes.max(self.max_rss_bytes);
        end.counts.add(&self.counts);
    }
}

/// Charges the task that left it, if that is certain.
pub(crate) fn charge(tasks: &mut HashMap<TaskId, Task>, orphan: &Orphan) {
    let Some(task) = owner(tasks, orphan).and_then(|id| tasks.get_mut(&id)) else {
        return;
    };
    let mut usage = OrphanUsage::default();
    usage.add(&orphan.reaped);
    if let Some(dead) = &mut task.dead {
        usage.add_to(&mut dead.end);
        return;
    }
    task.orphans.add(&orphan.reaped);
    if let Some(watched) = &mut task.watched {
        watched.orphans_ns += usage.user_ns + usage.system_ns;
    }
}

/// A session has the number of the leader that made it, and no process can enter one from outside. An orphan with a
/// session of its own can only be told to be a call's if there is no other.
fn owner(tasks: &HashMap<TaskId, Task>, orphan: &Orphan) -> Option<TaskId> {
    let is_call = |task: &Task| !matches!(task.role, Role::Zygote { .. });
    let session = orphan.session;
    let leads = |task: &&Task| session == Some(task.pid);
    if let Some(found) = tasks.iter().find(|(_, task)| leads(task)) {
        return is_call(found.1).then_some(*found.0);
    }
    let mut calls = tasks.iter().filter(|(_, task)| is_call(task));
    match (calls.next(), calls.next()) {
        (Some((id, _)), None) => Some(*id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaped(user_ns: u64) -> Reaped {
        Reaped {
            pid: 99,
            status: 0,
            user_ns,
            system_ns: 1,
            max_rss_bytes: 5,
            counts: Counts::default(),
        }
    }

    fn tasks(pids: &[i32]) -> HashMap<TaskId, Task> {
        let task = |pid: &i32| {
            (
                TaskId(pid.cast_unsigned().into()),
                Task::new(*pid, None, Role::Leader),
            )
        };
        pids.iter().map(task).collect()
    }

    fn charged(tasks: &HashMap<TaskId, Task>) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = tasks
            .iter()
            .map(|(id, task)| (id.0, task.orphans.user_ns))
            .collect();
        all.sort_unstable();
        all
    }

    /// FA-9
    #[test]
    fn an_orphan_is_charged_to_the_leader_of_its_session() {
        let mut two = tasks(&[10, 20]);
        charge(&mut two, &Orphan::new(reaped(7), Some(20)));
        assert_eq!(charged(&two), [(10, 0), (20, 7)]);
    }

    /// FA-9: an innocent never pays for another call.
    #[test]
    fn an_orphan_with_a_session_of_its_own_is_charged_to_the_only_call_or_to_none() {
        let mut two = tasks(&[10, 20]);
        charge(&mut two, &Orphan::new(reaped(7), Some(99)));
        charge(&mut two, &Orphan::new(reaped(7), None));
        assert_eq!(charged(&two), [(10, 0), (20, 0)]);
        let mut one = tasks(&[10]);
        charge(&mut one, &Orphan::new(reaped(7), Some(99)));
        assert_eq!(charged(&one), [(10, 7)]);
    }
}
