//! Work of other threads and tasks, and what their panics are to those who started it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::sync::oneshot;
use tokio::task::JoinError;

/// Does what blocks on a thread of its own: those of agents and coordinators have leases and owners to keep. Not on one of the
/// runtime's: whoever ends that would wait for it, and Ctrl-C with it. A panic there is one here.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("aside".to_owned());
    let spawned = thread.spawn(move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        sender.send(done).ok(); // nobody waits any more
    });
    spawned.expect("a machine that has no thread to spare runs no calls");
    let done = receiver.await.expect("it is sent, whatever happens");
    done.unwrap_or_else(|panic| resume_unwind(panic))
}

/// A task has ended. If by a panic, whoever waits for its work would wait for ever: so that is one here.
pub(crate) fn with_its_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// CL-56: who stops waiting does not wait for it after all when its event loop ends.
    #[test]
    fn an_event_loop_ends_before_what_was_left_aside() {
        let (go, goes) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        let runtime = fairtrial_exec::event_loop::of_this_thread().unwrap();
        runtime.block_on(async {
            let waits = aside(move || done.send(goes.recv().is_ok()));
            let stopped = tokio::time::timeout(Duration::from_millis(1), waits).await;
            assert!(stopped.is_err());
        });
        drop(runtime);
        go.send(()).unwrap();
        assert!(is_done.recv_timeout(Duration::from_secs(60)).unwrap());
    }

    #[tokio::test]
    #[should_panic(expected = "aside")]
    async fn a_panic_aside_is_one_here() {
        aside(|| panic!("aside")).await
    }
}
