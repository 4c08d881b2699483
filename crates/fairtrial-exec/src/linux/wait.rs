//! Waiting for children with their resource usage.

use std::io;

/// A child that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// Its process id, free for reuse from now on.
    pub pid: i32,
    /// The wait status.
    pub status: i32,
    /// Processor time in user mode, of it and the children it waited for.
    pub user_ns: u64,
    /// Processor time in the kernel.
    pub system_ns: u64,
    /// Largest resident size of it or of a child it waited for.
    pub max_rss_bytes: u64,
    /// Switches and faults, of it and the children it waited for.
    pub counts: Counts,
}

impl Reaped {
    /// Whether SIGKILL ended it.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        libc::WIFSIGNALED(self.status) && libc::WTERMSIG(self.status) == libc::SIGKILL
    }
}

/// What the kernel counts of every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Times it gave its processor up.
    pub voluntary_switches: u64,
    /// Times its processor was taken from it.
    pub involuntary_switches: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
}

impl Counts {
    fn of(usage: &libc::rusage) -> Self {
        let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
        Self {
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
        }
    }

    /// Another process's besides.
    pub fn add(&mut self, other: &Self) {
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
    }
}

/// A child that has ended and can still be looked at: it is not reaped.
pub fn any_ended() -> io::Result<Option<i32>> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a live local; WNOWAIT leaves the child waitable, WNOHANG never blocks.
    if unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), flags) } != 0 {
        return match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            error => Err(error),
        };
    }
    // SAFETY: all-zero is a valid siginfo_t, and `si_pid` is the field waitid fills; 0 means nothing has ended.
    let pid = unsafe { info.assume_init().si_pid() };
    Ok((pid != 0).then_some(pid))
}

/// Reaps one child that has ended, if there is one.
pub fn reap_any() -> io::Result<Option<Reaped>> {
    reap(-1)
}

/// Reaps this child if it has ended.
pub fn reap(child: i32) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live local variables; WNOHANG never blocks.
    let pid = unsafe { libc::wait4(child, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match pid {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            error => Err(error),
        },
        pid => {
            // SAFETY: all-zero is a valid rusage, and the kernel filled it on success.
            let usage = unsafe { usage.assume_init() };
            Ok(Some(Reaped {
                pid,
                status,
                user_ns: nanoseconds(usage.ru_utime),
                system_ns: nanoseconds(usage.ru_stime),
                max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
                counts: Counts::of(&usage),
            }))
        }
    }
}

/// Reaps a child if it has ended; how interests nobody.
#[cfg(feature = "engine")]
pub(crate) fn reap_if_ended(pid: i32) -> bool {
    // SAFETY: a null status pointer is allowed, and the call touches no memory of ours.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) == pid }
}

/// Whether a child has not ended yet; does not reap it.
#[must_use]
pub fn is_running(pid: i32) -> bool {
    look(pid) == Some(0)
}

/// Whether it is a child of this process, ended or not; does not reap it.
#[must_use]
pub fn is_child(pid: i32) -> bool {
    look(pid).is_some()
}

/// Which of that number has ended, or 0; none if it is no child.
fn look(pid: i32) -> Option<i32> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let id = libc::id_t::try_from(pid).unwrap_or(0);
    // SAFETY: `info` is a live local; WNOWAIT leaves the child waitable, WNOHANG never blocks.
    let result = unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), flags) };
    // SAFETY: all-zero is a valid siginfo_t, and `si_pid` is the field waitid fills; 0 means nothing has ended.
    (result == 0).then(|| unsafe { info.assume_init().si_pid() })
}

fn nanoseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_usec).unwrap_or(0) * 1000
}
