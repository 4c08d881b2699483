//! A submitted call: told by the engine's thread, waited for and cancelled by Python's.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use fairtrial_exec::{Answer, Body, CallHandle, EngineError, Listener, ResultFormat, Verdict};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::outcome::Outcome;
use crate::process;
use crate::watch::{Queue, Watch};

/// A submitted call.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Pending {
    slot: Arc<Slot>,
    handle: CallHandle,
    generation: u64,
}

/// What is known of a call.
#[derive(Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    began: bool,
    /// The host gave it up; its answer still comes.
    cancelled: bool,
    /// How it ended, once answered.
    ending: Option<&'static str>,
    /// Until it is taken.
    answer: Option<Answer>,
    /// Somebody sleeps in `wait`.
    waiting: u32,
    watcher: Option<(Py<PyAny>, Arc<Queue>)>,
}

impl State {
    fn is_over(&self) -> bool {
        self.cancelled || self.ending.is_some()
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under the lock")
    }

    /// The first answer counts.
    fn answer(&self, answer: Answer) {
        let mut state = self.lock();
        if state.ending.is_none() {
            state.ending = Some(ending(&answer));
            state.answer = Some(answer);
            self.tell(state);
        }
    }

    fn tell(&self, mut state: MutexGuard<'_, State>) {
        let watcher = state.watcher.take();
        let somebody_waits = state.waiting > 0;
        drop(state); // first: who wakes up wants the lock
        if somebody_waits {
            self.woken.notify_all();
        }
        if let Some((future, queue)) = watcher {
            queue.push(future);
        }
    }
}

/// The engine's end of a slot.
pub(crate) struct Teller(pub(crate) Arc<Slot>);

impl Listener for Teller {
    fn wants_start(&self) -> bool {
        !self.0.lock().cancelled
    }

    fn began(&self, _worker_id: &str) {
        self.0.lock().began = true;
    }

    fn ended(self: Box<Self>, answer: Answer) {
        self.0.answer(answer);
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.answer(Err(EngineError::ShutDown)); // unless it was told: the engine ended before it could answer
    }
}

impl Pending {
    pub(crate) fn new(slot: Arc<Slot>, handle: CallHandle) -> Self {
        Self {
            slot,
            handle,
            generation: process::generation(),
        }
    }

    /// In a forked child no engine will ever answer, and the lock may have been held as it was forked.
    fn check_process(&self) -> PyResult<()> {
        // In a forked child the lock may be that of a thread which is not there; what was answered before stays so.
        let was_answered = || {
            self.slot
                .state
                .try_lock()
                .is_ok_and(|state| state.ending.is_some())
        };
        if self.generation == process::generation() || was_answered() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this call was submitted before os.fork(): only the parent process can wait for it",
        ))
    }

    /// The engine's answer, once. For after `wait_answer`.
    pub(crate) fn take_answer(&self) -> PyResult<Answer> {
        self.check_process()?;
        let answer = self.slot.lock().answer.take();
        answer.ok_or_else(|| PyRuntimeError::new_err("not answered, or taken before"))
    }

    fn wait_for(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        ready: impl Fn(&State) -> bool + Send + Sync,
    ) -> PyResult<bool> {
        self.check_process()?;
        let timeout = timeout.and_then(process::duration);
        {
            let mut state = self.slot.lock();
            if ready(&state) {
                return Ok(true);
            }
            if timeout.is_some_and(|timeout| timeout.is_zero()) {
                return Ok(false);
            }
            state.waiting += 1;
        }
        let waited = process::wait(py, (&self.slot.state, &self.slot.woken), timeout, |state| {
            ready(state)
        });
        self.slot.lock().waiting -= 1;
        waited
    }
}

