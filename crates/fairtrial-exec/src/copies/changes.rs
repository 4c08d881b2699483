//! The files that a candidate brings, written into a copy, or as a layer to be mounted above its base.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fchmod, mkdirat, mknodat, openat, symlinkat};
use rustix::io::Errno;

use crate::linux::beneath::{self, parent_and_name};
use crate::linux::file_io;
use crate::linux::remove::remove_tree;
use crate::snapshot::frozen::named;
use crate::snapshot::list::ancestors;

/// What becomes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written<'a> {
    /// A regular file.
    File {
        /// Permission bits.
        mode: u32,
        /// All of it.
        bytes: &'a [u8],
    },
    /// A symbolic link.
    Link {
        /// What it says.
        target: &'a [u8],
    },
    /// Nothing.
    Deleted,
}

/// How a deletion is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletions {
    /// What is there is removed: in a copy.
    Remove,
    /// A mark that hides what lies below: in a layer of an overlay.
    Whiteout,
}

/// Writes changes below the directory `root`. Paths are relative, of plain components. Nothing is written through a link,
/// and nothing that is there is written to: it is replaced.
///
/// # Errors
/// Something cannot be written; what was written before stays.
pub fn write_changes<'a>(
    root: &Path,
    changes: impl IntoIterator<Item = (&'a [u8], Written<'a>)>,
    deletions: Deletions,
) -> io::Result<()> {
    let root = OwnedFd::from(std::fs::File::open(root)?);
    let mut changes: Vec<_> = changes.into_iter().collect();
    // Deletions first: where a file becomes a directory, or the other way round, the new one stays.
    changes.sort_by_key(|(path, change)| (*change != Written::Deleted, *path));
    for (path, change) in changes {
        write(&root, path, change, deletions).map_err(|error| named(path, &error))?;
    }
    Ok(())
}

fn write(root: &OwnedFd, path: &[u8], change: Written<'_>, deletions: Deletions) -> io::Result<()> {
    let (parent, name) = parent_and_name(path);
    if (change, deletions) == (Written::Deleted, Deletions::Remove) {
        return match beneath::open_dir(root, parent) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            dir => remove_tree(dir?, name),
        };
    }
    make_parents(root, path)?;
    let dir = beneath::open_dir(root, parent)?;
    remove_tree(&dir, name)?;
    match change {
        Written::File { mode, bytes } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let file = openat(&dir, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
            file_io::write_all(&file, bytes)?;
            fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
        }
        Written::Link { target } => symlinkat(target, &dir, name)?,
        // A device of this number is what an overlay takes for "nothing here"; it needs no privilege.
        Written::Deleted => mknodat(&dir, name, FileType::CharacterDevice, Mode::empty(), 0)?,
    }
    Ok(())
}

/// Makes the directories above a path; whatever else has one of their names goes.
fn make_parents(root: &OwnedFd, path: &[u8]) -> io::Result<()> {
    for directory in ancestors(path) {
        let (above, name) = parent_and_name(directory);
        match beneath::open_dir(root, directory) {
            Ok(_) => continue,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => (),
            Err(errno) => return Err(errno.into()),
        }
        let above = beneath::open_dir(root, above)?;
        remove_tree(&above, name)?;
        make_directory(std::os::fd::AsFd::as_fd(&above), name)?;
    }
    Ok(())
}

/// With the mode that git gives to directories, whatever the engine's own mask is.
fn make_directory(above: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<()> {
    mkdirat(above, name, Mode::RWXU)?;
    let made = beneath::open_dir(above, name)?;
    fchmod(made, Mode::from_raw_mode(0o755))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

    use super::*;

    const TEXT: Written<'_> = Written::File {
        mode: 0o755,
        bytes: b"new",
    };

    /// CA-14
    #[test]
    fn changes_replace_what_is_there_and_never_write_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("dir/sub")).unwrap();
        for file in ["dir/a", "dir/sub/b", "file", "../outside", "kept"] {
            fs::write(root.join(file), "old").unwrap();
        }
        symlink("../outside", root.join("link")).unwrap();
        symlink("..", root.join("up")).unwrap();
        fs::hard_link(place.path().join("outside"), root.join("hard")).unwrap();
        let changes: [(&[u8], Written<'_>); 9] = [
            (b"dir", TEXT),
            (b"dir/a", Written::Deleted),
            (b"dir/sub/b", Written::Deleted),
            (b"file", Written::Deleted),
            (b"file/is/directory", TEXT),
            (b"link", TEXT),
            (b"up/new", TEXT),
            (b"hard", TEXT),
            (b"to", Written::Link { target: b"kept" }),
        ];
        write_changes(&root, changes, Deletions::Remove).unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        for path in ["dir", "file/is/directory", "link", "up/new", "hard"] {
            assert_eq!(read(path), "new", "{path}");
            assert_eq!(
                fs::symlink_metadata(root.join(path)).unwrap().mode() & 0o7777,
                0o755
            );
        }
        assert_eq!((read("kept"), read("to")), ("old".into(), "old".into()));
        assert_eq!(
            fs::read_to_string(place.path().join("outside")).unwrap(),
            "old"
        );
        assert!(!place.path().join("new").exists());
    }

    /// CA-25
    #[test]
    fn a_layer_marks_what_is_deleted() {
        let layer = tempfile::tempdir().unwrap();
        let changes: [(&[u8], Written<'_>); 3] = [
            (b"dir/gone", Written::Deleted),
            (b"file", Written::Deleted),
            (b"file/new", TEXT),
        ];
        write_changes(layer.path(), changes, Deletions::Whiteout).unwrap();
        let mark = fs::symlink_metadata(layer.path().join("dir/gone")).unwrap();
        assert!(mark.file_type().is_char_device() && mark.rdev() == 0);
        assert!(layer.path().join("file/new").is_file());
    }

    /// CA-14
    #[test]
    fn a_path_that_leads_out_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir(&root).unwrap();
        let out: (&[u8], _) = (b"../out/file", TEXT);
        let error = write_changes(&root, [out], Deletions::Remove).unwrap_err();
        assert!(error.to_string().starts_with("`../out/file`: "), "{error}");
        assert!(!place.path().join("out").exists());
    }
}
