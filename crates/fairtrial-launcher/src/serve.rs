//! The single-threaded loop: engine's wishes in, facts about processes out.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fairtrial_exec::linux::packet::{self, Packet};
use fairtrial_exec::linux::wait::{Reaped, is_running, reap_any};
use fairtrial_exec::linux::{remove, signals, socket, spawn};
use fairtrial_exec::protocol::launcher::{
    Cause, End, FromLauncher, Program, Step, TaskId, ToLauncher, VERSION,
};
use rustix::event::epoll;

use crate::tree::Strays;
use crate::watch::{Due, Watched};

/// Serves until the engine is gone, then ends everything.
pub(crate) fn serve(socket: OwnedFd, engine: OwnedFd) -> io::Result<()> {
    let mut launcher = Launcher::new(socket, engine)?;
    let result = launcher.run();
    launcher.end_everything();
    result
}

/// Between the kill of a stray and giving up on it.
const SURVIVOR_NS: u64 = 1_000_000_000;

/// What an epoll event is about. Descriptors of tasks carry the task's number above these.
const ENGINE_SOCKET: u64 = 0;
const ENGINE_PROCESS: u64 = 1;
const CHILD_SIGNAL: u64 = 2;
const TASKS: u64 = 16;

struct Launcher {
    socket: OwnedFd,
    engine: OwnedFd,
    signals: OwnedFd,
    epoll: OwnedFd,
    tasks: HashMap<TaskId, Task>,
    by_pid: HashMap<i32, TaskId>,
    strays: Strays,
    /// Fork requests without an answer; a zygote that has not announced itself counts as one.
    forks: BTreeMap<u32, Fork>,
    last_fork: u32,
    /// Children that ended while a fork was unanswered: one may be that fork's worker.
    unclaimed: HashMap<i32, Reaped>,
    scratch: Option<(OwnedFd, Vec<u8>)>,
}

struct Task {
    pid: i32,
    pidfd: Option<OwnedFd>,
    role: Role,
    watched: Option<Watched>,
    /// A zygote's first process ended, and its second has not announced itself.
    ended: Option<Reaped>,
    dead: Option<Dead>,
}

enum Role {
    /// Until exec succeeded: the pipe that tells.
    Starting {
        report: OwnedFd,
        control: Option<OwnedFd>,
    },
    Zygote {
        control: OwnedFd,
    },
    Leader,
}

/// A leader that is gone while its tree may not be.
struct Dead {
    end: End,
    give_up_ns: u64,
}

struct Fork {
    task: Option<TaskId>,
    zygote: TaskId,
    /// What the engine said of the worker meanwhile: that can be quicker to serve a call than we are to hear of it.
    early: Vec<ToLauncher>,
}

