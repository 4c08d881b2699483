//! A study that runs, and the records of its runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use fairtrial_exec::{Backend as _, LocalBackend, Shutdown};
use fairtrial_study::provenance::{self, Site};
use fairtrial_study::{
    Changed, DRE_CALLER, ExecuteError, Mode, Pace, Plan as StudyPlan, Request, RunRecord, Stop,
    Summary, Tally, Value, Wishes, execute,
};
use fairtrial_study::{History, JournalError, JournalReader, Status};
use pyo3::exceptions::{PyFileExistsError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::watch;

use crate::backend::{Backend, Ending, block_on};
use crate::study::{Plan, describe, invalid, places, to_python};
use crate::{EngineError, InvalidStudy, process};

/// How a study is to be run, as Python's dict gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GivenRequest {
    directory: PathBuf,
    mode: String,
    retry: Vec<String>,
    changed: String,
    workers: usize,
    argv: Vec<String>,
    host: String,
    platform: String,
    python_version: String,
    packages: Vec<(String, String)>,
}

impl GivenRequest {
    fn read<'r>(&'r self, plan: &'r Plan) -> PyResult<Request<'r>> {
        let site = Site {
            host: self.host.clone(),
            platform: self.platform.clone(),
            python_version: Some(self.python_version.clone()),
            packages: self.packages.clone(),
        };
        Ok(Request {
            plan: &plan.plan,
            directory: &self.directory,
            mode: match self.mode.as_str() {
                "resume" => Mode::Resume,
                "fresh" => Mode::Fresh,
                _ => Mode::New,
            },
            wishes: self.wishes()?,
            workers: self.workers,
            backend: "local".into(),
            input: plan.input.to_vec(),
            argv: self.argv.clone(),
            host: self.host.clone(),
            provenance: Some(provenance::captured(&site)),
            formats: BTreeSet::new(), // those of the study file
            pace: Pace::default(),
            journal_id: fairtrial_cluster::nonce(),
        })
    }

    fn wishes(&self) -> PyResult<Wishes> {
        let known = |name: &String| {
            let mut all = Status::ALL.into_iter();
            all.find(|status| status.name() == name).ok_or_else(|| {
                let known: Vec<_> = Status::ALL.iter().map(|status| status.name()).collect();
                let known = known.join(", ");
                PyValueError::new_err(format!("`retry` has {name:?}; statuses are {known}"))
            })
        };
        Ok(Wishes {
            retry: self.retry.iter().map(known).collect::<PyResult<_>>()?,
            changed: match self.changed.as_str() {
                "rerun" => Changed::Rerun,
                "accept" => Changed::Accept,
                _ => Changed::Refuse,
            },
            ..Wishes::default()
        })
    }
}

/// Runs what is to be run. An exception of a signal's handler is raised after what ran was stopped and recorded,
/// and the tables are written. `told` hears of every end, on another thread.
#[pyfunction]
pub(crate) fn run_study(
    py: Python<'_>,
    plan: &Plan,
    backend: &Backend,
    request: GivenRequest,
    told: Option<Py<PyAny>>,
) -> PyResult<Records> {
    request.read(plan)?; // objections are raised here
    let engine = backend.engine()?;
    let here = std::path::absolute(&request.directory)?;
    let (stop, stopped) = watch::channel(Stop::No);
    let ended = Arc::new((Mutex::new(false), Condvar::new()));
    let work = Work {
        plan: Plan {
            plan: Arc::clone(&plan.plan),
            input: Arc::clone(&plan.input),
        },
        request,
        engine: Arc::clone(&engine),
        told,
    };
    let ending = Ending(ended.clone());
    let thread = std::thread::Builder::new()
        .name("fairtrial-study".into())
        .spawn(move || {
            let _ending = ending; // however it ends
            work.perform(stopped)
        })
        .map_err(|error| EngineError::new_err(format!("cannot start a thread: {error}")))?;
    let mut interrupt = None;
    while let Err(error) = process::wait(py, (&ended.0, &ended.1), None, |ended| *ended) {
        match interrupt {
            None => _ = stop.send_replace(Stop::Cancel),
            // Whoever asks twice does not wait for an orderly end.
            Some(_) => {
                stop.send_replace(Stop::Now);
                py.detach(|| block_on(engine.shutdown(Shutdown::now())));
            }
        }
        interrupt.get_or_insert(error);
    }
    let summary = py.detach(|| thread.join());
    if let Some(error) = interrupt {
        return Err(error);
    }
    let Ok(summary) = summary else {
        return Err(EngineError::new_err("the study's thread failed"));
    };
    let summary = summary?;
    Records::open(&plan.plan, here, &summary).map_err(|error| failed(&error))
}

/// What the thread of a study needs.
struct Work {
    plan: Plan,
    request: GivenRequest,
    engine: Arc<LocalBackend>,
    told: Option<Py<PyAny>>,
}

impl Work {
    fn perform(self, stopped: watch::Receiver<Stop>) -> PyResult<Summary> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| EngineError::new_err(format!("cannot start a loop: {error}")))?;
        let request = self.request.read(&self.plan)?;
        let told = |tally: &Tally| {
            if let Some(told) = &self.told {
                tell(told, tally);
            }
        };
        runtime
            .block_on(execute(&request, || self.engine, stopped, told))
            .map_err(refused)
    }
}

