//! Workers that zygotes fork on request, and zygotes that come and go.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fairtrial_exec::linux::confine::Birth;
use fairtrial_exec::linux::monotonic::now_ns;
use fairtrial_exec::linux::wait::is_child;
use fairtrial_exec::linux::{socket, spawn};
use fairtrial_exec::protocol::launcher::{Confine, FromLauncher, Step, TaskId, ToLauncher};
use fairtrial_exec::protocol::zygote::{ANSWER_BYTES, Answer, MOST_REQUEST_BYTES};
use rustix::event::epoll;
use rustix::io::Errno;

use crate::confine::Cell;
use crate::orphans;
use crate::serve::Launcher;
use crate::task::{Request, Role, Task};

/// A request that a zygote has not answered.
pub(crate) struct Fork {
    pub(crate) task: Option<TaskId>,
    pub(crate) zygote: TaskId,
    /// What the engine said of the worker meanwhile: that can be quicker to serve a call than we are to hear of it.
    pub(crate) early: Vec<ToLauncher>,
    /// What is to confine it.
    pub(crate) cell: Cell,
}

impl Launcher {
    pub(crate) fn fork(
        &mut self,
        task: TaskId,
        zygote: TaskId,
        confine: Option<&Confine>,
        mut fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let (plan, cell) = match self.confine(task, confine, Birth::Forked, false) {
            Ok(confined) => confined,
            Err((step, errno)) => return self.fail(task, step, errno),
        };
        self.hand_over(&cell, &fds[1..]);
        let number = self.last_fork + 1;
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.push(plan.way_in().map_or(0, |at| at + fds.len() as u8));
        if confine.is_some() {
            bytes.append(&mut plan.to_bytes());
        }
        if bytes.len() > MOST_REQUEST_BYTES {
            self.abandon(cell); // too many places that may be written, which is what makes a plan long
            return self.fail(task, Step::Landlock, Errno::TOOBIG.raw_os_error());
        }
        fds.extend(plan.into_descriptors());
        if let Some(Task {
            role: Role::Zygote { waiting, .. },
            ..
        }) = self.tasks.get_mut(&zygote)
        {
            waiting.push_back(Request { number, bytes, fds });
        } else {
            self.abandon(cell);
            return self.fail(task, Step::Zygote, Errno::SRCH.raw_os_error());
        }
        self.last_fork = number;
        let fork = Fork {
            task: Some(task),
            zygote,
            early: Vec::new(),
            cell,
        };
        self.forks.insert(number, fork);
        self.send_waiting(zygote)
    }

    /// Sends a zygote what waits for room in its socket: there is some at the latest when it has answered.
    fn send_waiting(&mut self, zygote: TaskId) -> io::Result<()> {
        let Some(Task {
            role: Role::Zygote { control, waiting },
            ..
        }) = self.tasks.get_mut(&zygote)
        else {
            return Ok(());
        };
        while let Some(request) = waiting.front() {
            let fds: Vec<BorrowedFd<'_>> = request.fds.iter().map(AsFd::as_fd).collect();
            let wait = socket::Wait::Never;
            match socket::send_with_fds(control.as_fd(), &request.bytes, &fds, wait) {
                Ok(_) => drop(waiting.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    let number = request.number;
                    waiting.pop_front();
                    let worker = Err(error.raw_os_error().unwrap_or(0));
                    self.answered(zygote, Answer { number, worker })?;
                    return self.send_waiting(zygote);
                }
            }
        }
        Ok(())
    }

    /// All that a zygote has to say now.
    pub(crate) fn hear_zygote(&mut self, id: TaskId) -> io::Result<()> {
        loop {
            let Some(Task {
                role: Role::Zygote { control, .. },
                ..
            }) = self.tasks.get(&id)
            else {
                return Ok(());
            };
            let mut bytes = [0; ANSWER_BYTES + 1]; // room to see that there is more
            match rustix::net::recv(control, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return self.send_waiting(id),
                Err(_) => return self.zygote_lost(id),
                Ok((count, _)) => match Answer::decode(&bytes[..count]) {
                    Some(answer) if self.can_be(&answer) => self.answered(id, answer)?,
                    _ => return self.zygote_lost(id),
                },
            }
        }
    }

    /// Whether it names a child of ours that nothing is known of: anybody else's process is not ours to kill.
    fn can_be(&self, answer: &Answer) -> bool {
        answer.worker.is_err()
            || answer.worker.is_ok_and(|pid| {
                answer.number == 0
                    || self.unclaimed.contains_key(&pid)
                    || (is_child(pid) && !self.by_pid.contains_key(&pid))
            })
    }

    fn answered(&mut self, zygote: TaskId, answer: Answer) -> io::Result<()> {
        if let (0, Ok(pid)) = (answer.number, answer.worker) {
            self.forks
                .retain(|_, fork| !(fork.zygote == zygote && fork.task.is_none()));
            self.announced(zygote, pid);
            return Ok(());
        }
        let Some(Fork {
            task: Some(task),
            early,
            cell,
            ..
        }) = self.forks.remove(&answer.number)
        else {
            return Ok(());
        };
        match answer.worker {
            Ok(pid) => {
                self.forked(task, pid, cell)?;
                early.into_iter().for_each(|message| self.obey(message));
                Ok(())
            }
            Err(errno) => {
                self.abandon(cell);
                self.fail(task, Step::Zygote, errno)
            }
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

    fn forked(&mut self, id: TaskId, pid: i32, cell: Cell) -> io::Result<()> {
        self.strays.reaped(pid);
        self.by_pid.insert(pid, id);
        let pidfd = spawn::open_child(pid).ok();
        let mut task = Task::new(pid, pidfd, Role::Leader);
        task.cell = cell;
        self.tasks.insert(id, task);
        self.place(id, pid);
        self.tell(&FromLauncher::Spawned {
            task: id,
            pid: pid.cast_unsigned(),
            at_ns: now_ns(),
            before_ns: None,
        })?;
        match self.unclaimed.remove(&pid) {
            // One that ended earlier and had the same number.
            Some(orphan) if is_child(pid) => {
                orphans::charge(&mut self.tasks, &orphan);
                Ok(())
            }
            Some(orphan) => self.leader_died(id, orphan.into_reaped()),
            None => Ok(()),
        }
    }

    /// A zygote closed its socket: its forks will not be answered.
    pub(crate) fn zygote_lost(&mut self, id: TaskId) -> io::Result<()> {
        let lost: Vec<u32> = self
            .forks
            .iter()
            .filter(|(_, fork)| fork.zygote == id)
            .map(|(number, _)| *number)
            .collect();
        for number in lost {
            if let Some(Fork {
                task: Some(task),
                cell,
                ..
            }) = self.forks.remove(&number)
            {
                self.abandon(cell);
                self.fail(task, Step::Zygote, 0)?;
            }
        }
        if let Some(task) = self.tasks.get_mut(&id) {
            if let Role::Zygote { control, .. } = std::mem::replace(&mut task.role, Role::Leader) {
                epoll::delete(&self.epoll, &control)?;
            }
            match task.ended.take() {
                Some(reaped) => task.bury(&reaped),
                None => task.kill(),
            }
        }
        Ok(())
    }
}