impl Launcher {
    fn new(socket: OwnedFd, engine: OwnedFd) -> io::Result<Self> {
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
            forks: BTreeMap::new(),
            last_fork: 0,
            unclaimed: HashMap::new(),
            scratch: None,
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
            let mut tags: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
            // Zygotes' answers before deaths: a worker that died at once must be known before it is reaped.
            tags.sort_unstable_by_key(|tag| std::cmp::Reverse(*tag));
            for tag in tags {
                match tag {
                    ENGINE_PROCESS => return Ok(()),
                    ENGINE_SOCKET => {
                        if !self.hear_engine()? {
                            return Ok(());
                        }
                    }
                    CHILD_SIGNAL => self.reap()?,
                    tag => self.hear_task(TaskId(tag - TASKS))?,
                }
            }
            self.look_at_limits()?;
            self.settle_deaths()?;
        }
    }

    fn sleep_for(&self) -> Option<rustix::time::Timespec> {
        let wake = self.tasks.values().filter_map(|task| match &task.dead {
            Some(dead) => Some(dead.give_up_ns),
            None => task.watched.as_ref().and_then(Watched::wake_at_ns),
        });
        let left = wake.min()?.saturating_sub(now_ns());
        Some(rustix::time::Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        })
    }

    /// One packet of the engine's; `false` when there will be no more.
    fn hear_engine(&mut self) -> io::Result<bool> {
        let Some(Packet { message, fds }) = packet::receive::<ToLauncher>(self.socket.as_fd())?
        else {
            return Ok(false);
        };
        match message {
            ToLauncher::Hello { engine_pid, .. } => {
                // A host that died before we looked has left us to somebody else: then the pidfd is not the engine's.
                if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned())
                    != Some(engine_pid)
                {
                    return Ok(false);
                }
                self.tell(&FromLauncher::Ready { version: VERSION })?;
            }
            ToLauncher::ScratchRoot { name } => {
                self.scratch = fds.into_iter().next().map(|parent| (parent, name))
            }
            ToLauncher::Spawn { task, program } => self.spawn(task, &program, fds)?,
            ToLauncher::Fork { task, zygote } => self.fork(task, zygote, &fds)?,
            ToLauncher::Arm { task, .. }
            | ToLauncher::Disarm { task }
            | ToLauncher::Kill { task, .. } => {
                match self.forks.values_mut().find(|fork| fork.task == Some(task)) {
                    Some(fork) => fork.early.push(message),
                    None => self.obey(message),
                }
            }
        }
        Ok(true)
    }

    fn spawn(&mut self, id: TaskId, program: &Program, mut fds: Vec<OwnedFd>) -> io::Result<()> {
        let control = if program.zygote {
            let (ours, theirs) = socket::pair_seqpacket()?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            fds.push(theirs);
            Some(ours)
        } else {
            None
        };
        match spawn::spawn(program, &fds) {
            Ok(started) => {
                self.watch_fd(started.report.as_fd(), id)?;
                self.by_pid.insert(started.pid, id);
                let role = Role::Starting {
                    report: started.report,
                    control,
                };
                self.tasks
                    .insert(id, Task::new(started.pid, Some(started.pidfd), role));
                Ok(())
            }
            Err(error) => self.fail(id, Step::Clone, error.raw_os_error().unwrap_or(0)),
        }
    }

    fn fork(&mut self, task: TaskId, zygote: TaskId, fds: &[OwnedFd]) -> io::Result<()> {
        let Some(Task {
            role: Role::Zygote { control },
            ..
        }) = self.tasks.get(&zygote)
        else {
            return self.fail(task, Step::Zygote, rustix::io::Errno::SRCH.raw_os_error());
        };
        let number = self.last_fork + 1;
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        match socket::send_with_fds(
            control.as_fd(),
            &number.to_le_bytes(),
            &borrowed,
            socket::Wait::Never,
        ) {
            Ok(_) => {
                self.last_fork = number;
                self.forks.insert(
                    number,
                    Fork {
                        task: Some(task),
                        zygote,
                        early: Vec::new(),
                    },
                );
                Ok(())
            }
            Err(error) => self.fail(task, Step::Zygote, error.raw_os_error().unwrap_or(0)),
        }
    }

    /// Something about a process that is there, or is no more.
    fn obey(&mut self, message: ToLauncher) {
        match message {
            ToLauncher::Arm {
                task,
                generation,
                watch,
            } => {
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.watched = Some(Watched::new(watch, generation, now_ns(), task.pid));
                }
            }
            ToLauncher::Disarm { task } => {
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.watched = None;
                }
            }
            ToLauncher::Kill { task, .. } => {
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

    fn started(&mut self, id: TaskId) -> io::Result<()> {
        let task = self.tasks.get_mut(&id).expect("looked up by the caller");
        let Role::Starting { report, control } = std::mem::replace(&mut task.role, Role::Leader)
        else {
            return Ok(());
        };
        epoll::delete(&self.epoll, &report)?;
        let pid = task.pid;
        if let Some((step, errno)) = spawn::read_failure(&report) {
            self.by_pid.remove(&pid); // it exits by itself, as a stray of no interest
            self.tasks.remove(&id);
            return self.fail(id, step, errno);
        }
        if let Some(control) = control {
            self.watch_fd(control.as_fd(), id)?;
            self.last_fork += 1;
            self.forks.insert(
                self.last_fork,
                Fork {
                    task: None,
                    zygote: id,
                    early: Vec::new(),
                },
            );
            self.tasks.get_mut(&id).expect("still there").role = Role::Zygote { control };
        }
        self.tell(&FromLauncher::Spawned {
            task: id,
            pid: pid.cast_unsigned(),
            at_ns: now_ns(),
        })
    }

    /// All that a zygote has to say now.
    fn hear_zygote(&mut self, id: TaskId) -> io::Result<()> {
        loop {
            let Some(Task {
                role: Role::Zygote { control },
                ..
            }) = self.tasks.get(&id)
            else {
                return Ok(());
            };
            let mut bytes = [0; 8];
            match rustix::net::recv(control, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT)
                .map(|(count, _)| count)
            {
                Ok(8) => {
                    let [number, value] =
                        [&bytes[..4], &bytes[4..]].map(|b| b.try_into().expect("four bytes"));
                    self.answered(id, u32::from_le_bytes(number), i32::from_le_bytes(value))?;
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Ok(_) | Err(_) => return self.zygote_lost(id),
            }
        }
    }

    fn answered(&mut self, zygote: TaskId, number: u32, value: i32) -> io::Result<()> {
        if number == 0 {
            self.forks
                .retain(|_, fork| !(fork.zygote == zygote && fork.task.is_none()));
            self.announced(zygote, value);
            return Ok(());
        }
        match self.forks.remove(&number) {
            Some(Fork {
                task: Some(task),
                early,
                ..
            }) if value > 0 => {
                self.forked(task, value)?;
                early.into_iter().for_each(|message| self.obey(message));
                Ok(())
            }
            Some(Fork {
                task: Some(task), ..
            }) => self.fail(task, Step::Zygote, -value),
            _ => Ok(()),
        }
    }

    /// A zygote says who it is: it may have forked itself once to be rid of threads.
    fn announced(&mut self, zygote: TaskId, pid: i32) {
        let Some(task) = self.tasks.get_mut(&zygote) else {
            return;
        };
        if task.pid != pid {
            task.pid = pid;
            task.ended = None;
            task.pidfd = spawn::open_child(pid).ok();
            self.by_pid.insert(pid, zygote);
        }
    }

    fn forked(&mut self, id: TaskId, pid: i32) -> io::Result<()> {
        self.strays.reaped(pid);
        self.by_pid.insert(pid, id);
        let pidfd = spawn::open_child(pid).ok();
        self.tasks.insert(id, Task::new(pid, pidfd, Role::Leader));
        self.tell(&FromLauncher::Spawned {
            task: id,
            pid: pid.cast_unsigned(),
            at_ns: now_ns(),
        })?;
        match self.unclaimed.remove(&pid) {
            Some(reaped) => self.leader_died(id, reaped),
            None => Ok(()),
        }
    }

    /// A zygote closed its socket: its forks will not be answered.
    fn zygote_lost(&mut self, id: TaskId) -> io::Result<()> {
        let lost: Vec<u32> = self
            .forks
            .iter()
            .filter(|(_, fork)| fork.zygote == id)
            .map(|(number, _)| *number)
            .collect();
        for number in lost {
            if let Some(Fork {
                task: Some(task), ..
            }) = self.forks.remove(&number)
            {
                self.fail(task, Step::Zygote, 0)?;
            }
        }
        if let Some(task) = self.tasks.get_mut(&id) {
            if let Role::Zygote { control } = std::mem::replace(&mut task.role, Role::Leader) {
                epoll::delete(&self.epoll, &control)?;
            }
            match task.ended.take() {
                Some(reaped) => task.bury(&reaped),
                None => task.kill(),
            }
        }
        Ok(())
    }

    /// Takes in every child that ended.
    fn reap(&mut self) -> io::Result<()> {
        signals::drain(&self.signals);
        while let Some(reaped) = reap_any()? {
            self.strays.reaped(reaped.pid);
            match self.by_pid.remove(&reaped.pid) {
                Some(id) => self.leader_died(id, reaped)?,
                None if self.forks.is_empty() => self.account_stray(&reaped),
                None => {
                    self.unclaimed.insert(reaped.pid, reaped);
                }
            }
        }
        Ok(())
    }

    fn leader_died(&mut self, id: TaskId, reaped: Reaped) -> io::Result<()> {
        let Some(task) = self.tasks.get_mut(&id) else {
            return Ok(());
        };
        if task.pid != reaped.pid {
            return Ok(()); // a zygote's first process, whose child carries on
        }
        if matches!(task.role, Role::Zygote { .. }) {
            // Before it announced itself its child may carry on; the end of its socket tells.
            task.ended = Some(reaped);
            let announced = !self
                .forks
                .values()
                .any(|fork| fork.zygote == id && fork.task.is_none());
            return if announced {
                self.zygote_lost(id)
            } else {
                Ok(())
            };
        }
        task.bury(&reaped);
        Ok(())
    }

    /// Usage of a stray goes to the call that left it, if only one can have.
    fn account_stray(&mut self, reaped: &Reaped) {
        let mut dying = self
            .tasks
            .values_mut()
            .filter_map(|task| task.dead.as_mut());
        if let (Some(dead), None) = (dying.next(), dying.next()) {
            dead.end.user_ns += reaped.user_ns;
            dead.end.system_ns += reaped.system_ns;
            dead.end.max_rss_bytes = dead.end.max_rss_bytes.max(reaped.max_rss_bytes);
        }
    }

    /// Ends what dead leaders left behind, and reports those whose tree is gone.
    fn settle_deaths(&mut self) -> io::Result<()> {
        if self.forks.is_empty() && !self.unclaimed.is_empty() {
            for reaped in std::mem::take(&mut self.unclaimed).into_values() {
                self.account_stray(&reaped);
            }
        }
        if self.tasks.values().all(|task| task.dead.is_none()) && self.strays.is_empty() {
            return Ok(());
        }
        let first_open_fork = self.forks.keys().next().copied();
        let killed = self
            .strays
            .sweep(&self.by_pid, first_open_fork, self.last_fork)?;
        let mut dying = self
            .tasks
            .values_mut()
            .filter_map(|task| task.dead.as_mut());
        if let Some(dead) = dying.next() {
            dead.end.leaked += killed;
        }
        let now = now_ns();
        let clear = self.strays.is_empty();
        let gone: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, task)| {
                task.dead
                    .as_ref()
                    .is_some_and(|dead| clear || now >= dead.give_up_ns)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            let dead = self.tasks.remove(&id).and_then(|task| task.dead);
            let mut end = dead.expect("only the dead were chosen").end;
            end.survivors = self.strays.len();
            self.tell(&FromLauncher::Exited { task: id, end })?;
        }
        Ok(())
    }

    fn look_at_limits(&mut self) -> io::Result<()> {
        let now = now_ns();
        let mut hits = Vec::new();
        for (id, task) in &mut self.tasks {
            let Some(watched) = task.watched.as_mut().filter(|_| task.dead.is_none()) else {
                continue;
            };
            if watched.wake_at_ns().is_none_or(|at| at > now) {
                continue;
            }
            // A cause is recorded only while the leader lives: who ended by itself was not stopped by us.
            let due = if is_running(task.pid) {
                watched.due(now, task.pid)
            } else {
                Due::Nothing
            };
            let generation = watched.generation;
            match due {
                Due::Nothing => {}
                Due::Warn(cause, signal) => {
                    hits.push((*id, generation, cause));
                    if let (Some(pidfd), Some(signal)) = (&task.pidfd, signal) {
                        // It may have ended just now; then there is nobody to warn.
                        signals::send(pidfd, signal).ok();
                    }
                }
                Due::Stop(cause) => {
                    hits.push((*id, generation, cause));
                    task.kill();
                }
                Due::Kill => task.kill(),
            }
        }
        hits.into_iter()
            .try_for_each(|(task, generation, cause)| self.hit(task, generation, cause))
    }

    fn hit(&self, task: TaskId, generation: u32, cause: Cause) -> io::Result<()> {
        self.tell(&FromLauncher::Hit {
            task,
            generation,
            cause,
        })
    }

    fn fail(&self, task: TaskId, step: Step, errno: i32) -> io::Result<()> {
        self.tell(&FromLauncher::Failed { task, step, errno })
    }

    /// Blocks if the engine does not read, as it must: a lost fact would be a leaked call. The engine's death ends it.
    fn tell(&self, message: &FromLauncher) -> io::Result<()> {
        packet::send_or_die_with(self.socket.as_fd(), message, self.engine.as_fd())
    }

    fn watch_fd(&self, fd: BorrowedFd<'_>, id: TaskId) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(TASKS + id.0),
            epoll::EventFlags::IN,
        )?)
    }

    /// The engine is gone: nothing of it may stay.
    fn end_everything(&mut self) {
        for task in self.tasks.values_mut() {
            task.kill();
        }
        self.forks.clear();
        let give_up = now_ns() + SURVIVOR_NS;
        self.by_pid.clear(); // from here on every child is a stray
        while now_ns() < give_up {
            while let Ok(Some(reaped)) = reap_any() {
                self.strays.reaped(reaped.pid);
            }
            if self.strays.sweep(&self.by_pid, None, 0).is_err() || self.strays.is_empty() {
                break;
            }
            let mut wait = [rustix::event::PollFd::new(
                &self.signals,
                rustix::event::PollFlags::IN,
            )];
            let pause = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            };
            rustix::event::poll(&mut wait, Some(&pause)).ok(); // woken early or late, the next look decides
            signals::drain(&self.signals);
        }
        if let Some((parent, name)) = self.scratch.take() {
            remove::remove_tree(parent.as_fd(), name).ok(); // nobody is left to tell
        }
    }
}

impl Task {
    fn new(pid: i32, pidfd: Option<OwnedFd>, role: Role) -> Self {
        Self {
            pid,
            pidfd,
            role,
            watched: None,
            ended: None,
            dead: None,
        }
    }

    fn kill(&mut self) {
        if let Some(pidfd) = &self.pidfd {
            signals::send(pidfd, rustix::process::Signal::KILL.as_raw()).ok(); // already gone is as good
        }
    }

    /// Its first process was reaped; what it left behind is looked for next.
    fn bury(&mut self, reaped: &Reaped) {
        let now = now_ns();
        let end = End {
            status: reaped.status,
            at_ns: now,
            user_ns: reaped.user_ns,
            system_ns: reaped.system_ns,
            max_rss_bytes: reaped.max_rss_bytes,
            sampled_rss_bytes: self
                .watched
                .as_ref()
                .and_then(|watched| watched.peak_rss_bytes),
            leaked: 0,
            survivors: 0,
        };
        self.pidfd = None;
        self.dead = Some(Dead {
            end,
            give_up_ns: now + SURVIVOR_NS,
        });
    }
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
