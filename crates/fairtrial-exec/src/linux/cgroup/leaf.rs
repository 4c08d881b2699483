//! The cgroup of one call. Its files stay open, so that a look costs a system call each.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;

use super::access::Part;
use super::counters::{Counters, Version};
use super::files::{self, Kept};
use super::group;
use super::memory::Memory;

/// What the processes of a leaf may use together; `None` is without limit. What the access lacks is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct LeafLimits {
    /// Memory, page cache and the kernel's own for them included; no swap.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
}

/// A cgroup for one call at a time.
#[derive(Debug)]
pub struct Leaf {
    slot: u32,
    /// v2 first, where there is one.
    sides: Vec<Side>,
    /// With the side that each is of.
    memory: Option<(usize, Memory)>,
    pids: Option<(usize, Pids)>,
    cpu: Option<Cpu>,
    pressure: Option<Kept>,
    kill: Option<Kept>,
    /// v2 `cgroup.events`.
    events: Option<Kept>,
    /// As written; unknown after a failure.
    limits: Option<LeafLimits>,
    base: Counters,
}

/// The leaf in one hierarchy.
#[derive(Debug)]
struct Side {
    dir: OwnedFd,
    join: Kept,
    /// The controller of processor shares is its only one.
    only_shares: bool,
}

#[derive(Debug)]
struct Pids {
    events: Option<Kept>,
    current: Kept,
}

#[derive(Debug)]
enum Cpu {
    V1(Kept),
    /// `cpu.stat`, and where the kernel has it what only concerns this very cgroup.
    V2(Kept, Option<Kept>),
}

impl Leaf {
    /// From fresh directories, each with its version and its parts.
    pub(super) fn open(
        slot: u32,
        directories: Vec<(Version, OwnedFd, &[Part])>,
    ) -> rustix::io::Result<Self> {
        let mut leaf = Self {
            slot,
            sides: Vec::new(),
            memory: None,
            pids: None,
            cpu: None,
            pressure: None,
            kill: None,
            events: None,
            limits: Some(LeafLimits::default()),
            base: Counters::default(),
        };
        for (version, dir, parts) in directories {
            leaf.open_side(version, dir, parts)?;
        }
        Ok(leaf)
    }

    fn open_side(
        &mut self,
        version: Version,
        dir: OwnedFd,
        parts: &[Part],
    ) -> rustix::io::Result<()> {
        let (at, there) = (self.sides.len(), dir.as_fd());
        let if_there = |name| Kept::open_if_there(there, name, OFlags::RDONLY);
        let read = |name| Kept::open(there, name, OFlags::RDONLY);
        for part in parts {
            match part {
                Part::Memory => self.memory = Some((at, Memory::open(there, version)?)),
                Part::Processes => {
                    let (events, current) = (if_there("pids.events")?, read("pids.current")?);
                    self.pids = Some((at, Pids { events, current }));
                }
                Part::CpuTime => {
                    self.cpu = Some(match version {
                        Version::V1 => Cpu::V1(read("cpuacct.usage")?),
                        Version::V2 => Cpu::V2(
                            read("cpu.stat")?,
                            // Empty without the controller, and then not worth a look.
                            if_there("cpu.stat.local")?
                                .filter(|local| local.keyed("throttled_usec").is_some()),
                        ),
                    });
                }
                Part::CpuShare => {} // each leaf begins with the usual weight
                Part::Kill => self.kill = Some(Kept::open(there, "cgroup.kill", OFlags::WRONLY)?),
            }
        }
        if version == Version::V2 {
            self.events = if_there("cgroup.events")?;
            self.pressure = if_there("memory.pressure").unwrap_or(None); // opens only where the kernel was told to count
        }
        let join = Kept::open(there, "cgroup.procs", OFlags::WRONLY)?;
        self.sides.push(Side {
            dir,
            join,
            only_shares: parts == [Part::CpuShare],
        });
        Ok(())
    }

