//! Ends a tree that neither cgroup nor namespace holds together.
//!
//! Whoever has a signal waiting completes no fork, so one that was signalled makes no more of its kind, and orphans come to
//! the leader, which is stopped. Who is met at first is killed at once, and dies while the others are looked for. A tree
//! that grew meanwhile is one that fights back: those are stopped, which is quicker than to die, until none is new.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::proc_status::Stat;
use super::proc_tree::children;

/// A tree that still grows after so many passes is left to whoever kills its orphans.
const MOST_PASSES: usize = 20;

/// Kills all below a child of this process that it has not reaped; the child itself is only stopped. Tells how many there
/// were that had not ended; unknown if all that were seen were just ending, for they may be followed by others.
pub fn kill_below(leader: i32) -> Option<u64> {
    let mut tree = Tree::below(leader.cast_unsigned());
    if children(tree.root).ok()?.is_empty() {
        return Some(0);
    }
    // SAFETY: kill takes no pointers; the number is our own child's.
    unsafe { libc::kill(leader, libc::SIGSTOP) };
    tree.signal_new(Signal::KILL);
    let mut grew = false;
    for _ in 0..MOST_PASSES {
        if !tree.signal_new(Signal::STOP) {
            break;
        }
        grew = true;
    }
    for handle in tree.met.values().filter(|_| grew) {
        pidfd_send_signal(handle, Signal::KILL).ok(); // gone meanwhile is as good
    }
    (tree.alive > 0 || tree.met.is_empty()).then_some(tree.alive)
}

struct Tree {
    root: u32,
    /// Who was met and signalled.
    met: HashMap<u32, OwnedFd>,
    /// Of those, who had not ended.
    alive: u64,
}

impl Tree {
    fn below(root: u32) -> Self {
        Self {
            root,
            met: HashMap::new(),
            alive: 0,
        }
    }

    /// Goes through the tree, parents before children; `false` if it met nobody new.
    fn signal_new(&mut self, signal: Signal) -> bool {
        let before = self.met.len();
        let (mut seen, mut to_see) = (HashSet::new(), children(self.root).unwrap_or_default());
        while let Some(pid) = to_see.pop() {
            if seen.insert(pid) && (self.met.contains_key(&pid) || self.meet(pid, signal)) {
                to_see.extend(children(pid).unwrap_or_default());
            }
        }
        self.met.len() > before
    }

    /// The handle first, then the look whether it is of the tree, so that it is the one looked at.
    fn meet(&mut self, pid: u32, signal: Signal) -> bool {
        let handle = Pid::from_raw(pid.cast_signed())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let (Some(handle), Ok(stat)) = (handle, Stat::read(pid)) else {
            return false; // it is gone
        };
        let ours = stat.ppid == self.root || self.met.contains_key(&stat.ppid);
        if ours {
            pidfd_send_signal(&handle, signal).ok(); // gone meanwhile: it makes no more either
            self.alive += u64::from(!stat.is_exiting());
            self.met.insert(pid, handle);
        }
        ours
    }
}
