//! What the kernel says of a process in `/proc`: `stat`, `statm`, `status`, as bytes in and numbers out.
//!
//! A process chooses its own name, so nothing here trusts the name's text: `stat` is read after its last `)`, and
//! `status` escapes line breaks.

use std::io;

/// The fields of `/proc/PID/stat` that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// One letter: `R`unning, `S`leeping, `Z`ombie and so on.
    pub state: u8,
    /// The parent.
    pub ppid: u32,
    /// The session: the number of the process that made it.
    pub session: i32,
    /// The kernel's own flags of it.
    pub flags: u32,
    /// User time of all threads, in clock ticks.
    pub utime_ticks: u64,
    /// System time of all threads, in clock ticks.
    pub stime_ticks: u64,
    /// Both times of the children it waited for, in clock ticks.
    pub waited_ticks: u64,
    /// Threads alive.
    pub num_threads: u64,
    /// When it started, in clock ticks after boot: tells two processes of one number apart.
    pub starttime_ticks: u64,
    /// Resident pages.
    pub rss_pages: u64,
}

/// The fields of `/proc/PID/status` that are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The most that was ever resident, or since the peak was last reset. None for a zombie or a kernel thread.
    pub hwm_bytes: Option<u64>,
    /// Resident now. None for a zombie or a kernel thread.
    pub rss_bytes: Option<u64>,
    /// Threads alive.
    pub threads: u64,
}

impl Stat {
    /// Reads the line; `None` if it is none.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let after_name = line.iter().rposition(|&byte| byte == b')')? + 1;
        let mut fields = line[after_name..]
            .split(|byte| byte.is_ascii_whitespace())
            .filter(|field| !field.is_empty());
        // `nth` counts from the field after the last one taken.
        let [state] = *fields.next()? else {
            return None;
        };
        Some(Self {
            state,
            ppid: number(fields.next()?)?,
            session: number(fields.nth(1)?)?,
            flags: number(fields.nth(2)?)?,
            utime_ticks: number(fields.nth(4)?)?,
            stime_ticks: number(fields.next()?)?,
            waited_ticks: number::<u64>(fields.next()?)?.saturating_add(number(fields.next()?)?),
            num_threads: number(fields.nth(2)?)?,
            starttime_ticks: number(fields.nth(1)?)?,
            rss_pages: number(fields.nth(1)?)?,
        })
    }

    /// Of the process now.
    pub fn read(pid: u32) -> io::Result<Self> {
        let line = read_small(&format!("/proc/{pid}/stat"))?;
        Self::parse(&line).ok_or_else(|| malformed("stat"))
    }

    /// Whether it is on its way out or gone: it will run no more of its program.
    #[must_use]
    pub fn is_exiting(&self) -> bool {
        const PF_EXITING: u32 = 0x4;
        self.is_zombie() || self.flags & PF_EXITING != 0
    }

    /// Whether it has ended and only waits for its parent to take note.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// A file of the kernel's, which most often has little to say: three system calls then.
pub(super) fn read_small(path: &str) -> io::Result<Vec<u8>> {
    const LITTLE: usize = 2048;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    let mut text = vec![0; LITTLE];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut text[..]))?;
    text.truncate(count);
    if count == LITTLE {
        io::Read::read_to_end(&mut std::fs::File::from(file), &mut text)?;
    }
    Ok(text)
}

impl Status {
    /// Reads the whole text; `None` if the number of threads is missing.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut status = Self::default();
        for line in text.split(|&byte| byte == b'\n') {
            if let Some(value) = line.strip_prefix(b"VmHWM:") {
                status.hwm_bytes = kilobytes(value);
            } else if let Some(value) = line.strip_prefix(b"VmRSS:") {
                status.rss_bytes = kilobytes(value);
            } else if let Some(value) = line.strip_prefix(b"Threads:") {
                // The last of the three: the rest (masks of signals and CPUs) need not be looked at.
                status.threads = number(value.trim_ascii())?;
                return Some(status);
            }
        }
        None
    }

    /// Of the process now.
    pub fn read(pid: u32) -> io::Result<Self> {
        let text = std::fs::read(format!("/proc/{pid}/status"))?;
        Self::parse(&text).ok_or_else(|| malformed("status"))
    }
}

