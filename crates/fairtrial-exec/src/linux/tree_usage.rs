//! What a tree of processes uses together, and the launcher's own children.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::pread;

use super::cpu_clock::process_cpu_ns;
use super::proc_status::Stat;
use super::proc_tree::{children, descendants, kernel_lists_children, parse_list};

/// What a tree uses now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Resident bytes; a page that several processes share counts for each.
    pub rss_bytes: u64,
    /// Processor time of the living, and of the dead that were waited for.
    pub cpu_ns: u64,
    /// Processes and threads.
    pub tasks: u64,
}

impl TreeUsage {
    /// That of others besides.
    #[must_use]
    pub fn with(&self, others: &Self) -> Self {
        Self {
            rss_bytes: self.rss_bytes + others.rss_bytes,
            cpu_ns: self.cpu_ns + others.cpu_ns,
            tasks: self.tasks + others.tasks,
        }
    }
}

/// What a process and everybody below it use. Whoever ends during the look may be missed.
#[must_use]
pub fn tree_usage(root: u32) -> TreeUsage {
    usage_of([root]).with(&usage_below(root))
}

/// What everybody below a process uses.
#[must_use]
pub fn usage_below(root: u32) -> TreeUsage {
    usage_of(descendants(root).unwrap_or_default())
}

fn usage_of(pids: impl IntoIterator<Item = u32>) -> TreeUsage {
    let mut usage = TreeUsage::default();
    for pid in pids {
        let Ok(stat) = Stat::read(pid) else { continue };
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        usage.rss_bytes += stat.rss_pages * rustix::param::page_size() as u64;
        usage.cpu_ns += process_cpu_ns(pid).unwrap_or(0) + stat.waited_ticks * tick_ns;
        usage.tasks += stat.num_threads;
    }
    usage
}

/// The children of the calling process, which has one thread. `file` keeps the kernel's list open between looks.
pub fn children_of_self(file: &mut Option<OwnedFd>) -> io::Result<Vec<u32>> {
    let me = std::process::id();
    if !kernel_lists_children() {
        return children(me);
    }
    let file = match file {
        Some(file) => file,
        None => {
            let path = format!("/proc/self/task/{me}/children");
            file.insert(rustix::fs::open(
                path,
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?)
        }
    };
    let mut text = Vec::new();
    loop {
        let at = text.len();
        text.resize(at + 4096, 0);
        let count = pread(&*file, &mut text[at..], at as u64)?;
        text.truncate(at + count);
        if count == 0 {
            return Ok(parse_list(&text).collect());
        }
    }
}
