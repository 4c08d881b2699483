//! A local backend in a Python host.

use std::future::Future;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use fairtrial_exec::{
    Arguments, Backend as _, Event, Level, LocalBackend, LocalConfig, Recycle, Shutdown, Streams,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::EngineError;
use crate::outcome::to_python;
use crate::pending::{Pending, Slot, Teller};
use crate::process::{self, Own};
use crate::tap::Tap;
use crate::terms::Terms;

/// In the number of a pickle's buffers: its function comes before it, by value (see the worker protocol).
const BY_VALUE: u64 = 1 << 63;

/// The engine on this machine. Starts nothing until the first call.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Backend {
    backend: Own<Arc<LocalBackend>>,
}

impl Backend {
    /// The engine itself; refused in a forked child, which has none.
    pub(crate) fn engine(&self) -> PyResult<Arc<LocalBackend>> {
        self.backend.get().map(Arc::clone)
    }

    /// One that somebody else set up.
    pub(crate) fn of(backend: &Arc<LocalBackend>) -> Self {
        Self {
            backend: Own::new(Arc::clone(backend)),
        }
    }
}

/// Options as Python's dict gives them; None leaves the default.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    max_workers: Option<usize>,
    idle_timeout_s: Option<f64>,
    max_calls: Option<u64>,
    max_age_s: Option<f64>,
    rss_growth_bytes: Option<u64>,
    after_error: bool,
    env_allow: Vec<String>,
    env_prefixes: Vec<String>,
    spill_dir: Option<PathBuf>,
    memfd_cap_bytes: Option<u64>,
    node_id: Option<String>,
    launcher: Option<PathBuf>,
    shim: Option<(String, Vec<u8>)>,
}

impl Options {
    pub(crate) fn read(self) -> PyResult<LocalConfig> {
        let mut config = LocalConfig::from_env().map_err(engine_error)?;
        config.guards_descriptors = true;
        let time = |name: &str, value: f64| {
            fairtrial_exec::seconds(name, value)
                .map_err(|bad| PyValueError::new_err(bad.to_string()))
        };
        if let Some(max_workers) = self.max_workers {
            config.max_workers = max_workers;
        }
        if let Some(idle) = self.idle_timeout_s {
            config.idle_timeout = time("idle_timeout", idle)?;
        }
        if let Some(dir) = self.spill_dir {
            config.spill_dir = dir;
        }
        if let Some(node_id) = self.node_id {
            config.node_id = node_id;
        }
        config.recycle = Recycle {
            max_calls: self.max_calls,
            max_age: self.max_age_s.map(|age| time("max_age", age)).transpose()?,
            rss_growth: self.rss_growth_bytes,
            after_error: self.after_error,
        };
        config.env_allow = self.env_allow;
        config.env_prefixes = self.env_prefixes;
        config.memfd_cap_bytes = self.memfd_cap_bytes;
        config.launcher = self.launcher;
        config.shim_code = self.shim.map(|(python, code)| (python, code.into()));
        Ok(config)
    }
}

#[pymethods]
impl Backend {
    #[new]
    fn new(options: Options) -> PyResult<Self> {
        Ok(Self::of(&Arc::new(LocalBackend::new(options.read()?))))
    }

    /// Submits a call with its encoded arguments (a command: its input).
    #[pyo3(signature = (terms, arguments, tap=None))]
    fn submit(
        &self,
        terms: &Terms,
        arguments: &Bound<'_, PyBytes>,
        tap: Option<&Tap>,
    ) -> PyResult<Pending> {
        self.start(terms, arguments.as_bytes().to_vec().into(), tap)
    }

    /// Submits a pickle that has no buffers beside it; `function` is the pickle of a function that goes by value.
    #[pyo3(signature = (terms, pickle, tap=None, function=None))]
    fn submit_pickle(
        &self,
        terms: &Terms,
        pickle: &Bound<'_, PyBytes>,
        tap: Option<&Tap>,
        function: Option<&Bound<'_, PyBytes>>,
    ) -> PyResult<Pending> {
        let pickle = pickle.as_bytes();
        let function = function.map(|function| function.as_bytes());
        let by_value = function.map_or(0, |_| BY_VALUE);
        let mut body = Vec::with_capacity(24 + pickle.len() + function.map_or(0, <[u8]>::len));
        body.extend_from_slice(&(pickle.len() as u64).to_le_bytes());
        body.extend_from_slice(&by_value.to_le_bytes());
        if let Some(function) = function {
            body.extend_from_slice(&(function.len() as u64).to_le_bytes());
            body.extend_from_slice(function);
        }
        body.extend_from_slice(pickle);
        self.start(terms, body.into(), tap)
    }

    /// Submits a call whose encoded arguments are in a file, which is sealed now.
    #[pyo3(signature = (terms, file, tap=None))]
    fn submit_file(
        &self,
        terms: &Terms,
        file: &ArgumentFile,
        tap: Option<&Tap>,
    ) -> PyResult<Pending> {
        let taken = file
            .file
            .lock()
            .expect("nothing panics under the lock")
            .take();
        let taken =
            taken.ok_or_else(|| PyRuntimeError::new_err("the file was submitted before"))?;
        let sealed = taken.seal().map_err(engine_error)?;
        let (file, size) = (Arc::new(sealed), file.size);
        self.start(terms, Arguments::File { file, size }, tap)
    }

