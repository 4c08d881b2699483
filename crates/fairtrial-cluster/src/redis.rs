//! Dispatch by a Redis server: each operation one script, whose steps are in `redis/*.lua`. Turns values into arguments
//! and answers into values, and no more. Connects with the first operation.

mod allowed;
mod endpoint;
mod events;
mod held;
mod keys;
mod link;
mod listen;
mod read;
mod scripts;
mod status;
mod suited;
mod wire;

pub use endpoint::{Endpoint, without_secrets};
pub use suited::Suited;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Cmd;

use self::link::Link;
use self::read::Reply;
use self::scripts::Operation;
use self::wire::{
    announced, commit_command, committed, fields_of, json, leased, ms, on_lease, on_slot,
    submit_command, submitted, texts,
};
use crate::answers::{
    Announced, Cancelled, Committed, DeadLetter, Events, Holding, Kept, Leased, ListedQueue, Nodes,
    Opened, Place, QueueCancelled, QueueStatus, Reaped, Released, Renewed, ServerStatus, Submitted,
};
use crate::dispatch::{Dispatch, DispatchError};
use crate::hints::Hints;
use crate::names::{Agent, Class, Consumer, QueueName, StreamId, TaskId};
use crate::terms::{
    Commit, Lease, NODE_LOST_AFTER, NewEvent, Node, OWNER_DEAD_AFTER, Owner, Refusal, Release,
    Task, Terms, too_large,
};

/// Tasks that one script is asked about.
const BATCH: usize = 100;

type Answered<T> = Result<T, DispatchError>;

/// Dispatch by a Redis server. Any number of tasks may use one at a time; it belongs to the runtime it was first used on.
pub struct RedisDispatch {
    link: Link,
    /// Whoever submits has been told what is to be said of the server.
    has_warned: AtomicBool,
}

impl RedisDispatch {
    /// By the server there. Connects to nothing yet.
    pub fn new(endpoint: Endpoint) -> Answered<Self> {
        Ok(Self {
            link: Link::new(endpoint)?,
            has_warned: AtomicBool::new(false),
        })
    }

    /// Where the server is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.link.endpoint()
    }

    /// CL-72: a queue that is opened again, as after a flush, is no news.
    fn warn_once(&self, suited: &Suited) {
        if !suited.warnings.is_empty() && !self.has_warned.swap(true, Ordering::Relaxed) {
            suited.warnings.iter().for_each(|it| log::warn!("{it}"));
        }
    }

    async fn reply(&self, operation: &Operation, cmd: &Cmd) -> Answered<Reply> {
        Ok(Reply::new(
            operation.name,
            self.link.run(operation, cmd).await?,
        ))
    }

    /// The index is no part of a queue, so no script touches it (CL-11); the owner's next sign mends what is lost here.
    async fn list(&self, queue: &QueueName, weight: u32) -> Answered<()> {
        let mut cmd = redis::cmd("HSET");
        cmd.arg(keys::QUEUES).arg(queue.as_str()).arg(weight);
        self.link.query("open", &cmd).await
    }

    async fn unlist(&self, queue: &QueueName) -> Answered<()> {
        let mut cmd = redis::cmd("HDEL");
        cmd.arg(keys::QUEUES).arg(queue.as_str());
        self.link.query("close", &cmd).await
    }
}

impl fmt::Debug for RedisDispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisDispatch({:?})", self.link.endpoint())
    }
}

impl Dispatch for RedisDispatch {
    async fn open(&self, queue: &QueueName, owner: &Owner, terms: &Terms) -> Answered<Opened> {
        // Who submits relies on the server as much as an agent does.
        self.warn_once(&self.suited().await?);
        let mut cmd = scripts::OPEN.on(queue);
        cmd.arg(json(owner)).arg(ms(OWNER_DEAD_AFTER));
        for (field, value) in fields_of(terms) {
            cmd.arg(field).arg(value);
        }
        let mut reply = self.reply(&scripts::OPEN, &cmd).await?;
        match reply.text()?.as_str() {
            "owned" => Ok(Opened::Owned { by: reply.json()? }),
            _ => {
                self.list(queue, terms.weight).await?;
                Ok(Opened::Opened {
                    event: reply.parse()?,
                })
            }
        }
    }

