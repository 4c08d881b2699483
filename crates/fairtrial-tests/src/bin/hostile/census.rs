//! What there is in the cage, before a trial and after it (SB-73).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cage::{HOME, TMP};

/// Where anything can be left: every writable place of the cage.
const WRITABLE: [&str; 9] = [
    TMP,
    "/tmp/cell/spill",
    "/var/tmp",
    "/dev/shm",
    "/dev/mqueue",
    "/home",
    "/root",
    "/run",
    "/etc/cron.d",
];
/// Files looked at, at most: more than that is a finding already.
const MOST_FILES: usize = 20_000;

/// One line for each thing, so that two can be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Census(BTreeSet<String>);

impl Census {
    /// Counts now; files below `apart` are the suite's own.
    pub(crate) fn take(apart: &Path) -> Self {
        let mut found = BTreeSet::new();
        found.extend(processes());
        found.extend(leaves());
        found.extend(lines("mount", "/proc/self/mountinfo", |line| {
            Some(line.split(' ').nth(4)?.to_owned())
        }));
        for kind in ["shm", "msg", "sem"] {
            let path = format!("/proc/sysvipc/{kind}");
            found.extend(lines("ipc", &path, |line| {
                Some(
                    line.split_whitespace()
                        .take(2)
                        .collect::<Vec<_>>()
                        .join(" "),
                )
            }));
        }
        found.extend(ports());
        let mut left = MOST_FILES;
        for top in WRITABLE {
            files(Path::new(top), apart, &mut left, &mut found);
        }
        Self(found)
    }

    /// What is there now and was not, and what was and is not.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<String> {
        let more = self
            .0
            .difference(&before.0)
            .map(|thing| format!("left: {thing}"));
        let less = before
            .0
            .difference(&self.0)
            .map(|thing| format!("gone: {thing}"));
        more.chain(less).collect()
    }
}

/// Everybody in this process namespace but its first process, zombies included.
pub(crate) fn processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != 1)
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (name, rest) = stat.split_once(' ')?.1.rsplit_once(')')?;
            let state = rest.trim_start().chars().next()?;
            Some(format!("process {pid} {name}) {state}"))
        })
        .collect()
}

/// Control groups below the cage's own.
fn leaves() -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(format!("control group {}", entry.path().display()));
                open.push(entry.path());
            }
        }
    }
    found
}

/// Who listens, on any kind of socket with a name.
pub(crate) fn ports() -> Vec<String> {
    const LISTENING: &str = "0A";
    let mut found = Vec::new();
    for (kind, wanted) in [
        ("tcp", Some(LISTENING)),
        ("tcp6", Some(LISTENING)),
        ("udp", None),
        ("udp6", None),
    ] {
        found.extend(lines("port", &format!("/proc/net/{kind}"), |line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let state = fields.get(3)?;
            wanted
                .is_none_or(|wanted| wanted == *state)
                .then(|| format!("{kind} {}", fields[1]))
        }));
    }
    let named = |line: &str| {
        line.split_whitespace()
            .nth(7)
            .map(|name| format!("unix {name}"))
    };
    found.extend(lines("port", "/proc/net/unix", named));
    found
}

fn lines(what: &str, path: &str, pick: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut found: Vec<String> = text
        .lines()
        .filter_map(|line| Some(format!("{what} {}", pick(line)?)))
        .collect();
    found.sort_unstable();
    // Two mounts on one place are two things.
    for index in 1..found.len() {
        if found[..index].contains(&found[index]) {
            found[index] += &format!(" ({index})");
        }
    }
    found
}

/// Names, with sizes and times of what is no directory; of one disk, for what is mounted from the host is read-only.
fn files(dir: &Path, apart: &Path, left: &mut usize, found: &mut BTreeSet<String>) {
    let disk = |path: &Path| fs::symlink_metadata(path).map(|facts| (facts.dev(), facts));
    let Ok((own, _)) = disk(dir) else { return };
    // The engine remembers what it found out about this machine (SB-42).
    let cache = Path::new(HOME).join(".cache");
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some((_, facts)) = disk(&path).ok().filter(|(disk, _)| *disk == own) else {
            continue;
        };
        if path == apart || path == cache || *left == 0 {
            continue;
        }
        *left -= 1;
        if facts.is_dir() {
            found.insert(format!("directory {}", path.display()));
            files(&path, apart, left, found);
        } else {
            let time = facts.mtime() % 1000 * 1_000_000_000 + facts.mtime_nsec();
            let (size, path) = (facts.size(), path.display());
            found.insert(format!("file {path} of {size} bytes, {time}"));
        }
    }
}
