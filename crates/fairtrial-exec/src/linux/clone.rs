//! `clone` as a fork, with namespaces. Only for the launcher, which has one thread: a child may go on as a copy of it.

use std::io;

/// The child's pid, and 0 in the child. Shares nothing but what the flags say.
pub(super) fn clone(flags: libc::c_int) -> io::Result<i32> {
    // SAFETY: without CLONE_VM the child has its own copy of everything; the other arguments are not used then.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            i64::from(flags | libc::SIGCHLD),
            0,
            0,
            0,
            0,
        )
    };
    if pid < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(i32::try_from(pid).expect("a pid is an int"))
    }
}

/// The end of a child, without any clean-up of its parent's things.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: never returns and runs no handlers.
    unsafe { libc::_exit(code) }
}

/// Enters a namespace.
pub(super) fn enter(file: i32, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::setns(file, kind) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
