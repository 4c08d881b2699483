//! Parcels where their calls are run: opened, run by the local engine, answered. Nothing of a call is unpickled here.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fairtrial_cluster::envelope::{ErrorCode, TaskError};
use fairtrial_cluster::parcel::{self, Attempt, Reply};
use fairtrial_cluster::{BlobStore, TreeCache};
use fairtrial_exec::{Answer, Backend as _, EngineError, Listener, LocalConfig, Streams};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::backend::{Backend, engine_error};
use crate::courier::{pieces, store};
use crate::lookout::{Lookout, News, Started};
use crate::pending::{Pending, Slot, Teller};
use crate::process;

/// Unpacked directories may take so much beyond those in use.
const CACHE_BYTES: u64 = 1 << 30;

/// A reply waits so long for its worker's exit, which follows the call's end at once.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// Where parcels arrive.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Arrivals {
    host: parcel::Host,
    store: Option<BlobStore>,
    node: String,
    lookout: Arc<Lookout>,
}

/// A parcel that arrived.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Arrived {
    attempt: Attempt,
    stage: Mutex<Stage>,
    lookout: Arc<Lookout>,
    /// The name of its worker, once it has begun.
    begun: Arc<OnceLock<String>>,
}

/// How far a parcel has come.
enum Stage {
    Open(Box<parcel::Arrived>),
    Begun,
    /// It cannot be run.
    Unread(TaskError),
    /// The engine does not take it.
    Untaken(EngineError),
}

#[pymethods]
impl Arrivals {
    /// Of the node of this name, which reaches the store of this URL.
    #[new]
    fn new(blobs: Option<&str>, node: String) -> PyResult<Self> {
        let mut config = LocalConfig::from_env().map_err(engine_error)?;
        config.guards_descriptors = true;
        let cache = config.cache_dir();
        let cache = cache.unwrap_or_else(|| std::env::temp_dir().join("fairtrial-cache"));
        let store = store(blobs, &config)?;
        let trees = TreeCache::at(&cache, CACHE_BYTES);
        Ok(Self {
            host: parcel::Host::new(trees, store.clone()),
            store,
            node,
            lookout: Arc::default(),
        })
    }

    /// Hears of the engine's workers from now on. `wake()` is called, on any thread, when there is news.
    fn listen(&self, engine: &Backend, wake: Py<PyAny>) -> PyResult<()> {
        self.lookout.wake_by(wake);
        let lookout = Arc::clone(&self.lookout);
        let heard = Box::new(move |event: &_| lookout.hear(event));
        engine.engine()?.subscribe(heard).map_err(engine_error)
    }

