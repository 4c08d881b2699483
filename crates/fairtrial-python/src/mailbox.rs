//! Things that one thread leaves for another, which waits without the interpreter's lock.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::process;

/// Things in the order in which they came.
pub(crate) struct Mailbox<T> {
    state: Mutex<State<T>>,
    woken: Condvar,
}

struct State<T> {
    things: VecDeque<T>,
    is_closed: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                things: VecDeque::new(),
                is_closed: false,
            }),
            woken: Condvar::new(),
        }
    }
}

impl<T: Send> Mailbox<T> {
    pub(crate) fn put(&self, thing: T) {
        self.lock().things.push_back(thing);
        self.woken.notify_all();
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.woken.notify_all();
    }

    /// Waits for the next thing; none once it is closed and empty. Ctrl-C interrupts.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Option<T>> {
        process::wait(py, (&self.state, &self.woken), None, |state| {
            state.is_closed || !state.things.is_empty()
        })?;
        Ok(self.lock().things.pop_front())
    }

    /// Waits until it is closed, whatever is in it. Ctrl-C interrupts.
    pub(crate) fn wait_closed(&self, py: Python<'_>) -> PyResult<()> {
        process::wait(py, (&self.state, &self.woken), None, |state| {
            state.is_closed
        })?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
