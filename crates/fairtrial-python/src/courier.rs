//! Calls that the host carries to where they are run, by means of its own: handed out as bytes, taken back as bytes.
//!
//! Here is who waits for them, and what they are told; which call is carried where, the host decides.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fairtrial_cluster::BlobStore;
use fairtrial_cluster::envelope::{OutgoingBody, known};
use fairtrial_cluster::parcel::{Attempt, Packer};
use fairtrial_exec::{
    Answer, Call, CallHandle, CallId, Cancels, Captured, EngineError, ErrorReport, Event,
    ExitReason, InForce, Level, Listener, LocalConfig, Metrics, Observers, Outcome, SpillDir,
    SpillPolicy, Verdict,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::backend::{engine_error, told};
use crate::pending::{Pending, Slot, Teller};
use crate::process::{self, Own};
use crate::terms::Terms;

/// Why something was not done is a candidate's word at times; so many characters of it are told.
const MOST_REASON: usize = 4 << 10;

/// Who waits for calls that the host carries.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Courier {
    office: Own<Arc<Office>>,
}

struct Office {
    packer: Packer,
    observers: Observers,
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
enum Order {
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

#[pymethods]
impl Courier {
    /// What is large goes through the store of this URL, or beside envelopes. `python` is the version that pickles.
    #[new]
    fn new(blobs: Option<&str>, python: String) -> PyResult<Self> {
        let config = LocalConfig::from_env().map_err(engine_error)?;
        let spill = SpillPolicy {
            dir: SpillDir::new(&config.spill_dir),
            memfd_cap_bytes: config.memfd_cap_bytes.unwrap_or(u64::MAX),
            memory_limit_bytes: None,
        };
        let office = Office {
            packer: Packer::new(Some(python), store(blobs)?, spill),
            observers: Observers::default(),
            state: Mutex::default(),
            woken: Condvar::new(),
        };
        Ok(Self {
            office: Own::new(Arc::new(office)),
        })
    }

    /// Submits a call with its encoded arguments (a command: its input); `alone` is passed on to the host.
    #[pyo3(signature = (terms, arguments, alone=false))]
    fn submit(
        &self,
        terms: &Terms,
        arguments: &Bound<'_, PyBytes>,
        alone: bool,
    ) -> PyResult<Pending> {
        let slot = Arc::<Slot>::default();
        let call = terms.call(arguments.as_bytes().to_vec().into());
        let office = self.office.get()?;
        let handle = office.submit(call, alone, Box::new(Teller(slot.clone())));
        Ok(Pending::new(slot, handle.map_err(engine_error)?))
    }

    /// What there is to do: `("run", call, queue_timeout_s, alone)`, `("cancel", call)`, `("shutdown",
    /// cancel_queued, kill_after)`, or what was put; None if nothing comes within so many seconds.
    #[pyo3(signature = (timeout=None))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let office = self.office.get()?;
        let timeout = timeout.and_then(process::duration);
        let place = (&office.state, &office.woken);
        process::wait(py, place, timeout, |state| !state.orders.is_empty())?;
        let order = office.lock().orders.pop_front();
        order.map(|order| order.into_python(py)).transpose()
    }

    /// Tells whoever asks for the next thing to do of something.
    fn put(&self, note: Py<PyAny>) -> PyResult<()> {
        self.office.get()?.order(Order::Note(note));
        Ok(())
    }

