//! Futures that somebody watches by other means than waiting for their own: handed over as their calls end.

use std::sync::{Arc, Condvar, Mutex};

use pyo3::prelude::*;

use crate::process;

/// A queue of futures whose calls ended.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Watch(Arc<Queue>);

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    futures: Vec<Py<PyAny>>,
    closed: bool,
}

#[pymethods]
impl Watch {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// The futures whose calls ended since the last time; waits for one. None once closed and empty.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<Py<PyAny>>>> {
        let mut taken = None;
        process::wait(py, (&self.0.state, &self.0.woken), None, |state| {
            if taken.is_none() && !state.futures.is_empty() {
                taken = Some(std::mem::take(&mut state.futures));
            }
            taken.is_some() || state.closed
        })?;
        Ok(taken)
    }

    /// Puts something in behind what is there.
    fn put(&self, thing: Py<PyAny>) {
        self.0.push(thing);
    }

    /// Ends `next`.
    fn close(&self) {
        self.0.lock().closed = true;
        self.0.woken.notify_all();
    }
}

impl Watch {
    pub(crate) fn queue(&self) -> Arc<Queue> {
        self.0.clone()
    }
}

impl Queue {
    pub(crate) fn push(&self, future: Py<PyAny>) {
        let mut state = self.lock();
        state.futures.push(future);
        if state.futures.len() == 1 {
            self.woken.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under the lock")
    }
}
