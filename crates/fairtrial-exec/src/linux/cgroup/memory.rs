//! A leaf's memory: its limit, its peak, and what happened when it did not suffice.

use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::counters::{Counters, Peak, Version};
use super::files::{self, Kept};

/// How far the v1 limit of memory with swap is above that of memory: the kernel charges it first, and Linux 6.18 (seen)
/// counts no failures of it. More than any one charge that can end in a kill, too little to swap.
const SWAP_SLACK_BYTES: u64 = 256 << 10;

/// The files of a leaf that its memory needs.
#[derive(Debug)]
pub(super) struct Memory {
    version: Version,
    /// v2 `memory.events`, v1 `memory.oom_control`.
    events: Kept,
    /// v1 `memory.failcnt`.
    failures: Option<Kept>,
    usage: Kept,
    peak: Option<Kept>,
    /// Whether the peak can be made to start anew.
    resets: bool,
    /// The peak when the call began, of whichever call: only what is above is this one's. Zero where it resets.
    former_peak: u64,
    residue: Option<u64>,
}

impl Memory {
    /// Opens the files of a fresh leaf.
    pub(super) fn open(dir: BorrowedFd<'_>, version: Version) -> rustix::io::Result<Self> {
        match version {
            Version::V1 => Self::open_v1(dir),
            Version::V2 => Self::open_v2(dir),
        }
    }

    fn open_v1(dir: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let read = |name| Kept::open(dir, name, OFlags::RDONLY);
        Ok(Self {
            version: Version::V1,
            failures: Some(read("memory.failcnt")?),
            usage: read("memory.usage_in_bytes")?,
            peak: Kept::open_if_there(dir, "memory.max_usage_in_bytes", OFlags::RDWR)?,
            resets: true,
            former_peak: 0,
            residue: Some(0),
            events: read("memory.oom_control")?,
        })
    }

    fn open_v2(dir: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        // All of the leaf dies, not one of its processes.
        if_there(files::write(dir, "memory.oom.group", "1"))?;
        // It can be written from Linux 6.12 on, and then tells of the time since.
        let (peak, resets) = match Kept::open_if_there(dir, "memory.peak", OFlags::RDWR) {
            Ok(peak) => (peak, true),
            Err(_) => (
                Kept::open_if_there(dir, "memory.peak", OFlags::RDONLY)?,
                false,
            ),
        };
        Ok(Self {
            version: Version::V2,
            events: Kept::open(dir, "memory.events", OFlags::RDONLY)?,
            failures: None,
            usage: Kept::open(dir, "memory.current", OFlags::RDONLY)?,
            peak,
            resets,
            former_peak: 0,
            residue: Some(0),
        })
    }

    /// Sets the limit, swap included; `None` lifts it.
    pub(super) fn limit(&self, dir: BorrowedFd<'_>, bytes: Option<u64>) -> rustix::io::Result<()> {
        match self.version {
            Version::V1 => limit_v1(dir, bytes),
            Version::V2 => {
                let (max, swap) =
                    bytes.map_or(("max".into(), "max"), |bytes| (bytes.to_string(), "0"));
                files::write(dir, "memory.max", &max)?;
                if_there(files::write(dir, "memory.swap.max", swap))
            }
        }
    }

    /// Makes what is charged now the peak, from which it can only rise again.
    pub(super) fn reset_peak(&mut self) -> rustix::io::Result<()> {
        self.residue = self.usage.number();
        match &self.peak {
            Some(peak) if self.resets => peak.write("0")?,
            Some(peak) => self.former_peak = peak.number().unwrap_or(u64::MAX),
            None => (),
        }
        Ok(())
    }

    /// Whether another call's peak can be told from this one's.
    pub(super) fn can_be_reused(&self) -> bool {
        self.resets || self.peak.is_none()
    }

    /// Charged now.
    pub(super) fn usage(&self) -> Option<u64> {
        self.usage.number()
    }

    /// Counts from the leaf's making on.
    pub(super) fn count(&self, counters: &mut Counters) {
        counters.residue_bytes = self.residue;
        counters.peak = self
            .peak
            .as_ref()
            .and_then(Kept::number)
            .filter(|bytes| *bytes > self.former_peak)
            .map(|bytes| Peak {
                bytes,
                source: self.version,
            });
        (counters.oom, counters.oom_kill) = match &self.failures {
            Some(failures) => (failures.number(), self.events.keyed("oom_kill")),
            None => self
                .events
                .read(|text| Some((files::keyed(text, "oom"), files::keyed(text, "oom_kill"))))
                .unwrap_or_default(),
        };
    }
}

/// The limit may not pass the one with swap, so that is the second to be lowered and the first to be raised.
fn limit_v1(dir: BorrowedFd<'_>, bytes: Option<u64>) -> rustix::io::Result<()> {
    let text = |slack| bytes.map_or("-1".into(), |bytes| bytes.saturating_add(slack).to_string());
    let limit = || files::write(dir, "memory.limit_in_bytes", &text(0));
    // Not there where swap is not accounted for.
    let with_swap = || {
        if_there(files::write(
            dir,
            "memory.memsw.limit_in_bytes",
            &text(SWAP_SLACK_BYTES),
        ))
    };
    match limit() {
        Err(Errno::INVAL) => with_swap().and_then(|()| limit()),
        lowered => lowered.and_then(|()| with_swap()),
    }
}

/// A file that this kernel does not have needs no writing.
fn if_there(written: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match written {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// SB-34: where the peak cannot be reset, only one that rose is the call's own.
    #[test]
    fn an_earlier_calls_peak_is_not_this_ones() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("memory.events", "low 0\noom 2\noom_kill 1\n");
        write("memory.current", "4096\n");
        write("memory.peak", "1000\n");
        let handle = std::fs::File::open(dir.path()).unwrap();
        let mut memory = Memory::open(handle.as_fd(), Version::V2).unwrap();
        memory.resets = false;
        let peak = |memory: &Memory| {
            let mut counters = Counters::default();
            memory.count(&mut counters);
            assert_eq!((counters.oom, counters.oom_kill), (Some(2), Some(1)));
            (counters.peak.map(|peak| peak.bytes), counters.residue_bytes)
        };
        assert_eq!(peak(&memory), (Some(1000), Some(0)));
        assert!(!memory.can_be_reused());
        memory.reset_peak().unwrap();
        assert_eq!(peak(&memory), (None, Some(4096)));
        write("memory.peak", "1001\n");
        assert_eq!(peak(&memory), (Some(1001), Some(4096)));
    }
}
