//! From a result to those who wait for it. Events say which tasks ended; nothing is known by an event alone.

use std::rc::Rc;
use std::time::Duration;

use fairtrial_exec::{Body, CallId, EngineError, Listener, Outcome, ResultFile, Writers};

use super::coordinator::Coordinator;
use crate::answers::{Place, StoredEvent, Submitted};
use crate::blobs::{Blob, BlobError, patiently};
use crate::dispatch::{Dispatch, DispatchError};
use crate::envelope::{ErrorCode, ResultEnvelope, TaskError};
use crate::jitter::Backoff;
use crate::names::{StreamId, TaskId};
use crate::terms::NewEvent;

/// Results asked for at a time.
const AT_ONCE: usize = 100;
/// One question for events waits this long.
const LISTEN: Duration = Duration::from_secs(5);
/// Tasks outstanding from which on events are read together, and for how long, unless as many as this come anyway.
const GATHER: [(usize, Duration); 2] = [
    (128, Duration::from_millis(5)),
    (16, Duration::from_millis(1)),
];
const FEW_EVENTS: usize = 256;
/// What is larger is not held in memory.
const SMALL: u64 = 1 << 20;

impl<D: Dispatch + 'static> Coordinator<D> {
    /// Hears which tasks began and ended.
    pub(super) async fn read_events(self: Rc<Self>) {
        let mut backoff = Backoff::default();
        let (mut after, mut last) = (None, StreamId::START);
        // Events may have been missed, or what they were told of.
        let mut is_unsure = false;
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
                    // What is read again after a connection was lost: of tasks it is known what was heard.
                    let is_new = |it: &&StoredEvent| it.event.task.is_some() || it.id > last;
                    let new = events.events.iter().filter(is_new);
                    new.for_each(|event| self.hear(event));
                    last = last.max(after.unwrap_or_default());
                    self.let_events_gather(events.events.len()).await;
                    is_unsure |= events.gap;
                }
                Err(error) => {
                    self.missed(error);
                    after = self.opened.get();
                    is_unsure = true;
                    tokio::time::sleep(backoff.next()).await;
                }
            }
            // A look that failed is taken again: the connection that it needs was cut with the one for events (CL-58).
            if is_unsure {
                match self.repair().await {
                    Ok(()) => is_unsure = false,
                    Err(error) => self.missed(error),
                }
            }
        }
    }

    pub(super) fn hear(&self, stored: &StoredEvent) {
        let NewEvent {
            name,
            task,
            agent,
            data,
        } = &stored.event;
        if let ("agent.lost", Some(agent)) = (name.as_str(), agent) {
            log::warn!("agent `{agent}` is lost; what it had goes to others");
        }
        if self.is_early(task.as_ref()) {
            self.state.borrow_mut().early.push(stored.clone());
            return;
        }
        let Some(task) = task else {
            return self.tell_of_worker(&stored.event);
        };
        match name.as_str() {
            "start" => {
                let data: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
                self.tell_began(task, data["worker_id"].as_str().unwrap_or_default());
            }
            "complete" => {
                let is_ours = self.state.borrow().outstanding.contains_key(task);
                if is_ours {
                    self.has_ended(task.clone());
                }
            }
            _ => {}
        }
    }

    /// Its result is to be fetched.
    pub(super) fn has_ended(&self, task: TaskId) {
        self.state.borrow_mut().ended.push_back(task);
        self.results.notify_one();
    }

    /// Beside many outstanding tasks nobody waits for one event: a few more are read with it, and their results fetched
    /// together. Somebody who makes one call at a time is told at once.
    async fn let_events_gather(&self, came: usize) {
        let outstanding = self.state.borrow().outstanding.len();
        let many = GATHER.iter().find(|(many, _)| outstanding >= *many);
        if let (true, Some((_, time))) = (came < FEW_EVENTS, many) {
            tokio::time::sleep(*time).await;
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
                        if self.is_left_cancelled(&task, &bytes) {
                            self.begin_anew(&task).await;
                        } else {
                            self.hand_out(task, &bytes).await;
                        }
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
        let (mut dropped, mut asked_again) = (Vec::new(), Vec::new());
        for task in state.delivered.drain(..many).collect::<Vec<_>>() {
            // Who submits the same again is told that it is done, and comes for the result.
            let is_wanted = state.asked.contains(&task) || state.outstanding.contains_key(&task);
            match is_wanted {
                true => asked_again.push(task),
                false => dropped.push(task),
            }
        }
        state.delivered.extend(asked_again);
        dropped
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

    /// Gives a result out. One that lies in the store is fetched beside a few others, and those that came in their messages
    /// do not wait for it.
    async fn hand_out(self: &Rc<Self>, task: TaskId, bytes: &[u8]) {
        let read = ResultEnvelope::read(bytes);
        if read.as_ref().map_or(true, |it| it.blobs().is_empty()) {
            return self.give_out(task, &read).await;
        }
        if !self.state.borrow_mut().being_fetched.insert(task.clone()) {
            return; // somebody looked where it is, and it is on its way
        }
        let this = self.clone();
        self.start(async move {
            let _place = this.fetching.acquire().await;
            this.give_out(task.clone(), &read).await;
            this.state.borrow_mut().being_fetched.remove(&task);
            this.room.notify_one();
        });
    }

    /// Tells each who waits, one after the other: others may join while a blob is fetched, or be cancelled.
    async fn give_out(&self, task: TaskId, read: &Result<ResultEnvelope, TaskError>) {
        if !self.state.borrow().outstanding.contains_key(&task) {
            return; // told twice of its end
        }
        let mut is_read = true;
        while self.is_waited_for(&task) {
            // An outcome is not made twice from the same bytes for nobody: most tasks have one who waits.
            let answer = self.answer(read).await;
            let Some((call, listener)) = self.next_waiting(&task) else {
                break;
            };
            is_read &= !matches!(answer, Err(Unread::Now(_)));
            self.tell(call, listener, answer.map_err(EngineError::from));
        }
        let mut state = self.state.borrow_mut();
        match (state.outstanding.remove(&task), is_read) {
            (None, _) => {} // told twice of its end, and given out meanwhile
            (Some(_), true) => state.delivered.push_back(task),
            (Some(_), false) => self.was_cut_short.set(true), // it stays on the server
        }
    }

    fn is_waited_for(&self, task: &TaskId) -> bool {
        let state = self.state.borrow();
        let outstanding = state.outstanding.get(task);
        outstanding.is_some_and(|outstanding| !outstanding.waiting.is_empty())
    }

    fn next_waiting(&self, task: &TaskId) -> Option<(CallId, Box<dyn Listener>)> {
        let mut state = self.state.borrow_mut();
        state.outstanding.get_mut(task)?.waiting.pop()
    }

    async fn answer(&self, read: &Result<ResultEnvelope, TaskError>) -> Result<Outcome, Unread> {
        let envelope = read.as_ref().map_err(Clone::clone)?;
        // One for each piece: two may be equal, and have one name then.
        let mut fetched: Vec<(Blob, Body)> = Vec::new();
        for blob in envelope.blobs() {
            fetched.push((*blob, self.fetch(*blob).await?));
        }
        Ok(envelope.to_outcome(|wanted| {
            let at = fetched.iter().position(|(blob, _)| blob == wanted)?;
            Some(fetched.swap_remove(at).1)
        })?)
    }

    async fn fetch(&self, blob: Blob) -> Result<Body, Unread> {
        let Some(store) = &self.store else {
            let message = format!(
                "the value is in a store, and none is named here: blob {}",
                blob.digest
            );
            let code = ErrorCode::NoStore;
            return Err(Unread::Now(TaskError { code, message }.into()));
        };
        if blob.bytes <= SMALL {
            let bytes = patiently(|| store.get(blob, SMALL)).await?;
            return Ok(Body::Inline(bytes));
        }
        let file = ResultFile::create(blob.bytes, &self.config.spill).map_err(Unread::Now)?;
        patiently(|| store.get_into(blob, file.fd())).await?;
        let settled = file.settle(blob.bytes, Writers::Dead);
        settled.map_err(|error| {
            Unread::Now(EngineError::Elsewhere {
                code: "blobs",
                problem: error.to_string(),
            })
        })
    }

    fn is_cancelled(&self, task: &TaskId) -> bool {
        let state = self.state.borrow();
        state.outstanding.get(task).is_some_and(|it| it.cancelled)
    }

    /// Looks where everything outstanding is, and submits again what the server does not know (CL-58).
    pub(super) async fn repair(&self) -> Result<(), DispatchError> {
        let all: Vec<TaskId> = self.state.borrow().outstanding.keys().cloned().collect();
        let mut repaired = 0;
        for tasks in all.chunks(AT_ONCE) {
            let places = self.dispatch.check(&self.config.queue, tasks).await?;
            for (task, place) in tasks.iter().zip(places) {
                match place {
                    Place::Queued | Place::Leased if self.is_cancelled(task) => {
                        self.cancel_task(task).await;
                    }
                    Place::Queued | Place::Leased => {}
                    Place::Done => self.has_ended(task.clone()),
                    Place::Missing if self.is_cancelled(task) => self.end_cancelled_task(task),
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
                self.has_ended(task.clone());
                Ok(false)
            }
            // Asked again with the next look.
            Submitted::Full | Submitted::Closed => Ok(false),
        }
    }
}

/// Why nobody was told an outcome.
enum Unread {
    /// There is none, or it cannot be read by anybody.
    Ever(TaskError),
    /// It may be read later, or by another: it stays on the server (CL-32).
    Now(EngineError),
}

impl From<TaskError> for Unread {
    fn from(error: TaskError) -> Self {
        Self::Ever(error)
    }
}

impl From<BlobError> for Unread {
    fn from(error: BlobError) -> Self {
        match error.code() {
            Some(_) => Self::Ever(error.to_task_error()),
            None => Self::Now(error.into()),
        }
    }
}

impl From<Unread> for EngineError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Ever(error) => error.into(),
            Unread::Now(error) => error,
        }
    }
}

#[cfg(test)]
mod tests;
