//! Whether a user may do what an agent does (CL-6, CL-48): found before anybody is told that it serves.

use redis::{Cmd, Pipeline};

use super::{Answered, RedisDispatch, keys};
use crate::dispatch::{Dispatch, DispatchError};
use crate::jitter::nonce;
use crate::names::{Agent, Class, QueueName};

/// What scripts of agents run, of a key that is not there: each does nothing then.
const COMMANDS: [&str; 15] = [
    "XREADGROUP GROUP agents nobody COUNT 1 STREAMS KEY >",
    "XPENDING KEY agents",
    "XCLAIM KEY agents nobody 0 1-1 JUSTID",
    "XACK KEY agents 1-1",
    "XADD KEY NOMKSTREAM * task none",
    "XRANGE KEY 1-1 1-1",
    "XDEL KEY 1-1",
    "XINFO GROUPS KEY",
    "XGROUP DELCONSUMER KEY agents nobody",
    "HMGET KEY field",
    "HDEL KEY field",
    "SISMEMBER KEY member",
    "SREM KEY member",
    "DEL KEY",
    "PUBLISH KEY nothing",
];

impl RedisDispatch {
    /// Tries what an agent does with tasks and hints, on a queue that is not there, so that nothing comes of it.
    /// [`DispatchError::Denied`] names the first command that this user may not run.
    pub async fn may_serve(&self) -> Answered<()> {
        let queue = QueueName::new(nonce()).expect("a nonce is a name");
        let agent = Agent::new("nobody", nonce()).expect("both are names");
        self.lease(&queue, Class::Cpu, &agent.slot(0)).await?;
        self.try_commands(&queue).await?;
        self.hints(&Class::ALL, None).await.map(drop)
    }

    /// A script that is denied a command does not say which, and without a queue it runs few of them.
    async fn try_commands(&self, queue: &QueueName) -> Answered<()> {
        let key = keys::stream(queue, Class::Cpu);
        let mut pipeline = Pipeline::new();
        for command in COMMANDS {
            let words = command.split(' ');
            let words = words.map(|word| if word == "KEY" { &*key } else { word });
            pipeline.add_command(words.fold(Cmd::new(), |mut cmd, word| {
                cmd.arg(word);
                cmd
            }));
        }
        let replies = self.link.pipe("serve", &mut pipeline).await?;
        for (command, reply) in COMMANDS.iter().zip(replies) {
            let name = command.split(' ').next().unwrap_or(command);
            // That nothing is there is the answer that is wanted.
            if let Err(error) = reply
                && let denied @ DispatchError::Denied { .. } = self.link.explain(name, &error)
            {
                return Err(denied);
            }
        }
        Ok(())
    }
}
