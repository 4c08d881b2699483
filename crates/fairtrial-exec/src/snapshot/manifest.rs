//! What a tree holds, entry by entry, and what shows that an entry was not touched since.

use std::io;

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// SHA-256.
pub type Digest = [u8; 32];

/// Of the file that keeps a manifest; another is not read.
const FORMAT: u32 = 1;

/// The bits of a mode that are kept: who may read, write and run.
const PERMISSIONS: u32 = 0o777;

/// What an entry is. Nothing else is ever taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A directory.
    Directory,
}

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits; those of a link say nothing.
    pub mode: u32,
    /// Of a file, or of a link's target; none for a directory.
    pub size: u64,
    /// When it was last changed, in Unix time.
    pub mtime_ns: i64,
    /// Of a file's bytes or a link's target; zero for a directory.
    pub sha256: Digest,
    pub(crate) mark: Mark,
}

/// What any touch of an entry changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) inode: u64,
    pub(crate) ctime_ns: i64,
}

impl Entry {
    /// As the kernel has it; `None` for what is never taken. The digest is not known to the kernel.
    pub(crate) fn of(stat: &Stat) -> Option<Self> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Symlink => EntryKind::Link,
            FileType::Directory => EntryKind::Directory,
            _ => return None,
        };
        let size = match kind {
            EntryKind::Directory => 0, // whatever the file system makes of it
            _ => stat.st_size.cast_unsigned(),
        };
        Some(Self {
            kind,
            mode: stat.st_mode & PERMISSIONS,
            size,
            mtime_ns: stamp(stat.st_mtime, stat.st_mtime_nsec),
            sha256: Digest::default(),
            mark: Mark {
                inode: stat.st_ino,
                ctime_ns: stamp(stat.st_ctime, stat.st_ctime_nsec),
            },
        })
    }

    /// A directory of which nothing matters but that it is one.
    pub(crate) fn some_directory() -> Self {
        Self {
            kind: EntryKind::Directory,
            mode: 0,
            size: 0,
            mtime_ns: 0,
            sha256: Digest::default(),
            mark: Mark::default(),
        }
    }

    /// Whether it is still as the kernel had it then. What it holds was not looked at.
    pub(crate) fn is_untouched(&self, stat: &Stat) -> bool {
        Self::of(stat).is_some_and(|now| {
            Self {
                sha256: self.sha256,
                ..now
            } == *self
        })
    }

    /// Whether a program could tell the two apart.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        Self {
            mark: other.mark,
            ..self.clone()
        } == *other
    }
}

fn stamp(seconds: i64, nanoseconds: impl TryInto<i64>) -> i64 {
    let below = nanoseconds.try_into().unwrap_or(0); // always below 10^9
    seconds.saturating_mul(1_000_000_000).saturating_add(below)
}

/// All entries of a tree, by path in the order of bytes; the first is the root, whose path is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) entries: Vec<(Vec<u8>, Entry)>,
}

impl Manifest {
    pub(crate) fn new(mut entries: Vec<(Vec<u8>, Entry)>) -> Self {
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Self { entries }
    }

    pub(crate) fn get(&self, path: &[u8]) -> Option<&Entry> {
        Some(&self.entries[self.place(path).ok()?].1)
    }

    /// The entries below a directory, at any depth.
    pub(crate) fn below<'a>(
        &'a self,
        directory: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Entry)> {
        let from = match (directory, self.place(directory)) {
            ([], _) => 1.min(self.entries.len()),
            // Names that go on after it with a byte less than the slash come between it and what it holds.
            (_, Ok(_)) => {
                let first = [directory, b"/"].concat();
                self.entries.partition_point(|(path, _)| **path < *first)
            }
            (_, Err(_)) => self.entries.len(),
        };
        let found = self.entries[from..].iter();
        let found = found.take_while(move |(path, _)| is_below(path, directory));
        found.map(|(path, entry)| (&**path, entry))
    }

    pub(crate) fn place(&self, path: &[u8]) -> Result<usize, usize> {
        self.entries
            .binary_search_by(|(other, _)| (**other).cmp(path))
    }

    /// SHA-256 over every path with what it is, its mode, and what it holds. Times are no part of it.
    pub(crate) fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        hash.update(b"fairtrial snapshot 1\n");
        for (path, entry) in &self.entries {
            if path.is_empty() {
                continue;
            }
            hash.update((path.len() as u64).to_le_bytes());
            hash.update(path);
            let (kind, mode) = match entry.kind {
                EntryKind::File => (b'f', entry.mode),
                EntryKind::Link => (b'l', 0),
                EntryKind::Directory => (b'd', entry.mode),
            };
            hash.update([kind]);
            hash.update(mode.to_le_bytes());
            hash.update(entry.sha256);
        }
        hash.finalize().into()
    }

    /// Whether a program could tell the two trees apart.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let pairs = self.entries.iter().zip(&other.entries);
        self.entries.len() == other.entries.len()
            && pairs
                .into_iter()
                .all(|((path, entry), (other_path, other))| {
                    path == other_path && entry.is_like(other)
                })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let kept = Kept {
            format: FORMAT,
            boot: boot(),
            digest: self.digest(),
            entries: self.entries.clone(),
        };
        postcard::to_allocvec(&kept).expect("plain data has an encoding")
    }

    /// What was kept, and whether that was since the machine was last started.
    pub(crate) fn from_bytes(bytes: &[u8]) -> io::Result<(Self, bool)> {
        let wrong = |problem| io::Error::new(io::ErrorKind::InvalidData, problem);
        let kept: Kept = postcard::from_bytes(bytes).map_err(|_| wrong("not a manifest"))?;
        let manifest = Self {
            entries: kept.entries,
        };
        if kept.format != FORMAT || kept.digest != manifest.digest() {
            return Err(wrong("not a whole manifest"));
        }
        Ok((manifest, kept.boot == boot()))
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    directory.is_empty()
        || path
            .strip_prefix(directory)
            .is_some_and(|rest| rest.first() == Some(&b'/'))
}

