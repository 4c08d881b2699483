//! The spill directory: made at first use, refused where others could meddle.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, lstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::EngineError;
use crate::locked_dir::make_private;

/// Where values go that are too large for memory. Naming it touches nothing.
#[derive(Clone, Debug)]
pub struct SpillDir {
    path: Arc<Path>,
    purpose: Purpose,
}

/// What a directory of the user's own is for: which variable would put it elsewhere.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Spill,
    Cache,
}

impl Purpose {
    fn variable(self) -> &'static str {
        match self {
            Self::Spill => "FAIRTRIAL_SPILL_DIR",
            Self::Cache => "FAIRTRIAL_CACHE_DIR",
        }
    }
}

impl SpillDir {
    /// The directory at `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        // By components, for a trailing slash would make the kernel follow a link in the last one.
        let path: PathBuf = path.as_ref().components().collect();
        Self {
            path: path.into(),
            purpose: Purpose::Spill,
        }
    }

    /// A directory in the user's cache, on the same terms.
    #[must_use]
    pub fn in_cache(path: impl AsRef<Path>) -> Self {
        Self {
            purpose: Purpose::Cache,
            ..Self::new(path)
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open directory, made 0700 if missing (its parent is not). Every check is made on what was opened, each
    /// time: it costs two system calls, and what was safe yesterday may have been swept from `/tmp` since.
    pub fn open(&self) -> Result<OwnedFd, EngineError> {
        let opened = match self.open_existing() {
            Err(Errno::NOENT) => {
                self.make()?;
                self.open_existing()
            }
            opened => opened,
        };
        let opened = opened.map_err(|errno| self.refuse(self.explain(errno)))?;
        self.check(&opened)?;
        Ok(opened)
    }

    fn open_existing(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(CWD, &*self.path, flags, Mode::empty())
    }

    fn make(&self) -> Result<(), EngineError> {
        match make_private(CWD, &*self.path) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(Errno::NOENT) => Err(self.refuse(format!(
                "its parent does not exist; create it (`mkdir -p '{}'`) or set `{}` to another place",
                self.path.parent().unwrap_or(Path::new("/")).display(),
                self.purpose.variable()
            ))),
            Err(errno) => Err(self.refuse(format!(
                "it cannot be created: {errno}; set `{}` to a place you can write to",
                self.purpose.variable()
            ))),
        }
    }

    fn check(&self, opened: &OwnedFd) -> Result<(), EngineError> {
        let stat = fstat(opened).map_err(EngineError::io("inspecting the spill directory"))?;
        let us = geteuid().as_raw();
        if stat.st_uid != us {
            return Err(self.refuse(format!(
                "it belongs to user {}, not to {us}; remove it or set `{}` to a directory of your own",
                stat.st_uid,
                self.purpose.variable()
            )));
        }
        let mode = stat.st_mode & 0o7777;
        if mode & 0o077 != 0 {
            return Err(self.refuse(format!(
                "its mode {mode:04o} lets others in; run `chmod 700 '{}'`",
                self.path.display()
            )));
        }
        Ok(())
    }

    /// Why it could not be opened. Only for the message: nothing is decided by looking at the path a second time.
    fn explain(&self, errno: Errno) -> String {
        let variable = self.purpose.variable();
        let kind = lstat(&*self.path).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Symlink) => {
                format!(
                    "it is a symbolic link; remove it or set `{variable}` to the directory itself"
                )
            }
            Ok(FileType::Directory) | Err(_) => format!("it cannot be opened: {errno}"),
            Ok(_) => {
                format!("it is not a directory; remove it or set `{variable}` to another place")
            }
        }
    }

    fn refuse(&self, problem: String) -> EngineError {
        let dir = self.path.to_path_buf();
        match self.purpose {
            Purpose::Spill => EngineError::SpillDir { dir, problem },
            Purpose::Cache => EngineError::CacheDir { dir, problem },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn problem(path: impl AsRef<Path>) -> String {
        SpillDir::new(path).open().unwrap_err().to_string()
    }

    /// EX-56, EX-12
    #[test]
    fn the_directory_is_made_for_its_owner_alone_and_only_when_used() {
        let parent = tempfile::tempdir().unwrap();
        let spill = SpillDir::new(parent.path().join("spill"));
        assert!(!spill.path().exists());
        for _ in 0..2 {
            spill.open().unwrap();
            assert_eq!(fs::metadata(spill.path()).unwrap().mode() & 0o7777, 0o700);
        }
    }

    /// EX-56
    #[test]
    fn a_link_is_refused_also_behind_a_slash() {
        let parent = tempfile::tempdir().unwrap();
        let link = parent.path().join("link");
        symlink(parent.path(), &link).unwrap();
        assert!(problem(&link).contains("it is a symbolic link"));
        assert!(problem(link.join("")).contains("it is a symbolic link"));
    }

    /// EX-56
    #[test]
    fn a_directory_others_can_enter_is_refused_with_what_mends_it() {
        let parent = tempfile::tempdir().unwrap();
        for mode in [0o701, 0o710, 0o755, 0o1777] {
            fs::set_permissions(parent.path(), Permissions::from_mode(mode)).unwrap();
            let problem = problem(parent.path());
            assert!(
                problem.contains(&format!("its mode {mode:04o} lets others in")),
                "{problem}"
            );
            assert!(problem.contains("chmod 700"), "{problem}");
        }
    }

    /// EX-56
    #[test]
    fn another_users_directory_a_file_and_a_missing_parent_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(problem(&file).contains("it is not a directory"));
        assert!(problem(parent.path().join("no/dir")).contains("its parent does not exist"));
        let foreign = parent.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        let other = geteuid().as_raw() + 1;
        if std::os::unix::fs::chown(&foreign, Some(other), None).is_ok() {
            fs::set_permissions(&foreign, Permissions::from_mode(0o700)).unwrap();
            assert!(problem(&foreign).contains(&format!("it belongs to user {other}")));
        }
    }
}
