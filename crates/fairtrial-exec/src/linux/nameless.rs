//! Files on disk that have no name, so there is no path to race, list or leave behind.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, fallocate, fstatvfs, ftruncate, openat, unlinkat,
};
use rustix::io::Errno;

const OWNER_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);

/// A nameless file in `dir`, open for reading and writing by its owner alone.
///
/// `O_EXCL` with `O_TMPFILE` means that it can never be given a name either.
pub fn create(dir: impl AsFd) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    match openat(&dir, c".", flags, OWNER_ONLY) {
        // EISDIR comes from kernels and file systems that do not know the flag and see a directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => create_and_unlink(dir.as_fd()),
        created => Ok(created?),
    }
}

/// For file systems without `O_TMPFILE`: the name is gone before the file is used.
fn create_and_unlink(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    loop {
        let name = format!("value-{:016x}", RandomState::new().build_hasher().finish());
        match openat(dir, &name, flags, OWNER_ONLY) {
            Err(Errno::EXIST) => (),
            created => {
                let created = created?;
                unlinkat(dir, &name, AtFlags::empty())?;
                return Ok(created);
            }
        }
    }
}

/// Gives the file its size, with room on the disk set aside where the file system can do so.
pub fn reserve(fd: impl AsFd, size: u64) -> io::Result<()> {
    if size == 0 {
        return Ok(());
    }
    match fallocate(&fd, FallocateFlags::empty(), 0, size) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(ftruncate(fd, size)?),
        reserved => Ok(reserved?),
    }
}

/// Bytes that an ordinary user can still write to the file system.
pub fn free_bytes(fd: impl AsFd) -> io::Result<u64> {
    let status = fstatvfs(fd)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Opens the same file again for reading only: a new description, shared with nobody.
pub fn reopen_readonly(fd: impl AsFd) -> io::Result<OwnedFd> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(openat(
        CWD,
        link,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{fstat, linkat};

    use super::*;

    /// EX-57
    #[test]
    fn neither_way_of_making_a_file_leaves_a_name_or_lets_one_be_given() {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        let files = [
            create(&handle).unwrap(),
            create_and_unlink(handle.as_fd()).unwrap(),
        ];
        for file in files {
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            let stat = fstat(&file).unwrap();
            assert_eq!((stat.st_nlink, stat.st_mode & 0o7777), (0, 0o600));
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            let named = linkat(CWD, link, &handle, c"name", AtFlags::SYMLINK_FOLLOW);
            assert_eq!(named, Err(Errno::NOENT));
        }
    }

    /// EX-54
    #[test]
    fn a_reserved_file_has_its_size_and_its_room() {
        let dir = tempfile::tempdir().unwrap();
        let file = create(File::open(dir.path()).unwrap()).unwrap();
        reserve(&file, 1 << 20).unwrap();
        assert_eq!(fstat(&file).unwrap().st_size, 1 << 20);
        assert!(free_bytes(&file).unwrap() > 0);
    }
}
