//! What confines a call, from what it asks for. All of it is fixed when its process is made, so a worker that was made
//! ahead serves only calls on its own terms.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::means::Inside;
use super::{Level, Means, Network, Sandbox};
use crate::call::{Call, Work};
use crate::linux::cgroup::LeafLimits;
use crate::linux::process::host_umask;
use crate::linux::seccomp::{Filter, Others, Sockets};
use crate::protocol::launcher::{
    self, Bind, Confine, Cover, Landlock, Namespaces, OwnMounts, World,
};
use crate::workspace::Workspace;

/// Added to a candidate's score when the host is short of memory: it goes before anybody else.
const OOM_SCORE: i32 = 800;

/// New files are their user's alone.
const PRIVATE_UMASK: u32 = 0o077;

/// What of the host a `strict` call sees, and a `confined` one reads, besides its interpreter: programs and libraries, and of `/etc` what they need
/// to find each other. Nothing that is anybody's secret.
const SEEN: [&str; 25] = [
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
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
];

/// Devices that every program expects, besides `/dev/null`.
const DEVICES: [&str; 4] = ["/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Where programs share memory by name.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// Where a `strict` call has its directory: in a file system of its own, whatever of the host is seen beside it.
const STRICT_SCRATCH: &str = "/fairtrial";

/// Where a call finds the directory that is `scratch` to the engine.
pub(crate) fn scratch_seen<'a>(level: Level, means: &Means, scratch: &'a Path) -> &'a Path {
    match level {
        Level::Strict if means.no_namespaces().is_none() => Path::new(STRICT_SCRATCH),
        _ => scratch,
    }
}

/// The terms of a call above the level `none`, or with a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    sandbox: Sandbox,
    memory_bytes: Option<u64>,
    processes: Option<u64>,
    cwd: Option<PathBuf>,
    /// What it reads besides: its modules, its program.
    reads: Vec<PathBuf>,
    workspace: Option<Arc<Workspace>>,
    as_caller: bool,
    /// Whether it writes in directories of the user's, beside its own scratch directory.
    writes_for_others: bool,
    /// Places of the host that it names, as it names them.
    named: Vec<PathBuf>,
    /// Whether `/dev/shm` can be its own.
    own_memory: bool,
}

impl Terms {
    /// None at the level `none`, but with a workspace.
    pub(crate) fn of(call: &Call) -> Option<Self> {
        let confined = call.sandbox.level != Level::None || call.workspace.is_some();
        let own_function = matches!(call.work, Work::Pickled(_));
        confined.then(|| Self {
            writes_for_others: !call.sandbox.write.is_empty()
                || (call.cwd.is_some() && !own_function && call.workspace.is_none()),
            named: named_places(call).map(Path::to_path_buf).collect(),
            own_memory: wants_own_memory(call),
            sandbox: call.sandbox.clone(),
            memory_bytes: call.limits.memory_bytes,
            processes: call.limits.processes,
            cwd: match call.work {
                // The caller's own function works in the caller's own directory.
                Work::Pickled(_) => std::env::current_dir().ok(),
                _ => call.cwd.clone(),
            }
            .filter(|cwd| cwd.parent().is_some()) // the whole host is nobody's working directory
            // In a workspace it is not the host's.
            .filter(|cwd| !is_inside(call.workspace.as_deref(), cwd)),
            reads: reads(call),
            workspace: call.workspace.clone(),
            as_caller: call.as_caller,
        })
    }

    fn level(&self) -> Level {
        self.sandbox.level
    }

    /// Whether it is kept from the host's files and network without namespaces of its own.
    fn is_walled(&self, inside: Option<Inside>) -> bool {
        self.level() >= Level::Confined && inside != Some(Inside::World)
    }

