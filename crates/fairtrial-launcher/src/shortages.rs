//! Want of what calls share, memory apart: what was used up while they ran.
//!
//! Nobody can tell whether a call failed because of it, or who used it up: the engine has such a call run again without
//! others. A shortage that begins and ends between two looks is not seen.

use std::os::fd::{AsFd, BorrowedFd};

use fairtrial_exec::linux::monotonic::now_ns;
use fairtrial_exec::linux::shortage::{self, Inotify, Limited};
use fairtrial_exec::protocol::launcher::{Cause, Shared};
use rustix::net::SocketType;
use rustix::time::{ClockId, clock_gettime};

use crate::serve::Launcher;
use crate::task::Task;

/// Between two looks.
const LOOK_NS: u64 = 20_000_000;

/// What is looked at. Of several that were used up the first is told.
const PROBED: [Shared; 8] = [
    Shared::ScratchDisk,
    Shared::SharedMemory,
    Shared::SentDescriptors,
    Shared::EpollWatches,
    Shared::Inotify,
    Shared::PendingSignals,
    Shared::TcpPorts,
    Shared::UdpPorts,
];

/// What was seen of each.
pub(crate) struct Shortages {
    next_look_ns: u64,
    seen: [Seen; PROBED.len()],
    inotify: Inotify,
}

/// Of one.
#[derive(Clone, Copy, Default)]
struct Seen {
    is_used_up: bool,
    /// When that was last so.
    at_ns: Option<u64>,
    /// When to look again at the earliest.
    next_ns: u64,
}

/// The lowest limits that calls have.
struct Limits {
    descriptors: u64,
    pending_signals: u64,
}

impl Limits {
    fn of(calls: &[i32]) -> Self {
        let lowest = |resource| {
            let limits = calls
                .iter()
                .filter_map(|pid| shortage::soft_limit(*pid, resource));
            limits.min().unwrap_or(u64::MAX)
        };
        Self {
            descriptors: lowest(Limited::Descriptors),
            pending_signals: lowest(Limited::PendingSignals),
        }
    }
}

impl Shortages {
    pub(crate) fn new() -> Self {
        Self {
            next_look_ns: 0,
            seen: [Seen::default(); PROBED.len()],
            inotify: Inotify::default(),
        }
    }

    /// What was used up at some moment since then.
    pub(crate) fn since(&self, began_ns: u64) -> Option<Shared> {
        let mut seen = PROBED.iter().zip(&self.seen);
        let found = seen.find(|(_, seen)| seen.at_ns.is_some_and(|at_ns| at_ns >= began_ns))?;
        Some(*found.0)
    }

    fn look(&mut self, now_ns: u64, calls: &[i32], scratch: Option<BorrowedFd<'_>>) {
        self.next_look_ns = now_ns + LOOK_NS;
        let limits = Limits::of(calls);
        for (what, seen) in PROBED.iter().zip(&mut self.seen) {
            if now_ns >= seen.next_ns {
                let before_ns = thread_ns();
                let is_used_up = is_used_up(*what, &limits, scratch, &mut self.inotify);
                seen.saw(is_used_up, now_ns, thread_ns().saturating_sub(before_ns));
            }
            seen.stands(now_ns);
        }
    }
}

/// A probe that takes longer is repeated after so many times as long.
const SLOW_NS: u64 = 1_000_000;
const REST: u64 = 50;

impl Seen {
    fn saw(&mut self, is_used_up: bool, now_ns: u64, took_ns: u64) {
        self.is_used_up = is_used_up;
        self.next_ns = match took_ns {
            ..SLOW_NS => 0,
            took_ns => now_ns + REST * took_ns,
        };
    }

    /// What was found by the last probe counts until the next.
    fn stands(&mut self, now_ns: u64) {
        if self.is_used_up {
            self.at_ns = Some(now_ns);
        }
    }
}

fn is_used_up(
    what: Shared,
    limits: &Limits,
    scratch: Option<BorrowedFd<'_>>,
    inotify: &mut Inotify,
) -> bool {
    match what {
        Shared::SentDescriptors => shortage::sent_descriptors(limits.descriptors),
        Shared::EpollWatches => shortage::epoll_watches(),
        Shared::Inotify => inotify.is_used_up(),
        Shared::PendingSignals => shortage::pending_signals(limits.pending_signals),
        Shared::TcpPorts => shortage::ports(SocketType::STREAM),
        Shared::UdpPorts => shortage::ports(SocketType::DGRAM),
        Shared::ScratchDisk => scratch.is_some_and(shortage::file_system),
        Shared::SharedMemory => shortage::file_system_at("/dev/shm"),
        Shared::Memory | Shared::FileLock => false, // found out in other ways
    }
}

/// Processor time: of a probe during which others had the processor nothing can be told from wall time.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

impl Launcher {
    /// A look from time to time, while calls run beside each other.
    pub(crate) fn look_at_shortages(&mut self, now_ns: u64) {
        if now_ns >= self.shortages.next_look_ns {
            self.look_at_shortages_at_once();
        }
    }

    /// A call is about to end, and perhaps because of one: what rivals hold they hold now.
    pub(crate) fn look_before_its_end(&mut self, cause: Cause) {
        if matches!(cause, Cause::Failed | Cause::Misbehaved) {
            self.look_at_shortages_at_once();
        }
    }

    pub(crate) fn look_at_shortages_at_once(&mut self) {
        let calls = self.tasks.values().filter(|task| is_call(task));
        let calls: Vec<i32> = calls.map(|task| task.pid).collect();
        if calls.len() >= 2 {
            let scratch = self.scratch.as_ref().map(|(parent, _)| parent.as_fd());
            self.shortages.look(now_ns(), &calls, scratch);
        }
    }
}

/// Whether it runs a call.
pub(crate) fn is_call(task: &Task) -> bool {
    task.watched.is_some() && task.dead.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FA-5, FA-8
    #[test]
    fn a_shortage_counts_for_all_that_ran_when_it_was_seen_and_for_nothing_that_began_later() {
        let mut shortages = Shortages::new();
        let ports = PROBED.iter().position(|what| *what == Shared::TcpPorts);
        let seen = &mut shortages.seen[ports.expect("it is probed")];
        seen.saw(true, 100, 0);
        seen.stands(100);
        seen.saw(false, 200, 0);
        seen.stands(200);
        assert_eq!(shortages.since(100), Some(Shared::TcpPorts));
        assert_eq!(shortages.since(101), None);
    }

    /// FA-6: the launcher has other things to do.
    #[test]
    fn a_slow_probe_is_not_repeated_soon_and_its_answer_stands() {
        let mut seen = Seen::default();
        seen.saw(true, 100, SLOW_NS - 1);
        assert_eq!(seen.next_ns, 0);
        seen.saw(true, 100, SLOW_NS);
        assert_eq!(seen.next_ns, 100 + REST * SLOW_NS);
        seen.stands(300);
        assert_eq!(seen.at_ns, Some(300));
    }
}
