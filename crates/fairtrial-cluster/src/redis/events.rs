//! A queue's streams that only grow: events and dead letters. Blocking reads have a connection of their own (CL-73).

use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, Value, from_redis_value};

use super::{Answered, RedisDispatch, keys, ms};
use crate::answers::{DeadLetter, Events, StoredEvent};
use crate::dispatch::DispatchError;
use crate::names::{QueueName, StreamId, TaskId};
use crate::terms::NewEvent;

/// Entries given at a time.
const PAGE: usize = 1_000;
/// About how many entries are kept, each of the events of one script. `queue.lua` has the same number, and why.
const KEPT: usize = 10_000;
/// As the event before it in the same entry. No name of a task or an agent has this character.
const SAME: &str = "*";

/// A stream's entry: id, fields and values.
pub(super) type Entry = (String, Vec<(String, String)>);
/// The same, as the server has it.
type RawEntry = (String, Vec<(Vec<u8>, Vec<u8>)>);

impl RedisDispatch {
    pub(super) async fn add_events(&self, queue: &QueueName, events: &[NewEvent]) -> Answered<()> {
        if events.is_empty() {
            return Ok(());
        }
        // The stream is there as long as the queue is.
        let mut cmd = redis::cmd("XADD");
        cmd.arg(keys::of(queue, "ev")).arg("NOMKSTREAM");
        cmd.arg("MAXLEN").arg("~").arg(KEPT).arg("*");
        for event in events {
            let task = event.task.as_ref().map_or("", TaskId::as_str);
            let agent = event.agent.as_deref().unwrap_or("");
            cmd.arg(&event.name)
                .arg(format!("{task} {agent} {}", event.data));
        }
        self.link.query("emit", &cmd).await
    }

    pub(super) async fn read_events(
        &self,
        queue: &QueueName,
        after: StreamId,
        wait: Duration,
    ) -> Answered<Events> {
        let key = keys::of(queue, "ev");
        let mut pipe = redis::pipe();
        pipe.cmd("XREAD").arg("COUNT").arg(PAGE);
        if !wait.is_zero() {
            // A block of 0 would be one without end.
            pipe.arg("BLOCK").arg(ms(wait).max(1));
        }
        pipe.arg("STREAMS").arg(&key).arg(after.to_string());
        // Whether the reader's last event is still there is asked after reading: what was trimmed since is no gap.
        if after == StreamId::START {
            pipe.cmd("XINFO").arg("STREAM").arg(&key);
        } else {
            pipe.cmd("XRANGE")
                .arg(&key)
                .arg(after.to_string())
                .arg(after.to_string());
        }
        let replies = self.link.blocking("events", &mut pipe, wait).await?;
        let [read, known] =
            <[_; 2]>::try_from(replies).map_err(|_| odd("events", "too few answers"))?;
        let read = read.map_err(|error| self.link.explain("events", &error))?;
        let found: Option<Vec<(String, Vec<RawEntry>)>> = converted("events", read)?;
        let entries = found.into_iter().flatten().flat_map(|(_, entries)| entries);
        let gap = match known {
            Ok(known) if after == StreamId::START => was_trimmed(known)?,
            Ok(known) => matches!(known, Value::Array(found) if found.is_empty()),
            // There is no stream.
            Err(error) if error.to_string().contains("no such key") => false,
            Err(error) => return Err(self.link.explain("events", &error)),
        };
        Ok(Events {
            events: entries.map(told).collect::<Answered<Vec<_>>>()?.concat(),
            gap,
        })
    }

    pub(super) async fn read_dead_letters(&self, queue: &QueueName) -> Answered<Vec<DeadLetter>> {
        let mut cmd = redis::cmd("XREVRANGE");
        cmd.arg(keys::of(queue, "dead"))
            .arg("+")
            .arg("-")
            .arg("COUNT")
            .arg(100);
        let entries: Vec<Entry> = self.link.query("dead_letters", &cmd).await?;
        entries.into_iter().rev().map(dead_letter).collect()
    }
}

/// Whether a stream has lost entries: it counts those ever added.
fn was_trimmed(info: Value) -> Answered<bool> {
    let info: HashMap<String, Value> = converted("events", info)?;
    let number = |name: &str| match info.get(name) {
        Some(Value::Int(number)) => *number,
        _ => 0,
    };
    Ok(number("entries-added") > number("length"))
}

/// A field's value; what is not there is empty.
fn taken(fields: &mut [(String, String)], name: &str) -> String {
    let field = fields.iter_mut().find(|(field, _)| field == name);
    field.map_or_else(String::new, |(_, value)| std::mem::take(value))
}

/// The events of an entry; all have its id. What another program wrote there is read as text, whatever it is.
fn told((id, fields): RawEntry) -> Answered<Vec<StoredEvent>> {
    let id = id.parse().map_err(|_| odd("events", &id))?;
    let mut last: (Option<TaskId>, Option<String>) = (None, None);
    let event = |(name, value): (Vec<u8>, Vec<u8>)| {
        let [name, value] = [name, value].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let mut words = value.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default();
        let (task, agent, data) = (next(), next(), next());
        if task != SAME {
            last.0 = TaskId::try_from(task.to_owned()).ok();
        }
        if agent != SAME {
            last.1 = Some(agent.to_owned()).filter(|agent| !agent.is_empty());
        }
        let event = NewEvent {
            name,
            task: last.0.clone(),
            agent: last.1.clone(),
            data: data.to_owned(),
        };
        StoredEvent { id, event }
    };
    Ok(fields.into_iter().map(event).collect())
}

fn dead_letter((id, mut fields): Entry) -> Answered<DeadLetter> {
    let mut field = |name: &str| taken(&mut fields, name);
    Ok(DeadLetter {
        id: id.parse().map_err(|_| odd("dead_letters", &id))?,
        task: TaskId::try_from(field("task")).map_err(|error| odd("dead_letters", &error.name))?,
        deliveries: field("deliveries").parse().unwrap_or(0),
        agent: field("agent"),
        reason: field("reason"),
    })
}

/// What came, as what it should be.
pub(super) fn converted<T: FromRedisValue>(operation: &'static str, value: Value) -> Answered<T> {
    from_redis_value(value).map_err(|error| odd(operation, &error.to_string()))
}

pub(super) fn odd(operation: &'static str, what: &str) -> DispatchError {
    let problem = format!("the server answered `{what}`");
    DispatchError::Protocol { operation, problem }
}
