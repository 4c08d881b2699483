//! What anybody may ask, the reader user too: no script, read commands only (CL-46, CL-60).

use std::collections::HashMap;
use std::time::Duration;

use redis::{RedisError, Value};
use serde::Deserialize;

use super::events::{Entry, converted, odd};
use super::{Answered, RedisDispatch, keys};
use crate::answers::{ListedQueue, Nodes, QueueStatus, ServerStatus};
use crate::dispatch::DispatchError;
use crate::names::{Class, QueueName, StreamId};
use crate::terms::{LATELY, Node, Owner};

/// An agent as the server keeps it.
#[derive(Deserialize)]
struct Seen {
    /// By the server's clock.
    seen_ms: Option<u64>,
    #[serde(flatten)]
    node: Node,
}

/// Events looked through for a queue's rate, at most.
const MOST_EVENTS: usize = 1_000;

impl RedisDispatch {
    pub(super) async fn read_nodes(&self) -> Answered<Nodes> {
        let mut names = redis::cmd("SMEMBERS");
        names.arg(keys::NODES);
        let mut names: Vec<String> = self.link.query("nodes", &names).await?;
        names.sort();
        let mut nodes = Nodes::default();
        if names.is_empty() {
            return Ok(nodes);
        }
        let mut get = redis::cmd("MGET");
        get.arg(
            names
                .iter()
                .map(|name| keys::node(name))
                .collect::<Vec<_>>(),
        );
        let found: Vec<Option<String>> = self.link.query("nodes", &get).await?;
        for (name, node) in names.into_iter().zip(found) {
            match node {
                // What another program wrote there is no node.
                Some(text) => {
                    if let Ok(seen) = serde_json::from_str::<Seen>(&text) {
                        nodes.live.push(seen.node);
                        nodes.seen_ms.push(seen.seen_ms);
                    }
                }
                None => nodes.lost.push(name),
            }
        }
        Ok(nodes)
    }

    pub(super) async fn read_queues(&self) -> Answered<Vec<ListedQueue>> {
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(keys::QUEUES);
        let weights: HashMap<String, String> = self.link.query("queues", &cmd).await?;
        // What another program wrote there is no queue.
        let listed = weights.into_iter().filter_map(|(name, weight)| {
            let (queue, weight) = (QueueName::new(name).ok()?, weight.parse().ok()?);
            Some(ListedQueue { queue, weight })
        });
        let mut listed: Vec<ListedQueue> = listed.collect();
        listed.sort_by(|one, other| one.queue.cmp(&other.queue));
        Ok(listed)
    }

    pub(super) async fn read_queue_status(
        &self,
        queue: &QueueName,
    ) -> Answered<Option<QueueStatus>> {
        match self.status_of_queue(queue).await {
            // Another program wrote something else there.
            Err(DispatchError::Protocol { .. }) => Ok(None),
            status => status,
        }
    }

    async fn status_of_queue(&self, queue: &QueueName) -> Answered<Option<QueueStatus>> {
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(keys::of(queue, "meta")).arg(&[
            "state",
            "owner",
            "seen",
            "collected",
        ]);
        pipe.cmd("HLEN").arg(keys::of(queue, "res"));
        pipe.cmd("XLEN").arg(keys::of(queue, "dead"));
        // The reader may not ask for TIME; INFO has the clock too.
        pipe.cmd("INFO").arg("server");
        for class in Class::ALL {
            let stream = keys::stream(queue, class);
            pipe.cmd("XLEN").arg(&stream);
            pipe.cmd("XPENDING").arg(&stream).arg(keys::GROUP);
            pipe.cmd("XINFO").arg("GROUPS").arg(&stream);
        }
        let mut replies = self.link.pipe("status", &mut pipe).await?.into_iter();
        let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
        let meta: Vec<Option<String>> = self.taken(next())?;
        let [Some(state), owner, seen, collected] =
            <[_; 4]>::try_from(meta).map_err(|_| odd("status", "meta"))?
        else {
            return Ok(None);
        };
        // Without the field none has been collected yet.
        let collected = collected.map_or(Ok(0), |text| text.parse::<u64>());
        let collected = collected.map_err(|_| odd("status", "collected"))?;
        let uncollected: u64 = self.taken(next())?;
        let mut status = QueueStatus {
            state,
            recorded: collected + uncollected,
            uncollected,
            dead: self.taken(next())?,
            ..QueueStatus::default()
        };
        let now_ms = clock(&fields(&self.taken::<String>(next())?));
        let ago = |then_ms: u64| Some(Duration::from_millis(now_ms?.saturating_sub(then_ms)));
        let seen = seen.and_then(|text| text.parse().ok());
        let owner = owner.and_then(|text| serde_json::from_str::<Owner>(&text).ok());
        status.owner = owner.map(|owner| (owner, seen.and_then(ago)));
        for class in Class::ALL {
            let length: u64 = self.taken(next())?;
            // Without its group nothing is handed out.
            let (pending, parked) = next().map_or((0, 0), |summary| counted(&summary));
            status.queued += length.saturating_sub(pending);
            status.leased += pending.saturating_sub(parked);
            status.parked += parked;
            let last = next().ok().and_then(last_delivered).unwrap_or_default();
            if let Some(oldest) = self.first_after(queue, class, last).await? {
                status.oldest_wait = status.oldest_wait.max(ago(oldest.ms));
            }
        }
        if let Some(now_ms) = now_ms {
            status.lately = Some(self.read_lately(queue, now_ms).await?);
        }
        Ok(Some(status))
    }

