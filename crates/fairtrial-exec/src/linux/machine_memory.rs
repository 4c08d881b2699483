//! How much memory the machine has, and how much of it this process's control groups allow.

use std::io;
use std::path::{Path, PathBuf};

/// How much memory there is to share out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    /// All of the machine's.
    pub ram_bytes: u64,
    /// What the control groups of this process allow, the least of those above it; `None` if they set no limit.
    pub cgroup_limit_bytes: Option<u64>,
}

impl MachineMemory {
    /// As it is now. A control group that cannot be read sets no limit that we know of.
    #[must_use]
    pub fn read() -> Self {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self {
            ram_bytes: ram_bytes(),
            cgroup_limit_bytes: cgroup_limit(&own, &mounts, |path| {
                std::fs::read_to_string(path).ok()
            }),
        }
    }
}

impl MachineMemory {
    /// What of the memory that a container or service may use one of so many calls at a time may have. `None` where the
    /// machine alone sets the bound: what it has is not only ours to divide.
    #[must_use]
    pub fn share_of_bound(&self, calls: usize) -> Option<u64> {
        let bound = self
            .cgroup_limit_bytes
            .filter(|limit| *limit < self.ram_bytes)?;
        let share = bound / u64::try_from(calls).unwrap_or(u64::MAX).max(1);
        Some(share.max(LEAST_SHARE_BYTES).min(bound))
    }
}

/// The memory that all calls share: that of the control group with the least limit, or else the machine's.
#[derive(Clone, Debug)]
pub struct MemoryBound {
    limit_bytes: u64,
    /// The directory of the group that sets the limit.
    group: Option<PathBuf>,
}

impl MemoryBound {
    /// The bound of this process.
    #[must_use]
    pub fn read() -> Self {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let least = limits(&own, &mounts, |path| std::fs::read_to_string(path).ok()).min();
        match least.filter(|(limit, _)| *limit < ram_bytes()) {
            Some((limit_bytes, group)) => Self {
                limit_bytes,
                group: Some(group),
            },
            None => Self {
                limit_bytes: ram_bytes(),
                group: None,
            },
        }
    }

    /// The share of the bound that is taken, file cache left out: the kernel gives that up before it ends a process.
    /// `None` where the kernel does not tell.
    #[must_use]
    pub fn taken(&self) -> Option<f64> {
        let used = match &self.group {
            Some(group) => used_in(group)?,
            None => {
                let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
                let available = meminfo_bytes(&meminfo, "MemAvailable").ok()?;
                self.limit_bytes.saturating_sub(available)
            }
        };
        Some(used as f64 / self.limit_bytes.max(1) as f64)
    }
}

fn used_in(group: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let usage = read("memory.current").or_else(|| read("memory.usage_in_bytes"))?;
    let usage: u64 = usage.trim().parse().ok()?;
    let stat = read("memory.stat")?;
    // Version 1 counts groups below only under names of their own.
    let cache = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| match stat.contains("total_active_file") {
            true => matches!(*name, "total_active_file" | "total_inactive_file"),
            false => matches!(*name, "active_file" | "inactive_file"),
        });
    let cache: u64 = cache
        .filter_map(|(_, bytes)| bytes.parse::<u64>().ok())
        .sum();
    Some(usage.saturating_sub(cache))
}

/// An interpreter with the usual packages needs so much. Where calls have no more, all together may need more than the
/// bound; then the one that took most is ended.
const LEAST_SHARE_BYTES: u64 = 512 << 20;

fn ram_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

/// The value of one line of `/proc/meminfo`.
pub(crate) fn meminfo_bytes(meminfo: &str, name: &str) -> io::Result<u64> {
    let value = |line: &str| {
        line.strip_prefix(name)?
            .strip_prefix(':')
            .map(str::to_owned)
    };
    let parse = |line: String| -> Option<u64> {
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024)
    };
    meminfo
        .lines()
        .find_map(value)
        .and_then(parse)
        .ok_or_else(|| {
            let problem = format!("no `{name}` in `/proc/meminfo`");
            io::Error::new(io::ErrorKind::InvalidData, problem)
        })
}

/// The least limit from a process's own group up to the root of what is mounted.
///
/// `own` is its `/proc/PID/cgroup`, `mounts` its `mountinfo`. On hybrid machines the memory controller is in one
/// hierarchy, and the files of the other are not there.
fn cgroup_limit(own: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    limits(own, mounts, read).map(|(limit, _)| limit).min()
}

/// Each limit of the groups above, with the group's directory.
fn limits(
    own: &str,
    mounts: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> impl Iterator<Item = (u64, PathBuf)> {
    let hierarchies = [
        (
            own_group(own, |controllers| controllers.is_empty()),
            "cgroup2",
            "memory.max",
        ),
        (
            own_group(own, |controllers| {
                controllers.split(',').any(|name| name == "memory")
            }),
            "cgroup",
            "memory.limit_in_bytes",
        ),
    ];
    let found = hierarchies.iter().flat_map(|(group, kind, file)| {
        let dirs = group.and_then(|group| directories(group, kind, mounts));
        let read = &read;
        dirs.into_iter().flatten().filter_map(move |dir| {
            // `max` is no number, and no limit.
            let limit = read(&dir.join(file))?.trim().parse().ok()?;
            Some((limit, dir))
        })
    });
    found.collect::<Vec<_>>().into_iter()
}

/// The group in the hierarchy whose controllers are those wanted: lines are `number:controllers:/path`.
fn own_group(own: &str, wanted: impl Fn(&str) -> bool) -> Option<&Path> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        wanted(controllers).then_some(Path::new(path))
    })
}

