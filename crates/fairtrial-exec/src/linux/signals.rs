//! SIGCHLD as a descriptor, and signals to our own children.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Undoes what the host ignores or handles: with SIGCHLD ignored the kernel reaps children before anybody asks how they
/// ended. SIGPIPE stays ignored, as every Rust program has it.
pub fn reset_dispositions() {
    for signal in (1..=64).filter(|signal| *signal != libc::SIGPIPE) {
        // SAFETY: no handler is installed. KILL, STOP and libc's own two refuse, harmlessly.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// As a program expects it: no signal ignored, none blocked. For a child before exec: allocates nothing, takes no lock.
pub(super) fn reset_in_child() {
    // SAFETY: system calls on numbers and a live local set. KILL, STOP and libc's own two refuse, harmlessly.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// A descriptor that is readable while SIGCHLD is pending; the signal itself is blocked from now on.
pub fn child_signals() -> io::Result<OwnedFd> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is a live local; sigemptyset initialises it before the others read it.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd just returned this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Empties the descriptor of [`child_signals`].
pub fn drain(fd: &OwnedFd) {
    let mut buffer = [0_u8; 1024];
    while rustix::io::read(fd.as_fd(), &mut buffer).is_ok_and(|count| count > 0) {}
}

/// Signals the process behind a pidfd; any number, real-time ones included.
pub fn send(pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    // SAFETY: pidfd_send_signal reads no memory of ours when the siginfo pointer is null.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Kills a child of this process that it has not reaped, so that its number cannot mean anybody else.
pub fn kill_child(pid: i32) {
    // SAFETY: kill takes no pointers. A child that just ended is a zombie until we reap it: no error worth telling.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}
