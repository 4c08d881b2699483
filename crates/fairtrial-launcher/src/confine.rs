//! What confines a task, prepared before its process exists.

use fairtrial_exec::linux::confine;
use fairtrial_exec::linux::plan::Plan;
use fairtrial_exec::protocol::launcher::{Confine, Step};

use crate::serve::Launcher;

impl Launcher {
    /// The system calls by which a task confines itself; the failing step and errno if they cannot be prepared.
    pub(crate) fn plan(&mut self, confine: Option<&Confine>) -> Result<Plan, (Step, i32)> {
        let Some(confine) = confine else {
            return Ok(Plan::default());
        };
        confine::plan(confine, Vec::new())
            .map_err(|error| (Step::Landlock, error.raw_os_error().unwrap_or(0)))
    }
}
