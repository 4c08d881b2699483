//! Whether a call waits for a lock on a file that another call holds.

use std::collections::HashSet;
use std::fs;

use fairtrial_exec::protocol::launcher::TaskId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::load::everybody;
use crate::serve::Launcher;
use crate::shortages::is_call;
use crate::task::Task;

/// Of a lock that belongs to an open file and not to a process (`F_OFD_SETLK`).
const NOBODY: i64 = -1;

/// A lock that is held, and who waits for it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lock<'a> {
    holder: i64,
    /// As `/proc/locks` writes it: device and inode.
    file: &'a str,
    waiters: Vec<i64>,
}

impl Launcher {
    /// Whether some process of this call waits for a lock of another call's.
    pub(crate) fn waits_for_a_rival(&self, id: TaskId) -> bool {
        let (own, others): (Vec<_>, Vec<_>) = self
            .tasks
            .iter()
            .filter(|(_, task)| is_call(task))
            .partition(|(other, _)| **other == id);
        if others.is_empty() {
            return false;
        }
        let processes = |calls: Vec<(&TaskId, &Task)>| -> Vec<u32> {
            let each = calls.into_iter();
            each.flat_map(|(_, task)| everybody(task.pid, &task.cell))
                .collect()
        };
        let (own, others) = (processes(own), processes(others));
        for _ in 0..LOOKS {
            let Ok(text) = fs::read_to_string("/proc/locks") else {
                return false;
            };
            let locks = parse(&text);
            if locks.is_empty() {
                return false;
            }
            let opened = opened(&own);
            let opened: Vec<_> = locks
                .iter()
                .filter(|lock| opened.contains(inode(lock.file)) && !is_of(lock.holder, &own))
                .collect();
            // Who took a lock may have passed it on, or have ended since: then whoever has it still has the file.
            let others_locked = match opened.iter().all(|lock| is_of(lock.holder, &others)) {
                true => HashSet::new(),
                false => locked(&others),
            };
            let rivals: Vec<_> = opened
                .into_iter()
                .filter(|lock| is_of(lock.holder, &others) || others_locked.contains(lock.file))
                .collect();
            if rivals.iter().any(|lock| lock.keeps(&own)) {
                return true;
            }
            if rivals.is_empty() {
                return false;
            }
            let mut end = [PollFd::new(&self.engine, PollFlags::IN)];
            poll(&mut end, Some(&PAUSE)).ok(); // woken early, the next look decides
        }
        false
    }
}

/// When one that waits is killed, the kernel wakes those who came later, and they wait anew: in between it does not show.
const LOOKS: usize = 4;
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

fn is_of(pid: i64, call: &[u32]) -> bool {
    call.iter().any(|one| i64::from(*one) == pid)
}

impl Lock<'_> {
    /// Whether this call, which has the file open, waits for it.
    fn keeps(&self, own: &[u32]) -> bool {
        let mut waiters = self.waiters.iter();
        waiters.any(|waiter| *waiter == NOBODY || is_of(*waiter, own))
    }
}

/// Those in `/proc/locks`: lines with an arrow wait for the one that has the same number and none.
fn parse(text: &str) -> Vec<Lock<'_>> {
    let mut locks: Vec<Lock<'_>> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(1).peekable();
        let waits = words.next_if_eq(&"->").is_some();
        // Kind, way and mode of the lock come first.
        let (Some(pid), Some(file)) = (words.nth(3), words.next()) else {
            continue;
        };
        let Ok(pid) = pid.parse() else { continue };
        match (waits, locks.last_mut()) {
            (true, Some(lock)) => lock.waiters.push(pid),
            _ => locks.push(Lock {
                holder: pid,
                file,
                waiters: Vec::new(),
            }),
        }
    }
    locks
}

/// More than that are not looked at: a call can have very many.
const MOST_FILES: usize = 4096;

/// What the kernel says of each open file of some processes.
fn files(processes: &[u32]) -> impl Iterator<Item = String> {
    let entries = processes
        .iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fdinfo")).ok());
    let entries = entries.flatten().take(MOST_FILES);
    entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
}

/// Files that these processes hold locks on, as `/proc/locks` writes them.
fn locked(processes: &[u32]) -> HashSet<String> {
    let mut found = HashSet::new();
    for text in files(processes) {
        let lines = text.lines().filter_map(|line| line.strip_prefix("lock:"));
        let locks = lines.flat_map(parse);
        found.extend(locks.map(|lock| lock.file.to_owned()));
    }
    found
}

/// The inodes of files that these processes have open. A file system may have more than one device.
fn opened(processes: &[u32]) -> HashSet<String> {
    let inode = |text: String| {
        let found = text.lines().find_map(|line| line.strip_prefix("ino:"))?;
        Some(found.trim().to_owned())
    };
    files(processes).filter_map(inode).collect()
}

fn inode(file: &str) -> &str {
    file.rsplit(':').next().unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
1: FLOCK  ADVISORY  WRITE 100 08:01:77 0 EOF
1: -> FLOCK  ADVISORY  WRITE 200 08:01:77 0 EOF
1:  -> FLOCK  ADVISORY  READ  300 08:01:77 0 EOF
2: POSIX  ADVISORY  READ  400 08:01:88 0 9
3: OFDLCK ADVISORY  WRITE -1 08:01:99 0 EOF
3: -> OFDLCK ADVISORY  WRITE -1 08:01:99 0 EOF
nothing of the kind
";

    /// FA-8
    #[test]
    fn who_waits_for_which_lock_is_told_by_the_kernel() {
        let locks = parse(TEXT);
        let holders: Vec<_> = locks.iter().map(|lock| lock.holder).collect();
        assert_eq!(holders, [100, 400, NOBODY]);
        assert_eq!((locks[0].file, inode(locks[0].file)), ("08:01:77", "77"));
        assert_eq!(locks[0].waiters, [200, 300]);
        assert!(locks[0].keeps(&[200]) && locks[0].keeps(&[5, 300]));
        assert!(!locks[0].keeps(&[100, 201]) && !locks[1].keeps(&[400]));
        assert!(locks[2].keeps(&[5]), "of such a lock it names nobody");
    }

    #[test]
    fn files_of_this_process_are_found() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create(c"locked", flags).expect("made");
        let number = rustix::fs::fstat(&file)
            .expect("its own")
            .st_ino
            .to_string();
        let operation = rustix::fs::FlockOperation::LockExclusive;
        rustix::fs::flock(&file, operation).expect("nobody has it");
        let mine = std::process::id();
        let text = fs::read_to_string("/proc/locks").expect("it is there");
        let locks = parse(&text);
        let found = locks
            .iter()
            .find(|lock| lock.holder == i64::from(mine) && inode(lock.file) == number);
        let found = found.expect("it is held").file;
        assert!(locked(&[mine]).contains(found) && opened(&[mine]).contains(&number));
    }
}
