//! Whether the processor's own counters can be had, and what they showed of a call.

use crate::linux::perf::{Counted, Counter, Uncounted};

/// Why instructions and cycles cannot be counted.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct NoCounters(pub String);

/// Something that was to be counted of a call and of all that it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// What.
    pub of: Counted,
    /// How much; or why that is not known, in which case it is no 0.
    pub count: Result<u64, NoCounters>,
}

impl Count {
    /// What was asked for beside what came of it.
    pub(crate) fn all(asked: &[Counted], found: &[Result<u64, Uncounted>]) -> Vec<Self> {
        let mut found = found.iter().copied();
        let count = |of: &Counted| Self {
            of: *of,
            count: match found.next() {
                Some(found) => found.map_err(|why| NoCounters(reason(why))),
                None => Err(NoCounters("it never began".to_owned())),
            },
        };
        asked.iter().map(count).collect()
    }
}

/// Opens a counter of instructions and one of cycles, as they would be opened for a call.
///
/// # Errors
/// Why they cannot be had.
pub fn probe_counters() -> Result<(), NoCounters> {
    for counted in [Counted::Instructions, Counted::Cycles] {
        Counter::open(0, counted).map_err(|error| NoCounters(reason(error.into())))?;
    }
    Ok(())
}

fn reason(why: Uncounted) -> String {
    let errno = match why {
        Uncounted::NeverRan => return "the counters never ran".to_owned(),
        Uncounted::Shared => return "others used the counters at the same time".to_owned(),
        Uncounted::Refused(errno) => errno,
    };
    match errno {
        libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP => {
            "this machine has no hardware counters".to_owned()
        }
        libc::EACCES | libc::EPERM => {
            let file = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            let level = file.unwrap_or_else(|_| "unknown".to_owned());
            format!(
                "this user may not read hardware counters (kernel.perf_event_paranoid={})",
                level.trim()
            )
        }
        libc::ENOSYS => "this kernel has no performance counters".to_owned(),
        errno => {
            let error = std::io::Error::from_raw_os_error(errno);
            format!("hardware counters cannot be opened: {error}")
        }
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
        let text = |errno| reason(Uncounted::Refused(errno));
        assert_eq!(text(libc::ENOENT), "this machine has no hardware counters");
        assert!(text(libc::EACCES).contains("kernel.perf_event_paranoid="));
    }

    /// CA-72: what was not counted is not 0.
    #[test]
    fn what_was_asked_for_was_counted_or_has_a_reason() {
        let asked = [Counted::Instructions, Counted::Cycles, Counted::TaskClock];
        let found = [Ok(7), Err(Uncounted::Shared)];
        let counts = Count::all(&asked, &found);
        let kinds: Vec<Counted> = counts.iter().map(|count| count.of).collect();
        assert_eq!(kinds, asked);
        assert_eq!(counts[0].count, Ok(7));
        let reason = |at: usize| counts[at].count.clone().unwrap_err().0;
        assert_eq!(reason(1), "others used the counters at the same time");
        assert_eq!(reason(2), "it never began");
    }
}
