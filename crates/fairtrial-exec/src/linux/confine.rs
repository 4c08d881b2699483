//! From what is to confine a task to the system calls that bring it about.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use super::landlock;
use super::own_mounts;
use super::plan::{Arg, Plan};
use super::process::hard_limit;
use super::seccomp::{self, Filter};
use super::world;
use crate::protocol::launcher::{Confine, Namespaces, Step};

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const KEYCTL_JOIN_SESSION_KEYRING: u64 = 1;

/// What the launcher adds to what it is asked for.
#[derive(Debug, Default)]
pub struct Means {
    /// The files through which a process enters its cgroups.
    pub joins: Vec<OwnedFd>,
    /// The init that holds its namespaces: a way in, and what tells that all is mounted, unless it is known to be.
    pub init: Option<(OwnedFd, Option<OwnedFd>)>,
    /// Its own user.
    pub user: Option<u32>,
    /// The user namespace in which quotas are counted for it alone.
    pub quotas: Option<OwnedFd>,
    /// Whether cgroup or namespace tell who belongs to it, and limit them all.
    pub orphans_are_known: bool,
}

/// How a task's process comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// It executes a program.
    Executed,
    /// A zygote forks it, on whose ground it stands.
    Forked,
}

/// The plan for a task.
pub fn plan(confine: &Confine, means: Means, birth: Birth) -> io::Result<Plan> {
    let mut plan = Plan::default();
    if means.orphans_are_known {
        // Its orphans are known by their cgroup or namespace, and whoever gets them waits for them.
        let arguments = [
            Arg::Value(libc::PR_SET_CHILD_SUBREAPER as u64),
            Arg::Value(0),
        ];
        plan.call(Step::Session, libc::SYS_prctl, &arguments);
    }
    for join in means.joins {
        let (join, itself) = (plan.descriptor(join), plan.bytes(b"0"));
        plan.call(Step::Leaf, libc::SYS_write, &[join, itself, Arg::Value(1)]);
    }
    match birth {
        Birth::Executed => raise_oom_score(&mut plan, confine),
        Birth::Forked => set_umask(&mut plan, confine), // the rest it has from its zygote
    }
    if let (Some((init, ready)), Some(namespaces)) = (means.init, &confine.namespaces) {
        let init = plan.descriptor(init);
        plan.lead_in(init);
        if let Some(ready) = ready {
            let (ready, byte) = (plan.descriptor(ready), plan.bytes(&[0]));
            let read = [ready, byte, Arg::Value(1)];
            plan.call_for_something(Step::Mounts, libc::SYS_read, &read); // its end says that the init gave up
        }
        let kinds = Arg::Value(world::entered(namespaces, confine.tree.is_some()) as u64);
        plan.call(Step::Namespaces, libc::SYS_setns, &[init, kinds]);
    }
    let has_quotas = means.quotas.is_some();
    if let Some(quotas) = means.quotas {
        let quotas = plan.descriptor(quotas);
        let kind = Arg::Value(libc::CLONE_NEWUSER as u64);
        plan.call(Step::Namespaces, libc::SYS_setns, &[quotas, kind]);
    }
    if let Some(mounts) = &confine.mounts {
        own_mounts::put_up(&mut plan, mounts);
    }
    set_rlimits(&mut plan, confine);
    if !confine.cpus.is_empty() {
        let mask = plan.bytes(&cpu_mask(&confine.cpus));
        let arguments = [Arg::Value(0), Arg::Value(CPU_MASK_BYTES as u64), mask];
        plan.call(Step::Affinity, libc::SYS_sched_setaffinity, &arguments);
    }
    // Not in every container; what it guards against is then guarded against by the container itself.
    let join = [Arg::Value(KEYCTL_JOIN_SESSION_KEYRING), Arg::Value(0)];
    plan.try_call(Step::Keyring, libc::SYS_keyctl, &join);
    // Who has a tree is to leave nothing: a user's keys are kept in each namespace apart.
    let nested = confine.tree.as_ref().is_some_and(|tree| !tree.by_root);
    let alone = (confine.user_tasks.is_some() || nested) && means.user.is_none() && !has_quotas;
    if alone {
        be_counted_alone(&mut plan);
    }
    if birth == Birth::Executed || alone {
        forgo_privileges(&mut plan);
    } else if has_quotas {
        empty_bounding_set(&mut plan); // full again in another user namespace; the rest is as its zygote left it
    }
    if birth == Birth::Executed || alone || has_quotas || confine.namespaces.is_some() {
        give_up_privileges(&mut plan, means.user);
    }
    if let Some(most) = confine.user_tasks {
        set_rlimit(&mut plan, libc::RLIMIT_NPROC, most);
    }
    if let Some(landlock) = &confine.landlock {
        // What is mounted in its own namespace can only be named there.
        match (&confine.namespaces, &confine.tree) {
            (Some(Namespaces::All(_)), _) | (_, Some(_)) => {
                landlock::restrict_inside(&mut plan, landlock);
            }
            _ => {
                let own_memory = confine.mounts.as_ref().is_some_and(|own| own.own_memory);
                let own_mount = own_memory.then_some(own_mounts::SHARED_MEMORY);
                landlock::restrict(&mut plan, landlock, own_mount)?;
            }
        }
    }
    if let Some(filter) = confine.filter {
        install_filter(&mut plan, filter);
    }
    Ok(plan)
}

