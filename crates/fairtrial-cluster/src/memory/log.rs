//! A queue's events in memory, the newest 100,000.

use std::collections::VecDeque;
use std::time::Duration;

use super::stream::next_id;
use crate::answers::{Events, StoredEvent};
use crate::names::{StreamId, TaskId};
use crate::terms::{LATELY, NewEvent};

/// Events kept.
const KEPT: usize = 100_000;
/// Events given at a time.
const PAGE: usize = 1_000;

/// Events, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    events: VecDeque<StoredEvent>,
    last_id: StreamId,
    trimmed: bool,
}

impl Log {
    /// Adds one.
    pub(crate) fn push(&mut self, now_ms: u64, event: NewEvent) -> StreamId {
        let id = next_id(self.last_id, now_ms);
        self.last_id = id;
        self.events.push_back(StoredEvent { id, event });
        if self.events.len() > KEPT {
            self.events.pop_front();
            self.trimmed = true;
        }
        id
    }

    /// Adds one of ours.
    pub(crate) fn add(
        &mut self,
        now_ms: u64,
        name: &str,
        task: Option<&TaskId>,
        agent: Option<&str>,
        data: String,
    ) -> StreamId {
        let event = NewEvent {
            name: name.to_owned(),
            task: task.cloned(),
            agent: agent.map(str::to_owned),
            data,
        };
        self.push(now_ms, event)
    }

    /// How many results were recorded lately, and in what time.
    pub(crate) fn lately(&self, now_ms: u64) -> (u64, Duration) {
        let from = now_ms.saturating_sub(LATELY.as_millis() as u64);
        let begin = self.events.partition_point(|event| event.id.ms < from);
        let lately = self.events.range(begin..);
        let ends = lately.filter(|stored| stored.event.name == "complete");
        let first = self.events.front().map_or(now_ms, |stored| stored.id.ms);
        let in_time = Duration::from_millis(now_ms - from.max(first).min(now_ms));
        (ends.count() as u64, in_time)
    }

    /// Those after an id. A reader whose last event is gone may have missed some.
    pub(crate) fn after(&self, after: StreamId) -> Events {
        let begin = self.events.partition_point(|event| event.id <= after);
        let known = if after == StreamId::START {
            !self.trimmed
        } else {
            begin > 0 && self.events[begin - 1].id == after
        };
        Events {
            events: self.events.range(begin..).take(PAGE).cloned().collect(),
            gap: !known,
        }
    }
}
