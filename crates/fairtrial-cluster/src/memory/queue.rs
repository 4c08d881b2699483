//! A queue in memory: its operations as the table of the spec states them, step by step. Pure: the time is passed in.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use std::time::Duration;

use serde_json::json;

use super::log::Log;
use super::stream::{Pending, Stream};
use crate::answers::{Committed, DeadLetter, Holding, Leased, Place, Released, Renewed, Submitted};
use crate::hints::Hint;
use crate::names::{Agent, Class, Consumer, QueueName, StreamId, TaskId, Token};
use crate::terms::{Commit, Lease, Owner, Recorded, Refusal, Release, Task, Terms};

/// Most entries that one operation touches.
pub(super) const BATCH: usize = 100;
/// Parked entries that a lease looks at.
const PARKED_SEEN: usize = 16;

/// Whether a queue takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    Paused,
    Cancelled,
    Closed,
}

impl State {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
            Self::Closed => "closed",
        }
    }
}

/// A task that has no result yet.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) task: Task,
    pub(super) entry: StreamId,
    /// When it began to wait.
    pub(super) since_ms: u64,
    /// By agent's name: which life of it, of what kind, why.
    pub(super) refusals: BTreeMap<String, (String, Refusal, String)>,
    /// The last error that an agent told.
    pub(super) last_error: Option<String>,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: QueueName,
    pub(crate) owner: Option<Owner>,
    /// When the owner last gave a sign.
    pub(crate) seen_ms: u64,
    pub(crate) state: State,
    pub(crate) terms: Terms,
    pub(crate) streams: HashMap<Class, Stream>,
    pub(super) tasks: HashMap<TaskId, Record>,
    pub(crate) results: HashMap<TaskId, Vec<u8>>,
    pub(super) flagged: HashSet<TaskId>,
    pub(crate) dead: Vec<DeadLetter>,
    pub(crate) log: Log,
    pub(crate) recorded: u64,
    pub(crate) pins: BTreeSet<String>,
    /// Hints to be sent; those with a name to that agent only.
    pub(crate) hints: Vec<(Option<String>, Hint)>,
}

impl Queue {
    pub(crate) fn new(name: QueueName, terms: Terms) -> Self {
        Self {
            name,
            owner: None,
            seen_ms: 0,
            state: State::Open,
            terms,
            streams: Class::ALL.map(|class| (class, Stream::default())).into(),
            tasks: HashMap::new(),
            results: HashMap::new(),
            flagged: HashSet::new(),
            dead: Vec::new(),
            log: Log::default(),
            recorded: 0,
            pins: BTreeSet::new(),
            hints: Vec::new(),
        }
    }

    pub(crate) fn submit(&mut self, now: u64, task: &Task) -> Submitted {
        if matches!(self.state, State::Cancelled | State::Closed) {
            return Submitted::Closed;
        }
        if self.results.contains_key(&task.id) {
            return Submitted::Done;
        }
        if self.tasks.contains_key(&task.id) {
            self.flagged.remove(&task.id);
            if self.place(&task.id) == Place::Missing {
                self.add_anew(now, &task.id);
            }
            return Submitted::Dup;
        }
        if (self.tasks.len() + self.results.len()) as u64 >= self.terms.max_queue {
            return Submitted::Full;
        }
        let entry = self.stream(task.class).add(now, task.id.clone());
        let record = Record {
            task: task.clone(),
            entry,
            since_ms: now,
            refusals: BTreeMap::new(),
            last_error: None,
        };
        self.tasks.insert(task.id.clone(), record);
        self.log
            .add(now, "submit", Some(&task.id), None, String::new());
        self.wake(task.class);
        Submitted::Ok
    }

    pub(crate) fn lease(&mut self, now: u64, class: Class, consumer: &Consumer) -> Leased {
        if let Some(leased) = self.held(now, class, consumer) {
            return leased;
        }
        if !self.gives() {
            return Leased::Empty;
        }
        for _ in 0..BATCH {
            let parked = self.parked_for(class, &consumer.agent);
            let Some(entry) = parked.or_else(|| self.stream(class).read()) else {
                return Leased::Empty;
            };
            let Some(id) = self.stream(class).entries.get(&entry).cloned() else {
                self.restore(now, class, entry);
                continue;
            };
            let Some(record) = self.tasks.get(&id) else {
                self.stream(class).remove(entry);
                continue;
            };
            if self.wait_left(now, record).is_some_and(|left| left < 0) {
                self.record_queue_timeout(now, &id);
                continue;
            }
            let stream = self.stream(class);
            let delivery = stream
                .pending
                .get(&entry)
                .map_or(0, |pending| pending.delivery)
                + 1;
            let holder = Some(consumer.clone());
            stream.pending.insert(
                entry,
                Pending {
                    holder,
                    at_ms: now,
                    delivery,
                },
            );
            let data = json!({ "delivery": delivery }).to_string();
            self.log.add(
                now,
                "call.leased",
                Some(&id),
                Some(consumer.agent.name()),
                data,
            );
            return self.leased(now, class, &id, Token { entry, delivery }, consumer);
        }
        Leased::Empty
    }

