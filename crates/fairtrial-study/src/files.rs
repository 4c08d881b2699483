//! Files that are there whole or not at all (ST-73).

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::canonical::hex;

/// The place of a file, and beside it the one that is being made; dropped unfinished, it leaves nothing.
pub(crate) struct Beside {
    /// Locked: whoever makes the same file meanwhile waits. A lock goes with its process, a name would stay.
    file: File,
    temporary: PathBuf,
    place: PathBuf,
    is_finished: bool,
}

impl Beside {
    /// An empty file beside the place.
    pub(crate) fn create(place: &Path) -> io::Result<Self> {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let temporary = place.with_file_name(format!(".{name}.new"));
        let file = loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&temporary)?;
            // Where a file system knows no locks, two who export to one place at once are on their own.
            _ = file.lock();
            // Whoever had the lock has put its file in place, or taken it away: then ours is not the one of that name.
            if fs::metadata(&temporary).is_ok_and(|there| is_one(&there, &file)) {
                break file;
            }
        };
        file.set_len(0)?;
        Ok(Self {
            file,
            temporary,
            place: place.to_owned(),
            is_finished: false,
        })
    }

    /// Where it is being made.
    pub(crate) fn path(&self) -> &Path {
        &self.temporary
    }

    /// Puts it in its place. What is there already with the same bytes stays as it is.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if fs::metadata(&self.place).is_ok_and(|there| !there.is_file()) {
            // `/dev/null` or a pipe: written, and never replaced.
            let mut to = OpenOptions::new().write(true).open(&self.place)?;
            io::copy(&mut File::open(&self.temporary)?, &mut to)?;
            return Ok(());
        }
        if is_same(&self.temporary, &self.place)? {
            return Ok(());
        }
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.place)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_finished {
            _ = fs::remove_file(&self.temporary); // there is nobody to tell; a later export overwrites it
        }
    }
}

/// A file being written beside its place.
pub(crate) struct Whole {
    out: BufWriter<File>,
    beside: Beside,
}

impl Whole {
    /// Begins it.
    pub(crate) fn create(place: &Path) -> io::Result<Self> {
        let beside = Beside::create(place)?;
        let out = BufWriter::with_capacity(1 << 16, beside.file.try_clone()?);
        Ok(Self { out, beside })
    }

    /// Puts it in its place.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        self.beside.finish()
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a whole file.
pub(crate) fn write_whole(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = Whole::create(place)?;
    file.write_all(bytes)?;
    file.finish()
}

/// The SHA-256 of a file; none if there is no such file.
pub(crate) fn file_sha256(path: &Path) -> io::Result<Option<String>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Some(hex(&hash.finalize()))),
            length => hash.update(&buffer[..length]),
        }
    }
}

/// The bytes of a file that somebody names: neither a pipe, which might never end, nor a device.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    fs::read(path)
}

/// Whether two files hold the same bytes.
pub(crate) fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let size = match fs::metadata(other) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => return Ok(false),
    };
    if fs::metadata(one)?.len() != size {
        return Ok(false);
    }
    let (mut left, mut right) = (File::open(one)?, File::open(other)?);
    let (mut expected, mut found) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let length = left.read(&mut expected)?;
        right.read_exact(&mut found[..length])?;
        if length == 0 || expected[..length] != found[..length] {
            return Ok(length == 0);
        }
    }
}

fn is_one(there: &fs::Metadata, file: &File) -> bool {
    let ours = file.metadata();
    ours.is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-73: of two who write one file at once, each writes it whole.
    #[test]
    fn two_writers_of_one_file_do_not_mix() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("runs.csv");
        std::thread::scope(|scope| {
            for letter in [b'a', b'b', b'c'] {
                let place = &place;
                scope.spawn(move || {
                    for length in 1..200 {
                        let mut file = Whole::create(place).unwrap();
                        for _ in 0..length {
                            file.write_all(&[letter]).unwrap();
                            file.flush().unwrap();
                        }
                        file.finish().unwrap();
                        let found = fs::read(place).unwrap();
                        assert!(found.iter().all(|byte| *byte == found[0]), "{found:?}");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(
            file_sha256(&place).unwrap().unwrap(),
            crate::canonical::sha256_hex(&fs::read(&place).unwrap())
        );
    }

    /// ST-73: what a killed writer left half done is not taken up, and what is given up leaves the old file.
    #[test]
    fn a_file_is_the_old_one_or_the_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("runs.csv");
        fs::write(
            directory.path().join(".runs.csv.new"),
            "left behind, and long",
        )
        .unwrap();
        write_whole(&place, b"old").unwrap();
        let mut given_up = Whole::create(&place).unwrap();
        given_up.write_all(b"half of the n").unwrap();
        drop(given_up);
        assert_eq!(fs::read(&place).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let before = fs::metadata(&place).unwrap().ino();
        write_whole(&place, b"old").unwrap();
        assert_eq!(fs::metadata(&place).unwrap().ino(), before);
        write_whole(&place, b"new").unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"new");
        assert!(!is_same(&place, &directory.path().join("none")).unwrap());
    }
}
