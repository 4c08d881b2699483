//! Messages between engine and launcher over `SOCK_SEQPACKET`: one packet each, long ones in a memfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use serde::{Serialize, de::DeserializeOwned};

use super::socket::{Wait, recv_what_fits, recv_with_fds, send_with_fds};
use crate::protocol::launcher::{DIRECT, INDIRECT, MAX_PACKET_BYTES, decode, encode};

/// A message and the descriptors that came with it.
#[derive(Debug)]
pub struct Packet<T> {
    /// The message.
    pub message: T,
    /// Its descriptors, as far as this process had room for them.
    pub fds: Vec<OwnedFd>,
}

/// Most descriptors one message carries.
const MAX_FDS: usize = 8;

/// Sends a message; `WouldBlock` on a nonblocking socket that is full.
pub fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut bytes = vec![DIRECT];
    bytes.append(&mut encode(message));
    if bytes.len() <= MAX_PACKET_BYTES {
        send_with_fds(socket, &bytes, fds, Wait::AsOpened)?;
        return Ok(());
    }
    let file = rustix::fs::memfd_create("fairtrial-message", rustix::fs::MemfdFlags::CLOEXEC)?;
    io::Write::write_all(&mut std::fs::File::from(file.try_clone()?), &bytes[1..])?;
    let mut all = vec![file.as_fd()];
    all.extend_from_slice(fds);
    send_with_fds(socket, &[INDIRECT], &all, Wait::AsOpened)?;
    Ok(())
}

/// Sends a message, waiting for room as long as the process behind `peer` lives.
pub fn send_or_die_with<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
    peer: BorrowedFd<'_>,
) -> io::Result<()> {
    loop {
        match send(socket, message, fds) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut fds = [
                    PollFd::from_borrowed_fd(socket, PollFlags::OUT),
                    PollFd::from_borrowed_fd(peer, PollFlags::IN),
                ];
                poll(&mut fds, None)?;
                if !fds[1].revents().is_empty() {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            result => return result,
        }
    }
}

/// Receives a message; `None` at the end. A malformed one is an error: the peer is not who it should be.
///
/// `buffer` is room for a packet that a caller keeps between messages.
pub fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Packet<T>>> {
    buffer.resize(MAX_PACKET_BYTES, 0);
    let (count, fds) = recv_with_fds(socket, buffer, MAX_FDS, Wait::AsOpened)?;
    unpack(&buffer[..count], fds)
}

/// As [`receive`]; but the message counts, also where this process has no room for its descriptors.
pub fn receive_what_fits<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Packet<T>>> {
    buffer.resize(MAX_PACKET_BYTES, 0);
    let (count, fds, _) = recv_what_fits(socket, buffer, Wait::AsOpened)?;
    unpack(&buffer[..count], fds)
}

fn unpack<T: DeserializeOwned>(
    packet: &[u8],
    mut fds: Vec<OwnedFd>,
) -> io::Result<Option<Packet<T>>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "malformed launcher message");
    let message = match packet.split_first() {
        None => return Ok(None),
        Some((&DIRECT, body)) => decode(body),
        Some((&INDIRECT, [])) if !fds.is_empty() => {
            let mut file = std::fs::File::from(fds.remove(0));
            io::Seek::rewind(&mut file)?;
            let mut body = Vec::new();
            io::Read::read_to_end(&mut file, &mut body)?;
            decode(&body)
        }
        Some(_) => None,
    };
    Ok(Some(Packet {
        message: message.ok_or_else(malformed)?,
        fds,
    }))
}
