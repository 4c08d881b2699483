//! `fairtrial._engine`: the engine as a few frozen classes and plain data.
//!
//! Python owns signatures, defaults and documents. Everything that waits here waits without the interpreter's lock.

mod arrivals;
mod backend;
mod cluster;
mod courier;
mod evaluation;
mod log_lines;
mod look;
mod lookout;
mod mailbox;
mod office;
mod outcome;
mod pending;
mod process;
mod proposing;
mod report;
mod study;
mod study_run;
mod tap;
mod terms;
mod watch;

use pyo3::prelude::*;

pyo3::create_exception!(
    fairtrial.errors, // where users find it, with all others
    EngineError,
    pyo3::exceptions::PyRuntimeError,
    "The engine itself could not do its work; says nothing of the call."
);

pyo3::create_exception!(
    fairtrial._engine,
    InvalidStudy,
    pyo3::exceptions::PyValueError,
    "What is wrong with a study, or with its directory; a line each."
);

/// The engine under the Python package: private, and liable to change without notice.
#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    process::refuse_sub_interpreter()?;
    log_lines::pass_on();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("EngineError", module.py().get_type::<EngineError>())?;
    module.add("InvalidStudy", module.py().get_type::<InvalidStudy>())?;
    module.add_class::<arrivals::Arrivals>()?;
    module.add_class::<arrivals::Arrived>()?;
    module.add_class::<backend::Backend>()?;
    module.add_class::<backend::ArgumentFile>()?;
    module.add_class::<cluster::Cluster>()?;
    module.add_class::<courier::Courier>()?;
    module.add_class::<evaluation::Evaluator>()?;
    module.add_class::<outcome::Outcome>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<proposing::Request>()?;
    module.add_class::<proposing::Requests>()?;
    module.add_class::<study::Plan>()?;
    module.add_class::<study::Study>()?;
    module.add_class::<study_run::Records>()?;
    module.add_class::<tap::Tap>()?;
    module.add_class::<terms::Terms>()?;
    module.add_class::<watch::Watch>()?;
    module.add_function(wrap_pyfunction!(arrivals::become_undumpable, module)?)?;
    module.add_function(wrap_pyfunction!(report::rescore, module)?)?;
    module.add_function(wrap_pyfunction!(report::write_html, module)?)?;
    module.add_function(wrap_pyfunction!(study_run::run_study, module)?)?;
    module.add_function(wrap_pyfunction!(study_run::dre_caller, module)?)?;
    module.add_function(wrap_pyfunction!(terms::parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(outcome::value_json, module)?)?;
    module.add_function(wrap_pyfunction!(process::forked, module)?)?;
    module.add_function(wrap_pyfunction!(process::exiting, module)?)?;
    Ok(())
}
