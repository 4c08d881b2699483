//! What listens in the cage: stand-ins for Redis, a resolver, docker, D-Bus and an ssh-agent. They answer everybody.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;

use crate::places::{ABSTRACT_SOCKET, PATH_SOCKETS, TCP_PORT, UDP_PORT};
use crate::show::Refusal;

/// Starts them all; they end with this process.
pub(crate) fn start() -> Result<(), Refusal> {
    let tcp = TcpListener::bind(("0.0.0.0", TCP_PORT))?;
    thread::spawn(move || tcp.incoming().flatten().for_each(answer));
    for port in [UDP_PORT, 53] {
        let udp = UdpSocket::bind(("0.0.0.0", port))?;
        thread::spawn(move || echo(&udp));
    }
    let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(ABSTRACT_SOCKET)?)?;
    thread::spawn(move || by_name.incoming().flatten().for_each(answer));
    for path in PATH_SOCKETS {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        thread::spawn(move || listener.incoming().flatten().for_each(answer));
    }
    Ok(())
}

fn answer(mut line: impl Read + Write + Send + 'static) {
    thread::spawn(move || {
        // Whoever connects and says nothing is answered by the end of the connection.
        let read = line.read(&mut [0; 64]).unwrap_or(0);
        if read > 0 {
            line.write_all(b"+PONG\r\n").ok(); // it may have gone
        }
    });
}

fn echo(socket: &UdpSocket) {
    let mut room = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut room) {
        socket.send_to(&room[..length], from).ok(); // it may have gone
    }
}
