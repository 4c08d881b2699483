//! Who begins a call that was sent ahead: worker or nobody. One count per such call, private to engine and worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// The counts not taken yet.
#[derive(Debug)]
pub(crate) struct Claims(OwnedFd);

impl Claims {
    pub(crate) fn new() -> io::Result<Self> {
        // A semaphore: each read takes one, so that a count has one taker whoever is quicker.
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(eventfd(0, flags)?))
    }

    /// So many more calls are out.
    pub(crate) fn add(&self, calls: u64) {
        rustix::io::write(&self.0, &calls.to_ne_bytes())
            .expect("a few more never fill the counter");
    }

    /// Takes one back; `false` if the worker was quicker.
    pub(crate) fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok()
    }
}

impl AsFd for Claims {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EX-30
    #[test]
    fn each_count_has_one_taker() {
        let claims = Claims::new().unwrap();
        for _ in 0..1000 {
            claims.add(1);
        }
        let taken: usize = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..1000).filter(|_| claims.take()).count()))
                .collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        assert_eq!((taken, claims.take()), (1000, false));
    }
}
