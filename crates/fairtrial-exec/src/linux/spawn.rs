//! Starting a program from the launcher: clone, a fixed list of system calls, exec. Nothing in the child allocates
//! or takes a lock, so it is safe even where the parent had threads.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use super::clone::{clone_from, enter, handle_or_end};
use super::monotonic::now_ns;
use super::perf::{Counter, Uncounted};
use super::plan::Plan;
use super::process::limit_self;
use super::selftest::{self, SelfTest};
use super::signals::reset_in_child;
use super::user_namespace::UserNamespace;
use crate::protocol::launcher::{Program, Step};

/// What this process had from its host before it changed that for itself: what it starts gets it back.
static INHERITED: OnceLock<Inherited> = OnceLock::new();

struct Inherited {
    descriptors: rustix::process::Rlimit,
    umask: rustix::fs::Mode,
}

/// Takes as many descriptors as may be had, and a umask under which it can use what it makes, for this process alone.
pub fn free_from_host_limits() {
    INHERITED.get_or_init(|| Inherited {
        descriptors: raise_descriptor_limit(),
        umask: rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022)),
    });
}

/// The most descriptors that this process may have; `None` is without limit.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum
}

/// Raises the soft limit of descriptors to the hard one; gives what it was.
pub fn raise_descriptor_limit() -> rustix::process::Rlimit {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let had = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: had.maximum,
        maximum: had.maximum,
    };
    if had.current != had.maximum {
        setrlimit(Resource::Nofile, most).ok(); // then it makes do with what it has
    }
    had
}

/// A started process whose program may not run yet.
#[derive(Debug)]
pub struct Started {
    /// Its process id.
    pub pid: i32,
    /// Its handle.
    pub pidfd: OwnedFd,
    /// Closed when the program runs or will not: see [`read_report`].
    pub report: OwnedFd,
    /// Of what the program asks to be counted.
    pub counters: Vec<Result<Counter, Uncounted>>,
}

/// What leads to the namespaces that a process is to be in.
#[derive(Clone, Copy, Debug)]
pub struct WayIn<'a> {
    /// The user namespace, if there is one.
    pub users: Option<&'a UserNamespace>,
    /// The handle of the init that holds the others.
    pub init: &'a OwnedFd,
}

/// Starts a program with exactly `fds` as its descriptors 0, 1, 2, …, confined by `plan`.
pub fn spawn(
    program: &Program,
    fds: &[OwnedFd],
    plan: Plan,
    way_in: Option<WayIn<'_>>,
) -> io::Result<Started> {
    let prepared = Prepared::new(program, fds, plan)?;
    if let Some(way_in) = way_in {
        return spawn_inside(program, prepared, way_in);
    }
    let (report, report_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let gate = Gate::before(program)?;
    let parent = std::process::id();
    let mut pidfd: RawFd = -1;
    match clone_with_pidfd(&mut pidfd)? {
        0 => prepared.run_child(Some(parent), report_write.as_raw_fd(), gate.as_ref()),
        pid => {
            // SAFETY: the kernel stored a fresh descriptor here for CLONE_PIDFD; nobody else owns it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Started {
                pid,
                pidfd,
                report,
                counters: counters(pid, program, gate),
            })
        }
    }
}

/// By way of a process in between, which enters the namespaces so that its child is born there.
fn spawn_inside(program: &Program, prepared: Prepared, way_in: WayIn<'_>) -> io::Result<Started> {
    let (report, report_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let gate = Gate::before(program)?;
    let go_in = || {
        if let Some(users) = way_in.users {
            enter(users.raw(), libc::CLONE_NEWUSER)?;
        }
        enter(way_in.init.as_raw_fd(), libc::CLONE_NEWPID)
    };
    match clone_from(go_in, 0)? {
        0 => prepared.run_child(None, report_write.as_raw_fd(), gate.as_ref()),
        pid => Ok(Started {
            pid,
            pidfd: handle_or_end(pid)?,
            report,
            counters: counters(pid, program, gate),
        }),
    }
}

/// Holds a child until its counters are open: they begin with its program.
struct Gate {
    wait: OwnedFd,
    open: OwnedFd,
}

impl Gate {
    /// None where nothing is to be counted.
    fn before(program: &Program) -> io::Result<Option<Self>> {
        if program.counted.is_empty() {
            return Ok(None);
        }
        let (wait, open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        Ok(Some(Self { wait, open }))
    }

    /// In the child: until the launcher has let go of its end, or is gone.
    fn pass(&self) {
        let mut nothing = [0_u8; 1];
        // SAFETY: plain system calls on descriptors of this copy of the process and on a live local buffer.
        unsafe {
            libc::close(self.open.as_raw_fd());
            while libc::read(self.wait.as_raw_fd(), nothing.as_mut_ptr().cast(), 1) < 0
                && *libc::__errno_location() == libc::EINTR
            {}
        }
    }
}

/// Opens what is to be counted, then lets the child go on.
fn counters(pid: i32, program: &Program, gate: Option<Gate>) -> Vec<Result<Counter, Uncounted>> {
    let open = |counted| Counter::open(pid, counted).map_err(Uncounted::from);
    let opened = program.counted.iter().copied().map(open).collect();
    drop(gate);
    opened
}

/// A handle on a child of this process that it has not reaped.
pub fn open_child(pid: i32) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(
        pid,
        rustix::process::PidfdFlags::empty(),
    )?)
}

