//! Whose cgroups they are: an engine's name, and the end of what engines left behind.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::access::Access;
use super::group;
use crate::linux::monotonic::now_ns;
use crate::linux::proc_status::Stat;

const PREFIX: &str = "fairtrial-";

/// A cgroup that is still busy after this long is given up on.
pub(super) const PATIENCE_NS: u64 = 1_000_000_000;

/// A sweep looks no further in a hierarchy than this.
const MOST_GROUPS: usize = 4096;

/// What an engine's cgroups are called: tells whether that engine still lives, whatever its number came to mean since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineName {
    /// Numbers of another pid namespace say nothing here.
    pid_ns: u64,
    pid: u32,
    start_ticks: u64,
    serial: u32,
}

impl EngineName {
    /// Of the process with this number; `serial` tells several engines of one process apart.
    pub fn new(pid: u32, serial: u32) -> io::Result<Self> {
        Ok(Self {
            pid_ns: own_pid_ns(),
            pid,
            start_ticks: Stat::read(pid)?.starttime_ticks,
            serial,
        })
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let parsed = Self {
            pid_ns: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok()?,
            start_ticks: parts.next()?.parse().ok()?,
            serial: parts.next()?.parse().ok()?,
        };
        // Only names exactly as they are made here.
        (parsed.to_string() == name).then_some(parsed)
    }

    /// Whether it certainly lives no more.
    fn is_dead(&self) -> bool {
        let Some(pid) = self.pid.try_into().ok().and_then(Pid::from_raw) else {
            return false;
        };
        if self.pid_ns != own_pid_ns() {
            return false;
        }
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return true;
        }
        // Unreadable: hidden from us, not gone.
        Stat::read(self.pid)
            .is_ok_and(|stat| stat.is_zombie() || stat.starttime_ticks != self.start_ticks)
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid_ns,
            pid,
            start_ticks,
            serial,
        } = self;
        write!(f, "{PREFIX}{pid_ns}-{pid}-{start_ticks}-{serial}")
    }
}

/// Zero, the same for all, where `/proc` does not tell.
fn own_pid_ns() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |ns| ns.ino())
}

/// Kills and removes what dead engines left, wherever in the hierarchies it is; gives how many engines' it was.
/// Takes at most about a second; the error is the first of what could not be removed.
pub fn sweep_dead_owners(access: &Access) -> io::Result<usize> {
    let mut dead: BTreeMap<String, Vec<Group>> = BTreeMap::new();
    for hierarchy in access.hierarchies() {
        for (parent, name) in find_groups(&hierarchy.mount) {
            let Ok(parent) = group::open(rustix::fs::CWD, &parent) else {
                continue; // gone since
            };
            dead.entry(name.clone())
                .or_default()
                .push(Group { parent, name });
        }
    }
    let until_ns = now_ns() + PATIENCE_NS;
    let results: Vec<_> = dead
        .values()
        .map(|groups| end_groups(groups, until_ns))
        .collect();
    let removed = results.iter().filter(|result| result.is_ok()).count();
    let failed = results.into_iter().find_map(Result::err);
    failed.map_or(Ok(removed), |errno| Err(errno.into()))
}

/// An engine's cgroup in one hierarchy.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) parent: OwnedFd,
    pub(super) name: String,
}

/// Kills what is in the cgroups and removes them, again and again until they are gone or the time is over.
pub(super) fn end_groups(groups: &[Group], until_ns: u64) -> rustix::io::Result<()> {
    loop {
        let removed: Vec<_> = groups
            .iter()
            .map(|g| end_group(g.parent.as_fd(), &g.name))
            .collect();
        match removed.into_iter().find_map(Result::err) {
            None => return Ok(()),
            Some(Errno::BUSY) if now_ns() < until_ns => group::pause(),
            Some(errno) => return Err(errno),
        }
    }
}

fn end_group(parent: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    let removed = group::remove(parent, name);
    if removed == Err(Errno::BUSY)
        && let Ok(group) = group::open(parent, name)
    {
        group::kill(group.as_fd());
        group::await_empty(group.as_fd());
        return group::remove(parent, name);
    }
    removed
}

/// Dead engines' cgroups below a mount point, as parent and name.
fn find_groups(mount: &Path) -> Vec<(PathBuf, String)> {
    let (mut found, mut to_look, mut looked) = (Vec::new(), vec![mount.to_owned()], 0);
    while let Some(path) = to_look.pop() {
        looked += 1;
        if looked > MOST_GROUPS {
            break;
        }
        // Two links: its name and its own `.`, so there are no cgroups in it.
        if std::fs::metadata(&path).is_ok_and(|dir| dir.nlink() == 2) {
            continue;
        }
        let Ok(entries) = std::fs::read_dir(&path) else {
            continue; // gone, or not ours to look into
        };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            match entry.file_name().to_str().and_then(EngineName::parse) {
                Some(name) if name.is_dead() => found.push((path.clone(), name.to_string())),
                Some(_) => (),
                None => to_look.push(entry.path()),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SB-12
    #[test]
    fn only_a_name_of_this_namespace_whose_process_is_gone_is_dead() {
        let own = EngineName::new(std::process::id(), 7).unwrap();
        assert_eq!(EngineName::parse(&own.to_string()), Some(own.clone()));
        let variant = |change: fn(&mut EngineName)| {
            let mut name = own.clone();
            change(&mut name);
            name.is_dead()
        };
        assert!(!own.is_dead());
        assert!(variant(|name| name.start_ticks += 1));
        assert!(variant(|name| name.pid = i32::MAX as u32));
        assert!(!variant(
            |name| (name.pid, name.pid_ns) = (i32::MAX as u32, 1)
        ));
        assert!(!variant(|name| name.pid = u32::MAX));
        // A process of this very number that is another's: hidden or not, it lives.
        assert!(!EngineName::new(1, 0).unwrap().is_dead());
    }

    /// SB-12
    #[test]
    fn names_that_nobody_made_are_nobodys() {
        for name in [
            "fairtrial-",
            "fairtrial-1-2-3",
            "fairtrial-1-2-3-4-5",
            "fairtrial-1-02-3-4",
            "x-1-2-3-4",
        ] {
            assert_eq!(EngineName::parse(name), None, "{name}");
        }
        assert!(EngineName::parse("fairtrial-1-2-3-4").is_some());
    }
}
