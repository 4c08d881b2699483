//! Messages between engine and launcher: one `SOCK_SEQPACKET` packet each, descriptors beside it.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::linux::cgroup::{LeafLimits, Part};
use crate::linux::perf::{Counted, Uncounted};
use crate::linux::seccomp::Filter;
use crate::linux::selftest::SelfTest;
use crate::linux::wait::Counts;

/// Of these messages. Engine and launcher must agree on it exactly.
pub const VERSION: u32 = 8;

/// The longest packet; what is longer travels in a memfd whose descriptor comes first.
pub const MAX_PACKET_BYTES: usize = 64 << 10;

/// First byte of a packet that holds its message.
pub const DIRECT: u8 = 0;
/// First byte of a packet whose message is in the first descriptor.
pub const INDIRECT: u8 = 1;

/// A process the engine asked for: a zygote, a worker or a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskId(pub u64);

/// What the engine says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToLauncher {
    /// The first message.
    Hello {
        /// The engine's [`VERSION`].
        version: u32,
        /// The process to die with.
        engine_pid: u32,
        /// Parts of cgroups that are not to be used although they may be there.
        without: Vec<Part>,
    },
    /// The engine's scratch root, removed if the engine dies; its descriptor comes with the message.
    ScratchRoot {
        /// The root's name in that directory (the descriptor is its parent's).
        name: Vec<u8>,
    },
    /// Start a program.
    Spawn {
        /// What to call it from now on.
        task: TaskId,
        /// How.
        program: Program,
    },
    /// Have a zygote fork a worker; its socket, stdout and stderr come with the message.
    Fork {
        /// What to call the worker.
        task: TaskId,
        /// Who forks.
        zygote: TaskId,
        /// What confines it.
        confine: Option<Box<Confine>>,
        /// Whether it has a processor to itself, which everybody else of the launcher's leaves until its end.
        alone: bool,
    },
    /// A call began: watch these limits until `Disarm` or the end.
    Arm {
        /// Whose call.
        task: TaskId,
        /// Which dispatch.
        generation: u32,
        /// What to watch.
        watch: Watch,
    },
    /// The call ended; the worker lives on.
    Disarm {
        /// Whose call.
        task: TaskId,
    },
    /// The call that was told to be past its deadline still runs: stop it.
    Confirm {
        /// Whose call.
        task: TaskId,
        /// Which dispatch.
        generation: u32,
    },
    /// Ask it to end, and kill it and its tree a while later.
    End {
        /// Whom.
        task: TaskId,
        /// Between SIGTERM and SIGKILL.
        grace_ns: u64,
    },
    /// End it and its tree.
    Kill {
        /// Whom.
        task: TaskId,
        /// Why.
        cause: Cause,
    },
}

/// How to start a program. Nothing is inherited: the descriptors that come with the message become 0, 1, 2, ….
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Tried in turn until one executes: the places of a `PATH` search.
    pub paths: Vec<Vec<u8>>,
    /// Arguments, the program's name first.
    pub argv: Vec<Vec<u8>>,
    /// Environment, `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Resource limits: number, value for both soft and hard.
    pub rlimits: Vec<(u32, u64)>,
    /// Whether it forks workers on request; its control socket is then added as the last descriptor.
    pub zygote: bool,
    /// What confines it.
    pub confine: Option<Box<Confine>>,
    /// Whether it goes before others on its processors, and the launcher with it, which reads the clock when it ends.
    pub ahead: bool,
    /// Whether it has a processor to itself, which everybody else of the launcher's leaves until its end.
    pub alone: bool,
    /// Instead of the program: finds out what it can still do.
    pub self_test: Option<SelfTest>,
    /// Whether it is to have privileges over the namespaces of `strict` calls: a zygote that forks them.
    pub nest: bool,
    /// What is to be counted of it and of all that it starts.
    pub counted: Vec<Counted>,
}