    /// Its number, for messages; the name of its directories.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// A process that writes `0` to each of these, in this order, is inside. v2's comes first, so that a process that
    /// stops halfway is found and killed all the same.
    ///
    /// A process with a real-time policy stays out of a hierarchy that only shares processors: some kernels
    /// (`CONFIG_RT_GROUP_SCHED`) allow that policy in the root group alone.
    #[must_use]
    pub fn joins(&self, real_time: bool) -> Vec<BorrowedFd<'_>> {
        let joined = |side: &&Side| !(real_time && side.only_shares);
        let sides = self.sides.iter().filter(joined);
        sides.map(|side| side.join.as_fd()).collect()
    }

    /// Sets limits, those that differ from what is set. v1 refuses (`EBUSY`) less memory than cannot be reclaimed.
    pub fn set_limits(&mut self, limits: &LeafLimits) -> io::Result<()> {
        let set = self.limits.take();
        let differs = |same: fn(&LeafLimits, &LeafLimits) -> bool| {
            set.as_ref().is_none_or(|set| !same(set, limits))
        };
        if let Some((at, memory)) = &self.memory
            && differs(|a, b| a.memory_bytes == b.memory_bytes)
        {
            memory.limit(self.sides[*at].dir.as_fd(), limits.memory_bytes)?;
        }
        if let Some((at, _)) = &self.pids
            && differs(|a, b| a.processes == b.processes)
        {
            let max = limits
                .processes
                .map_or("max".into(), |most| most.to_string());
            files::write(&self.sides[*at].dir, "pids.max", &max)?;
        }
        self.limits = Some(limits.clone());
        Ok(())
    }

    /// Kills everything inside and below at once; `false` where the kernel cannot, and the caller kills by list.
    pub fn kill(&self) -> bool {
        self.kill
            .as_ref()
            .is_some_and(|kill| kill.write("1").is_ok())
    }

    /// Whether it is seen to hold no process. Zombies do not count, though they do against the limit of processes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.events {
            Some(events) => events.keyed("populated") == Some(0),
            None => self
                .sides
                .iter()
                .all(|side| group::holds_processes(&side.dir).is_ok_and(|holds| !holds)),
        }
    }

    /// The processes inside; none where they cannot be listed.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        let side = self.sides.first();
        side.and_then(|side| group::processes(&side.dir).ok())
            .unwrap_or_default()
    }

    /// Makes what is charged now the peak.
    pub fn reset_peak(&mut self) -> io::Result<()> {
        match &mut self.memory {
            Some((_, memory)) => Ok(memory.reset_peak()?),
            None => Ok(()),
        }
    }

    /// What the kernel counted since the call began.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.totals().since(&self.base)
    }

    /// Ready for another call: nobody inside, and no zombie that counts against its limit.
    pub(super) fn is_quiet(&self) -> bool {
        let zombies = self
            .pids
            .as_ref()
            .is_some_and(|(_, pids)| pids.current.number() != Some(0));
        !zombies && self.is_empty()
    }

    /// Whether the next call's numbers would be its own.
    pub(super) fn can_be_reused(&self) -> bool {
        self.memory
            .as_ref()
            .is_none_or(|(_, memory)| memory.can_be_reused())
    }

    /// Memory that is charged to it now.
    pub(super) fn charged(&self) -> u64 {
        self.memory
            .as_ref()
            .and_then(|(_, memory)| memory.usage())
            .unwrap_or(0)
    }

    /// Takes the counts so far for others'.
    pub(super) fn remember(&mut self) {
        self.base = self.totals();
    }

    /// Whether the kernel limits memory and processes in it, and counts processor time.
    #[must_use]
    pub fn limits_all(&self) -> bool {
        self.memory.is_some() && self.pids.is_some() && self.cpu.is_some()
    }

    /// Kills by whatever means there is; what forks meanwhile may be left.
    pub fn kill_anyhow(&self) {
        for side in &self.sides {
            group::kill(side.dir.as_fd());
        }
    }

    /// A file of whichever side has it.
    #[cfg(test)]
    pub(super) fn text(&self, file: &str) -> Option<String> {
        let mut texts = self
            .sides
            .iter()
            .filter_map(|side| files::read_all(&side.dir, file).ok());
        Some(String::from_utf8_lossy(&texts.next()?).trim().to_owned())
    }

    fn totals(&self) -> Counters {
        let mut counters = Counters::default();
        if let Some((_, memory)) = &self.memory {
            memory.count(&mut counters);
        }
        counters.refused = self.pids.as_ref().and_then(|(_, pids)| pids.refused());
        (counters.cpu_ns, counters.throttled_ns) =
            self.cpu.as_ref().map(Cpu::times).unwrap_or_default();
        counters.memory_stall_ns = self
            .pressure
            .as_ref()
            .and_then(|file| file.read(files::stalled_ns));
        counters
    }
}

impl Pids {
    fn refused(&self) -> Option<u64> {
        self.events.as_ref()?.keyed("max")
    }
}

impl Cpu {
    /// Used and throttled.
    fn times(&self) -> (Option<u64>, Option<u64>) {
        let ns = |text: &[u8], key| files::keyed(text, key)?.checked_mul(1000);
        match self {
            Self::V1(usage) => (usage.number(), None),
            Self::V2(stat, local) => {
                let both = |text: &[u8]| Some((ns(text, "usage_usec"), ns(text, "throttled_usec")));
                let (used, throttled) = stat.read(both).unwrap_or_default();
                // Of a quota above, too; the other tells only of the leaf's own, and it has none.
                let with_above = local
                    .as_ref()
                    .and_then(|local| local.read(|text| ns(text, "throttled_usec")));
                (used, with_above.or(throttled))
            }
        }
    }
}
