//! A process the engine asked for, from its start to the end of its tree.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use fairtrial_exec::linux::monotonic::now_ns;
use fairtrial_exec::linux::perf::{Counter, Uncounted};
use fairtrial_exec::linux::run_delay::run_delay_ns;
use fairtrial_exec::linux::scheduling::{self, Turn};
use fairtrial_exec::linux::wait::Reaped;
use fairtrial_exec::linux::{freeze, signals};
use fairtrial_exec::protocol::launcher::{Cause, End, Shared, Watch};

use crate::confine::Cell;
use crate::orphans::OrphanUsage;
use crate::watch::{Due, Watched};

/// Between the kill of a stray and giving up on it.
pub(crate) const SURVIVOR_NS: u64 = 1_000_000_000;

/// Such a process.
pub(crate) struct Task {
    pub(crate) pid: i32,
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) role: Role,
    pub(crate) watched: Option<Watched>,
    /// A zygote's first process ended, and its second has not announced itself.
    pub(crate) ended: Option<Reaped>,
    pub(crate) dead: Option<Dead>,
    /// When it was started.
    pub(crate) started_ns: u64,
    /// At its deadline another call had locked a file that it had open.
    pub(crate) waits_for_a_rival: bool,
    /// It was killed from here.
    pub(crate) killed: bool,
    /// The limit that it had passed by then.
    passed: Option<Cause>,
    /// What confines it.
    pub(crate) cell: Cell,
    /// What is counted of it.
    pub(crate) counters: Vec<Result<Counter, Uncounted>>,
    /// It is measured.
    pub(crate) ahead: Option<Ahead>,
    /// What its orphans used that ended before it.
    pub(crate) orphans: OrphanUsage,
    /// How long its leader waited for a processor, read when it had ended.
    waited_ns: Option<u64>,
}

/// As long as it is there, the launcher goes before others on its processors, and so does a task until its end. Where
/// the kernel does not let them, they wait their turn as others do.
pub(crate) struct Ahead(());

impl Ahead {
    pub(crate) fn go() -> Self {
        scheduling::set(0, Turn::Ahead).ok();
        Self(())
    }

    /// Called once the task is in its control groups: some kernels keep a real-time process from entering any.
    pub(crate) fn take_along(&self, task: i32) {
        scheduling::set(task, Turn::Ahead).ok();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        scheduling::set(0, Turn::Usual).ok();
    }
}

/// What it is for.
pub(crate) enum Role {
    /// Until exec succeeded: the pipe that tells.
    Starting {
        report: OwnedFd,
        control: Option<OwnedFd>,
    },
    Zygote {
        control: OwnedFd,
        /// Requests for which its socket had no room.
        waiting: VecDeque<Request>,
    },
    Leader,
}

/// What a zygote is asked for.
pub(crate) struct Request {
    pub(crate) number: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// A leader that is gone while its tree may not be.
pub(crate) struct Dead {
    pub(crate) end: End,
    /// Nobody looked what was left before it ended: what is found now may be its own.
    pub(crate) counts_strays: bool,
    pub(crate) give_up_ns: u64,
}

impl Task {
    pub(crate) fn new(pid: i32, pidfd: Option<OwnedFd>, role: Role) -> Self {
        Self {
            pid,
            pidfd,
            role,
            watched: None,
            ended: None,
            dead: None,
            started_ns: now_ns(),
            waits_for_a_rival: false,
            killed: false,
            passed: None,
            cell: Cell::default(),
            counters: Vec::new(),
            ahead: None,
            orphans: OrphanUsage::default(),
            waited_ns: None,
        }
    }

    /// Its leader ended and is not reaped yet.
    pub(crate) fn look_at_zombie(&mut self) {
        match &mut self.watched {
            Some(watched) => watched.load.look_at_zombie(self.pid, now_ns()),
            None => self.waited_ns = run_delay_ns(self.pid.cast_unsigned()),
        }
    }

    pub(crate) fn kill(&mut self) {
        if let (Some(watched), false) = (&mut self.watched, self.killed) {
            self.passed = watched.last_look(self.pid, &self.cell);
        }
        self.killed = true;
        let at_once = self.cell.kill(self.pid, self.dead.is_none());
        if !at_once && self.dead.is_none() && matches!(self.role, Role::Leader) {
            // With its end they become strays, and may be anybody's: who was first asked to end it tells how many.
            let killed = freeze::kill_below(self.pid);
            self.cell.leaked = self.cell.leaked.or(killed);
        }
        match &self.pidfd {
            Some(pidfd) => {
                signals::send(pidfd, rustix::process::Signal::KILL.as_raw()).ok(); // already gone is as good
            }
            // No descriptor was left for a handle. It is our child and not reaped: its number is its own.
            None if self.dead.is_none() => signals::kill_child(self.pid),
            None => {}
        }
    }

    /// Asks it to end; kills it that much later.
    pub(crate) fn end(&mut self, grace_ns: u64) {
        let now = now_ns();
        let (pid, cell) = (self.pid, &self.cell);
        let watched = self
            .watched
            .get_or_insert_with(|| Watched::new(Watch::default(), 0, now, pid, cell));
        watched.kill_at(now.saturating_add(grace_ns));
        self.warn(Some(rustix::process::Signal::TERM.as_raw()));
    }

    /// Asks it to end, or to say where it is.
    pub(crate) fn warn(&self, signal: Option<i32>) {
        if let (Some(pidfd), Some(signal)) = (&self.pidfd, signal) {
            signals::send(pidfd, signal).ok(); // it may have ended just now; then there is nobody to warn
        }
    }

    /// The engine confirmed that a call runs past its deadline.
    pub(crate) fn stop_overdue(&mut self, generation: u32) {
        let due = match &mut self.watched {
            Some(watched) => watched.confirmed(generation, now_ns()),
            None => Due::Nothing,
        };
        match due {
            Due::Nothing => {}
            Due::Warn(_, signal) => self.warn(signal),
            Due::Stop(_) | Due::Kill => self.kill(),
        }
    }

    /// Its first process was reaped; what it left behind is looked for next.
    pub(crate) fn bury(&mut self, reaped: &Reaped) {
        self.cell.look(self.pid);
        let now = now_ns();
        let watched = self.watched.as_ref();
        let wait_ns = watched.and_then(|watched| watched.load.wait_ns());
        let mut end = End {
            status: reaped.status,
            at_ns: now,
            user_ns: reaped.user_ns,
            system_ns: reaped.system_ns,
            max_rss_bytes: reaped.max_rss_bytes,
            sampled_rss_bytes: self
                .watched
                .as_ref()
                .and_then(|watched| watched.peak_rss_bytes),
            wait_ns: wait_ns.or(self.waited_ns),
            cpu_use: None,
            counts: reaped.counts,
            leaked: self.cell.leaked.unwrap_or(0),
            survivors: 0,
            scratch_full: self.cell.scratch_full,
            upper_full: self.cell.upper_full,
            host_memory: false,
            shortage: self.waits_for_a_rival.then_some(Shared::FileLock),
            passed: self.passed,
            leaf: self.cell.counts().map(Box::new),
            counted: Vec::new(),
        };
        self.orphans.add_to(&mut end);
        self.pidfd = None;
        self.dead = Some(Dead {
            end,
            counts_strays: self.cell.leaked.is_none(),
            give_up_ns: now + SURVIVOR_NS,
        });
    }
}