/// What confines a task besides its session, in force before any of its code runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Confine {
    /// The limits of a cgroup of its own, if it is to have one.
    pub leaf: Option<LeafLimits>,
    /// Resource limits: number, value for both soft and hard.
    pub rlimits: Vec<(u32, u64)>,
    /// How many tasks its user may have, who is counted apart from all others: where no cgroup counts them.
    pub user_tasks: Option<u64>,
    /// Added to its score when the host runs out of memory.
    pub oom_score: i32,
    /// What Landlock is to see to, if anything.
    pub landlock: Option<Landlock>,
    /// The only processors it may use.
    pub cpus: Vec<u32>,
    /// What the files that it makes are not to allow, if that is not to be as the launcher has it.
    pub umask: Option<u32>,
    /// Namespaces of its own, if it is to have any.
    pub namespaces: Option<Namespaces>,
    /// A tree that it finds in them, put over a place of the host's.
    pub tree: Option<Tree>,
    /// Mounts of its own, which it makes itself: where no tree and no world are asked for.
    pub mounts: Option<OwnMounts>,
    /// If the kernel's quotas for a user are to be counted for it alone, in a user namespace of its own: how many
    /// calls at a time share what the machine allows.
    pub own_quotas: Option<u32>,
    /// The filter of system calls, if it is to have one.
    pub filter: Option<Filter>,
}

/// A task's own mounts: all of the host is read-only but for some places, modes, owners and times of files included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnMounts {
    /// The places that can be changed.
    pub writable: Vec<Vec<u8>>,
    /// Whether `/dev/shm`, System V objects and message queues are the task's own.
    pub own_memory: bool,
    /// A directory of the engine's of which only the task's own part is to be seen.
    pub cover: Option<Cover>,
}

/// A directory that is covered but for one below it, which can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cover {
    /// The directory.
    pub at: Vec<u8>,
    /// The one below it.
    pub keep: Vec<u8>,
}

/// What Landlock sees to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Landlock {
    /// The version to use.
    pub abi: u32,
    /// The only places where files may be changed.
    pub writable: Vec<Vec<u8>>,
    /// The only places, besides those, where files may be read and executed; `None` is everywhere.
    pub readable: Option<Vec<Vec<u8>>>,
    /// Places among `writable` that several calls use: where `readable` is given, their files cannot be listed.
    pub unlisted: Vec<Vec<u8>>,
    /// Whether no TCP port may be bound or connected to.
    pub refuse_tcp: bool,
}

/// Namespaces of a task's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Namespaces {
    /// Of processes, with a `/proc` that shows them; all else is the host's.
    Processes,
    /// All there are.
    All(World),
}

/// What a task sees from within namespaces of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct World {
    /// Pieces of the host.
    pub binds: Vec<Bind>,
    /// Device nodes besides the harmless ones.
    pub devices: Vec<Vec<u8>>,
    /// Its own directory: a file system in memory.
    pub scratch: Vec<u8>,
    /// How much that holds.
    pub scratch_bytes: u64,
    /// How many files that holds.
    pub scratch_inodes: u64,
    /// It is the engine's own user, where it could have one of its own.
    pub as_caller: bool,
    /// Whom it can talk to.
    pub network: Network,
}

/// A piece of the host that is seen from within, at the same place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bind {
    /// Where it is.
    pub path: Vec<u8>,
    /// Whether it can be changed.
    pub writable: bool,
    /// Whether it is a device.
    pub device: bool,
}

/// Layers put over a place of the file system, in a task's own namespace of mounts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tree {
    /// Where.
    pub at: Vec<u8>,
    /// What it shows, topmost first.
    pub layers: Vec<Vec<u8>>,
    /// Where changes go.
    pub upper: TreeUpper,
    /// Directories of the host that appear in it.
    pub shared: Vec<SharedTree>,
    /// Places of the host or of the tree that are covered.
    pub hidden: Vec<Vec<u8>>,
    /// A directory of the host that is empty and writable inside.
    pub private: Option<Vec<u8>>,
    /// Mounted with the launcher's own privileges, without a user namespace.
    pub by_root: bool,
}

/// Where changes to a tree go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TreeUpper {
    /// Into memory.
    Memory {
        /// As much as this.
        bytes: u64,
    },
    /// Into a directory, which is to have `upper` and `work`.
    Disk {
        /// Which.
        directory: Vec<u8>,
    },
}

/// A directory of the host that appears in a tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SharedTree {
    /// Where it appears.
    pub at: Vec<u8>,
    /// What appears.
    pub source: Vec<u8>,
    /// What is put over it, topmost first.
    pub layers: Vec<Vec<u8>>,
    /// Whether it can be changed, which the source never is.
    pub writable: bool,
}

/// Whom a task in namespaces of its own can talk to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Network {
    /// Nobody.
    #[default]
    None,
    /// Itself.
    Loopback,
    /// Whoever the host can.
    Host,
}

