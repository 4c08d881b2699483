//! Small kernel files: opened once, read by one `pread`, written by one `write`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

/// More than the longest file that is read so (`memory.stat` and the lists of processes are not).
const BUFFER_BYTES: usize = 2048;

/// A file of a cgroup, kept open.
#[derive(Debug)]
pub(super) struct Kept(OwnedFd);

impl Kept {
    pub(super) fn open(dir: impl AsFd, name: &str, access: OFlags) -> rustix::io::Result<Self> {
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(dir, name, flags, Mode::empty()).map(Self)
    }

    /// `None` where this kernel has no such file.
    pub(super) fn open_if_there(
        dir: impl AsFd,
        name: &str,
        access: OFlags,
    ) -> rustix::io::Result<Option<Self>> {
        match Self::open(dir, name, access) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Gives the text now to `look`; what cannot be read or understood is not measured.
    pub(super) fn read<T>(&self, look: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let mut buffer = [0; BUFFER_BYTES];
        let length = retry_on_intr(|| pread(&self.0, &mut buffer, 0)).ok()?;
        look(buffer.get(..length)?)
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.read(|text| number(text.trim_ascii()))
    }

    pub(super) fn keyed(&self, key: &str) -> Option<u64> {
        self.read(|text| keyed(text, key))
    }

    pub(super) fn write(&self, text: &str) -> rustix::io::Result<()> {
        // At offset 0, where it belongs whatever was read or written before.
        retry_on_intr(|| pwrite(&self.0, text.as_bytes(), 0)).map(drop)
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Writes a file that is not kept open.
pub(super) fn write(dir: impl AsFd, name: &str, text: &str) -> rustix::io::Result<()> {
    Kept::open(dir, name, OFlags::WRONLY)?.write(text)
}

/// The whole of a file of any length.
pub(super) fn read_all(dir: impl AsFd, name: &str) -> io::Result<Vec<u8>> {
    let kept = Kept::open(dir, name, OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut std::fs::File::from(kept.0), &mut bytes)?;
    Ok(bytes)
}

/// The number after `key` in a file of one such pair to a line.
pub(super) fn keyed(text: &[u8], key: &str) -> Option<u64> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let rest = line.strip_prefix(key.as_bytes())?;
        number(rest.strip_prefix(b" ")?.trim_ascii())
    })
}

/// Nanoseconds in which some task waited for memory, from a `memory.pressure`.
pub(super) fn stalled_ns(text: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').next()?;
    let mut words = line.strip_prefix(b"some ")?.split(|&byte| byte == b' ');
    let total = words.find_map(|word| word.strip_prefix(b"total="))?;
    number::<u64>(total)?.checked_mul(1000)
}

pub(super) fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_a_whole_word() {
        let events = b"low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n";
        let read = ["oom", "oom_kill", "max", "oom_", "kill"].map(|key| keyed(events, key));
        assert_eq!(read, [Some(3), Some(4), Some(2), None, None]);
        assert_eq!(keyed(b"max 18446744073709551616", "max"), None);
    }

    #[test]
    fn pressure_is_the_first_lines_total() {
        let text = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=18185\nfull avg10=0.00 total=7\n";
        assert_eq!(stalled_ns(text), Some(18_185_000));
        assert_eq!(stalled_ns(b"full avg10=0.00 total=7\n"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            _ = (keyed(&bytes, "max"), stalled_ns(&bytes), number::<i32>(&bytes));
        }
    }
}
