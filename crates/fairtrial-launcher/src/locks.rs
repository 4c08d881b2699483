//! Whether a call has a file open that another call has locked, and so may wait for the lock.
//!
//! Not whether it is seen to wait: a program may ask again and again, and one that waits does not show for a moment when the
//! kernel wakes it because of another's end.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read};

use fairtrial_exec::protocol::launcher::TaskId;

use crate::load::everybody;
use crate::serve::Launcher;
use crate::shortages::is_call;
use crate::task::Task;

/// A lock that is held.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lock<'a> {
    /// -1 where it belongs to an open file and not to a process (`F_OFD_SETLK`).
    holder: i64,
    /// As `/proc/locks` writes it: device and inode.
    file: &'a str,
}

impl Launcher {
    /// Whether some process of this call may wait for a lock of another call's.
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
        let text = match read_locks() {
            Ok(Some(text)) => text,
            Ok(None) => return true, // it may well wait for one of so many
            Err(_) => return false,
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
        if opened.iter().any(|lock| is_of(lock.holder, &others)) {
            return true;
        }
        // Who took a lock may have passed it on, or have ended since: then whoever has it still has the file.
        !opened.is_empty() && {
            let locked = locked(&others);
            opened.iter().any(|lock| locked.contains(lock.file))
        }
    }
}

/// The kernel takes time for its list that grows with the square of the length. A longer one is some call's doing.
const MOST_BYTES: u64 = 64 << 10;

/// The list; none if it is too long.
fn read_locks() -> io::Result<Option<String>> {
    let mut text = String::new();
    let list = fs::File::open("/proc/locks")?;
    let read = list.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    Ok((read as u64 <= MOST_BYTES).then_some(text))
}

fn is_of(pid: i64, call: &[u32]) -> bool {
    call.iter().any(|one| i64::from(*one) == pid)
}

/// Those in `/proc/locks`. Lines with an arrow wait for one that has the same number.
fn parse(text: &str) -> Vec<Lock<'_>> {
    let lock = |line| {
        let words: Vec<&str> = str::split_ascii_whitespace(line).collect();
        // A number, and kind, way and mode of the lock come first.
        let [_, kind, _, _, pid, file, ..] = words[..] else {
            return None;
        };
        let holder = pid.parse().ok()?;
        (kind != "->").then_some(Lock { holder, file })
    };
    text.lines().filter_map(lock).collect()
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
    fn who_holds_which_lock_is_told_by_the_kernel() {
        let locks = parse(TEXT);
        let holders: Vec<_> = locks.iter().map(|lock| lock.holder).collect();
        assert_eq!(holders, [100, 400, -1]);
        assert_eq!((locks[0].file, inode(locks[0].file)), ("08:01:77", "77"));
        assert!(is_of(100, &[5, 100]) && !is_of(-1, &[5, 100]));
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
