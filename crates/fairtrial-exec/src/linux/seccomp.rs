//! Filters of system calls: a deny-list, since candidates are arbitrary native code.
//!
//! Written out by hand: each entry is a number, perhaps with one argument to look at, and an errno.

/// What a filter refuses. Every filter refuses system calls of a foreign architecture, which would pass it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Filter {
    /// Which other processes a system call may name.
    pub others: Others,
    /// Refuses rarely used system calls, and sockets by this rule.
    pub rare_calls: Option<Sockets>,
    /// Refuses System V objects and message queues, which are the host's, and setuid and setgid bits, which the mounts
    /// of the host respect. Only with `rare_calls`.
    pub shares_host: bool,
}

/// Which processes a program can name when it sets limits, priorities, processors or memory policies of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Others {
    /// All that it sees in its own process namespace, but for the namespace's init.
    InNamespace,
    /// Itself only: it sees the host's processes, and the kernel asks no more than that both have the same user.
    Nobody,
}

/// Which sockets may still be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Sockets {
    /// Internet and local ones: its network namespace keeps it inside, or it has the host's network.
    Namespaced,
    /// Only pairs that are connected to each other: without a network namespace any other could lead to a server.
    PairsOnly,
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
const LOAD_INDEX: u16 = 0x01; // BPF_LDX | BPF_W | BPF_IMM
const JUMP_EQUAL: u16 = 0x15;
const JUMP_EQUAL_INDEX: u16 = 0x1d; // BPF_JMP | BPF_JEQ | BPF_X
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

/// Rarely used system calls that reach deep into the kernel, or out of a sandbox.
const RARE: &[libc::c_long] = &[
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
    libc::SYS_fanotify_init,
];

/// Objects that all processes of an IPC namespace have in common.
const SHARED_OBJECTS: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// System calls that set the mode of a file, and which argument is the mode.
const SET_MODES: &[(libc::c_long, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (SYS_FCHMODAT2, 2),
];
/// Since Linux 6.6, the same on both architectures.
const SYS_FCHMODAT2: libc::c_long = 452;
/// Who executes a file with one of these becomes its owner or group.
const HAND_ON_OWNERSHIP: u32 = libc::S_ISUID | libc::S_ISGID;

/// Socket families that reach past a network namespace, or into the kernel.
const FAMILIES: &[i32] = &[
    libc::AF_VSOCK,
    libc::AF_PACKET,
    libc::AF_NETLINK,
    libc::AF_TIPC,
];

/// The first process of a namespace, which may have the same user as the calls in it.
const INIT: u32 = 1;

/// System calls that act on a process, and which argument names it. 0 is the caller.
const NAME_A_PROCESS: &[(libc::c_long, u32)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_move_pages, 0),
    (libc::SYS_migrate_pages, 0),
    (libc::SYS_perf_event_open, 1),
];

/// System calls that name processes by descriptors, or two of them: only good for acting on others.
const ACT_ON_OTHERS: &[libc::c_long] = &[
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];

/// Priorities of all processes of a user: the system call, and the number by which its first argument says so.
const NAME_A_USER: &[(libc::c_long, u32)] = &[
    (libc::SYS_setpriority, libc::PRIO_USER),
    (libc::SYS_ioprio_set, IOPRIO_WHO_USER),
];
const IOPRIO_WHO_USER: u32 = 3;

/// Leases and delegations of files: while a program has one, others that open the file wait for up to 45 s. It takes no
/// more than being the file's owner, and `limits` leaves a program its user.
const LEASES: &[u32] = &[libc::F_SETLEASE as u32, F_SETDELEG];
const F_SETDELEG: u32 = 1024 + 16;
const PR_SCHED_CORE: u32 = 62;

/// Where in the filter's bytes the number of the process that installs it belongs: the operand of its first instruction.
pub const OWN_PID_AT: u32 = 4;

