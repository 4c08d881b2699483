//! What queues are told of the calls that began here, and of the workers that ran them (CL-61): of a worker's start when it
//! has begun a queue's call for the first time, of its end, and of what its calls do without. A fold over what the engine
//! tells, in its order; pure but for where that arrives.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fairtrial_exec::{CallId, Event, LocalBackend};
use serde_json::json;
use tokio::sync::Notify;

use crate::names::{QueueName, TaskId};
use crate::terms::{Lease, NewEvent};
use crate::worker_events::to_queue;

/// The workers of an agent's engine, and the calls that it was given.
pub(super) struct Workers {
    agent: String,
    /// As the engine told it, on whatever thread it runs.
    heard: Arc<Mutex<Vec<Event>>>,
    told: Arc<Notify>,
    /// Calls that have not begun.
    calls: HashMap<CallId, (QueueName, TaskId)>,
    live: HashMap<String, Live>,
    /// What calls here do without: the engine tells it once.
    degraded: Vec<NewEvent>,
    /// How much of that a queue was told.
    told_degraded: HashMap<QueueName, usize>,
    untold: HashMap<QueueName, Vec<NewEvent>>,
}

/// A worker that has not ended.
#[derive(Default)]
struct Live {
    /// None until it is heard of: its first call may be quicker to begin.
    start: Option<NewEvent>,
    served: Vec<QueueName>,
}

impl Workers {
    /// Of an engine that tells of them from now on.
    pub(super) fn of(engine: &LocalBackend, agent: &str) -> Self {
        let heard: Arc<Mutex<Vec<Event>>> = Arc::default();
        let told = Arc::new(Notify::new());
        let (hearing, telling) = (heard.clone(), told.clone());
        engine.set_onlooker(Box::new(move |event| {
            let is_told = !matches!(
                event,
                Event::Submit { .. } | Event::Complete { .. } | Event::Shutdown
            );
            if is_told {
                let mut heard = hearing.lock().unwrap_or_else(PoisonError::into_inner);
                heard.push(event.clone());
                drop(heard);
                telling.notify_waiters();
            }
        }));
        Self {
            agent: agent.to_owned(),
            heard,
            told,
            calls: HashMap::new(),
            live: HashMap::new(),
            degraded: Vec::new(),
            told_degraded: HashMap::new(),
            untold: HashMap::new(),
        }
    }

    /// A call was given to the engine, which has told nothing of it yet.
    pub(super) fn submitted(&mut self, call: CallId, lease: &Lease) {
        let of = (lease.queue.clone(), lease.task.clone());
        self.calls.insert(call, of);
    }

    /// A call is over, on this worker. One that passed a limit at once may never have been seen to begin.
    pub(super) fn ended(&mut self, call: CallId, worker_id: Option<&str>) {
        let is_untold = |is_it: &dyn Fn(&Event) -> bool| {
            let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.iter().any(is_it)
        };
        let begins = is_untold(&|it| matches!(it, Event::Start { call: of, .. } if *of == call));
        if let (false, Some(id)) = (begins, worker_id) {
            let comes = is_untold(
                &|it| matches!(it, Event::WorkerStart { worker_id, .. } if worker_id == id),
            );
            let of = self.calls.remove(&call);
            if let Some((queue, _)) = of.filter(|_| comes || self.live.contains_key(id)) {
                self.serves(id, queue);
            }
        }
        self.catch_up();
        self.calls.remove(&call);
    }

    /// Whether a worker that was heard of has ended.
    pub(super) fn is_gone(&mut self, worker_id: &str) -> bool {
        self.catch_up();
        !self.live.contains_key(worker_id)
    }

    /// When something was told.
    pub(super) fn told(&self) -> Arc<Notify> {
        self.told.clone()
    }

    /// What a queue has not been told yet.
    pub(super) fn take(&mut self, queue: &QueueName) -> Vec<NewEvent> {
        self.catch_up();
        self.untold.remove(queue).unwrap_or_default()
    }

