//! Calls that the host carries to where they are run, by means of its own: handed out as bytes, taken back as bytes.
//!
//! Here is what the host asks and says; which call is carried where, it decides. Who waits is in `office.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairtrial_cluster::envelope::{OutgoingBody, known};
use fairtrial_cluster::parcel::Packer;
use fairtrial_cluster::{BlobStore, unrun};
use fairtrial_exec::{EngineError, Event, ExitReason, Level, LocalConfig, Metrics, Verdict};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::backend::{engine_error, told};
use crate::office::{Office, Order};
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

#[pymethods]
impl Courier {
    /// What is large goes through the store of this URL, or beside envelopes. `python` is the version that pickles.
    #[new]
    fn new(blobs: Option<&str>, python: String) -> PyResult<Self> {
        let config = LocalConfig::from_env().map_err(engine_error)?;
        let store = store(blobs, &config)?;
        let packer = Packer::new(Some(python), store, config.spill_policy());
        Ok(Self {
            office: Own::new(Arc::new(Office::new(packer))),
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
        let timeout = timeout.and_then(process::duration);
        let order = self.office.get()?.next(py, timeout)?;
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
    #[pyo3(signature = (worker_id, pid, zygote_threads, closed_fds))]
    fn worker_started(
        &self,
        worker_id: String,
        pid: u32,
        zygote_threads: Option<u32>,
        closed_fds: BTreeMap<u32, String>,
    ) -> PyResult<()> {
        self.office.get()?.observers.tell(Event::WorkerStart {
            worker_id,
            pid,
            zygote_threads,
            closed_fds,
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
        let mechanism = known(mechanism);
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
        let outcome = unrun(Verdict::Cancelled, kind, message);
        self.office.get()?.end(call, Ok(outcome));
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
        office.close();
        office.order(Order::Shutdown {
            cancel_queued,
            kill_after,
        });
        if wait {
            office.wait_finished(py)?;
            if !office.observers.is_told_here() {
                process::detached(py, || office.observers.finish());
            }
        }
        Ok(())
    }

    /// Whether it was shut down and nothing of it is left.
    fn is_finished(&self) -> bool {
        self.office.is_finished()
    }

    /// Calls `observer(name, fields)` for every event, in order, on a thread of its own.
    fn subscribe(&self, observer: Py<PyAny>) -> PyResult<()> {
        let added = self.office.observers.add(told(observer));
        added.map_err(engine_error)
    }
}

/// The store of a URL, with what the environment says of it.
pub(crate) fn store(url: Option<&str>, config: &LocalConfig) -> PyResult<Option<BlobStore>> {
    let open = |url| BlobStore::open(url, &config.host_env);
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
