//! Hints: somebody may have work, something was cancelled. Only hints: whoever misses one asks again within a second, or
//! hears it at the next renewal.

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::names::{Class, QueueName, TaskId};

/// What may be worth a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// There is work of this class in this queue, or there was.
    Wake {
        /// The class.
        class: Class,
        /// The queue.
        queue: QueueName,
    },
    /// A leased task was cancelled; all of the queue's, if none is named.
    Cancel {
        /// The queue.
        queue: QueueName,
        /// The task.
        task: Option<TaskId>,
    },
}

/// Hints that are not taken in time are dropped from here on: who is that far behind looks anyway.
const ROOM: usize = 1024;

/// Hints as they come, until the connection ends or this is dropped.
#[derive(Debug)]
pub struct Hints {
    receiver: mpsc::Receiver<Hint>,
    /// Whoever listens for us.
    listener: Option<AbortHandle>,
}

impl Hints {
    /// A pair: hints sent to the one come out of the other.
    pub(crate) fn channel() -> (mpsc::Sender<Hint>, Self) {
        let (sender, receiver) = mpsc::channel(ROOM);
        let listener = None;
        (sender, Self { receiver, listener })
    }

    /// Ends this task when it is dropped itself.
    pub(crate) fn fed_by(self, task: AbortHandle) -> Self {
        let mut hints = self;
        hints.listener = Some(task);
        hints
    }

    /// The next; none if the connection is lost: ask for hints anew, and look around meanwhile.
    pub async fn next(&mut self) -> Option<Hint> {
        self.receiver.recv().await
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}