/// Limits of a running call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// When to stop it, on the monotonic clock.
    pub deadline_ns: Option<u64>,
    /// At the deadline ask the engine first: the worker may have answered and have another call by now.
    pub confirm: bool,
    /// Between SIGTERM and SIGKILL at the deadline.
    pub grace_ns: u64,
    /// Signal that makes it write its stacks before it is killed at the deadline.
    pub dump_signal: Option<i32>,
    /// Resident bytes of the tree.
    pub memory_bytes: Option<u64>,
    /// Processor time of the tree from now on.
    pub cpu_ns: Option<u64>,
    /// Processor time decides when it has timed out; at the deadline only time in which it had a processor counts.
    pub cpu_timeout: Option<CpuTimeout>,
    /// Processes and threads of the tree.
    pub processes: Option<u64>,
}

/// A time-out by processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimeout {
    /// How much the tree may use.
    pub limit_ns: u64,
    /// How far it may go on if others shared the processors.
    pub most_ns: u64,
    /// What its leader had used when the call began; none if that is to be read now.
    pub before_ns: Option<u64>,
}

/// Why something is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// It served its purpose.
    Done,
    /// It answered that it failed.
    Failed,
    /// The caller gave up.
    Cancelled,
    /// The deadline passed.
    Timeout,
    /// Too much processor time.
    CpuLimit,
    /// Too much memory.
    MemoryLimit,
    /// Too much output.
    OutputLimit,
    /// Too large a file or result.
    DiskLimit,
    /// Too many processes.
    ProcessLimit,
    /// It broke the protocol, or did not acknowledge.
    Misbehaved,
    /// It is not needed any more.
    Retired,
}

/// What the launcher says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromLauncher {
    /// Answer to `Hello`: the launcher's [`VERSION`]; the engine judges it.
    Ready {
        /// The launcher's version.
        version: u32,
    },
    /// It runs.
    Spawned {
        /// What.
        task: TaskId,
        /// As which process.
        pid: u32,
        /// Since when, on the monotonic clock.
        at_ns: u64,
        /// Processor time that its process had used by then, if it is a program.
        before_ns: Option<u64>,
    },
    /// It could not be started.
    Failed {
        /// What.
        task: TaskId,
        /// What was attempted.
        step: Step,
        /// The kernel's answer.
        errno: i32,
    },
    /// A limit was passed; the kill is under way.
    Hit {
        /// Whose.
        task: TaskId,
        /// In which dispatch.
        generation: u32,
        /// Which limit.
        cause: Cause,
    },
    /// It and all its processes are gone. What it changed in its tree, if it had one, comes as a directory's descriptor.
    Exited {
        /// What.
        task: TaskId,
        /// Its end.
        end: End,
    },
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The wait status, as the kernel gives it.
    pub status: i32,
    /// When the first process was seen to be gone, on the monotonic clock.
    pub at_ns: u64,
    /// Processor time in user mode, children it waited for included.
    pub user_ns: u64,
    /// Processor time in the kernel.
    pub system_ns: u64,
    /// Largest resident size of a process of it.
    pub max_rss_bytes: u64,
    /// Largest resident size of the whole tree that was sampled.
    pub sampled_rss_bytes: Option<u64>,
    /// Time since its process began in which it was ready to run and did not, as far as anybody looked.
    pub wait_ns: Option<u64>,
    /// What it used of a time-out by processor time, if it had one.
    pub cpu_use: Option<CpuUse>,
    /// Switches and faults, children it waited for included.
    pub counts: Counts,
    /// Processes alive when the first was killed or gone, killed since.
    pub leaked: u64,
    /// Processes that would not die.
    pub survivors: u64,
    /// The quota of its directory was used up.
    pub scratch_full: bool,
    /// That of its tree's changes was.
    pub upper_full: bool,
    /// The kernel killed processes for want of memory while it ran, perhaps this one.
    pub host_memory: bool,
    /// What calls share and was used up at some moment while it ran, perhaps by itself; or what another call kept from it.
    pub shortage: Option<Shared>,
    /// The limit that it was found to have passed when it was looked at for the last time, where no cgroup counts.
    pub passed: Option<Cause>,
    /// What its cgroup counted, if it had one.
    pub leaf: Option<Box<LeafCounts>>,
    /// What was to be counted, in the order it was asked for.
    pub counted: Vec<Result<u64, Uncounted>>,
}

