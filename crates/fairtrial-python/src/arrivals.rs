//! Parcels where their calls are run: opened, run by the local engine, answered. Nothing of a call is unpickled here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairtrial_cluster::envelope::{ErrorCode, TaskError};
use fairtrial_cluster::parcel::{self, Attempt, Reply};
use fairtrial_cluster::{BlobStore, TreeCache};
use fairtrial_exec::{EngineError, LocalConfig, Streams};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::backend::{Backend, engine_error};
use crate::courier::{pieces, store};
use crate::pending::{Pending, Slot, Teller};
use crate::process;

/// Unpacked directories may take so much beyond those in use.
const CACHE_BYTES: u64 = 1 << 30;

/// Where parcels arrive.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Arrivals {
    host: parcel::Host,
    store: Option<BlobStore>,
    node: String,
}

/// A parcel that arrived.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Arrived {
    attempt: Attempt,
    stage: Mutex<Stage>,
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
        let config = LocalConfig::from_env().map_err(engine_error)?;
        let cache = config.cache_dir();
        let cache = cache.unwrap_or_else(|| std::env::temp_dir().join("fairtrial-cache"));
        let store = store(blobs)?;
        let trees = TreeCache::at(&cache, CACHE_BYTES);
        Ok(Self {
            host: parcel::Host::new(trees, store.clone()),
            store,
            node,
        })
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
        let listener = hold.until_ended(Box::new(Teller(slot.clone())));
        let engine = engine.engine()?;
        match engine.submit_for(call, Streams::default(), listener) {
            Ok(handle) => Ok(Some(Pending::new(slot, handle))),
            Err(error) => {
                *stage = Stage::Untaken(error);
                Ok(None)
            }
        }
    }

    /// What goes back: its kind (`outcome`, `refused`, `error` or `failed`), the envelope, and what goes beside it. Once,
    /// after the call has ended.
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
        let reply = process::detached(py, || match answer {
            Err(error) => Reply::unrun(error, arrived.attempt, &self.node),
            Ok(answer) => Reply::seal(answer, arrived.attempt, &self.node, self.store.as_ref()),
        });
        let beside = pieces(py, &reply.beside)?;
        (reply.kind, PyBytes::new(py, &reply.envelope), beside).into_pyobject(py)
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

/// Nobody of the same user may look into this process from now on: its environment may hold the cluster's token.
#[pyfunction]
pub(crate) fn become_undumpable() -> PyResult<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| {
        crate::EngineError::new_err(format!("cannot make this process undumpable: {error}"))
    })
}
