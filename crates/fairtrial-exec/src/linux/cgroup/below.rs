//! A process that goes from its own cgroup to one below, so that the upper one holds no process and can hand on
//! controllers (SB-28). For programs that are their own masters: the library never moves its host.

use std::os::fd::{AsFd, OwnedFd};

use super::attempt::{self, Attempt};
use super::counters::Version;
use super::files;
use super::group;
use super::host::{Host, Which};
use super::owner::EngineName;

/// As an engine's own, so that the next engine sweeps it should this process be killed; no engine has that number.
const SERIAL: u32 = u32::MAX / 2;

/// A process that is one cgroup lower than it began; dropped, it goes back.
#[derive(Debug)]
pub struct Below {
    above: OwnedFd,
    name: String,
}

impl Below {
    /// Moves this process, if its v2 cgroup was given to it and holds nobody else; else there is nothing to be gained.
    #[must_use]
    pub fn go() -> Option<Self> {
        let host = Host::read().ok()?;
        let place = host.place(Which::V2).ok()?;
        let own = attempt::open(&place.own, Version::V2).ok()?;
        let attempt = Attempt {
            host: &host,
            without: &[],
        };
        let ours = !attempt::is_root(&own)
            && attempt::writable(&own).is_ok()
            && attempt.is_given_to_us(&own);
        let alone = || group::processes(&own).is_ok_and(|all| all == [own_pid()]);
        if !ours || group::controllers(&own).is_empty() || !alone() {
            return None;
        }
        let name = EngineName::new(std::process::id(), SERIAL)
            .ok()?
            .to_string();
        let home = group::make(&own, &name).ok()?;
        let below = Self { above: own, name }; // from here on it is taken away again
        files::write(&home, "cgroup.procs", "0").ok()?;
        Some(below)
    }
}

impl Drop for Below {
    /// All that engines made there is gone by now. What cannot be undone goes with the upper cgroup, or is swept.
    fn drop(&mut self) {
        for controller in group::handed_on(&self.above) {
            _ = files::write(
                &self.above,
                "cgroup.subtree_control",
                &format!("-{controller}"),
            );
        }
        _ = files::write(&self.above, "cgroup.procs", "0");
        _ = group::remove(self.above.as_fd(), &*self.name);
    }
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}
