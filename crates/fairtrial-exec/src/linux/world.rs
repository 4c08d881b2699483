//! A world of a call's own: namespaces, made and held by a tiny init that dies with the launcher and takes all in them.
//!
//! The init mounts what the call is to see and then sleeps; its children are reaped by the kernel. The call's first
//! process is a child of the launcher that enters afterwards, so that its end and usage are the launcher's to know.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Component, Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use super::clone::{clone_from, enter, exit, handle_or_end};
use super::monotonic::now_ns;
use super::plan::{Arg, Plan};
use super::signals::reset_in_child;
use super::tree::{self, Ground};
use super::user_namespace::UserNamespace;
use crate::protocol::launcher::{Bind, Namespaces, Network, Step, Tree, World};

/// The new root is put together here: always there, and nothing of it is taken into the new root.
const ROOT: &str = "/proc";

pub(super) const HERE: Arg = Arg::Value(libc::AT_FDCWD as u64);
pub(super) const RDONLY: u64 = 1;
pub(super) const NOSUID: u64 = 2;
pub(super) const NODEV: u64 = 4;
pub(super) const NOEXEC: u64 = 8;

/// Devices that every program expects.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// What in `/proc` is about the host, not about processes.
const OF_THE_HOST: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];

/// A running init.
#[derive(Debug)]
pub struct Init {
    /// Its process.
    pub pid: i32,
    /// Its handle, which is also the way in.
    pub pidfd: OwnedFd,
    /// Has a byte once all is mounted; ends without one if that failed. Whoever enters first takes it.
    pub ready: Option<OwnedFd>,
    /// Has what failed, if something did.
    failure: OwnedFd,
}

/// Longer than mounting takes on a machine that has something to spare.
const MOUNTING_NS: u64 = 5_000_000_000;

/// What an init tells of a step that failed: its number, and errno.
const FAILURE_BYTES: usize = 5;

impl Init {
    /// Waits until all is mounted; else the step that failed, and why.
    pub fn is_mounted(&self) -> Result<(), (Step, i32)> {
        let Some(ready) = &self.ready else {
            return Ok(()); // somebody has been there
        };
        let give_up = now_ns() + MOUNTING_NS;
        loop {
            let mut news = [ready, &self.failure].map(|fd| PollFd::new(fd, PollFlags::IN));
            let left = give_up.saturating_sub(now_ns());
            match poll(&mut news, Some(&timespec(left))) {
                Err(Errno::INTR) => continue,
                Err(errno) => return Err((STEP, errno.raw_os_error())),
                Ok(0) => return Err((STEP, libc::ETIMEDOUT)), // nothing is proved: another try may do better
                Ok(_) => {}
            }
            let has = |news: &PollFd<'_>| news.revents().contains(PollFlags::IN);
            return match (has(&news[0]), has(&news[1])) {
                (true, _) => Ok(()),
                (false, true) => Err(self.failure()),
                (false, false) => Err((STEP, libc::ESRCH)), // it was ended
            };
        }
    }

    /// What it could not do, if it has said so and ended.
    #[must_use]
    pub fn told_failure(&self) -> Option<(Step, i32)> {
        let mut news = [PollFd::new(&self.failure, PollFlags::IN)];
        match poll(&mut news, Some(&timespec(0))) {
            Ok(1) if news[0].revents().contains(PollFlags::IN) => Some(self.failure()),
            _ => None,
        }
    }

    /// The directory that changes to its tree go to.
    pub fn upper(&self) -> io::Result<OwnedFd> {
        let name = format!("/proc/{}/fd/{}", self.pid, tree::UPPER);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(name, flags, Mode::empty())?)
    }

    fn failure(&self) -> (Step, i32) {
        let mut bytes = [0; FAILURE_BYTES];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&self.failure, &mut bytes));
        let [step, errno @ ..] = bytes;
        match (read, Step::from_byte(step)) {
            (Ok(FAILURE_BYTES), Some(step)) => (step, i32::from_ne_bytes(errno)),
            _ => (STEP, libc::ESRCH),
        }
    }

    /// Whether nobody else is in its namespace of processes, by its own `/proc`. Whoever asks knows that nobody comes.
    ///
    /// Looked at twice: one that ends may have had a child while the list went from the one's number to the other's.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        (0..2).all(|_| self.sees_nobody())
    }

    fn sees_nobody(&self) -> bool {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{}/root/proc", self.pid)) else {
            return false;
        };
        let mut others = entries.filter(|entry| {
            let is_other = |name: &[u8]| name[0].is_ascii_digit() && name != b"1";
            entry
                .as_ref()
                .map_or(true, |entry| is_other(entry.file_name().as_encoded_bytes()))
        });
        others.next().is_none()
    }

    /// Ends it and all that is in its namespaces.
    pub fn kill(&self) {
        super::signals::send(&self.pidfd, libc::SIGKILL).ok(); // already gone is as good
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// By which a process learns that the launcher is gone: one end that only the launcher holds, and one to look at.
#[derive(Debug)]
pub struct Lifeline {
    held: OwnedFd,
    watched: OwnedFd,
}

impl Lifeline {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        let (watched, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        Ok(Self { held, watched })
    }
}

/// What an init is to make and hold.
#[derive(Clone, Copy, Debug)]
pub struct Inside<'a> {
    /// The namespaces.
    pub namespaces: &'a Namespaces,
    /// What is put over a place of the host's in them.
    pub tree: Option<&'a Tree>,
    /// Whose the directory in them is.
    pub user: Option<u32>,
}