/// The plan of a zygote: what all its workers inherit, so that each of them has little left to do. With `users` it keeps
/// privileges in that namespace, and there alone, through exec: its workers will have namespaces of their own.
#[must_use]
pub fn groundwork(confine: &Confine, users: Option<OwnedFd>) -> Plan {
    let mut plan = Plan::default();
    raise_oom_score(&mut plan, confine);
    set_rlimits(&mut plan, confine);
    match users {
        Some(users) => {
            nest(&mut plan, users);
            forgo_privileges(&mut plan);
            plan.call(Step::DeathSignal, libc::SYS_prctl, &DIE_WITH_PARENT);
        }
        None => {
            forgo_privileges(&mut plan);
            give_up_privileges(&mut plan, None);
        }
    }
    plan
}

/// Privileges in that namespace alone, kept through exec.
fn nest(plan: &mut Plan, users: OwnedFd) {
    const ALL: [u8; 4] = [0xff; 4];
    let users = plan.descriptor(users);
    plan.try_call(
        Step::Privileges,
        libc::SYS_setgroups,
        &[Arg::Value(0), Arg::Value(0)],
    );
    let kind = Arg::Value(libc::CLONE_NEWUSER as u64);
    plan.call(Step::Namespaces, libc::SYS_setns, &[users, kind]);
    let header = plan.bytes(&[CAPABILITY_VERSION_3.to_ne_bytes(), [0; 4]].concat());
    // Effective, permitted and inheritable, the low halves and then the high ones.
    let high = (2_u64.pow(u32::try_from(last_capability()).unwrap_or(40) - 31) - 1) as u32;
    let high = high.to_ne_bytes();
    let all = plan.bytes(&[ALL, ALL, ALL, high, high, high].concat());
    plan.call(Step::Privileges, libc::SYS_capset, &[header, all]);
    let arguments = [
        Arg::Value(libc::PR_CAP_AMBIENT as u64),
        Arg::Value(libc::PR_CAP_AMBIENT_RAISE as u64),
        Arg::Value(0),
    ];
    plan.call(Step::Privileges, libc::SYS_prctl, &arguments);
    plan.repeat(capabilities(), 2);
}

fn raise_oom_score(plan: &mut Plan, confine: &Confine) {
    be_dumpable(plan);
    if confine.oom_score != 0 {
        let score = confine.oom_score.to_string();
        plan.write(
            Step::OomScore,
            b"/proc/self/oom_score_adj",
            score.as_bytes(),
        );
    }
    set_umask(plan, confine);
}

fn set_umask(plan: &mut Plan, confine: &Confine) {
    if let Some(mask) = confine.umask {
        let mask = Arg::Value(u64::from(mask));
        plan.call(Step::Privileges, libc::SYS_umask, &[mask]);
    }
}

fn set_rlimits(plan: &mut Plan, confine: &Confine) {
    for (resource, value) in &confine.rlimits {
        set_rlimit(plan, *resource, *value);
    }
}

/// A hard limit of the host's below `value` is taken as it is: only a privileged process may raise it.
fn set_rlimit(plan: &mut Plan, resource: u32, value: u64) {
    let value = value.min(hard_limit(resource));
    let limit = plan.bytes(&[value.to_ne_bytes(), value.to_ne_bytes()].concat());
    let arguments = [Arg::Value(0), Arg::Value(u64::from(resource)), limit];
    plan.call(Step::Rlimits, libc::SYS_prlimit64, &arguments);
}

/// The same user, but in a namespace where nobody else is: since Linux 5.14 the kernel counts a user's tasks in each.
fn be_counted_alone(plan: &mut Plan) {
    const STEP: Step = Step::Namespaces;
    let kind = Arg::Value(libc::CLONE_NEWUSER as u64);
    plan.call(STEP, libc::SYS_unshare, &[kind]);
    be_dumpable(plan);
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    plan.write(STEP, b"/proc/self/setgroups", b"deny");
    plan.write(
        STEP,
        b"/proc/self/uid_map",
        format!("{uid} {uid} 1").as_bytes(),
    );
    plan.write(
        STEP,
        b"/proc/self/gid_map",
        format!("{gid} {gid} 1").as_bytes(),
    );
}