    /// What the launcher is asked for. `scratch` is the only directory of the call's own; `paths` are where its
    /// interpreter finds itself.
    pub(crate) fn confine(&self, means: &Means, scratch: &Path, paths: &[PathBuf]) -> Confine {
        let scratch = scratch_seen(self.level(), means, scratch);
        let places = [Path::new("/dev/null"), Path::new(SHARED_MEMORY), scratch];
        let workspace = self.workspace.as_deref();
        let write = with_targets(self.cwd.iter().chain(&self.sandbox.write));
        let write = write.iter().map(PathBuf::as_path);
        let write = write.chain(workspace.map(|workspace| workspace.at.as_path()));
        let write = write.chain(workspace.and_then(|workspace| workspace.private.as_deref()));
        let writable: Vec<&Path> = places.into_iter().chain(write).collect();
        let address_space = self.sandbox.address_space;
        let cpus = self.sandbox.cpus.iter().flatten();
        let inside = means.namespaces_at(self.level());
        let inside = inside.or(workspace.map(|_| Inside::Processes));
        let confined = self.level() != Level::None;
        let has_mounts =
            workspace.is_none() && can_have_mounts(&self.sandbox) && means.mounts_at(self.level());
        let own_memory = has_mounts && self.own_memory && means.own_memory();
        let own_quotas = has_mounts || (workspace.is_none() && inside == Some(Inside::World));
        Confine {
            leaf: (confined && means.cgroups()).then_some(LeafLimits {
                memory_bytes: self.memory_bytes,
                processes: self.processes,
            }),
            rlimits: address_space
                .map(|bytes| (libc::RLIMIT_AS, bytes))
                .into_iter()
                .collect(),
            // One above what was asked for: reaching that is the breach, which whoever counts from outside then sees.
            user_tasks: self
                .processes
                .filter(|_| means.counts_users_at(self.level()))
                // With a workspace a call of root's is root, whom nobody counts; so is one that asks for it.
                .filter(|_| workspace.is_none() && !self.as_caller || !means.root())
                .map(|most| most.saturating_add(1)),
            oom_score: 0,
            umask: self.writes_for_others.then(shared_umask),
            landlock: (confined && means.landlock() > 0).then(|| Landlock {
                abi: means.landlock(),
                writable: writable.iter().copied().map(bytes).collect(),
                readable: self.is_walled(inside).then(|| self.readable(paths)),
                unlisted: match own_memory {
                    true => Vec::new(),
                    false => vec![bytes(Path::new(SHARED_MEMORY))],
                },
                refuse_tcp: self.is_walled(inside) && self.refuses_network(),
            }),
            cpus: cpus.filter_map(|cpu| u32::try_from(*cpu).ok()).collect(),
            namespaces: inside.map(|inside| match inside {
                Inside::Processes => Namespaces::Processes,
                Inside::World => Namespaces::All(self.world(scratch, paths)),
            }),
            tree: workspace.map(Workspace::to_tree),
            mounts: has_mounts
                .then(|| own_mounts(&writable, own_memory, self.cover(means, scratch, paths))),
            own_quotas: own_quotas.then(|| means.calls_at_a_time()),
            filter: (confined && means.seccomp()).then(|| self.filter(inside)),
        }
    }

    /// What hides the scratch directories of other calls, of other engines, too, unless the call names a place beside
    /// its own.
    fn cover(&self, means: &Means, scratch: &Path, interpreter: &[PathBuf]) -> Option<Cover> {
        let named = self.named.iter().filter(|place| place.is_absolute());
        let named = with_targets(named.chain(interpreter).chain(&self.cwd));
        let named: Vec<_> = named
            .iter()
            .filter(|place| !place.starts_with(scratch))
            .collect();
        let hides = |place: &&Path| {
            scratch.starts_with(place)
                && scratch != *place
                && !named.iter().any(|named| named.starts_with(place))
        };
        let candidates = means.engines_dir().into_iter().chain(scratch.parent());
        let at = candidates
            .filter(|_| self.level() < Level::Strict)
            .find(hides)?;
        Some(Cover {
            at: bytes(at),
            keep: bytes(scratch),
        })
    }

    fn refuses_network(&self) -> bool {
        self.sandbox.network != Network::Host
    }

    /// The places where a call without a world of its own may read: as a `strict` one sees them. `paths` are where its
    /// interpreter finds itself.
    fn readable(&self, paths: &[PathBuf]) -> Vec<Vec<u8>> {
        let seen = SEEN.iter().chain(&DEVICES).map(Path::new);
        let seen = seen.chain(paths.iter().map(PathBuf::as_path));
        let read = with_targets(self.reads.iter().chain(&self.sandbox.read));
        let seen = seen.chain(read.iter().map(PathBuf::as_path));
        outermost(seen).into_iter().map(bytes).collect()
    }

