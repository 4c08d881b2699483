//! Dispatch in memory, with a clock that is set by hand: the model that the Redis scripts are compared with, and what
//! tests of agents and coordinators run on. Nothing outlives it.

mod log;
mod nodes;
mod queue;
mod record;
mod stream;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use self::queue::{Queue, State};
use crate::answers::{
    Announced, Cancelled, Committed, DeadLetter, Events, Holding, Kept, Leased, ListedQueue, Nodes,
    Opened, Place, QueueCancelled, QueueStatus, Reaped, Released, Renewed, ServerStatus, Submitted,
};
use crate::dispatch::{Dispatch, DispatchError};
use crate::hints::{Hint, Hints};
use crate::names::{Agent, Class, Consumer, QueueName, StreamId, TaskId};
use crate::terms::{
    Commit, Lease, NewEvent, Node, OWNER_DEAD_AFTER, Owner, Release, Task, Terms, too_large,
};

type Answered<T> = Result<T, DispatchError>;

/// Dispatch in memory.
#[derive(Debug)]
pub struct MemoryDispatch {
    /// A plain mutex: every operation is short and none waits.
    server: Mutex<Server>,
    /// Rings when an event was added.
    added: Notify,
}

#[derive(Debug)]
struct Server {
    now_ms: u64,
    queues: BTreeMap<QueueName, Queue>,
    /// Names, and who has them until when.
    nodes: BTreeMap<String, (Node, u64)>,
    names: BTreeSet<String>,
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct Listener {
    classes: Vec<Class>,
    agent: Option<String>,
    sender: mpsc::Sender<Hint>,
}

impl Default for MemoryDispatch {
    fn default() -> Self {
        let server = Server {
            now_ms: 1_700_000_000_000,
            queues: BTreeMap::new(),
            nodes: BTreeMap::new(),
            names: BTreeSet::new(),
            listeners: Vec::new(),
        };
        Self {
            server: Mutex::new(server),
            added: Notify::new(),
        }
    }
}

impl MemoryDispatch {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Time passes.
    pub fn advance(&self, by: Duration) {
        self.server().now_ms += by.as_millis() as u64;
    }

    /// Everything is lost, as by FLUSHALL.
    pub fn flush(&self) {
        let mut server = self.server();
        server.queues.clear();
        server.nodes.clear();
        server.names.clear();
    }

    /// Deletes a stream's entry behind everybody's back, as XDEL would.
    pub fn delete_entry(&self, queue: &QueueName, class: Class, entry: StreamId) {
        if let Some(queue) = self.server().queues.get_mut(queue)
            && let Some(stream) = queue.streams.get_mut(&class)
        {
            stream.entries.remove(&entry);
        }
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        // Nothing panics while it holds the lock but a broken invariant, which the next caller finds too.
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to a queue, now; `gone` is the answer if there is none. Then sends its hints.
    fn with<T>(&self, name: &QueueName, gone: T, work: impl FnOnce(&mut Queue, u64) -> T) -> T {
        let mut server = self.server();
        let now_ms = server.now_ms;
        let Some(queue) = server.queues.get_mut(name) else {
            return gone;
        };
        let answer = work(queue, now_ms);
        for (agent, hint) in std::mem::take(&mut queue.hints) {
            server.tell(agent.as_deref(), &hint);
        }
        drop(server);
        self.added.notify_waiters();
        answer
    }
}

impl Server {
    fn tell(&mut self, agent: Option<&str>, hint: &Hint) {
        self.listeners
            .retain(|listener| !listener.sender.is_closed());
        for listener in &self.listeners {
            let wanted = match hint {
                Hint::Wake { class, .. } => listener.classes.contains(class),
                Hint::Cancel { .. } => listener.agent.as_deref() == agent,
            };
            if wanted {
                // A full channel loses a hint, which is what hints are for.
                drop(listener.sender.try_send(hint.clone()));
            }
        }
    }
}

/// Whether somebody else, who lives, has the queue.
fn other_owner(queue: &Queue, owner: &Owner, now_ms: u64) -> Option<Owner> {
    let lives = u128::from(now_ms.saturating_sub(queue.seen_ms)) < OWNER_DEAD_AFTER.as_millis();
    queue.owner.clone().filter(|other| lives && other != owner)
}

impl Dispatch for MemoryDispatch {
    async fn open(&self, queue: &QueueName, owner: &Owner, terms: &Terms) -> Answered<Opened> {
        let fresh = || Queue::new(queue.clone(), terms.clone());
        let mut server = self.server();
        let now_ms = server.now_ms;
        let found = server.queues.entry(queue.clone()).or_insert_with(fresh);
        if let Some(by) = other_owner(found, owner, now_ms) {
            return Ok(Opened::Owned { by });
        }
        found.owner = Some(owner.clone());
        found.seen_ms = now_ms;
        found.state = State::Open;
        found.terms = terms.clone();
        let event = found
            .log
            .add(now_ms, "queue.opened", None, None, String::new());
        Ok(Opened::Opened { event })
    }