fn tell(told: &Py<PyAny>, tally: &Tally) {
    let counts = (
        tally.planned,
        tally.reused + tally.all_ended(),
        tally.of(Status::Success),
        tally.failures(),
        tally.running,
    );
    // An interpreter that is ending listens no more.
    _ = Python::try_attach(|py| {
        if let Err(error) = told.call1(py, counts) {
            error.write_unraisable(py, None);
        }
    });
}

fn refused(error: ExecuteError) -> PyErr {
    match error {
        ExecuteError::Invalid(faults) => invalid(faults),
        ExecuteError::Exists(path) => PyFileExistsError::new_err(format!(
            "`{}` holds a study already; go on with `resume=True`, or put it aside with `fresh=True`",
            path.display()
        )),
        ExecuteError::Changed { count, reasons } => InvalidStudy::new_err(format!(
            "{count} finished runs would be run again: {reasons}; say `changed=\"rerun\"` to do so, or \
             `changed=\"accept\"` to keep them"
        )),
        error @ ExecuteError::Other { .. } => InvalidStudy::new_err(error.to_string()),
        ExecuteError::Journal(error) => failed(&error),
        error => EngineError::new_err(error.to_string()),
    }
}

fn failed(error: &JournalError) -> PyErr {
    EngineError::new_err(error.to_string())
}

/// Text of the function that calls others as DRE calls them.
#[pyfunction]
pub(crate) fn dre_caller() -> &'static str {
    DRE_CALLER
}

/// The runs of a study's directory, each read when it is asked for.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Records {
    plan: Arc<StudyPlan<'static>>,
    directory: PathBuf,
    history: History,
    counts: Vec<(&'static str, u64)>,
}

impl Records {
    fn open(
        plan: &Arc<StudyPlan<'static>>,
        directory: PathBuf,
        summary: &Summary,
    ) -> Result<Self, JournalError> {
        let history = JournalReader::open(&directory)?.history()?;
        let begun = summary.counts.iter();
        Ok(Self {
            plan: Arc::clone(plan),
            directory,
            history,
            counts: begun.map(|(status, count)| (*status, *count)).collect(),
        })
    }
}

#[pymethods]
impl Records {
    #[getter]
    fn directory(&self) -> &Path {
        &self.directory
    }

    /// How many runs ended how; those that never began are not counted.
    #[getter]
    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.counts.clone()
    }

    fn __len__(&self) -> usize {
        self.plan.len() as usize
    }

    /// Some runs in plan order, as mappings. The journal is opened for the time of the call only: a connection that is
    /// kept would be shared with forked children.
    fn read<'py>(
        &self,
        py: Python<'py>,
        first: u32,
        count: u32,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let plan = &*self.plan;
        let records = py.detach(|| {
            let reader = JournalReader::open(&self.directory)?;
            let mut picker = plan.picker();
            let read = |index| RunRecord::read(plan, &picker.run(index), &self.history, &reader);
            let records = places(plan, first, count).map(read);
            records.collect::<Result<Vec<_>, _>>()
        });
        let records = records.map_err(|error| failed(&error))?;
        let mut picker = plan.picker();
        let described = records.iter().zip(first..).map(|(record, index)| {
            let run = picker.run(index);
            let fields = describe(py, &run)?;
            match record {
                Some(record) => fill(py, &fields, record)?,
                None => {
                    let past = self.history.of(&run.run_id.to_string());
                    fields.set_item("status", past.map(|past| past.last.name()))?;
                }
            }
            Ok(fields)
        });
        described.collect()
    }
}

/// What a record adds to a run.
fn fill(py: Python<'_>, fields: &Bound<'_, PyDict>, record: &RunRecord) -> PyResult<()> {
    let list = |items: &[Value]| {
        let items = items.iter().map(|item| to_python(py, item));
        items.collect::<PyResult<Vec<_>>>()
    };
    fields.set_item("status", record.status.name())?;
    fields.set_item("error", &record.error_info)?;
    fields.set_item("outputs", to_python(py, &record.outputs)?)?;
    fields.set_item("metrics", to_python(py, &record.metrics)?)?;
    fields.set_item("events", list(&record.events)?)?;
    fields.set_item("evaluations", list(&record.evaluations)?)?;
    fields.set_item("evaluation_status", record.evaluation_name())?;
    fields.set_item("metadata", to_python(py, &record.metadata)?)?;
    fields.set_item("trace_refs", list(&record.trace_refs)?)?;
    fields.set_item("latency_s", record.latency_s)?;
    fields.set_item("started_at_ns", record.started_at_ns)?;
    fields.set_item("finished_at_ns", record.finished_at_ns)?;
    fields.set_item("attempts", record.attempts)?;
    fields.set_item("verdict", &record.finish.verdict)?;
    fields.set_item("stdout", &record.finish.stdout)?;
    fields.set_item("stderr", &record.finish.stderr)?;
    fields.set_item("outcome", to_python(py, &record.outcome)?)?;
    Ok(())
}