    /// A call as it travels: its envelope, what goes beside it, and the digests of its directories. Once; None if it
    /// is over. What cannot be packed is answered so.
    fn pack<'py>(&self, py: Python<'py>, call: u64) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let office = self.office.get()?;
        let Some(packed) = process::detached(py, || office.pack(call)) else {
            return Ok(None);
        };
        match packed {
            Ok(parcel) => {
                let beside = pieces(py, &parcel.beside)?;
                let directories: Vec<String> =
                    parcel.directories.iter().map(ToString::to_string).collect();
                let envelope = PyBytes::new(py, &parcel.envelope);
                (envelope, beside, directories).into_pyobject(py).map(Some)
            }
            Err(error) => {
                office.end(call, Err(error));
                Ok(None)
            }
        }
    }

    /// The archive of a directory that was packed.
    fn directory<'py>(&self, py: Python<'py>, digest: &str) -> PyResult<Bound<'py, PyBytes>> {
        let bad = |problem: String| PyValueError::new_err(problem);
        let named = digest.parse();
        let named = named.map_err(|error: fairtrial_cluster::BadDigest| bad(error.to_string()))?;
        let found = self.office.get()?.packer.directory(named);
        let found = found.ok_or_else(|| bad(format!("there is no directory {digest}")))?;
        Ok(PyBytes::new(py, &found.archive))
    }

    /// Takes a reply; false if it answers an older attempt, which is nobody's any more. The call waited so long here.
    /// With a `problem`, that is what its error says.
    #[pyo3(signature = (attempt, envelope, beside, waited_s, problem=None))]
    fn answer(
        &self,
        py: Python<'_>,
        attempt: (u64, u32),
        envelope: &[u8],
        beside: Vec<Bound<'_, PyBytes>>,
        waited_s: f64,
        problem: Option<String>,
    ) -> PyResult<bool> {
        let office = self.office.get()?;
        let Some(mut answer) = office.open(py, attempt, envelope, &beside) else {
            return Ok(false);
        };
        if let Ok(outcome) = &mut answer {
            add_wait(&mut outcome.metrics, waited_s);
            if let (Some(error), Some(problem)) = (&mut outcome.error, problem) {
                error.message = problem;
            }
        }
        office.end(attempt.0, answer);
        Ok(true)
    }

    /// Why a reply says that its call cannot be run there.
    fn reason(
        &self,
        py: Python<'_>,
        attempt: (u64, u32),
        envelope: &[u8],
        beside: Vec<Bound<'_, PyBytes>>,
    ) -> PyResult<String> {
        let office = self.office.get()?;
        let error = match office.open(py, attempt, envelope, &beside) {
            Some(Ok(outcome)) => outcome
                .error
                .map(|error| format!("{}: {}", error.kind, error.message)),
            Some(Err(error)) => Some(error.to_string()),
            None => None,
        };
        let reason = error.unwrap_or_else(|| "it could not be set up".to_owned());
        Ok(reason.chars().take(MOST_REASON).collect())
    }

    /// A call runs on this worker. Told once, however often it has to be run.
    fn began(&self, call: u64, worker_id: &str) -> PyResult<()> {
        self.office.get()?.began(call, worker_id);
        Ok(())
    }

    /// A worker exists that a call began on.
    #[pyo3(signature = (worker_id, pid, zygote_threads))]
    fn worker_started(
        &self,
        worker_id: String,
        pid: u32,
        zygote_threads: Option<u32>,
    ) -> PyResult<()> {
        self.office.get()?.observers.tell(Event::WorkerStart {
            worker_id,
            pid,
            zygote_threads,
        });
        Ok(())
    }

    /// It is gone, for a reason of EX-91.
    fn worker_exited(&self, worker_id: String, reason: &str) -> PyResult<()> {
        let reason = ExitReason::named(reason)
            .ok_or_else(|| PyValueError::new_err(format!("no worker exits for `{reason}`")))?;
        self.office.get()?.observers.tell(Event::WorkerExit {
            worker_id,
            reason,
            status: None, // these two stay on the node
            stale_frames: 0,
        });
        Ok(())
    }

    /// Calls do without a mechanism that their level has.
    fn degraded(&self, level: &str, mechanism: &str, reason: String) -> PyResult<()> {
        let requested: Level = level
            .parse()
            .map_err(|error: fairtrial_exec::InvalidCall| PyValueError::new_err(error.problem))?;
        let mechanism = known(mechanism)
            .ok_or_else(|| PyValueError::new_err("there are too many mechanisms"))?;
        self.office.get()?.observers.tell(Event::Degraded {
            requested,
            mechanism,
            reason,
        });
        Ok(())
    }

    /// Ends a call that was never begun: it was cancelled, or waited too long.
    fn call_off(&self, call: u64, queue_timed_out: bool) -> PyResult<()> {
        let (kind, message) = match queue_timed_out {
            true => ("QueueTimeout", "it waited too long for a free slot"),
            false => ("Cancelled", "the call was cancelled"),
        };
        self.office.get()?.end(call, Ok(never_begun(kind, message)));
        Ok(())
    }

    /// Ends a call that nobody can run: `lost` by those who had it, or for want of a cluster.
    fn fail(&self, call: u64, is_lost: bool, problem: String) -> PyResult<()> {
        let code = if is_lost { "lost" } else { "ray" };
        let error = EngineError::Elsewhere { code, problem };
        self.office.get()?.end(call, Err(error));
        Ok(())
    }

    /// The host carries nothing any more.
    fn finish(&self) -> PyResult<()> {
        self.office.get()?.finish();
        Ok(())
    }

    /// Takes no more calls and ends. Ctrl-C interrupts the waiting, not the end.
    fn shutdown(
        &self,
        py: Python<'_>,
        wait: bool,
        cancel_queued: bool,
        kill_after: Option<f64>,
    ) -> PyResult<()> {
        if self.office.is_the_parents() {
            return Ok(());
        }
        let office = self.office.get()?;
        office.lock().is_closed = true;
        office.order(Order::Shutdown {
            cancel_queued,
            kill_after,
        });
        if wait {
            process::wait(py, (&office.state, &office.woken), None, |state| {
                state.is_finished
            })?;
            if !office.observers.is_told_here() {
                process::detached(py, || office.observers.finish());
            }
        }
        Ok(())
    }

    /// Whether it was shut down and nothing of it is left.
    fn is_finished(&self) -> bool {
        self.office.lock().is_finished
    }

    /// Calls `observer(name, fields)` for every event, in order, on a thread of its own.
    fn subscribe(&self, observer: Py<PyAny>) -> PyResult<()> {
        let added = self.office.observers.add(told(observer));
        added.map_err(engine_error)
    }
}

