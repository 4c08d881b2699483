//! An archive as a tree that nobody writes to. Whoever made the archive is not trusted.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fairtrial_exec::linux::beneath;
use rustix::fs::{Mode, OFlags, fchmod, mkdirat, symlinkat};
use rustix::io::Errno;
use tar::{Archive, EntryType};

use super::{MOST_BYTES, PackError, shown, stays_inside};

const FOLDER: Mode = Mode::from_raw_mode(0o555);
const PLAIN: Mode = Mode::from_raw_mode(0o444);
const EXECUTABLE: Mode = Mode::from_raw_mode(0o555);

/// Unpacks into an empty directory that nobody else writes to; gives how many bytes its files have.
pub(super) fn unpack(archive: impl Read, root: &OwnedFd) -> Result<u64, PackError> {
    let bad = |error: io::Error| PackError::Hostile(error.to_string());
    let mut archive = Archive::new(archive.take(MOST_BYTES));
    let mut folders = Vec::new();
    let mut bytes = 0_u64;
    for entry in archive.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let path = entry.path_bytes().into_owned();
        let path = path.strip_suffix(b"/").unwrap_or(&path);
        let refused = |problem: &str| PackError::Hostile(format!("`{}` {problem}", shown(path)));
        if !is_plain(path) {
            return Err(refused("is not a path inside the tree"));
        }
        let made = match entry.header().entry_type() {
            EntryType::Regular => {
                bytes = bytes.saturating_add(entry.size());
                if bytes > MOST_BYTES {
                    return Err(refused("makes it larger than 64 MiB"));
                }
                let mode = entry.header().mode().map_err(bad)?;
                let mode = if mode & 0o100 != 0 { EXECUTABLE } else { PLAIN };
                folder_of(root, path, &mut folders)
                    .and_then(|(folder, name)| write(folder.as_fd(), name, &mut entry, mode))
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                if !stays_inside(path, &target) {
                    return Err(refused("is a link that leads out of the tree"));
                }
                folder_of(root, path, &mut folders)
                    .and_then(|(folder, name)| Ok(symlinkat(&*target, folder, name)?))
            }
            EntryType::Directory => folder_at(root, path, &mut folders).map(drop),
            _ => return Err(refused("is neither a file nor a link nor a directory")),
        };
        made.map_err(
            |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
                // What only an archive that contradicts itself leads to: a name twice, a way through a link or a file.
                Some(Errno::EXIST | Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {
                    refused("is there twice, or in what is no directory")
                }
                _ if error.kind() == io::ErrorKind::UnexpectedEof => refused("is cut off"),
                _ => PackError::Reading {
                    path: shown(path),
                    source: error,
                },
            },
        )?;
    }
    close(root, folders).map_err(bad)?;
    Ok(bytes)
}

/// Nothing is written to a finished tree: what is innermost is closed first, while the way to it is still open.
fn close(root: &OwnedFd, folders: Vec<Vec<u8>>) -> io::Result<()> {
    for folder in folders.iter().rev() {
        fchmod(beneath::open_dir(root, folder)?, FOLDER)?;
    }
    Ok(fchmod(root, FOLDER)?)
}

fn is_plain(path: &[u8]) -> bool {
    let mut components = path.split(|byte| *byte == b'/');
    !path.contains(&0) && !components.any(|component| matches!(component, b"" | b"." | b".."))
}

/// The directory that a path is in, made with all above it where it is missing; and the path's last component.
fn folder_of<'a>(
    root: &OwnedFd,
    path: &'a [u8],
    made: &mut Vec<Vec<u8>>,
) -> io::Result<(OwnedFd, &'a [u8])> {
    let (above, name) = beneath::parent_and_name(path);
    Ok((folder_at(root, above, made)?, name))
}

fn folder_at(root: &OwnedFd, path: &[u8], made: &mut Vec<Vec<u8>>) -> io::Result<OwnedFd> {
    match beneath::open_dir(root, path) {
        Err(Errno::NOENT) => (),
        opened => return Ok(opened?),
    }
    let (above, name) = beneath::parent_and_name(path);
    let folder = folder_at(root, above, made)?;
    mkdirat(&folder, name, Mode::RWXU)?;
    made.push(path.to_vec());
    Ok(beneath::open_dir(folder, name)?)
}

fn write(folder: BorrowedFd<'_>, name: &[u8], bytes: &mut impl Read, mode: Mode) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = File::from(beneath::open(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
    io::copy(bytes, &mut file)?;
    Ok(fchmod(&file, mode)?)
}
