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

/// Another process that keeps this one from locking the byte: its number, or zero if it cannot be seen from here.
pub fn other_holder(file: impl AsFd, byte: u32, kind: Kind) -> io::Result<Option<u32>> {
    let found = control(file, libc::F_GETLK, byte, kind.raw())?;
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

/// Other processes, for tests: within one process these locks exclude nobody.
#[cfg(test)]
pub(crate) mod forked {
    /// Runs `work` in a forked child, which ends with it.
    pub(crate) fn in_child(work: impl FnOnce() -> bool) -> libc::pid_t {
        // SAFETY: the child only makes system calls before it ends without a word to the runtime.
        match unsafe { libc::fork() } {
            0 => {
                let code = libc::c_int::from(!work());
                // SAFETY: ends the child and nothing else.
                unsafe { libc::_exit(code) }
            }
            pid => pid,
        }
    }

    pub(crate) fn ended_well(pid: libc::pid_t) -> bool {
        let mut status = -1;
        // SAFETY: a child of ours; the kernel writes its end into our variable.
        unsafe { libc::waitpid(pid, &raw mut status, 0) == pid && status == 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::forked::{ended_well, in_child};
    use super::*;

    /// CA-42, CA-62
    #[test]
    fn a_forked_child_neither_has_its_parents_lock_nor_keeps_it_alive() {
        let file = tempfile::tempfile().unwrap();
        let (mut alive, stay) = rustix::pipe::pipe()
            .map(|(a, b)| (File::from(a), b))
            .unwrap();
        let (wait, go) = rustix::pipe::pipe().unwrap();
        // The holder forks a child that lives on with the file open, and dies.
        let holder = in_child(|| {
            let held = try_lock(&file, 3, Kind::Exclusive).is_ok_and(|locked| locked);
            let child = in_child(|| {
                let not_ours =
                    other_holder(&file, 3, Kind::Exclusive).is_ok_and(|holder| holder.is_some());
                let told = rustix::io::write(&stay, if not_ours { b"y" } else { b"n" });
                // Until the test has looked.
                rustix::io::read(&wait, &mut [0_u8; 1]).is_ok() && told.is_ok()
            });
            // The answer is awaited by the test, which would not get the lock before.
            held && child > 0 && rustix::io::read(&wait, &mut [0_u8; 1]).is_ok()
        });
        let mut answer = [0];
        alive.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"y");
        assert_eq!(
            other_holder(&file, 3, Kind::Exclusive).unwrap(),
            Some(holder.unsigned_abs())
        );
        assert!(!try_lock(&file, 3, Kind::Shared).unwrap());
        assert!(try_lock(&file, 4, Kind::Shared).unwrap(), "another byte");
        // SAFETY: a child of ours that is not reaped yet.
        assert_eq!(unsafe { libc::kill(holder, libc::SIGKILL) }, 0);
        assert!(!ended_well(holder));
        assert!(
            try_lock(&file, 3, Kind::Exclusive).unwrap(),
            "its child lives on"
        );
        rustix::io::write(&go, b".").unwrap(); // it has looked: the child may end
    }
}
