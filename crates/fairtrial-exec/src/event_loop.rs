//! A thread's event loop, with tasks that stay on it.
//!
//! No `LocalSet`: what wakes a task of one from outside, as each event of the kernel does, costs two system calls more.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::foreign_host::{self, Guard};

/// An event loop of this thread; tasks are started by `spawn_local`.
pub fn of_this_thread() -> io::Result<LocalRuntime> {
    builder().build_local(LocalOptions::default())
}

fn builder() -> Builder {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().thread_name("fairtrial-blocking");
    builder
}

/// As [`on_new_thread`]. If `is_guest`, the process is somebody else's, and what the host does to the loop's descriptors is
/// noticed.
pub(crate) fn on_guarded_thread<F: Future<Output = ()>>(
    name: &str,
    is_guest: bool,
    work: impl FnOnce() -> F + Send + 'static,
) -> io::Result<(JoinHandle<()>, Option<Arc<Guard>>)> {
    if !is_guest {
        return Ok((on_new_thread(name, work)?, None));
    }
    let (made, is_made) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    let thread = thread.spawn(move || {
        let runtime = builder()
            .on_thread_unpark(foreign_host::check_loop)
            .build_local(LocalOptions::default());
        let mut _ends = None;
        match runtime {
            Ok(runtime) => {
                let guard = runtime.block_on(async { Guard::here() });
                _ends = guard.clone().map(Ends); // after the loop, and all that it owns
                made.send(Ok(guard)).ok(); // it is waited for
                runtime.block_on(work());
            }
            Err(error) => drop(made.send(Err(error))),
        }
    })?;
    let guard = is_made.recv().map_err(io::Error::other)??;
    Ok((thread, guard))
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

/// Tells of the thread's end, however that comes.
struct Ends(Arc<Guard>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.ended();
    }
}
