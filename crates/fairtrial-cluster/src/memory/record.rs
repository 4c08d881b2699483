//! How tasks leave a queue or come back into it: parked, added anew, dead, recorded.

use std::time::Duration;

use serde_json::json;

use super::queue::Queue;
use super::stream::{Pending, Stream, next_id};
use crate::answers::{DeadLetter, QueueStatus};
use crate::names::{Class, Consumer, StreamId, TaskId};
use crate::terms::{Recorded, Verdicts};

impl Queue {
    /// Acknowledges an entry that was deleted; its task, if open, is added anew.
    pub(super) fn restore(&mut self, now: u64, class: Class, entry: StreamId) -> bool {
        self.stream(class).remove(entry);
        let open = (self.tasks.iter())
            .find(|(_, record)| record.entry == entry && record.task.class == class);
        let Some(id) = open.map(|(id, _)| id.clone()) else {
            return false;
        };
        self.add_anew(now, &id);
        true
    }

    /// Adds an open task to the end of its stream again, unless it was cancelled.
    pub(super) fn add_anew(&mut self, now: u64, id: &TaskId) {
        if self.is_cancelled(id) {
            return self.record(now, id, Recorded::Cancelled, "cancelled while it ran");
        }
        let record = self
            .tasks
            .get_mut(id)
            .expect("only open tasks are added anew");
        let stream = self
            .streams
            .get_mut(&record.task.class)
            .expect("each class has a stream");
        stream.remove(record.entry);
        record.entry = stream.add(now, id.clone());
        let class = record.task.class;
        let data = json!({ "reason": "its entry was deleted" }).to_string();
        self.log.add(now, "call.requeued", Some(id), None, data);
        self.wake(class);
    }

    /// Gives it to the next lease; one that was cancelled meanwhile is recorded so instead, and this is `false`.
    pub(super) fn park(
        &mut self,
        now: u64,
        id: &TaskId,
        delivery: u32,
        (name, agent, reason): (&str, &str, &str),
    ) -> bool {
        if self.is_cancelled(id) {
            self.record(now, id, Recorded::Cancelled, "cancelled while it ran");
            return false;
        }
        let record = self.tasks.get_mut(id).expect("only open tasks are parked");
        if name == "call.requeued" {
            record.since_ms = now;
        }
        let (class, entry) = (record.task.class, record.entry);
        let parked = Pending {
            holder: None,
            at_ms: now,
            delivery,
        };
        self.stream(class).pending.insert(entry, parked);
        let data = json!({ "reason": reason, "delivery": delivery }).to_string();
        self.log.add(now, name, Some(id), Some(agent), data);
        self.wake(class);
        true
    }

    /// Delivered too often.
    pub(super) fn bury(&mut self, now: u64, id: &TaskId, holder: &Consumer, deliveries: u32) {
        let reason = self.tasks[id]
            .last_error
            .clone()
            .unwrap_or_else(|| "its lease expired".to_owned());
        let data = json!({ "deliveries": deliveries, "reason": reason }).to_string();
        self.log
            .add(now, "call.dead", Some(id), Some(holder.agent.name()), data);
        let text = format!("handed out {deliveries} times, last to `{holder}`: {reason}");
        self.dead.push(DeadLetter {
            id: next_id(
                self.dead.last().map_or(StreamId::START, |last| last.id),
                now,
            ),
            task: id.clone(),
            deliveries,
            agent: holder.to_string(),
            reason,
        });
        self.record(now, id, Recorded::Lost, &text);
    }

    /// Records what dispatch itself has to say of a task.
    pub(super) fn record(&mut self, now: u64, id: &TaskId, verdict: Recorded, reason: &str) {
        let Some(record) = self.tasks.get(id) else {
            return;
        };
        let template = self.terms.verdicts.of(verdict);
        let waited_s = now.saturating_sub(record.since_ms) as f64 / 1000.0;
        let result = (template.replace(Verdicts::REASON, &json!(reason).to_string()))
            .replace(Verdicts::WAITED_S, &format!("{waited_s:.3}"));
        let data = json!({ "recorded": verdict.as_str() }).to_string();
        self.finish(now, id, result.into_bytes(), None, data);
    }

    pub(super) fn finish(
        &mut self,
        now: u64,
        id: &TaskId,
        result: Vec<u8>,
        agent: Option<&str>,
        complete: String,
    ) {
        if let Some(record) = self.tasks.remove(id) {
            self.stream(record.task.class).remove(record.entry);
        }
        self.flagged.remove(id);
        self.results.insert(id.clone(), result);
        self.recorded += 1;
        self.log.add(now, "complete", Some(id), agent, complete);
    }

    /// Its numbers.
    pub(super) fn status(&self, now: u64) -> QueueStatus {
        let streams = || self.streams.values();
        let count = |each: &dyn Fn(&Stream) -> usize| streams().map(each).sum::<usize>() as u64;
        let oldest = streams().filter_map(|stream| stream.unread().next()).min();
        let ago = |then_ms: u64| Duration::from_millis(now.saturating_sub(then_ms));
        QueueStatus {
            queued: count(&|stream| stream.unread().count()),
            leased: count(&Stream::leased),
            parked: count(&|stream| stream.parked().count()),
            uncollected: self.results.len() as u64,
            dead: self.dead.len() as u64,
            oldest_wait: oldest.map(|id| ago(id.ms)),
            recorded: self.recorded,
            lately: Some(self.log.lately(now)),
            owner: self
                .owner
                .clone()
                .map(|owner| (owner, Some(ago(self.seen_ms)))),
            state: self.state.as_str().to_owned(),
        }
    }
}
