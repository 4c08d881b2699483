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
