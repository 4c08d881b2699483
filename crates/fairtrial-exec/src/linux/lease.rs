//! Asks the kernel whether anybody else has a file open.

use std::os::fd::{AsFd, AsRawFd, RawFd};

/// From `asm-generic/fcntl.h`; the `libc` crate lacks it.
const F_SETSIG: libc::c_int = 10;

/// Whether no open file description other than this one's refers to the file.
///
/// A write lease is granted only then: every other open, for reading or writing, every duplicate of another
/// description (sent over a socket, inherited through `fork`) and every mapping counts against it. A *read* lease would
/// not do: it ignores readers, and a reader opens its `/proc/self/fd` entry anew for writing. The lease is given back
/// at once, since keeping it would keep a descriptor; it tells about this moment.
///
/// What it cannot see: an `O_PATH` descriptor, which is no open file, yet can be opened anew in the same way. So this
/// proves something only once the processes that had the file are gone.
///
/// `fd` must be a description that was never shared, else the sharers count as this one. "No" is also the answer of
/// file systems without leases.
#[must_use]
pub fn is_only_opener(fd: impl AsFd) -> bool {
    let fd = fd.as_fd().as_raw_fd();
    // Whoever opens the file while the lease is held makes the kernel send its holder SIGIO, which kills by default.
    // SIGURG is ignored by default, and is not lost to a full queue as a real-time signal could be.
    if !fcntl(fd, F_SETSIG, libc::SIGURG) {
        return false;
    }
    let granted = fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK);
    if granted {
        // It goes with the descriptor at the latest.
        _ = fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
    }
    granted
}

fn fcntl(fd: RawFd, command: libc::c_int, argument: libc::c_int) -> bool {
    // SAFETY: these commands take an integer and touch no memory of ours; `fd` is borrowed by the caller for the call.
    let answer = unsafe { libc::fcntl(fd, command, argument) };
    answer == 0
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::path::PathBuf;

    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::*;

    fn link(file: &impl AsFd) -> PathBuf {
        format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
    }

    /// A child that another test forks has our descriptors until it calls `exec`.
    fn soon_only_opener(fd: impl AsFd) -> bool {
        (0..10_000).any(|_| {
            std::thread::yield_now();
            is_only_opener(&fd)
        })
    }

    /// EX-58
    #[test]
    fn any_other_open_description_is_noticed_be_it_for_reading() {
        let ours = tempfile::tempfile().unwrap();
        assert!(soon_only_opener(&ours));
        let reader = File::open(link(&ours)).unwrap();
        assert!(!is_only_opener(&ours));
        drop(reader);
        let writer = OpenOptions::new().write(true).open(link(&ours)).unwrap();
        assert!(!is_only_opener(&ours));
        drop(writer);
        assert!(soon_only_opener(&ours));
    }

    /// EX-58
    #[test]
    fn a_writable_mapping_without_a_descriptor_is_noticed() {
        let theirs = tempfile::tempfile().unwrap();
        theirs.set_len(10).unwrap();
        let ours = File::open(link(&theirs)).unwrap();
        // SAFETY: nothing cuts the file while this test maps it.
        let mapped = unsafe { memmap2::MmapMut::map_mut(&theirs) }.unwrap();
        drop(theirs);
        assert!(!is_only_opener(&ours));
        drop(mapped);
        assert!(soon_only_opener(&ours));
    }

    /// EX-58: why a lease is no proof while those who had the file live.
    #[test]
    fn a_path_descriptor_goes_unnoticed_and_can_be_opened_for_writing_later() {
        let ours = tempfile::tempfile().unwrap();
        let path = openat(CWD, link(&ours), OFlags::PATH, Mode::empty()).unwrap();
        assert!(soon_only_opener(&ours));
        assert!(OpenOptions::new().write(true).open(link(&path)).is_ok());
    }
}
