//! One cgroup directory, whatever it is for: made, given controllers, emptied, removed.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::files::{self, Kept, number};

/// Cgroups may be nested; deeper than this nobody made them by accident.
const MOST_NESTED: usize = 32;

/// Makes a cgroup and opens it. Anybody may look: some interpreters size themselves by their own limits.
pub(super) fn make(parent: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
    open(&parent, name)
}

/// Opens a cgroup.
pub(super) fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Hands v2 controllers on to the cgroups below, one by one; gives each that was refused. Fails with `EBUSY` for a
/// cgroup that holds processes.
pub(super) fn enable<'a>(group: impl AsFd, controllers: &[&'a str]) -> Vec<(&'a str, Errno)> {
    let handed_on = handed_on(&group);
    let missing = controllers
        .iter()
        .filter(|name| !handed_on.iter().any(|has| has == *name));
    missing
        .filter_map(|name| {
            let written = files::write(&group, "cgroup.subtree_control", &format!("+{name}"));
            written.err().map(|errno| (*name, errno))
        })
        .collect()
}

/// The v2 controllers that a cgroup hands on.
pub(super) fn handed_on(group: impl AsFd) -> Vec<String> {
    words(group, "cgroup.subtree_control")
}

/// The v2 controllers that a cgroup could hand on.
pub(super) fn controllers(group: impl AsFd) -> Vec<String> {
    words(group, "cgroup.controllers")
}

fn words(group: impl AsFd, file: &str) -> Vec<String> {
    let text = files::read_all(group, file).unwrap_or_default(); // none can be had where it cannot be read
    String::from_utf8_lossy(&text)
        .split_ascii_whitespace()
        .map(str::to_owned)
        .collect()
}

/// The processes of a cgroup, those of cgroups below not among them.
pub(super) fn processes(group: impl AsFd) -> io::Result<Vec<i32>> {
    let text = files::read_all(group, "cgroup.procs")?;
    // Zero stands for one that this pid namespace does not see.
    Ok(text
        .split(|&byte| byte == b'\n')
        .filter_map(number)
        .filter(|&pid| pid > 0)
        .collect())
}

/// Whether a process is in a cgroup itself, be it one that this pid namespace does not see.
pub(super) fn holds_processes(group: impl AsFd) -> io::Result<bool> {
    Ok(!files::read_all(group, "cgroup.procs")?.is_empty())
}

/// Kills everything in a cgroup and below, at once where the kernel can.
pub(super) fn kill(group: BorrowedFd<'_>) {
    if files::write(group, "cgroup.kill", "1").is_err() {
        kill_listed(group, 0);
    }
}

/// One pass of killing by list. What forked meanwhile is left to the next pass.
fn kill_listed(group: BorrowedFd<'_>, depth: usize) {
    let listed = processes(group).unwrap_or_default(); // gone, so there is nobody to kill
    let handles: Vec<(i32, OwnedFd)> = listed
        .into_iter()
        .filter_map(|pid| {
            Some((
                pid,
                pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?,
            ))
        })
        .collect();
    // Listed again after it was opened: the number still meant that process.
    let still: HashSet<i32> = processes(group).unwrap_or_default().into_iter().collect();
    for (pid, handle) in handles {
        if still.contains(&pid) && pid.unsigned_abs() != std::process::id() {
            _ = pidfd_send_signal(&handle, Signal::KILL); // it may have ended by itself
        }
    }
    for name in below(group) {
        if let (true, Ok(child)) = (depth < MOST_NESTED, open(group, &name)) {
            kill_listed(child.as_fd(), depth + 1);
        }
    }
}

/// Waits for a v2 cgroup to be empty, a moment at most.
pub(super) fn await_empty(group: BorrowedFd<'_>) {
    let Ok(events) = Kept::open(group, "cgroup.events", OFlags::RDONLY) else {
        return;
    };
    if events.keyed("populated") != Some(0) {
        let mut changed = [PollFd::new(&events, PollFlags::PRI)];
        _ = poll(&mut changed, Some(&milliseconds(20))); // the caller looks again either way
    }
}

/// Between two tries, where nothing announces that the next may do better.
pub(super) fn pause() {
    _ = poll(&mut [], Some(&milliseconds(1))); // a signal only makes it shorter
}

fn milliseconds(ms: i64) -> Timespec {
    Timespec {
        tv_sec: 0,
        tv_nsec: ms * 1_000_000,
    }
}

/// Removes an empty cgroup and those that its processes made below. One that is not there counts as removed; one with
/// a process in it is `EBUSY`.
pub(super) fn remove(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
) -> rustix::io::Result<()> {
    remove_nested(parent, name, 0)
}

fn remove_nested(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    depth: usize,
) -> rustix::io::Result<()> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::BUSY) if depth < MOST_NESTED => (),
        other => return other,
    }
    let group = match open(parent, name) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    for child in below(group.as_fd()) {
        remove_nested(group.as_fd(), &child, depth + 1)?;
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// The names of the cgroups in this one; none if it is gone.
fn below(group: BorrowedFd<'_>) -> Vec<OsString> {
    let Ok(entries) = Dir::read_from(group) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type() == FileType::Directory)
        .map(|entry| entry.file_name().to_bytes().to_vec())
        .filter(|name| name != b"." && name != b"..")
        .map(OsString::from_vec)
        .collect()
}
