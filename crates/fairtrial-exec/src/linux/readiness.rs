//! Descriptors in the engine's event loop.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Watches a descriptor for as long as the returned value owns it.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open until it is dropped, always gives the same number, and the loop's registration goes
    // before it does, so that the number is never somebody else's while it is watched.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}