    async fn keep(&self, queue: &QueueName, owner: &Owner) -> Answered<Kept> {
        let mut cmd = scripts::KEEP.on(queue);
        cmd.arg(json(owner)).arg(ms(OWNER_DEAD_AFTER));
        let mut reply = self.reply(&scripts::KEEP, &cmd).await?;
        match reply.text()?.as_str() {
            "owned" => Ok(Kept::Owned { by: reply.json()? }),
            "gone" => Ok(Kept::Gone),
            _ => {
                self.list(queue, reply.parse()?).await?;
                Ok(Kept::Ok)
            }
        }
    }

    async fn close(&self, queue: &QueueName, owner: &Owner) -> Answered<Kept> {
        let mut cmd = scripts::CLOSE.on(queue);
        cmd.arg(json(owner)).arg(ms(OWNER_DEAD_AFTER));
        let mut reply = self.reply(&scripts::CLOSE, &cmd).await?;
        match reply.text()?.as_str() {
            "owned" => Ok(Kept::Owned { by: reply.json()? }),
            "gone" => Ok(Kept::Gone),
            "deleted" => {
                self.unlist(queue).await?;
                Ok(Kept::Ok)
            }
            _ => {
                self.list(queue, 0).await?; // agents need not ask it
                Ok(Kept::Ok)
            }
        }
    }

    async fn submit(&self, queue: &QueueName, task: &Task) -> Answered<Submitted> {
        too_large::envelope(&task.envelope)?;
        let cmd = submit_command(queue, &[task]);
        submitted(&mut self.reply(&scripts::SUBMIT, &cmd).await?)
    }

    async fn submit_all(
        &self,
        queue: &QueueName,
        tasks: &[&Task],
    ) -> Answered<Vec<Answered<Submitted>>> {
        let mut answers: Vec<_> = tasks
            .iter()
            .map(|task| too_large::envelope(&task.envelope).map(|()| Submitted::Closed))
            .collect();
        let fitting: Vec<usize> = (0..tasks.len()).filter(|&n| answers[n].is_ok()).collect();
        for batch in fitting.chunks(BATCH) {
            let sent: Vec<&Task> = batch.iter().map(|&n| tasks[n]).collect();
            let cmd = submit_command(queue, &sent);
            match self.reply(&scripts::SUBMIT, &cmd).await {
                Ok(mut reply) => batch
                    .iter()
                    .for_each(|&n| answers[n] = submitted(&mut reply)),
                Err(error @ DispatchError::Unreachable { .. }) => return Err(error),
                Err(error) => batch.iter().for_each(|&n| answers[n] = Err(error.clone())),
            }
        }
        Ok(answers)
    }

    async fn cancel(&self, queue: &QueueName, task: &TaskId) -> Answered<Cancelled> {
        let mut cmd = scripts::CANCEL.on(queue);
        cmd.arg(task.as_str());
        let mut reply = self.reply(&scripts::CANCEL, &cmd).await?;
        match reply.text()?.as_str() {
            "removed" => Ok(Cancelled::Removed),
            "signalled" => Ok(Cancelled::Signalled),
            "done" => Ok(Cancelled::Done),
            "unknown" => Ok(Cancelled::Unknown),
            other => Err(reply.odd(other)),
        }
    }

    async fn cancel_queue(&self, queue: &QueueName) -> Answered<QueueCancelled> {
        let mut reply = self
            .reply(&scripts::CANCEL_QUEUE, &scripts::CANCEL_QUEUE.on(queue))
            .await?;
        let recorded = reply.parse()?;
        let more = reply.parse::<u32>()? == 1;
        Ok(QueueCancelled { recorded, more })
    }

    async fn pause(&self, queue: &QueueName, paused: bool) -> Answered<bool> {
        let mut cmd = scripts::PAUSE.on(queue);
        cmd.arg(if paused { "paused" } else { "open" });
        Ok(self.reply(&scripts::PAUSE, &cmd).await?.parse::<u32>()? == 1)
    }

    async fn check(&self, queue: &QueueName, tasks: &[TaskId]) -> Answered<Vec<Place>> {
        let mut places = Vec::with_capacity(tasks.len());
        for batch in tasks.chunks(BATCH) {
            let mut cmd = scripts::CHECK.on(queue);
            cmd.arg(texts(batch));
            let mut reply = self.reply(&scripts::CHECK, &cmd).await?;
            for _ in batch {
                places.push(match reply.text()?.as_str() {
                    "queued" => Place::Queued,
                    "leased" => Place::Leased,
                    "done" => Place::Done,
                    _ => Place::Missing,
                });
            }
        }
        Ok(places)
    }

