//! Time in which threads were ready to run and not running: the scheduler's own account, `/proc/PID/schedstat`.

use std::collections::HashMap;
use std::io;

use super::proc_status::{number, read_small};
use super::proc_tree::threads;

/// Time a thread has waited for a processor since it began, by the number of the thread or of its process's first one.
/// A zombie still has it. None where the kernel keeps no such account.
#[must_use]
pub fn run_delay_ns(thread: u32) -> Option<u64> {
    parse(&read_small(&format!("/proc/{thread}/schedstat")).ok()?)
}

/// Nanoseconds run, nanoseconds waited, times it was given a processor. All zero where the account is switched off:
/// whoever can be looked at has had a processor.
fn parse(text: &[u8]) -> Option<u64> {
    let mut fields = text.split(u8::is_ascii_whitespace);
    let (ran, waited): (u64, u64) = (number(fields.next()?)?, number(fields.next()?)?);
    let turns: u64 = number(fields.next()?)?;
    ((ran, waited, turns) != (0, 0, 0)).then_some(waited)
}

/// How long a tree of processes has waited, put together from looks at its threads: a thread that ends takes its account
/// along, so what it waited after the last look is not known.
#[derive(Debug, Default)]
pub struct Waits {
    seen: HashMap<u32, u64>,
    total_ns: Option<u64>,
    looked_ns: Option<u64>,
}

impl Waits {
    /// Looks at the first thread of a process, which may be a zombie.
    pub fn look_at(&mut self, pid: u32, now_ns: u64) {
        let found = run_delay_ns(pid).map(|waited| (pid, waited));
        self.add(found, now_ns);
    }

    /// Looks at all threads of these processes.
    pub fn look_at_all(&mut self, pids: impl IntoIterator<Item = u32>, now_ns: u64) {
        let delay = |pid: u32, thread: u32| {
            let file = format!("/proc/{pid}/task/{thread}/schedstat");
            Some((thread, parse(&read_small(&file).ok()?)?))
        };
        let found: Vec<_> = pids
            .into_iter()
            .flat_map(|pid| threads(pid).into_iter().map(move |thread| (pid, thread)))
            .filter_map(|(pid, thread)| delay(pid, thread))
            .collect();
        self.add(found, now_ns);
    }

    /// However many threads wait at a time, no more than the time that passed counts.
    fn add(&mut self, found: impl IntoIterator<Item = (u32, u64)>, now_ns: u64) {
        let mut added_ns = None;
        for (thread, waited_ns) in found {
            let before_ns = self.seen.insert(thread, waited_ns).unwrap_or(0);
            *added_ns.get_or_insert(0) += waited_ns.saturating_sub(before_ns);
        }
        let Some(added_ns) = added_ns else { return };
        let passed_ns = self
            .looked_ns
            .map(|looked_ns| now_ns.saturating_sub(looked_ns));
        let added_ns: u64 = added_ns;
        let counts_ns = passed_ns.map_or(added_ns, |passed_ns| added_ns.min(passed_ns));
        self.total_ns = Some(self.total_ns.unwrap_or(0) + counts_ns);
        self.looked_ns = Some(now_ns);
    }

    /// Time waited so far, as far as it was seen.
    #[must_use]
    pub fn total_ns(&self) -> Option<u64> {
        self.total_ns
    }
}

/// Time that all processors of the machine spent on anybody, since it was started.
///
/// Time in which a processor had nothing to do but to wait for a disk counts as spent.
pub fn machine_busy_ns() -> io::Result<u64> {
    let text = read_small("/proc/uptime")?;
    busy_ns(&text, processors()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// How many processors the machine has.
#[must_use]
pub fn processors() -> u64 {
    // SAFETY: takes a number only.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u64::try_from(count).unwrap_or(1).max(1)
}

/// From seconds since the start, and seconds without work of all processors together.
fn busy_ns(text: &[u8], processors: u64) -> Option<u64> {
    let mut fields = str::from_utf8(text).ok()?.split_ascii_whitespace();
    let mut centiseconds = || -> Option<u64> {
        let (whole, part) = fields.next()?.split_once('.')?;
        Some(whole.parse::<u64>().ok()? * 100 + part.parse::<u64>().ok()?)
    };
    let (up, idle) = (centiseconds()?, centiseconds()?);
    Some((up * processors).saturating_sub(idle) * 10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FA-16
    #[test]
    fn what_a_thread_waited_is_the_second_number_and_all_zeros_are_no_account() {
        assert_eq!(parse(b"12 345 6\n"), Some(345));
        assert_eq!(parse(b"12 0 6\n"), Some(0));
        assert_eq!(parse(b"0 0 0\n"), None);
        assert_eq!(parse(b""), None);
    }

    /// FA-14: many threads that are woken at once cannot buy more time than passes.
    #[test]
    fn threads_that_wait_together_wait_once() {
        let mut waits = Waits::default();
        assert_eq!(waits.total_ns(), None);
        waits.add([(1, 40)], 100);
        waits.add([(1, 45), (2, 3)], 110);
        assert_eq!(waits.total_ns(), Some(48));
        waits.add((10..90).map(|thread| (thread, 9)), 120);
        assert_eq!(waits.total_ns(), Some(58));
        waits.add([(1, 46)], 200); // the others ended
        assert_eq!(waits.total_ns(), Some(59));
    }

    /// FA-15
    #[test]
    fn what_is_not_idle_is_busy() {
        assert_eq!(busy_ns(b"10.50 12.00\n", 2), Some(9_000_000_000));
        assert_eq!(busy_ns(b"1.00 5.00\n", 2), Some(0));
        assert_eq!(busy_ns(b"x", 2), None);
        machine_busy_ns().expect("every Linux tells");
    }
}