    /// How many ms a task may still wait; none if as long as it takes.
    fn wait_left(&self, now: u64, record: &Record) -> Option<i64> {
        let most = i64::try_from(record.task.queue_timeout?.as_millis()).ok()?;
        Some(most - i64::try_from(now.saturating_sub(record.since_ms)).ok()?)
    }

    fn record_queue_timeout(&mut self, now: u64, id: &TaskId) {
        let waited = now.saturating_sub(self.tasks[id].since_ms);
        let reason = format!("waited {waited} ms for a slot");
        self.record(now, id, Recorded::QueueTimeout, &reason);
    }

    /// Records a task that waits too long; when to ask again, if it may wait or is leased.
    pub(crate) fn expire(&mut self, now: u64, id: &TaskId) -> Option<Duration> {
        let record = self.tasks.get(id)?;
        let left = self.wait_left(now, record)?;
        let is_leased = self.streams[&record.task.class]
            .holder(record.entry)
            .is_some();
        if is_leased {
            return record.task.queue_timeout;
        }
        match u64::try_from(left) {
            Ok(left) => Some(Duration::from_millis(left)),
            Err(_) => {
                self.record_queue_timeout(now, id);
                None
            }
        }
    }

    /// Whether it is open, and fewer are leased than may be.
    fn gives(&self) -> bool {
        let leased: usize = self.streams.values().map(Stream::leased).sum();
        let most = self.terms.max_inflight;
        self.state == State::Open && most.is_none_or(|most| (leased as u64) < most)
    }

    /// Whether a lease would find something.
    pub(crate) fn waits(&self, class: Class, consumer: &Consumer) -> bool {
        let stream = &self.streams[&class];
        let mut pending = stream.pending.values();
        if pending.any(|pending| pending.holder.as_ref() == Some(consumer)) {
            return true;
        }
        let parked = || self.parked_for(class, &consumer.agent);
        self.gives() && (parked().is_some() || stream.unread().next().is_some())
    }

    pub(crate) fn renew(&mut self, now: u64, lease: &Lease) -> Renewed {
        if !self.owns(lease) {
            return Renewed::Lost;
        }
        let cancelled = self.state == State::Cancelled || self.flagged.contains(&lease.task);
        let stream = self.stream(lease.class);
        // As with the server, whose XCLAIM would drop a deleted entry: that one is left for reap.
        if stream.entries.contains_key(&lease.token.entry)
            && let Some(pending) = stream.pending.get_mut(&lease.token.entry)
        {
            pending.at_ms = now;
        }
        if cancelled {
            Renewed::Cancel
        } else {
            Renewed::Ok
        }
    }

    pub(crate) fn commit(&mut self, now: u64, commit: &Commit) -> Committed {
        let lease = &commit.lease;
        if let Some(stored) = self.results.get(&lease.task).cloned() {
            if self.owns(lease) {
                self.stream(lease.class).remove(lease.token.entry);
            }
            return Committed::Duplicate { stored };
        }
        let Some(record) = self.tasks.get(&lease.task) else {
            return Committed::Unknown;
        };
        if !self.owns(lease) || record.entry != lease.token.entry {
            return Committed::Fenced;
        }
        for event in &commit.events {
            self.log.push(now, event.clone());
        }
        let agent = Some(lease.consumer.agent.name());
        self.finish(
            now,
            &lease.task,
            commit.result.clone(),
            agent,
            commit.complete.clone(),
        );
        Committed::Committed
    }

