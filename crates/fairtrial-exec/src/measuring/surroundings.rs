//! What others took while a run was measured: time of the processors, by the kernel's own account.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The kernel's files, kept open.
#[derive(Debug)]
pub struct Surroundings {
    stat: Option<File>,
    pressure: Option<File>,
    /// All, if none are named.
    cpus: Vec<usize>,
}

/// A moment. What the kernel does not tell is `None`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Time that the hypervisor took from the processors, since they were started.
    pub steal_ns: Option<u64>,
    /// Time in which some task of the machine waited for a processor.
    pub pressure_ns: Option<u64>,
}

/// What came between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Time that the hypervisor took.
    pub steal_s: Option<f64>,
    /// Time in which some task waited for a processor.
    pub pressure_s: Option<f64>,
}

impl Surroundings {
    /// Of these processors; of all, if none are named. Pressure is told for the whole machine only.
    #[must_use]
    pub fn of(cpus: &[usize]) -> Self {
        Self {
            stat: File::open("/proc/stat").ok(),
            pressure: File::open("/proc/pressure/cpu").ok(),
            cpus: cpus.to_vec(),
        }
    }

    /// Now.
    #[must_use]
    pub fn read(&self) -> Reading {
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let steal = self.stat.as_ref().and_then(text);
        let pressure = self.pressure.as_ref().and_then(text);
        Reading {
            steal_ns: steal
                .and_then(|text| steal_ticks(&text, &self.cpus))
                .map(|ticks| ticks.saturating_mul(tick_ns)),
            pressure_ns: pressure
                .and_then(|text| pressure_us(&text))
                .map(|us| us.saturating_mul(1000)),
        }
    }
}

impl Reading {
    /// What came since an earlier one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Disturbance {
        let seconds =
            |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?) as f64 / 1e9);
        Disturbance {
            steal_s: seconds(self.steal_ns, earlier.steal_ns),
            pressure_s: seconds(self.pressure_ns, earlier.pressure_ns),
        }
    }
}

fn text(file: &File) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let at = bytes.len();
        bytes.resize(at + (16 << 10), 0);
        let count = file.read_at(&mut bytes[at..], at as u64).ok()?;
        bytes.truncate(at + count);
        if count == 0 {
            return String::from_utf8(bytes).ok();
        }
    }
}

/// The eighth number of each processor's line.
fn steal_ticks(text: &str, cpus: &[usize]) -> Option<u64> {
    let of = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| {
            let (first, rest) = line.split_once(' ')?;
            (first == name).then_some(rest)
        });
        line?.split_whitespace().nth(7)?.parse().ok()
    };
    match cpus {
        [] => of("cpu"),
        cpus => cpus.iter().map(|cpu| of(&format!("cpu{cpu}"))).sum(),
    }
}

/// The last number of the line for "some".
fn pressure_us(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("total="));
    total?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  10 2 3 4 5 6 7 80 9 1\ncpu0 5 1 1 2 2 3 3 50 4 0\n\
                        cpu1 5 1 2 2 3 3 4 30 5 1\ncpu10 1 1 1 1 1 1 1 7 1 1\nintr 1 2 3\n";

    /// CA-71
    #[test]
    fn steal_is_that_of_the_processors_in_use() {
        assert_eq!(steal_ticks(STAT, &[]), Some(80));
        assert_eq!(steal_ticks(STAT, &[1]), Some(30));
        assert_eq!(steal_ticks(STAT, &[0, 10]), Some(57));
        assert_eq!(steal_ticks(STAT, &[2]), None);
        assert_eq!(steal_ticks("", &[]), None);
    }

    /// CA-71
    #[test]
    fn pressure_is_the_total_of_some() {
        let text = "some avg10=8.59 avg60=3.46 avg300=5.60 total=30847634455\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure_us(text), Some(30_847_634_455));
        assert_eq!(pressure_us("full total=7\n"), None);
    }

    /// CA-71
    #[test]
    fn what_was_not_read_is_unknown_and_time_does_not_run_back() {
        let reading = |steal_ns, pressure_ns| Reading {
            steal_ns,
            pressure_ns,
        };
        let later = reading(Some(3_000_000_000), Some(1));
        assert_eq!(
            later.since(&reading(Some(1_000_000_000), None)),
            Disturbance {
                steal_s: Some(2.0),
                pressure_s: None
            }
        );
        // Some hypervisors take back what they counted.
        let back = reading(Some(0), Some(0)).since(&later);
        assert_eq!(back.steal_s, Some(0.0));
        let surroundings = Surroundings::of(&[]);
        let first = surroundings.read();
        assert!(first.steal_ns.is_some(), "every Linux has it");
        assert!(surroundings.read().since(&first).steal_s >= Some(0.0));
    }
}
