//! Who is a stray: a child of the launcher that nobody asked for.
//!
//! A leader without a cgroup is a subreaper, so its orphans stay below it while it lives. When it dies they become the
//! launcher's own children. Whoever is a child of the launcher, not a known task and not in the cgroup of one that lives
//! is thus what a dead tree left behind, and is killed; its own children arrive here in turn, until none is left. A child
//! cannot be reaped by anybody else, so its number cannot come to mean another process between the look and the kill.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::OwnedFd;

use fairtrial_exec::linux::signals::kill_child;
use fairtrial_exec::linux::tree_usage::children_of_self;

/// Children that nobody asked for.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// Each with the last fork request that was out when it was first seen: it may be that request's worker.
    seen: BTreeMap<i32, Sighting>,
    children_file: Option<OwnedFd>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    last_fork: u32,
    killed: bool,
}

impl Strays {
    /// Looks for strays and kills those that cannot be a worker about to be announced.
    ///
    /// `first_open_fork` is the oldest fork request without an answer, `last_fork` the newest made; `living` tells who is
    /// in the cgroups of those that live.
    /// Returns how many were killed by this look.
    pub(crate) fn sweep<T>(
        &mut self,
        known: &HashMap<i32, T>,
        first_open_fork: Option<u32>,
        last_fork: u32,
        living: impl FnOnce() -> HashSet<i32>,
    ) -> std::io::Result<u64> {
        let children = children_of_self(&mut self.children_file)?;
        let mut strays: BTreeSet<i32> = children
            .into_iter()
            .map(u32::cast_signed)
            .filter(|pid| !known.contains_key(pid))
            .collect();
        if !strays.is_empty() {
            let living = living();
            strays.retain(|pid| !living.contains(pid));
        }
        self.seen.retain(|pid, _| strays.contains(pid));
        let mut killed = 0;
        for pid in strays {
            let sighting = self.seen.entry(pid).or_insert(Sighting {
                last_fork,
                killed: false,
            });
            let may_be_a_worker = first_open_fork.is_some_and(|open| open <= sighting.last_fork);
            if !may_be_a_worker && !sighting.killed {
                kill_child(pid);
                sighting.killed = true;
                killed += 1;
            }
        }
        Ok(killed)
    }

    /// Whether none is left, as of the last sweep.
    pub(crate) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// How many are left, as of the last sweep.
    pub(crate) fn len(&self) -> u64 {
        self.seen.len() as u64
    }

    /// A child of that number was reaped.
    pub(crate) fn reaped(&mut self, pid: i32) {
        self.seen.remove(&pid);
    }
}
