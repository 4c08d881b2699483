//! The terms of a call, made once and used for many. Python has checked them; the engine checks them again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::{
    Arguments, Call, CommandWork, HostTerms, InvalidCall, Level, PickledWork, PythonTerms,
    Resource, Sandbox, SourceWork, Work, seconds,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// What a call runs and on which terms; its arguments come with each submission.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Terms(Call);

/// Terms as Python's dict gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Given {
    timeout_s: Option<f64>,
    time: String,
    queue_timeout_s: Option<f64>,
    env: BTreeMap<OsString, Option<OsString>>,
    cwd: Option<PathBuf>,
    /// None is the default.
    sandbox: Option<GivenSandbox>,
    capture_bytes: u64,
    cpu_s: Option<f64>,
    /// What is not there has its default, what is None is lifted.
    limits: BTreeMap<String, Option<u64>>,
}

/// A sandbox as Python's dict gives it; None leaves the level's default.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GivenSandbox {
    level: String,
    on_missing: Option<String>,
    network: Option<String>,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    address_space: Option<u64>,
    devices: Vec<String>,
    cpus: Option<Vec<usize>>,
    /// As `limits`.
    quotas: BTreeMap<String, Option<u64>>,
}

/// An interpreter's terms as Python's dict gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GivenPython {
    python: String,
    python_path: Vec<PathBuf>,
    preload: Vec<String>,
    preload_shared: Vec<String>,
    isolation: String,
    result: String,
    host: Option<GivenHost>,
}

/// What the host gives its workers of itself.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GivenHost {
    sys_path: Vec<OsString>,
    argv: Vec<OsString>,
    faulthandler: bool,
    authkey: Option<String>,
    logging: Option<String>,
    initializer: Option<Vec<u8>>,
}

#[pymethods]
impl Terms {
    /// A function in source text.
    #[staticmethod]
    fn source(
        source: String,
        filename: PathBuf,
        function: String,
        terms: Given,
        python: GivenPython,
    ) -> PyResult<Self> {
        let python = python.read()?;
        let work = Work::Source(SourceWork {
            source,
            filename: filename.to_string_lossy().into_owned(), // only shown
            function,
            arguments: Vec::new().into(),
            python,
        });
        terms.read(work)
    }

    /// Pickled functions.
    #[staticmethod]
    fn pickled(terms: Given, python: GivenPython) -> PyResult<Self> {
        let python = python.read()?;
        let body = Vec::new().into();
        let Self(mut call) = terms.read(Work::Pickled(PickledWork { body, python }))?;
        if call.sandbox.level != Level::None
            && let Some(host) = call.python_mut().and_then(|python| python.host.as_mut())
        {
            // Who is not trusted with the machine is not trusted with the host's connections.
            Arc::make_mut(host).authkey = None;
        }
        Ok(Self(call))
    }

    /// A program; its input comes with the submission.
    #[staticmethod]
    fn command(argv: Vec<Bound<'_, PyAny>>, terms: Given) -> PyResult<Self> {
        let word = |word: &Bound<'_, PyAny>| {
            let problem =
                |_| PyTypeError::new_err(format!("`argv`: {word:?} is no word of a program's"));
            word.extract().map_err(problem)
        };
        let argv = argv.iter().map(word).collect::<PyResult<_>>()?;
        let stdin = Vec::new();
        terms.read(Work::Command(CommandWork { argv, stdin }))
    }
}

impl Terms {
    /// A call on these terms.
    pub(crate) fn call(&self, arguments: Arguments) -> Call {
        let mut call = self.0.clone();
        match &mut call.work {
            Work::Source(work) => work.arguments = arguments,
            Work::Pickled(work) => work.body = arguments,
            Work::Command(work) => {
                if let Arguments::Bytes(bytes) = arguments {
                    work.stdin = bytes;
                }
            }
        }
        call
    }
}

impl Given {
    fn read(self, work: Work) -> PyResult<Terms> {
        let time = |field: &str, value: Option<f64>| -> PyResult<Option<Duration>> {
            value
                .map(|value| seconds(field, value))
                .transpose()
                .map_err(refuse)
        };
        let mut call = Call::new(work);
        call.timeout = time("timeout_s", self.timeout_s)?;
        call.time = self.time.parse().map_err(refuse)?;
        call.queue_timeout = time("queue_timeout_s", self.queue_timeout_s)?;
        call.env = self.env;
        call.cwd = self.cwd;
        if let Some(given) = self.sandbox {
            call.sandbox = given.read().map_err(refuse)?;
        } else if let Some(sandbox) = Sandbox::from_env().map_err(refuse)? {
            call.sandbox = sandbox;
        }
        call.capture_bytes = self.capture_bytes;
        call.limits.cpu = time("limits.cpu_s", self.cpu_s)?;
        for resource in Resource::ALL {
            let key = resource.field().trim_start_matches("limits.");
            if let Some(limit) = self.limits.get(key) {
                call.limits.set(resource, *limit);
            }
        }
        call.validate().map_err(refuse)?;
        Ok(Terms(call))
    }
}

impl GivenSandbox {
    fn read(self) -> Result<Sandbox, InvalidCall> {
        let mut sandbox = Sandbox::new(self.level.parse()?);
        if let Some(on_missing) = self.on_missing {
            sandbox.on_missing = on_missing.parse()?;
        }
        if let Some(network) = self.network {
            sandbox.network = network.parse()?;
        }
        if let Some(bytes) = self.quotas.get("scratch_bytes") {
            sandbox.scratch_bytes = *bytes;
        }
        if let Some(inodes) = self.quotas.get("scratch_inodes") {
            sandbox.scratch_inodes = *inodes;
        }
        Ok(Sandbox {
            read: self.read,
            write: self.write,
            address_space: self.address_space,
            devices: self.devices,
            cpus: self.cpus,
            ..sandbox
        })
    }
}

impl GivenPython {
    pub(crate) fn read(self) -> PyResult<PythonTerms> {
        Ok(PythonTerms {
            python: self.python,
            python_path: self.python_path,
            preload: self.preload,
            preload_shared: self.preload_shared,
            isolation: self.isolation.parse().map_err(refuse)?,
            result: self.result.parse().map_err(refuse)?,
            host: self.host.map(|host| {
                Arc::new(HostTerms {
                    sys_path: host.sys_path,
                    argv: host.argv,
                    faulthandler: host.faulthandler,
                    authkey: host.authkey,
                    logging: host.logging,
                    initializer: host.initializer,
                })
            }),
        })
    }
}

/// `"512M"` in bytes.
#[pyfunction]
pub(crate) fn parse_size(text: &str) -> PyResult<u64> {
    fairtrial_exec::parse_size(text).map_err(PyValueError::new_err)
}

fn refuse(problem: InvalidCall) -> PyErr {
    PyValueError::new_err(problem.to_string())
}
