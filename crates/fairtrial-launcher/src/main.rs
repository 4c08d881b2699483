//! The launcher: takes the socket, dies with the engine, serves.
//!
//! Spawns, kills, reaps and accounts. Reads nothing a candidate wrote but the kernel's own files about it; one thread,
//! no async runtime.

mod account;
mod alone;
mod confine;
mod forks;
mod load;
mod locks;
mod oom;
mod orphans;
mod serve;
mod shortages;
mod task;
mod tree;
mod watch;

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

fn main() -> std::process::ExitCode {
    match prepare().and_then(|(socket, engine)| serve::serve(socket, engine)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        // Nobody reads our stderr; the engine sees the socket close and says what it knows.
        Err(_) => std::process::ExitCode::FAILURE,
    }
}

/// The engine's socket arrives as standard input; everything else the host left open goes.
fn prepare() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let engine = rustix::process::getppid().unwrap_or(Pid::INIT);
    let engine = pidfd_open(engine, PidfdFlags::empty())?;
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    fairtrial_exec::linux::process::become_launcher(&[&socket, &engine])?;
    fairtrial_exec::linux::spawn::free_from_host_limits(); // each cgroup takes a dozen descriptors
    // Nonblocking, so that a full socket is waited for together with the engine's death.
    fairtrial_exec::linux::socket::set_nonblocking(&socket)?;
    Ok((socket, engine))
}
