//! The processor's own counters of what a process and its children did.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counted {
    /// Instructions in user code.
    Instructions,
    /// Cycles in user code.
    Cycles,
    /// Nanoseconds on a processor: by the kernel, so it is there where the others are not.
    TaskClock,
}

/// Why something was not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Uncounted {
    /// The kernel would not, with this error number.
    Refused(i32),
    /// The counter never ran.
    NeverRan,
    /// Others wanted it too, so it ran for a part of the time only.
    Shared,
}

impl From<io::Error> for Uncounted {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// A counter that starts with the next program that its process runs, and counts for its children too.
#[derive(Debug)]
pub struct Counter(OwnedFd);

/// The first version of the kernel's `perf_event_attr`, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    breakpoint_at: u64,
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
/// A reading tells for how long it was to count, and for how long it did.
const WITH_TIMES: u64 = 3;
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const CLOSE_ON_EXEC: libc::c_ulong = 8;

impl Counter {
    /// A counter for the process of this number; zero is the calling one.
    pub fn open(pid: i32, counted: Counted) -> io::Result<Self> {
        let (kind, config) = match counted {
            Counted::Cycles => (HARDWARE, 0),
            Counted::Instructions => (HARDWARE, 1),
            Counted::TaskClock => (SOFTWARE, 1),
        };
        let attributes = Attributes {
            kind,
            size: size_of::<Attributes>() as u32, // 64
            config,
            read_format: WITH_TIMES,
            // User code only: that may be counted without privilege.
            flags: DISABLED | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | ENABLE_ON_EXEC,
            ..Attributes::default()
        };
        let (any_cpu, no_group): (libc::c_int, libc::c_int) = (-1, -1);
        // SAFETY: the kernel reads `size` bytes of the attributes during the call, which are there.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                pid,
                any_cpu,
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        match i32::try_from(opened) {
            // SAFETY: the kernel gave us this descriptor just now; nobody else owns it.
            Ok(fd) if fd >= 0 => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// What was counted up to now, the dead included. A part of it is no count.
    pub fn read(&self) -> Result<u64, Uncounted> {
        let mut bytes = [0; 24];
        let read = rustix::io::read(&self.0, &mut bytes);
        let read = read.map_err(|errno| Uncounted::Refused(errno.raw_os_error()))?;
        let number = |at: usize| {
            let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_ne_bytes(bytes)
        };
        let (value, wanted_ns, ran_ns) = (number(0), number(8), number(16));
        match (read, ran_ns) {
            (24, 0) => Err(Uncounted::NeverRan),
            (24, _) if ran_ns < wanted_ns => Err(Uncounted::Shared),
            (24, _) => Ok(value),
            _ => Err(Uncounted::Refused(libc::EIO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// CA-72
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a process to count, without an engine"
    )]
    fn a_counter_starts_with_the_program_and_counts_its_children() {
        // Waits for a line, then becomes another program, which starts a child that is busy.
        let script =
            "read line; exec sh -c 'i=0; (while [ $i -lt 20000 ]; do i=$((i+1)); done) & wait'";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let counter = Counter::open(child.id().cast_signed(), Counted::TaskClock);
        let before = counter.as_ref().map(Counter::read);
        assert!(before.is_err() || before.ok() == Some(Err(Uncounted::NeverRan)));
        writeln!(child.stdin.take().unwrap()).unwrap();
        child.wait().unwrap();
        match counter {
            Ok(counter) => assert!(counter.read().unwrap() > 1_000_000),
            // Where the kernel does not let us, there is nothing to show.
            Err(error) => assert!(
                matches!(
                    error.raw_os_error(),
                    Some(libc::EACCES | libc::EPERM | libc::ENOSYS)
                ),
                "{error}"
            ),
        }
    }
}
