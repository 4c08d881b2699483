//! Ends a tree that neither cgroup nor namespace holds together: what is stopped makes no more of its kind.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::proc_status::Stat;
use super::proc_tree::descendants;

/// A tree that still grows after so many passes is left to whoever kills its orphans.
const MOST_PASSES: usize = 20;

/// Kills all below a child of this process that it has not reaped, and tells how many; the child itself is only stopped.
pub fn kill_below(leader: i32) -> u64 {
    let root = leader.cast_unsigned();
    let Ok(first) = descendants(root) else {
        return 0;
    };
    if first.is_empty() {
        return 0;
    }
    // SAFETY: kill takes no pointers; the number is our own child's.
    unsafe { libc::kill(leader, libc::SIGSTOP) };
    let mut stopped: HashMap<u32, OwnedFd> = HashMap::new();
    let mut found = first;
    for _ in 0..MOST_PASSES {
        let before = stopped.len();
        for pid in found {
            if !stopped.contains_key(&pid)
                && let Some(handle) = take(pid, |parent| {
                    parent == root || stopped.contains_key(&parent)
                })
            {
                pidfd_send_signal(&handle, Signal::STOP).ok(); // gone meanwhile: it makes no more either
                stopped.insert(pid, handle);
            }
        }
        if stopped.len() == before {
            break;
        }
        found = descendants(root).unwrap_or_default();
    }
    for handle in stopped.values() {
        pidfd_send_signal(handle, Signal::KILL).ok(); // likewise
    }
    stopped.len() as u64
}

/// A handle on a process if it is of the tree: the handle first, then the look, so that it is the one looked at.
fn take(pid: u32, is_of_tree: impl Fn(u32) -> bool) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()?;
    is_of_tree(Stat::read(pid).ok()?.ppid).then_some(handle)
}