/// The filter, as the kernel reads it: eight bytes an instruction.
#[must_use]
pub fn program(filter: Filter) -> Vec<u8> {
    // The index register holds the process's own number from the first instruction to the last.
    let mut program: Vec<Instruction> = vec![
        (LOAD_INDEX, 0, 0, 0),
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_EQUAL, 1, 0, ARCHITECTURE),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER_AT),
    ];
    if let Some(from) = FOREIGN_FROM {
        program.extend([(JUMP_AT_LEAST, 0, 1, from), (RETURN, 0, 0, KILL_PROCESS)]);
    }
    if let Some(sockets) = filter.rare_calls {
        refuse_rare_calls(&mut program, sockets);
        if filter.shares_host {
            refuse_all(&mut program, SHARED_OBJECTS, libc::EPERM);
            for (call, mode_at) in SET_MODES {
                refuse_if(
                    &mut program,
                    *call,
                    *mode_at,
                    JUMP_BITS,
                    &[HAND_ON_OWNERSHIP],
                );
            }
        }
    }
    // A child of the launcher's, or one in another control group: `clone3` can make both, and libc falls back to `clone`,
    // whose flags can be looked at.
    refuse_all(&mut program, &[libc::SYS_clone3], libc::ENOSYS);
    let to_parent = libc::CLONE_PARENT as u32;
    refuse_if(&mut program, libc::SYS_clone, 0, JUMP_BITS, &[to_parent]);
    for (call, mode_at) in SET_MODES {
        refuse_if(&mut program, *call, *mode_at, JUMP_BITS, &[libc::S_ISUID]);
    }
    for (call, who) in NAME_A_USER {
        refuse_if(&mut program, *call, 0, JUMP_EQUAL, &[*who]);
    }
    refuse_if(&mut program, libc::SYS_fcntl, 1, JUMP_EQUAL, LEASES);
    // Core scheduling keeps every other program off the sibling of the processor that its owner runs on.
    refuse_if(
        &mut program,
        libc::SYS_prctl,
        0,
        JUMP_EQUAL,
        &[PR_SCHED_CORE],
    );
    match filter.others {
        Others::InNamespace => {
            for (call, pid_at) in NAME_A_PROCESS {
                refuse_if(&mut program, *call, *pid_at, JUMP_EQUAL, &[INIT]);
            }
        }
        Others::Nobody => {
            refuse_all(&mut program, ACT_ON_OTHERS, libc::EPERM);
            for (call, pid_at) in NAME_A_PROCESS {
                program.extend([
                    (JUMP_EQUAL, 0, 5, number_of(*call)),
                    (LOAD, 0, 0, argument_at(*pid_at)),
                    (JUMP_EQUAL, 2, 0, 0),
                    (JUMP_EQUAL_INDEX, 1, 0, 0),
                    (RETURN, 0, 0, ERRNO | libc::EPERM as u32),
                    (LOAD, 0, 0, NUMBER_AT),
                ]);
            }
        }
    }
    program.push((RETURN, 0, 0, ALLOW));
    let bytes = program.into_iter().flat_map(|(code, yes, no, value)| {
        let [a, b] = code.to_ne_bytes();
        let [c, d, e, f] = value.to_ne_bytes();
        [a, b, yes, no, c, d, e, f]
    });
    bytes.collect()
}

fn refuse_rare_calls(program: &mut Vec<Instruction>, sockets: Sockets) {
    refuse_all(program, RARE, libc::EPERM);
    refuse_all(program, &[libc::SYS_io_setup], libc::ENOSYS);
    refuse_if(program, libc::SYS_clone, 0, JUMP_BITS, &[NAMESPACE_FLAGS]);
    let push_input = libc::TIOCSTI as u32;
    refuse_if(program, libc::SYS_ioctl, 1, JUMP_EQUAL, &[push_input]);
    let families: Vec<u32> = FAMILIES.iter().map(|family| *family as u32).collect();
    refuse_if(program, libc::SYS_socketpair, 0, JUMP_EQUAL, &families);
    match sockets {
        Sockets::Namespaced => refuse_if(program, libc::SYS_socket, 0, JUMP_EQUAL, &families),
        Sockets::PairsOnly => {
            refuse_all(program, &[libc::SYS_socket], libc::EPERM);
            // One of a pair of these can still send to any other by its name.
            let datagrams = libc::SOCK_DGRAM as u32;
            refuse_if(program, libc::SYS_socketpair, 1, JUMP_BITS, &[datagrams]);
        }
    }
}

/// Refuses calls whatever their arguments.
fn refuse_all(program: &mut Vec<Instruction>, calls: &[libc::c_long], errno: i32) {
    for call in calls {
        program.extend([
            (JUMP_EQUAL, 0, 1, number_of(*call)),
            (RETURN, 0, 0, ERRNO | errno as u32),
        ]);
    }
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
    program.push((LOAD, 0, 0, argument_at(argument)));
    for value in values {
        program.extend([
            (jump, 0, 1, *value),
            (RETURN, 0, 0, ERRNO | libc::EPERM as u32),
        ]);
    }
    program.push((LOAD, 0, 0, NUMBER_AT));
}

/// Where the low half of an argument is.
fn argument_at(argument: u32) -> u32 {
    16 + 8 * argument
}

fn number_of(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("numbers of system calls are small")
}
