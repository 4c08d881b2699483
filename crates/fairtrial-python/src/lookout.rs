//! What the engine of a node tells of its workers, for whoever passes it on: only of those that a call began on.
//!
//! The exit of a worker whose call was not replied to yet is kept for that reply, which tells of the worker at all. Other exits
//! are news, which somebody is woken for.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fairtrial_exec::{Event, ExitReason, Level};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A worker as it is told of: its name, its process, how many threads its zygote had, and the descriptors of preloads
/// that it does not have.
pub(crate) type Started = (String, u32, Option<u32>, BTreeMap<u32, String>);

/// Keeps what was heard until it is asked for.
#[derive(Default)]
pub(crate) struct Lookout {
    // A plain mutex: held to read or change a few words, and never while Python is called.
    state: Mutex<State>,
    heard: Condvar,
    wake: OnceLock<Py<PyAny>>,
}

#[derive(Default)]
struct State {
    workers: HashMap<String, Worker>,
    news: Vec<News>,
}

#[derive(Default)]
struct Worker {
    /// Its pid and what is told of its zygote, once they were heard of: calls begin on other threads than events are told
    /// on.
    process: Option<(u32, Option<u32>, BTreeMap<u32, String>)>,
    has_begun: bool,
    /// It serves one call, whose reply waits for its exit.
    is_own: bool,
    /// Calls that began on it and whose replies do not tell of it yet.
    open: usize,
    /// Kept for the last of these replies.
    exit: Option<ExitReason>,
}

/// What no reply tells.
pub(crate) enum News {
    Exit {
        worker_id: String,
        reason: ExitReason,
    },
    Degraded {
        level: Level,
        mechanism: &'static str,
        reason: String,
    },
}

impl Lookout {
    /// Has `wake()` called when there is news, on a thread of the engine's.
    pub(crate) fn wake_by(&self, wake: Py<PyAny>) {
        self.wake.get_or_init(|| wake);
    }

    /// Takes an event of the engine's.
    pub(crate) fn hear(&self, event: &Event) {
        let is_news = match event {
            Event::WorkerStart {
                worker_id,
                pid,
                zygote_threads,
                closed_fds,
            } => {
                let mut state = self.lock();
                let worker = state.workers.entry(worker_id.clone()).or_default();
                worker.process = Some((*pid, *zygote_threads, closed_fds.clone()));
                false
            }
            Event::WorkerExit {
                worker_id, reason, ..
            } => self.lock().exited(worker_id, *reason),
            Event::Degraded {
                requested,
                mechanism,
                reason,
            } => {
                self.lock().news.push(News::Degraded {
                    level: *requested,
                    mechanism,
                    reason: reason.clone(),
                });
                true
            }
            // Of each call, and nothing that a reply does not tell.
            Event::Submit { .. }
            | Event::Start { .. }
            | Event::Complete { .. }
            | Event::Shutdown => return,
        };
        self.heard.notify_all();
        if is_news {
            self.wake_reader();
        }
    }

    /// A call began on a worker, which serves no other if it is its `own`.
    pub(crate) fn began(&self, worker_id: &str, is_own: bool) {
        let mut state = self.lock();
        if let Some(worker) = state.workers.get_mut(worker_id) {
            (worker.has_begun, worker.is_own) = (true, is_own);
            worker.open += 1;
            return;
        }
        let worker = Worker {
            has_begun: true,
            is_own,
            open: 1,
            ..Worker::default()
        };
        state.workers.insert(worker_id.to_owned(), worker);
    }

    /// A worker that a call began on, as far as it was heard of.
    pub(crate) fn started(&self, worker_id: &str) -> Option<Started> {
        let (pid, threads, closed_fds) = self.lock().workers.get(worker_id)?.process.clone()?;
        Some((worker_id.to_owned(), pid, threads, closed_fds))
    }

    /// The worker of a call that is over; with its exit, if that was its last call. For one of a single call waits until that
    /// was heard: a call is answered just before its worker's exit is told. What comes later is news.
    pub(crate) fn served(
        &self,
        worker_id: &str,
        patience: Duration,
    ) -> Option<(Started, Option<ExitReason>)> {
        let unheard = |state: &mut State| {
            let worker = state.workers.get(worker_id);
            worker.is_some_and(|worker| {
                worker.process.is_none() || (worker.is_own && worker.exit.is_none())
            })
        };
        let waited = self
            .heard
            .wait_timeout_while(self.lock(), patience, unheard);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let worker = state.workers.get_mut(worker_id)?;
        worker.open = worker.open.saturating_sub(1);
        let process = worker.process.clone();
        let exit = worker.exit.filter(|_| worker.open == 0);
        match exit {
            Some(_) => drop(state.workers.remove(worker_id)),
            None => worker.is_own = false,
        }
        let (pid, threads, closed_fds) = process?;
        Some(((worker_id.to_owned(), pid, threads, closed_fds), exit))
    }

    /// Workers that a call began on and that are not gone.
    pub(crate) fn living(&self) -> Vec<String> {
        let state = self.lock();
        let living = state.workers.iter();
        let living = living.filter(|(_, worker)| worker.has_begun && worker.exit.is_none());
        living.map(|(worker_id, _)| worker_id.clone()).collect()
    }

    /// What was heard since the last time.
    pub(crate) fn news(&self) -> Vec<News> {
        std::mem::take(&mut self.lock().news)
    }

    /// The same when there will be no more replies: with the exits that were kept for them.
    pub(crate) fn last_news(&self) -> Vec<News> {
        let mut state = self.lock();
        let mut news = std::mem::take(&mut state.news);
        let kept = state.workers.drain();
        news.extend(kept.filter_map(|(worker_id, worker)| {
            let reason = worker.exit?;
            Some(News::Exit { worker_id, reason })
        }));
        news
    }

    fn wake_reader(&self) {
        if let Some(wake) = self.wake.get() {
            // An interpreter that is ending reads nothing more.
            _ = Python::try_attach(|py| {
                if let Err(error) = wake.call0(py) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether it is news.
    fn exited(&mut self, worker_id: &str, reason: ExitReason) -> bool {
        let Some(worker) = self.workers.get_mut(worker_id) else {
            return false;
        };
        if worker.open > 0 {
            worker.exit = Some(reason);
            return false;
        }
        let has_begun = worker.has_begun;
        self.workers.remove(worker_id);
        if has_begun {
            let worker_id = worker_id.to_owned();
            self.news.push(News::Exit { worker_id, reason });
        }
        has_begun
    }
}

impl News {
    /// `("worker_exit", worker_id, reason)` or `("degraded", level, mechanism, reason)`.
    pub(crate) fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match self {
            Self::Exit { worker_id, reason } => {
                ("worker_exit", worker_id, reason.name()).into_pyobject(py)
            }
            Self::Degraded {
                level,
                mechanism,
                reason,
            } => ("degraded", level.to_string(), mechanism, reason).into_pyobject(py),
        }
    }
}
