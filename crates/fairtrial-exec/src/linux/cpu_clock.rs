//! CPU time of another process, from the kernel's own clock of it.

use std::io;

use crate::linux::proc_status::Stat;

/// The kernel gives no process a higher number (`PID_MAX_LIMIT`).
const PID_LIMIT: libc::pid_t = 4 << 20;

/// The kind of clock in the low bits of its number: the scheduler's, of a whole process.
const CPUCLOCK_SCHED: libc::clockid_t = 2;

/// CPU time of a process and all its threads, ended ones included. Children are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user code: the total, shared out as the kernel's sampled ticks are.
    pub user_ns: u64,
    /// In the kernel: the rest.
    pub system_ns: u64,
}

/// CPU time of the process in nanoseconds, exact to the scheduler's clock. A zombie still has it.
///
/// The number of a process that was reaped may be another's; the caller holds the child or its pidfd.
pub fn process_cpu_ns(pid: u32) -> io::Result<u64> {
    let pid = match libc::pid_t::try_from(pid) {
        // Zero would mean the caller, and a number that cannot be is shifted into one that can.
        Ok(pid @ 1..=PID_LIMIT) => pid,
        _ => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
    };
    // As `clock_getcpuclockid` makes it, which besides asks the kernel whether there is one: so does the next call.
    let clock = (!pid << 3) | CPUCLOCK_SCHED;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes into our variable; a number that is no clock's is refused.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        let error = io::Error::last_os_error();
        // The clock of a process that is gone is an invalid clock.
        let gone = error.raw_os_error() == Some(libc::EINVAL);
        return Err(if gone {
            io::Error::from_raw_os_error(libc::ESRCH)
        } else {
            error
        });
    }
    let (seconds, rest) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Ok(seconds * 1_000_000_000 + rest)
}

/// The same, split: the clock gives the sum, `/proc/PID/stat` the proportion.
pub fn process_cpu(pid: u32) -> io::Result<CpuTimes> {
    let stat = Stat::read(pid)?;
    Ok(split(process_cpu_ns(pid)?, &stat))
}

/// Shares `total_ns` out by ticks. Without a tick yet all counts as user time, as the kernel itself has it.
#[must_use]
pub fn split(total_ns: u64, stat: &Stat) -> CpuTimes {
    let ticks = u128::from(stat.utime_ticks) + u128::from(stat.stime_ticks);
    let share = u128::from(total_ns) * u128::from(stat.utime_ticks);
    let user_ns = share
        .checked_div(ticks)
        .map_or(total_ns, |ns| u64::try_from(ns).unwrap_or(total_ns));
    CpuTimes {
        user_ns,
        system_ns: total_ns - user_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(utime_ticks: u64, stime_ticks: u64) -> Stat {
        Stat {
            state: b'R',
            ppid: 1,
            session: 1,
            flags: 0,
            utime_ticks,
            stime_ticks,
            num_threads: 1,
            waited_ticks: 0,
            starttime_ticks: 1,
            rss_pages: 1,
        }
    }

    /// EX-82
    #[test]
    fn the_clock_of_a_process_advances_with_its_work() {
        let pid = std::process::id();
        let before = process_cpu_ns(pid).unwrap();
        while process_cpu_ns(pid).unwrap() < before + 1_000_000 {}
        let times = process_cpu(pid).unwrap();
        assert!(times.user_ns + times.system_ns > before);
    }

    /// EX-82
    #[test]
    fn a_process_that_is_not_there_has_no_clock() {
        for pid in [0, PID_LIMIT as u32, i32::MAX as u32, u32::MAX] {
            let error = process_cpu_ns(pid).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ESRCH), "{pid}");
        }
    }

    /// EX-82
    #[test]
    fn the_parts_add_up_to_the_total_whatever_the_ticks() {
        for (user, system, expected) in [(0, 0, 10), (3, 1, 7), (0, 5, 0), (u64::MAX, u64::MAX, 5)]
        {
            let times = split(10, &stat(user, system));
            assert_eq!(
                (times.user_ns, times.user_ns + times.system_ns),
                (expected, 10)
            );
        }
    }
}