impl Office {
    fn submit(
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

    fn pack(&self, call: u64) -> Option<Result<fairtrial_cluster::parcel::Parcel, EngineError>> {
        let packed = self.lock().waiting.get_mut(&call)?.call.take()?;
        Some(self.packer.pack(*packed, &call.to_string()))
    }

    fn open(
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
    fn began(&self, call: u64, worker_id: &str) {
        // Taken out for as long as it is told (see `state`); only the host's thread that is here now ends it.
        let Some(mut waiting) = self.lock().waiting.remove(&call) else {
            return;
        };
        waiting.tell_began(&self.observers, CallId(call), worker_id);
        self.lock().waiting.insert(call, waiting);
    }

    /// Tells who waits; nobody does if it ended before.
    fn end(&self, call: u64, answer: Answer) {
        let Some(mut waiting) = self.lock().waiting.remove(&call) else {
            return;
        };
        let id = CallId(call);
        let outcome = answer.as_ref().ok();
        let verdict = outcome.map(|outcome| outcome.verdict);
        if let Some(worker_id) = outcome.and_then(|outcome| outcome.metrics.worker_id.as_deref()) {
            waiting.tell_began(&self.observers, id, worker_id);
        }
        waiting.listener.ended(answer);
        self.observers.tell(Event::Complete { call: id, verdict });
    }

    fn finish(&self) {
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

    fn order(&self, order: Order) {
        self.lock().orders.push_back(order);
        self.woken.notify_all();
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
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
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

/// The store of a URL, with what the environment says of it.
pub(crate) fn store(url: Option<&str>) -> PyResult<Option<BlobStore>> {
    let env: std::collections::BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    let open = |url| BlobStore::open(url, &env);
    let opened = url.map(open).transpose();
    opened.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Pieces as Python's bytes.
pub(crate) fn pieces<'py>(
    py: Python<'py>,
    beside: &[OutgoingBody],
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for piece in beside {
        let bytes = piece
            .bytes()
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        list.append(PyBytes::new(py, &bytes))?;
    }
    Ok(list)
}

/// A call's wait began where it was submitted.
fn add_wait(metrics: &mut Metrics, waited_s: f64) {
    if let (Some(queue_ns), Some(waited)) = (&mut metrics.queue_ns, process::duration(waited_s)) {
        let waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        *queue_ns = queue_ns.saturating_add(waited_ns);
    }
}

fn never_begun(kind: &str, message: &str) -> Outcome {
    Outcome {
        verdict: Verdict::Cancelled,
        value: None,
        error: Some(ErrorReport::new(kind, message)),
        exit: None,
        killed_by: None,
        stdout: Captured::default(),
        stderr: Captured::default(),
        metrics: Metrics::default(),
        in_force: InForce {
            mode: "queued",
            ..InForce::default()
        },
        upper: None,
    }
}
