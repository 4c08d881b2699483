//! Values as arguments of scripts, and answers of scripts as values. No I/O.

use std::time::Duration;

use redis::Cmd;

use super::Answered;
use super::read::Reply;
use super::scripts::{self, Operation};
use crate::answers::{Announced, Committed, Leased, Submitted};
use crate::names::{Class, Consumer, QueueName, TaskId, Token};
use crate::terms::{Commit, Lease, Recorded, Task, Terms};

/// The layout of keys, noted in each queue.
const LAYOUT: &str = "1.0";

pub(super) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain values have a JSON form")
}

pub(super) fn texts(tasks: &[TaskId]) -> Vec<&str> {
    tasks.iter().map(TaskId::as_str).collect()
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn fields_of(terms: &Terms) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = [
        ("protocol", LAYOUT.to_owned()),
        ("weight", terms.weight.to_string()),
        ("max_queue", terms.max_queue.to_string()),
        ("max_inflight", terms.max_inflight.unwrap_or(0).to_string()),
        ("max_deliver", terms.max_deliver.to_string()),
        ("lease", ms(terms.lease).to_string()),
        ("named", u8::from(terms.named).to_string()),
        ("expiry", terms.expiry().as_secs().to_string()),
    ]
    .map(|(field, value)| (field.to_owned(), value))
    .into();
    fields.extend(Recorded::ALL.map(|recorded| {
        let text = terms.verdicts.of(recorded).to_owned();
        (format!("verdict.{}", recorded.as_str()), text)
    }));
    fields
}

pub(super) fn submit_command(queue: &QueueName, tasks: &[&Task]) -> Cmd {
    let mut cmd = scripts::SUBMIT.on(queue);
    for task in tasks {
        let timeout = task.queue_timeout.map_or(-1, |wait| {
            i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)
        });
        cmd.arg(task.id.as_str())
            .arg(task.class.as_str())
            .arg(timeout)
            .arg(&task.envelope);
    }
    cmd
}

/// The next of several answers.
pub(super) fn submitted(reply: &mut Reply) -> Answered<Submitted> {
    match reply.text()?.as_str() {
        "ok" => Ok(Submitted::Ok),
        "dup" => Ok(Submitted::Dup),
        "done" => Ok(Submitted::Done),
        "full" => Ok(Submitted::Full),
        "closed" => Ok(Submitted::Closed),
        other => Err(reply.odd(other)),
    }
}

pub(super) fn on_lease(operation: &Operation, lease: &Lease) -> Cmd {
    let mut cmd = operation.on(&lease.queue);
    cmd.arg(lease.class.as_str()).arg(lease.task.as_str());
    cmd.arg(lease.token.entry.to_string())
        .arg(lease.token.delivery)
        .arg(lease.consumer.to_string());
    cmd
}

pub(super) fn on_slot(
    operation: &Operation,
    queue: &QueueName,
    class: Class,
    consumer: &Consumer,
) -> Cmd {
    let mut cmd = operation.on(queue);
    cmd.arg(class.as_str()).arg(consumer.to_string());
    cmd.arg(consumer.agent.name()).arg(consumer.agent.nonce());
    cmd
}

pub(super) fn leased(
    queue: &QueueName,
    class: Class,
    consumer: &Consumer,
    mut reply: Reply,
) -> Answered<Leased> {
    match reply.text()?.as_str() {
        "empty" => Ok(Leased::Empty),
        "gone" => Ok(Leased::Gone),
        _ => {
            let lease = Lease {
                queue: queue.clone(),
                class,
                task: TaskId::try_from(reply.text()?).map_err(|error| reply.odd(&error.name))?,
                token: Token {
                    entry: reply.parse()?,
                    delivery: reply.parse()?,
                },
                consumer: consumer.clone(),
            };
            let envelope = reply.bytes()?;
            let renew_within = Duration::from_millis(reply.parse()?);
            let waited = Duration::from_millis(reply.parse()?);
            Ok(Leased::Task {
                lease,
                envelope,
                renew_within,
                waited,
            })
        }
    }
}

/// A commit, and a lease of that class in the same breath.
pub(super) fn commit_command(commit: &Commit, next: Option<Class>) -> Cmd {
    let mut cmd = on_lease(&scripts::COMMIT, &commit.lease);
    cmd.arg(&commit.result).arg(&commit.complete);
    cmd.arg(next.map_or("", Class::as_str))
        .arg(commit.lease.consumer.agent.nonce());
    for event in &commit.events {
        cmd.arg(&event.name)
            .arg(event.task.as_ref().map_or("", TaskId::as_str));
        cmd.arg(event.agent.as_deref().unwrap_or(""))
            .arg(&event.data);
    }
    cmd
}

pub(super) fn committed(mut reply: Reply) -> Answered<Committed> {
    match reply.text()?.as_str() {
        "committed" => Ok(Committed::Committed),
        "duplicate" => Ok(Committed::Duplicate {
            stored: reply.bytes()?,
        }),
        "fenced" => Ok(Committed::Fenced),
        "unknown" => Ok(Committed::Unknown),
        other => Err(reply.odd(other)),
    }
}

pub(super) fn announced(mut reply: Reply) -> Answered<Announced> {
    match reply.text()?.as_str() {
        "ok" => Ok(Announced::Ok),
        "taken" => Ok(Announced::Taken),
        other => Err(reply.odd(other)),
    }
}
