//! What happened, as plain data. The value stays encoded: Python decodes it, in its own thread, when asked.

use std::sync::Mutex;

use fairtrial_exec::{Body, EncodedValue, Exit, InvalidCall, KilledBy};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use serde_json::Value as Json;

/// What happened to a call.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Outcome {
    outcome: fairtrial_exec::Outcome,
    value: Mutex<Option<EncodedValue>>,
}

impl Outcome {
    pub(crate) fn new(mut outcome: fairtrial_exec::Outcome) -> Self {
        let value = Mutex::new(outcome.value.take());
        Self { outcome, value }
    }

    fn take_body(&self) -> PyResult<Body> {
        let value = self
            .value
            .lock()
            .expect("nothing panics under the lock")
            .take();
        value
            .map(|value| value.body)
            .ok_or_else(|| PyRuntimeError::new_err("there is no value, or it was taken"))
    }
}

#[pymethods]
impl Outcome {
    #[getter]
    fn verdict(&self) -> &'static str {
        self.outcome.verdict.name()
    }

    /// `(type, message, traceback, pickled exception or None)`, or None.
    #[getter]
    fn error<'py>(
        &self,
        py: Python<'py>,
    ) -> Option<(&str, &str, &str, Option<Bound<'py, PyBytes>>)> {
        let error = self.outcome.error.as_ref()?;
        let exception = error
            .exception
            .as_ref()
            .map(|bytes| PyBytes::new(py, bytes));
        Some((&error.kind, &error.message, &error.traceback, exception))
    }

    /// `(code, signal, who killed it)`, one of the first two None, mostly also the last; or None.
    #[getter]
    fn exit(&self) -> Option<(Option<i32>, Option<i32>, Option<&'static str>)> {
        let killed_by = self.outcome.killed_by.map(KilledBy::name);
        Some(match self.outcome.exit? {
            Exit::Code(code) => (Some(code), None, killed_by),
            Exit::Signal(signal) => (None, Some(signal), killed_by),
        })
    }

    /// Captured output of one stream (1 or 2): the text, and how many bytes were dropped from it.
    fn output(&self, stream: u8) -> (String, u64) {
        let captured = match stream {
            1 => &self.outcome.stdout,
            _ => &self.outcome.stderr,
        };
        (captured.text(), captured.dropped)
    }

    /// The contract's `tried_alone` object.
    fn tried_alone<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let first = self.outcome.tried_alone.as_ref();
        to_python(py, &first.map_or(Json::Null, |first| first.to_json()))
    }

    /// The contract's `metrics` object.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.outcome.metrics.to_json())
    }

    /// The contract's `in_force` object.
    fn in_force<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.outcome.in_force.to_json())
    }

    /// `(format, size, whether it is inline)` of the value, or None.
    fn value_form(&self) -> Option<(String, usize, bool)> {
        let value = self.value.lock().expect("nothing panics under the lock");
        let value = value.as_ref()?;
        let inline = matches!(value.body, Body::Inline(_));
        Some((value.format.to_string(), value.body.len(), inline))
    }

    /// The encoded value, once.
    fn take_value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.take_body()?.bytes()))
    }

    /// Moves a large value's pages to where a private anonymous mapping of its size begins, once.
    fn move_value(&self, address: usize) -> PyResult<()> {
        let Body::Mapped(mapping) = self.take_body()? else {
            return Err(PyRuntimeError::new_err("the value is inline"));
        };
        // SAFETY: the only caller, `_values.py`, has just made a private mapping of this size there, which nobody
        // else knows of and which its `mmap` object will unmap.
        unsafe { mapping.move_onto(std::ptr::with_exposed_provenance_mut(address)) }
            .map_err(|error| PyOSError::new_err(error.to_string()))
    }
}

/// The JSON form of an encoded value, as text.
#[pyfunction]
pub(crate) fn value_json(format: &str, body: &[u8]) -> PyResult<String> {
    let format = format
        .parse()
        .map_err(|problem: InvalidCall| PyValueError::new_err(problem.to_string()))?;
    let value = EncodedValue {
        format,
        body: Body::Inline(body.to_vec()),
    };
    let mut json = Vec::new();
    value
        .write_json(&mut json)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(String::from_utf8(json).expect("JSON is UTF-8"))
}

/// JSON as Python's own objects.
pub(crate) fn to_python<'py>(py: Python<'py>, json: &Json) -> PyResult<Bound<'py, PyAny>> {
    Ok(match json {
        Json::Null => py.None().into_bound(py),
        Json::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => value.into_pyobject(py)?.into_any(),
            (None, Some(value)) => value.into_pyobject(py)?.into_any(),
            (None, None) => number.as_f64().into_pyobject(py)?.into_any(),
        },
        Json::String(text) => text.into_pyobject(py)?.into_any(),
        Json::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(to_python(py, item)?)?;
            }
            list.into_any()
        }
        Json::Object(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                dict.set_item(key, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