    /// What the filter of system calls refuses, given the namespaces that the call has.
    fn filter(&self, inside: Option<Inside>) -> Filter {
        let others = match inside {
            Some(_) => Others::InNamespace,
            None => Others::Nobody,
        };
        let reaches_host = inside != Some(Inside::World);
        let sockets = match self.refuses_network() && reaches_host {
            true => Sockets::PairsOnly,
            false => Sockets::Namespaced,
        };
        Filter {
            others,
            rare_calls: (self.level() >= Level::Confined).then_some(sockets),
            shares_host: reaches_host,
        }
    }

    /// As [`Terms::confine`], for a program that no zygote prepared.
    pub(crate) fn confine_program(&self, means: &Means, scratch: &Path) -> Confine {
        let mut confine = self.confine(means, scratch, &[]);
        if self.level() == Level::None {
            return confine;
        }
        let ground = groundwork();
        confine.oom_score = ground.oom_score;
        confine.umask = confine.umask.or(ground.umask);
        confine.rlimits.extend(ground.rlimits);
        confine
    }

    fn world(&self, scratch: &Path, paths: &[PathBuf]) -> World {
        let seen = SEEN.iter().map(Path::new);
        let seen = seen.chain(paths.iter().map(PathBuf::as_path));
        let read = with_targets(self.reads.iter().chain(&self.sandbox.read));
        let seen = seen.chain(read.iter().map(PathBuf::as_path));
        let mut binds: Vec<Bind> = outermost(seen)
            .into_iter()
            .map(|path| bind(path, false))
            .collect();
        let writable = with_targets(self.cwd.iter().chain(&self.sandbox.write));
        binds.extend(writable.iter().map(|path| bind(path, true)));
        World {
            binds,
            devices: self.devices(),
            scratch: bytes(scratch),
            scratch_bytes: self.sandbox.scratch_bytes.unwrap_or(0), // 0 is no quota, to the kernel too
            scratch_inodes: self.sandbox.scratch_inodes.unwrap_or(0),
            as_caller: self.as_caller,
            network: match self.sandbox.network {
                Network::None => launcher::Network::None,
                Network::Loopback => launcher::Network::Loopback,
                Network::Host => launcher::Network::Host,
            },
        }
    }

    /// The nodes of the devices asked for, as far as they are there.
    fn devices(&self) -> Vec<Vec<u8>> {
        if self.sandbox.devices.is_empty() {
            return Vec::new();
        }
        let nodes = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let nvidia = nodes.filter(|node| {
            let name = node.file_name();
            name.as_encoded_bytes().starts_with(b"nvidia")
        });
        nvidia.map(|node| bytes(&node.path())).collect()
    }
}

fn own_mounts(writable: &[&Path], own_memory: bool, cover: Option<Cover>) -> OwnMounts {
    let kept = cover.as_ref().map(|cover| cover.keep.clone());
    let writable = writable.iter().copied();
    // A device is written to through any mount.
    let writable = writable.filter(|place| !place.starts_with("/dev/null"));
    let writable = writable.filter(|place| !(own_memory && *place == Path::new(SHARED_MEMORY)));
    let mut writable: Vec<_> = outermost(writable).into_iter().map(bytes).collect();
    writable.retain(|place| Some(place) != kept.as_ref());
    OwnMounts {
        writable,
        own_memory,
        cover,
    }
}

/// Whether a call's `/dev/shm` can be its own: it is not the caller's own function, and needs nothing that is there.
fn wants_own_memory(call: &Call) -> bool {
    !matches!(call.work, Work::Pickled(_)) && !named_places(call).any(is_in_shared_memory)
}

/// More places to write than that do not fit into the request by which a zygote is told of mounts.
const MOST_OWN_PLACES: usize = 64;

/// Whether a call's places to write are few enough for mounts of its own.
pub(super) fn can_have_mounts(sandbox: &Sandbox) -> bool {
    sandbox.write.len() <= MOST_OWN_PLACES
}

/// As [`wants_own_memory`], where it can be had.
pub(super) fn has_own_memory(call: &Call, means: &Means) -> bool {
    call.workspace.is_none()
        && can_have_mounts(&call.sandbox)
        && means.mounts_at(call.sandbox.level)
        && means.own_memory()
        && wants_own_memory(call)
}

