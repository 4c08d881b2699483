//! A command's streams, passed through as they come and in bounded memory. Knows nothing of how the command ends.

use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread;

use fairtrial_exec::{Stream, Streams, Tap, TapReader};
use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::terminal::Shown;

/// Our ends of the streams of a command.
#[derive(Default)]
pub(super) struct Passage {
    printing: Option<JoinHandle<io::Result<MidLine>>>,
    /// Told when our standard input could not be read to its end.
    unread: Option<mpsc::Receiver<io::Error>>,
}

/// Whether standard error was left in the middle of a line.
pub(super) type MidLine = bool;

/// What the engine is given, and our ends of it. With `json` the outcome holds the output, so none is passed on.
pub(super) fn open(json: bool) -> Result<(Streams, Passage), Failure> {
    let (mut streams, mut passage) = (Streams::default(), Passage::default());
    if !io::stdin().is_terminal() || is_in_foreground() {
        let (input, unread) =
            feed().map_err(Failure::attempting("cannot pass on standard input"))?;
        (streams.input, passage.unread) = (Some(input), Some(unread));
    }
    if !json {
        let (tap, output) = Tap::new();
        streams.output = Some(tap);
        passage.printing = Some(tokio::task::spawn_blocking(|| print(output)));
    }
    Ok((streams, passage))
}

impl Passage {
    /// The command is gone: waits until all it wrote is passed on.
    pub(super) async fn end(self) -> Result<MidLine, Failure> {
        if let Some(error) = self.unread.and_then(|unread| unread.try_recv().ok()) {
            return Err(Failure::attempting("cannot read standard input")(error));
        }
        let Some(printing) = self.printing else {
            return Ok(false);
        };
        let printed = printing.await.expect("printing does not panic");
        printed.map_err(Failure::attempting("cannot pass on the command's output"))
    }
}

/// Whether what is typed is meant for us. A job in the background that read its terminal would be stopped.
fn is_in_foreground() -> bool {
    let ours = rustix::process::getpgrp();
    rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == ours)
}

/// Copies our standard input into a pipe. The command has the pipe and never our own descriptor, which we share with
/// whoever started us: it could make it nonblocking, move its offset, type into a terminal or read on after our end.
/// Nobody waits for the copying: a command need not read, and an input need not end.
fn feed() -> io::Result<(OwnedFd, mpsc::Receiver<io::Error>)> {
    let (theirs, mut ours) = io::pipe()?;
    let (trouble, unread) = mpsc::channel();
    thread::Builder::new()
        .name("standard-input".into())
        .spawn(move || {
            if let Err(error) = io::copy(&mut io::stdin().lock(), &mut ours)
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                // Told before the pipe is closed, so before a command can end because of that.
                trouble.send(error).ok(); // or the command ended meanwhile
            }
        })?;
    Ok((theirs.into(), unread))
}

fn print(output: TapReader) -> io::Result<MidLine> {
    let mut out = Sink::new(Shown::on(io::stdout()));
    let mut err = Sink::new(Shown::on(io::stderr()));
    for (stream, bytes) in output {
        match stream {
            Stream::Stdout => out.pass(&bytes),
            Stream::Stderr => err.pass(&bytes),
        }
    }
    out.end()?;
    err.end()
}

/// Where one stream goes. When that fails the rest is dropped: a command is judged the same whether or not somebody
/// still reads what it writes.
struct Sink<W> {
    out: W,
    failed: Option<io::Error>,
    mid_line: MidLine,
}

impl<W: Write> Sink<W> {
    fn new(out: W) -> Self {
        Self {
            out,
            failed: None,
            mid_line: false,
        }
    }

    fn pass(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            let passed = self.out.write_all(bytes).and_then(|()| self.out.flush());
            self.failed = passed.err();
            self.mid_line = bytes.last().is_some_and(|byte| *byte != b'\n');
        }
    }

    /// A reader that left is no error.
    fn end(self) -> io::Result<MidLine> {
        match self.failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(self.mid_line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes, then fails.
    struct Narrow(usize, io::ErrorKind);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(self.1.into());
            }
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// EX-98
    #[test]
    fn a_reader_that_left_is_no_error_and_a_full_disk_is_one() {
        let pass = |kind| {
            let mut sink = Sink::new(Narrow(2, kind));
            sink.pass(b"abc");
            sink.pass(b"def");
            sink.end()
        };
        assert!(pass(io::ErrorKind::BrokenPipe).is_ok());
        let full = pass(io::ErrorKind::StorageFull).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn the_last_piece_says_whether_a_line_is_open() {
        let mut sink = Sink::new(Vec::new());
        sink.pass(b"half ");
        assert!(sink.mid_line);
        sink.pass(b"a line\n");
        assert_eq!(sink.out, b"half a line\n");
        assert!(!sink.end().unwrap());
    }
}