/// Starts an init, in a user namespace or with this process's own privileges. Its failures are told by
/// [`Init::is_mounted`].
pub fn start(
    users: Option<&UserNamespace>,
    inside: Inside<'_>,
    lifeline: &Lifeline,
) -> io::Result<Init> {
    let mut plan = match inside.namespaces {
        Namespaces::Processes => own_proc(inside.tree),
        Namespaces::All(world) => mounts(world, inside.tree, inside.user),
    };
    plan.settle();
    let (ready, ready_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (failure, failure_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let enter_users = || {
        let Some(users) = users else {
            return Ok(());
        };
        enter(users.raw(), libc::CLONE_NEWUSER)?;
        // From its birth on: otherwise nobody without privileges outside can enter. It took new credentials.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        Ok(())
    };
    let flags = libc::CLONE_NEWPID | entered(inside.namespaces);
    match clone_from(enter_users, flags)? {
        0 => {
            // SAFETY: a copy of the launcher's own end, which this process must not hold.
            unsafe { libc::close(lifeline.held.as_raw_fd()) };
            let tell = [&ready_write, &failure_write].map(AsRawFd::as_raw_fd);
            be_init(plan, tell, lifeline.watched.as_raw_fd())
        }
        pid => Ok(Init {
            pid,
            pidfd: handle_or_end(pid)?,
            ready: Some(ready),
            failure,
        }),
    }
}

/// The namespaces that an init holds beside that of processes: those that a process enters by the init's handle.
pub(super) fn entered(namespaces: &Namespaces) -> libc::c_int {
    match namespaces {
        Namespaces::Processes => libc::CLONE_NEWNS,
        Namespaces::All(world) => {
            let network = match world.network {
                Network::Host => 0,
                Network::None | Network::Loopback => libc::CLONE_NEWNET,
            };
            libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | network
        }
    }
}

fn be_init(mut plan: Plan, [ready, failure]: [RawFd; 2], lifeline: RawFd) -> ! {
    // SAFETY: plain system calls on numbers and live local memory.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Nobody would tell of a launcher that was gone before that line.
        if lifeline_is_cut(lifeline) {
            exit(0);
        }
        reset_in_child();
        libc::signal(libc::SIGCHLD, libc::SIG_IGN); // the kernel reaps
        libc::dup2(ready, 0);
        libc::dup2(failure, 1);
        libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
        if let Err(step) = plan.run(&[]) {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            let [a, b, c, d] = errno.to_ne_bytes();
            libc::write(1, [step as u8, a, b, c, d].as_ptr().cast(), FAILURE_BYTES);
            exit(1);
        }
        libc::write(0, b"r".as_ptr().cast(), 1);
        libc::syscall(libc::SYS_close_range, 0, 1, 0);
        loop {
            libc::pause();
        }
    }
}

/// Whether the launcher, who alone holds the other end, is gone: `getppid` is 0 in a namespace of its own.
fn lifeline_is_cut(lifeline: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd: lifeline,
        events: 0,
        revents: 0,
    };
    // SAFETY: one live structure, and no wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

/// The system calls by which `/proc` shows the processes of the namespace; all but the tree, if there is one, stays the
/// host's, and goes where that goes.
fn own_proc(tree: Option<&Tree>) -> Plan {
    let mut plan = Plan::default();
    let (root, proc, place) = (plan.text(b"/"), plan.text(b"proc"), plan.text(b"/proc"));
    let slave = Arg::Value(libc::MS_REC | libc::MS_SLAVE);
    plan.call(STEP, libc::SYS_mount, &[NULL, root, NULL, slave, NULL]);
    if let Some(tree) = tree {
        let ground = Ground {
            staging: "/proc", // which gets another anyway
            root: "",
        };
        tree::put_up(&mut plan, tree, &ground);
    }
    let flags = Arg::Value(libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    plan.call(STEP, libc::SYS_mount, &[proc, place, proc, flags, NULL]);
    plan
}

/// The system calls that put a world together.
fn mounts(world: &World, tree: Option<&Tree>, user: Option<u32>) -> Plan {
    let mut build = Build::default();
    let plan = &mut build.plan;
    let private = Arg::Value(libc::MS_REC | libc::MS_PRIVATE);
    let root = plan.text(b"/");
    plan.call(STEP, libc::SYS_mount, &[NULL, root, NULL, private, NULL]);
    build.tmpfs("/", "size=4m,nr_inodes=8k,mode=755");
    for bind in &world.binds {
        build.bind(bind);
    }
    build.directory(Path::new("/proc"));
    if let Some(tree) = tree {
        build.tree(tree);
    }
    let (kind, target) = (build.plan.text(b"proc"), build.inside("/proc"));
    let flags = Arg::Value(libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    build
        .plan
        .call(STEP, libc::SYS_mount, &[kind, target, kind, flags, NULL]);
    if tree.is_some() || world.as_caller {
        build.protect_proc();
    }
    build.devices(world);
    let owner = user.map_or_else(String::new, |user| format!(",uid={user},gid={user}"));
    build.tmpfs(
        "/dev/shm",
        &format!(
            "size={},nr_inodes={},mode=1777",
            world.scratch_bytes, world.scratch_inodes
        ),
    );
    let scratch = String::from_utf8_lossy(&world.scratch).into_owned();
    build.directory(Path::new(&scratch));
    build.tmpfs(
        &scratch,
        &format!(
            "size={},nr_inodes={},mode=700{owner}",
            world.scratch_bytes, world.scratch_inodes
        ),
    );
    build.become_root();
    if world.network == Network::Loopback {
        raise_loopback(&mut build.plan);
    }
    build.plan
}

const STEP: Step = Step::Mounts;
pub(super) const NULL: Arg = Arg::Value(0);

#[derive(Default)]
struct Build {
    plan: Plan,
    made: BTreeSet<PathBuf>,
}

impl Build {
    /// The name of a place in the new root while that is being put together.
    fn inside(&mut self, path: impl AsRef<Path>) -> Arg {
        let path = path.as_ref();
        let path = path.strip_prefix("/").unwrap_or(path);
        let path = Path::new(ROOT).join(path);
        self.plan.text(path.as_os_str().as_encoded_bytes())
    }

    /// A directory and those above it.
    fn directory(&mut self, path: &Path) {
        let mut place = PathBuf::from("/");
        for part in path.components() {
            let Component::Normal(name) = part else {
                continue;
            };
            place.push(name);
            if self.made.insert(place.clone()) {
                let name = self.inside(&place);
                // It may be there by way of something that was bound.
                let arguments = [HERE, name, Arg::Value(0o755)];
                self.plan.try_call(STEP, libc::SYS_mkdirat, &arguments);
            }
        }
    }

    /// What it is mounted on, and the mounts.
    fn tree(&mut self, tree: &Tree) {
        use std::os::unix::ffi::OsStrExt;
        self.directory(Path::new(std::ffi::OsStr::from_bytes(&tree.at)));
        if let Some(private) = &tree.private {
            self.directory(Path::new(std::ffi::OsStr::from_bytes(private)));
        }
        for (place, is_directory) in tree::covered(tree) {
            if is_directory {
                self.directory(&place);
            } else {
                self.directory(place.parent().unwrap_or(Path::new("/")));
                let target = self.inside(&place);
                self.empty_file(target);
            }
        }
        let ground = Ground {
            staging: &format!("{ROOT}/proc"), // where nothing is yet
            root: ROOT,
        };
        tree::put_up(&mut self.plan, tree, &ground);
    }

    /// With a tree, or as its caller, it may be root that a call runs as: without privileges, but these are files that
    /// root owns, and some of them give all privileges to whoever writes to them.
    fn protect_proc(&mut self) {
        let host = |name: &&&str| Path::new("/proc").join(name).exists();
        for name in OF_THE_HOST.iter().filter(host) {
            let place = self.inside(Path::new("/proc").join(name));
            let arguments = [place, place, NULL, Arg::Value(libc::MS_BIND), NULL];
            self.plan.call(STEP, libc::SYS_mount, &arguments);
            let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
            set_attributes(&mut self.plan, STEP, place, attributes, 0);
        }
    }

    fn tmpfs(&mut self, path: &str, options: &str) {
        let (kind, target) = (self.plan.text(b"tmpfs"), self.inside(path));
        let options = self.plan.text(options.as_bytes());
        let flags = Arg::Value(libc::MS_NOSUID | libc::MS_NODEV);
        self.plan
            .call(STEP, libc::SYS_mount, &[kind, target, kind, flags, options]);
    }

    /// A piece of the host: what is not there is not there inside either.
    fn bind(&mut self, bind: &Bind) {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(&bind.path));
        let Ok(kind) = std::fs::symlink_metadata(path).map(|found| found.file_type()) else {
            return;
        };
        if let Some(above) = path.parent() {
            self.directory(above);
        }
        let target = self.inside(path);
        if kind.is_symlink() {
            if let Ok(to) = std::fs::read_link(path) {
                let to = self.plan.text(to.as_os_str().as_encoded_bytes());
                self.plan
                    .try_call(STEP, libc::SYS_symlinkat, &[to, HERE, target]);
            }
            return;
        }
        if kind.is_dir() {
            self.directory(path);
        } else {
            self.empty_file(target);
        }
        let source = self.plan.text(&bind.path);
        let flags = Arg::Value(libc::MS_BIND | libc::MS_REC);
        self.plan
            .call(STEP, libc::SYS_mount, &[source, target, NULL, flags, NULL]);
        let mut attributes = NOSUID;
        attributes |= if bind.writable { 0 } else { RDONLY };
        attributes |= if bind.device { 0 } else { NODEV };
        set_attributes(&mut self.plan, STEP, target, attributes, libc::AT_RECURSIVE);
    }

    fn empty_file(&mut self, target: Arg) {
        let flags = Arg::Value((libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC) as u64);
        self.plan.try_call(
            STEP,
            libc::SYS_openat,
            &[HERE, target, flags, Arg::Value(0o644)],
        );
        let file = self.plan.keep();
        self.plan.try_call(STEP, libc::SYS_close, &[file]);
    }

    fn devices(&mut self, world: &World) {
        let names = DEVICES
            .iter()
            .map(|name| format!("/dev/{name}").into_bytes());
        for path in names.chain(world.devices.iter().cloned()) {
            self.bind(&Bind {
                path,
                writable: true,
                device: true,
            });
        }
        self.directory(Path::new("/dev/shm"));
        for (name, to) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ] {
            let (to, name) = (
                self.plan.text(to.as_bytes()),
                self.inside(format!("/dev/{name}")),
            );
            self.plan
                .try_call(STEP, libc::SYS_symlinkat, &[to, HERE, name]);
        }
    }

    /// The new root takes the place of the old one, which is let go.
    fn become_root(&mut self) {
        let (root, dot, slash) = (self.inside("/"), self.plan.text(b"."), self.plan.text(b"/"));
        set_attributes(&mut self.plan, STEP, root, RDONLY | NOSUID, 0);
        let plan = &mut self.plan;
        plan.call(STEP, libc::SYS_chdir, &[root]);
        plan.call(STEP, libc::SYS_pivot_root, &[dot, dot]);
        let detach = Arg::Value(libc::MNT_DETACH as u64);
        plan.call(STEP, libc::SYS_umount2, &[dot, detach]);
        plan.call(STEP, libc::SYS_chdir, &[slash]);
    }
}

/// Of a mount, or with `AT_RECURSIVE` of those below it too.
pub(super) fn set_attributes(
    plan: &mut Plan,
    step: Step,
    target: Arg,
    attributes: u64,
    flags: libc::c_int,
) {
    // attr_set, attr_clr, propagation, userns_fd
    let words = [attributes, 0, 0, 0].map(u64::to_ne_bytes).concat();
    let attributes = plan.bytes(&words);
    let flags = Arg::Value(flags as u64);
    let arguments = [HERE, target, flags, attributes, Arg::Value(32)];
    plan.call(step, libc::SYS_mount_setattr, &arguments);
}

fn raise_loopback(plan: &mut Plan) {
    let family = Arg::Value(libc::AF_INET as u64);
    let kind = Arg::Value((libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64);
    plan.call(Step::Network, libc::SYS_socket, &[family, kind, NULL]);
    let socket = plan.keep();
    // struct ifreq: the name in sixteen bytes, then the flags.
    let mut request = [0; 40];
    request[..2].copy_from_slice(b"lo");
    request[16..18].copy_from_slice(&(libc::IFF_UP as u16).to_ne_bytes());
    let request = plan.bytes(&request);
    let raise = Arg::Value(libc::SIOCSIFFLAGS);
    plan.call(Step::Network, libc::SYS_ioctl, &[socket, raise, request]);
    plan.call(Step::Network, libc::SYS_close, &[socket]);
}
