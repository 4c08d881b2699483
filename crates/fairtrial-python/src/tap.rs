//! Output as it comes, for whoever echoes it.

use std::sync::Mutex;

use fairtrial_exec::{Stream, TapReader};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::process;

/// Takes the output of the calls it is given to.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Tap {
    tap: Mutex<Option<fairtrial_exec::Tap>>,
    reader: Mutex<TapReader>,
}

#[pymethods]
impl Tap {
    #[new]
    fn new() -> Self {
        let (tap, reader) = fairtrial_exec::Tap::new();
        Self {
            tap: Mutex::new(Some(tap)),
            reader: Mutex::new(reader),
        }
    }

    /// The next piece: the stream's descriptor, and the bytes. None once closed and read. Not for the main thread:
    /// no signal interrupts it.
    fn next<'py>(&self, py: Python<'py>) -> Option<(u8, Bound<'py, PyBytes>)> {
        let piece = process::detached(py, || {
            self.reader
                .lock()
                .expect("nothing panics under the lock")
                .next()
        });
        piece.map(|(stream, bytes)| {
            let descriptor = match stream {
                Stream::Stdout => 1,
                Stream::Stderr => 2,
            };
            (descriptor, PyBytes::new(py, &bytes))
        })
    }

    /// No further call is given to it; `next` ends once those that were have ended.
    fn close(&self) {
        self.tap
            .lock()
            .expect("nothing panics under the lock")
            .take();
    }
}

impl Tap {
    pub(crate) fn get(&self) -> Option<fairtrial_exec::Tap> {
        self.tap
            .lock()
            .expect("nothing panics under the lock")
            .clone()
    }
}
