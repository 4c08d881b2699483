//! What a call may use; sizes and durations as users write and read them.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use rustix::process::{Resource as Own, getrlimit};

use crate::call::InvalidCall;
use crate::sandbox::Level;

/// What a call may use. `None` is no limit, or from level `limits` on its default, unless it is lifted.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Resident memory of the whole tree.
    pub memory_bytes: Option<u64>,
    /// Processor time of the whole tree.
    pub cpu: Option<Duration>,
    /// Processes and threads of the whole tree.
    pub processes: Option<u64>,
    /// Open descriptors per process.
    pub open_files: Option<u64>,
    /// Size of a file, and of a result.
    pub file_bytes: Option<u64>,
    /// Bytes on both output streams together.
    pub output_bytes: Option<u64>,
    /// What stays without a limit at every level.
    pub lifted: BTreeSet<Resource>,
}

/// What is limited by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Resident memory of the whole tree.
    Memory,
    /// Processes and threads of the whole tree.
    Processes,
    /// Open descriptors per process.
    OpenFiles,
    /// Size of a file, and of a result.
    FileSize,
    /// Bytes on both output streams together.
    Output,
}

impl Resource {
    /// All of them, in the order users read them.
    pub const ALL: [Self; 5] = [
        Self::Memory,
        Self::Processes,
        Self::OpenFiles,
        Self::FileSize,
        Self::Output,
    ];

    /// The field of a call, as users write it.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Memory => "limits.memory_bytes",
            Self::Processes => "limits.processes",
            Self::OpenFiles => "limits.open_files",
            Self::FileSize => "limits.file_bytes",
            Self::Output => "limits.output_bytes",
        }
    }
}

/// What an interpreter and its packages need.
const FEWEST_DESCRIPTORS: u64 = 64;

/// Output of a call on both streams unless it says otherwise.
pub const DEFAULT_OUTPUT_BYTES: u64 = 64 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            cpu: None,
            processes: None,
            open_files: None,
            file_bytes: None,
            output_bytes: Some(DEFAULT_OUTPUT_BYTES),
            lifted: BTreeSet::new(),
        }
    }
}

impl Limits {
    /// Sets a limit, or with `None` lifts it.
    pub fn set(&mut self, resource: Resource, limit: Option<u64>) {
        *self.limit_mut(resource) = limit;
        match limit {
            Some(_) => self.lifted.remove(&resource),
            None => self.lifted.insert(resource),
        };
    }

    /// These limits with a level's defaults in the place of what is neither set nor lifted, on a machine with so much
    /// memory, of which the engine's own control group may use so much.
    #[must_use]
    pub fn filled(&self, level: Level, ram_bytes: u64, engine_cgroup_limit: Option<u64>) -> Self {
        let mut filled = self.clone();
        if level == Level::None {
            return filled;
        }
        let memory = engine_cgroup_limit.map_or(ram_bytes, |limit| limit.min(ram_bytes));
        for (resource, default) in [
            (Resource::Memory, memory / 5 * 4),
            (Resource::Processes, 512),
            (Resource::OpenFiles, 1024),
            (Resource::FileSize, 1 << 30),
        ] {
            if !self.lifted.contains(&resource) {
                filled.limit_mut(resource).get_or_insert(default);
            }
        }
        filled
    }

    fn limit_mut(&mut self, resource: Resource) -> &mut Option<u64> {
        match resource {
            Resource::Memory => &mut self.memory_bytes,
            Resource::Processes => &mut self.processes,
            Resource::OpenFiles => &mut self.open_files,
            Resource::FileSize => &mut self.file_bytes,
            Resource::Output => &mut self.output_bytes,
        }
    }

    /// Whether this process can hand them on: nobody can have more than its own hard limits, but root at level `none`.
    pub(crate) fn validate_here(&self, level: Level) -> Result<(), InvalidCall> {
        if level == Level::None && rustix::process::geteuid().is_root() {
            return Ok(());
        }
        for (asked, own, field, option) in [
            (self.open_files, Own::Nofile, "limits.open_files", "n"),
            (self.file_bytes, Own::Fsize, "limits.file_bytes", "f"),
        ] {
            let hard = getrlimit(own).maximum;
            if let (Some(asked), Some(hard)) = (asked, hard)
                && asked > hard
            {
                let problem = format!(
                    "{asked} is more than this process's own hard limit, {hard}; ask for less, or raise that \
                     (`ulimit -H{option}`)"
                );
                return Err(InvalidCall::new(field, problem));
            }
        }
        Ok(())
    }

    /// Limits that were not `asked` for give way to lower ones of this process's own.
    ///
    /// Of descriptors a call gets fewer than the engine may have: the kernel counts those that are being sent by user,
    /// and holds each sender to its own limit.
    pub(crate) fn keep_to_own(&mut self, asked: &Self) {
        let least = |limit: &mut Option<u64>, own: Option<u64>| {
            if let (Some(limit), Some(own)) = (limit, own) {
                *limit = own.min(*limit);
            }
        };
        let descriptors = getrlimit(Own::Nofile).maximum;
        if asked.open_files.is_none() {
            let fewer = descriptors.map(|own| (own / 2).max(FEWEST_DESCRIPTORS).min(own));
            least(&mut self.open_files, fewer);
        }
        least(&mut self.file_bytes, getrlimit(Own::Fsize).maximum);
    }