/// The directories of a group and of those above it, as far as a mount shows them.
fn directories(group: &Path, kind: &str, mounts: &str) -> Option<Vec<PathBuf>> {
    let (root, point) = mounts.lines().find_map(|line| mount(line, kind))?;
    // A container may be shown its own group as the root of all, whatever it is called outside.
    let below = group.strip_prefix(&root).unwrap_or(Path::new(""));
    let ancestors = below.ancestors().map(|below| point.join(below)).collect();
    Some(ancestors)
}

/// Root and place of a mounted hierarchy of the wanted kind that has memory in it: a line is
/// `id parent device root place options ... - kind source super-options`.
fn mount(line: &str, kind: &str) -> Option<(PathBuf, PathBuf)> {
    let (place, file_system) = line.split_once(" - ")?;
    let file_system: Vec<_> = file_system.split(' ').collect();
    let [its_kind, _source, options] = file_system[..] else {
        return None;
    };
    // Version 2 has one hierarchy for all controllers.
    let has_memory = kind == "cgroup2" || options.split(',').any(|option| option == "memory");
    let mut place = place.split(' ').skip(3).map(unescaped);
    let (root, point) = (place.next()?, place.next()?);
    (its_kind == kind && has_memory).then(|| (root.into(), point.into()))
}

/// `mountinfo` writes a space in a path as `\040`, and the like.
fn unescaped(path: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes.iter().fold(path.to_owned(), |path, (code, text)| {
        path.replace(code, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2_MOUNT: &str = "25 1 0:22 / / rw - ext4 /dev/vda rw\n\
        30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID_MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const CONTAINER_MOUNT: &str = "900 890 0:29 /docker/abc /sys/fs/cgroup/memory\\040x ro master:11 - cgroup cgroup rw,memory\n";

    /// SB-16
    #[test]
    fn the_least_limit_of_the_groups_above_counts() {
        type Files = &'static [(&'static str, &'static str)];
        let table: [(&str, &str, Files, Option<u64>); 9] = [
            (
                "0::/user.slice/run.scope\n",
                V2_MOUNT,
                &[
                    ("/sys/fs/cgroup/user.slice/run.scope/memory.max", "max\n"),
                    ("/sys/fs/cgroup/user.slice/memory.max", "4096\n"),
                ],
                Some(4096),
            ),
            (
                "0::/user.slice/run.scope\n",
                V2_MOUNT,
                &[
                    ("/sys/fs/cgroup/user.slice/run.scope/memory.max", "1024\n"),
                    ("/sys/fs/cgroup/user.slice/memory.max", "4096\n"),
                ],
                Some(1024),
            ),
            (
                "0::/\n",
                V2_MOUNT,
                &[("/sys/fs/cgroup/memory.max", "7\n")],
                Some(7),
            ),
            (
                "0::/a\n",
                V2_MOUNT,
                &[("/sys/fs/cgroup/a/memory.max", "max\n")],
                None,
            ),
            (
                "4:memory:/jobs/one\n1:cpu:/\n0::/\n",
                HYBRID_MOUNTS,
                &[
                    (
                        "/sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes",
                        "9223372036854771712\n",
                    ),
                    ("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "5000\n"),
                    ("/sys/fs/cgroup/cpu/jobs/memory.limit_in_bytes", "1\n"),
                ],
                Some(5000),
            ),
            (
                "3:cpu,memory:/docker/abc/below\n",
                CONTAINER_MOUNT,
                &[("/sys/fs/cgroup/memory x/memory.limit_in_bytes", "9\n")],
                Some(9),
            ),
            (
                "3:memory:/\n",
                CONTAINER_MOUNT,
                &[("/sys/fs/cgroup/memory x/memory.limit_in_bytes", "9\n")],
                Some(9),
            ),
            ("0::/a\n", "", &[], None),
            ("", V2_MOUNT, &[("/sys/fs/cgroup/memory.max", "7\n")], None),
        ];
        for (own, mounts, files, limit) in table {
            let read = |path: &Path| {
                let found = files.iter().find(|(name, _)| Path::new(name) == path)?;
                Some(found.1.to_owned())
            };
            assert_eq!(cgroup_limit(own, mounts, read), limit, "{own} {files:?}");
        }
    }

    /// EX-54, SB-16
    #[test]
    fn a_line_of_meminfo_is_in_kilobytes() {
        let text = "MemTotal: 10 kB\nMemFree:   3 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(meminfo_bytes(text, "MemTotal").unwrap(), 10 << 10);
        assert_eq!(meminfo_bytes(text, "MemAvailable").unwrap(), 2 << 20);
        for name in ["Mem", "SwapTotal"] {
            let error = meminfo_bytes(text, name).unwrap_err();
            assert_eq!(error.to_string(), format!("no `{name}` in `/proc/meminfo`"));
        }
    }

    /// FA-7
    #[test]
    fn a_bound_around_the_engine_is_divided_by_calls_and_a_machine_is_not() {
        const GIB: u64 = 1 << 30;
        let share = |bound, calls| {
            let memory = MachineMemory {
                ram_bytes: 64 * GIB,
                cgroup_limit_bytes: bound,
            };
            memory.share_of_bound(calls)
        };
        assert_eq!(share(None, 8), None);
        assert_eq!(share(Some(64 * GIB), 8), None);
        assert_eq!(share(Some(16 * GIB), 8), Some(2 * GIB));
        assert_eq!(share(Some(16 * GIB), 1), Some(16 * GIB));
        assert_eq!(share(Some(GIB), 64), Some(LEAST_SHARE_BYTES));
        assert_eq!(share(Some(GIB / 4), 64), Some(GIB / 4));
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = MachineMemory::read();
        assert!(memory.ram_bytes > 1 << 20);
        assert_ne!(memory.cgroup_limit_bytes, Some(0));
    }
}