    /// It was not told after all, and is told before what came since.
    pub(super) fn put_back(&mut self, queue: &QueueName, mut events: Vec<NewEvent>) {
        if events.is_empty() {
            return;
        }
        let untold = self.untold.entry(queue.clone()).or_default();
        events.append(untold);
        *untold = events;
    }

    /// A task is somebody else's again: it did not begin.
    pub(super) fn give_up(&mut self, lease: &Lease) {
        self.catch_up();
        if let Some(untold) = self.untold.get_mut(&lease.queue) {
            untold.retain(|event| event.task.as_ref() != Some(&lease.task));
            if untold.is_empty() {
                self.untold.remove(&lease.queue);
            }
        }
    }

    /// Queues that have something to hear.
    pub(super) fn with_news(&mut self) -> Vec<QueueName> {
        self.catch_up();
        self.untold.keys().cloned().collect()
    }

    /// Takes in what the engine told.
    fn catch_up(&mut self) {
        let heard = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *heard)
        };
        heard.iter().for_each(|event| self.hear(event));
    }

    fn hear(&mut self, event: &Event) {
        match event {
            Event::Start { call, worker_id } => self.began(*call, worker_id),
            Event::WorkerStart { worker_id, .. } => {
                let live = self.live.entry(worker_id.clone()).or_default();
                live.start = to_queue(event, &self.agent);
                for queue in &live.served {
                    let untold = self.untold.entry(queue.clone()).or_default();
                    untold.extend(live.start.clone());
                }
            }
            Event::WorkerExit { worker_id, .. } => {
                let ended = self.live.remove(worker_id);
                let told = to_queue(event, &self.agent);
                for queue in ended.into_iter().flat_map(|live| live.served) {
                    self.untold.entry(queue).or_default().extend(told.clone());
                }
            }
            Event::Degraded { .. } => self.degraded.extend(to_queue(event, &self.agent)),
            Event::Submit { .. } | Event::Complete { .. } | Event::Shutdown => {}
        }
    }

    fn began(&mut self, call: CallId, worker_id: &str) {
        let Some((queue, task)) = self.calls.remove(&call) else {
            return; // a probe of the agent's own
        };
        let untold = self.untold.entry(queue.clone()).or_default();
        let told = self.told_degraded.entry(queue.clone()).or_default();
        untold.extend_from_slice(&self.degraded[*told..]);
        *told = self.degraded.len();
        self.serves(worker_id, queue.clone());
        self.untold.entry(queue).or_default().push(NewEvent {
            name: "start".to_owned(),
            task: Some(task),
            agent: Some(self.agent.clone()),
            data: json!({"worker_id": worker_id}).to_string(),
        });
    }

    fn serves(&mut self, worker_id: &str, queue: QueueName) {
        let live = self.live.entry(worker_id.to_owned()).or_default();
        if !live.served.contains(&queue) {
            let untold = self.untold.entry(queue.clone()).or_default();
            untold.extend(live.start.clone());
            live.served.push(queue);
        }
    }
}

/// Events on their way to a queue. They are put back unless they arrive.
pub(super) struct Telling<'a> {
    workers: &'a RefCell<Workers>,
    queue: &'a QueueName,
    pub(super) events: Vec<NewEvent>,
}

impl<'a> Telling<'a> {
    /// All that a queue has not been told yet.
    pub(super) fn of(workers: &'a RefCell<Workers>, queue: &'a QueueName) -> Self {
        let events = workers.borrow_mut().take(queue);
        Self {
            workers,
            queue,
            events,
        }
    }

    /// They arrived.
    pub(super) fn arrived(mut self) {
        self.events.clear();
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        let events = std::mem::take(&mut self.events);
        self.workers.borrow_mut().put_back(self.queue, events);
    }
}

#[cfg(test)]
mod tests;
