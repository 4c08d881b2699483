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
    limits: Limits,
}

/// Of one.
#[derive(Clone, Copy, Default)]
struct Seen {
    is_used_up: bool,
    /// It was so without any call: some other program has it, and no run of a call fares better.
    is_the_hosts: bool,
    /// When it was last used up, and perhaps by calls.
    at_ns: Option<u64>,
    /// When to look again at the earliest.
    next_ns: u64,
}

/// The lowest limits that calls have, or had last.
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
            // What little is left comes and goes: signals of other processes, descriptors on their way.
            limits.min().map_or(u64::MAX, |limit| limit - limit / 16)
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
            limits: Limits::of(&[]),
        }
    }

    /// What was used up at some moment since then.
    pub(crate) fn since(&self, began_ns: u64) -> Option<Shared> {
        let mut seen = PROBED.iter().zip(&self.seen);
        let found = seen.find(|(_, seen)| seen.at_ns.is_some_and(|at_ns| at_ns >= began_ns))?;
        Some(*found.0)
    }

    /// Whether so many calls are a reason to look. A single one is disturbed by nobody; without any, and until it is there
    /// again, what seems to be used up is looked at once more.
    fn concerns(&self, calls: usize) -> bool {
        match calls {
            0 => self.seen.iter().any(|seen| seen.is_used_up),
            1 => self.seen.iter().any(|seen| seen.is_the_hosts),
            _ => true,
        }
    }

    fn look(&mut self, now_ns: u64, calls: &[i32], scratch: Option<BorrowedFd<'_>>) {
        self.next_look_ns = now_ns + LOOK_NS;
        if !calls.is_empty() {
            self.limits = Limits::of(calls);
        }
        for (what, seen) in PROBED.iter().zip(&mut self.seen) {
            if now_ns >= seen.next_ns || calls.is_empty() {
                let before_ns = thread_ns();
                let is_used_up = is_used_up(*what, &self.limits, scratch, &mut self.inotify);
                seen.saw(is_used_up, now_ns, thread_ns().saturating_sub(before_ns));
            }
            match (calls, what) {
                // What ended calls wrote is removed a little later.
                ([], Shared::ScratchDisk) | ([_], _) => {}
                ([], _) => seen.is_the_hosts = seen.is_used_up,
                _ => seen.stands(now_ns),
            }
        }
    }
}

/// A probe that takes longer is repeated after so many times as long.
const SLOW_NS: u64 = 1_000_000;
const REST: u64 = 50;

impl Seen {
    fn saw(&mut self, is_used_up: bool, now_ns: u64, took_ns: u64) {
        self.is_used_up = is_used_up;
        self.is_the_hosts &= is_used_up;
        self.next_ns = match took_ns {
            ..SLOW_NS => 0,
            took_ns => now_ns + REST * took_ns,
        };
    }

    /// What was found by the last probe counts until the next.
    fn stands(&mut self, now_ns: u64) {
        if self.is_used_up && !self.is_the_hosts {
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
        // Trees of dead leaders may be left, and have what they had.
        let ending = self.tasks.values().any(|task| task.dead.is_some());
        if self.shortages.concerns(calls.len()) && !(calls.is_empty() && ending) {
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

    /// FA-8: on a host where other programs have all of something, failures are not repeated for ever.
    #[test]
    fn what_is_used_up_without_any_call_is_not_blamed_on_calls_until_it_was_there_again() {
        let mut shortages = Shortages::new();
        assert_eq!(
            [0, 1, 2].map(|calls| shortages.concerns(calls)),
            [false, false, true]
        );
        let seen = &mut shortages.seen[0];
        seen.saw(true, 100, 0);
        seen.is_the_hosts = true;
        seen.saw(true, 200, 0);
        seen.stands(200);
        assert_eq!(seen.at_ns, None);
        assert_eq!([0, 1, 2].map(|calls| shortages.concerns(calls)), [true; 3]);
        let seen = &mut shortages.seen[0];
        seen.saw(false, 300, 0);
        seen.saw(true, 400, 0);
        seen.stands(400);
        assert_eq!(seen.at_ns, Some(400));
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
