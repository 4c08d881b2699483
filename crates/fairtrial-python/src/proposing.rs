//! A Python function that proposes candidates: what it is asked waits here for the threads that call it. None of them is
//! ours, for one that hangs can only be left alone; whoever asks knows when that is so.

use std::sync::{Arc, Mutex};

use fairtrial_candidates::search::{Callable, Request as Asked};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value as Json;
use tokio::sync::oneshot;

use crate::mailbox::Mailbox;
use crate::outcome::to_python;

/// What is to be asked.
#[pyclass(frozen, module = "fairtrial._engine")]
#[derive(Default)]
pub(crate) struct Requests(Arc<Mailbox<Request>>);

#[pymethods]
impl Requests {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The next request; None once closed. Not for the main thread.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Request>> {
        self.0.next(py)
    }

    /// Nothing more is asked.
    fn close(&self) {
        self.0.close();
    }
}

impl Requests {
    /// The function, as an evaluation asks it.
    pub(crate) fn callable(&self) -> Callable {
        let requests = Arc::clone(&self.0);
        Box::new(move |request: Asked| {
            let (answer, answered) = oneshot::channel();
            requests.put(Request {
                json: request.to_json(),
                answer: Mutex::new(Some(answer)),
            });
            Box::pin(async move {
                let lost = |_| Err("nobody answered".to_owned());
                answered.await.unwrap_or_else(lost)
            })
        })
    }
}

/// One request. Whoever drops it has declined.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Request {
    json: Json,
    answer: Mutex<Option<oneshot::Sender<Result<Json, String>>>>,
}

#[pymethods]
impl Request {
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.json)
    }

    /// Takes the answer, as JSON.
    fn answer(&self, text: &str) -> PyResult<()> {
        let answer = serde_json::from_str(text);
        self.end(Ok(
            answer.map_err(|error| PyValueError::new_err(error.to_string()))?
        ));
        Ok(())
    }

    /// There is no answer.
    fn decline(&self, why: String) {
        self.end(Err(why));
    }
}

impl Request {
    fn end(&self, answer: Result<Json, String>) {
        let mut sender = self.answer.lock().expect("nothing panics under the lock");
        if let Some(sender) = sender.take() {
            sender.send(answer).ok(); // nobody waits for it any more
        }
    }
}
