//! The clock that the kernel stamps files with. It moves in ticks, so two changes within one may look like none.

use rustix::event::{Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

/// Longer than any kernel's tick.
const TICK_NS: i64 = 20_000_000;

/// What a file that is changed now would be stamped with.
#[must_use]
pub fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Whether a change at `now_ns`, or later, would be stamped later than `stamp_ns`. One from the future is not past.
#[must_use]
pub fn is_past(stamp_ns: i64, now_ns: i64) -> bool {
    let whole_seconds = stamp_ns % 1_000_000_000 == 0;
    let tick_ns = TICK_NS + if whole_seconds { 1_000_000_000 } else { 0 };
    stamp_ns < now_ns.saturating_sub(tick_ns)
}

/// Returns when a change would be stamped later than `stamp_ns`: a few milliseconds at most, unless the file system
/// keeps whole seconds only. A stamp from the future is not waited for.
pub fn pass(stamp_ns: i64) {
    let whole_seconds = stamp_ns % 1_000_000_000 == 0;
    let enough = stamp_ns + if whole_seconds { 999_999_999 } else { 0 };
    while (stamp_ns..=enough).contains(&now_ns()) {
        let millisecond = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        _ = poll(&mut [], Some(&millisecond)); // a signal only makes it shorter
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// CA-33
    #[test]
    fn a_change_after_the_wait_is_stamped_later() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for _ in 0..20 {
            let stamp = |path| {
                let meta = std::fs::metadata(path).unwrap();
                meta.ctime() * 1_000_000_000 + meta.ctime_nsec()
            };
            std::fs::write(file.path(), b"a").unwrap();
            let before = stamp(file.path());
            pass(before);
            std::fs::write(file.path(), b"b").unwrap();
            assert!(stamp(file.path()) > before);
        }
    }
}
