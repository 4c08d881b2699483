//! What commands need to set up before the engine: the process itself, the runtime, configuration.

use fairtrial_exec::{EngineError, Level, LocalConfig};

use crate::failure::Failure;

/// Keeps candidates of the same user from reading our environment through `/proc`, at every isolation level.
pub(crate) fn become_undumpable() -> Result<(), Failure> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(Failure::attempting("cannot make this process undumpable"))
}

/// Runs `work` on this thread. What still blocks in the background when it ends (a read of a terminal) is left behind.
pub(crate) fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::attempting("cannot start the event loop"))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

/// The engine's configuration: explicit `workers` win over variables, variables over defaults.
pub(crate) fn config(workers: Option<usize>) -> Result<LocalConfig, Failure> {
    let mut config = LocalConfig::from_env()?;
    if let Some(workers) = workers {
        config.max_workers = workers;
    }
    Ok(config)
}

/// The isolation level of calls that do not say: `FAIRTRIAL_SANDBOX`, else `none`; blank counts as unset.
pub(crate) fn default_sandbox() -> Result<Level, Failure> {
    const NAME: &str = "FAIRTRIAL_SANDBOX";
    let Some(text) = std::env::var_os(NAME) else {
        return Ok(Level::None);
    };
    let text = text.to_string_lossy();
    match text.trim() {
        "" => Ok(Level::None),
        level => level.parse().map_err(|problem| {
            let name = NAME.into();
            EngineError::Config { name, problem }.into()
        }),
    }
}
