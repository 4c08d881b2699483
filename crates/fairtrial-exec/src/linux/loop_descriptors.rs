//! Whether the descriptors of an event loop are still its own: the process that it is a guest in may close them, and open
//! others under their numbers.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, Stat, fstat, memfd_create};
use rustix::io::Errno;
use rustix::net::Shutdown;

use super::readiness;

/// The numbers under which an event loop waits and is woken.
#[derive(Debug)]
pub(crate) struct LoopDescriptors {
    /// Several numbers may be of one epoll.
    epolls: Vec<RawFd>,
    /// What another thread writes to in order to wake it.
    wakers: Vec<RawFd>,
    /// Opened for this alone: other files may have these numbers and watch each other, but none is this one.
    sentinel: RawFd,
    identity: Option<FileIdentity>,
    /// The loop has ended, and the sentinel is closed.
    is_released: AtomicBool,
}

impl Drop for LoopDescriptors {
    fn drop(&mut self) {
        self.release();
    }
}

impl LoopDescriptors {
    /// Those of the event loop that this runs on. The loop does not tell them: a descriptor that is watched for a moment
    /// shows which epoll is its.
    pub(crate) fn find() -> io::Result<Self> {
        let mark = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mark = readiness::watch(mark)?;
        let number = mark.get_ref().as_raw_fd();
        let sentinel = memfd_create("fairtrial-sentinel", MemfdFlags::CLOEXEC)?;
        let mut found = Self {
            epolls: Vec::new(),
            wakers: Vec::new(),
            identity: FileIdentity::of(sentinel.as_raw_fd()),
            sentinel: sentinel.into_raw_fd(),
            is_released: AtomicBool::new(false),
        };
        for entry in fs::read_dir("/proc/self/fd")?.flatten() {
            let is_epoll = fs::read_link(entry.path())
                .is_ok_and(|to| to.as_os_str() == "anon_inode:[eventpoll]");
            let name = entry.file_name();
            let Some(fd) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if !is_epoll {
                continue;
            }
            // Another thread may have closed it meanwhile.
            let Ok(info) = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")) else {
                continue;
            };
            let watched: Vec<RawFd> = info.lines().filter_map(watched).collect();
            if watched.contains(&number) {
                found.epolls.push(fd);
                found.wakers = watched.into_iter().filter(|fd| *fd != number).collect();
            }
        }
        found.epolls.sort_unstable(); // the one that is waited on was there first
        match found.epolls.is_empty() || found.wakers.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(found),
        }
    }

    /// Whether the loop can wait and be woken: the kernel answers `EEXIST` only if what has the one number watches what has
    /// the other. Two system calls.
    pub(crate) fn can_be_woken(&self) -> bool {
        self.has_sentinel() && is_watched(number(&self.epolls[0]), number(&self.wakers[0]))
    }

    fn has_sentinel(&self) -> bool {
        FileIdentity::of(self.sentinel) == self.identity
    }

    /// Closes the sentinel: the loop has ended.
    pub(crate) fn release(&self) {
        if !self.is_released.swap(true, Ordering::AcqRel) && self.has_sentinel() {
            // SAFETY: it is the file that this opened and owns, and it is closed once.
            drop(unsafe { OwnedFd::from_raw_fd(self.sentinel) });
        }
    }

    /// Whether the loop has ended.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }

    /// The same of every number.
    pub(crate) fn are_ours(&self) -> bool {
        self.has_sentinel()
            && self.epolls.iter().all(|epoll| {
                let mut wakers = self.wakers.iter();
                wakers.all(|waker| is_watched(number(epoll), number(waker)))
            })
    }
}

/// A line of an epoll's `fdinfo` such as `tfd:        4 events: …`.
fn watched(line: &str) -> Option<RawFd> {
    let rest = line.strip_prefix("tfd:")?;
    rest.split_whitespace().next()?.parse().ok()
}

fn is_watched(epoll: BorrowedFd<'_>, waker: BorrowedFd<'_>) -> bool {
    let nothing = epoll::EventData::new_u64(0);
    match epoll::add(epoll, waker, nothing, epoll::EventFlags::empty()) {
        Err(error) => error == Errno::EXIST,
        Ok(()) => {
            epoll::delete(epoll, waker).ok(); // they are somebody else's: left as they were
            false
        }
    }
}

/// A number as a descriptor, for calls that answer `EBADF` if there is none.
fn number(fd: &RawFd) -> BorrowedFd<'_> {
    // SAFETY: it is only handed to system calls that ask what it is; that it may be closed, or somebody else's, is what
    // they are to find out.
    unsafe { BorrowedFd::borrow_raw(*fd) }
}

/// Which file a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    kind: u32,
}

impl FileIdentity {
    /// That of whatever has this number; `None` if nothing has.
    pub(crate) fn of(fd: RawFd) -> Option<Self> {
        let stat: Stat = fstat(number(&fd)).ok()?;
        Some(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            kind: stat.st_mode & libc::S_IFMT,
        })
    }
}

/// Ends a connection of this process's, whoever holds its end.
pub(crate) fn disconnect(socket: RawFd) {
    rustix::net::shutdown(number(&socket), Shutdown::Both).ok(); // its peer ended already
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_loop<T>(work: impl FnOnce() -> T) -> T {
        let runtime = crate::event_loop::of_this_thread().unwrap();
        runtime.block_on(async { work() })
    }

    /// FA-13
    #[test]
    fn a_loop_knows_its_descriptors_and_whether_they_were_closed_or_replaced() {
        let runtime = crate::event_loop::of_this_thread().unwrap();
        let mut found = runtime.block_on(async { LoopDescriptors::find().unwrap() });
        assert!(found.are_ours() && found.can_be_woken());
        let other = in_loop(|| LoopDescriptors::find().unwrap());
        assert!(!other.are_ours(), "its loop is gone");
        let foreign = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        found.epolls = vec![foreign.as_raw_fd()];
        assert!(!found.are_ours() && !found.can_be_woken(), "another epoll");
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", foreign.as_raw_fd()));
        assert!(!info.unwrap().contains("tfd"), "it was left as it was");
    }

    /// FA-13
    #[test]
    fn a_file_is_known_by_more_than_its_number() {
        let (a, b) = rustix::pipe::pipe().unwrap();
        let fd = a.into_raw_fd();
        let before = FileIdentity::of(fd);
        // SAFETY: just taken out of its owner.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        assert_ne!(FileIdentity::of(b.as_raw_fd()), None);
        assert_ne!(FileIdentity::of(fd), before);
    }
}
