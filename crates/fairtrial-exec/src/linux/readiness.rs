//! Descriptors in the engine's event loop.
//!
//! Each is watched for one thing. A socket that is watched for room, too, wakes the loop whenever its peer reads, which
//! nobody wants to know but who has something left to send.

use std::io;
use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::foreign_host::{Held, check_all};

/// Between two tries when the descriptors are used up.
const PAUSE: Duration = Duration::from_millis(10);

/// A descriptor in the loop, looked after where the process is somebody else's.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Before the descriptor, as it wants.
    _held: Held,
    fd: AsyncFd<OwnedFd>,
}

impl Deref for Watched {
    type Target = AsyncFd<OwnedFd>;

    fn deref(&self) -> &Self::Target {
        &self.fd
    }
}

/// Watches a descriptor for something to read, for as long as the returned value owns it.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<Watched> {
    register(fd, Interest::READABLE)
}

/// The same for room to write.
pub(crate) fn watch_for_room(fd: OwnedFd) -> io::Result<Watched> {
    register(fd, Interest::WRITABLE)
}

/// Waits until there may be room to write.
pub(crate) async fn room(fd: BorrowedFd<'_>) {
    let waited = async {
        let copy = watch_for_room(fd.try_clone_to_owned()?)?;
        copy.writable().await?.retain_ready();
        io::Result::Ok(())
    };
    if waited.await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
}

fn register(fd: OwnedFd, interest: Interest) -> io::Result<Watched> {
    let held = Held::new(&fd);
    // SAFETY: an `OwnedFd` is open until it is dropped, always gives the same number, and the loop's registration goes
    // before it does, so that the number is never somebody else's while it is watched.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    match registered {
        Ok(fd) => Ok(Watched { _held: held, fd }),
        Err(error) => {
            let (fd, error) = error.into_parts();
            check_all(); // what the loop registers by may be gone
            drop(held); // before its descriptor
            drop(fd);
            Err(error)
        }
    }
}
