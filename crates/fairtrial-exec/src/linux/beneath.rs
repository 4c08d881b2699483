//! Opening what lies below a directory, whatever a stranger put there: through no link, and never out of it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// A path that is renamed while it is walked is walked again, so often.
const TRIES: usize = 32;

/// Opens `path`, relative and of plain components, below `root`; the empty path is `root` itself. A link anywhere is
/// `ELOOP`.
pub fn open(
    root: impl AsFd,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if path.is_empty() {
        return openat(root, c".", flags, mode);
    }
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match openat2(&root, path, flags, mode, within) {
            Err(Errno::AGAIN) => (),
            // Some seccomp filters of container hosts answer so to calls they do not know.
            Err(Errno::NOSYS) => return step_by_step(root.as_fd(), path, flags, mode),
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a directory below `root`, for reading it and for work in it.
pub fn open_dir(root: impl AsFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    open(
        root,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )
}

/// For kernels that cannot be told to stay below: one component at a time, none of them a link.
fn step_by_step(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let (above, name) = parent_and_name(path);
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = openat(root, c".", step, Mode::empty())?;
    for component in above.split(|byte| *byte == b'/').filter(|c| !c.is_empty()) {
        plain(component)?;
        dir = match openat(&dir, component, step, Mode::empty()) {
            Err(Errno::NOTDIR) if is_link(&dir, component) => return Err(Errno::LOOP),
            opened => opened?,
        };
    }
    plain(name)?;
    openat(dir, name, flags, mode)
}

fn plain(component: &[u8]) -> rustix::io::Result<()> {
    match component {
        b".." => Err(Errno::XDEV), // what `openat2` says
        _ => Ok(()),
    }
}

fn is_link(dir: &OwnedFd, name: &[u8]) -> bool {
    rustix::fs::readlinkat_raw(dir, name, &mut [0; 1][..]).is_ok()
}

/// What leads to a path's last component, which is empty for the root; and that component.
#[must_use]
pub fn parent_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// The names in a directory, in no order.
pub fn names(dir: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    // A description of its own, whose place in the listing is its own too.
    let listed = open_dir(&dir, &[])?;
    let mut listing = vec![MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(listed, &mut listing);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    /// CA-30
    #[test]
    fn neither_way_of_opening_follows_a_link_or_leads_out() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), b"x").unwrap();
        fs::write(place.path().join("outside"), b"x").unwrap();
        symlink("b", root.join("a/link")).unwrap();
        symlink("/", root.join("top")).unwrap();
        let root = File::open(root).unwrap();
        type Way = fn(BorrowedFd<'_>, &[u8]) -> rustix::io::Result<OwnedFd>;
        let ways: [Way; 2] = [
            |root, path| open(root, path, OFlags::RDONLY, Mode::empty()),
            |root, path| {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                step_by_step(root, path, flags, Mode::empty())
            },
        ];
        for way in ways {
            let errno = |path: &[u8]| way(root.as_fd(), path).map(|_| ()).unwrap_err();
            assert!(way(root.as_fd(), b"a/b/file").is_ok());
            assert_eq!(errno(b"a/link/file"), Errno::LOOP);
            assert_eq!(errno(b"a/link"), Errno::LOOP);
            assert_eq!(errno(b"top/etc"), Errno::LOOP);
            assert_eq!(errno(b"../outside"), Errno::XDEV);
            assert_eq!(errno(b"a/../../outside"), Errno::XDEV);
            assert_eq!(errno(b"a/no/file"), Errno::NOENT);
            assert_eq!(errno(b"a/b/file/x"), Errno::NOTDIR);
        }
        assert_eq!(names(&root).unwrap().len(), 2);
    }
}
