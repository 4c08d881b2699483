//! Which namespaces this process is in, and being the first process of one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, ExitCode};

use rustix::process::{WaitOptions, wait};
use serde::{Deserialize, Serialize};

use crate::show::{Refusal, attempting};

const KINDS: [&str; 5] = ["pid", "net", "mnt", "ipc", "cgroup"];

/// A process's namespaces, by kind, as the kernel numbers them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Namespaces(BTreeMap<String, PathBuf>);

impl Namespaces {
    pub(crate) fn of_this_process() -> Result<Self, Refusal> {
        let of_kind = |kind: &&str| {
            let number = std::fs::read_link(format!("/proc/self/ns/{kind}"));
            let number = number.map_err(attempting(format!("which {kind} namespace this is")))?;
            Ok((kind.to_string(), number))
        };
        KINDS
            .iter()
            .map(of_kind)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Refuses where one of them is this process's own: then this is still the outside.
    pub(crate) fn must_differ(&self) -> Result<(), Refusal> {
        let own = Self::of_this_process()?;
        match KINDS
            .iter()
            .find(|kind| self.0.get(**kind) == own.0.get(**kind))
        {
            Some(kind) => Err(Refusal(format!(
                "not in a cage: the {kind} namespace is the host's"
            ))),
            None => Ok(()),
        }
    }
}

/// What the first process of a namespace does: takes in whoever is left to it, until its own child has ended.
pub(crate) fn reap_until_end_of(child: &mut Child) -> Result<ExitCode, Refusal> {
    loop {
        let (pid, status) = wait(WaitOptions::empty())?.expect("it blocks until there is one");
        if pid == rustix::process::Pid::from_child(child) {
            let code = status
                .exit_status()
                .and_then(|code| u8::try_from(code).ok());
            return Ok(ExitCode::from(code.unwrap_or(1)));
        }
    }
}
