//! A stream with one consumer group, as far as dispatch uses them: entries, who holds which, what was never read.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use crate::names::{Consumer, StreamId, TaskId};

/// An entry that was handed out and not acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// Who has it; none if it is parked.
    pub(crate) holder: Option<Consumer>,
    /// When it was handed out or renewed.
    pub(crate) at_ms: u64,
    /// The delivery number.
    pub(crate) delivery: u32,
}

/// Entries that name tasks, oldest first, and what became of them.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) entries: BTreeMap<StreamId, TaskId>,
    pub(crate) pending: BTreeMap<StreamId, Pending>,
    last_id: StreamId,
    last_delivered: StreamId,
}

impl Stream {
    /// Adds an entry.
    pub(crate) fn add(&mut self, now_ms: u64, task: TaskId) -> StreamId {
        let id = next_id(self.last_id, now_ms);
        self.last_id = id;
        self.entries.insert(id, task);
        id
    }

    /// Acknowledges and deletes.
    pub(crate) fn remove(&mut self, id: StreamId) {
        self.entries.remove(&id);
        self.pending.remove(&id);
    }

    /// Hands out the oldest entry that never was.
    pub(crate) fn read(&mut self) -> Option<StreamId> {
        let id = self.unread().next()?;
        self.last_delivered = id;
        Some(id)
    }

    /// Entries that were never handed out.
    pub(crate) fn unread(&self) -> impl Iterator<Item = StreamId> {
        self.entries
            .range((Excluded(self.last_delivered), Unbounded))
            .map(|(id, _)| *id)
    }

    /// Parked entries, oldest first.
    pub(crate) fn parked(&self) -> impl Iterator<Item = StreamId> {
        let parked = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.holder.is_none());
        parked.map(|(id, _)| *id)
    }

    /// How many are with a slot.
    pub(crate) fn leased(&self) -> usize {
        self.pending
            .values()
            .filter(|pending| pending.holder.is_some())
            .count()
    }

    /// Who holds it with which number.
    pub(crate) fn holder(&self, id: StreamId) -> Option<(&Consumer, u32)> {
        let pending = self.pending.get(&id)?;
        Some((pending.holder.as_ref()?, pending.delivery))
    }
}

/// The id that follows `last` now.
pub(crate) fn next_id(last: StreamId, now_ms: u64) -> StreamId {
    if now_ms > last.ms {
        StreamId { ms: now_ms, seq: 0 }
    } else {
        StreamId {
            ms: last.ms,
            seq: last.seq + 1,
        }
    }
}
