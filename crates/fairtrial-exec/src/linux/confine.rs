//! From what is to confine a task to the system calls that bring it about.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use super::landlock;
use super::plan::{Arg, Plan};
use crate::protocol::launcher::{Confine, Step};

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const KEYCTL_JOIN_SESSION_KEYRING: u64 = 1;

/// The plan for a task. `joins` are the files through which a process enters its cgroups.
pub fn plan(confine: &Confine, joins: Vec<OwnedFd>) -> io::Result<Plan> {
    let mut plan = Plan::default();
    for join in joins {
        let (join, itself) = (plan.descriptor(join), plan.bytes(b"0"));
        plan.call(Step::Leaf, libc::SYS_write, &[join, itself, Arg::Value(1)]);
    }
    if confine.oom_score != 0 {
        let score = confine.oom_score.to_string();
        plan.write(Step::OomScore, b"/proc/self/oom_score_adj", score.as_bytes());
    }
    plan.call(Step::Privileges, libc::SYS_umask, &[Arg::Value(0o077)]);
    for (resource, value) in &confine.rlimits {
        let limit = plan.bytes(&[value.to_ne_bytes(), value.to_ne_bytes()].concat());
        let arguments = [Arg::Value(0), Arg::Value(u64::from(*resource)), limit];
        plan.call(Step::Rlimits, libc::SYS_prlimit64, &arguments);
    }
    if !confine.cpus.is_empty() {
        let mask = plan.bytes(&cpu_mask(&confine.cpus));
        let arguments = [Arg::Value(0), Arg::Value(CPU_MASK_BYTES as u64), mask];
        plan.call(Step::Affinity, libc::SYS_sched_setaffinity, &arguments);
    }
    // Not in every container; what it guards against is then guarded against by the container itself.
    let join = [Arg::Value(KEYCTL_JOIN_SESSION_KEYRING), Arg::Value(0)];
    plan.try_call(Step::Keyring, libc::SYS_keyctl, &join);
    give_up_privileges(&mut plan);
    if let Some(writable) = &confine.writable {
        landlock::restrict(&mut plan, landlock::abi()?, writable);
    }
    Ok(plan)
}

/// Empty capability sets, and no way back by executing a program.
fn give_up_privileges(plan: &mut Plan) {
    let prctl = |plan: &mut Plan, option: libc::c_int, argument: u64| {
        let arguments = [Arg::Value(option as u64), Arg::Value(argument)];
        plan.call(Step::Privileges, libc::SYS_prctl, &arguments);
    };
    for capability in 0..=last_capability() {
        let arguments = [Arg::Value(libc::PR_CAPBSET_DROP as u64), Arg::Value(capability)];
        // Who may not drop one cannot gain one either, after the next lines.
        plan.try_call(Step::Privileges, libc::SYS_prctl, &arguments);
    }
    prctl(plan, libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64);
    let header = plan.bytes(&[CAPABILITY_VERSION_3.to_ne_bytes(), [0; 4]].concat());
    let none = plan.bytes(&[0; 24]);
    plan.call(Step::Privileges, libc::SYS_capset, &[header, none]);
    prctl(plan, libc::PR_SET_NO_NEW_PRIVS, 1);
    // A change of credentials clears it.
    prctl(plan, libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64);
}

const CPU_MASK_BYTES: usize = 128;

fn cpu_mask(cpus: &[u32]) -> [u8; CPU_MASK_BYTES] {
    let mut mask = [0; CPU_MASK_BYTES];
    for cpu in cpus {
        if let Some(byte) = mask.get_mut(*cpu as usize / 8) {
            *byte |= 1 << (cpu % 8);
        }
    }
    mask
}

/// The kernel's highest capability.
fn last_capability() -> u64 {
    static LAST: OnceLock<u64> = OnceLock::new();
    *LAST.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap");
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(40)
    })
}