    /// A file for large arguments of exactly this size.
    fn argument_file(&self, py: Python<'_>, size: u64) -> PyResult<ArgumentFile> {
        let file = py
            .detach(|| self.backend.argument_file(size))
            .map_err(engine_error)?;
        Ok(ArgumentFile {
            file: Mutex::new(Some(file)),
            size,
        })
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
        let (backend, ending) = (self.engine()?, Ending(ended.clone()));
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

    /// The whole report on a level, as the contract's object; runs a self-test unless one was kept.
    fn sandbox_report<'py>(&self, py: Python<'py>, level: &str) -> PyResult<Bound<'py, PyAny>> {
        let level: Level = level
            .parse()
            .map_err(|error: fairtrial_exec::InvalidCall| PyValueError::new_err(error.problem))?;
        let found = Arc::new((Mutex::new(None), Condvar::new()));
        let (backend, finding) = (Arc::clone(&self.backend), found.clone());
        let find = move || {
            let report = block_on(backend.sandbox_report(level));
            *finding.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
            finding.1.notify_all();
        };
        // On a thread of its own, so that Ctrl-C is answered here.
        let thread = std::thread::Builder::new().name("fairtrial-report".into());
        thread
            .spawn(find)
            .map_err(|error| EngineError::new_err(format!("cannot start a thread: {error}")))?;
        process::wait(py, (&found.0, &found.1), None, |report| report.is_some())?;
        let mut report = found.0.lock().unwrap_or_else(PoisonError::into_inner);
        let report = report.take().expect("just waited for");
        to_python(py, &report.map_err(engine_error)?.to_json())
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

/// An observer in Python.
pub(crate) fn told(observer: Py<PyAny>) -> Box<dyn FnMut(&Event) + Send> {
    Box::new(move |event| {
        // An interpreter that is ending listens no more.
        _ = Python::try_attach(|py| -> PyResult<()> {
            if let Err(error) = observer.call1(py, (event.name(), fields(py, event)?)) {
                error.write_unraisable(py, None);
            }
            Ok(())
        });
    })
}

/// Tells whoever waits for the end, by being dropped.
pub(crate) struct Ending(pub(crate) Arc<(Mutex<bool>, Condvar)>);

impl Drop for Ending {
    fn drop(&mut self) {
        let (ended, told) = &*self.0;
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        told.notify_all();
    }
}

impl Backend {
    fn start(&self, terms: &Terms, arguments: Arguments, tap: Option<&Tap>) -> PyResult<Pending> {
        let slot = Arc::<Slot>::default();
        let streams = Streams {
            output: tap.and_then(Tap::get),
            input: None,
        };
        let handle = self
            .backend
            .submit_for(
                terms.call(arguments),
                streams,
                Box::new(Teller(slot.clone())),
            )
            .map_err(engine_error)?;
        Ok(Pending::new(slot, handle))
    }
}

/// A file to be filled with large arguments.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct ArgumentFile {
    file: Mutex<Option<fairtrial_exec::ArgumentFile>>,
    size: u64,
}

#[pymethods]
impl ArgumentFile {
    /// The descriptor to write to; valid until the file is submitted.
    fn fileno(&self) -> PyResult<i32> {
        let file = self.file.lock().expect("nothing panics under the lock");
        file.as_ref()
            .map(|file| file.fd().as_raw_fd())
            .ok_or_else(|| PyRuntimeError::new_err("the file was submitted before"))
    }
}

fn fields<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    match event {
        Event::Submit { call } => fields.set_item("call_id", call.0)?,
        Event::Start { call, worker_id } => {
            fields.set_item("call_id", call.0)?;
            fields.set_item("worker_id", worker_id)?;
        }
        Event::Complete { call, verdict } => {
            fields.set_item("call_id", call.0)?;
            fields.set_item("verdict", verdict.map(|verdict| verdict.name()))?;
        }
        Event::WorkerStart {
            worker_id,
            pid,
            zygote_threads,
            closed_fds,
        } => {
            fields.set_item("worker_id", worker_id)?;
            fields.set_item("pid", pid)?;
            fields.set_item("zygote_threads", zygote_threads)?;
            fields.set_item("closed_fds", closed_fds)?;
        }
        Event::WorkerExit {
            worker_id, reason, ..
        } => {
            fields.set_item("worker_id", worker_id)?;
            fields.set_item("reason", reason.name())?;
        }
        Event::Degraded {
            requested,
            mechanism,
            reason,
        } => {
            fields.set_item("level", requested.to_string())?;
            fields.set_item("mechanism", mechanism)?;
            fields.set_item("reason", reason)?;
        }
        Event::Shutdown => {}
    }
    Ok(fields)
}

pub(crate) fn engine_error(error: fairtrial_exec::EngineError) -> PyErr {
    match error {
        fairtrial_exec::EngineError::InvalidCall(problem) => {
            PyValueError::new_err(problem.to_string())
        }
        error => EngineError::new_err(error.to_string()),
    }
}

/// Runs a future that needs no runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
