//! Private socket pairs, and descriptors sent over them (`SCM_RIGHTS`). Frames are the protocol's concern.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// The most descriptors one message carries.
pub const MAX_FDS: usize = 32;

const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// Whether a send or a receive may wait for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As the descriptor says (`O_NONBLOCK` or not).
    AsOpened,
    /// Never: `WouldBlock` instead, whatever the descriptor says.
    Never,
}

/// A connected pair of byte streams, closed on `exec`.
pub fn pair_stream() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(SocketType::STREAM)
}

/// A connected pair that keeps packet boundaries, closed on `exec`.
pub fn pair_seqpacket() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(SocketType::SEQPACKET)
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Makes this end nonblocking. The flag belongs to the end, not to the pair: the peer keeps blocking.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// Has the kernel refuse descriptors that the peer sends, from Linux 6.16 on. This end takes none; but to close one may
/// block, as it does for a connection that lingers.
pub fn refuse_descriptors(fd: impl AsFd) {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let no: libc::c_int = 0;
    // SAFETY: the kernel reads as many bytes as told from a live local. Where it does not know the option, nothing changes.
    unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Sends `bytes` with `fds` attached to the first of them; a dead peer is `BrokenPipe`, never SIGPIPE.
///
/// On a stream fewer bytes than given may go out. The descriptors travel with the first byte, so they have gone when
/// this succeeds, and `bytes` must not be empty where `fds` are given.
pub fn send_with_fds(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    wait: Wait,
) -> io::Result<usize> {
    if bytes.is_empty() && !fds.is_empty() {
        let problem = "descriptors need at least one byte to travel with";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty()
        && (fds.len() > MAX_FDS || !control.push(SendAncillaryMessage::ScmRights(fds)))
    {
        let problem = format!(
            "{} descriptors in one message, at most {MAX_FDS} fit",
            fds.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let flags = match wait {
        Wait::AsOpened => SendFlags::NOSIGNAL,
        Wait::Never => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    };
    let iov = [IoSlice::new(bytes)];
    Ok(retry_on_intr(|| sendmsg(fd, &iov, &mut control, flags))?)
}

/// Receives bytes and up to `max_fds` descriptors (at most [`MAX_FDS`]), closed on `exec`. Zero bytes mean the peer
/// is gone.
///
/// A packet cut short, or more descriptors than wanted, is `InvalidData`; whatever arrived is closed.
pub fn recv_with_fds(
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    max_fds: usize,
    wait: Wait,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let (length, fds, complete) = recv_what_fits(fd, buf, wait)?;
    if !complete || fds.len() > max_fds {
        let problem = format!("a message carries more than the {max_fds} descriptors expected");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok((length, fds))
}

/// As [`recv_with_fds`], with those descriptors for which this process has room, and whether these are all: for whoever
/// can do without them.
pub fn recv_what_fits(
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    wait: Wait,
) -> io::Result<(usize, Vec<OwnedFd>, bool)> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = match wait {
        Wait::AsOpened => RecvFlags::CMSG_CLOEXEC,
        Wait::Never => RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    };
    let mut iov = [IoSliceMut::new(buf)];
    let received = retry_on_intr(|| recvmsg(fd, &mut iov, &mut control, flags))?;
    // Owned before any check, so that every way out closes them.
    let fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received.flags.contains(ReturnFlags::TRUNC) {
        let problem = "a packet is longer than the buffer for it";
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let complete = !received.flags.contains(ReturnFlags::CTRUNC);
    Ok((received.bytes, fds, complete))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::io::FdFlags;
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    fn send(fd: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        send_with_fds(fd.as_fd(), bytes, fds, Wait::Never)
    }

    fn recv(fd: &OwnedFd, room: usize, max_fds: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut buf = vec![0; room];
        let (length, fds) = recv_with_fds(fd.as_fd(), &mut buf, max_fds, Wait::Never)?;
        buf.truncate(length);
        Ok((buf, fds))
    }

    /// EX-54
    #[test]
    fn descriptors_up_to_the_most_arrive_in_order_and_close_on_exec() {
        for pair in [pair_stream, pair_seqpacket] {
            let (a, b) = pair().unwrap();
            for count in [0, 1, 2, 3, MAX_FDS - 1, MAX_FDS] {
                let pipes: Vec<_> = (0..count)
                    .map(|_| pipe_with(PipeFlags::CLOEXEC).unwrap().0)
                    .collect();
                let lent: Vec<_> = pipes.iter().map(AsFd::as_fd).collect();
                assert_eq!(send(&a, b"hello", &lent).unwrap(), 5);
                let (bytes, fds) = recv(&b, 64, MAX_FDS).unwrap();
                assert_eq!((&bytes[..], fds.len()), (&b"hello"[..], count));
                for (sent, got) in pipes.iter().zip(&fds) {
                    let ino = |fd| rustix::fs::fstat(fd).unwrap().st_ino;
                    assert_eq!(ino(sent), ino(got));
                    assert!(
                        rustix::io::fcntl_getfd(got)
                            .unwrap()
                            .contains(FdFlags::CLOEXEC)
                    );
                }
            }
        }
    }

    /// EX-2
    #[test]
    fn both_ends_of_a_pair_close_on_exec() {
        for (a, b) in [pair_stream().unwrap(), pair_seqpacket().unwrap()] {
            for end in [a, b] {
                assert!(
                    rustix::io::fcntl_getfd(end)
                        .unwrap()
                        .contains(FdFlags::CLOEXEC)
                );
            }
        }
    }

    /// EX-63
    #[test]
    fn a_packet_cut_short_is_an_error() {
        let (a, b) = pair_seqpacket().unwrap();
        send(&a, b"too long", &[]).unwrap();
        assert_eq!(
            recv(&b, 3, 0).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    /// EX-63
    #[test]
    fn more_descriptors_than_wanted_are_an_error_and_none_is_kept() {
        let (a, b) = pair_seqpacket().unwrap();
        for (sent, wanted) in [(1, 0), (2, 1), (MAX_FDS, 3)] {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            send(&a, b"x", &vec![writer.as_fd(); sent]).unwrap();
            drop(writer);
            assert_eq!(
                recv(&b, 8, wanted).unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
            // End of file: no copy of the write end is left anywhere.
            assert_eq!(
                rustix::io::read(&reader, &mut [0; 1]).unwrap(),
                0,
                "{}",
                reader.as_raw_fd()
            );
        }
    }

    #[test]
    fn more_descriptors_than_fit_are_refused_before_anything_is_sent() {
        let (a, b) = pair_stream().unwrap();
        let many = vec![a.as_fd(); MAX_FDS + 1];
        assert_eq!(
            send(&a, b"x", &many).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            send(&a, b"", &many[..1]).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            recv(&b, 8, 0).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }

    /// EX-25
    #[test]
    fn a_peer_that_stops_reading_makes_a_nonblocking_end_say_so() {
        let (a, _b) = pair_stream().unwrap();
        set_nonblocking(&a).unwrap();
        let chunk = [0; 4096];
        let refused = loop {
            if let Err(refused) = send_with_fds(a.as_fd(), &chunk, &[], Wait::AsOpened) {
                break refused;
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    /// EX-23
    #[test]
    fn a_dead_peer_is_an_error_to_the_sender_and_end_of_stream_to_the_receiver() {
        let (a, b) = pair_stream().unwrap();
        drop(b);
        assert_eq!(
            send(&a, b"x", &[]).unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
        assert_eq!(recv(&a, 8, 0).unwrap().0, b"");
    }
}
