//! The host process: whether it is a fork of the one that made an object, and whether it is about to end.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyImportError, PyRuntimeError};
use pyo3::prelude::*;

use crate::{log_lines, look};

/// The main thread looks this often for signals; others need not.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

static FORKS: AtomicU64 = AtomicU64::new(0);
static EXITING: AtomicBool = AtomicBool::new(false);

/// Called in the child after `os.fork()`: what was made before is not of this process.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Called when only daemon threads are left beside the main one.
#[pyfunction]
pub(crate) fn exiting(py: Python<'_>) {
    EXITING.store(true, Ordering::Relaxed);
    log_lines::end(py);
}

/// Whether only daemon threads are left beside the main one.
pub(crate) fn is_exiting() -> bool {
    EXITING.load(Ordering::Relaxed)
}

/// An interpreter beside the main one is not supported (PY-53).
pub(crate) fn refuse_sub_interpreter() -> PyResult<()> {
    // SAFETY: a module is initialized with the interpreter's lock held, and there is always a current interpreter.
    let id = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    if id == 0 {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "fairtrial is not tested in sub-interpreters yet: import it in the main interpreter",
    ))
}

/// Which process of a line of forks this is.
pub(crate) fn generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// What belongs to the process that made it. Not dropped in a forked child: threads that would be joined are not there.
pub(crate) struct Own<T> {
    thing: ManuallyDrop<T>,
    generation: u64,
}

impl<T> Own<T> {
    pub(crate) fn new(thing: T) -> Self {
        Self {
            thing: ManuallyDrop::new(thing),
            generation: generation(),
        }
    }

    /// Whether this is a forked child, which has none of it.
    pub(crate) fn is_the_parents(&self) -> bool {
        self.generation != generation()
    }

    /// The thing itself; refused in a forked child.
    pub(crate) fn get(&self) -> PyResult<&T> {
        if self.is_the_parents() {
            return Err(PyRuntimeError::new_err(
                "this engine was made before os.fork(): only the parent process can use it",
            ));
        }
        Ok(&self.thing)
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.thing
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_the_parents() {
            // SAFETY: nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.thing) };
        }
    }
}

/// A time as Python gives it: one that no clock can hold is none at all, one that is past is now.
pub(crate) fn duration(seconds: f64) -> Option<Duration> {
    if seconds > 0.0 {
        Duration::try_from_secs_f64(seconds).ok()
    } else {
        Some(Duration::ZERO)
    }
}

/// Waits, without the interpreter's lock, until `ready` holds of what `lock` guards or the time is over; Ctrl-C
/// interrupts. Tells whether it holds.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    (lock, woken): (&Mutex<T>, &Condvar),
    timeout: Option<Duration>,
    mut ready: impl FnMut(&mut T) -> bool + Send,
) -> PyResult<bool> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    if detached(py, || {
        look::comes_soon(|| ready(&mut lock.lock().expect("nothing panics under the lock")))
    }) {
        return Ok(true);
    }
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let pause = if is_main() {
            Some(left.unwrap_or(SIGNAL_CHECK).min(SIGNAL_CHECK))
        } else {
            left
        };
        let holds = detached(py, || {
            let mut guard = lock.lock().expect("nothing panics under the lock");
            guard = match pause {
                Some(pause) => {
                    woken
                        .wait_timeout_while(guard, pause, |state| !ready(state))
                        .expect("nothing panics under the lock")
                        .0
                }
                None => woken
                    .wait_while(guard, |state| !ready(state))
                    .expect("nothing panics under the lock"),
            };
            ready(&mut guard)
        });
        if holds {
            return Ok(true);
        }
        py.check_signals()?;
        if deadline.is_some_and(|at| at <= Instant::now()) {
            return Ok(false);
        }
    }
}

/// Runs `wait` without the interpreter's lock.
///
/// A daemon thread that took the lock of a finalizing interpreter would be unwound through our frames, which aborts
/// the process: it stays here until the process is gone.
pub(crate) fn detached<T: Send>(py: Python<'_>, wait: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let value = wait();
        while is_exiting() && !is_main() {
            std::thread::park();
        }
        value
    })
}

fn is_main() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}
