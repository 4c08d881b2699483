//! Whether something that the user's processes share is used up right now: each probe takes one more of it, and gives it
//! back.
//!
//! A probe never waits. It answers `false` for all that it cannot find out.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::fs::{StatVfs, inotify};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    bind, sendmsg, socket_with, socketpair,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Whether a process with so many descriptors as its soft limit could send one over a socket: the kernel holds each sender
/// to its own limit, and counts what all processes of the user have sent.
#[must_use]
pub fn sent_descriptors(limit: u64) -> bool {
    // Those who may exceed resources are refused nothing.
    let exempt = CapabilitySet::SYS_RESOURCE | CapabilitySet::SYS_ADMIN;
    without_capabilities(exempt, || {
        with_soft_limit(Resource::Nofile, limit, || {
            send_one() == Err(Errno::TOOMANYREFS)
        })
    })
}

/// Sends a descriptor that is never received: it is closed with the sockets.
fn send_one() -> Result<(), Errno> {
    let (left, right) = socketpair(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Not one end of a pair over the pair itself: such circles are left to the kernel's garbage collector.
    let sent = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [sent.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(&left, &[IoSlice::new(b"x")], &mut control, flags)?;
    drop(right);
    Ok(())
}

/// What little is left comes and goes.
const FEW_WATCHES: usize = 8;

/// Whether the user has hardly a watch of an epoll left (`fs.epoll.max_user_watches`).
#[must_use]
pub fn epoll_watches() -> bool {
    let some_more = || {
        let watching = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        // The kernel tells watches of one file apart by their descriptors, as long as the file is open.
        let mut numbers = Vec::new();
        for _ in 0..FEW_WATCHES {
            let number = rustix::io::fcntl_dupfd_cloexec(&watched, 0)?;
            epoll::add(&watching, &number, data, epoll::EventFlags::IN)?;
            numbers.push(number);
        }
        Ok(())
    };
    some_more() == Err(Errno::NOSPC)
}

/// An instance of inotify to try watches with. To make one for each probe would be slow: the end of an instance that has
/// had watches waits for the kernel's other processors.
#[derive(Debug, Default)]
pub struct Inotify(Option<OwnedFd>);

impl Inotify {
    /// Whether the user has no instance (`fs.inotify.max_user_instances`) or no watch left (`…max_user_watches`).
    pub fn is_used_up(&mut self) -> bool {
        let instance = match inotify::init(inotify::CreateFlags::CLOEXEC) {
            Ok(instance) => instance,
            // The user's, or the kernel's table of files.
            Err(error) => return error == Errno::MFILE,
        };
        let kept = self.0.get_or_insert(instance);
        match inotify::add_watch(&*kept, c"/", inotify::WatchFlags::DELETE_SELF) {
            Ok(watch) => {
                inotify::remove_watch(kept, watch).ok(); // then it goes with the instance
                false
            }
            Err(error) => error == Errno::NOSPC,
        }
    }
}

/// Whether a process that may have so many pending signals and timers could have no more: they are counted for the user.
#[must_use]
pub fn pending_signals(limit: u64) -> bool {
    with_soft_limit(Resource::Sigpending, limit, || {
        // SAFETY: all zeroes is a valid `sigevent`.
        let mut quiet: libc::sigevent = unsafe { std::mem::zeroed() };
        quiet.sigev_notify = libc::SIGEV_NONE;
        let mut timer = std::ptr::null_mut();
        // SAFETY: both point to live values of their types.
        let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut quiet, &mut timer) };
        if made == 0 {
            // SAFETY: it was just made, and nobody else has it.
            unsafe { libc::timer_delete(timer) };
            return false;
        }
        std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
    })
}

/// Whether no port is left for who does not ask for a certain one. Slow when there are few: the kernel tries them all.
#[must_use]
pub fn ports(kind: SocketType) -> bool {
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None);
    socket.is_ok_and(|socket| bind(&socket, &any) == Err(Errno::ADDRINUSE))
}

/// Whether a directory's file system has room for nothing.
#[must_use]
pub fn file_system(directory: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatvfs(directory).is_ok_and(|room| has_no_room(&room))
}

/// As [`file_system`], of one that may not be there.
#[must_use]
pub fn file_system_at(path: &str) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|room| has_no_room(&room))
}

/// Who is refused seldom wanted the very last block: it asked for some at a time, and gave back what it had.
const LITTLE_BYTES: u64 = 1 << 20;
const LITTLE_PART: u64 = 64;
const FEW_FILES: u64 = 4;

fn has_no_room(room: &StatVfs) -> bool {
    let little = (LITTLE_BYTES / room.f_frsize.max(1)).min(room.f_blocks / LITTLE_PART);
    // Without a quota there are none at all.
    let no_blocks = room.f_blocks > 0 && room.f_bavail <= little;
    no_blocks || (room.f_files > 0 && room.f_favail < FEW_FILES)
}

