//! From a result to those who wait for it. Events say which tasks ended; nothing is known by an event alone.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use fairtrial_exec::{Answer, Body, EngineError, ResultFile, Writers};

use super::coordinator::Coordinator;
use crate::answers::{Place, StoredEvent, Submitted};
use crate::blobs::{Blob, BlobError, Digest, Fault};
use crate::dispatch::{Dispatch, DispatchError};
use crate::envelope::{ErrorCode, ResultEnvelope, TaskError};
use crate::jitter::Backoff;
use crate::names::TaskId;
use crate::terms::NewEvent;

/// Results asked for at a time.
const AT_ONCE: usize = 100;
/// One question for events waits this long.
const LISTEN: Duration = Duration::from_secs(5);
/// Tasks outstanding from which on events are read together, for so long, unless as many as this come anyway.
const MANY_TASKS: usize = 16;
const GATHER: Duration = Duration::from_millis(1);
const FEW_EVENTS: usize = 64;
/// What is larger is not held in memory.
const SMALL: u64 = 1 << 20;

impl<D: Dispatch + 'static> Coordinator<D> {
    /// Hears which tasks began and ended.
    pub(super) async fn read_events(self: Rc<Self>) {
        let mut backoff = Backoff::default();
        let mut after = None;
        loop {
            let changed = self.changed.notified();
            let Some(from) = after.or(self.opened.get()) else {
                changed.await;
                continue;
            };
            match self.dispatch.events(&self.config.queue, from, LISTEN).await {
                Ok(events) => {
                    self.reached();
                    backoff = Backoff::default();
                    after = Some(events.events.last().map_or(from, |event| event.id));
                    events.events.iter().for_each(|event| self.hear(event));
                    self.let_events_gather(events.events.len()).await;
                    if events.gap
                        && let Err(error) = self.repair().await
                    {
                        self.missed(error);
                    }
                }
                Err(error) => {
                    self.missed(error);
                    after = self.opened.get();
                    tokio::time::sleep(backoff.next()).await;
                    if let Err(error) = self.repair().await {
                        self.missed(error);
                    }
                }
            }
        }
    }

    pub(super) fn hear(&self, stored: &StoredEvent) {
        let NewEvent {
            name, task, data, ..
        } = &stored.event;
        let Some(task) = task else {
            return;
        };
        if self.is_early(task) {
            self.state.borrow_mut().early.push(stored.clone());
            return;
        }
        match name.as_str() {
            "start" => {
                let data: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
                self.tell_began(task, data["worker_id"].as_str().unwrap_or_default());
            }
            "complete" => {
                let mut state = self.state.borrow_mut();
                if state.outstanding.contains_key(task) {
                    state.ended.push_back(task.clone());
                    self.results.notify_one();
                }
            }
            _ => {}
        }
    }

    /// Beside many outstanding tasks nobody waits for one event: a few more are read with it, and their results fetched
    /// together. Somebody who makes one call at a time is told at once.
    async fn let_events_gather(&self, came: usize) {
        if came < FEW_EVENTS && self.state.borrow().outstanding.len() >= MANY_TASKS {
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Fetches results as tasks end, and gives them out.
    pub(super) async fn collect_results(self: Rc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            let (asked, cancelled) = {
                let mut state = self.state.borrow_mut();
                let many = state.ended.len().min(AT_ONCE);
                let asked: Vec<TaskId> = state.ended.drain(..many).collect();
                (asked, std::mem::take(&mut state.to_cancel))
            };
            for task in cancelled {
                self.cancel_task(&task).await;
            }
            if asked.is_empty() {
                self.results.notified().await;
                continue;
            }
            let kept = self.droppable();
            match self
                .dispatch
                .collect(&self.config.queue, &asked, &kept)
                .await
            {
                Ok(results) => {
                    self.reached();
                    backoff = Backoff::default();
                    for (task, bytes) in results {
                        self.give_out(task, &bytes).await;
                    }
                    self.room.notify_one();
                }
                Err(error) => {
                    self.missed(error);
                    self.put_back(asked, kept);
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    /// They were not fetched, or not dropped.
    fn put_back(&self, asked: Vec<TaskId>, kept: Vec<TaskId>) {
        let mut state = self.state.borrow_mut();
        asked
            .into_iter()
            .rev()
            .for_each(|task| state.ended.push_front(task));
        kept.into_iter()
            .rev()
            .for_each(|task| state.delivered.push_front(task));
    }

    /// Results that nobody can ask for again: in a queue without a name all that were given out; in a named one all but
    /// the latest, which whoever was told may not have written down yet (CL-32).
    fn droppable(&self) -> Vec<TaskId> {
        let keeps = self.keeps();
        let mut state = self.state.borrow_mut();
        let many = state.delivered.len().saturating_sub(keeps).min(AT_ONCE);
        state.delivered.drain(..many).collect()
    }

    /// Results that were given out and stay on the server, the latest.
    pub(super) fn keeps(&self) -> usize {
        match self.config.named {
            true => usize::try_from(self.config.max_queue / 4).unwrap_or(usize::MAX),
            false => 0,
        }
    }

    /// Drops results that were given out, down to so many.
    pub(super) async fn drop_delivered(&self, down_to: usize) {
        loop {
            let kept: Vec<TaskId> = {
                let mut state = self.state.borrow_mut();
                let many = state.delivered.len().saturating_sub(down_to).min(AT_ONCE);
                state.delivered.drain(..many).collect()
            };
            if kept.is_empty() {
                return;
            }
            let dropped = self.dispatch.collect(&self.config.queue, &[], &kept);
            if dropped.await.is_err() {
                self.put_back(Vec::new(), kept);
                return;
            }
        }
    }

    async fn give_out(&self, task: TaskId, bytes: &[u8]) {
        let answers = {
            let state = self.state.borrow();
            let waiting = state.outstanding.get(&task);
            waiting.map_or(0, |outstanding| outstanding.waiting.len())
        };
        // An outcome is not made twice from the same bytes for nobody: most tasks have one who waits.
        let mut made = Vec::new();
        for _ in 0..answers {
            made.push(self.answer(bytes).await);
        }
        let outstanding = self.state.borrow_mut().outstanding.remove(&task);
        let waiting = outstanding
            .into_iter()
            .flat_map(|outstanding| outstanding.waiting);
        for ((call, listener), answer) in waiting.zip(made) {
            self.tell(call, listener, answer);
        }
        self.state.borrow_mut().delivered.push_back(task);
    }

    async fn answer(&self, bytes: &[u8]) -> Answer {
        let envelope = ResultEnvelope::read(bytes)?;
        // Two pieces may be one blob: both halves of a long output, for example.
        let mut fetched: HashMap<Digest, Vec<Body>> = HashMap::new();
        for blob in envelope.blobs() {
            let body = self.fetch(*blob).await?;
            fetched.entry(blob.digest).or_default().push(body);
        }
        Ok(envelope.to_outcome(|blob| fetched.get_mut(&blob.digest)?.pop())?)
    }

    async fn fetch(&self, blob: Blob) -> Result<Body, EngineError> {
        let Some(store) = &self.store else {
            let message = format!(
                "the value is in a store, and none is named here: blob {}",
                blob.digest
            );
            let code = ErrorCode::NoStore;
            return Err(TaskError { code, message }.into());
        };
        if blob.bytes <= SMALL {
            let bytes = store.get(blob, SMALL).await.map_err(unfetched)?;
            return Ok(Body::Inline(bytes));
        }
        let file = ResultFile::create(blob.bytes, &self.config.spill)?;
        store.get_into(blob, file.fd()).await.map_err(unfetched)?;
        let settled = file.settle(blob.bytes, Writers::Dead);
        settled.map_err(|error| EngineError::Elsewhere {
            code: "blobs",
            problem: error.to_string(),
        })
    }

    /// Looks where everything outstanding is, and submits again what the server does not know (CL-58).
    pub(super) async fn repair(&self) -> Result<(), DispatchError> {
        let all: Vec<TaskId> = self.state.borrow().outstanding.keys().cloned().collect();
        let mut repaired = 0;
        for tasks in all.chunks(AT_ONCE) {
            let places = self.dispatch.check(&self.config.queue, tasks).await?;
            for (task, place) in tasks.iter().zip(places) {
                match place {
                    Place::Queued | Place::Leased => {}
                    Place::Done => {
                        self.state.borrow_mut().ended.push_back(task.clone());
                        self.results.notify_one();
                    }
                    Place::Missing => repaired += u32::from(self.submit_again(task).await?),
                }
            }
        }
        if repaired > 0 {
            let event = NewEvent {
                name: "queue.repaired".to_owned(),
                data: serde_json::json!({"tasks": repaired}).to_string(),
                ..NewEvent::default()
            };
            self.dispatch.emit(&self.config.queue, &[event]).await?;
        }
        Ok(())
    }

    async fn submit_again(&self, task: &TaskId) -> Result<bool, DispatchError> {
        let again = {
            let state = self.state.borrow();
            state
                .outstanding
                .get(task)
                .map(|outstanding| outstanding.task.clone())
        };
        let Some(again) = again else {
            return Ok(false);
        };
        match self.dispatch.submit(&self.config.queue, &again).await? {
            Submitted::Ok | Submitted::Dup => Ok(true),
            Submitted::Done => {
                self.state.borrow_mut().ended.push_back(task.clone());
                self.results.notify_one();
                Ok(false)
            }
            // Asked again with the next look.
            Submitted::Full | Submitted::Closed => Ok(false),
        }
    }
}

fn unfetched(error: BlobError) -> EngineError {
    let code = match &error.fault {
        Fault::Missing(_) => ErrorCode::BlobMissing,
        Fault::Corrupt { .. } => ErrorCode::BlobCorrupt,
        _ => {
            return EngineError::Elsewhere {
                code: "blobs",
                problem: error.to_string(),
            };
        }
    };
    let message = error.to_string();
    TaskError { code, message }.into()
}
