//! What engine and launcher say to each other. Neither is a stranger; but whoever could write to their socket is.

use std::fmt::Debug;

use fairtrial_exec::linux::cgroup::{LeafLimits, Part};
use fairtrial_exec::linux::perf::{Counted, Uncounted};
use fairtrial_exec::linux::seccomp::{Filter, Others, Sockets};
use fairtrial_exec::linux::selftest::{Exhaust, SelfTest};
use fairtrial_exec::protocol::launcher::{
    Bind, Cause, Confine, Cover, CpuTimeout, CpuUse, End, FromLauncher, Landlock, Namespaces,
    Network, OwnMounts, Program, SharedTree, Step, TaskId, ToLauncher, Tree, TreeUpper, Watch,
    World, decode, encode,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attack::Door;
use crate::measured;

/// `serde` makes room for a claimed length up to this much at a time, and lists of texts are two levels.
const SERDE_BYTES: usize = 2 << 20;

/// SB-8, SB-38
#[test]
fn no_bytes_are_more_than_a_message_to_the_launcher_or_none() {
    Door {
        name: "to-launcher",
        seeds: to_launcher().iter().map(encode).collect(),
        tags: &[0, 1, 2, 3, 4, 5, 6, 7, 127, 128, 255],
        open: try_message::<ToLauncher>,
    }
    .attack();
}

/// SB-8, SB-38
#[test]
fn no_bytes_are_more_than_a_message_from_the_launcher_or_none() {
    Door {
        name: "from-launcher",
        seeds: from_launcher().iter().map(encode).collect(),
        tags: &[0, 1, 2, 3, 4, 5, 127, 128, 255],
        open: try_message::<FromLauncher>,
    }
    .attack();
}

fn try_message<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    // A text of no bytes takes one byte there and 24 here.
    let bound = 64 * bytes.len() + SERDE_BYTES + 1024;
    if let Some(message) = measured(bound, || decode::<T>(bytes)) {
        assert_eq!(decode::<T>(&encode(&message)), Some(message));
    }
}

fn to_launcher() -> Vec<ToLauncher> {
    let task = TaskId(9);
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let program = Program {
        paths: texts(&["/bin/true", "/usr/bin/true"]),
        argv: texts(&["true", "-x"]),
        env: texts(&["PATH=/bin", "LANG=C"]),
        cwd: b"/tmp".to_vec(),
        rlimits: vec![(7, 1024), (1, u64::MAX)],
        ahead: false,
        alone: true,
        zygote: false,
        confine: Some(Box::new(confine())),
        self_test: Some(SelfTest {
            engine: 1,
            canary: b"/canary".to_vec(),
            port: 80,
            exhaust: Some(Exhaust::Memory(1 << 40)),
        }),
        nest: true,
        counted: vec![Counted::Instructions, Counted::TaskClock],
    };
    let watch = Watch {
        deadline_ns: Some(u64::MAX),
        memory_bytes: Some(1 << 30),
        dump_signal: Some(-1),
        cpu_timeout: Some(CpuTimeout {
            limit_ns: u64::MAX,
            most_ns: 0,
            before_ns: Some(u64::MAX),
        }),
        ..Watch::default()
    };
    vec![
        ToLauncher::Hello {
            version: 1,
            engine_pid: 2,
            without: vec![Part::Kill],
        },
        ToLauncher::ScratchRoot {
            name: b"fairtrial-1".to_vec(),
        },
        ToLauncher::Spawn { task, program },
        ToLauncher::Fork {
            task,
            zygote: TaskId(u64::MAX),
            confine: Some(Box::new(confine())),
            alone: true,
        },
        ToLauncher::Arm {
            task,
            generation: 1,
            watch,
        },
        ToLauncher::Disarm { task },
        ToLauncher::Confirm {
            task,
            generation: u32::MAX,
        },
        ToLauncher::End {
            task,
            grace_ns: u64::MAX,
        },
        ToLauncher::Kill {
            task,
            cause: Cause::Retired,
        },
    ]
}

fn confine() -> Confine {
    let world = World {
        binds: vec![Bind {
            path: b"/usr".to_vec(),
            writable: false,
            device: false,
        }],
        devices: vec![b"/dev/null".to_vec()],
        scratch: b"/tmp/scratch".to_vec(),
        scratch_bytes: 1 << 30,
        scratch_inodes: 50_000,
        as_caller: true,
        network: Network::Loopback,
    };
    Confine {
        leaf: Some(LeafLimits {
            memory_bytes: Some(1 << 20),
            processes: None,
        }),
        rlimits: vec![(4, 1)],
        user_tasks: Some(7),
        oom_score: 800,
        landlock: Some(Landlock {
            abi: 6,
            writable: vec![b"/tmp".to_vec()],
            readable: Some(vec![b"/usr".to_vec()]),
            unlisted: Vec::new(),
            refuse_tcp: true,
        }),
        cpus: vec![0, 1],
        umask: Some(0o077),
        namespaces: Some(Namespaces::All(world)),
        tree: Some(tree()),
        mounts: Some(OwnMounts {
            writable: vec![b"/tmp".to_vec()],
            own_memory: true,
            cover: Some(Cover {
                at: b"/tmp".to_vec(),
                keep: b"/tmp/own".to_vec(),
            }),
        }),
        own_quotas: Some(2),
        filter: Some(Filter {
            others: Others::Nobody,
            rare_calls: Some(Sockets::PairsOnly),
            shares_host: true,
        }),
    }
}

fn tree() -> Tree {
    Tree {
        at: b"/repo".to_vec(),
        layers: vec![b"/layer".to_vec()],
        upper: TreeUpper::Disk {
            directory: b"/kept".to_vec(),
        },
        shared: vec![SharedTree {
            at: b"/repo/.venv".to_vec(),
            source: b"/venv".to_vec(),
            layers: Vec::new(),
            writable: true,
        }],
        hidden: vec![b"/secret".to_vec()],
        private: None,
        by_root: true,
    }
}

fn from_launcher() -> Vec<FromLauncher> {
    let task = TaskId(9);
    let end = End {
        host_memory: false,
        shortage: None,
        status: 9,
        at_ns: 1,
        user_ns: 2,
        system_ns: u64::MAX,
        max_rss_bytes: 3,
        sampled_rss_bytes: Some(4),
        wait_ns: Some(u64::MAX),
        cpu_use: Some(CpuUse {
            used_ns: u64::MAX,
            shared: true,
        }),
        counts: Default::default(),
        leaked: 0,
        survivors: 1,
        scratch_full: true,
        upper_full: false,
        passed: None,
        leaf: Some(Box::default()),
        counted: vec![Ok(7), Err(Uncounted::Refused(-1)), Err(Uncounted::Shared)],
    };
    let failed = Step::ALL.map(|step| FromLauncher::Failed {
        task,
        step,
        errno: -1,
    });
    let rest = [
        FromLauncher::Ready { version: 1 },
        FromLauncher::Spawned {
            task,
            pid: 1,
            at_ns: 2,
            before_ns: Some(u64::MAX),
        },
        FromLauncher::Hit {
            task,
            generation: 1,
            cause: Cause::Timeout,
        },
        FromLauncher::Exited { task, end },
    ];
    failed.into_iter().chain(rest).collect()
}
