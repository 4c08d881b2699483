//! Where tasks are, by a queue's events alone (CL-63). A fold: no I/O, and nothing is known but what events said.

use std::collections::HashMap;

use crate::answers::{Place, StoredEvent};
use crate::names::TaskId;

/// Where each task is that events spoke of. Results that were dropped since are still `Done` here.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    places: HashMap<TaskId, Place>,
}

impl Fold {
    /// Hears one event; they come in order.
    pub fn hear(&mut self, event: &StoredEvent) {
        let Some(task) = &event.event.task else {
            return;
        };
        let place = match event.event.name.as_str() {
            "submit" | "call.requeued" | "call.refused" => Place::Queued,
            "call.leased" => Place::Leased,
            "complete" => Place::Done,
            _ => return,
        };
        self.places.insert(task.clone(), place);
    }

    /// Where a task is; `Missing` if no event spoke of it.
    #[must_use]
    pub fn place(&self, task: &TaskId) -> Place {
        self.places.get(task).copied().unwrap_or(Place::Missing)
    }

    /// How many have no result yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.places
            .values()
            .filter(|place| **place != Place::Done)
            .count()
    }
}
