//! The engine's end of a worker's socket. Never blocks: what does not fit waits in memory, what has not come is `None`.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::unix::AsyncFd;

use super::frames::{Frame, Frames};
use crate::linux::readiness::room;
use crate::linux::socket::{Wait, send_with_fds};
use crate::protocol::{BadFrame, Header, Kind};

/// Read at once.
const READ_BYTES: usize = 1 << 16;

/// A worker's socket with what waits on both sides of it.
pub(crate) struct Link {
    socket: AsyncFd<OwnedFd>,
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
                Err(_) => self.outgoing.clear(), // nobody reads any more
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
        let mut any = false;
        while !self.closed {
            match read_some(&self.socket, &mut self.incoming) {
                Ok(0) => self.closed = true,
                Ok(_) => any = true,
                Err(_) => break,
            }
        }
        any
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

fn read_some(socket: &AsyncFd<OwnedFd>, incoming: &mut Frames) -> io::Result<usize> {
    let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
    match rustix::io::read(socket.get_ref(), &mut buffer[..]) {
        Ok((bytes, _)) => {
            incoming.push(bytes);
            Ok(bytes.len())
        }
        Err(rustix::io::Errno::CONNRESET) => Ok(0), // it died with our frames unread
        Err(error) => Err(error.into()),
    }
}
