//! The system call filter of `strict`: a deny-list, since candidates are arbitrary native code.
//!
//! Written out by hand: each entry is a number, perhaps with one argument to look at, and an errno.

/// Who may still open Internet sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Internet {
    /// Its network namespace sees to it, or it has the host's network.
    Namespaced,
    /// Nobody: there is no network namespace.
    Refused,
}

/// Whether the kernel has filters of system calls.
#[must_use]
pub fn is_there() -> bool {
    const GET_ACTION_AVAIL: libc::c_uint = 2;
    let action = ERRNO;
    // SAFETY: reads one live number, and only asks.
    unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

/// One classic BPF instruction, as the kernel has it.
type Instruction = (u16, u8, u8, u32);

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_BITS: u16 = 0x45; // BPF_JSET
const RETURN: u16 = 0x06;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Numbers with this bit are of the x32 ABI.
#[cfg(target_arch = "x86_64")]
const FOREIGN_FROM: Option<u32> = Some(0x4000_0000);
#[cfg(target_arch = "aarch64")]
const FOREIGN_FROM: Option<u32> = None;

const NAMESPACE_FLAGS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Refused whatever the arguments.
const DENIED: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_personality,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_open_by_handle_at,
];

/// Socket families that reach past a network namespace, or into the kernel.
const FAMILIES: &[i32] = &[libc::AF_VSOCK, libc::AF_PACKET, libc::AF_NETLINK];

/// The first process of the namespace, which is nobody's to change though it may have the same user.
const INIT: u32 = 1;
/// With the argument that says whose.
const CHANGES_ANOTHER: &[(libc::c_long, u32)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_setpriority, 1),
];

/// The filter, as the kernel reads it: eight bytes an instruction.
#[must_use]
pub fn filter(internet: Internet) -> Vec<u8> {
    let mut program: Vec<Instruction> = vec![
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_EQUAL, 1, 0, ARCHITECTURE),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER_AT),
    ];
    if let Some(from) = FOREIGN_FROM {
        program.extend([(JUMP_AT_LEAST, 0, 1, from), (RETURN, 0, 0, KILL_PROCESS)]);
    }
    for number in DENIED {
        let number = number_of(*number);
        program.extend([
            (JUMP_EQUAL, 0, 1, number),
            (RETURN, 0, 0, ERRNO | libc::EPERM as u32),
        ]);
    }
    // libc falls back to `clone`, whose flags can be looked at.
    let clone3 = number_of(libc::SYS_clone3);
    program.extend([
        (JUMP_EQUAL, 0, 1, clone3),
        (RETURN, 0, 0, ERRNO | libc::ENOSYS as u32),
    ]);
    refuse_if(
        &mut program,
        libc::SYS_clone,
        0,
        JUMP_BITS,
        &[NAMESPACE_FLAGS],
    );
    refuse_if(
        &mut program,
        libc::SYS_ioctl,
        1,
        JUMP_EQUAL,
        &[libc::TIOCSTI as u32],
    );
    let mut families: Vec<u32> = FAMILIES.iter().map(|family| *family as u32).collect();
    if internet == Internet::Refused {
        families.extend([libc::AF_INET as u32, libc::AF_INET6 as u32]);
    }
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        refuse_if(&mut program, call, 0, JUMP_EQUAL, &families);
    }
    for (call, pid_at) in CHANGES_ANOTHER {
        refuse_if(&mut program, *call, *pid_at, JUMP_EQUAL, &[INIT]);
    }
    program.push((RETURN, 0, 0, ALLOW));
    let bytes = program.into_iter().flat_map(|(code, yes, no, value)| {
        let [a, b] = code.to_ne_bytes();
        let [c, d, e, f] = value.to_ne_bytes();
        [a, b, yes, no, c, d, e, f]
    });
    bytes.collect()
}

/// Refuses a call if the low half of an argument fits one of `values`. The number is loaded before and after.
fn refuse_if(
    program: &mut Vec<Instruction>,
    call: libc::c_long,
    argument: u32,
    jump: u16,
    values: &[u32],
) {
    let length = u8::try_from(2 * values.len() + 2).expect("a short list");
    program.push((JUMP_EQUAL, 0, length, number_of(call)));
    program.push((LOAD, 0, 0, 16 + 8 * argument));
    for value in values {
        program.extend([
            (jump, 0, 1, *value),
            (RETURN, 0, 0, ERRNO | libc::EPERM as u32),
        ]);
    }
    program.push((LOAD, 0, 0, NUMBER_AT));
}

fn number_of(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("numbers of system calls are small")
}
