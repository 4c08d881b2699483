//! Which queues are told of which workers (CL-61): those whose calls a worker ran, of its start when the first of them has
//! begun, and of its end. A fold over what the engine tells; pure but for where that arrives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fairtrial_exec::{Event, LocalBackend};

use crate::names::QueueName;
use crate::terms::NewEvent;
use crate::worker_events::to_queue;

/// The workers of an agent's engine.
pub(super) struct Workers {
    agent: String,
    /// As the engine told it, on whatever thread it runs.
    heard: Arc<Mutex<Vec<Event>>>,
    live: HashMap<String, Live>,
    untold: HashMap<QueueName, Vec<NewEvent>>,
    /// What belongs to no worker, and so to no queue.
    of_all: Vec<NewEvent>,
}

/// A worker that has not ended.
struct Live {
    start: NewEvent,
    served: Vec<QueueName>,
}

impl Workers {
    /// Of an engine that tells of them from now on.
    pub(super) fn of(engine: &LocalBackend, agent: &str) -> Self {
        let heard: Arc<Mutex<Vec<Event>>> = Arc::default();
        let hearing = heard.clone();
        engine.set_onlooker(Box::new(move |event| {
            let is_told = matches!(
                event,
                Event::WorkerStart { .. } | Event::WorkerExit { .. } | Event::Degraded { .. }
            );
            if is_told {
                let mut heard = hearing.lock().unwrap_or_else(PoisonError::into_inner);
                heard.push(event.clone());
            }
        }));
        Self {
            agent: agent.to_owned(),
            heard,
            live: HashMap::new(),
            untold: HashMap::new(),
            of_all: Vec::new(),
        }
    }

    /// A call of this queue has begun.
    pub(super) fn began(&mut self, worker_id: &str, queue: &QueueName) {
        self.catch_up_but(|event| {
            // What it ran, it ran before it ended.
            matches!(event, Event::WorkerExit { worker_id: ended, .. } if ended == worker_id)
        });
        if let Some(live) = self.live.get_mut(worker_id)
            && !live.served.contains(queue)
        {
            live.served.push(queue.clone());
            let start = live.start.clone();
            self.untold.entry(queue.clone()).or_default().push(start);
        }
    }

    /// What a queue has not been told yet.
    pub(super) fn take(&mut self, queue: &QueueName) -> Vec<NewEvent> {
        self.catch_up_but(|_| false);
        self.untold.remove(queue).unwrap_or_default()
    }

    /// What any queue has not been told yet, and what all are to be told.
    pub(super) fn take_all(&mut self) -> (HashMap<QueueName, Vec<NewEvent>>, Vec<NewEvent>) {
        self.catch_up_but(|_| false);
        (
            std::mem::take(&mut self.untold),
            std::mem::take(&mut self.of_all),
        )
    }

    /// Whether there is something to tell.
    pub(super) fn has_news(&mut self) -> bool {
        self.catch_up_but(|_| false);
        !self.untold.is_empty() || !self.of_all.is_empty()
    }

    /// Takes in what the engine told, as far as it is not left for later.
    fn catch_up_but(&mut self, is_left: impl Fn(&Event) -> bool) {
        let heard = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            let later = heard.extract_if(.., |event| is_left(event)).collect();
            std::mem::replace(&mut *heard, later)
        };
        heard.iter().for_each(|event| self.hear(event));
    }

    fn hear(&mut self, event: &Event) {
        let Some(told) = to_queue(event, &self.agent) else {
            return;
        };
        match event {
            Event::WorkerStart { worker_id, .. } => {
                let live = Live {
                    start: told,
                    served: Vec::new(),
                };
                self.live.insert(worker_id.clone(), live);
            }
            Event::WorkerExit { worker_id, .. } => {
                let ended = self.live.remove(worker_id);
                for queue in ended.into_iter().flat_map(|live| live.served) {
                    self.untold.entry(queue).or_default().push(told.clone());
                }
            }
            _ => self.of_all.push(told),
        }
    }
}

#[cfg(test)]
mod tests {
    use fairtrial_exec::{ExitReason, Level, LocalConfig};

    use super::*;

    fn workers() -> Workers {
        let config = LocalConfig::from_env().expect("a configuration");
        Workers::of(&LocalBackend::new(config), "a") // never started
    }

    fn tell(workers: &Workers, event: Event) {
        workers.heard.lock().unwrap().push(event);
    }

    fn start(worker_id: &str) -> Event {
        Event::WorkerStart {
            worker_id: worker_id.into(),
            pid: 1,
            zygote_threads: None,
        }
    }

    fn exit(worker_id: &str) -> Event {
        Event::WorkerExit {
            worker_id: worker_id.into(),
            reason: ExitReason::CallDone,
            status: None,
            stale_frames: 0,
        }
    }

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    fn names(events: &[NewEvent]) -> Vec<&str> {
        events.iter().map(|event| event.name.as_str()).collect()
    }

    /// CL-61
    #[test]
    fn each_queue_that_a_worker_served_hears_of_its_start_and_its_end_once() {
        let (mut workers, one, other) = (workers(), queue("one"), queue("other"));
        tell(&workers, start("w"));
        assert!(!workers.has_news(), "it has run nothing yet");
        workers.began("w", &one);
        workers.began("w", &one);
        assert_eq!(names(&workers.take(&one)), ["worker_start"]);
        workers.began("w", &other);
        tell(&workers, exit("w"));
        assert_eq!(names(&workers.take(&one)), ["worker_exit"]);
        let (untold, _) = workers.take_all();
        assert_eq!(names(&untold[&other]), ["worker_start", "worker_exit"]);
        assert!(workers.live.is_empty());
    }

    /// CL-61: one that was forked ahead and never used is nobody's.
    #[test]
    fn of_a_worker_that_served_nobody_nobody_hears() {
        let mut workers = workers();
        tell(&workers, start("w"));
        tell(&workers, exit("w"));
        assert!(!workers.has_news());
    }

    /// CL-61: the call's own record comes after its worker's end.
    #[test]
    fn a_worker_that_has_ended_when_its_call_is_told_of_has_served_it() {
        let (mut workers, queue) = (workers(), queue("q"));
        tell(&workers, start("w"));
        tell(&workers, exit("w"));
        workers.began("w", &queue);
        let told = workers.take(&queue);
        assert_eq!(names(&told), ["worker_start", "worker_exit"]);
    }

    /// CL-61
    #[test]
    fn what_is_missing_is_told_to_all() {
        let mut workers = workers();
        let event = Event::Degraded {
            requested: Level::Limits,
            mechanism: "memory",
            reason: "none".into(),
        };
        tell(&workers, event);
        assert_eq!(names(&workers.take_all().1), ["degraded"]);
        assert!(!workers.has_news());
    }
}
