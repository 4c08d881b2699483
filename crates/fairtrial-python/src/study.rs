//! Studies and their plans as plain data; what the host binds, read.

use std::path::PathBuf;
use std::sync::Arc;

use fairtrial_study::{
    Compat, Condition, Fault, HostBinding, HostBindings, HostFunction, HostPacket, Invalid,
    Plan as StudyPlan, RunSpec, Study as ValidStudy, Value, plain_data,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::InvalidStudy;
use crate::terms::GivenPython;

/// A valid study.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Study {
    study: ValidStudy,
    input: Arc<[u8]>,
}

#[pymethods]
impl Study {
    /// Reads and checks a study file.
    #[staticmethod]
    fn load(path: PathBuf, compat: Option<&str>) -> PyResult<Self> {
        let compat = compat.map(str::parse::<Compat>).transpose();
        let compat = compat.map_err(PyValueError::new_err)?;
        let (study, input) = ValidStudy::load_with_input(&path, compat).map_err(invalid)?;
        let input = input.into();
        Ok(Self { study, input })
    }

    #[getter]
    fn study_id(&self) -> &str {
        &self.study.study_id
    }

    #[getter]
    fn compat(&self) -> &'static str {
        self.study.compat.name()
    }

    #[getter]
    fn output_dir(&self) -> PathBuf {
        self.study.output_dir.clone()
    }

    #[getter]
    fn parallelism(&self) -> Option<u64> {
        self.study.budget.parallelism
    }

    /// How a function is called whose binding does not say it.
    #[getter]
    fn calls_as_dre(&self) -> bool {
        self.study.calls_as_dre()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.study.warnings.iter().map(Fault::to_string).collect()
    }

    /// The file in full.
    fn definition<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.study.normalised)
    }

    /// The study with what the host binds.
    fn bind(
        &self,
        agents: Option<Vec<(String, GivenBinding)>>,
        problems: Option<Vec<(String, GivenPacket)>>,
        runner: Option<GivenBinding>,
    ) -> PyResult<Self> {
        let agents = agents.map(|agents| {
            let read = |(id, given): (String, GivenBinding)| {
                let binding = given.read(&format!("agents.{id}"))?;
                Ok((id, binding))
            };
            agents.into_iter().map(read).collect::<PyResult<_>>()
        });
        let problems = problems.map(|problems| {
            let read = |(id, given): (String, GivenPacket)| {
                let packet = given.read(&format!("problems.{id}"))?;
                Ok((id, packet))
            };
            problems.into_iter().map(read).collect::<PyResult<_>>()
        });
        let runner = runner.map(|given| given.read("condition_runner"));
        let host = HostBindings {
            agents: agents.transpose()?,
            problems: problems.transpose()?,
            runner: runner.transpose()?,
        };
        Ok(Self {
            study: self.study.clone().bind(host).map_err(invalid)?,
            input: Arc::clone(&self.input),
        })
    }

    /// What is to run. Starts nothing.
    fn plan(&self, py: Python<'_>) -> PyResult<Plan> {
        let planned = py.detach(|| StudyPlan::resolved(self.study.clone()));
        Ok(Plan {
            plan: Arc::new(planned.map_err(invalid)?),
            input: Arc::clone(&self.input),
        })
    }
}

/// A function of the host's as Python's dict gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GivenFunction {
    name: String,
    content_sha256: Option<String>,
    pickle: Vec<u8>,
    python: GivenPython,
}

/// A binding as Python's dict gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GivenBinding {
    function: Option<GivenFunction>,
    /// What a study file would say, as data.
    given: Vec<u8>,
}

/// A problem as Python's dict gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GivenPacket {
    /// As in a binding.
    given: Vec<u8>,
    evaluator: Option<GivenBinding>,
}

impl GivenBinding {
    fn read(self, path: &str) -> PyResult<HostBinding> {
        let function = self.function.map(|function| {
            Ok::<_, PyErr>(HostFunction {
                name: function.name,
                content_sha256: function.content_sha256,
                pickle: function.pickle.into(),
                python: function.python.read()?,
            })
        });
        Ok(HostBinding {
            function: function.transpose()?,
            given: plain_data(&self.given, path).map_err(PyTypeError::new_err)?,
        })
    }
}