    async fn keep(&self, queue: &QueueName, owner: &Owner) -> Answered<Kept> {
        Ok(self.with(queue, Kept::Gone, |queue, now| {
            if let Some(by) = other_owner(queue, owner, now) {
                return Kept::Owned { by };
            }
            queue.owner = Some(owner.clone());
            queue.seen_ms = now;
            Kept::Ok
        }))
    }

    async fn close(&self, queue: &QueueName, owner: &Owner) -> Answered<Kept> {
        let answer = self.with(queue, (Kept::Gone, true), |queue, now| {
            if let Some(by) = other_owner(queue, owner, now) {
                return (Kept::Owned { by }, true);
            }
            queue.owner = None;
            queue.state = State::Closed;
            queue
                .log
                .add(now, "queue.closed", None, None, String::new());
            (Kept::Ok, queue.terms.named)
        });
        if let (Kept::Ok, false) = answer {
            self.server().queues.remove(queue);
        }
        Ok(answer.0)
    }

    async fn submit(&self, queue: &QueueName, task: &Task) -> Answered<Submitted> {
        too_large::envelope(&task.envelope)?;
        Ok(self.with(queue, Submitted::Closed, |queue, now| {
            queue.submit(now, task)
        }))
    }

    async fn cancel(&self, queue: &QueueName, task: &TaskId) -> Answered<Cancelled> {
        Ok(self.with(queue, Cancelled::Unknown, |queue, now| {
            queue.cancel(now, task)
        }))
    }

    async fn cancel_queue(&self, queue: &QueueName) -> Answered<QueueCancelled> {
        let gone = QueueCancelled {
            recorded: 0,
            more: false,
        };
        Ok(self.with(queue, gone, Queue::cancel_all))
    }

    async fn pause(&self, queue: &QueueName, paused: bool) -> Answered<bool> {
        let (state, event) = match paused {
            true => (State::Paused, "queue.paused"),
            false => (State::Open, "queue.opened"),
        };
        Ok(self.with(queue, false, |queue, now| {
            let may = matches!(queue.state, State::Open | State::Paused);
            if may && queue.state != state {
                queue.state = state;
                queue.log.add(now, event, None, None, String::new());
            }
            may
        }))
    }

    async fn check(&self, queue: &QueueName, tasks: &[TaskId]) -> Answered<Vec<Place>> {
        let gone = vec![Place::Missing; tasks.len()];
        Ok(self.with(queue, gone, |queue, _| {
            tasks.iter().map(|task| queue.place(task)).collect()
        }))
    }

    async fn expire(&self, queue: &QueueName, tasks: &[TaskId]) -> Answered<Vec<Option<Duration>>> {
        let gone = vec![None; tasks.len()];
        Ok(self.with(queue, gone, |queue, now| {
            tasks.iter().map(|id| queue.expire(now, id)).collect()
        }))
    }

    async fn left(&self, queue: &QueueName) -> Answered<Vec<TaskId>> {
        Ok(self.with(queue, Vec::new(), |queue, _| {
            queue.results.keys().take(100).cloned().collect()
        }))
    }

    async fn collect(
        &self,
        queue: &QueueName,
        tasks: &[TaskId],
        kept: &[TaskId],
    ) -> Answered<Vec<(TaskId, Vec<u8>)>> {
        Ok(self.with(queue, Vec::new(), |queue, _| {
            let found = tasks
                .iter()
                .filter_map(|task| Some((task.clone(), queue.results.get(task)?.clone())));
            let found = found.collect();
            queue.results.retain(|task, _| !kept.contains(task));
            found
        }))
    }

    async fn pin(&self, queue: &QueueName, pins: &[String]) -> Answered<()> {
        self.with(queue, (), |queue, _| {
            queue.pins.extend(pins.iter().cloned());
        });
        Ok(())
    }

    async fn lease(
        &self,
        queue: &QueueName,
        class: Class,
        consumer: &Consumer,
    ) -> Answered<Leased> {
        Ok(self.with(queue, Leased::Gone, |queue, now| {
            queue.lease(now, class, consumer)
        }))
    }

