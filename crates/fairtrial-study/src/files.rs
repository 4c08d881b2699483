//! Files that are there whole or not at all (ST-73).

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file being written beside its place; dropped unfinished, it leaves nothing.
pub(crate) struct Whole {
    out: Option<BufWriter<File>>,
    temporary: PathBuf,
    place: PathBuf,
}

impl Whole {
    /// Begins it.
    pub(crate) fn create(place: &Path) -> io::Result<Self> {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let temporary = place.with_file_name(format!(".{name}.new"));
        let out = BufWriter::with_capacity(1 << 16, File::create(&temporary)?);
        Ok(Self {
            out: Some(out),
            temporary,
            place: place.to_owned(),
        })
    }

    /// Puts it in its place. What is there already with the same bytes stays as it is.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if let Some(out) = self.out.take() {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            if !is_same(&self.temporary, &self.place)? {
                file.sync_all()?;
                fs::rename(&self.temporary, &self.place)?;
                return Ok(());
            }
        }
        fs::remove_file(&self.temporary)
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Some(out) => out.write(bytes),
            None => Err(io::Error::other("the file is finished")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Some(out) => out.flush(),
            None => Ok(()),
        }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if self.out.is_some() {
            _ = fs::remove_file(&self.temporary); // there is nobody to tell; a later export overwrites it
        }
    }
}

/// Writes a whole file.
pub(crate) fn write_whole(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = Whole::create(place)?;
    file.write_all(bytes)?;
    file.finish()
}

/// Whether two files hold the same bytes.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let size = match fs::metadata(other) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => return Ok(false),
    };
    if fs::metadata(one)?.len() != size {
        return Ok(false);
    }
    Ok(fs::read(one)? == fs::read(other)?)
}
