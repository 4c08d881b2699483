//! Whether the kernel killed anything for want of memory lately, by its own count: for calls without a control group,
//! whose SIGKILL says nothing of its sender.

use fairtrial_exec::linux::monotonic::now_ns;

/// The kernel's count as last read, and when it was seen to have grown.
pub(crate) struct MemoryKills {
    count: Option<u64>,
    grew_at_ns: Option<u64>,
}

impl MemoryKills {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self {
            count: read(),
            grew_at_ns: None,
        }
    }

    /// Whether anything was killed since then, perhaps on behalf of another container: whoever asks runs the call again.
    pub(crate) fn any_since(&mut self, began_ns: u64) -> bool {
        self.update(read(), now_ns());
        self.grew_at_ns.is_some_and(|at| at >= began_ns)
    }

    fn update(&mut self, count: Option<u64>, now_ns: u64) {
        if count > self.count && self.count.is_some() {
            self.grew_at_ns = Some(now_ns);
        }
        self.count = count.or(self.count);
    }
}

fn read() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FA-7
    #[test]
    fn a_kill_counts_for_all_that_ran_when_it_was_seen_and_for_nothing_that_began_later() {
        let mut kills = MemoryKills {
            count: Some(3),
            grew_at_ns: None,
        };
        kills.update(Some(3), 10);
        assert_eq!(kills.grew_at_ns, None);
        kills.update(Some(4), 20);
        kills.update(None, 30);
        kills.update(Some(4), 40);
        assert_eq!((kills.count, kills.grew_at_ns), (Some(4), Some(20)));
    }

    /// FA-7
    #[test]
    fn this_kernel_counts_them() {
        assert!(read().is_some(), "`oom_kill` in /proc/vmstat: Linux 4.13");
    }
}
