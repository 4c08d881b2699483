//! The bytes of one file into another: shared until one is written, where the file system can; copied where not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{copy_file_range, ioctl_ficlone};
use rustix::io::{Errno, retry_on_intr};

use super::file_io;

/// Below this a copy costs less: what is not on disk yet is written before it can be shared.
const WORTH_SHARING_BYTES: u64 = 64 << 10;

/// Whether two directories' files can share their bytes: believed until it fails.
#[derive(Debug)]
pub struct Sharing(AtomicBool);

impl Sharing {
    /// `false` never tries.
    #[must_use]
    pub fn new(tried: bool) -> Self {
        Self(AtomicBool::new(tried))
    }

    /// Shares the bytes of a file that is worth it; `false` if they have to be copied.
    pub fn share(&self, from: impl AsFd, to: impl AsFd, size: u64) -> io::Result<bool> {
        if size < WORTH_SHARING_BYTES || !self.0.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match clone_file(from, to) {
            Err(errno) if is_unable(errno) => {
                self.0.store(false, Ordering::Relaxed);
                Ok(false)
            }
            shared => shared.map(|()| true).map_err(io::Error::from),
        }
    }
}

/// Makes an empty file share the bytes of another.
pub fn clone_file(from: impl AsFd, to: impl AsFd) -> rustix::io::Result<()> {
    retry_on_intr(|| ioctl_ficlone(&to, &from))
}

/// Whether this says that the file systems cannot, rather than that something went wrong.
fn is_unable(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS
    )
}

/// Copies the first `size` bytes, within the kernel where that can be. A source that ends early is `UnexpectedEof`.
pub fn copy(from: impl AsFd, to: impl AsFd, size: u64) -> io::Result<()> {
    match copy_within_kernel(from.as_fd(), to.as_fd(), size) {
        Err(errno) if is_unable(errno) => file_io::copy(from, to, size),
        Ok(copied) if copied < size => Err(io::ErrorKind::UnexpectedEof.into()),
        copied => copied.map(|_| ()).map_err(io::Error::from),
    }
}

fn copy_within_kernel(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    size: u64,
) -> rustix::io::Result<u64> {
    let (mut read_at, mut write_at) = (0, 0);
    while read_at < size {
        let rest = usize::try_from(size - read_at).unwrap_or(usize::MAX);
        let step = rest.min(file_io::STEP_BYTES * 64);
        let copied = retry_on_intr(|| {
            copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), step)
        })?;
        if copied == 0 {
            break;
        }
    }
    Ok(read_at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// CA-20
    #[test]
    fn a_copy_is_exact_whether_bytes_can_be_shared_or_not() {
        let bytes: Vec<u8> = (0..300_001_u32).map(|i| (i % 251) as u8).collect();
        let size = bytes.len() as u64;
        let from = tempfile::tempfile().unwrap();
        from.write_all_at(&bytes, 0).unwrap();
        for tried in [true, false] {
            let (to, sharing) = (tempfile::tempfile().unwrap(), Sharing::new(tried));
            if !sharing.share(&from, &to, size).unwrap() {
                copy(&from, &to, size).unwrap();
            }
            let mut back = vec![0; bytes.len()];
            to.read_exact_at(&mut back, 0).unwrap();
            assert!(back == bytes);
        }
        let cut = copy(&from, tempfile::tempfile().unwrap(), size + 1).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
