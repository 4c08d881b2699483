//! What commands need to set up before the engine: the process itself, the runtime, configuration.

use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::event_loop;
use fairtrial_exec::linux::cgroup::Below;
use fairtrial_exec::linux::spawn::descriptor_limit;
use fairtrial_exec::{Backend, LocalBackend, LocalConfig, Sandbox, Shutdown};

use crate::failure::Failure;

/// Keeps candidates of the same user from reading our environment through `/proc`, at every isolation level.
pub(crate) fn become_undumpable() -> Result<(), Failure> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(Failure::attempting("cannot make this process undumpable"))
}

/// What a launcher that was killed leaves behind comes to us, whose only children are the engine's.
pub(crate) fn become_heir() -> Result<(), Failure> {
    fairtrial_exec::adopt_orphans().map_err(Failure::attempting("cannot inherit orphans"))
}

/// Leaves a control group that was handed to us for one below, for version 2 gives no controllers to what is below a group
/// that holds processes. Undone when dropped.
pub(crate) fn go_below() -> Option<Below> {
    Below::go()
}

/// Where descriptors are few the engine runs in this thread's event loop, for one of its own takes four.
pub(crate) fn spare_a_loop(backend: &LocalBackend) -> Result<(), Failure> {
    if descriptor_limit().is_some_and(|limit| limit < FEWEST_FOR_TWO_LOOPS) {
        backend.start_here()?;
    }
    Ok(())
}

/// Runs `work` on this thread, with tasks of its own. What still blocks in the background when it ends (a read of a terminal) is left behind.
pub(crate) fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime =
        event_loop::of_this_thread().map_err(Failure::attempting("cannot start the event loop"))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

/// Descriptors with which one more event loop is nothing.
const FEWEST_FOR_TWO_LOOPS: u64 = 64;

/// How long an engine that was told to stop at once may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Ends a backend that has nothing left to do.
pub(crate) async fn finish(backend: &impl Backend) {
    backend.shutdown(Shutdown::default()).await;
}

/// Stops a backend whatever it is doing. One that does not answer is left as it is: this process is about to end, and
/// the launcher, which watches it, takes everything else along.
pub(crate) async fn stop<B: Backend>(backend: &Arc<B>) {
    stop_within(backend, PATIENCE).await;
}

/// The same, for one that may take longer.
pub(crate) async fn stop_within<B: Backend>(backend: &Arc<B>, patience: Duration) {
    let stopping = backend.shutdown(Shutdown::now());
    if tokio::time::timeout(patience, stopping).await.is_err() {
        // Never dropped, for that would wait for the engine again.
        std::mem::forget(backend.clone());
    }
}

/// The engine's configuration: explicit `workers` win over variables, variables over defaults.
pub(crate) fn config(workers: Option<usize>) -> Result<LocalConfig, Failure> {
    crate::log_lines::show();
    let mut config = LocalConfig::from_env()?;
    config.adopts_orphans = true;
    if let Some(workers) = workers {
        config.max_workers = workers;
    }
    Ok(config)
}

/// What `FAIRTRIAL_SANDBOX` puts in the place of the default, if anything.
pub(crate) fn default_sandbox() -> Result<Option<Sandbox>, Failure> {
    Sandbox::from_env().map_err(|invalid| Failure::usage(&invalid.field, invalid.problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairtrial_exec::{Call, EngineError, Event, Outcome};

    /// An engine that never ends, however it is asked to.
    struct Stuck;

    impl Backend for Stuck {
        async fn execute(&self, _call: Call) -> Result<Outcome, EngineError> {
            std::future::pending().await
        }
        async fn shutdown(&self, _how: Shutdown) {
            std::future::pending().await
        }
        fn subscribe(&self, _observer: Box<dyn FnMut(&Event) + Send>) -> Result<(), EngineError> {
            Ok(())
        }
    }

    impl Drop for Stuck {
        fn drop(&mut self) {
            panic!("waited for an engine that does not answer");
        }
    }

    /// EX-98, EX-104
    #[tokio::test(start_paused = true)]
    async fn an_engine_that_does_not_answer_keeps_nobody_waiting() {
        let backend = Arc::new(Stuck);
        stop(&backend).await;
        drop(backend);
    }
}