const DIE_WITH_PARENT: [Arg; 2] = [
    Arg::Value(libc::PR_SET_PDEATHSIG as u64),
    Arg::Value(libc::SIGKILL as u64),
];

/// Its own entries in `/proc` are then its own, not root's.
fn be_dumpable(plan: &mut Plan) {
    let arguments = [Arg::Value(libc::PR_SET_DUMPABLE as u64), Arg::Value(1)];
    plan.call(Step::Privileges, libc::SYS_prctl, &arguments);
}

/// No way back to privileges by executing a program.
fn forgo_privileges(plan: &mut Plan) {
    empty_bounding_set(plan);
    let no_new = [Arg::Value(libc::PR_SET_NO_NEW_PRIVS as u64), Arg::Value(1)];
    plan.call(Step::Privileges, libc::SYS_prctl, &no_new);
}

fn empty_bounding_set(plan: &mut Plan) {
    let arguments = [Arg::Value(libc::PR_CAPBSET_DROP as u64), Arg::Value(0)];
    // Who may not drop one cannot gain one either, for want of new privileges.
    plan.try_call(Step::Privileges, libc::SYS_prctl, &arguments);
    plan.repeat(capabilities(), 1);
}

/// Another user, and empty capability sets.
fn give_up_privileges(plan: &mut Plan, user: Option<u32>) {
    const STEP: Step = Step::Privileges;
    if let Some(user) = user {
        let user = [Arg::Value(u64::from(user)); 3];
        let no_groups = [Arg::Value(0), Arg::Value(0)];
        plan.call(STEP, libc::SYS_setgroups, &no_groups);
        plan.call(STEP, libc::SYS_setresgid, &user);
        plan.call(STEP, libc::SYS_setresuid, &user);
    }
    let clear = [
        Arg::Value(libc::PR_CAP_AMBIENT as u64),
        Arg::Value(libc::PR_CAP_AMBIENT_CLEAR_ALL as u64),
    ];
    plan.call(STEP, libc::SYS_prctl, &clear);
    let header = plan.bytes(&[CAPABILITY_VERSION_3.to_ne_bytes(), [0; 4]].concat());
    let none = plan.bytes(&[0; 24]);
    plan.call(STEP, libc::SYS_capset, &[header, none]);
    be_dumpable(plan);
    // A change of credentials clears it.
    plan.call(Step::DeathSignal, libc::SYS_prctl, &DIE_WITH_PARENT);
}

fn install_filter(plan: &mut Plan, filter: Filter) {
    const SET_MODE_FILTER: u64 = 1;
    /// Kernels before 5.16 slow a filtered process down unless they are told not to (SECCOMP_FILTER_FLAG_SPEC_ALLOW).
    const KEEP_SPECULATION: u64 = 4;
    let flags = match filter.rare_calls {
        Some(_) => 0,
        None => KEEP_SPECULATION,
    };
    let filter = seccomp::program(filter);
    let length = u16::try_from(filter.len() / 8).expect("a short program");
    let program = plan.bytes(&filter);
    plan.call(Step::Seccomp, libc::SYS_getpid, &[]);
    plan.keep_at(program, seccomp::OWN_PID_AT);
    // struct sock_fprog: the length, and after padding the address.
    let head = plan.bytes(&[&length.to_ne_bytes()[..], &[0; 14]].concat());
    plan.point(head, 8, program);
    let arguments = [Arg::Value(SET_MODE_FILTER), Arg::Value(flags), head];
    plan.call(Step::Seccomp, libc::SYS_seccomp, &arguments);
}

const CPU_MASK_BYTES: usize = 1024;

fn cpu_mask(cpus: &[u32]) -> [u8; CPU_MASK_BYTES] {
    let mut mask = [0; CPU_MASK_BYTES];
    for cpu in cpus {
        if let Some(byte) = mask.get_mut(*cpu as usize / 8) {
            *byte |= 1 << (cpu % 8);
        }
    }
    mask
}

/// How many capabilities the kernel has.
fn capabilities() -> u8 {
    u8::try_from(last_capability() + 1).unwrap_or(64)
}

/// The kernel's highest capability.
fn last_capability() -> u64 {
    static LAST: OnceLock<u64> = OnceLock::new();
    *LAST.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap");
        text.ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(40)
    })
}