    /// What no reply tells: `("worker_exit", worker_id, reason)` and `("degraded", level, mechanism, reason)`. Each once;
    /// the `last` time also what was kept for replies.
    #[pyo3(signature = (last=false))]
    fn news<'py>(&self, py: Python<'py>, last: bool) -> PyResult<Bound<'py, PyList>> {
        let news = match last {
            true => self.lookout.last_news(),
            false => self.lookout.news(),
        };
        let news = news.iter().map(|each: &News| each.to_python(py));
        PyList::new(py, news.collect::<PyResult<Vec<_>>>()?)
    }

    /// Workers that calls began on and that are not gone.
    fn workers(&self) -> Vec<String> {
        self.lookout.living()
    }

    /// Opens a parcel of a task's attempt; what is wrong with it, its reply tells.
    fn open(
        &self,
        py: Python<'_>,
        attempt: (u64, u32),
        envelope: &[u8],
        beside: Vec<Bound<'_, PyBytes>>,
    ) -> Arrived {
        let (task, attempt) = attempt;
        let beside: Vec<Vec<u8>> = beside.iter().map(|each| each.as_bytes().to_vec()).collect();
        let stage = match process::detached(py, || self.host.open(envelope, beside)) {
            Ok(arrived) => Stage::Open(Box::new(arrived)),
            Err(error) => Stage::Unread(error),
        };
        Arrived {
            attempt: Attempt { task, attempt },
            stage: Mutex::new(stage),
            lookout: Arc::clone(&self.lookout),
            begun: Arc::default(),
        }
    }

    /// Digests of directories that it needs and that are not here.
    fn lacks(&self, py: Python<'_>, arrived: &Arrived) -> Vec<String> {
        process::detached(py, || {
            arrived.advance(|open| {
                let lacking = self.host.lacks(open)?;
                Ok(lacking.iter().map(ToString::to_string).collect())
            })
        })
        .unwrap_or_default() // it cannot be run, and its reply tells why
    }

    /// Unpacks a directory that it needs.
    fn unpack(&self, py: Python<'_>, arrived: &Arrived, digest: &str, archive: &[u8]) {
        process::detached(py, || {
            arrived.advance(|open| {
                let named = digest.parse().map_err(|_| TaskError {
                    code: ErrorCode::Invalid,
                    message: format!("`{digest}` names no directory"),
                })?;
                self.host.unpack(open, named, archive)
            })
        });
    }

    /// Gives its call to the engine; None if it cannot be run, and its reply tells why.
    fn submit(&self, engine: &Backend, arrived: &Arrived) -> PyResult<Option<Pending>> {
        let mut stage = arrived.lock();
        let open = match std::mem::replace(&mut *stage, Stage::Begun) {
            Stage::Open(open) => open,
            other => {
                *stage = other;
                return Ok(None);
            }
        };
        let (call, hold) = match open.call() {
            Ok(ready) => ready,
            Err(error) => {
                *stage = Stage::Unread(error);
                return Ok(None);
            }
        };
        let slot = Arc::<Slot>::default();
        let listener = hold.until_ended(Box::new(Noting {
            teller: Teller(slot.clone()),
            is_own: call.has_its_own_worker(),
            begun: Arc::clone(&arrived.begun),
            lookout: Arc::clone(&self.lookout),
        }));
        let engine = engine.engine()?;
        match engine.submit_for(call, Streams::default(), listener) {
            Ok(handle) => Ok(Some(Pending::new(slot, handle))),
            Err(error) => {
                *stage = Stage::Untaken(error);
                Ok(None)
            }
        }
    }

    /// What goes back: its kind (`outcome`, `refused`, `error` or `failed`), the envelope, what goes beside it, and its
    /// worker if it began: `((worker_id, pid, zygote_threads, closed_fds), exit)`, with why it ended if the call was its
    /// only one. Once, after the call has ended.
    fn reply<'py>(
        &self,
        py: Python<'py>,
        arrived: &Arrived,
        pending: Option<&Pending>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let stage = std::mem::replace(&mut *arrived.lock(), Stage::Begun);
        let answer = match (stage, pending) {
            (Stage::Unread(error), _) => Err(error),
            (Stage::Untaken(error), _) => Ok(Err(error)),
            (Stage::Begun, Some(pending)) => Ok(pending.take_answer()?),
            (Stage::Open(_) | Stage::Begun, _) => {
                return Err(PyRuntimeError::new_err("it was not run"));
            }
        };
        let (reply, served) = process::detached(py, || {
            let reply = match answer {
                Err(error) => Reply::unrun(error, arrived.attempt, &self.node),
                Ok(answer) => Reply::seal(answer, arrived.attempt, &self.node, self.store.as_ref()),
            };
            let worker_id = arrived.begun.get();
            let served = worker_id.and_then(|id| self.lookout.served(id, EXIT_PATIENCE));
            (reply, served)
        });
        let worker = served.map(|(started, exit)| (started, exit.map(|why| why.name())));
        let beside = pieces(py, &reply.beside)?;
        let envelope = PyBytes::new(py, &reply.envelope);
        (reply.kind, envelope, beside, worker).into_pyobject(py)
    }
}

#[pymethods]
impl Arrived {
    /// Its worker, `(worker_id, pid, zygote_threads, closed_fds)`, once it has begun.
    fn worker(&self) -> Option<Started> {
        self.lookout.started(self.begun.get()?)
    }
}

impl Arrived {
    /// Goes on with a parcel that is open; what goes wrong stays with it.
    fn advance<T>(
        &self,
        work: impl FnOnce(&mut parcel::Arrived) -> Result<T, TaskError>,
    ) -> Option<T> {
        let mut stage = self.lock();
        let Stage::Open(open) = &mut *stage else {
            return None;
        };
        match work(open) {
            Ok(done) => Some(done),
            Err(error) => {
                *stage = Stage::Unread(error);
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes on which worker a call begins.
struct Noting {
    teller: Teller,
    is_own: bool,
    begun: Arc<OnceLock<String>>,
    lookout: Arc<Lookout>,
}

impl Listener for Noting {
    fn wants_start(&self) -> bool {
        self.teller.wants_start()
    }

    fn began(&self, worker_id: &str) {
        self.lookout.began(worker_id, self.is_own);
        self.begun.get_or_init(|| worker_id.to_owned()); // an engine begins no call twice
        self.teller.began(worker_id);
    }

    fn ended(self: Box<Self>, answer: Answer) {
        Box::new(self.teller).ended(answer);
    }
}

/// Nobody of the same user may look into this process from now on: its environment may hold the cluster's token.
#[pyfunction]
pub(crate) fn become_undumpable() -> PyResult<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| {
        crate::EngineError::new_err(format!("cannot make this process undumpable: {error}"))
    })
}
