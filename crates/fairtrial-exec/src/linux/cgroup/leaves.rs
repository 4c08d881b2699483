//! An engine's leaves: lent, taken back, used again, removed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::access::{Access, Part};
use super::counters::Version;
use super::files;
use super::group;
use super::leaf::{Leaf, LeafLimits};
use super::owner::{EngineName, Group, PATIENCE_NS, end_groups};
use crate::linux::monotonic::now_ns;

/// A leaf to which more than this is still charged when nobody is in it (page cache of files that live on) is replaced
/// by a fresh one: the next call's peak would begin with it.
const MOST_RESIDUE_BYTES: u64 = 1 << 20;

/// The owner of an engine's leaves, `fairtrial-<engine>/<slot>` in each hierarchy. They go when it does.
#[derive(Debug)]
pub struct Leaves {
    engines: Vec<EngineGroup>,
    idle: Vec<Leaf>,
    leaving: Vec<Leaving>,
    next_slot: u32,
}

/// The engine's cgroup in one hierarchy.
#[derive(Debug)]
struct EngineGroup {
    version: Version,
    dir: OwnedFd,
    parts: Vec<Part>,
    place: Group,
}

/// A leaf that was given back and is not to be had yet, or no more.
#[derive(Debug)]
struct Leaving {
    leaf: Leaf,
    since_ns: u64,
    /// It is to go.
    retired: bool,
}

impl Leaves {
    /// Makes the engine's own cgroup in every hierarchy.
    pub fn new(access: &Access, engine: &EngineName) -> io::Result<Self> {
        if access.hierarchies().is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut leaves = Self {
            engines: Vec::new(),
            idle: Vec::new(),
            leaving: Vec::new(),
            next_slot: 0,
        };
        for hierarchy in access.hierarchies() {
            let parent = hierarchy.base.try_clone()?;
            let name = engine.to_string();
            let dir = group::make(&parent, &name)?; // on failure those made before go with `leaves`
            if hierarchy.parts.contains(&Part::CpuShare) {
                weigh(&dir, hierarchy.version);
            }
            let refused = group::enable(&dir, &hierarchy.controllers);
            leaves.engines.push(EngineGroup {
                version: hierarchy.version,
                dir,
                parts: hierarchy.parts.clone(),
                place: Group { parent, name },
            });
            if let Some((_, errno)) = refused.first() {
                return Err((*errno).into());
            }
        }
        Ok(leaves)
    }

    /// Lends an empty leaf with these limits; its counters begin now.
    pub fn take(&mut self, limits: &LeafLimits) -> io::Result<Leaf> {
        while let Some(mut leaf) = self.idle.pop() {
            let clean = leaf.is_quiet() && leaf.charged() <= MOST_RESIDUE_BYTES;
            if clean
                && leaf
                    .set_limits(limits)
                    .and_then(|()| leaf.reset_peak())
                    .is_ok()
            {
                return Ok(leaf);
            }
            self.leaving.push(Leaving {
                leaf,
                since_ns: now_ns(),
                retired: true,
            });
        }
        let slot = self.next_slot;
        self.next_slot += 1;
        let made = self
            .make(slot)
            .and_then(|mut leaf| leaf.set_limits(limits).map(|()| leaf));
        if made.is_err() {
            _ = self.remove(slot); // what is left of it goes at the end
        }
        made
    }

    /// Takes a leaf back. Seen empty it is lent again; else it is killed, and [`Leaves::tend`] sees to it.
    pub fn give_back(&mut self, mut leaf: Leaf, now_ns: u64) {
        let (quiet, retired) = (leaf.is_quiet(), !leaf.can_be_reused());
        if quiet && !retired {
            // Now, for nobody is inside and nothing counts any more, so that lending it again is quick.
            leaf.remember();
            self.idle.push(leaf);
            return;
        }
        if !quiet {
            leaf.kill_anyhow();
        }
        self.leaving.push(Leaving {
            leaf,
            since_ns: now_ns,
            retired,
        });
    }

    /// How many leaves wait for [`Leaves::tend`].
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Looks after leaves that were given back with somebody inside: kills again, for a second. What is busy then goes at
    /// the end. Never waits.
    pub fn tend(&mut self, now_ns: u64) {
        for mut leaving in std::mem::take(&mut self.leaving) {
            let late = now_ns.saturating_sub(leaving.since_ns) >= PATIENCE_NS;
            if !leaving.retired && leaving.leaf.is_quiet() {
                leaving.leaf.remember();
                self.idle.push(leaving.leaf);
                continue;
            }
            let gone = (leaving.retired || late) && self.remove(leaving.leaf.slot()).is_ok();
            if !gone && !late {
                leaving.leaf.kill_anyhow();
                self.leaving.push(leaving);
            }
        }
    }

    /// Kills whatever is in any leaf, lent ones too, and removes them all; takes a second at most.
    pub fn end(mut self) -> io::Result<()> {
        self.end_all()
    }

    /// The engine's own cgroup in the hierarchy that has this part.
    #[cfg(test)]
    pub(super) fn engine_group(&self, part: Part) -> Option<&OwnedFd> {
        let with = self
            .engines
            .iter()
            .find(|engine| engine.parts.contains(&part))?;
        Some(&with.dir)
    }

    fn make(&self, slot: u32) -> io::Result<Leaf> {
        let sides = self.engines.iter().map(|engine| {
            let dir = group::make(&engine.dir, &slot.to_string())?;
            Ok((engine.version, dir, &engine.parts[..]))
        });
        Ok(Leaf::open(slot, sides.collect::<rustix::io::Result<_>>()?)?)
    }

    fn remove(&self, slot: u32) -> rustix::io::Result<()> {
        let name = slot.to_string();
        self.engines
            .iter()
            .try_for_each(|engine| group::remove(engine.dir.as_fd(), &*name))
    }

    fn end_all(&mut self) -> io::Result<()> {
        let groups: Vec<_> = self.engines.drain(..).map(|engine| engine.place).collect();
        Ok(end_groups(&groups, now_ns() + PATIENCE_NS)?)
    }
}

/// Calls together weigh as much as one busy process per processor, as they would without a group around them. Inside,
/// each call weighs the same.
fn weigh(engine: &OwnedFd, version: Version) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (file, usual, most) = match version {
        Version::V1 => ("cpu.shares", 1024, 262_144),
        Version::V2 => ("cpu.weight", 100, 10_000),
    };
    let weight = (usual * processors).min(most);
    files::write(engine, file, &weight.to_string()).ok(); // then all calls together weigh as much as one process
}

impl Drop for Leaves {
    fn drop(&mut self) {
        _ = self.end_all(); // what cannot be removed is the next engine's to sweep
    }
}
