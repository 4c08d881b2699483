//! Time in which threads were ready to run and not running: the scheduler's own account, `/proc/PID/schedstat`.

use std::collections::{HashMap, VecDeque};
use std::io;

use super::proc_status::{number, read_small};
use super::proc_tree::threads;

/// Time a thread has waited for a processor since it began, by the number of the thread or of its process's first one.
/// A zombie still has it. None where the kernel keeps no such account.
#[must_use]
pub fn run_delay_ns(thread: u32) -> Option<u64> {
    Some(account(&format!("/proc/{thread}/schedstat"))?.waited_ns)
}

/// What the scheduler has of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    ran_ns: u64,
    /// Of waits that are over: the kernel adds one when the thread gets a processor.
    waited_ns: u64,
}

fn account(file: &str) -> Option<Account> {
    parse(&read_small(file).ok()?)
}

/// Nanoseconds run, nanoseconds waited, times it was given a processor. All zero where the account is switched off:
/// whoever can be looked at has had a processor.
fn parse(text: &[u8]) -> Option<Account> {
    let mut fields = text.split(u8::is_ascii_whitespace);
    let (ran_ns, waited_ns): (u64, u64) = (number(fields.next()?)?, number(fields.next()?)?);
    let turns: u64 = number(fields.next()?)?;
    ((ran_ns, waited_ns, turns) != (0, 0, 0)).then_some(Account { ran_ns, waited_ns })
}

/// How long a tree of processes has waited, put together from looks at its threads: a thread that ends takes its account
/// along, so what it waited after the last look is not known.
#[derive(Debug, Default)]
pub struct Waits {
    seen: HashMap<u32, Seen>,
    total_ns: Option<u64>,
    /// The last looks, with the total as it was then.
    looks: VecDeque<(u64, u64)>,
}

/// A thread at the last look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    account: Account,
    /// The last look at which its account was another than at the look before: if it waits, it began after that.
    changed_ns: u64,
}

/// A wait is seldom longer than that many looks.
const LOOKS_KEPT: usize = 256;

impl Waits {
    /// Looks at the first thread of a process, which may be a zombie.
    pub fn look_at(&mut self, pid: u32, now_ns: u64) {
        let found = account(&format!("/proc/{pid}/schedstat")).map(|account| (pid, account));
        self.add(found, now_ns);
    }

    /// Looks at all threads of these processes.
    pub fn look_at_all(&mut self, pids: impl IntoIterator<Item = u32>, now_ns: u64) {
        let of_thread = |pid: u32, thread: u32| {
            let file = format!("/proc/{pid}/task/{thread}/schedstat");
            Some((thread, account(&file)?))
        };
        let found: Vec<_> = pids
            .into_iter()
            .flat_map(|pid| threads(pid).into_iter().map(move |thread| (pid, thread)))
            .filter_map(|(pid, thread)| of_thread(pid, thread))
            .collect();
        self.add(found, now_ns);
    }

    /// However many threads wait at a time, no more counts than the time that passed since the first of them began to.
    fn add(&mut self, found: impl IntoIterator<Item = (u32, Account)>, now_ns: u64) {
        let last_look_ns = self.looks.back().map(|(at_ns, _)| *at_ns);
        let (mut added_ns, mut since_ns, mut saw_any) = (0_u64, now_ns, false);
        for (thread, account) in found {
            saw_any = true;
            let before = self.seen.get(&thread);
            let (waited_before_ns, began_ns) = match before {
                Some(seen) => (seen.account.waited_ns, Some(seen.changed_ns)),
                None => (0, last_look_ns), // it began after that
            };
            let waited_ns = account.waited_ns.saturating_sub(waited_before_ns);
            if waited_ns > 0 {
                added_ns += waited_ns;
                since_ns = since_ns.min(began_ns.unwrap_or(0));
            }
            let unchanged = before.filter(|seen| seen.account == account);
            let changed_ns = unchanged.map_or(now_ns, |seen| seen.changed_ns);
            let seen = Seen {
                account,
                changed_ns,
            };
            self.seen.insert(thread, seen);
        }
        if !saw_any {
            return;
        }
        let total_ns = self.total_ns.unwrap_or(0);
        let counted_ns = total_ns.saturating_sub(self.total_at(since_ns));
        let passed_ns = now_ns.saturating_sub(since_ns);
        let total_ns = total_ns + added_ns.min(passed_ns.saturating_sub(counted_ns));
        self.total_ns = Some(total_ns);
        self.looks.push_back((now_ns, total_ns));
        if self.looks.len() > LOOKS_KEPT {
            self.looks.pop_front();
        }
    }

    /// The total at that time, or at the first look that is still known.
    fn total_at(&self, at_ns: u64) -> u64 {
        let before = self.looks.partition_point(|(look_ns, _)| *look_ns <= at_ns);
        let look = self.looks.get(before.saturating_sub(1));
        look.map_or(0, |(_, total_ns)| *total_ns)
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

    fn account(ran_ns: u64, waited_ns: u64) -> Account {
        Account { ran_ns, waited_ns }
    }

    /// FA-16
    #[test]
    fn what_a_thread_waited_is_the_second_number_and_all_zeros_are_no_account() {
        assert_eq!(parse(b"12 345 6\n"), Some(account(12, 345)));
        assert_eq!(parse(b"12 0 6\n"), Some(account(12, 0)));
        assert_eq!(parse(b"0 0 0\n"), None);
        assert_eq!(parse(b""), None);
    }

    /// FA-14: many threads that are woken at once cannot buy more time than passes.
    #[test]
    fn threads_that_wait_together_wait_once() {
        let mut waits = Waits::default();
        assert_eq!(waits.total_ns(), None);
        waits.add([(1, account(60, 40))], 100);
        waits.add([(1, account(61, 45)), (2, account(1, 3))], 110);
        assert_eq!(waits.total_ns(), Some(48));
        waits.add((10..90).map(|thread| (thread, account(1, 9))), 120);
        assert_eq!(waits.total_ns(), Some(58));
        waits.add([(1, account(70, 46))], 200); // the others ended
        assert_eq!(waits.total_ns(), Some(59));
    }

    /// FA-14: a wait is told when it is over, and may have taken many looks.
    #[test]
    fn a_wait_longer_than_the_time_between_looks_counts_in_full() {
        let mut waits = Waits::default();
        waits.add([(1, account(50, 0))], 100);
        for look in 11..17 {
            waits.add([(1, account(50, 0))], 10 * look);
        }
        waits.add([(1, account(52, 65))], 170);
        assert_eq!(waits.total_ns(), Some(65));
        // Another thread that waited at the same time adds what that was longer.
        waits.add([(1, account(62, 65)), (2, account(1, 8))], 180);
        assert_eq!(waits.total_ns(), Some(73));
        waits.add([(1, account(72, 65)), (2, account(1, 90))], 190);
        assert_eq!(waits.total_ns(), Some(83));
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
