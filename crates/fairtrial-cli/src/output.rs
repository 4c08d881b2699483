//! Records of `batch` written on a thread of their own, so that a slow reader of ours holds up no call and no signal.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::sync::{mpsc, oneshot};

use crate::failure::{Failure, reason};
use crate::input::Source;
use crate::spool::Record;
use crate::terminal::Shown;

/// Batches of records waiting for the writing thread.
const WAITING_BATCHES: usize = 4;

/// The writing thread.
pub(crate) struct Output {
    /// Takes records, already in order.
    pub(crate) sender: mpsc::Sender<Vec<Record>>,
    ended: oneshot::Receiver<io::Result<()>>,
}

impl Output {
    /// Writes what is sent, each batch flushed unless more is there already.
    pub(crate) fn start(target: Target) -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
        let (tell, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || tell.send(write_all(receiver, target)))
            .map_err(Failure::attempting("cannot start the writer"))?;
        Ok(Self { sender, ended })
    }

    /// Waits until all that was sent is written. A reader that went away is no error.
    pub(crate) async fn finish(self) -> Result<(), Failure> {
        drop(self.sender);
        match self.ended.await.expect("the writer tells before it ends") {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::attempting("cannot write the records")(error))
            }
            _ => Ok(()),
        }
    }
}

fn write_all(mut records: mpsc::Receiver<Vec<Record>>, mut target: Target) -> io::Result<()> {
    while let Some(batch) = records.blocking_recv() {
        for record in batch {
            target.take(record)?;
        }
        if records.is_empty() {
            target.flush()?;
        }
    }
    target.flush()
}

/// Text that is written together.
const BUFFER_BYTES: usize = 1 << 16;

/// Where records go.
pub(crate) enum Target {
    /// A stream that others read as it comes.
    Stream(BufWriter<Box<dyn Write + Send>>),
    /// A file.
    Lines(Lines),
}

impl Target {
    fn take(&mut self, record: Record) -> io::Result<()> {
        match self {
            Self::Stream(out) => record.write_to(out),
            Self::Lines(lines) => lines.take(record),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(out) => out.flush(),
            Self::Lines(lines) => lines.flush(),
        }
    }
}

/// A file that ends with a whole line: a process that is killed has written whole lines, for each write is of such; after
/// a failed write, as on a full disk, the file is cut back to the last whole line.
pub(crate) struct Lines {
    file: File,
    path: PathBuf,
    is_regular: bool,
    /// Lines not written yet.
    waiting: Vec<u8>,
    /// Bytes of whole lines in the file.
    whole: u64,
}

impl Lines {
    fn take(&mut self, record: Record) -> io::Result<()> {
        let length = record.length();
        let most = BUFFER_BYTES as u64;
        if self.waiting.len() as u64 + length > most {
            self.flush()?;
        }
        if length <= most {
            return record.write_to(&mut self.waiting);
        }
        let written = record.write_to(&mut self.file);
        self.wrote(length, written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.waiting);
        let length = self.waiting.len() as u64;
        self.waiting.clear();
        self.wrote(length, written)
    }

    fn wrote(&mut self, length: u64, written: io::Result<()>) -> io::Result<()> {
        let Err(error) = written else {
            self.whole += length;
            return Ok(());
        };
        let cut = self.is_regular && self.file.set_len(self.whole).is_ok();
        let (path, kind) = (self.path.display(), error.kind());
        let left = match cut {
            true => "; the records that it holds are whole",
            false => "",
        };
        Err(io::Error::new(kind, format!("`{path}`: {error}{left}")))
    }
}

/// Where records go: a file, truncated and then written as results come, or standard output.
pub(crate) fn open(path: Option<&Path>, source: &Source) -> Result<Target, Failure> {
    match path {
        None => {
            let stdout: Box<dyn Write + Send> = Box::new(Shown::on(io::stdout()));
            Ok(Target::Stream(BufWriter::with_capacity(
                BUFFER_BYTES,
                stdout,
            )))
        }
        Some(path) => Ok(Target::Lines(open_file(path, source)?)),
    }
}

fn open_file(path: &Path, source: &Source) -> Result<Lines, Failure> {
    let cannot = |error: io::Error| {
        let (place, reason) = (path.display(), reason(&error));
        let hint = "name a file in a directory that exists and can be written";
        Failure::usage(
            "--out",
            format!("cannot write `{place}`: {reason} ({hint})"),
        )
    };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(cannot)?;
    let facts = file.metadata().map_err(cannot)?;
    if source.identity == Some((facts.dev(), facts.ino())) {
        let place = path.display();
        return Err(Failure::usage(
            "--out",
            format!("`{place}` is the file of calls itself (name another file)"),
        ));
    }
    if facts.is_file() {
        file.set_len(0).map_err(cannot)?;
    }
    Ok(Lines {
        file,
        path: path.to_owned(),
        is_regular: facts.is_file(),
        waiting: Vec::new(),
        whole: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EX-104
    #[test]
    fn a_place_that_cannot_be_written_is_named_before_anything_starts() {
        let dir = tempfile::tempdir().unwrap();
        let calls = dir.path().join("calls.jsonl");
        std::fs::write(&calls, "{}\n").unwrap();
        let source = Source::open(&calls).unwrap();
        for place in ["missing/out.jsonl", "", "calls.jsonl"] {
            let failure = open(Some(&dir.path().join(place)), &source).err();
            assert!(
                matches!(&failure, Some(Failure::Usage(line)) if line.starts_with("--out: ")),
                "{place}: {failure:?}"
            );
        }
        assert_eq!(
            std::fs::read(&calls).unwrap(),
            b"{}\n",
            "the calls are untouched"
        );
    }
}
