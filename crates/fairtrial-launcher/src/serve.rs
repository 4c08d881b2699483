//! The single-threaded loop: engine's wishes in, facts about processes out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fairtrial_exec::linux::cgroup::{Leaves, Part};
use fairtrial_exec::linux::confine::Birth;
use fairtrial_exec::linux::monotonic::now_ns;
use fairtrial_exec::linux::packet::{self, Packet};
use fairtrial_exec::linux::wait::is_running;
use fairtrial_exec::linux::{signals, socket, spawn};
use fairtrial_exec::protocol::launcher::{
    Cause, FromLauncher, Program, Step, TaskId, ToLauncher, VERSION,
};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::alone::Alone;
use crate::confine::{Cell, Nest};
use crate::forks::Fork;
use crate::oom::{KillOrder, MemoryKills};
use crate::orphans::Orphan;
use crate::shortages::{Shortages, is_call};
use crate::task::{Ahead, Role, Task};
use crate::tree::Strays;
use crate::watch::{Due, Watched};

/// Serves until the engine is gone, then ends everything.
pub(crate) fn serve(socket: OwnedFd, engine: OwnedFd) -> io::Result<()> {
    let mut launcher = Launcher::new(socket, engine)?;
    let result = launcher.run();
    launcher.end_everything();
    result
}

/// What an epoll event is about. Descriptors of tasks carry the task's number above these.
const ENGINE_SOCKET: u64 = 0;
const ENGINE_PROCESS: u64 = 1;
const CHILD_SIGNAL: u64 = 2;
const TASKS: u64 = 16;

/// With a request for a worker come its socket, stdout and stderr.
const FORK_FDS: usize = 3;

/// With a request for a program come at least its three streams.
const SPAWN_FDS: usize = 3;

/// Descriptors that come with a request unless this process has no room for them.
fn fewest_descriptors(message: &ToLauncher) -> usize {
    match message {
        ToLauncher::Spawn { program, .. } => SPAWN_FDS + usize::from(program.zygote),
        ToLauncher::Fork { .. } => FORK_FDS,
        _ => 0,
    }
}

/// Between two looks whether a cgroup is empty.
const LEAF_LOOK_NS: u64 = 2_000_000;

/// All that the launcher knows.
pub(crate) struct Launcher {
    pub(crate) socket: OwnedFd,
    pub(crate) engine: OwnedFd,
    pub(crate) signals: OwnedFd,
    pub(crate) epoll: OwnedFd,
    pub(crate) tasks: HashMap<TaskId, Task>,
    pub(crate) by_pid: HashMap<i32, TaskId>,
    pub(crate) strays: Strays,
    /// Somebody may hide among them.
    pub(crate) looks_for_strays: bool,
    /// Fork requests without an answer; a zygote that has not announced itself counts as one.
    pub(crate) forks: BTreeMap<u32, Fork>,
    pub(crate) last_fork: u32,
    /// Children that ended while a fork was unanswered: one may be that fork's worker.
    pub(crate) unclaimed: HashMap<i32, Orphan>,
    /// Children that ended may be left, of which no signal will tell.
    pub(crate) has_more_to_reap: bool,
    pub(crate) scratch: Option<(OwnedFd, Vec<u8>)>,
    pub(crate) nest: Option<Nest>,
    pub(crate) leaves: Option<Leaves>,
    /// There are none to be had, or they have been made.
    pub(crate) looked_for_leaves: bool,
    /// What of them is not to be used.
    pub(crate) without: Vec<Part>,
    /// Who has a processor to itself.
    pub(crate) alone: Option<Alone>,
    pub(crate) buffer: Vec<u8>,
    pub(crate) memory_kills: MemoryKills,
    pub(crate) shortages: Shortages,
    kill_order: KillOrder,
}