    pub(crate) fn release(&mut self, now: u64, lease: &Lease, release: &Release) -> Released {
        let agent = &lease.consumer.agent;
        let Some(record) = self.tasks.get_mut(&lease.task) else {
            return Released::Lost;
        };
        let held = self.streams[&lease.class].holder(lease.token.entry);
        if held != Some((&lease.consumer, lease.token.delivery))
            || record.entry != lease.token.entry
        {
            return Released::Lost;
        }
        let mut delivery = lease.token.delivery;
        let (name, reason) = match release {
            Release::Refused { refusal, reason } => {
                let why = (agent.nonce().to_owned(), *refusal, reason.clone());
                record.refusals.insert(agent.name().to_owned(), why);
                delivery -= 1;
                ("call.refused", reason)
            }
            Release::Uncounted { reason } => {
                delivery -= 1;
                ("call.requeued", reason)
            }
            Release::Counted { reason } => {
                record.last_error = Some(reason.clone());
                if delivery >= self.terms.max_deliver {
                    self.bury(now, &lease.task, &lease.consumer, delivery);
                    return Released::Dead;
                }
                ("call.requeued", reason)
            }
        };
        // A deleted entry cannot be parked: its task begins again, with what is known of it.
        if !self.streams[&lease.class]
            .entries
            .contains_key(&lease.token.entry)
        {
            self.add_anew(now, &lease.task);
            return Released::Released;
        }
        self.park(now, &lease.task, delivery, (name, agent.name(), reason));
        Released::Released
    }

    pub(crate) fn place(&self, id: &TaskId) -> Place {
        if self.results.contains_key(id) {
            return Place::Done;
        }
        let Some(record) = self.tasks.get(id) else {
            return Place::Missing;
        };
        let stream = &self.streams[&record.task.class];
        if stream.holder(record.entry).is_some() {
            Place::Leased
        } else if stream.entries.contains_key(&record.entry) {
            Place::Queued
        } else {
            Place::Missing
        }
    }

    pub(crate) fn holdings(&self) -> Vec<Holding> {
        let tasks = self.tasks.values();
        let tasks = tasks.map(|record| Holding::Task(record.task.envelope.clone()));
        let results = self.results.values().cloned().map(Holding::Result);
        let pins = self.pins.iter().cloned().map(Holding::Pin);
        tasks.chain(results).chain(pins).collect()
    }

    /// What this slot holds already: its reply was lost.
    fn held(&mut self, now: u64, class: Class, consumer: &Consumer) -> Option<Leased> {
        let stream = self.stream(class);
        let (entry, pending) = (stream.pending.iter_mut())
            .find(|(_, pending)| pending.holder.as_ref() == Some(consumer))?;
        let token = Token {
            entry: *entry,
            delivery: pending.delivery,
        };
        // As with the server, whose XCLAIM would drop a deleted entry: that one stays its holder's until it is reaped.
        if stream.entries.contains_key(entry) {
            pending.at_ms = now;
        }
        let mut open = self.tasks.iter();
        let open = open.find(|(_, task)| task.entry == token.entry && task.task.class == class);
        let Some(id) = open.map(|(id, _)| id.clone()) else {
            self.stream(class).remove(token.entry);
            return None;
        };
        Some(self.leased(now, class, &id, token, consumer))
    }

    fn leased(
        &self,
        now: u64,
        class: Class,
        id: &TaskId,
        token: Token,
        consumer: &Consumer,
    ) -> Leased {
        Leased::Task {
            lease: Lease {
                queue: self.name.clone(),
                class,
                task: id.clone(),
                token,
                consumer: consumer.clone(),
            },
            envelope: self.tasks[id].task.envelope.clone(),
            renew_within: self.terms.lease,
            waited: Duration::from_millis(now.saturating_sub(self.tasks[id].since_ms)),
        }
    }

    /// The oldest parked entry that this life of an agent did not refuse.
    fn parked_for(&self, class: Class, agent: &Agent) -> Option<StreamId> {
        let stream = &self.streams[&class];
        let refused = |entry: &StreamId| {
            let record = stream.entries.get(entry).and_then(|id| self.tasks.get(id));
            record.is_some_and(|record| has_refused(record, agent))
        };
        stream
            .parked()
            .take(PARKED_SEEN)
            .find(|entry| !refused(entry))
    }

    pub(super) fn is_cancelled(&self, id: &TaskId) -> bool {
        self.state == State::Cancelled || self.flagged.contains(id)
    }

    fn owns(&self, lease: &Lease) -> bool {
        let holder = self.streams[&lease.class].holder(lease.token.entry);
        holder == Some((&lease.consumer, lease.token.delivery))
    }

    pub(super) fn wake(&mut self, class: Class) {
        let queue = self.name.clone();
        self.hints.push((None, Hint::Wake { class, queue }));
    }

    pub(super) fn stream(&mut self, class: Class) -> &mut Stream {
        self.streams
            .get_mut(&class)
            .expect("each class has a stream")
    }
}

pub(super) fn has_refused(record: &Record, agent: &Agent) -> bool {
    let refusal = record.refusals.get(agent.name());
    refusal.is_some_and(|(nonce, ..)| nonce == agent.nonce())
}
