//! Whether a call waits for a lock on a file that another call holds.

use std::fs;
use std::time::Duration;

use fairtrial_exec::protocol::launcher::TaskId;

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
            if locks
                .iter()
                .any(|lock| is_kept(lock, &own, &others, has_open, has_locked))
            {
                return true;
            }
            let may_wait = |lock: &Lock<'_>| {
                is_of(lock.holder, &others) && own.iter().any(|pid| has_open(*pid, lock.file))
            };
            if !locks.iter().any(may_wait) {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }
}

/// When one that waits is killed, the kernel wakes those who came later, and they wait anew: in between it does not show.
const LOOKS: usize = 4;
const PAUSE: Duration = Duration::from_millis(1);

fn is_of(pid: i64, call: &[u32]) -> bool {
    call.iter().any(|one| i64::from(*one) == pid)
}

/// Who took a lock may have passed it on, or have ended since: then whoever has it still has the file.
fn is_kept(
    lock: &Lock<'_>,
    own: &[u32],
    others: &[u32],
    has_open: impl Fn(u32, &str) -> bool,
    has_locked: impl Fn(u32, &str) -> bool,
) -> bool {
    let waits = |waiter: &i64| match *waiter {
        NOBODY => own.iter().any(|pid| has_open(*pid, lock.file)),
        pid => is_of(pid, own),
    };
    if !lock.waiters.iter().any(waits) || is_of(lock.holder, own) {
        return false;
    }
    is_of(lock.holder, others) || others.iter().any(|pid| has_locked(*pid, lock.file))
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

/// What the kernel says of each open file of a process.
fn descriptors(pid: u32) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten();
    entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
}

fn has_locked(pid: u32, file: &str) -> bool {
    descriptors(pid).any(|text| {
        let locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks
            .into_iter()
            .any(|lock| parse(lock).iter().any(|lock| lock.file == file))
    })
}

/// By its inode alone: a file system may have more than one device.
fn has_open(pid: u32, file: &str) -> bool {
    let inode = file.rsplit(':').next();
    descriptors(pid).any(|text| {
        let found = text.lines().find_map(|line| line.strip_prefix("ino:"));
        found.map(str::trim) == inode
    })
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
    fn a_call_is_kept_by_a_lock_that_another_holds() {
        let locks = parse(TEXT);
        let holders: Vec<_> = locks.iter().map(|lock| lock.holder).collect();
        assert_eq!(holders, [100, 400, NOBODY]);
        assert_eq!(
            (locks[0].file, &locks[0].waiters[..]),
            ("08:01:77", &[200, 300][..])
        );
        let no = |_: u32, _: &str| false;
        let kept = |own: u32, others: &[u32]| is_kept(&locks[0], &[own], others, no, no);
        assert!(kept(200, &[100]) && kept(300, &[5, 100]));
        assert!(!kept(201, &[100]), "it does not wait");
        assert!(!kept(200, &[101]), "no call has the lock");
        assert!(
            !is_kept(&locks[0], &[100, 200], &[5], no, |_, _| true),
            "its own"
        );
        assert!(!is_kept(&locks[1], &[400], &[100], no, no));
    }

    /// FA-8
    #[test]
    fn a_lock_without_a_process_is_whose_file_it_is() {
        let locks = parse(TEXT);
        let opened = |pid: u32, file: &str| pid == 1 && file == "08:01:99";
        let locked = |pid: u32, file: &str| pid == 2 && file == "08:01:99";
        let kept = |own: u32, other: u32| is_kept(&locks[2], &[own], &[other], opened, locked);
        assert!(kept(1, 2));
        assert!(!kept(3, 2) && !kept(1, 3));
    }

    #[test]
    fn locks_of_this_process_are_found() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create(c"locked", flags).expect("made");
        let inode = rustix::fs::fstat(&file).expect("its own").st_ino;
        let operation = rustix::fs::FlockOperation::LockExclusive;
        rustix::fs::flock(&file, operation).expect("nobody has it");
        let mine = std::process::id();
        let text = fs::read_to_string("/proc/locks").expect("it is there");
        let end = format!(":{inode}");
        let locks = parse(&text);
        let found = locks
            .iter()
            .find(|lock| lock.holder == i64::from(mine) && lock.file.ends_with(&end));
        let found = found.expect("it is held").file;
        assert!(has_locked(mine, found) && has_open(mine, found));
    }
}
