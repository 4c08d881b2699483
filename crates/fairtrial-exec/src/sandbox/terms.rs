//! What confines a call, from what it asks for. All of it is fixed when its process is made, so a worker that was made
//! ahead serves only calls on its own terms.

use std::path::{Path, PathBuf};

use super::Level;
use crate::call::{Call, Work};
use crate::protocol::launcher::{Bind, Confine, LeafLimits, Network, World};

/// Added to a candidate's score when the host is short of memory: it goes before anybody else.
const OOM_SCORE: i32 = 800;

/// What of the host a `strict` call sees, besides its interpreter: programs and libraries, and of `/etc` what they need
/// to find each other. Nothing that is anybody's secret.
const SEEN: [&str; 24] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/timezone",
];

const SCRATCH_BYTES: u64 = 1 << 30;
const SCRATCH_INODES: u64 = 50_000;

/// The terms of a call above the level `none`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    level: Level,
    memory_bytes: Option<u64>,
    processes: Option<u64>,
    cwd: Option<PathBuf>,
    /// What it reads besides: its modules, its program.
    reads: Vec<PathBuf>,
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
            reads: reads(call),
        })
    }

    /// What the launcher is asked for. `scratch` is the only directory of the call's own; `paths` are where its
    /// interpreter finds itself.
    pub(crate) fn confine(&self, scratch: &Path, paths: &[PathBuf]) -> Confine {
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
            world: (self.level == Level::Strict).then(|| self.world(scratch, paths)),
        }
    }

    fn world(&self, scratch: &Path, paths: &[PathBuf]) -> World {
        let seen = SEEN.iter().map(Path::new);
        let seen = seen.chain(paths.iter().map(PathBuf::as_path));
        let seen = seen.chain(self.reads.iter().map(PathBuf::as_path));
        let mut binds: Vec<Bind> = outermost(seen)
            .into_iter()
            .map(|path| bind(path, false))
            .collect();
        binds.extend(self.cwd.iter().map(|cwd| bind(cwd, true)));
        World {
            binds,
            devices: Vec::new(),
            scratch: bytes(scratch),
            scratch_bytes: SCRATCH_BYTES,
            scratch_inodes: SCRATCH_INODES,
            network: Network::None,
        }
    }
}

/// Where a call's modules are, or the program that it runs.
fn reads(call: &Call) -> Vec<PathBuf> {
    if call.sandbox != Level::Strict {
        return Vec::new();
    }
    let modules = call.python().map_or(&[][..], |terms| &terms.python_path);
    let program = match &call.work {
        Work::Command(work) if work.argv[0].starts_with('/') => home_of(Path::new(&work.argv[0])),
        _ => None,
    };
    modules.iter().map(PathBuf::from).chain(program).collect()
}

/// A program in a `bin` has its libraries beside that.
fn home_of(program: &Path) -> Option<PathBuf> {
    let program = program.canonicalize().ok()?;
    let directory = program.parent()?;
    let home = match directory.file_name() {
        Some(name) if name == "bin" || name == "sbin" => directory.parent()?,
        _ => directory,
    };
    Some(home.to_path_buf())
}

/// Those that are not inside another of them, and never the whole host.
fn outermost<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<&'a Path> {
    let mut paths: Vec<&Path> = paths.filter(|path| path.parent().is_some()).collect();
    paths.sort_unstable();
    paths.dedup_by(|inner, outer| inner.starts_with(&*outer));
    paths
}

fn bind(path: &Path, writable: bool) -> Bind {
    Bind {
        path: bytes(path),
        writable,
        device: false,
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
