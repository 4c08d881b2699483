//! Who is told of a call, and where its streams lead. Decides nothing.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::dispatch::Answer;

/// Whoever waits for a call. Told on the engine's thread: must neither wait nor panic.
///
/// Dropped untold only if the engine ended before it could answer.
pub trait Listener: Send {
    /// Asked as the call is about to be given to a worker: with `false` it is not, and ends as cancelled. What is
    /// unwanted before that therefore never starts, however far the engine has heard.
    fn wants_start(&self) -> bool {
        true
    }

    /// A worker of this name acknowledged the call, or its command runs.
    fn began(&self, _worker_id: &str) {}

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

/// Where pieces go; none once the tap was cut.
type Pieces = Option<mpsc::UnboundedSender<(Stream, Vec<u8>)>>;

/// Takes output as it comes; calls may share one. A slow reader slows who writes, never the engine.
#[derive(Clone, Debug)]
pub struct Tap {
    // A plain mutex: held to send a piece, which does not wait.
    pieces: Arc<Mutex<Pieces>>,
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
            pieces: Arc::new(Mutex::new(Some(sender))),
            room: room.clone(),
        };
        (tap, TapReader { pieces, room })
    }

    /// Another tap to the same reader, which can be cut by itself.
    pub(crate) fn branch(&self) -> Self {
        let sender = self.lock().clone();
        Self {
            pieces: Arc::new(Mutex::new(sender)),
            room: Arc::clone(&self.room),
        }
    }

    /// Nothing comes from it any more, whoever has it.
    pub(crate) fn cut(&self) {
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the reader has caught up.
    pub(crate) async fn room(&self) {
        drop(self.room.acquire().await); // closed: nobody reads, and nothing waits for that
    }

    /// What was read of a process that is gone goes in whether there is room or not: it is at most a pipe's worth.
    pub(crate) fn push(&self, stream: Stream, bytes: &[u8]) {
        let sent = match &*self.lock() {
            Some(pieces) => pieces.send((stream, bytes.to_vec())).is_ok(),
            None => false,
        };
        if sent && let Ok(permit) = self.room.try_acquire() {
            permit.forget();
        }
    }
}

/// Ends when nothing leads here any more. Blocks: not for an async task.
impl Iterator for TapReader {
    type Item = (Stream, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.pieces.blocking_recv();
        self.make_room();
        piece
    }
}

impl TapReader {
    /// As much room as pieces are missing: those that came without are made up for first. Room is counted before pieces,
    /// so one that is just being pushed is counted twice rather than not at all; the next piece sets that right.
    fn make_room(&self) {
        let taken = self.room.available_permits() + self.pieces.len();
        self.room.add_permits(TAP_PIECES.saturating_sub(taken));
    }
}

impl Drop for TapReader {
    fn drop(&mut self) {
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::task::{Context, Waker};

    fn has_room(tap: &Tap) -> bool {
        let room = std::pin::pin!(tap.room());
        room.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    fn fill(tap: &Tap) -> usize {
        let pushes = (0_u8..).take_while(|number| {
            let room = has_room(tap);
            if room {
                tap.push(Stream::Stdout, &[*number]);
            }
            room
        });
        pushes.count()
    }

    /// EX-98
    #[test]
    fn a_full_tap_has_room_again_for_each_piece_that_was_read() {
        let (tap, mut reader) = Tap::new();
        assert_eq!(fill(&tap), TAP_PIECES);
        for number in 0..3 {
            assert_eq!(reader.next(), Some((Stream::Stdout, vec![number])));
        }
        assert_eq!(fill(&tap), 3);
    }

    /// What comes without room is read in its turn, and does not make the tap any larger.
    #[test]
    fn pieces_beyond_the_room_are_kept_and_made_up_for() {
        let (tap, mut reader) = Tap::new();
        fill(&tap);
        for _ in 0..5 {
            tap.push(Stream::Stderr, b"last words");
        }
        assert_eq!(reader.by_ref().take(5).count(), 5);
        assert!(!has_room(&tap), "so many still wait");
        assert!(reader.next().is_some());
        assert_eq!(fill(&tap), 1);
        drop(tap);
        let rest: Vec<_> = reader.map(|(stream, _)| stream).collect();
        assert_eq!(rest.len(), TAP_PIECES);
        assert!(rest.contains(&Stream::Stderr));
    }

    #[test]
    fn nobody_waits_for_a_reader_that_is_gone() {
        let (tap, reader) = Tap::new();
        fill(&tap);
        drop(reader);
        assert!(has_room(&tap));
        tap.push(Stream::Stdout, b"unread");
    }

    /// A writer on another thread, as the engine is: all pieces arrive, in order.
    #[test]
    fn a_slow_reader_gets_every_piece() {
        let (tap, reader) = Tap::new();
        let writer = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            for number in 0..10_000_u32 {
                runtime.block_on(tap.room());
                tap.push(Stream::Stdout, &number.to_le_bytes());
            }
        });
        let numbers = reader.map(|(_, bytes)| u32::from_le_bytes(bytes.try_into().unwrap()));
        assert!(numbers.eq(0..10_000));
        writer.join().unwrap();
    }
}
