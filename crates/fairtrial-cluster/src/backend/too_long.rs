//! Tasks that may not wait for ever (EX-46). A lease ends those that have waited too long; where nobody leases, the server
//! is asked to.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::coordinator::Coordinator;
use crate::dispatch::Dispatch;
use crate::jitter::Backoff;
use crate::names::TaskId;

/// Tasks asked about at a time.
const AT_ONCE: usize = 100;
/// The server's clock is asked again after this at least.
const SHORTEST: Duration = Duration::from_millis(5);

impl<D: Dispatch + 'static> Coordinator<D> {
    /// A task is with the server: its time runs.
    pub(super) fn watch_wait(&self, task: &TaskId) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let Some(outstanding) = state.outstanding.get(task) else {
            return;
        };
        let Some(most) = outstanding.task.queue_timeout else {
            return;
        };
        // Those that ended are forgotten now and then, lest they pile up until their time has come.
        if state.waiting.len() > 2 * state.outstanding.len() + AT_ONCE {
            let outstanding = &state.outstanding;
            state
                .waiting
                .retain(|(_, task)| outstanding.contains_key(task));
        }
        if let Some(at) = Instant::now().checked_add(most) {
            state.waiting.insert((at, task.clone()));
            self.waits.notify_one();
        }
    }

    /// Has those ended whose time has come.
    pub(super) async fn end_long_waits(self: Rc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            let first = self
                .state
                .borrow()
                .waiting
                .first()
                .map(|(at, _)| (*at).into());
            let come = async {
                match first {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = come => {}
                () = self.waits.notified() => continue,
            }
            let due = self.whose_time_has_come();
            match self.dispatch.expire(&self.config.queue, &due).await {
                Ok(again) => {
                    backoff = Backoff::default();
                    for (task, wait) in due.into_iter().zip(again) {
                        self.ask_later(task, wait);
                    }
                }
                Err(error) => {
                    self.missed(error);
                    let wait = backoff.next();
                    for task in due {
                        self.ask_later(task, Some(wait));
                    }
                }
            }
        }
    }

    fn whose_time_has_come(&self) -> Vec<TaskId> {
        let now = Instant::now();
        let mut state = self.state.borrow_mut();
        let mut due = Vec::new();
        while let Some((at, _)) = state.waiting.first()
            && *at <= now
            && due.len() < AT_ONCE
        {
            due.extend(state.waiting.pop_first().map(|(_, task)| task));
        }
        due.retain(|task| state.outstanding.contains_key(task));
        due
    }

    fn ask_later(&self, task: TaskId, wait: Option<Duration>) {
        let at = wait.and_then(|wait| Instant::now().checked_add(wait.max(SHORTEST)));
        if let Some(at) = at {
            self.state.borrow_mut().waiting.insert((at, task));
        }
    }
}