/// The soft limit of a process.
#[must_use]
pub fn soft_limit(pid: i32, resource: Limited) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let resource = match resource {
        Limited::Descriptors => libc::RLIMIT_NOFILE,
        Limited::PendingSignals => libc::RLIMIT_SIGPENDING,
    };
    // SAFETY: no new limit is given, and the old one is written to a live value.
    let read = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &mut limit) };
    (read == 0).then_some(limit.rlim_cur)
}

/// What a process has a limit of, and the kernel counts for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// `RLIMIT_NOFILE`
    Descriptors,
    /// `RLIMIT_SIGPENDING`
    PendingSignals,
}

fn with_soft_limit<T>(resource: Resource, limit: u64, probe: impl FnOnce() -> T) -> T {
    let usual = getrlimit(resource);
    let lower = Rlimit {
        current: Some(usual.maximum.map_or(limit, |most| limit.min(most))),
        maximum: usual.maximum,
    };
    let lowered = setrlimit(resource, lower).is_ok();
    let answer = probe();
    if lowered {
        setrlimit(resource, usual).ok(); // it was allowed before
    }
    answer
}

/// Of the calling thread alone, and only what takes effect: they stay permitted.
fn without_capabilities<T>(dropped: CapabilitySet, probe: impl FnOnce() -> T) -> T {
    let usual = capabilities(None).ok();
    let had_some = usual.filter(|usual| usual.effective.intersects(dropped));
    if let Some(mut fewer) = had_some {
        fewer.effective -= dropped;
        set_capabilities(None, fewer).ok(); // then the probe finds nothing used up
    }
    let answer = probe();
    if let Some(usual) = had_some {
        set_capabilities(None, usual).ok(); // they are permitted
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> [Rlimit; 2] {
        [Resource::Nofile, Resource::Sigpending].map(getrlimit)
    }

    /// FA-5: also as root, whom the kernel would let go on.
    #[test]
    fn descriptors_in_flight_are_counted_against_the_limit_of_calls() {
        let before = (limits(), capabilities(None).expect("told"));
        let pair = || {
            socketpair(
                AddressFamily::UNIX,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC,
                None,
            )
        };
        let (left, _right) = pair().expect("made");
        let (one, _other) = pair().expect("made");
        let many = [one.as_fd(); 100];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&many));
        let flags = SendFlags::empty();
        sendmsg(&left, &[IoSlice::new(b"x")], &mut control, flags).expect("sent");
        assert!(sent_descriptors(99), "others may send some, too");
        let had = getrlimit(Resource::Nofile).maximum;
        if had.is_none_or(|had| had > 10_000) {
            assert!(!sent_descriptors(u64::MAX >> 1));
        }
        assert_eq!((limits(), capabilities(None).expect("told")), before);
    }

    /// FA-5
    #[test]
    fn timers_are_counted_against_the_limit_of_calls() {
        let before = limits();
        assert!(pending_signals(0));
        assert!(!pending_signals(u64::MAX >> 1));
        assert_eq!(limits(), before);
        let mine = std::process::id().cast_signed();
        let soft = before[0].current.unwrap_or(u64::MAX);
        assert_eq!(soft_limit(mine, Limited::Descriptors), Some(soft));
    }

    /// FA-8
    #[test]
    fn a_file_system_without_room_is_told_from_one_that_has_none_to_speak_of() {
        let mut room = rustix::fs::statvfs("/").expect("it is there");
        (room.f_frsize, room.f_blocks, room.f_bavail) = (4096, 1 << 20, 257);
        (room.f_files, room.f_favail) = (100, 4);
        assert!(!has_no_room(&room));
        room.f_bavail = 256;
        assert!(has_no_room(&room), "1 MiB");
        (room.f_blocks, room.f_bavail) = (1024, 17);
        assert!(!has_no_room(&room), "of 4 MiB");
        room.f_bavail = 16;
        assert!(has_no_room(&room));
        (room.f_blocks, room.f_bavail) = (0, 0);
        assert!(!has_no_room(&room), "it has no quota");
        room.f_favail = 3;
        assert!(has_no_room(&room));
        room.f_files = 0;
        assert!(!has_no_room(&room));
    }

    #[test]
    fn what_nobody_used_up_is_there() {
        let mut inotify = Inotify::default();
        for _ in 0..2 {
            inotify.is_used_up(); // another test's attacker may have all
        }
        assert!(!epoll_watches());
        assert!(!ports(SocketType::STREAM) && !ports(SocketType::DGRAM));
        assert!(!file_system_at("/proc") && !file_system_at("/nowhere"));
    }
}
