//! `fairtrial._engine`: the engine as a few frozen classes and plain data.
//!
//! Python owns signatures, defaults and documents. Everything that waits here waits without the interpreter's lock.

mod backend;
mod look;
mod outcome;
mod pending;
mod process;
mod tap;
mod terms;
mod watch;

use pyo3::prelude::*;

pyo3::create_exception!(
    fairtrial._engine,
    EngineError,
    pyo3::exceptions::PyRuntimeError,
    "The engine itself could not do its work; says nothing of the call."
);

/// The engine under the Python package: private, and liable to change without notice.
#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    process::refuse_sub_interpreter()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("EngineError", module.py().get_type::<EngineError>())?;
    module.add_class::<backend::Backend>()?;
    module.add_class::<backend::ArgumentFile>()?;
    module.add_class::<outcome::Outcome>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<tap::Tap>()?;
    module.add_class::<terms::Terms>()?;
    module.add_class::<watch::Watch>()?;
    module.add_function(wrap_pyfunction!(terms::parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(process::forked, module)?)?;
    module.add_function(wrap_pyfunction!(process::exiting, module)?)?;
    Ok(())
}
