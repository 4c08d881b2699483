//! Files in memory that can be sealed, and how much memory there is for them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;

use crate::linux::machine_memory::meminfo_bytes;

/// What makes a memfd unchangeable for ever and for everybody.
const FIXED: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE);

/// A file in memory of exactly `size` bytes, all zero. Its size is sealed from the start: whoever gets the descriptor
/// can fill the file, but neither cut it under a reader nor grow it past what was granted.
pub fn create(size: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let name = c"fairtrial-value";
    let fd = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        created => created?,
    };
    ftruncate(&fd, size)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd)
}

/// Makes the file unchangeable, and says whether it is.
///
/// The kernel refuses (EBUSY) while a writable shared mapping lives anywhere, and (EPERM) when a holder of the
/// descriptor sealed the seals first; the file may then be read but not relied on.
#[must_use]
pub fn seal(fd: impl AsFd) -> bool {
    // Refused or not, the seals the file now has decide.
    _ = fcntl_add_seals(&fd, FIXED | SealFlags::SEAL);
    fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(FIXED))
}

/// Memory that can be had without swapping, by the kernel's estimate (`MemAvailable`).
pub fn available_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    meminfo_bytes(&text, "MemAvailable")
}

#[cfg(test)]
mod tests {
    use rustix::io::pwrite;

    use super::*;

    /// EX-54
    #[test]
    fn some_memory_is_available() {
        assert!(available_bytes().unwrap() > 0);
    }

    /// EX-58
    #[test]
    fn the_size_is_fixed_from_the_start_and_the_bytes_once_sealed() {
        let fd = create(10).unwrap();
        assert_eq!(pwrite(&fd, b"0123456789", 0), Ok(10));
        assert_eq!(ftruncate(&fd, 5), Err(Errno::PERM));
        assert_eq!(ftruncate(&fd, 20), Err(Errno::PERM));
        assert_eq!(pwrite(&fd, b"x", 10), Err(Errno::PERM));
        assert!(seal(&fd));
        assert_eq!(pwrite(&fd, b"x", 0), Err(Errno::PERM));
        assert!(seal(&fd), "sealing again is no news");
    }

    /// EX-58
    #[test]
    fn a_file_whose_seals_a_stranger_sealed_first_is_not_relied_on() {
        let fd = create(10).unwrap();
        fcntl_add_seals(&fd, SealFlags::SEAL).unwrap();
        assert!(!seal(&fd));
    }
}
