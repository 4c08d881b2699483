//! What an earlier owner of a queue left in it.

use super::coordinator::Coordinator;
use crate::answers::Submitted;
use crate::dispatch::{Dispatch, DispatchError};
use crate::envelope::ResultEnvelope;
use crate::names::TaskId;

impl<D: Dispatch + 'static> Coordinator<D> {
    /// Whether a result says that somebody cancelled the task before we asked for it. Who goes on wants it run.
    pub(super) fn is_left_cancelled(&self, task: &TaskId, result: &[u8]) -> bool {
        let is_wanted = {
            let state = self.state.borrow();
            let outstanding = state.outstanding.get(task);
            outstanding.is_some_and(|it| it.was_there && !it.cancelled)
        };
        is_wanted && ResultEnvelope::read(result).is_ok_and(|result| result.is_cancelled())
    }

    /// Drops the result of a task, and submits it again.
    pub(super) async fn begin_anew(&self, task: &TaskId) {
        if let Err(error) = self.drop_and_submit(task).await {
            self.missed(error);
            // With the next look it has no result, or still this one.
            self.has_ended(task.clone());
        }
    }

    async fn drop_and_submit(&self, task: &TaskId) -> Result<(), DispatchError> {
        let queue = &self.config.queue;
        self.dispatch
            .collect(queue, &[], std::slice::from_ref(task))
            .await?;
        let again = {
            let mut state = self.state.borrow_mut();
            let Some(outstanding) = state.outstanding.get_mut(task) else {
                return Ok(());
            };
            outstanding.was_there = false;
            outstanding.task.clone()
        };
        match self.dispatch.submit(queue, &again).await? {
            Submitted::Ok | Submitted::Dup | Submitted::Done => {}
            // It has room of its own, unless somebody was quicker: the next look at what is missing submits it.
            Submitted::Full | Submitted::Closed => {}
        }
        Ok(())
    }

    /// Where a queue is full and nobody here waits for anything in it, nobody will ever make room: some results that an
    /// earlier owner left go. Those of tasks in the line are given out instead. Whether there were any.
    pub(super) async fn drop_some_leftovers(&self) -> bool {
        if !self.state.borrow().outstanding.is_empty() {
            return false;
        }
        let left = match self.dispatch.left(&self.config.queue).await {
            Ok(left) => left,
            Err(error) => {
                self.missed(error);
                return false;
            }
        };
        let unwanted: Vec<TaskId> = {
            let mut state = self.state.borrow_mut();
            let line = state.line.make_contiguous();
            // They come first, and are told `Done`.
            line.sort_by_key(|in_line| !left.contains(&in_line.task.id));
            let is_wanted = |task: &TaskId| line.iter().any(|in_line| in_line.task.id == *task);
            left.iter()
                .filter(|task| !is_wanted(task))
                .cloned()
                .collect()
        };
        if !unwanted.is_empty() {
            log::warn!(
                "queue `{}` is full of results that an earlier process left: {} are dropped",
                self.config.queue,
                unwanted.len()
            );
            let dropped = self.dispatch.collect(&self.config.queue, &[], &unwanted);
            if let Err(error) = dropped.await {
                self.missed(error);
                return false;
            }
        }
        !left.is_empty()
    }

    /// All went well, so nobody comes back for anything: results that are left go.
    pub(super) async fn drop_leftovers(&self) {
        let well = self.failed.borrow().is_none() && !self.was_cut_short.get();
        while well && let Ok(left) = self.dispatch.left(&self.config.queue).await {
            let dropped = self.dispatch.collect(&self.config.queue, &[], &left);
            if left.is_empty() || dropped.await.is_err() {
                return;
            }
        }
    }
}
