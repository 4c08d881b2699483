//! The scripts, one for each operation: read into the program, called by digest. What they do stands in them.

use std::sync::LazyLock;

use redis::{Cmd, Script};

use super::keys;
use crate::names::QueueName;

/// An operation of the server's.
pub(super) struct Operation {
    /// As errors call it.
    pub(super) name: &'static str,
    /// Its text and digest.
    pub(super) script: Script,
}

macro_rules! operations {
    ($($constant:ident = $name:literal $(after $before:expr)?;)*) => {
        $(pub(super) static $constant: LazyLock<Operation> = LazyLock::new(|| {
            let text = include_str!(concat!($name, ".lua"));
            $(let text = on_queue(&$before, text);)?
            Operation { name: $name, script: Script::new(text.as_ref()) }
        });)*
    };
}

const QUEUE: &str = include_str!("queue.lua");
const PLAIN: &str = include_str!("plain.lua");
const COMMON: &str = include_str!("common.lua");
const LEASING: &str = include_str!("leasing.lua");

/// An operation on a queue, after what it needs: all that happened is told at its end.
fn on_queue(before: &[&str], operation: &str) -> String {
    let before = before.concat();
    format!(
        "{QUEUE}{before}\nlocal function operation()\n{operation}\nend\nlocal answer = operation()\ntell()\nreturn answer\n"
    )
}

operations! {
    OPEN = "open" after [COMMON];
    KEEP = "keep" after [COMMON];
    CLOSE = "close" after [COMMON];
    SUBMIT = "submit" after [COMMON];
    LEASE = "lease" after [COMMON, LEASING];
    WAITS = "waits" after [COMMON];
    RENEW = "renew" after [COMMON];
    COMMIT = "commit" after [PLAIN, COMMON, LEASING];
    RELEASE = "release" after [COMMON];
    REAP = "reap" after [COMMON];
    CANCEL = "cancel" after [COMMON];
    CANCEL_QUEUE = "cancel_queue" after [COMMON];
    PAUSE = "pause" after [COMMON];
    EXPIRE = "expire" after [COMMON];
    CHECK = "check" after [COMMON];
    COLLECT = "collect" after [];
    PIN = "pin" after [];
    HELD = "held" after [COMMON];
    ANNOUNCE = "announce";
    REMOVE_NODE = "remove_node";
    FORGET_NODE = "forget_node";
}

impl Operation {
    /// On a queue; arguments follow.
    pub(super) fn on(&self, queue: &QueueName) -> Cmd {
        let mut cmd = self.on_keys(&keys::all(queue));
        cmd.arg(queue.as_str());
        cmd
    }

    /// On a node; arguments follow.
    pub(super) fn on_node(&self, name: &str) -> Cmd {
        let mut cmd = self.on_keys(&[keys::node(name), keys::NODES.to_owned()]);
        cmd.arg(name);
        cmd
    }

    fn on_keys(&self, keys: &[String]) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.script.get_hash()).arg(keys.len()).arg(keys);
        cmd
    }
}

#[cfg(test)]
mod tests {
    use fairtrial_tests::RedisServer;
    use redis::{Connection, Value};

    use super::*;

    const STREAM: &str = "ft:{q}:q:cpu";

    fn ask<T: redis::FromRedisValue>(server: &mut Connection, words: &str) -> T {
        let mut words = words.split(' ');
        let mut cmd = redis::cmd(words.next().expect("a command"));
        let answer = words.fold(&mut cmd, |cmd, word| cmd.arg(word));
        answer.query(server).expect("an answer")
    }

    fn reap(server: &mut Connection, text: &str) {
        let queue = QueueName::new("q").expect("a name");
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(on_queue(&[COMMON], text)).arg(8);
        cmd.arg(&keys::all(&queue)).arg("q").arg("cpu").arg("-");
        let () = cmd.query(server).expect("it is reaped");
    }

    /// CL-19: slots of agents that ended leave their names. One that has something keeps its name: the server forgets
    /// both together. An hour cannot be waited for: it is made shorter.
    #[test]
    fn the_name_of_a_slot_is_forgotten_when_it_is_long_silent_and_has_nothing() {
        const HOUR: &str = "3600000";
        let Some(server) = RedisServer::start() else {
            return;
        };
        let client = redis::Client::open(server.url()).expect("a URL");
        let server = &mut client.get_connection().expect("it serves");
        let meta = "seen 9999999999999 expiry 3600 lease 30000 max_deliver 3";
        let () = ask(server, &format!("HSET ft:{{q}}:meta {meta}"));
        let () = ask(server, &format!("XGROUP CREATE {STREAM} agents 0 MKSTREAM"));
        let () = ask(server, &format!("XADD {STREAM} * task t"));
        let read = format!("XREADGROUP GROUP agents has COUNT 1 STREAMS {STREAM} >");
        let () = ask(server, &read);
        let () = ask(
            server,
            &format!("XGROUP CREATECONSUMER {STREAM} agents none"),
        );
        let names = format!("XINFO CONSUMERS {STREAM} agents");
        let text = include_str!("reap.lua");
        reap(server, text);
        assert_eq!(ask::<Vec<Value>>(server, &names).len(), 2);
        assert!(text.contains(HOUR));
        reap(server, &text.replace(HOUR, "-1"));
        assert_eq!(ask::<Vec<Value>>(server, &names).len(), 1);
        let pending: Vec<Value> = ask(server, &format!("XPENDING {STREAM} agents - + 9"));
        assert_eq!(pending.len(), 1, "what it has is still known");
    }
}