/// What a child wrote before its program began, once it has closed the pipe: its clocks just before exec (none if it did
/// not get so far), or which step failed and why.
pub fn read_report(report: &OwnedFd) -> Result<Option<Stamp>, (Step, i32)> {
    let mut bytes = [0; STAMP_BYTES + FAILURE_BYTES];
    let count = rustix::io::read(report, &mut bytes).unwrap_or(0);
    let (stamp, failure) = match count % STAMP_BYTES {
        FAILURE_BYTES => bytes[..count].split_at(count - FAILURE_BYTES),
        _ => (&bytes[..count], &[][..]),
    };
    match failure {
        [step, errno @ ..] => Err((
            Step::from_byte(*step).unwrap_or(Step::Clone),
            i32::from_le_bytes(errno.try_into().expect("four bytes")),
        )),
        [] => Ok(stamp.try_into().ok().map(Stamp::from_bytes)),
    }
}

/// A child's clocks just before its program begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The monotonic clock.
    pub at_ns: u64,
    /// Processor time that it has used.
    pub used_ns: u64,
}

impl Stamp {
    /// Allocates nothing, for the child is a copy of a process.
    fn now() -> Self {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self {
            at_ns: now_ns(),
            used_ns: used.tv_sec.unsigned_abs() * 1_000_000_000 + used.tv_nsec.unsigned_abs(),
        }
    }

    fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..8].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes[8..].copy_from_slice(&self.used_ns.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; STAMP_BYTES]) -> Self {
        let number = |at: usize| {
            let word = bytes[at..].first_chunk().expect("two numbers are read");
            u64::from_le_bytes(*word)
        };
        Self {
            at_ns: number(0),
            used_ns: number(8),
        }
    }
}

const STAMP_BYTES: usize = 16;
const FAILURE_BYTES: usize = 5;

/// Everything the child needs, allocated before it exists.
struct Prepared {
    paths: Vec<CString>,
    _argv: Vec<CString>,
    _env: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    cwd: CString,
    fds: Vec<RawFd>,
    moved: Vec<RawFd>,
    rlimits: Vec<(u32, u64)>,
    plan: Plan,
    plan_fds: Vec<RawFd>,
    self_test: Option<SelfTest>,
}

impl Prepared {
    fn new(program: &Program, fds: &[OwnedFd], mut plan: Plan) -> io::Result<Self> {
        plan.settle();
        let strings = |list: &[Vec<u8>]| -> io::Result<Vec<CString>> {
            list.iter()
                .map(|bytes| CString::new(bytes.as_slice()).map_err(io::Error::from))
                .collect()
        };
        let pointers = |list: &[CString]| {
            list.iter()
                .map(|s| s.as_ptr())
                .chain([std::ptr::null()])
                .collect()
        };
        let (argv, env) = (strings(&program.argv)?, strings(&program.env)?);
        Ok(Self {
            paths: strings(&program.paths)?,
            argv: pointers(&argv),
            env: pointers(&env),
            _argv: argv,
            _env: env,
            cwd: CString::new(program.cwd.as_slice())?,
            fds: fds.iter().map(AsRawFd::as_raw_fd).collect(),
            moved: vec![-1; fds.len()],
            rlimits: program.rlimits.clone(),
            plan_fds: plan.raw_descriptors(),
            plan,
            self_test: program.self_test.clone(),
        })
    }

