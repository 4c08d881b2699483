//! The engine's end of a worker's socket. Never blocks: what does not fit waits in memory, what has not come is `None`.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use super::frames::{Frame, Frames};
use crate::foreign_host::{check_after, check_all};
use crate::linux::readiness::{Watched, room};
use crate::linux::socket::{Wait, send_with_fds};
use crate::protocol::{BadFrame, Header, Kind};

/// Read at once.
const READ_BYTES: usize = 1 << 16;
/// More than a socket holds that nobody reads. Who has more to say is saying it just now, and could go on for ever.
const WAITING_BYTES: usize = 4 << 20;

/// A worker's socket with what waits on both sides of it.
pub(crate) struct Link {
    socket: Watched,
    outgoing: VecDeque<Outgoing>,
    incoming: Frames,
    /// The worker closed its end.
    pub(crate) closed: bool,
}

struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    fd: Option<OwnedFd>,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        crate::linux::socket::set_nonblocking(&socket)?;
        Ok(Self {
            socket: crate::linux::readiness::watch(socket)?,
            outgoing: VecDeque::new(),
            incoming: Frames::default(),
            closed: false,
        })
    }

    /// Queues a frame and sends what fits at once. A dead worker shows on the reading side.
    pub(crate) fn send(
        &mut self,
        kind: Kind,
        generation: u32,
        payload: &[u8],
        fd: Option<OwnedFd>,
    ) {
        self.queue(kind, generation, payload, fd);
        self.push();
    }

    /// As [`Link::send`], but what follows soon can go with it.
    pub(crate) fn queue(
        &mut self,
        kind: Kind,
        generation: u32,
        payload: &[u8],
        fd: Option<OwnedFd>,
    ) {
        let header = Header {
            kind,
            generation,
            length: payload.len() as u64,
        };
        let header = header.encode();
        match self.outgoing.back_mut() {
            // A descriptor goes with the first byte of what it is sent with.
            Some(last) if fd.is_none() => {
                last.bytes.extend_from_slice(&header);
                last.bytes.extend_from_slice(payload);
            }
            _ => {
                let bytes = [&header[..], payload].concat();
                self.outgoing.push_back(Outgoing { bytes, sent: 0, fd });
            }
        }
    }

    /// Sends what fits.
    pub(crate) fn push(&mut self) {
        while let Some(next) = self.outgoing.front_mut() {
            let fds: Vec<_> = next.fd.iter().map(AsFd::as_fd).collect();
            match send_with_fds(
                self.socket.get_ref().as_fd(),
                &next.bytes[next.sent..],
                &fds,
                Wait::Never,
            ) {
                Ok(count) => {
                    next.sent += count;
                    next.fd = None;
                    if next.sent == next.bytes.len() {
                        self.outgoing.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    check_all();
                    self.outgoing.clear(); // nobody reads any more
                }
            }
        }
    }

    /// Waits until something can be read or written, and does it once.
    pub(crate) async fn turn(&mut self) {
        let wants_to_write = !self.outgoing.is_empty();
        if self.closed && !wants_to_write {
            return std::future::pending().await;
        }
        tokio::select! {
            Ok(mut ready) = self.socket.readable(), if !self.closed => match read_some(&self.socket, &mut self.incoming) {
                Ok(0) => self.closed = true,
                // Less than there was room for is all there is: the kernel tells when more comes.
                Ok(count) if count < READ_BYTES => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Ok(_) | Err(_) => {}
            },
            () = room(self.socket.get_ref().as_fd()), if wants_to_write => self.push(),
            else => std::future::pending().await,
        }
    }

    /// Reads whatever is there now. Tells whether there was anything.
    pub(crate) fn drain(&mut self) -> bool {
        let mut total = 0;
        while !self.closed && total < WAITING_BYTES {
            match read_some(&self.socket, &mut self.incoming) {
                Ok(0) => self.closed = true,
                Ok(count) => total += count,
                Err(_) => break,
            }
        }
        total > 0
    }

    /// Whether part of a frame has arrived.
    pub(crate) fn has_half(&self) -> bool {
        self.incoming.has_half()
    }

    /// The next whole frame that has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, BadFrame> {
        self.incoming.next()
    }

    /// What came that is no frame.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        self.incoming.take_rest()
    }
}

fn read_some(socket: &Watched, incoming: &mut Frames) -> io::Result<usize> {
    let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
    match rustix::io::read(socket.get_ref(), &mut buffer[..]) {
        Ok((bytes, _)) => {
            incoming.push(bytes);
            Ok(bytes.len())
        }
        Err(rustix::io::Errno::CONNRESET) => Ok(0), // it died with our frames unread
        Err(error) => {
            check_after(error);
            Err(error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// SB-38: a worker that writes faster than the engine reads takes neither its time nor its memory.
    #[tokio::test]
    async fn a_worker_that_never_stops_talking_is_heard_only_so_far() {
        let (ours, theirs) = crate::linux::socket::pair_stream().unwrap();
        let mut link = Link::new(ours).unwrap();
        let talker = std::thread::spawn(move || {
            let mut theirs = UnixStream::from(theirs);
            while theirs.write_all(&[b'x'; READ_BYTES]).is_ok() {}
        });
        let mut heard = 0;
        while heard < 2 * WAITING_BYTES {
            link.drain();
            let rest = link.take_rest().len();
            assert!(rest < WAITING_BYTES + READ_BYTES, "{rest} bytes at once");
            heard += rest;
        }
        drop(link);
        talker.join().unwrap();
    }
}
