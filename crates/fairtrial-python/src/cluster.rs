//! A backend whose calls agents run, in a Python host.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use fairtrial_cluster::{
    BlobStore, ClusterBackend, ClusterConfig, Endpoint, Options, RedisDispatch,
};
use fairtrial_exec::{Backend as _, LocalConfig, Shutdown};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::EngineError;
use crate::backend::{Ending, block_on, engine_error, told};
use crate::pending::{Pending, Slot, Teller};
use crate::process::{self, Own};
use crate::terms::Terms;

/// Agents that lease calls from a Redis server. Connects to nothing until the first call.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Cluster {
    backend: Own<Arc<ClusterBackend<RedisDispatch>>>,
}

#[pymethods]
impl Cluster {
    /// `options` are texts by name, as a URL's query has them, and win over it.
    #[new]
    fn new(url: &str, options: BTreeMap<String, String>, python: String) -> PyResult<Self> {
        let bad = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
        let mut settings = Options::from_url(url).map_err(|error| bad(&error))?;
        for (key, value) in &options {
            settings.set(key, value).map_err(|error| bad(&error))?;
        }
        let endpoint = Endpoint::parse(url).map_err(|error| bad(&error))?;
        let config = LocalConfig::from_env().map_err(engine_error)?;
        let store = BlobStore::find(settings.blobs.as_deref(), &config);
        let store = store.map_err(|error| bad(&error))?;
        let config = settings.config("python", config.spill_policy());
        let config = ClusterConfig {
            python: Some(python),
            ..config.map_err(|error| bad(&error))?
        };
        let dispatch = RedisDispatch::new(endpoint);
        let dispatch = dispatch.map_err(|error| EngineError::new_err(error.to_string()))?;
        Ok(Self {
            backend: Own::new(Arc::new(ClusterBackend::new(dispatch, store, config))),
        })
    }

    /// Submits a call with its encoded arguments (a command: its input).
    fn submit(&self, terms: &Terms, arguments: &Bound<'_, PyBytes>) -> PyResult<Pending> {
        let slot = Arc::<Slot>::default();
        let call = terms.call(arguments.as_bytes().to_vec().into());
        let handle = self
            .backend
            .get()?
            .submit_for(call, Box::new(Teller(slot.clone())))
            .map_err(engine_error)?;
        Ok(Pending::new(slot, handle))
    }

    /// Takes no more calls and ends. Ctrl-C interrupts the waiting, not the end.
    fn shutdown(
        &self,
        py: Python<'_>,
        wait: bool,
        cancel_queued: bool,
        kill_after: Option<f64>,
    ) -> PyResult<()> {
        if self.backend.is_the_parents() {
            return Ok(());
        }
        let how = Shutdown {
            wait,
            cancel_queued,
            kill_after: kill_after.and_then(process::duration),
        };
        if !wait {
            py.detach(|| block_on(self.backend.shutdown(how)));
            return Ok(());
        }
        let from_handler = self.backend.is_in_handler();
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let (backend, ending) = (Arc::clone(self.backend.get()?), Ending(ended.clone()));
        let thread = std::thread::Builder::new()
            .name("fairtrial-shutdown".into())
            .spawn(move || {
                let _ending = ending; // however it ends
                block_on(backend.shut_down(how, from_handler));
                drop(backend);
            });
        if thread.is_err() {
            // No thread to be had: then here, and Ctrl-C waits.
            py.detach(|| block_on(self.backend.shut_down(how, from_handler)));
        }
        process::wait(py, (&ended.0, &ended.1), None, |ended| *ended)?;
        Ok(())
    }

    /// Whether it was shut down and nothing of it is left.
    fn is_finished(&self) -> bool {
        self.backend.is_finished()
    }

    /// Calls `observer(name, fields)` for every event, in order, on a thread of its own.
    fn subscribe(&self, observer: Py<PyAny>) -> PyResult<()> {
        self.backend.subscribe(told(observer)).map_err(engine_error)
    }
}
