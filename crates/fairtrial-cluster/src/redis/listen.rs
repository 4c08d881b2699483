//! Hints by pub/sub, on a connection of their own.

use redis::{PushInfo, PushKind, Value};

use super::{Answered, RedisDispatch, keys};
use crate::hints::{Hint, Hints};
use crate::names::{Class, QueueName, TaskId};

impl RedisDispatch {
    pub(super) async fn listen(&self, classes: &[Class], agent: Option<&str>) -> Answered<Hints> {
        let (mut connection, mut pushes) = self.link.listening().await?;
        let channels = classes
            .iter()
            .map(|class| keys::wake(*class))
            .chain(agent.map(keys::control));
        for channel in channels {
            let subscribed = connection.subscribe(channel).await;
            subscribed.map_err(|error| self.link.explain("subscribe", &error))?;
        }
        let (sender, hints) = Hints::channel();
        let listener = tokio::spawn(async move {
            // Its end would close the connection.
            let _connection = connection;
            while let Some(push) = pushes.recv().await {
                if push.kind == PushKind::Disconnection {
                    return;
                }
                if let Some(hint) = hint(&push) {
                    // A full channel loses a hint, which is what hints are for.
                    drop(sender.try_send(hint));
                }
            }
        });
        Ok(hints.fed_by(listener.abort_handle()))
    }
}

/// What a message says; nothing if it is none of ours.
fn hint(push: &PushInfo) -> Option<Hint> {
    let [Value::BulkString(channel), Value::BulkString(message)] = push.data.as_slice() else {
        return None;
    };
    let channel = std::str::from_utf8(channel).ok()?;
    let message = std::str::from_utf8(message).ok()?;
    if let Some(class) = channel.strip_prefix("ft:wake:") {
        let (class, queue) = (class.parse().ok()?, QueueName::new(message).ok()?);
        return Some(Hint::Wake { class, queue });
    }
    let (queue, task) = message.split_once(' ')?;
    let queue = QueueName::new(queue).ok()?;
    match task {
        "*" => Some(Hint::Cancel { queue, task: None }),
        task => TaskId::try_from(task.to_owned())
            .ok()
            .map(|task| Hint::Cancel {
                queue,
                task: Some(task),
            }),
    }
}
