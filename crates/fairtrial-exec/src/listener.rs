//! Who is told of a call, and where its streams lead. Decides nothing.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::dispatch::Answer;

/// Whoever waits for a call. Told on the engine's thread: must neither wait nor panic.
///
/// Dropped untold only if the engine ended before it could answer.
pub trait Listener: Send {
    /// A worker acknowledged the call, or its command runs.
    fn began(&self) {}

    /// It is over.
    fn ended(self: Box<Self>, answer: Answer);
}

impl fmt::Debug for dyn Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener for oneshot::Sender<Answer> {
    fn ended(self: Box<Self>, answer: Answer) {
        self.send(answer).ok(); // nobody waits for a call whose future was dropped
    }
}

/// Where a call's streams lead besides its outcome.
#[derive(Debug, Default)]
pub struct Streams {
    /// What it writes goes here too, as it comes.
    pub output: Option<Tap>,
    /// A command's standard input, instead of the call's bytes.
    pub input: Option<OwnedFd>,
}

/// Which output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// Pieces that may wait in a tap before the engine stops reading the streams that lead there.
const TAP_PIECES: usize = 16;

/// Takes output as it comes; calls may share one. A slow reader slows who writes, never the engine.
#[derive(Clone, Debug)]
pub struct Tap {
    pieces: mpsc::UnboundedSender<(Stream, Vec<u8>)>,
    room: Arc<Semaphore>,
}

/// Where a tap's output is read.
#[derive(Debug)]
pub struct TapReader {
    pieces: mpsc::UnboundedReceiver<(Stream, Vec<u8>)>,
    room: Arc<Semaphore>,
}

impl Tap {
    /// A tap and its reader.
    #[must_use]
    pub fn new() -> (Self, TapReader) {
        let (sender, pieces) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(TAP_PIECES));
        let tap = Self {
            pieces: sender,
            room: room.clone(),
        };
        (tap, TapReader { pieces, room })
    }

    /// Until the reader has caught up.
    pub(crate) async fn room(&self) {
        drop(self.room.acquire().await); // closed: nobody reads, and nothing waits for that
    }

    /// What was read of a process that is gone goes in whether there is room or not: it is at most a pipe's worth.
    pub(crate) fn push(&self, stream: Stream, bytes: &[u8]) {
        if self.pieces.send((stream, bytes.to_vec())).is_ok()
            && let Ok(permit) = self.room.try_acquire()
        {
            permit.forget();
        }
    }
}

/// Ends when nothing leads here any more. Blocks: not for an async task.
impl Iterator for TapReader {
    type Item = (Stream, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.pieces.blocking_recv();
        if self.room.available_permits() < TAP_PIECES {
            self.room.add_permits(1);
        }
        piece
    }
}

impl Drop for TapReader {
    fn drop(&mut self) {
        self.room.close();
    }
}