    /// How many results were recorded lately, and in what time: by the newest events.
    async fn read_lately(&self, queue: &QueueName, now_ms: u64) -> Answered<(u64, Duration)> {
        let events = keys::of(queue, "ev");
        let from = now_ms.saturating_sub(LATELY.as_millis() as u64);
        let mut pipe = redis::pipe();
        let newest = pipe.cmd("XREVRANGE").arg(&events).arg("+").arg(from);
        newest.arg("COUNT").arg(MOST_EVENTS);
        let first = pipe.cmd("XRANGE").arg(&events).arg("-").arg("+");
        first.arg("COUNT").arg(1);
        let mut replies = self.link.pipe("status", &mut pipe).await?.into_iter();
        let mut next = || self.taken::<Vec<Entry>>(replies.next().unwrap_or(Ok(Value::Nil)));
        let (newest, first) = (next()?, next()?);
        let names = newest.iter().flat_map(|(_, fields)| fields);
        let ends = names.filter(|(name, _)| name == "complete").count();
        let oldest = match newest.len() < MOST_EVENTS {
            true => first.first(),
            false => newest.last(),
        };
        let oldest = oldest.and_then(|(id, _)| id.parse::<StreamId>().ok());
        let since = oldest.map_or(now_ms, |id| id.ms).clamp(from, now_ms);
        Ok((ends as u64, Duration::from_millis(now_ms - since)))
    }

    pub(super) async fn read_server_status(&self) -> Answered<ServerStatus> {
        let text: String = self.link.query("status", &redis::cmd("INFO")).await?;
        Ok(server_status(&text))
    }

    async fn first_after(
        &self,
        queue: &QueueName,
        class: Class,
        last: StreamId,
    ) -> Answered<Option<StreamId>> {
        let mut cmd = redis::cmd("XRANGE");
        cmd.arg(keys::stream(queue, class))
            .arg(format!("({last}"))
            .arg("+")
            .arg("COUNT")
            .arg(1);
        let found: Vec<(String, Value)> = self.link.query("status", &cmd).await?;
        Ok(found.first().and_then(|(id, _)| id.parse().ok()))
    }

    fn taken<T: redis::FromRedisValue>(&self, reply: Result<Value, RedisError>) -> Answered<T> {
        converted(
            "status",
            reply.map_err(|error| self.link.explain("status", &error))?,
        )
    }
}

/// What XPENDING says of a group: how many, first, last, and how many each consumer has.
type Summary = (u64, Value, Value, Option<Vec<(String, u64)>>);

/// How many are pending, and how many of those parked.
fn counted(summary: &Value) -> (u64, u64) {
    let summary: Option<Summary> = redis::from_redis_value(summary.clone()).ok();
    let Some((pending, _, _, consumers)) = summary else {
        return (0, 0);
    };
    let parked = consumers
        .into_iter()
        .flatten()
        .filter(|(name, _)| name == keys::PARKED);
    (pending, parked.map(|(_, count)| count).sum())
}

fn last_delivered(groups: Value) -> Option<StreamId> {
    let groups: Vec<HashMap<String, Value>> = redis::from_redis_value(groups).ok()?;
    let id: String =
        redis::from_redis_value(groups.first()?.get("last-delivered-id")?.clone()).ok()?;
    id.parse().ok()
}

/// What INFO says, by name.
fn fields(info: &str) -> HashMap<&str, &str> {
    info.lines()
        .filter_map(|line| line.trim_end().split_once(':'))
        .collect()
}

fn clock(fields: &HashMap<&str, &str>) -> Option<u64> {
    let us: u64 = fields.get("server_time_usec")?.parse().ok()?;
    Some(us / 1000)
}

/// INFO read. Valkey tells its own version, and as `redis_version` the one it is compatible with.
pub(super) fn server_status(info: &str) -> ServerStatus {
    let fields = fields(info);
    let field = |name: &str| fields.get(name).map(|value| (*value).to_owned());
    let number = |name: &str| fields.get(name).and_then(|value| value.parse::<u64>().ok());
    let valkey = field("valkey_version");
    ServerStatus {
        name: if valkey.is_some() { "valkey" } else { "redis" }.to_owned(),
        version: valkey
            .or_else(|| field("redis_version"))
            .unwrap_or_default(),
        used_memory: number("used_memory"),
        max_memory: number("maxmemory"),
        memory_policy: field("maxmemory_policy").unwrap_or_default(),
        append_only: number("aof_enabled") == Some(1),
        cluster_mode: number("cluster_enabled") == Some(1),
        time_ms: clock(&fields),
    }
}
