//! `clone` as a fork, with namespaces. Only for the launcher, which has one thread: a child may go on as a copy of it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, WaitOptions, waitpid};

use super::signals::kill_child;
use super::spawn::open_child;

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

/// As [`clone`], by way of a process in between that goes somewhere first: whoever enters a namespace of processes has its
/// children there ever after.
pub(super) fn clone_from(
    go: impl FnOnce() -> io::Result<()>,
    flags: libc::c_int,
) -> io::Result<i32> {
    let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let middle = clone(0)?;
    if middle == 0 {
        let made = go().and_then(|()| clone(flags | libc::CLONE_PARENT));
        let answer = match made {
            Ok(0) => return Ok(0),
            Ok(pid) => pid,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EINVAL),
        };
        rustix::io::write(&tell, &answer.to_ne_bytes()).ok(); // without it the launcher takes it as failed
        exit(0);
    }
    drop(tell);
    let mut answer = [0; 4];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&told, &mut answer));
    reap(middle)?;
    match (read?, i32::from_ne_bytes(answer)) {
        (4, pid @ 1..) => Ok(pid),
        (4, errno) => Err(io::Error::from_raw_os_error(-errno)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Waits for the end of a child.
pub(super) fn reap(child: i32) -> io::Result<()> {
    rustix::io::retry_on_intr(|| waitpid(Pid::from_raw(child), WaitOptions::empty()))?;
    Ok(())
}

/// A handle on a child of this process that it has not reaped. Without one nobody could end it: then it is ended here.
pub(super) fn handle_or_end(child: i32) -> io::Result<OwnedFd> {
    open_child(child).inspect_err(|_| kill_child(child))
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
