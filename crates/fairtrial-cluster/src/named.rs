//! Which blobs somebody still needs: those that tasks, results and pins of any queue name (CL-53).

use std::collections::HashSet;

use crate::answers::Holding;
use crate::blobs::Digest;
use crate::dispatch::{Dispatch, DispatchError};
use crate::envelope::{ResultEnvelope, TaskEnvelope};
use crate::names::QueueName;

/// Why that cannot be said.
#[derive(Debug, thiserror::Error)]
pub enum NamedError {
    /// The server did not answer.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// Something there may name blobs, and cannot be read here.
    #[error("queue `{queue}` holds what this version cannot read: {problem}")]
    Unreadable {
        /// Where.
        queue: QueueName,
        /// What is wrong with it.
        problem: String,
    },
}

/// The blobs that a server's queues name.
///
/// # Errors
/// The server does not answer, or holds what cannot be read: then nobody knows.
pub async fn named_blobs(dispatch: &impl Dispatch) -> Result<HashSet<Digest>, NamedError> {
    let mut named = HashSet::new();
    for listed in dispatch.queues().await? {
        let mut problem = None;
        let each = |holding| match digests(&holding) {
            Ok(digests) => named.extend(digests),
            Err(why) => problem = Some(why),
        };
        dispatch.each_held(&listed.queue, each).await?;
        if let Some(problem) = problem {
            let queue = listed.queue;
            return Err(NamedError::Unreadable { queue, problem });
        }
    }
    Ok(named)
}

fn digests(holding: &Holding) -> Result<Vec<Digest>, String> {
    match holding {
        Holding::Task(bytes) => {
            let task = TaskEnvelope::read(bytes).map_err(|error| error.to_string())?;
            let blobs = task.blobs().into_iter();
            Ok(blobs.map(|(blob, _)| blob.digest).collect())
        }
        Holding::Result(bytes) => {
            let result = ResultEnvelope::read(bytes).map_err(|error| error.to_string())?;
            Ok(result.blobs().iter().map(|blob| blob.digest).collect())
        }
        Holding::Pin(word) => match word.parse() {
            Ok(digest) => Ok(vec![digest]),
            Err(_) => Err(format!("the pin `{word}`")),
        },
    }
}
