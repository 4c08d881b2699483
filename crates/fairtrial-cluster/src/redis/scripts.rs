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
    ($($(#[$with:ident])? $constant:ident = $name:literal;)*) => {
        $(pub(super) static $constant: LazyLock<Operation> = LazyLock::new(|| {
            let text = include_str!(concat!($name, ".lua"));
            Operation { name: $name, script: Script::new(&operations!(@text $($with)? text)) }
        });)*
    };
    (@text common $text:ident) => { format!("{}\n{}", include_str!("common.lua"), $text) };
    (@text $text:ident) => { $text.to_owned() };
}

operations! {
    #[common] OPEN = "open";
    #[common] KEEP = "keep";
    #[common] CLOSE = "close";
    #[common] SUBMIT = "submit";
    #[common] LEASE = "lease";
    #[common] WAITS = "waits";
    #[common] RENEW = "renew";
    #[common] COMMIT = "commit";
    #[common] RELEASE = "release";
    #[common] REAP = "reap";
    #[common] CANCEL = "cancel";
    #[common] CANCEL_QUEUE = "cancel_queue";
    #[common] PAUSE = "pause";
    #[common] CHECK = "check";
    #[common] COLLECT = "collect";
    #[common] PIN = "pin";
    #[common] HELD = "held";
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
