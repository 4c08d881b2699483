//! What is done to tasks without their holder: reaping and cancelling.

use super::queue::{BATCH, Queue, Record, State, has_refused};
use super::stream::Pending;
use crate::answers::{Cancelled, QueueCancelled, Reaped};
use crate::hints::Hint;
use crate::names::{Agent, Class, StreamId, TaskId};
use crate::terms::{Recorded, Refusal};

impl Queue {
    pub(crate) fn reap(
        &mut self,
        now: u64,
        class: Class,
        live: &[Agent],
        from: Option<StreamId>,
    ) -> Reaped {
        let mut reaped = Reaped::default();
        let from = from.unwrap_or_default();
        let page: Vec<(StreamId, Pending)> = (self.streams[&class].pending.range(from..))
            .take(BATCH)
            .map(|(id, pending)| (*id, pending.clone()))
            .collect();
        if page.len() == BATCH {
            reaped.next = page.last().map(|(id, _)| StreamId {
                ms: id.ms,
                seq: id.seq + 1,
            });
        }
        for (entry, pending) in page {
            let idle = u128::from(now.saturating_sub(pending.at_ms));
            if pending.holder.is_some() && idle < self.terms.lease.as_millis() {
                continue;
            }
            let Some(id) = self.stream(class).entries.get(&entry).cloned() else {
                let anew = self.restore(now, class, entry);
                *(if anew {
                    &mut reaped.anew
                } else {
                    &mut reaped.stale
                }) += 1;
                continue;
            };
            let Some(record) = self.tasks.get(&id) else {
                self.stream(class).remove(entry);
                reaped.stale += 1;
                continue;
            };
            let Some(holder) = pending.holder else {
                if let Some((verdict, reason)) = refused_by_all(record, live) {
                    self.record(now, &id, verdict, &reason);
                    reaped.refused += 1;
                }
                continue;
            };
            if pending.delivery >= self.terms.max_deliver && !self.is_cancelled(&id) {
                self.bury(now, &id, &holder, pending.delivery);
                reaped.dead += 1;
                continue;
            }
            let event = ("call.requeued", holder.agent.name(), "its lease expired");
            let parked = self.park(now, &id, pending.delivery, event);
            *(if parked {
                &mut reaped.parked
            } else {
                &mut reaped.cancelled
            }) += 1;
        }
        reaped
    }

    pub(crate) fn cancel(&mut self, now: u64, id: &TaskId) -> Cancelled {
        if self.results.contains_key(id) {
            return Cancelled::Done;
        }
        let Some(record) = self.tasks.get(id) else {
            return Cancelled::Unknown;
        };
        let holder = self.streams[&record.task.class].holder(record.entry);
        if let Some((holder, _)) = holder {
            let (queue, task) = (self.name.clone(), Some(id.clone()));
            self.hints.push((
                Some(holder.agent.name().to_owned()),
                Hint::Cancel { queue, task },
            ));
            self.flagged.insert(id.clone());
            return Cancelled::Signalled;
        }
        self.record(now, id, Recorded::Cancelled, "cancelled before it started");
        Cancelled::Removed
    }

    pub(crate) fn cancel_all(&mut self, now: u64) -> QueueCancelled {
        if self.state != State::Cancelled {
            self.state = State::Cancelled;
            self.log
                .add(now, "queue.cancelled", None, None, String::new());
        }
        let holders = self
            .streams
            .values()
            .flat_map(|stream| stream.pending.values());
        for holder in holders.filter_map(|pending| pending.holder.as_ref()) {
            let hint = Hint::Cancel {
                queue: self.name.clone(),
                task: None,
            };
            self.hints
                .push((Some(holder.agent.name().to_owned()), hint));
        }
        // By their records, since the entry itself may have been deleted.
        let waiting = self.streams.iter().flat_map(|(class, stream)| {
            let entries = stream.parked().chain(stream.unread());
            entries.map(|entry| (*class, entry))
        });
        let entries = waiting.filter_map(|(class, entry)| {
            let mut tasks = self.tasks.iter();
            let found =
                tasks.find(|(_, record)| record.entry == entry && record.task.class == class);
            found.map(|(id, _)| id.clone())
        });
        let batch: Vec<TaskId> = entries.take(BATCH).collect();
        for id in &batch {
            self.record(now, id, Recorded::Cancelled, "its queue was cancelled");
        }
        QueueCancelled {
            recorded: batch.len() as u32,
            more: batch.len() == BATCH,
        }
    }
}

/// What is recorded of a task that every live agent has refused (CL-22, CL-23).
fn refused_by_all(record: &Record, live: &[Agent]) -> Option<(Recorded, String)> {
    if live.is_empty() || !live.iter().all(|agent| has_refused(record, agent)) {
        return None;
    }
    let reasons = record
        .refusals
        .iter()
        .map(|(name, (_, _, reason))| format!("{name}: {reason}"));
    let setup = record
        .refusals
        .values()
        .any(|(_, refusal, _)| *refusal == Refusal::Setup);
    let verdict = if setup {
        Recorded::SetupFailed
    } else {
        Recorded::Invalid
    };
    Some((verdict, reasons.collect::<Vec<_>>().join("; ")))
}
