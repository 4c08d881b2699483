//! Whether the processor's own counters can be had.

use std::io;

use crate::linux::perf::{Counted, Counter};

/// Why instructions and cycles cannot be counted.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct NoCounters(pub String);

/// Opens a counter of instructions and one of cycles, as they would be opened for a call.
///
/// # Errors
/// Why they cannot be had.
pub fn probe_counters() -> Result<(), NoCounters> {
    for counted in [Counted::Instructions, Counted::Cycles] {
        Counter::open(0, counted).map_err(|error| NoCounters(reason(&error)))?;
    }
    Ok(())
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "this machine has no hardware counters".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            let file = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            let level = file.unwrap_or_else(|_| "unknown".to_owned());
            format!(
                "this user may not read hardware counters (kernel.perf_event_paranoid={})",
                level.trim()
            )
        }
        Some(libc::ENOSYS) => "this kernel has no performance counters".to_owned(),
        _ => format!("hardware counters cannot be opened: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-72
    #[test]
    fn counters_are_there_or_the_reason_is() {
        if let Err(NoCounters(reason)) = probe_counters() {
            assert!(reason.contains("counters"), "{reason}");
        }
        let text = |errno| reason(&io::Error::from_raw_os_error(errno));
        assert_eq!(text(libc::ENOENT), "this machine has no hardware counters");
        assert!(text(libc::EACCES).contains("kernel.perf_event_paranoid="));
    }
}
