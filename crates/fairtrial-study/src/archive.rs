//! A directory as one file: the same bytes for the same content (ST-80).

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use crate::files::Whole;
use crate::journal::{self, Reader};

/// Writes all files of a directory into a tar archive, gzipped. The journal is compacted, without its log and lock.
/// `scratch` is an empty directory to work in.
pub fn bundle(directory: &Path, reader: &Reader, target: &Path, scratch: &Path) -> io::Result<()> {
    let compact = scratch.join(journal::FILE_NAME);
    reader.compact_into(&compact).map_err(io::Error::other)?;
    let name = directory
        .file_name()
        .map_or("study".into(), |name| name.to_string_lossy());
    let mut out = Whole::create(target)?;
    {
        // Neither a name nor a time: they would differ between equal bundles.
        let gzip = GzBuilder::new()
            .mtime(0)
            .write(&mut out, Compression::default());
        let mut archive = Builder::new(gzip);
        let mut files = Vec::new();
        list(directory, Path::new(""), &mut files)?;
        files.sort();
        for file in files {
            let source = match file == Path::new(journal::FILE_NAME) {
                true => compact.clone(),
                false => directory.join(&file),
            };
            append(&mut archive, &Path::new(&*name).join(&file), &source)?;
        }
        archive.into_inner()?.finish()?;
    }
    out.flush()?;
    out.finish()
}

fn append(archive: &mut Builder<impl Write>, name: &Path, source: &Path) -> io::Result<()> {
    let file = fs::File::open(source)?;
    let size = file.metadata()?.len();
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    archive.append_data(&mut header, name, file.take(size))
}

/// All files below a directory but the journal's log and lock, and what is half written.
fn list(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(root, &path, found)?;
        } else if kind.is_file()
            && !name.starts_with("journal.sqlite-")
            && !(name.starts_with('.') && name.ends_with(".new"))
            && name != "journal.lock"
        {
            found.push(path);
        }
    }
    Ok(())
}
