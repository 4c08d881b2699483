//! What confines a call, from what it asks for. All of it is fixed when its process is made, so a worker that was made
//! ahead serves only calls on its own terms.

use std::path::{Path, PathBuf};

use super::Level;
use crate::call::{Call, Work};
use crate::protocol::launcher::{Confine, LeafLimits};

/// Added to a candidate's score when the host is short of memory: it goes before anybody else.
const OOM_SCORE: i32 = 800;

/// The terms of a call above the level `none`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    level: Level,
    memory_bytes: Option<u64>,
    processes: Option<u64>,
    cwd: Option<PathBuf>,
}

impl Terms {
    /// None at the level `none`.
    pub(crate) fn of(call: &Call) -> Option<Self> {
        (call.sandbox != Level::None).then(|| Self {
            level: call.sandbox,
            memory_bytes: call.limits.memory_bytes,
            processes: call.limits.processes,
            cwd: match call.work {
                // The caller's own function works in the caller's own directory.
                Work::Pickled(_) => std::env::current_dir().ok(),
                _ => call.cwd.clone(),
            },
        })
    }

    /// What the launcher is asked for; `scratch` is the only directory of the call's own.
    pub(crate) fn confine(&self, scratch: &Path) -> Confine {
        let places = [Path::new("/dev/null"), Path::new("/dev/shm"), scratch];
        let writable = places.into_iter().chain(self.cwd.as_deref());
        Confine {
            leaf: Some(LeafLimits {
                memory_bytes: self.memory_bytes,
                processes: self.processes,
            }),
            rlimits: rlimits(),
            oom_score: OOM_SCORE,
            writable: Some(writable.map(bytes).collect()),
            cpus: Vec::new(),
        }
    }
}

/// What every confined process is held to, whatever its call asks for.
fn rlimits() -> Vec<(u32, u64)> {
    vec![
        (libc::RLIMIT_CORE, 1), // 0 would still start a handler that cores are piped to
        (libc::RLIMIT_MEMLOCK, 64 << 10),
        (libc::RLIMIT_MSGQUEUE, 64 << 10),
        (libc::RLIMIT_SIGPENDING, 1024),
        (libc::RLIMIT_NICE, 0),
        (libc::RLIMIT_RTPRIO, 0),
    ]
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}