/// Resident bytes now, from `/proc/PID/statm`: cheaper than `status`, and at most a few pages per thread behind.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    parse_statm(&std::fs::read(format!("/proc/{pid}/statm"))?)
}

/// Resident bytes in a line of `statm`.
pub(crate) fn parse_statm(line: &[u8]) -> io::Result<u64> {
    parse_statm_rss_pages(line)
        .map(|pages| pages * rustix::param::page_size() as u64)
        .ok_or_else(|| malformed("statm"))
}

fn parse_statm_rss_pages(line: &[u8]) -> Option<u64> {
    number(line.split(|&byte| byte == b' ').nth(1)?)
}

fn kilobytes(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii().strip_suffix(b" kB")?;
    number::<u64>(digits)?.checked_mul(1024)
}

pub(super) fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn malformed(file: &str) -> io::Error {
    let problem = format!("`/proc/PID/{file}` does not look as the kernel writes it");
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&[u8]; 6] = [b"a) R 1 (", b"", b")", b"x\ny", b") Z 1 1 1 1 1", b"\xff(("];

    fn line(name: &[u8]) -> Vec<u8> {
        let rest = b") S 42 5 6 0 -1 4194304 9 8 7 6 111 222 3 4 20 0 17 0 98765 1000000 321 18446744073709551615 1";
        [b"77 (", name, rest].concat()
    }

    /// EX-86, SB-52
    #[test]
    fn a_hostile_name_changes_no_field() {
        for name in NAMES {
            let expected = Stat {
                state: b'S',
                ppid: 42,
                session: 6,
                flags: 4194304,
                utime_ticks: 111,
                stime_ticks: 222,
                waited_ticks: 7,
                num_threads: 17,
                starttime_ticks: 98765,
                rss_pages: 321,
            };
            assert_eq!(Stat::parse(&line(name)), Some(expected), "{name:?}");
        }
    }

    /// EX-86, SB-52
    #[test]
    fn a_thread_with_a_hostile_name_is_read_right_from_the_kernel() {
        for name in [c"a) R 1 (", c"x\nThreads:\t9", c"VmHWM: 1 kB"] {
            let read = move || {
                rustix::thread::set_name(name).unwrap();
                let read = |file| std::fs::read(format!("/proc/thread-self/{file}")).unwrap();
                (
                    Stat::parse(&read("stat")).unwrap(),
                    Status::parse(&read("status")).unwrap(),
                )
            };
            let (stat, status) = std::thread::spawn(read).join().unwrap();
            assert_eq!(stat.ppid, std::os::unix::process::parent_id());
            assert!(status.threads >= 2 && status.hwm_bytes.unwrap() > 1 << 20);
        }
    }

    /// EX-83
    #[test]
    fn this_process_reads_itself_the_same_in_all_three_files() {
        let pid = std::process::id();
        let (stat, status) = (Stat::read(pid).unwrap(), Status::read(pid).unwrap());
        assert!(!stat.is_zombie() && stat.num_threads >= 2);
        assert!(status.rss_bytes.unwrap() > 0 && status.hwm_bytes >= status.rss_bytes);
        assert!(resident_bytes(pid).unwrap() > 0);
        assert_eq!(parse_statm_rss_pages(b"9 8 7 6 5 4 3"), Some(8));
    }

    /// EX-82: what is not there is not zero.
    #[test]
    fn a_zombie_has_no_resident_size() {
        let text = b"Name:\tx\nState:\tZ (zombie)\nThreads:\t1\nSigQ:\t0/1\n";
        let expected = Status {
            threads: 1,
            ..Status::default()
        };
        assert_eq!(Status::parse(text), Some(expected));
        assert_eq!(Status::parse(b"Name:\tx\n"), None);
    }

    proptest! {
        /// EX-86
        #[test]
        fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            _ = Stat::parse(&bytes);
            _ = Status::parse(&bytes);
            _ = parse_statm_rss_pages(&bytes);
        }

        /// EX-86
        #[test]
        fn any_name_leaves_the_fields_alone(name in prop::collection::vec(1_u8.., 0..16)) {
            prop_assert_eq!(Stat::parse(&line(&name)), Stat::parse(&line(b"x")));
        }
    }
}