impl Launcher {
    pub(crate) fn new(socket: OwnedFd, engine: OwnedFd) -> io::Result<Self> {
        let signals = signals::child_signals()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (fd, tag) in [
            (&socket, ENGINE_SOCKET),
            (&engine, ENGINE_PROCESS),
            (&signals, CHILD_SIGNAL),
        ] {
            epoll::add(
                &epoll,
                fd,
                epoll::EventData::new_u64(tag),
                epoll::EventFlags::IN,
            )?;
        }
        Ok(Self {
            socket,
            engine,
            signals,
            epoll,
            tasks: HashMap::new(),
            by_pid: HashMap::new(),
            strays: Strays::default(),
            looks_for_strays: false,
            forks: BTreeMap::new(),
            last_fork: 0,
            unclaimed: HashMap::new(),
            has_more_to_reap: false,
            scratch: None,
            nest: None,
            leaves: None,
            looked_for_leaves: false,
            without: Vec::new(),
            alone: None,
            buffer: Vec::new(),
            memory_kills: MemoryKills::new(),
            shortages: Shortages::new(),
            kill_order: KillOrder::new(),
        })
    }

    /// Until the engine says goodbye or is gone.
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let timeout = self.sleep_for();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = now_ns();
            let mut tags: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
            if self.has_more_to_reap && !tags.contains(&CHILD_SIGNAL) {
                tags.push(CHILD_SIGNAL);
            }
            // Zygotes' answers before deaths: a worker that died at once must be known before it is reaped.
            tags.sort_unstable_by_key(|tag| std::cmp::Reverse(*tag));
            for tag in tags {
                match tag {
                    ENGINE_PROCESS => return Ok(()),
                    ENGINE_SOCKET => {
                        if !self.hear_all()? {
                            return Ok(());
                        }
                    }
                    CHILD_SIGNAL => self.reap()?,
                    tag => self.hear_task(TaskId(tag - TASKS))?,
                }
            }
            // What the engine disarmed by `now` does not hit, so all it said until then is heard first.
            if self.is_due(now) && !self.hear_all()? {
                return Ok(());
            }
            self.look_at_limits(now)?;
            if let Some(leaves) = &mut self.leaves {
                leaves.tend(now); // what stays busy is looked for by the next engine
            }
            self.settle_deaths()?;
            if self.frees_processor() {
                self.release_processor();
            }
        }
    }

    fn sleep_for(&self) -> Option<rustix::time::Timespec> {
        if self.has_more_to_reap {
            return Some(rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            });
        }
        let wake = self.tasks.values().filter_map(|task| match &task.dead {
            // Of the end of what is in its cgroup nobody tells.
            Some(_) if task.cell.leaf.is_some() => Some(now_ns() + LEAF_LOOK_NS),
            Some(dead) => Some(dead.give_up_ns),
            None => task.watched.as_ref().and_then(Watched::wake_at_ns),
        });
        let leaving = self.leaves.as_ref().filter(|leaves| leaves.leaving() > 0);
        let wake = wake.chain(leaving.map(|_| now_ns() + LEAF_LOOK_NS));
        let left = wake.min()?.saturating_sub(now_ns());
        Some(rustix::time::Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        })
    }

    /// One packet of the engine's; `false` when there will be no more.
    fn hear_engine(&mut self) -> io::Result<bool> {
        let Some(Packet { message, fds }) =
            packet::receive_what_fits(self.socket.as_fd(), &mut self.buffer)?
        else {
            return Ok(false);
        };
        match message {
            ToLauncher::Hello {
                engine_pid,
                without,
                ..
            } => {
                self.without = without;
                return self.greet(engine_pid);
            }
            ToLauncher::ScratchRoot { name } => {
                self.scratch = fds.into_iter().next().map(|parent| (parent, name))
            }
            ToLauncher::Spawn { task, .. } | ToLauncher::Fork { task, .. }
                if fds.len() < fewest_descriptors(&message) =>
            {
                self.fail(task, Step::Descriptors, Errno::MFILE.raw_os_error())?;
            }
            ToLauncher::Spawn { task, mut program } => {
                if program.alone {
                    self.clear_processor_for(task, program.confine.as_deref_mut());
                }
                self.spawn(task, &program, fds)?;
            }
            ToLauncher::Fork {
                task,
                zygote,
                mut confine,
                alone,
            } => {
                if alone {
                    self.clear_processor_for(task, confine.as_deref_mut());
                }
                self.fork(task, zygote, confine.as_deref(), fds)?;
            }
            ToLauncher::Arm { task, .. }
            | ToLauncher::Disarm { task }
            | ToLauncher::Confirm { task, .. }
            | ToLauncher::End { task, .. }
            | ToLauncher::Kill { task, .. } => self.hear_of(task, message),
        }
        Ok(true)
    }

    /// A host that died before we looked has left us to somebody else: then the pidfd is not the engine's.
    fn greet(&self, engine_pid: u32) -> io::Result<bool> {
        let parent = rustix::process::getppid();
        let parent = parent.map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
        if parent != Some(engine_pid) {
            return Ok(false);
        }
        self.tell(&FromLauncher::Ready { version: VERSION })?;
        Ok(true)
    }

    /// What is said of a worker that is still being forked waits for it; but a zygote that does not fork in time is no
    /// use to anybody.
    fn hear_of(&mut self, task: TaskId, message: ToLauncher) {
        let fork = self.forks.values_mut().find(|fork| fork.task == Some(task));
        let cause = match &message {
            ToLauncher::Kill { cause, .. } => Some(*cause),
            _ => None,
        };
        match (fork, cause) {
            (Some(fork), Some(cause @ Cause::Misbehaved)) => {
                let task = fork.zygote;
                self.obey(ToLauncher::Kill { task, cause });
            }
            (Some(fork), _) => fork.early.push(message),
            (None, _) => self.obey(message),
        }
    }

    /// All that the engine has said; `false` when there will be no more.
    fn hear_all(&mut self) -> io::Result<bool> {
        loop {
            match self.hear_engine() {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                end => return end,
            }
        }
    }

    pub(crate) fn spawn(
        &mut self,
        id: TaskId,
        program: &Program,
        mut fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let control = if program.zygote {
            let (ours, theirs) = socket::pair_seqpacket()?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            fds.push(theirs);
            Some(ours)
        } else {
            None
        };
        let confined = match program.zygote {
            true => self.groundwork(program).map(|plan| (plan, Cell::default())),
            false => {
                let confine = program.confine.as_deref();
                self.confine(id, confine, Birth::Executed, program.ahead)
            }
        };
        let (plan, mut cell) = match confined {
            Ok(confined) => confined,
            Err((step, errno)) => return self.fail(id, step, errno),
        };
        self.hand_over(&cell, &fds);
        match spawn::spawn(program, &fds, plan, self.way_in(&cell)) {
            Ok(started) => {
                // Its end is all that matters: what is in it is read then.
                let watched = self.watch_fd(started.report.as_fd(), id, epoll::EventFlags::HUP);
                if let Err(error) = watched {
                    signals::send(&started.pidfd, Signal::KILL.as_raw()).ok(); // it may have ended by itself
                    self.abandon(cell);
                    return self.fail(id, Step::Descriptors, error.raw_os_error().unwrap_or(0));
                }
                self.by_pid.insert(started.pid, id);
                let role = Role::Starting {
                    report: started.report,
                    control,
                };
                let mut task = Task::new(started.pid, Some(started.pidfd), role);
                task.cell = cell;
                task.counters = started.counters;
                if program.ahead {
                    task.ahead = Some(Ahead::go());
                }
                self.tasks.insert(id, task);
                if program.confine.is_none() {
                    self.place(id, started.pid);
                }
                Ok(())
            }
            Err(error) => {
                // Into the namespace of an init that gave up nobody is born.
                let why = (Step::Clone, error.raw_os_error().unwrap_or(0));
                let (step, errno) = cell.failure().unwrap_or(why);
                self.abandon(cell);
                self.fail(id, step, errno)
            }
        }
    }

    /// Something about a process that is there, or is no more.
    pub(crate) fn obey(&mut self, message: ToLauncher) {
        match message {
            ToLauncher::Arm {
                task,
                generation,
                watch,
            } => {
                if let Some(task) = self.tasks.get_mut(&task) {
                    let watched = Watched::new(watch, generation, now_ns(), task.pid, &task.cell);
                    task.watched = Some(watched);
                }
            }
            ToLauncher::Disarm { task } => {
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.watched = None;
                }
            }
            ToLauncher::Confirm { task, generation } => {
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.stop_overdue(generation);
                }
            }
            ToLauncher::End { task, grace_ns } => {
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.end(grace_ns);
                }
            }
            ToLauncher::Kill { task, cause } => {
                self.look_before_its_end(cause);
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.kill();
                }
            }
            _ => {}
        }
    }

    /// News on a descriptor of a task: exec's report, or a zygote's answer.
    fn hear_task(&mut self, id: TaskId) -> io::Result<()> {
        match self.tasks.get_mut(&id) {
            Some(task) if matches!(task.role, Role::Starting { .. }) => self.started(id),
            Some(Task {
                role: Role::Zygote { .. },
                ..
            }) => self.hear_zygote(id),
            _ => Ok(()),
        }
    }

    pub(crate) fn started(&mut self, id: TaskId) -> io::Result<()> {
        let task = self.tasks.get_mut(&id).expect("looked up by the caller");
        let Role::Starting { report, control } = std::mem::replace(&mut task.role, Role::Leader)
        else {
            return Ok(());
        };
        epoll::delete(&self.epoll, &report)?;
        let pid = task.pid;
        if let Some(ahead) = &task.ahead {
            ahead.take_along(pid);
        }
        let report = match spawn::read_report(&report) {
            // Its init could not mount what it is to see, and took it along.
            Ok(None) if task.cell.has_namespaces && !task.killed => {
                let unknown = (Step::Mounts, rustix::io::Errno::SRCH.raw_os_error());
                Err(task.cell.failure().unwrap_or(unknown))
            }
            // Its init gave up, and took it along or left it without what it was to enter.
            Err((Step::Mounts | Step::Namespaces, _)) if task.cell.failure().is_some() => {
                Err(task.cell.failure().expect("just seen"))
            }
            report => report,
        };
        let report = report.and_then(|stamp| {
            let held = task.cell.hold_upper();
            held.map_err(|error| (Step::Tree, error.raw_os_error().unwrap_or(0)))?;
            Ok(stamp)
        });
        let stamp = match report {
            Ok(stamp) => stamp,
            Err((step, errno)) => {
                self.by_pid.remove(&pid); // it exits by itself, as a stray of no interest
                if let Some(task) = self.tasks.remove(&id) {
                    self.abandon(task.cell);
                }
                return self.fail(id, step, errno);
            }
        };
        if let Some(control) = control {
            if let Err(error) = self.watch_fd(control.as_fd(), id, epoll::EventFlags::IN) {
                self.by_pid.remove(&pid);
                if let Some(mut task) = self.tasks.remove(&id) {
                    task.kill();
                    self.abandon(task.cell);
                }
                return self.fail(id, Step::Descriptors, error.raw_os_error().unwrap_or(0));
            }
            self.last_fork += 1;
            self.forks.insert(
                self.last_fork,
                Fork {
                    task: None,
                    zygote: id,
                    early: Vec::new(),
                    cell: Cell::default(),
                },
            );
            self.tasks.get_mut(&id).expect("still there").role = Role::Zygote {
                control,
                waiting: VecDeque::new(),
            };
        }
        self.tell(&FromLauncher::Spawned {
            task: id,
            pid: pid.cast_unsigned(),
            at_ns: stamp.map_or_else(now_ns, |stamp| stamp.at_ns),
            before_ns: stamp.map(|stamp| stamp.used_ns),
        })
    }

    fn is_due(&self, now: u64) -> bool {
        let watched = self.tasks.values().filter_map(|task| task.watched.as_ref());
        watched.filter_map(Watched::wake_at_ns).any(|at| at <= now)
    }

    fn look_at_limits(&mut self, now: u64) -> io::Result<()> {
        let calls = self.tasks.values().filter(|task| is_call(task));
        self.kill_order.look(now, calls);
        self.look_at_shortages(now);
        let mut all_due = Vec::new();
        for (id, task) in &mut self.tasks {
            let Some(watched) = task.watched.as_mut().filter(|_| task.dead.is_none()) else {
                continue;
            };
            if watched.wake_at_ns().is_none_or(|at| at > now) {
                continue;
            }
            // A cause is recorded only while the leader lives: who ended by itself was not stopped by us.
            let due = if is_running(task.pid) {
                watched.due(now, task.pid, &task.cell)
            } else {
                Due::Nothing
            };
            // Who hides from the look as somebody else's child is found as a stray.
            self.looks_for_strays |= watched.is_sampled(&task.cell);
            if due != Due::Nothing {
                all_due.push((*id, watched.generation, due));
            }
        }
        all_due
            .into_iter()
            .try_for_each(|(task, generation, due)| self.stop(task, generation, due))
    }

    fn stop(&mut self, id: TaskId, generation: u32, due: Due) -> io::Result<()> {
        let may_be_late = matches!(
            due,
            Due::Warn(Cause::Timeout, _) | Due::Stop(Cause::Timeout) | Due::Kill
        );
        // Before it is killed: then it waits no longer.
        let waits_for_a_rival = may_be_late && self.waits_for_a_rival(id);
        let Some(task) = self.tasks.get_mut(&id) else {
            return Ok(());
        };
        task.waits_for_a_rival |= waits_for_a_rival;
        match due {
            Due::Nothing => return Ok(()),
            Due::Warn(_, signal) => task.warn(signal),
            Due::Stop(_) | Due::Kill => task.kill(),
        }
        match due {
            Due::Warn(cause, _) | Due::Stop(cause) => self.hit(id, generation, cause),
            Due::Nothing | Due::Kill => Ok(()),
        }
    }

    fn hit(&self, task: TaskId, generation: u32, cause: Cause) -> io::Result<()> {
        self.tell(&FromLauncher::Hit {
            task,
            generation,
            cause,
        })
    }

    pub(crate) fn fail(&self, task: TaskId, step: Step, errno: i32) -> io::Result<()> {
        self.tell(&FromLauncher::Failed { task, step, errno })
    }

    /// Blocks if the engine does not read, as it must: a lost fact would be a leaked call. The engine's death ends it.
    pub(crate) fn tell(&self, message: &FromLauncher) -> io::Result<()> {
        self.tell_with(message, None)
    }

    /// As [`Launcher::tell`], with a descriptor.
    pub(crate) fn tell_with(&self, message: &FromLauncher, fd: Option<&OwnedFd>) -> io::Result<()> {
        let fds: Vec<_> = fd.map(AsFd::as_fd).into_iter().collect();
        let send = |fds: &[BorrowedFd<'_>]| {
            packet::send_or_die_with(self.socket.as_fd(), message, fds, self.engine.as_fd())
        };
        match send(&fds) {
            // Too many may be on their way already: what is said matters more.
            Err(error) if !fds.is_empty() && error.kind() != io::ErrorKind::BrokenPipe => send(&[]),
            sent => sent,
        }
    }

    /// Fails where the user has no epoll watches left (`fs.epoll.max_user_watches`): calls can take them all.
    fn watch_fd(&self, fd: BorrowedFd<'_>, id: TaskId, on: epoll::EventFlags) -> io::Result<()> {
        let tag = TASKS.checked_add(id.0).ok_or(io::ErrorKind::InvalidData)?;
        let data = epoll::EventData::new_u64(tag);
        Ok(epoll::add(&self.epoll, fd, data, on)?)
    }
}
