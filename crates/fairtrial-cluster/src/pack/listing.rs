//! What a tree looked like when it was finished, as one digest: nobody changes a file without it being seen.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::blobs::Digest;

/// A digest over path, mode, size, inode and times of all that is in a tree. The time of the last change of an inode
/// cannot be set, so a file that was written to shows it even if its size and other times were put back.
///
/// It also holds this start of the machine: what was not on disk when the last one ended may be there by name and size
/// only.
pub(super) fn listing(tree: &Path) -> io::Result<Digest> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id")?;
    let mut hasher = Sha256::new_with_prefix(boot);
    add(&mut hasher, tree, tree)?;
    Ok(<[u8; 32]>::from(hasher.finalize()).into())
}

fn add(hasher: &mut Sha256, tree: &Path, path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let numbers = [
        u64::from(found.mode()),
        found.size(),
        found.ino(),
        found.mtime().cast_unsigned(),
        found.mtime_nsec().cast_unsigned(),
        found.ctime().cast_unsigned(),
        found.ctime_nsec().cast_unsigned(),
    ];
    // What is above the tree changes its name when it is finished.
    let below = path.strip_prefix(tree).unwrap_or(path);
    let name = below.as_os_str().as_bytes();
    hasher.update((name.len() as u64).to_le_bytes());
    hasher.update(name);
    numbers
        .iter()
        .for_each(|number| hasher.update(number.to_le_bytes()));
    if found.is_dir() {
        let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
        let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
        entries.sort_unstable();
        for entry in entries {
            add(hasher, tree, &entry)?;
        }
    }
    Ok(())
}