    async fn expire(&self, queue: &QueueName, tasks: &[TaskId]) -> Answered<Vec<Option<Duration>>> {
        let mut again = Vec::with_capacity(tasks.len());
        for batch in tasks.chunks(BATCH) {
            let mut cmd = scripts::EXPIRE.on(queue);
            cmd.arg(texts(batch));
            let mut reply = self.reply(&scripts::EXPIRE, &cmd).await?;
            for _ in batch {
                let left: i64 = reply.parse()?;
                again.push(u64::try_from(left).ok().map(Duration::from_millis));
            }
        }
        Ok(again)
    }

    async fn left(&self, queue: &QueueName) -> Answered<Vec<TaskId>> {
        let mut cmd = redis::cmd("HRANDFIELD");
        cmd.arg(keys::of(queue, "res")).arg(BATCH);
        let fields: Vec<String> = self.link.query("left", &cmd).await?;
        Ok(fields
            .into_iter()
            .filter_map(|field| TaskId::try_from(field).ok())
            .collect())
    }

    async fn collect(
        &self,
        queue: &QueueName,
        tasks: &[TaskId],
        kept: &[TaskId],
    ) -> Answered<Vec<(TaskId, Vec<u8>)>> {
        let mut results = Vec::new();
        let mut tasks = tasks.chunks(BATCH).peekable();
        let mut kept = kept.chunks(BATCH);
        // What is dropped goes with the last of what is asked for, and costs no round trip of its own.
        loop {
            let asked = tasks.next();
            let dropped = match tasks.peek() {
                Some(_) => None,
                None => kept.next(),
            };
            if asked.is_none() && dropped.is_none() {
                return Ok(results);
            }
            let (asked, dropped) = (asked.unwrap_or(&[]), dropped.unwrap_or(&[]));
            let mut cmd = scripts::COLLECT.on(queue);
            cmd.arg(asked.len()).arg(texts(asked)).arg(texts(dropped));
            let mut reply = self.reply(&scripts::COLLECT, &cmd).await?;
            for task in asked {
                results.extend(reply.optional()?.map(|result| (task.clone(), result)));
            }
        }
    }

    async fn pin(&self, queue: &QueueName, pins: &[String]) -> Answered<()> {
        for batch in pins.chunks(BATCH) {
            let mut cmd = scripts::PIN.on(queue);
            cmd.arg(batch);
            self.reply(&scripts::PIN, &cmd).await?;
        }
        Ok(())
    }

    async fn lease(
        &self,
        queue: &QueueName,
        class: Class,
        consumer: &Consumer,
    ) -> Answered<Leased> {
        let cmd = on_slot(&scripts::LEASE, queue, class, consumer);
        leased(
            queue,
            class,
            consumer,
            self.reply(&scripts::LEASE, &cmd).await?,
        )
    }

    async fn waits(&self, queue: &QueueName, class: Class, consumer: &Consumer) -> Answered<bool> {
        let cmd = on_slot(&scripts::WAITS, queue, class, consumer);
        Ok(self.reply(&scripts::WAITS, &cmd).await?.parse::<u32>()? == 1)
    }

    async fn renew(&self, lease: &Lease) -> Answered<Renewed> {
        let mut reply = self
            .reply(&scripts::RENEW, &on_lease(&scripts::RENEW, lease))
            .await?;
        match reply.text()?.as_str() {
            "ok" => Ok(Renewed::Ok),
            "cancel" => Ok(Renewed::Cancel),
            "lost" => Ok(Renewed::Lost),
            other => Err(reply.odd(other)),
        }
    }

    async fn commit(&self, commit: &Commit) -> Answered<Committed> {
        too_large::result(&commit.result)?;
        let cmd = commit_command(commit, None);
        let mut reply = self.reply(&scripts::COMMIT, &cmd).await?;
        committed(reply.inner())
    }

    async fn commit_and_lease(
        &self,
        commit: &Commit,
        queue: &QueueName,
        class: Class,
    ) -> Answered<(Committed, Answered<Leased>)> {
        too_large::result(&commit.result)?;
        if *queue != commit.lease.queue {
            // Each script touches one queue (CL-11), and of two queues either may be first.
            let (committed, leased) = tokio::join!(
                self.commit(commit),
                self.lease(queue, class, &commit.lease.consumer)
            );
            return Ok((committed?, leased));
        }
        let cmd = commit_command(commit, Some(class));
        let mut reply = self.reply(&scripts::COMMIT, &cmd).await?;
        Ok((
            committed(reply.inner())?,
            leased(queue, class, &commit.lease.consumer, reply.inner()),
        ))
    }

