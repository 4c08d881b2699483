//! Work that blocks, on a thread beside the engine's loop; where no thread is to be had, on the loop after all.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::foreign_host::{self, Guard};

/// Does `work`; returns when it is done.
pub(crate) async fn aside(work: impl FnOnce() + Send + 'static) {
    // Shared, for a thread that cannot be had takes with it what it was to do.
    let work = Arc::new(Mutex::new(Some(work)));
    let (theirs, (done, finished)) = (Arc::clone(&work), oneshot::channel::<()>());
    let done = Done {
        loop_wakes: Some(done),
        guard: foreign_host::here(),
    };
    let thread = std::thread::Builder::new()
        .name("fairtrial-aside".into())
        .spawn(move || {
            let _done = done; // dropped at the end, however that comes
            take_and_do(&theirs);
        });
    match thread {
        Ok(thread) => {
            _ = finished.await; // never sent, only dropped
            thread.join().ok(); // its panic was told by whoever panicked
        }
        Err(_) => take_and_do(&work),
    }
}

/// Wakes the loop by being dropped, if that can still be woken.
struct Done {
    loop_wakes: Option<oneshot::Sender<()>>,
    guard: Option<Arc<Guard>>,
}

impl Drop for Done {
    fn drop(&mut self) {
        if self.guard.as_ref().is_some_and(|guard| !guard.is_sound()) {
            std::mem::forget(self.loop_wakes.take());
        }
    }
}

fn take_and_do(work: &Mutex<Option<impl FnOnce()>>) {
    let taken = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(work) = taken {
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_returns_when_the_work_is_done_or_has_panicked() {
        let (sender, receiver) = std::sync::mpsc::channel();
        aside(move || sender.send(1).unwrap()).await;
        assert_eq!(receiver.try_recv(), Ok(1));
        aside(|| panic!("work that panics")).await;
    }
}
