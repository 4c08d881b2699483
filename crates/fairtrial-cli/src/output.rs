//! Records of `batch` written on a thread of their own, so that a slow reader of ours holds up no call and no signal.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
    pub(crate) fn start(target: Box<dyn Write + Send>) -> Result<Self, Failure> {
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

fn write_all(
    mut records: mpsc::Receiver<Vec<Record>>,
    target: Box<dyn Write + Send>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, target);
    while let Some(batch) = records.blocking_recv() {
        for record in batch {
            record.write_to(&mut out)?;
        }
        if records.is_empty() {
            out.flush()?;
        }
    }
    out.flush()
}

/// Where records go: a file, truncated and then written as results come, or standard output.
pub(crate) fn open(path: Option<&Path>, source: &Source) -> Result<Box<dyn Write + Send>, Failure> {
    match path {
        None => Ok(Box::new(Shown::on(io::stdout()))),
        Some(path) => Ok(Box::new(open_file(path, source)?)),
    }
}

fn open_file(path: &Path, source: &Source) -> Result<File, Failure> {
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
    Ok(file)
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