/// Places of the host that a call names: what it finds there must be there.
fn named_places(call: &Call) -> impl Iterator<Item = &Path> {
    let python = call.python();
    let modules = python.map_or(&[][..], |terms| &terms.python_path);
    let program = match &call.work {
        Work::Command(work) => Some(Path::new(&work.argv[0])),
        _ => python.map(|terms| Path::new(&terms.python)),
    };
    let named = modules.iter().chain(&call.cwd);
    let named = named.chain(&call.sandbox.write).chain(&call.sandbox.read);
    named.map(PathBuf::as_path).chain(program)
}

pub(super) fn is_in_shared_memory(place: &Path) -> bool {
    place.starts_with(SHARED_MEMORY) || place == Path::new("/dev")
}

fn is_inside(workspace: Option<&Workspace>, path: &Path) -> bool {
    workspace.is_some_and(|workspace| path.starts_with(&workspace.at))
}

/// Where a call's modules are, or the program that it runs.
fn reads(call: &Call) -> Vec<PathBuf> {
    if call.sandbox.level < Level::Confined {
        return Vec::new();
    }
    let modules = call.python().map_or(&[][..], |terms| &terms.python_path);
    let program = match &call.work {
        Work::Command(work) => Some(Path::new(&work.argv[0])),
        _ => None,
    };
    let workspace = call.workspace.as_deref();
    let program = program.filter(|path| path.is_absolute() && !is_inside(workspace, path));
    let program = program.map_or_else(Vec::new, needs_of);
    modules.iter().cloned().chain(program).collect()
}

/// The program itself; and if it is in the `bin` of a tree that has libraries, that and those.
fn needs_of(program: &Path) -> Vec<PathBuf> {
    let Ok(program) = program.canonicalize() else {
        return Vec::new();
    };
    let bin = program.parent().filter(|directory| {
        let name = directory.file_name();
        name.is_some_and(|name| name == "bin" || name == "sbin")
    });
    let Some(tree) = bin.and_then(Path::parent) else {
        return vec![program];
    };
    let libraries = ["lib", "lib64", "libexec"].map(|name| tree.join(name));
    let libraries: Vec<PathBuf> = libraries.into_iter().filter(|path| path.is_dir()).collect();
    match libraries.is_empty() {
        true => vec![program],
        false => {
            let bin = program.parent().map(Path::to_path_buf);
            bin.into_iter().chain(libraries).collect()
        }
    }
}

/// Each path, and where it leads if it is a link or has `..` in it.
fn with_targets<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let both = paths.flat_map(|path| {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        let target = path.canonicalize().ok();
        let target = target.filter(|target| climbs || target != path);
        let itself = (!climbs).then(|| path.clone());
        itself.into_iter().chain(target)
    });
    both.collect()
}

/// Those that are not inside another of them, and never the whole host.
fn outermost<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<&'a Path> {
    let mut paths: Vec<&Path> = paths.filter(|path| path.parent().is_some()).collect();
    paths.sort_unstable();
    paths.dedup_by(|inner, outer| inner.starts_with(*outer));
    paths
}

fn bind(path: &Path, writable: bool) -> Bind {
    Bind {
        path: bytes(path),
        writable,
        device: false,
    }
}

/// Permissions of files that calls make for others to use: the user's own umask decides about those of group and
/// others, as for every program that the user runs. A program built by one call is thus found by the next, which at
/// `strict` may have another user.
fn shared_umask() -> u32 {
    host_umask().unwrap_or(PRIVATE_UMASK) & PRIVATE_UMASK
}

/// What every confined process is held to, whatever its call asks for.
pub(crate) fn groundwork() -> Confine {
    Confine {
        oom_score: OOM_SCORE,
        umask: Some(PRIVATE_UMASK),
        rlimits: vec![
            (libc::RLIMIT_CORE, 1), // 0 would still start a handler that cores are piped to
            (libc::RLIMIT_MEMLOCK, 64 << 10),
            (libc::RLIMIT_MSGQUEUE, 64 << 10),
            (libc::RLIMIT_SIGPENDING, 1024),
            (libc::RLIMIT_NICE, 0),
            (libc::RLIMIT_RTPRIO, 0),
        ],
        ..Confine::default()
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}
