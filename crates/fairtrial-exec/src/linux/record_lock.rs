//! Locks on single bytes of a file that belong to a process: its children do not have them, and its death frees them.
//!
//! Two properties to live with: within one process they exclude nobody, and closing *any* descriptor of the file gives
//! up all of them.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// How a byte is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Several processes may.
    Shared,
    /// One process alone.
    Exclusive,
}

impl Kind {
    fn raw(self) -> libc::c_int {
        match self {
            Self::Shared => libc::F_RDLCK,
            Self::Exclusive => libc::F_WRLCK,
        }
    }
}

/// Locks a byte, if no other process stands in the way.
pub fn try_lock(file: impl AsFd, byte: u32, kind: Kind) -> io::Result<bool> {
    match control(file, libc::F_SETLK, byte, kind.raw()) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Gives a byte up.
pub fn unlock(file: impl AsFd, byte: u32) -> io::Result<()> {
    control(file, libc::F_SETLK, byte, libc::F_UNLCK).map(|_| ())
}

/// Another process that has the byte: its number, or zero if it cannot be seen from here.
pub fn other_holder(file: impl AsFd, byte: u32) -> io::Result<Option<u32>> {
    let found = control(file, libc::F_GETLK, byte, libc::F_WRLCK)?;
    let held = libc::c_int::from(found.l_type) != libc::F_UNLCK;
    Ok(held.then(|| u32::try_from(found.l_pid).unwrap_or(0)))
}

fn control(
    file: impl AsFd,
    command: libc::c_int,
    byte: u32,
    kind: libc::c_int,
) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short, // three small numbers
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte.into(),
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the kernel reads and writes this structure only, and only during the call.
    let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}
