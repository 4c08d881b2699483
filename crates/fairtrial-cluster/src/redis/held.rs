//! All that a queue holds, page by page (CL-53).

use super::{Answered, RedisDispatch, keys, scripts};
use crate::answers::Holding;
use crate::names::QueueName;

/// How pins are called among the fields of a queue.
const PIN: &str = "pin.";

impl RedisDispatch {
    pub(super) async fn read_held(
        &self,
        queue: &QueueName,
        mut each: impl FnMut(Holding) + Send,
    ) -> Answered<()> {
        // Results last: a task that ends meanwhile is told of by one of them.
        self.scan(queue, "task", |bytes| each(Holding::Task(bytes)))
            .await?;
        self.scan(queue, "res", |bytes| each(Holding::Result(bytes)))
            .await?;
        let mut cmd = redis::cmd("HKEYS");
        cmd.arg(keys::of(queue, "meta"));
        let fields: Vec<String> = self.link.query("held", &cmd).await?;
        let pins = fields.iter().filter_map(|field| field.strip_prefix(PIN));
        pins.for_each(|pin| each(Holding::Pin(pin.to_owned())));
        Ok(())
    }

    async fn scan(
        &self,
        queue: &QueueName,
        what: &str,
        mut each: impl FnMut(Vec<u8>) + Send,
    ) -> Answered<()> {
        let mut cursor = "0".to_owned();
        loop {
            let mut cmd = scripts::HELD.on(queue);
            cmd.arg(what).arg(&cursor);
            let mut reply = self.reply(&scripts::HELD, &cmd).await?;
            cursor = reply.text()?;
            while !reply.is_read() {
                each(reply.bytes()?);
            }
            if cursor == "0" {
                return Ok(());
            }
        }
    }
}