#[pymethods]
impl Pending {
    /// Waits until the call is over or cancelled; tells whether it is.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait_for(py, timeout, State::is_over)
    }

    /// The pickle that the call gave, once, if it is small and has no buffers beside it: the common case.
    fn take_pickle<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.check_process()?;
        let mut state = self.slot.lock();
        let cancelled = state.cancelled;
        let pickle = match &mut state.answer {
            Some(Ok(outcome)) if !cancelled => take_pickle(outcome),
            _ => None,
        };
        Ok(pickle.map(|body| PyBytes::new(py, &body[PICKLE_HEAD_BYTES..])))
    }

    /// Waits until the engine has answered, cancelled or not; tells whether it has.
    #[pyo3(signature = (timeout=None))]
    fn wait_answer(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait_for(py, timeout, |state| state.ending.is_some())
    }

    /// The call's number, as events have it.
    #[getter]
    fn call_id(&self) -> u64 {
        self.handle.id().0
    }

    /// Whether the call is over or cancelled.
    fn over(&self) -> PyResult<bool> {
        self.check_process()?;
        Ok(self.slot.lock().is_over())
    }

    /// Whether a worker acknowledged the call and it is not over.
    fn running(&self) -> PyResult<bool> {
        self.check_process()?;
        let state = self.slot.lock();
        Ok(state.began && !state.is_over())
    }

    /// How it ended: `ok`, `cancelled`, `uninitialized` (its worker's initializer raised) or `failed`; None if it has
    /// not.
    fn ending(&self) -> PyResult<Option<&'static str>> {
        self.check_process()?;
        let state = self.slot.lock();
        Ok(if state.cancelled {
            Some("cancelled")
        } else {
            state.ending
        })
    }

    /// Gives the call up: queued, it never starts; running, it is killed. False if it was over before.
    fn cancel(&self) -> PyResult<bool> {
        self.check_process()?;
        let mut state = self.slot.lock();
        if state.cancelled {
            return Ok(true);
        }
        if state.ending.is_some() {
            return Ok(false);
        }
        state.cancelled = true;
        self.handle.cancel();
        self.slot.tell(state);
        Ok(true)
    }

    /// Has `future` put into `watch` when the call is over. False if it is already.
    fn watch(&self, watch: &Watch, future: Py<PyAny>) -> PyResult<bool> {
        self.check_process()?;
        let mut state = self.slot.lock();
        if state.is_over() {
            return Ok(false);
        }
        state.watcher = Some((future, watch.queue()));
        Ok(true)
    }

    /// The outcome, once; raises if the engine failed. For after `wait_answer`.
    fn take(&self) -> PyResult<Outcome> {
        self.check_process()?;
        match self.slot.lock().answer.take() {
            Some(Ok(outcome)) => Ok(Outcome::new(outcome)),
            Some(Err(error)) => Err(crate::EngineError::new_err(error.to_string())),
            None => Err(PyRuntimeError::new_err("not answered, or taken before")),
        }
    }
}

/// Length of the pickle and number of buffers beside it, as `protocol.rs` has it.
const PICKLE_HEAD_BYTES: usize = 16;

/// A value's pickle with its head, if it is small and has no buffers.
fn take_pickle(outcome: &mut fairtrial_exec::Outcome) -> Option<Vec<u8>> {
    let value = outcome.value.take_if(|value| {
        let whole = matches!(&value.body, Body::Inline(bytes) if bytes.get(8..PICKLE_HEAD_BYTES) == Some(&[0; 8]));
        value.format == ResultFormat::Pickle && whole
    })?;
    match value.body {
        Body::Inline(bytes) => Some(bytes),
        Body::Mapped(_) => None,
    }
}

fn ending(answer: &Answer) -> &'static str {
    let Ok(outcome) = answer else {
        return "failed";
    };
    let kind = outcome.error.as_ref().map(|error| error.kind.as_str());
    match (outcome.verdict, kind) {
        (Verdict::Ok, _) => "ok",
        (Verdict::Cancelled, Some("QueueTimeout")) => "failed",
        (Verdict::Cancelled, _) => "cancelled",
        (Verdict::SetupFailed, Some("InitializerFailed")) => "uninitialized",
        _ => "failed",
    }
}