#[derive(Serialize, Deserialize)]
struct Kept {
    format: u32,
    boot: String,
    digest: Digest,
    entries: Vec<(Vec<u8>, Entry)>,
}

/// Where it cannot be read, no two boots are the same.
fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_else(|_| format!("{:016x}", crate::locked_dir::random()))
}

/// Lowercase digits.
pub(crate) fn hex(digest: &Digest) -> String {
    use std::fmt::Write;
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EntryKind, byte: u8) -> Entry {
        Entry {
            kind,
            mode: 0o644,
            size: 1,
            mtime_ns: 5,
            sha256: [byte; 32],
            mark: Mark::default(),
        }
    }

    fn manifest(paths: &[(&str, EntryKind)]) -> Manifest {
        let entries = paths.iter().map(|(path, kind)| {
            let path = path.as_bytes().to_vec();
            (path, entry(*kind, 7))
        });
        Manifest::new(entries.collect())
    }

    #[test]
    fn names_that_sort_between_a_directory_and_what_it_holds_are_not_below_it() {
        use EntryKind::{Directory, File};
        let manifest = manifest(&[
            ("", Directory),
            ("a", Directory),
            ("a-b", File),
            ("a/x", File),
            ("a/y", Directory),
            ("a/y/z", File),
            ("a0", File),
        ]);
        let below = |path: &str| -> Vec<String> {
            let found = manifest.below(path.as_bytes());
            found
                .map(|(path, _)| String::from_utf8_lossy(path).into_owned())
                .collect()
        };
        assert_eq!(below("a"), ["a/x", "a/y", "a/y/z"]);
        assert_eq!(below(""), ["a", "a-b", "a/x", "a/y", "a/y/z", "a0"]);
        assert_eq!(below("a0"), Vec::<String>::new());
        assert_eq!(below("b"), Vec::<String>::new());
        assert!(manifest.get(b"a/y/z").is_some() && manifest.get(b"a/z").is_none());
    }

    /// CA-22
    #[test]
    fn the_digest_knows_paths_modes_and_bytes_but_no_times() {
        let base = manifest(&[("", EntryKind::Directory), ("a", EntryKind::File)]);
        let changed = |change: fn(&mut (Vec<u8>, Entry))| {
            let mut other = base.clone();
            change(&mut other.entries[1]);
            other
        };
        for other in [
            changed(|(path, _)| path.push(b'b')),
            changed(|(_, entry)| entry.mode = 0o755),
            changed(|(_, entry)| entry.sha256[31] ^= 1),
            changed(|(_, entry)| entry.kind = EntryKind::Link),
        ] {
            assert_ne!(other.digest(), base.digest());
        }
        let later = changed(|(_, entry)| entry.mtime_ns += 1);
        assert_eq!(later.digest(), base.digest());
        assert!(!later.is_like(&base));
        let elsewhere = changed(|(_, entry)| entry.mark.inode += 1);
        assert!(elsewhere.is_like(&base));
    }

    /// CA-22
    #[test]
    fn a_manifest_reads_back_and_a_damaged_one_is_refused() {
        let manifest = manifest(&[("", EntryKind::Directory), ("a\nb", EntryKind::File)]);
        let bytes = manifest.to_bytes();
        assert_eq!(Manifest::from_bytes(&bytes).unwrap(), (manifest, true));
        assert!(Manifest::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        assert!(Manifest::from_bytes(&[]).is_err());
        let mut other = bytes;
        *other.last_mut().unwrap() ^= 1;
        other[60] ^= 1;
        assert!(Manifest::from_bytes(&other).is_err());
    }
}
