//! The processors that a thread may use.

use rustix::io;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Their numbers, in order, for the calling thread. Those that the kernel does not tell are not to be used.
#[cfg(feature = "engine")]
#[must_use]
pub(crate) fn allowed() -> Vec<usize> {
    of(None).unwrap_or_default()
}

/// Those of a thread, or of the calling one.
pub fn of(thread: Option<Pid>) -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(thread)?;
    let all = 0..CpuSet::MAX_CPU;
    Ok(all.filter(|cpu| set.is_set(*cpu)).collect())
}

/// Gives a thread, or the calling one, these and no others. What it starts from then on has the same.
pub fn set(thread: Option<Pid>, cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    sched_setaffinity(thread, &set)
}

/// Numbers in order as people write them: `0-3,6`.
#[cfg(feature = "engine")]
#[must_use]
pub(crate) fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let texts: Vec<String> = runs
        .map(|run| match run {
            [one] => one.to_string(),
            run => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect();
    texts.join(",")
}

/// The processors that share a core with this one, itself included, as far as the kernel tells.
#[must_use]
pub fn siblings(cpu: usize) -> Vec<usize> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    parse_ranges(&text).unwrap_or_default()
}

/// The reverse of `ranges`, as the kernel writes it in its files.
#[must_use]
pub(crate) fn parse_ranges(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: usize = last.parse().ok()?;
        numbers.extend(first.parse().ok()?..=last.min(CpuSet::MAX_CPU));
    }
    Some(numbers)
}

#[cfg(all(test, feature = "engine"))]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        for (numbers, text) in [
            (&[0, 1, 2, 5, 7, 8][..], "0-2,5,7-8"),
            (&[], ""),
            (&[3], "3"),
        ] {
            assert_eq!(ranges(numbers), text);
            assert_eq!(parse_ranges(text).as_deref(), Some(numbers));
        }
        assert_eq!(parse_ranges("0-x"), None);
        assert!(!allowed().is_empty());
    }

    /// CA-73
    #[test]
    fn a_thread_has_what_it_was_given_and_its_children_too() {
        std::thread::spawn(|| {
            let last = *allowed().last().unwrap();
            set(None, &[last]).unwrap();
            assert_eq!(allowed(), [last]);
            assert_eq!(std::thread::spawn(allowed).join().unwrap(), [last]);
        })
        .join()
        .unwrap();
    }
}