    async fn waits(&self, queue: &QueueName, class: Class, consumer: &Consumer) -> Answered<bool> {
        Ok(self.with(queue, false, |queue, _| queue.waits(class, consumer)))
    }

    async fn renew(&self, lease: &Lease) -> Answered<Renewed> {
        Ok(self.with(&lease.queue, Renewed::Lost, |queue, now| {
            queue.renew(now, lease)
        }))
    }

    async fn commit(&self, commit: &Commit) -> Answered<Committed> {
        too_large::result(&commit.result)?;
        Ok(
            self.with(&commit.lease.queue, Committed::Unknown, |queue, now| {
                queue.commit(now, commit)
            }),
        )
    }

    async fn release(&self, lease: &Lease, release: &Release) -> Answered<Released> {
        Ok(self.with(&lease.queue, Released::Lost, |queue, now| {
            queue.release(now, lease, release)
        }))
    }

    async fn reap(
        &self,
        queue: &QueueName,
        class: Class,
        live: &[Agent],
        from: Option<StreamId>,
    ) -> Answered<Reaped> {
        let gone = Reaped {
            gone: true,
            ..Reaped::default()
        };
        let reaped = self.with(queue, gone, |queue, now| {
            let gone =
                u128::from(now.saturating_sub(queue.seen_ms)) > queue.terms.expiry().as_millis();
            if gone {
                Reaped {
                    gone,
                    ..Reaped::default()
                }
            } else {
                queue.reap(now, class, live, from)
            }
        });
        if reaped.gone {
            self.server().queues.remove(queue);
        }
        Ok(reaped)
    }

    async fn announce(&self, node: &Node) -> Answered<Announced> {
        Ok(self.server().announce(node))
    }

    async fn remove_node(&self, agent: &Agent) -> Answered<Announced> {
        Ok(self.server().remove_node(agent))
    }

    async fn forget_node(&self, name: &str) -> Answered<bool> {
        Ok(self.server().forget_node(name))
    }

    async fn nodes(&self) -> Answered<Nodes> {
        Ok(self.server().list_nodes())
    }

    async fn queues(&self) -> Answered<Vec<ListedQueue>> {
        let server = self.server();
        let listed = server.queues.values().map(|queue| ListedQueue {
            queue: queue.name.clone(),
            weight: match queue.state {
                State::Closed => 0,
                _ => queue.terms.weight,
            },
        });
        Ok(listed.collect())
    }

    async fn each_held(&self, queue: &QueueName, each: impl FnMut(Holding) + Send) -> Answered<()> {
        let held = self.with(queue, Vec::new(), |queue, _| queue.holdings());
        held.into_iter().for_each(each);
        Ok(())
    }

    async fn emit(&self, queue: &QueueName, events: &[NewEvent]) -> Answered<()> {
        self.with(queue, (), |queue, now| {
            for event in events {
                queue.log.push(now, event.clone());
            }
        });
        Ok(())
    }

    async fn events(&self, queue: &QueueName, after: StreamId, wait: Duration) -> Answered<Events> {
        let look = || {
            let server = self.server();
            let gone = Events {
                events: Vec::new(),
                gap: after != StreamId::START,
            };
            server
                .queues
                .get(queue)
                .map_or(gone, |queue| queue.log.after(after))
        };
        let watch = async {
            loop {
                let added = self.added.notified();
                let events = look();
                if !events.events.is_empty() || events.gap {
                    return events;
                }
                added.await;
            }
        };
        Ok(tokio::time::timeout(wait, watch)
            .await
            .unwrap_or_else(|_| look()))
    }

    async fn dead_letters(&self, queue: &QueueName) -> Answered<Vec<DeadLetter>> {
        Ok(self.with(queue, Vec::new(), |queue, _| {
            let first = queue.dead.len().saturating_sub(100);
            queue.dead[first..].to_vec()
        }))
    }

    async fn hints(&self, classes: &[Class], agent: Option<&str>) -> Answered<Hints> {
        let (sender, hints) = Hints::channel();
        let (classes, agent) = (classes.to_vec(), agent.map(str::to_owned));
        self.server().listeners.push(Listener {
            classes,
            agent,
            sender,
        });
        Ok(hints)
    }

    async fn queue_status(&self, queue: &QueueName) -> Answered<Option<QueueStatus>> {
        Ok(self.with(queue, None, |queue, now| Some(queue.status(now))))
    }

    async fn server_status(&self) -> Answered<ServerStatus> {
        Ok(ServerStatus {
            name: "memory".to_owned(),
            time_ms: Some(self.server().now_ms),
            ..ServerStatus::default()
        })
    }
}
