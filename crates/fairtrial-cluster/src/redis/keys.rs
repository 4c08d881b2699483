//! Names of keys and channels. Every key of a queue has the queue's name as its hash tag (CL-11).

use crate::names::{Class, QueueName};

/// Queue to weight.
pub(super) const QUEUES: &str = "ft:queues";
/// Names of agents.
pub(super) const NODES: &str = "ft:nodes";
/// The group of every stream of tasks.
pub(super) const GROUP: &str = "agents";
/// The pseudo-consumer of entries that wait to be handed out again.
pub(super) const PARKED: &str = "parked";

/// One key of a queue.
pub(super) fn of(queue: &QueueName, what: &str) -> String {
    format!("ft:{{{queue}}}:{what}")
}

/// A queue's stream of a class.
pub(super) fn stream(queue: &QueueName, class: Class) -> String {
    of(queue, &format!("q:{class}"))
}

/// All keys of a queue, in the order that scripts expect.
pub(super) fn all(queue: &QueueName) -> [String; 8] {
    [
        "meta", "task", "res", "cancel", "dead", "ev", "q:cpu", "q:timing",
    ]
    .map(|what| of(queue, what))
}

/// A node's key.
pub(super) fn node(name: &str) -> String {
    format!("ft:node:{name}")
}

/// The channel that says there is work of a class.
pub(super) fn wake(class: Class) -> String {
    format!("ft:wake:{class}")
}

/// The channel that tells an agent.
pub(super) fn control(agent: &str) -> String {
    format!("ft:ctl:{agent}")
}