impl GivenPacket {
    fn read(self, path: &str) -> PyResult<HostPacket> {
        let evaluator = self.evaluator;
        let evaluator = evaluator.map(|given| given.read(&format!("{path}.evaluator")));
        Ok(HostPacket {
            given: plain_data(&self.given, path).map_err(PyTypeError::new_err)?,
            evaluator: evaluator.transpose()?,
        })
    }
}

/// What is to run.
#[pyclass(frozen, module = "fairtrial._engine")]
pub(crate) struct Plan {
    pub(crate) plan: Arc<StudyPlan<'static>>,
    pub(crate) input: Arc<[u8]>,
}

#[pymethods]
impl Plan {
    /// How many conditions, admissible conditions and runs.
    fn counts(&self) -> (usize, usize, u64) {
        let plan = &self.plan;
        (plan.design.len(), plan.admissible(), plan.len())
    }

    #[getter]
    fn digest_runs(&self) -> &str {
        &self.plan.digest_runs
    }

    #[getter]
    fn is_standalone(&self) -> bool {
        self.plan.is_standalone
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.plan.warnings.iter().map(Fault::to_string).collect()
    }

    /// All conditions, as mappings.
    fn conditions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let conditions = self.plan.design.conditions();
        conditions
            .map(|condition| {
                let fields = PyDict::new(py);
                fill_condition(py, &fields, &condition)?;
                fields.set_item("admissible", condition.is_admissible())?;
                fields.set_item("constraint_messages", condition.messages())?;
                Ok(fields)
            })
            .collect()
    }

    /// Some runs in plan order, as mappings.
    fn runs<'py>(
        &self,
        py: Python<'py>,
        first: u32,
        count: u32,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let mut picker = self.plan.picker();
        places(&self.plan, first, count)
            .map(|index| describe(py, &picker.run(index)))
            .collect()
    }
}

/// The places of at most so many runs.
pub(crate) fn places(plan: &StudyPlan<'_>, first: u32, count: u32) -> std::ops::Range<u32> {
    let all = u32::try_from(plan.len()).unwrap_or(u32::MAX);
    first.min(all)..first.saturating_add(count).min(all)
}

/// What a plan says of a run.
pub(crate) fn describe<'py>(py: Python<'py>, run: &RunSpec<'_>) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("run_id", run.run_id.to_string())?;
    fields.set_item("agent_id", to_python(py, run.agent_id())?)?;
    fields.set_item("problem_id", to_python(py, run.problem_id())?)?;
    fields.set_item("replicate", run.replicate)?;
    fields.set_item("seed", run.seed)?;
    fields.set_item("index", run.index)?;
    fields.set_item("order", run.order())?;
    fill_condition(py, &fields, &run.condition)?;
    Ok(fields)
}

fn fill_condition(
    py: Python<'_>,
    fields: &Bound<'_, PyDict>,
    condition: &Condition<'_>,
) -> PyResult<()> {
    let (factors, blocks) = (PyDict::new(py), PyDict::new(py));
    for (name, value) in condition.factors() {
        factors.set_item(name, to_python(py, value)?)?;
    }
    for (name, value) in condition.blocks() {
        blocks.set_item(name, to_python(py, value)?)?;
    }
    fields.set_item("condition_id", condition.id().to_string())?;
    fields.set_item("factors", factors)?;
    fields.set_item("blocks", blocks)
}

/// Each fault on a line of its own.
pub(crate) fn invalid(invalid: Invalid) -> PyErr {
    InvalidStudy::new_err(invalid.to_string())
}

/// A plain value as Python's own objects.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Value::Int(int) => match i64::try_from(int) {
            Ok(int) => int.into_pyobject(py)?.into_any(),
            Err(_) => py
                .get_type::<pyo3::types::PyInt>()
                .call1((int.to_string(),))?,
        },
        Value::Float(float) => float.into_pyobject(py)?.into_any(),
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::Moment(moment) => moment.to_string().into_pyobject(py)?.into_any(),
        Value::List(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(to_python(py, item)?)?;
            }
            list.into_any()
        }
        Value::Map(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                dict.set_item(to_python(py, key)?, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
