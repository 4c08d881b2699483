//! A thread's event loop, with tasks that stay on it.
//!
//! No `LocalSet`: what wakes a task of one from outside, as each event of the kernel does, costs two system calls more.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// An event loop of this thread; tasks are started by `spawn_local`.
pub fn of_this_thread() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .thread_name("fairtrial-blocking")
        .build_local(LocalOptions::default())
}

/// Runs `work` on a thread of its own. What it awaits itself is woken by system calls, its tasks by none.
pub fn on_new_thread<F: Future<Output = ()>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (made, is_made) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    let thread = thread.spawn(move || match of_this_thread() {
        Ok(runtime) => {
            made.send(Ok(())).ok(); // it is waited for
            runtime.block_on(work());
        }
        Err(error) => drop(made.send(Err(error))),
    })?;
    is_made.recv().map_err(io::Error::other)??;
    Ok(thread)
}
