//! Waiting until somebody writes to an open file, or closes it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

/// Between two looks where the kernel lends no watch.
const BLIND: Duration = Duration::from_millis(20);

/// A watch over one file. Without one to be had it only waits for a short time.
#[derive(Debug)]
pub struct FileWatch(Option<OwnedFd>);

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Time to look again.
    Look,
    /// Nobody wants to know any more.
    GivenUp,
}

impl FileWatch {
    /// Watches from now on.
    #[must_use]
    pub fn new(file: impl AsFd) -> Self {
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let watch = || {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            inotify::add_watch(&watch, path, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE)?;
            rustix::io::Result::Ok(watch)
        };
        Self(watch().ok())
    }

    /// Waits until something happens to the file, at most for `longest`, or until the other end of `given_up` is closed.
    pub fn wait(&self, given_up: impl AsFd, longest: Duration) -> io::Result<Woken> {
        let longest = if self.0.is_some() {
            longest
        } else {
            BLIND.min(longest)
        };
        let time = Timespec {
            tv_sec: longest.as_secs().cast_signed(),
            tv_nsec: longest.subsec_nanos().into(),
        };
        let mut ends = vec![PollFd::new(&given_up, PollFlags::IN)];
        ends.extend(self.0.iter().map(|watch| PollFd::new(watch, PollFlags::IN)));
        match poll(&mut ends, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(errno.into()),
        }
        if !ends[0].revents().is_empty() {
            return Ok(Woken::GivenUp);
        }
        self.drain();
        Ok(Woken::Look)
    }

    /// What happened is of no interest, only that it did.
    fn drain(&self) {
        let Some(watch) = &self.0 else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        while rustix::io::read(watch, &mut buffer).is_ok_and(|(read, _)| !read.is_empty()) {}
    }
}
