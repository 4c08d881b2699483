//! Looking at the machine from outside: which processes, descriptors and threads there are.

use std::path::Path;
use std::time::{Duration, Instant};

/// Waits until `holds`, looking every few milliseconds; fails the test after a bound no sound machine reaches.
pub async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Processes (not zombies) whose command line or environment holds `mark`.
#[must_use]
pub fn running_with(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc")
        .expect("/proc is there")
        .flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |path: String| std::fs::read(path).is_ok_and(|text| find(&text, mark.as_bytes()));
    let mine = std::process::id();
    pids.filter(|pid| {
        *pid != mine
            && (holds(format!("/proc/{pid}/cmdline")) || holds(format!("/proc/{pid}/environ")))
    })
    .collect()
}

fn find(text: &[u8], mark: &[u8]) -> bool {
    text.windows(mark.len()).any(|window| window == mark)
}

/// What this process has: compare one before with one after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// Children, zombies included.
    pub children: usize,
    /// Threads.
    pub threads: usize,
    /// Open descriptors.
    pub descriptors: usize,
    /// Entries of the spill directory.
    pub spilled: usize,
}

impl Census {
    /// Counts now.
    #[must_use]
    pub fn take(spill_dir: &Path) -> Self {
        let count = |path: &str| std::fs::read_dir(path).map_or(0, Iterator::count);
        let tasks = std::fs::read_dir("/proc/self/task")
            .expect("/proc is there")
            .flatten();
        let children = tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
            .map(|list| list.split_whitespace().count())
            .sum();
        Self {
            children,
            threads: count("/proc/self/task"),
            descriptors: count("/proc/self/fd"),
            spilled: std::fs::read_dir(spill_dir).map_or(0, Iterator::count),
        }
    }
}
