//! An evaluation in a Python host: made on a thread of its own, told on the one that asked for it.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fairtrial_candidates::spec::Spec;
use fairtrial_candidates::{
    EvaluateError, EvaluationReport, Evaluator as CandidateEvaluator, Event, Onset,
};
use fairtrial_exec::{Backend as _, Shutdown};
use pyo3::exceptions::{PyFileExistsError, PyFileNotFoundError, PyValueError};
use pyo3::prelude::*;
use tokio::sync::{mpsc, watch};

use crate::EngineError;
use crate::backend::{Backend, Options, engine_error};
use crate::mailbox::Mailbox;
use crate::outcome::to_python;
use crate::process::Own;
use crate::proposing::Requests;

/// How long an engine that was told to stop, and files that are being written, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// An evaluation that can be made. Starts nothing until it is.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Evaluator {
    evaluator: Own<Arc<CandidateEvaluator>>,
    output: PathBuf,
}

#[pymethods]
impl Evaluator {
    /// Of an evaluation file. `requests` are what is asked of the caller's own proposer, if there is one.
    #[staticmethod]
    fn load(path: PathBuf, options: Options, requests: Option<&Requests>) -> PyResult<Self> {
        Self::of(Spec::load(&path).map_err(wrong)?, options, requests)
    }

    /// Of the same keys as JSON, seen from the current directory.
    #[staticmethod]
    fn from_json(text: &str, options: Options, requests: Option<&Requests>) -> PyResult<Self> {
        let json = serde_json::from_str(text).map_err(wrong)?;
        let spec = Spec::from_json(json, Path::new(".")).map_err(wrong)?;
        Self::of(spec, options, requests)
    }

    /// Who runs its commands: to be shut down by whoever made it.
    fn backend(&self) -> PyResult<Backend> {
        Ok(Backend::of(self.evaluator.get()?.backend()))
    }

    /// Makes the evaluation, and gives its report as JSON. `told` hears every event, on this thread, and raises only what
    /// a signal's handler raises; that is raised here after all that ran has ended.
    fn evaluate(
        &self,
        py: Python<'_>,
        resume: bool,
        fresh: bool,
        told: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let onset = match (resume, fresh) {
            (true, _) => Onset::Resume,
            (false, true) => Onset::Fresh,
            (false, false) => Onset::Begin,
        };
        let evaluator = Arc::clone(self.evaluator.get()?);
        let (stop, stopped) = watch::channel(false);
        let news = Arc::new(Mailbox::default());
        let ending = Ending(Arc::clone(&news));
        let thread = std::thread::Builder::new()
            .name("fairtrial-evaluation".into())
            .spawn(move || {
                let ending = ending; // however it ends
                perform(&evaluator, onset, stopped, &ending.0)
            })
            .map_err(|error| EngineError::new_err(format!("cannot start a thread: {error}")))?;
        let mut interrupt = None;
        loop {
            let listener = told.as_ref().filter(|_| interrupt.is_none());
            match hear(py, &news, listener) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    stop.send_replace(true);
                    interrupt.get_or_insert(error);
                }
            }
        }
        let ended = py.detach(|| thread.join());
        if let Some(error) = interrupt {
            return Err(error);
        }
        let Ok(ended) = ended else {
            return Err(EngineError::new_err("the evaluation's thread failed"));
        };
        self.text(&ended?)
    }
}

impl Evaluator {
    fn of(spec: Spec, options: Options, requests: Option<&Requests>) -> PyResult<Self> {
        let fault = match (requests, &spec.search) {
            (None, _) => spec.missing_proposer(),
            (Some(_), Some(_)) => None,
            (Some(_), None) => {
                let problem = "`search` is missing, and a proposer is given (write `search: {}`)";
                Some(spec.places.fault("search", problem))
            }
        };
        if let Some(fault) = fault {
            return Err(wrong(fault));
        }
        let output = spec.output.path.clone();
        let mut evaluator = CandidateEvaluator::new(spec, options.read()?).map_err(engine_error)?;
        if let Some(requests) = requests {
            evaluator = evaluator.with_proposer(requests.callable());
        }
        Ok(Self {
            evaluator: Own::new(Arc::new(evaluator)),
            output,
        })
    }

    /// A report that says nothing of any candidate is none.
    fn text(&self, report: &EvaluationReport) -> PyResult<String> {
        match report.only_infra() {
            Some(first) => Err(EngineError::new_err(format!(
                "no candidate could be tried: {first} (the report is in `{}`)",
                self.output.display()
            ))),
            None => Ok(serde_json::to_string(report).expect("a report is plain data")),
        }
    }
}

/// Tells the end, by being dropped.
struct Ending(Arc<Mailbox<Event>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits for the next event and tells it. False once all is told; without a listener, at the end.
fn hear(py: Python<'_>, news: &Mailbox<Event>, listener: Option<&Py<PyAny>>) -> PyResult<bool> {
    let Some(listener) = listener else {
        news.wait_closed(py)?;
        return Ok(false);
    };
    let Some(event) = news.next(py)? else {
        return Ok(false);
    };
    let event = serde_json::to_value(event).expect("events are plain data");
    listener.call1(py, (to_python(py, &event)?,))?;
    Ok(true)
}

fn perform(
    evaluator: &CandidateEvaluator,
    onset: Onset,
    mut stopped: watch::Receiver<bool>,
    news: &Mailbox<Event>,
) -> PyResult<EvaluationReport> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| EngineError::new_err(format!("cannot start a loop: {error}")))?;
    let ended = runtime.block_on(async {
        let (events, mut told) = mpsc::unbounded_channel();
        let work = async {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => None,
                ended = evaluator.evaluate(onset, events) => Some(ended),
            }
        };
        let mut work = pin!(work);
        let ended = loop {
            tokio::select! {
                biased;
                Some(event) = told.recv() => news.put(event),
                ended = &mut work => break ended,
            }
        };
        while let Ok(event) = told.try_recv() {
            news.put(event);
        }
        // One that does not answer is waited for by whoever owns it, who can be interrupted.
        let stopping = evaluator.backend().shutdown(Shutdown::now());
        tokio::time::timeout(PATIENCE, stopping).await.ok();
        ended
    });
    runtime.shutdown_timeout(PATIENCE);
    match ended {
        Some(ended) => ended.map_err(refused),
        None => Err(EngineError::new_err("the evaluation was interrupted")),
    }
}

fn wrong(faults: impl ToString) -> PyErr {
    PyValueError::new_err(faults.to_string())
}

pub(crate) fn refused(error: EvaluateError) -> PyErr {
    match error {
        EvaluateError::Invalid(problem) => wrong(problem),
        EvaluateError::NotEmpty(path) => PyFileExistsError::new_err(format!(
            "`{}` holds an evaluation; go on with it by `resume=True`, begin anew by `fresh=True`, or name another `output`",
            path.display()
        )),
        EvaluateError::Occupied(path) => PyFileExistsError::new_err(format!(
            "`{}` is not empty, and holds no evaluation; name another `output`",
            path.display()
        )),
        EvaluateError::NothingToResume(path) => PyFileNotFoundError::new_err(format!(
            "`{}` holds no evaluation: there is nothing to go on with; leave out `resume` to begin one",
            path.display()
        )),
        error @ EvaluateError::Term { .. } => wrong(error),
        EvaluateError::Engine(error) => engine_error(error),
        error => EngineError::new_err(error.to_string()),
    }
}
