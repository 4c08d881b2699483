//! Who goes before whom on a processor.

use std::io;

/// The policies of the kernel that are told apart here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// As everybody else.
    Usual,
    /// Before everybody who is not told so too. What it starts is again as everybody else.
    Ahead,
}

/// Gives a process (0: the calling one) its turn. To go ahead takes root, as a rule.
pub fn set(pid: i32, turn: Turn) -> io::Result<()> {
    let (policy, priority) = match turn {
        Turn::Usual => (libc::SCHED_OTHER, 0),
        // The lowest of its kind. The kernel leaves a twentieth of the time to the others, whatever it does.
        Turn::Ahead => (libc::SCHED_RR, 1),
    };
    // What a measured process starts is measured with it; what others start is not.
    let inherits = if pid == 0 {
        libc::SCHED_RESET_ON_FORK
    } else {
        0
    };
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the parameters live through the call, which only reads them.
    match unsafe { libc::sched_setscheduler(pid, policy | inherits, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether processes can be let go ahead: tried on a thread that ends at once.
#[must_use]
pub fn can_go_ahead() -> bool {
    let tried = std::thread::spawn(|| set(0, Turn::Ahead).is_ok());
    tried.join().unwrap_or(false)
}