    async fn release(&self, lease: &Lease, release: &Release) -> Answered<Released> {
        let (kind, reason) = match release {
            Release::Uncounted { reason } => ("uncounted", reason),
            Release::Counted { reason } => ("counted", reason),
            Release::Refused {
                refusal: Refusal::Setup,
                reason,
            } => ("setup", reason),
            Release::Refused {
                refusal: Refusal::Protocol,
                reason,
            } => ("protocol", reason),
        };
        let mut cmd = on_lease(&scripts::RELEASE, lease);
        cmd.arg(lease.consumer.agent.nonce()).arg(kind).arg(reason);
        let mut reply = self.reply(&scripts::RELEASE, &cmd).await?;
        match reply.text()?.as_str() {
            "released" => Ok(Released::Released),
            "lost" => Ok(Released::Lost),
            "dead" => Ok(Released::Dead),
            other => Err(reply.odd(other)),
        }
    }

    async fn reap(
        &self,
        queue: &QueueName,
        class: Class,
        live: &[Agent],
        from: Option<StreamId>,
    ) -> Answered<Reaped> {
        let mut cmd = scripts::REAP.on(queue);
        cmd.arg(class.as_str())
            .arg(from.map_or_else(|| "-".to_owned(), |id| id.to_string()));
        for agent in live {
            cmd.arg(agent.name()).arg(agent.nonce());
        }
        let mut reply = self.reply(&scripts::REAP, &cmd).await?;
        if reply.text()? == "gone" {
            self.unlist(queue).await?;
            return Ok(Reaped {
                gone: true,
                ..Reaped::default()
            });
        }
        Ok(Reaped {
            parked: reply.parse()?,
            dead: reply.parse()?,
            anew: reply.parse()?,
            refused: reply.parse()?,
            cancelled: reply.parse()?,
            stale: reply.parse()?,
            next: reply.text()?.parse().ok().map(|id: StreamId| StreamId {
                seq: id.seq + 1,
                ..id
            }),
            gone: false,
        })
    }

    async fn announce(&self, node: &Node) -> Answered<Announced> {
        let mut cmd = scripts::ANNOUNCE.on_node(node.agent.name());
        cmd.arg(node.agent.nonce())
            .arg(json(node))
            .arg(ms(NODE_LOST_AFTER));
        announced(self.reply(&scripts::ANNOUNCE, &cmd).await?)
    }

    async fn remove_node(&self, agent: &Agent) -> Answered<Announced> {
        let mut cmd = scripts::REMOVE_NODE.on_node(agent.name());
        cmd.arg(agent.nonce());
        announced(self.reply(&scripts::REMOVE_NODE, &cmd).await?)
    }

    async fn forget_node(&self, name: &str) -> Answered<bool> {
        let cmd = scripts::FORGET_NODE.on_node(name);
        Ok(self
            .reply(&scripts::FORGET_NODE, &cmd)
            .await?
            .parse::<u32>()?
            == 1)
    }

    async fn nodes(&self) -> Answered<Nodes> {
        self.read_nodes().await
    }

    async fn queues(&self) -> Answered<Vec<ListedQueue>> {
        self.read_queues().await
    }

    async fn each_held(&self, queue: &QueueName, each: impl FnMut(Holding) + Send) -> Answered<()> {
        self.read_held(queue, each).await
    }

    async fn emit(&self, queue: &QueueName, events: &[NewEvent]) -> Answered<()> {
        self.add_events(queue, events).await
    }

    async fn events(&self, queue: &QueueName, after: StreamId, wait: Duration) -> Answered<Events> {
        self.read_events(queue, after, wait).await
    }

    async fn dead_letters(&self, queue: &QueueName) -> Answered<Vec<DeadLetter>> {
        self.read_dead_letters(queue).await
    }

    async fn hints(&self, classes: &[Class], agent: Option<&str>) -> Answered<Hints> {
        self.listen(classes, agent).await
    }

    async fn queue_status(&self, queue: &QueueName) -> Answered<Option<QueueStatus>> {
        self.read_queue_status(queue).await
    }

    async fn server_status(&self) -> Answered<ServerStatus> {
        self.read_server_status().await
    }
}
