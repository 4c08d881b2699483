//! `file:///shared/dir`: a directory, of one host or of many.
//!
//! A blob is written beside its place, synced and renamed. The directory itself is never made: what is missing is
//! most likely a file system that is not mounted.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fairtrial_exec::SpillDir;
use rustix::fs::OFlags;

use super::checked::Source;
use super::digest::{Blob, Digest, PIECE_BYTES};
use super::fault::Fault;
use super::kind::{Found, Kind, Listed};
use crate::files::{fresh_name, touch};

/// Where blobs are while they are written.
const PARTIAL: &str = "partial";

#[derive(Debug)]
pub(super) struct Dir {
    root: PathBuf,
    /// For a directory that only its owner may enter.
    private: Option<SpillDir>,
}

impl Dir {
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            private: None,
        }
    }

    /// One that is made when it is needed, 0700, and refused where others could meddle.
    pub(super) fn private(root: PathBuf) -> Self {
        let private = Some(SpillDir::in_cache(&root));
        Self { root, private }
    }

    fn check_root(&self) -> Result<(), Fault> {
        if let Some(private) = &self.private {
            let parent = self.root.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(parent).map_err(failed("cannot make", parent))?;
            let opened = private
                .open()
                .map_err(|error| Fault::Denied(error.to_string()))?;
            drop::<OwnedFd>(opened);
            return Ok(());
        }
        match fs::metadata(&self.root)
            .map_err(failed("cannot open", &self.root))?
            .is_dir()
        {
            true => Ok(()),
            false => Err(Fault::Unusable("it is not a directory".to_owned())),
        }
    }

    fn place(&self, digest: Digest) -> PathBuf {
        self.root.join(digest.path())
    }

    /// The blob's file. Never through a link, and never waiting for whoever writes to a pipe of that name.
    fn open_file(&self, digest: Digest) -> Result<Option<(File, fs::Metadata)>, Fault> {
        let path = self.place(digest);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = File::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.check_root().map(|()| None);
            }
            Err(error) => return Err(failed("cannot open", &path)(error)),
        };
        let found = file.metadata().map_err(failed("cannot look at", &path))?;
        match found.is_file() {
            true => Ok(Some((file, found))),
            false => Err(Fault::corrupt(digest, "it is not a file")),
        }
    }

    fn write(&self, blob: Blob, source: &Source, partial: &Path) -> Result<File, Fault> {
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .open(partial)
            .map_err(failed("cannot make", partial))?;
        let mut reader = source.reader(blob);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match reader.fill(&mut piece)? {
                0 => break,
                filled => file
                    .write_all(&piece[..filled])
                    .map_err(failed("cannot write", partial))?,
            }
        }
        file.sync_all().map_err(failed("cannot sync", partial))?;
        Ok(file)
    }

    fn rename(&self, blob: Blob, partial: &Path) -> Result<(), Fault> {
        let place = self.place(blob.digest);
        let folder = place.parent().expect("a blob's path has a folder");
        make_dir(&self.root.join("sha256"))?;
        make_dir(folder)?;
        fs::rename(partial, &place).map_err(failed("cannot rename to", &place))?;
        sync_dir(folder)
    }
}

impl Kind for Dir {
    fn put(&self, blob: Blob, source: &Source) -> Result<(), Fault> {
        self.check_root()?;
        let folder = self.root.join(PARTIAL);
        make_dir(&folder)?;
        let partial = folder.join(fresh_name());
        let stored = self
            .write(blob, source, &partial)
            .and_then(|_| self.rename(blob, &partial));
        if stored.is_err() {
            fs::remove_file(&partial).ok(); // never made, or left to a sweep
        }
        stored
    }

    fn is_kept(&self, blob: Blob) -> Result<bool, Fault> {
        let Ok(Some((file, found))) = self.open_file(blob.digest) else {
            return Ok(false); // storing it will tell what is wrong
        };
        // What cannot be made young again may be another user's: then a copy of our own takes its place.
        Ok(found.len() == blob.bytes && touch(&file).is_ok())
    }

    fn open(&self, blob: Blob) -> Result<Box<dyn Read>, Fault> {
        let Some((file, found)) = self.open_file(blob.digest)? else {
            return Err(Fault::Missing(blob.digest));
        };
        if found.len() != blob.bytes {
            let problem = format!("it has {} bytes, not {}", found.len(), blob.bytes);
            return Err(Fault::corrupt(blob.digest, problem));
        }
        Ok(Box::new(file))
    }

    fn find(&self, digest: Digest) -> Result<Option<Found>, Fault> {
        let found = self.open_file(digest)?;
        Ok(found.map(|(_, found)| Found {
            bytes: found.len(),
            stored: found.modified().ok(),
        }))
    }

    fn delete(&self, digest: Digest) -> Result<(), Fault> {
        let path = self.place(digest);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.check_root(),
            removed => removed.map_err(failed("cannot remove", &path)),
        }
    }

    fn list(&self) -> Result<Vec<Listed>, Fault> {
        self.check_root()?;
        let mut listed = Vec::new();
        for folder in entries(&self.root.join("sha256"))? {
            for entry in entries(&folder.path())? {
                let name = [folder.file_name(), entry.file_name()].map(|name| name.into_string());
                let [Ok(folder), Ok(name)] = name else {
                    continue;
                };
                let digest = Digest::at_path(&format!("sha256/{folder}/{name}"));
                if let (Some(digest), Some(stored)) = (digest, modified(&entry)?) {
                    listed.push(Listed { digest, stored });
                }
            }
        }
        Ok(listed)
    }

    fn remove_partial(&self, before: SystemTime) -> Result<usize, Fault> {
        let mut removed = 0;
        for entry in entries(&self.root.join(PARTIAL))? {
            if modified(&entry)?.is_some_and(|modified| modified < before) {
                let path = entry.path();
                fs::remove_file(&path).map_err(failed("cannot remove", &path))?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Fault {
    move |error| Fault::of_file(what, path, &error)
}

fn entries(path: &Path) -> Result<Vec<fs::DirEntry>, Fault> {
    match fs::read_dir(path) {
        // Nothing was ever stored.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        // Not ours: a file where a folder could be.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        listed => listed
            .and_then(Iterator::collect)
            .map_err(failed("cannot list", path)),
    }
}

/// None if it is gone since it was listed.
fn modified(entry: &fs::DirEntry) -> Result<Option<SystemTime>, Fault> {
    match entry.metadata().and_then(|found| found.modified()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        modified => modified
            .map(Some)
            .map_err(failed("cannot look at", &entry.path())),
    }
}

/// Makes a folder of the store; it is there for good once this returns.
fn make_dir(path: &Path) -> Result<(), Fault> {
    match fs::create_dir(path) {
        Ok(()) => sync_dir(path.parent().unwrap_or(Path::new("/"))),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed("cannot make", path)(error)),
    }
}

fn sync_dir(path: &Path) -> Result<(), Fault> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    match synced {
        // Some network file systems do not sync directories: there it is the server's business.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced.map_err(failed("cannot sync", path)),
    }
}