/// What calls share, and one can keep from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shared {
    /// Memory of the host.
    Memory,
    /// Descriptors sent over sockets and not yet received.
    SentDescriptors,
    /// Watches of epoll.
    EpollWatches,
    /// Instances or watches of inotify.
    Inotify,
    /// Pending signals and timers.
    PendingSignals,
    /// TCP ports that the kernel chooses.
    TcpPorts,
    /// Likewise UDP.
    UdpPorts,
    /// The file system of scratch directories.
    ScratchDisk,
    /// The memory of `/dev/shm`.
    SharedMemory,
    /// A lock on a file.
    FileLock,
}

impl Shared {
    /// The words for a message.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::SentDescriptors => "descriptors in flight over sockets",
            Self::EpollWatches => "epoll watches",
            Self::Inotify => "inotify instances or watches",
            Self::PendingSignals => "pending signals and timers",
            Self::TcpPorts => "TCP ports",
            Self::UdpPorts => "UDP ports",
            Self::ScratchDisk => "disk space or inodes of scratch directories",
            Self::SharedMemory => "memory of /dev/shm",
            Self::FileLock => "a locked file",
        }
    }
}

/// What a task used of a time-out by processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Processor time of the tree since the call began.
    pub used_ns: u64,
    /// Whether others used the processors meanwhile, or nobody can tell.
    pub shared: bool,
}

/// What a task's cgroup counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafCounts {
    /// Its own limit on memory killed something of it.
    pub memory_limit: bool,
    /// Something of it was killed because the host was short of memory.
    pub host_memory: bool,
    /// Forks and threads refused.
    pub refused: u64,
    /// The most memory it had.
    pub peak_bytes: Option<u64>,
    /// Processor time of all its processes.
    pub cpu_ns: Option<u64>,
    /// Time in which they had to wait because a processor quota was used up.
    pub throttled_ns: Option<u64>,
    /// Time in which some of them waited for memory.
    pub memory_stall_ns: Option<u64>,
}

/// A step of starting a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Creating the process.
    Clone,
    /// Asking a zygote.
    Zygote,
    /// Its own session.
    Session,
    /// Dying with the launcher.
    DeathSignal,
    /// Descriptors in place.
    Descriptors,
    /// Resource limits.
    Rlimits,
    /// Entering the working directory.
    Chdir,
    /// Executing the program.
    Exec,
    /// Its own cgroup.
    Leaf,
    /// Its own namespaces.
    Namespaces,
    /// What it sees in them.
    Mounts,
    /// Its own network.
    Network,
    /// Being the first to go when the host has no memory left.
    OomScore,
    /// A keyring of its own.
    Keyring,
    /// The processors it may use.
    Affinity,
    /// Giving up privileges.
    Privileges,
    /// Rules on files and signals.
    Landlock,
    /// The filter of system calls.
    Seccomp,
    /// The tree that it finds.
    Tree,
}

impl Step {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 19] = [
        Self::Clone,
        Self::Zygote,
        Self::Session,
        Self::DeathSignal,
        Self::Descriptors,
        Self::Rlimits,
        Self::Chdir,
        Self::Exec,
        Self::Leaf,
        Self::Namespaces,
        Self::Mounts,
        Self::Network,
        Self::OomScore,
        Self::Keyring,
        Self::Affinity,
        Self::Privileges,
        Self::Landlock,
        Self::Seccomp,
        Self::Tree,
    ];

    /// The step with this number, as a child reports it.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }

    /// Whether it is about isolation.
    #[must_use]
    pub fn confines(self) -> bool {
        self as u8 >= Self::Leaf as u8
    }

    /// The words for a message.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Clone => "creating a process",
            Self::Zygote => "asking a zygote for a worker",
            Self::Session => "making a session",
            Self::DeathSignal => "tying it to the launcher",
            Self::Descriptors => "placing descriptors",
            Self::Rlimits => "setting resource limits",
            Self::Chdir => "entering the working directory",
            Self::Exec => "executing the program",
            Self::Leaf => "entering its cgroup",
            Self::Namespaces => "entering its namespaces",
            Self::Mounts => "mounting what it sees",
            Self::Network => "setting up its network",
            Self::OomScore => "setting its score for want of memory",
            Self::Keyring => "making a keyring",
            Self::Affinity => "choosing its processors",
            Self::Privileges => "giving up privileges",
            Self::Landlock => "restricting it by Landlock",
            Self::Seccomp => "filtering its system calls",
            Self::Tree => "mounting its workspace",
        }
    }
}

/// A message's bytes.
#[must_use]
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_allocvec(message).expect("plain data always serialises")
}

/// A message out of bytes; `None` if they are none.
#[must_use]
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}