    /// The child's whole life before exec.
    fn run_child(mut self, parent: Option<u32>, report: RawFd, gate: Option<&Gate>) -> ! {
        if let Some(gate) = gate {
            gate.pass();
        }
        let prepared = self.prepare_child(parent);
        if prepared.is_ok() {
            let stamp = Stamp::now().to_bytes();
            // SAFETY: a plain system call on a live local buffer.
            unsafe { libc::write(report, stamp.as_ptr().cast(), stamp.len()) };
        }
        let step = match (prepared, &self.self_test) {
            (Err(step), _) => step,
            (Ok(()), None) => self.exec(),
            (Ok(()), Some(test)) => {
                selftest::close_as_exec_does(); // the descriptors of the plan and of the report among them
                selftest::run(test)
            }
        };
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let [a, b, c, d] = errno.to_le_bytes();
        let bytes = [step as u8, a, b, c, d];
        // SAFETY: plain system calls on a live local buffer; _exit never returns and runs no handlers of ours.
        unsafe {
            libc::write(report, bytes.as_ptr().cast(), bytes.len());
            libc::_exit(127)
        }
    }

    /// Up to exec, in this order; the failing step on error, errno telling why.
    ///
    /// Without a parent's number it is in a namespace where the parent has none; there it dies with the init.
    fn prepare_child(&mut self, parent: Option<u32>) -> Result<(), Step> {
        // SAFETY: only async-signal-safe system calls, on memory allocated before the clone and owned by this copy.
        unsafe {
            check(libc::setsid(), Step::Session)?;
            // Armed first, then the parent checked: if it died in between, nobody would tell us any more.
            check(
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL),
                Step::DeathSignal,
            )?;
            if parent.is_some_and(|parent| libc::getppid() != parent.cast_signed()) {
                libc::_exit(127);
            }
            // Orphans of this tree stay below its leader, so that whoever is below the launcher itself is a stray.
            check(
                libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1),
                Step::DeathSignal,
            )?;
            reset_in_child();
            // Out of the way first: a descriptor may sit on a number that another one is to have. None but those, and no
            // higher than that takes, for the limit may be low.
            let above = self.fds.len() as RawFd;
            let out_of_the_way = |fd: RawFd| match fd < above {
                true => libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, above),
                false => fd,
            };
            for fd in &mut self.plan_fds {
                *fd = out_of_the_way(*fd);
                check(*fd, Step::Descriptors)?;
            }
            for (fd, moved) in self.fds.iter().zip(&mut self.moved) {
                *moved = out_of_the_way(*fd);
                check(*moved, Step::Descriptors)?;
            }
            for (target, moved) in self.moved.iter().enumerate() {
                check(libc::dup2(*moved, target as RawFd), Step::Descriptors)?;
            }
            let first = self.moved.len() as libc::c_uint;
            check(close_on_exec_from(first), Step::Descriptors)?;
            if let Some(Inherited { descriptors, umask }) = INHERITED.get() {
                let infinite = libc::RLIM_INFINITY;
                let limit = libc::rlimit {
                    rlim_cur: descriptors.current.unwrap_or(infinite),
                    rlim_max: descriptors.maximum.unwrap_or(infinite),
                };
                check(
                    libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit),
                    Step::Rlimits,
                )?;
                libc::umask(umask.as_raw_mode());
            }
            self.plan.run(&self.plan_fds)?;
            check(libc::chdir(self.cwd.as_ptr()), Step::Chdir)?;
            for (resource, value) in &self.rlimits {
                check(limit_self(*resource, *value), Step::Rlimits)?;
            }
        }
        Ok(())
    }

    /// Tries the paths in turn, as a `PATH` search does; returns only on failure, with errno of the best reason.
    fn exec(&self) -> Step {
        let mut denied = false;
        for path in &self.paths {
            // SAFETY: path, argv and env are NUL-terminated, live, and the lists end with a null pointer.
            unsafe { libc::execve(path.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                Some(libc::EACCES) => denied = true,
                _ => return Step::Exec,
            }
        }
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = if denied { libc::EACCES } else { libc::ENOENT } };
        Step::Exec
    }
}

fn check(result: libc::c_int, step: Step) -> Result<(), Step> {
    if result < 0 { Err(step) } else { Ok(()) }
}

/// Marks every descriptor from `first` up, so that none but the listed ones passes exec.
fn close_on_exec_from(first: libc::c_uint) -> libc::c_int {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: takes numbers only.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            CLOSE_RANGE_CLOEXEC,
        ) as libc::c_int
    }
}

/// `fork` with a pidfd. The launcher has one thread, so the child may go on as a copy of it.
///
/// Not by `clone3`, which Docker's default filter answers with ENOSYS.
fn clone_with_pidfd(pidfd: &mut RawFd) -> io::Result<i32> {
    let flags = libc::c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: with CLONE_PIDFD the third argument is where the descriptor goes, a live place; without CLONE_VM the
    // child has its own copy of everything, and the other arguments are not used.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            flags,
            none,
            std::ptr::from_mut(pidfd),
            none,
            none,
        )
    };
    if pid < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(i32::try_from(pid).expect("a pid is an int"))
    }
}