    pub(crate) fn validate(&self) -> Result<(), InvalidCall> {
        let counts = [
            ("limits.memory_bytes", self.memory_bytes),
            ("limits.processes", self.processes),
            ("limits.open_files", self.open_files),
            ("limits.file_bytes", self.file_bytes),
            ("limits.output_bytes", self.output_bytes),
            (
                "limits.cpu_s",
                self.cpu
                    .map(|cpu| u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX)),
            ),
        ];
        match counts.iter().find(|(_, value)| *value == Some(0)) {
            Some((field, _)) => Err(InvalidCall::new(*field, "must be greater than 0")),
            None => Ok(()),
        }
    }
}

/// Reads `512M`, `2G`, `64KiB`, `1048576`: binary multiples, as users of `ulimit` and Docker expect.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        other => {
            return Err(format!(
                "unknown unit `{other}` in `{text}`; use K, M, G or T, as in `512M`"
            ));
        }
    };
    scale(number, shift)
        .ok_or_else(|| format!("`{text}` is not a size; write for example `512M` or `2G`"))
}

fn scale(number: &str, shift: u32) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_shl(shift)
            .filter(|size| size >> shift == whole && *size > 0);
    }
    let size = number.parse::<f64>().ok()? * (1_u64 << shift) as f64;
    (size >= 1.0 && size < u64::MAX as f64).then_some(size as u64)
}

/// Reads `5s`, `250ms`, `2m`, `1h`, `1.5`: a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds_per_unit = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => {
            return Err(format!(
                "unknown unit `{other}` in `{text}`; use ms, s, m or h, as in `5s`"
            ));
        }
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * seconds_per_unit).ok())
        .filter(|time| !time.is_zero())
        .ok_or_else(|| {
            format!("`{text}` is not a positive time; write for example `5s` or `250ms`")
        })
}

/// A byte count for people: `1.5 GiB`.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].iter();
        let mut unit = units.next().expect("the list is not empty");
        while value >= 1024.0 {
            let Some(next) = units.next() else { break };
            (value, unit) = (value / 1024.0, next);
        }
        let digits = usize::from(value.fract() > 0.05 && value < 100.0);
        write!(f, "{value:.digits$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SB-16
    #[test]
    fn a_level_fills_in_what_is_neither_set_nor_lifted() {
        const GIB: u64 = 1 << 30;
        let unset = Limits::default();
        assert_eq!(unset.filled(Level::None, 10 * GIB, Some(GIB)), unset);
        let defaults = |memory_bytes| Limits {
            memory_bytes: Some(memory_bytes),
            processes: Some(512),
            open_files: Some(1024),
            file_bytes: Some(GIB),
            ..Limits::default()
        };
        for level in [Level::Limits, Level::Strict] {
            for (cgroup, memory) in [
                (None, 8 * GIB),
                (Some(5 * GIB), 4 * GIB),
                (Some(20 * GIB), 8 * GIB),
                (Some(u64::MAX), 8 * GIB),
            ] {
                assert_eq!(unset.filled(level, 10 * GIB, cgroup), defaults(memory));
            }
            let mut said = Limits::default();
            said.set(Resource::Memory, None);
            said.set(Resource::Processes, Some(3));
            said.set(Resource::OpenFiles, None);
            said.set(Resource::OpenFiles, Some(4));
            said.set(Resource::FileSize, None);
            said.set(Resource::Output, None);
            let filled = said.filled(level, 10 * GIB, None);
            assert_eq!(filled, said);
            assert_eq!((filled.memory_bytes, filled.processes), (None, Some(3)));
            assert_eq!((filled.open_files, filled.file_bytes), (Some(4), None));
            assert_eq!((filled.cpu, filled.output_bytes), (None, None));
        }
    }

    /// A name for each limit, by which users know it.
    #[test]
    fn each_limit_of_zero_is_refused_by_its_own_name() {
        for resource in Resource::ALL {
            let mut limits = Limits::default();
            limits.set(resource, Some(0));
            assert_eq!(limits.validate().unwrap_err().field, resource.field());
        }
    }

    #[test]
    fn sizes_are_binary_and_never_zero_or_wrapped() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("1.5g"), Ok(3 << 29));
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("7"), Ok(7));
        for bad in [
            "",
            "0",
            "-1",
            "5X",
            "99999999999999999999",
            "17179869184T",
            "1..2M",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_have_units_and_are_positive() {
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "0", "-1s", "5 parsecs", "inf", "nan", "1e400"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_for_people() {
        assert_eq!(Size(0).to_string(), "0 B");
        assert_eq!(Size(1536).to_string(), "1.5 KiB");
        assert_eq!(Size(512 << 20).to_string(), "512 MiB");
    }
}
