//! The launcher as a process: stopped by somebody, it is woken; done with, it is reaped.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::linux::proc_status::Stat;

/// Between two looks whether it is stopped.
pub(crate) const LOOK: Duration = Duration::from_secs(2);

/// Looks in a row that may find it stopped and silent; then it is given up.
const MOST_STOPS: u32 = 3;

/// A child of this process; waited for when it is dropped.
pub(crate) struct LauncherProcess {
    child: Child,
    stops: u32,
}

impl LauncherProcess {
    /// Takes charge of a child that was just started.
    pub(crate) fn new(child: Child) -> Self {
        Self { child, stops: 0 }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// It said something, so it is well.
    pub(crate) fn heard(&mut self) {
        self.stops = 0;
    }

    /// A call of the same user may stop it, which would stop every deadline: it is told to go on, and killed if it is
    /// found stopped again and again without a word in between.
    pub(crate) fn look(&mut self) {
        let stat = Stat::read(self.child.id());
        if !stat.is_ok_and(|stat| matches!(stat.state, b'T' | b't')) {
            return self.heard();
        }
        self.stops += 1;
        if self.stops > MOST_STOPS {
            log::error!("the launcher was stopped and does not go on: it is killed");
            self.kill();
        } else {
            log::warn!("somebody stopped the launcher: it is told to go on");
            self.signal(Signal::CONT);
        }
    }

    /// Ends it without a word.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// By a handle that is opened for this: one that stayed open would cost a host with few descriptors one of them. The
    /// number is its own until it is waited for.
    fn handle(&self) -> io::Result<OwnedFd> {
        Ok(pidfd_open(self.pid(), PidfdFlags::empty())?)
    }

    fn signal(&self, signal: Signal) {
        if let Ok(handle) = self.handle() {
            pidfd_send_signal(&handle, signal).ok(); // it ended just now
        }
    }

    fn has_ended_within(&self, time: Duration) -> bool {
        let time = Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        };
        let Ok(handle) = self.handle() else {
            return true; // then it is waited for without looking
        };
        let mut ends = [PollFd::new(&handle, PollFlags::IN)];
        poll(&mut ends, Some(&time)) != Ok(0) && ends[0].revents().contains(PollFlags::IN)
    }
}

impl Drop for LauncherProcess {
    /// It ends within a second of its socket's end, unless it is stopped.
    fn drop(&mut self) {
        self.look();
        while !self.has_ended_within(LOOK) {
            self.look();
        }
        self.child.wait().ok(); // somebody else in this process may have reaped it
    }
}
