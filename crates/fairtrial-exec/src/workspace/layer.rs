//! A layer written from the files that it is to change.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// A path of a layer, relative, and what is there; `None` says that there is nothing, whatever lower layers have.
pub(super) type Entry = (PathBuf, Option<LayerEntry>);

/// What a layer has in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerEntry {
    /// A regular file.
    File {
        /// What is in it.
        bytes: Vec<u8>,
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        target: Vec<u8>,
    },
}

/// Writes a layer into a directory, which is made. `below` are the layers that it will be put on, topmost first:
/// directories that it has in common with them look as they do there. All else that it makes has `mtime`.
///
/// A directory that is to be gone with all that it has is one entry. If other entries are in it, it is there anew.
pub fn write_layer(
    directory: &Path,
    entries: impl IntoIterator<Item = Entry>,
    below: &[PathBuf],
    mtime: SystemTime,
) -> io::Result<()> {
    let entries: BTreeMap<PathBuf, Option<LayerEntry>> = entries.into_iter().collect();
    let layer = Layer {
        directory,
        below,
        mtime: timestamp(mtime),
    };
    fs::DirBuilder::new().mode(0o755).create(directory)?;
    let mut directories = BTreeSet::new();
    let mut kept: Vec<(&Path, Option<&LayerEntry>)> = Vec::new();
    let mut file: Option<&Path> = None;
    for (path, entry) in &entries {
        check(path)?;
        // Whoever deletes what is in a directory and puts a file in its place says both.
        if file.is_some_and(|file| path.starts_with(file)) {
            if entry.is_some() {
                return Err(invalid(path, "lies below a file"));
            }
            continue;
        }
        let above = path.ancestors().skip(1);
        let above = above.filter(|above| !above.as_os_str().is_empty());
        directories.extend(above.map(Path::to_path_buf));
        kept.push((path, entry.as_ref()));
        if entry.is_some() {
            file = Some(path);
        }
    }
    for place in &directories {
        let is_new = matches!(entries.get(place), Some(None));
        layer.directory(place, is_new)?;
    }
    kept.retain(|(path, _)| !directories.contains(*path));
    for (path, entry) in kept {
        match entry {
            None => layer.whiteout(path)?,
            Some(entry) => layer.write(path, entry)?,
        }
    }
    // Last, and the innermost first: what is made in them changes them.
    for place in directories.iter().rev() {
        layer.finish(place)?;
    }
    layer.finish(Path::new(""))
}

struct Layer<'a> {
    directory: &'a Path,
    below: &'a [PathBuf],
    mtime: Timespec,
}

impl Layer<'_> {
    fn directory(&self, place: &Path, is_new: bool) -> io::Result<()> {
        let path = self.directory.join(place);
        fs::DirBuilder::new().mode(0o755).create(&path)?;
        if is_new {
            rustix::fs::setxattr(&path, "user.overlay.opaque", b"y", XattrFlags::empty())?;
            // Read instead of the other by whoever mounts as root; nobody else may set it.
            rustix::fs::setxattr(&path, "trusted.overlay.opaque", b"y", XattrFlags::empty()).ok();
        }
        Ok(())
    }

    fn whiteout(&self, place: &Path) -> io::Result<()> {
        let path = self.directory.join(place);
        let kind = FileType::CharacterDevice;
        Ok(rustix::fs::mknodat(CWD, path, kind, Mode::empty(), 0)?)
    }

    fn write(&self, place: &Path, entry: &LayerEntry) -> io::Result<()> {
        let path = self.directory.join(place);
        match entry {
            LayerEntry::File { bytes, mode } => {
                let mut options = fs::OpenOptions::new();
                let mut file = options
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path)?;
                file.write_all(bytes)?;
                file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
            }
            LayerEntry::Link { target } => symlink(OsStr::from_bytes(target), &path)?,
        }
        self.set_time(&path, self.mtime)
    }

    /// Gives a directory the attributes that it has below.
    fn finish(&self, place: &Path) -> io::Result<()> {
        let path = self.directory.join(place);
        let found = self.below.iter().find_map(|layer| {
            let found = layer.join(place).symlink_metadata().ok()?;
            found.is_dir().then_some(found)
        });
        let (mode, time) = match found {
            None => (0o755, self.mtime),
            Some(found) => {
                let time = Timespec {
                    tv_sec: found.mtime(),
                    tv_nsec: found.mtime_nsec(),
                };
                (found.mode() & 0o7777, time)
            }
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        self.set_time(&path, time)
    }

    fn set_time(&self, path: &Path, time: Timespec) -> io::Result<()> {
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::utimensat(CWD, path, &times, flags)?)
    }
}

fn check(path: &Path) -> io::Result<()> {
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    match plain && !path.as_os_str().is_empty() {
        true => Ok(()),
        false => Err(invalid(path, "is no path of a layer")),
    }
}

fn invalid(path: &Path, problem: &str) -> io::Error {
    let problem = format!("`{}` {problem}", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

fn timestamp(time: SystemTime) -> Timespec {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    Timespec {
        tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(since.subsec_nanos()),
    }
}
