//! A worker's output streams and a command's input: nonblocking ends of pipes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;

use crate::capture::{Capture, Captured};
use crate::foreign_host::{check_after, check_loop};
use crate::linux::readiness::{self, Watched};
use crate::listener::{Stream, Tap};

/// As many bytes as a pipe holds by default, in a few steps.
const PIPE_READS: usize = 4;

/// One output stream, captured within a cap.
pub(crate) struct Output {
    stream: Stream,
    pipe: Option<Watched>,
    capture: Capture,
    tap: Option<Tap>,
}

impl Output {
    /// A pipe: our end, and the one to hand down. Nothing is kept until [`Output::take`] sets a cap.
    pub(crate) fn open(stream: Stream) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        crate::linux::socket::set_nonblocking(&ours)?;
        Ok((
            Self {
                stream,
                pipe: Some(readiness::watch(ours)?),
                capture: new_capture(0),
                tap: None,
            },
            theirs,
        ))
    }

    /// Waits for output and takes it in.
    pub(crate) async fn fill(&mut self) {
        let Some(pipe) = &self.pipe else {
            return std::future::pending().await;
        };
        let Ok(mut ready) = pipe.readable().await else {
            return;
        };
        if let Some(tap) = &self.tap {
            tap.room().await;
        }
        match read_some(pipe, &mut self.capture, self.tap.as_ref(), self.stream) {
            Ok(0) => {
                drop(ready);
                self.pipe = None;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Ok(_) | Err(_) => {}
        }
    }

    /// Takes in what is there now, up to `most` bytes: nobody may keep us reading for ever.
    pub(crate) fn drain(&mut self, most: u64) {
        let stop = self.capture.total().saturating_add(most);
        while let Some(pipe) = &self.pipe {
            match read_some(pipe, &mut self.capture, self.tap.as_ref(), self.stream) {
                Ok(0) => self.pipe = None,
                Ok(_) if self.capture.total() < stop => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Takes in what is known to be there, without asking the kernel whether there is more: what a pipe holds, for
    /// nobody may keep us reading for ever.
    pub(crate) fn drain_known(&mut self) {
        for _ in 0..PIPE_READS {
            let Some(pipe) = &self.pipe else { return };
            let (capture, tap, stream) = (&mut self.capture, self.tap.as_ref(), self.stream);
            let read = pipe.try_io(Interest::READABLE, |_| {
                read_some(pipe, capture, tap, stream)
            });
            match read {
                Ok(0) => self.pipe = None,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Bytes seen since the last [`Output::take`].
    pub(crate) fn total(&self) -> u64 {
        self.capture.total()
    }

    /// Where output goes besides, from now on.
    pub(crate) fn lead_to(&mut self, tap: Option<Tap>) {
        self.tap = tap;
    }

    /// What was captured; the next call starts afresh.
    pub(crate) fn take(&mut self, next_cap_bytes: u64) -> Captured {
        std::mem::replace(&mut self.capture, new_capture(next_cap_bytes)).finish()
    }
}

/// Whether either stream has something to be read, or has ended.
pub(crate) fn has_output(stdout: &Output, stderr: &Output) -> bool {
    let pipes = [&stdout.pipe, &stderr.pipe].into_iter().flatten();
    let mut asked: Vec<_> = pipes
        .map(|pipe| PollFd::new(pipe.get_ref(), PollFlags::IN))
        .collect();
    // What cannot be asked is looked at.
    poll(&mut asked, Some(&Timespec::default())).map_or(true, |ready| ready > 0)
}

fn new_capture(cap_bytes: u64) -> Capture {
    Capture::new(usize::try_from(cap_bytes).unwrap_or(usize::MAX))
}

fn read_some(
    pipe: &Watched,
    capture: &mut Capture,
    tap: Option<&Tap>,
    stream: Stream,
) -> io::Result<usize> {
    let mut buffer = [MaybeUninit::uninit(); 1 << 16];
    let (bytes, _) = rustix::io::read(pipe.get_ref(), &mut buffer[..])
        .inspect_err(|error| check_after(*error))?;
    capture.push(bytes);
    if let Some(tap) = tap.filter(|_| !bytes.is_empty()) {
        tap.push(stream, bytes);
    }
    Ok(bytes.len())
}

/// A command's standard input, written as fast as the command reads. The bytes stay with the call: should no process
/// come of this try, the next needs them all again.
pub(crate) struct Input {
    pipe: Watched,
    written: usize,
}

impl Input {
    /// A pipe: our end, and the one to hand down.
    pub(crate) fn open() -> io::Result<(Self, OwnedFd)> {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        crate::linux::socket::set_nonblocking(&ours)?;
        Ok((
            Self {
                pipe: readiness::watch_for_room(ours)?,
                written: 0,
            },
            theirs,
        ))
    }

    /// Writes some more of `bytes`; `true` when there is no more to write, or nobody to read it, which is no error.
    pub(crate) async fn feed(&mut self, bytes: &[u8]) -> bool {
        let Ok(mut ready) = self.pipe.writable().await else {
            return true;
        };
        check_loop(); // what is written would be found in a file of the host
        match rustix::io::write(self.pipe.get_ref(), &bytes[self.written..]) {
            Ok(count) => {
                self.written += count;
                self.written == bytes.len()
            }
            Err(rustix::io::Errno::AGAIN) => {
                ready.clear_ready();
                false
            }
            Err(error) => {
                check_after(error);
                true
            }
        }
    }
}
