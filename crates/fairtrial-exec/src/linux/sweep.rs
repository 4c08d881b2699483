//! Kills what a dead launcher left behind, found by the mark that every worker's environment carries.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Passes after which what still appears is left to its fate.
const MOST_PASSES: usize = 50;

/// What does not end in this time is stuck in the kernel.
const ORPHANS_END: Duration = Duration::from_secs(2);

/// Kills every process whose environment says that it belongs to one of these workers, until two passes find none.
pub fn kill_marked(worker_ids: &[String]) {
    if worker_ids.is_empty() {
        return;
    }
    let marks: Vec<Vec<u8>> = worker_ids
        .iter()
        .map(|id| format!("FAIRTRIAL_WORKER_ID={id}").into_bytes())
        .collect();
    let mut quiet = 0;
    for _ in 0..MOST_PASSES {
        quiet = if kill_pass(&marks) == 0 { quiet + 1 } else { 0 };
        if quiet == 2 {
            return;
        }
        std::thread::yield_now();
    }
}

/// Kills and reaps the children of this process until none is left: orphans that a dead launcher left to it.
///
/// In no order: the init of a namespace ends only when all in it are reaped, and they may be ours as well.
pub fn kill_orphans() {
    let until = Instant::now() + ORPHANS_END;
    while Instant::now() < until {
        let orphans = super::proc_tree::children(std::process::id()).unwrap_or_default();
        if orphans.is_empty() {
            return;
        }
        let mut reaped = false;
        for orphan in orphans {
            super::signals::kill_child(orphan.cast_signed());
            reaped |= super::wait::reap_if_ended(orphan.cast_signed()); // its own children come to us in turn
        }
        if !reaped {
            pause();
        }
    }
}

fn kill_pass(marks: &[Vec<u8>]) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| kill_if_marked(*pid, marks)).count()
}

/// The handle first, then the look: what is looked at is what is killed.
fn kill_if_marked(pid: i32, marks: &[Vec<u8>]) -> bool {
    let Some(handle) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
    else {
        return false;
    };
    is_marked(pid, marks) && kill(&handle)
}

fn is_marked(pid: i32, marks: &[Vec<u8>]) -> bool {
    let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else {
        return false;
    };
    environ
        .split(|byte| *byte == 0)
        .any(|entry| marks.iter().any(|mark| mark == entry))
}

fn kill(handle: &OwnedFd) -> bool {
    pidfd_send_signal(handle, Signal::KILL).is_ok()
}

/// Nothing announces the end of one of many children without reaping it.
fn pause() {
    let millisecond = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    _ = rustix::event::poll(&mut [], Some(&millisecond)); // a signal only makes it shorter
}
