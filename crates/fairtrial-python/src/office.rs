//! Calls that the host carries: who waits for each, what they are told, and what the host is to hear of.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairtrial_cluster::parcel::{Attempt, Packer, Parcel};
use fairtrial_exec::{
    Answer, Call, CallHandle, CallId, Cancels, EngineError, Event, Listener, Observers,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::process;

/// All of one courier's calls.
pub(crate) struct Office {
    pub(crate) packer: Packer,
    pub(crate) observers: Observers,
    // A plain mutex: held to read or change a few words. No listener is told under it: whoever cancels has the
    // listener's lock, and then wants this one.
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    last_call: u64,
    waiting: HashMap<u64, Waiting>,
    orders: VecDeque<Order>,
    is_closed: bool,
    is_finished: bool,
}

struct Waiting {
    /// Until it is packed.
    call: Option<Box<Call>>,
    listener: Box<dyn Listener>,
    /// That it has begun was told.
    has_begun: bool,
}

/// What the host is to hear of.
pub(crate) enum Order {
    Run {
        call: u64,
        queue_timeout_s: Option<f64>,
        alone: bool,
    },
    Cancel(u64),
    Shutdown {
        cancel_queued: bool,
        kill_after: Option<f64>,
    },
    /// What the host told itself.
    Note(Py<PyAny>),
}

impl Office {
    pub(crate) fn new(packer: Packer) -> Self {
        Self {
            packer,
            observers: Observers::default(),
            state: Mutex::default(),
            woken: Condvar::new(),
        }
    }

    pub(crate) fn submit(
        self: &Arc<Self>,
        call: Call,
        alone: bool,
        listener: Box<dyn Listener>,
    ) -> Result<CallHandle, EngineError> {
        call.validate()?;
        let mut state = self.lock();
        if state.is_closed {
            return Err(EngineError::ShutDown);
        }
        // Under the lock, so that `submit` is told in the order of ids, and never after `shutdown`.
        state.last_call += 1;
        let id = state.last_call;
        self.observers.tell(Event::Submit { call: CallId(id) });
        state.orders.push_back(Order::Run {
            call: id,
            queue_timeout_s: call.queue_timeout.map(|time| time.as_secs_f64()),
            alone,
        });
        let waiting = Waiting {
            call: Some(Box::new(call)),
            listener,
            has_begun: false,
        };
        state.waiting.insert(id, waiting);
        drop(state);
        self.woken.notify_all();
        Ok(CallHandle::new(CallId(id), self.clone()))
    }

    pub(crate) fn pack(&self, call: u64) -> Option<Result<Parcel, EngineError>> {
        let packed = self.lock().waiting.get_mut(&call)?.call.take()?;
        Some(self.packer.pack(*packed, &call.to_string()))
    }

    pub(crate) fn open(
        &self,
        py: Python<'_>,
        (task, attempt): (u64, u32),
        envelope: &[u8],
        beside: &[Bound<'_, PyBytes>],
    ) -> Option<Answer> {
        let beside: Vec<Vec<u8>> = beside.iter().map(|each| each.as_bytes().to_vec()).collect();
        let of = Attempt { task, attempt };
        process::detached(py, || self.packer.open(envelope, beside, of))
    }

    /// Tells that it runs, unless that was told.
    pub(crate) fn began(&self, call: u64, worker_id: &str) {
        // Taken out for as long as it is told (see `state`); the host ends it after this, or it ended before.
        let Some(mut waiting) = self.lock().waiting.remove(&call) else {
            return;
        };
        waiting.tell_began(&self.observers, CallId(call), worker_id);
        self.lock().waiting.insert(call, waiting);
    }

    /// Tells who waits; nobody does if it ended before.
    pub(crate) fn end(&self, call: u64, answer: Answer) {
        let Some(mut waiting) = self.lock().waiting.remove(&call) else {
            return;
        };
        let id = CallId(call);
        let outcome = answer.as_ref().ok();
        let verdict = outcome.map(|outcome| outcome.verdict);
        if let Some(worker_id) = outcome.and_then(|outcome| outcome.metrics.worker_id.as_deref()) {
            waiting.tell_began(&self.observers, id, worker_id);
        }
        self.observers.tell(Event::Complete { call: id, verdict });
        waiting.listener.ended(answer);
    }

    pub(crate) fn finish(&self) {
        let left: Vec<u64> = {
            let mut state = self.lock();
            state.is_closed = true; // whatever comes now would wait for ever
            state.waiting.keys().copied().collect()
        };
        for call in left {
            self.end(call, Err(EngineError::ShutDown));
        }
        self.observers.tell(Event::Shutdown);
        self.lock().is_finished = true;
        self.woken.notify_all();
    }

    pub(crate) fn order(&self, order: Order) {
        self.lock().orders.push_back(order);
        self.woken.notify_all();
    }

    /// What there is to do; None if nothing comes within that time.
    pub(crate) fn next(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Order>> {
        let place = (&self.state, &self.woken);
        process::wait(py, place, timeout, |state| !state.orders.is_empty())?;
        Ok(self.lock().orders.pop_front())
    }

    /// Takes no more calls.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    pub(crate) fn wait_finished(&self, py: Python<'_>) -> PyResult<()> {
        let place = (&self.state, &self.woken);
        process::wait(py, place, None, |state| state.is_finished)?;
        Ok(())
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.lock().is_finished
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn tell_began(&mut self, observers: &Observers, call: CallId, worker_id: &str) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.listener.began(worker_id);
            let worker_id = worker_id.to_owned();
            observers.tell(Event::Start { call, worker_id });
        }
    }
}

impl Cancels for Office {
    fn cancel(&self, call: CallId) {
        self.order(Order::Cancel(call.0));
    }
}

impl Order {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let words = match self {
            Self::Run {
                call,
                queue_timeout_s,
                alone,
            } => ("run", call, queue_timeout_s, alone).into_pyobject(py)?,
            Self::Cancel(call) => ("cancel", call).into_pyobject(py)?,
            Self::Shutdown {
                cancel_queued,
                kill_after,
            } => ("shutdown", cancel_queued, kill_after).into_pyobject(py)?,
            Self::Note(note) => return Ok(note.into_bound(py)),
        };
        Ok(words.into_any())
    }
}
