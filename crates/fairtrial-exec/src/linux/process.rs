//! What a process says about itself: its fate when the parent dies, whether others may look into it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::DumpableBehavior;

/// The launcher's first acts: it hears signals as if its host ignored none, nobody looks into it, no terminal's signals
/// reach it, orphans come to it, and only `keep` stays open beside 0 to 2, which become `/dev/null`.
pub fn become_launcher(keep: &[&OwnedFd]) -> io::Result<()> {
    super::signals::reset_dispositions();
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Ctrl-C is sent to the host's whole group. Whether it ends calls is the host's to say: it may well catch it.
    rustix::process::setsid()?;
    set_child_subreaper()?;
    close_all_but(keep);
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Keeps processes of the same user from reading this one's environment and memory.
pub fn hide_from_same_user() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(
        DumpableBehavior::NotDumpable,
    )?)
}

/// Whether [`hide_from_same_user`] is in force.
#[must_use]
pub fn is_hidden_from_same_user() -> bool {
    rustix::process::dumpable_behavior() == Ok(DumpableBehavior::NotDumpable)
}

/// The umask of this process when it was first asked for, if `/proc` tells it: there is no other way to read it without
/// changing it for all threads.
#[must_use]
pub fn host_umask() -> Option<u32> {
    static UMASK: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("Umask:"))?;
        u32::from_str_radix(mask.trim(), 8).ok()
    })
}

/// The most that this process, and whatever it starts, may have of a resource; `RLIM_INFINITY` is no limit.
#[must_use]
pub fn hard_limit(resource: u32) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a live local place for the answer. A resource that the kernel does not know leaves it as it is.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_max
}

/// Limits this process for good. Where it may not raise the host's lower limit, it keeps that one.
pub(super) fn limit_self(resource: u32, value: u64) -> libc::c_int {
    let set = |value| {
        let limit = libc::rlimit {
            rlim_cur: value,
            rlim_max: value,
        };
        // SAFETY: reads a live local structure.
        unsafe { libc::setrlimit(resource, &raw const limit) }
    };
    match set(value) {
        0 => 0,
        _ => set(value.min(hard_limit(resource))),
    }
}

/// Makes this process inherit the orphans of everything below it. For a program whose only children are the engine's:
/// it may then tell the engine so, by `LocalConfig::adopts_orphans`.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper()
}

fn set_child_subreaper() -> io::Result<()> {
    // SAFETY: takes numbers only.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Closes every descriptor above 2 that is not in `keep`: whatever the host left inheritable.
pub(super) fn close_all_but(keep: &[&OwnedFd]) {
    let mut kept: Vec<u32> = keep
        .iter()
        .map(|fd| fd.as_raw_fd().cast_unsigned())
        .collect();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept.into_iter().chain([u32::MAX]) {
        if fd > first {
            // SAFETY: nothing in this process uses these numbers: it has only just begun. An empty range is refused,
            // harmlessly.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
        }
        first = fd.saturating_add(1);
    }
}
