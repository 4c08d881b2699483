//! What confines a task, prepared before its process exists.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use fairtrial_exec::linux::confine::{self, Means};
use fairtrial_exec::linux::plan::Plan;
use fairtrial_exec::linux::user_namespace::UserNamespace;
use fairtrial_exec::linux::world::{self, Init, Lifeline};
use fairtrial_exec::protocol::launcher::{Confine, Step, TaskId};

use crate::serve::Launcher;

/// The first of the users that calls have when the engine is root's.
const FIRST_USER: u32 = 1_900_000_000;

/// What the namespaces of all calls have in common.
pub(crate) struct Nest {
    pub(crate) users: UserNamespace,
    lifeline: Lifeline,
    taken: BTreeSet<u32>,
}

/// What confines one task, beside what its process does itself.
#[derive(Default)]
pub(crate) struct Cell {
    pub(crate) init: Option<Init>,
    pub(crate) user: Option<u32>,
    /// Its directory, if that has a quota.
    scratch: Option<Vec<u8>>,
    /// The quota was used up when somebody last looked.
    pub(crate) scratch_full: bool,
}

impl Cell {
    /// Looks whether the quota is used up, while there is still somebody by whom to look.
    pub(crate) fn look(&mut self) {
        if let (Some(init), Some(scratch)) = (&self.init, &self.scratch) {
            let mut path = format!("/proc/{}/root", init.pid).into_bytes();
            path.extend(scratch);
            // What cannot be asked any more is as it was.
            self.scratch_full |= rustix::fs::statvfs(path.as_slice())
                .is_ok_and(|quota| quota.f_bfree == 0 || quota.f_ffree == 0);
        }
    }
}

/// A step that could not be prepared, and why.
pub(crate) type Refusal = (Step, i32);

impl Launcher {
    /// The system calls by which a task confines itself, and what goes with them.
    pub(crate) fn confine(
        &mut self,
        task: TaskId,
        confine: Option<&Confine>,
    ) -> Result<(Plan, Cell), Refusal> {
        let Some(confine) = confine else {
            return Ok((Plan::default(), Cell::default()));
        };
        let mut cell = Cell::default();
        let mut means = Means::default();
        if let Some(world) = &confine.world {
            let nest = self.nest().map_err(at(Step::Namespaces))?;
            cell.user = nest.take_user();
            let init = world::start(&nest.users, world, cell.user, &nest.lifeline)
                .map_err(at(Step::Namespaces))?;
            self.by_pid.insert(init.pid, task);
            let copy = |fd: &OwnedFd| fd.try_clone().map_err(at(Step::Descriptors));
            (means.user, means.init) = (cell.user, Some((copy(&init.pidfd)?, copy(&init.ready)?)));
            (cell.init, cell.scratch) = (Some(init), Some(world.scratch.clone()));
        }
        let plan = confine::plan(confine, means).map_err(at(Step::Landlock))?;
        Ok((plan, cell))
    }

    /// Its streams are its own, to be opened by name too.
    pub(crate) fn hand_over(&self, cell: &Cell, streams: &[OwnedFd]) {
        if let Some(user) = cell.user {
            let (user, group) = (
                rustix::fs::Uid::from_raw(user),
                rustix::fs::Gid::from_raw(user),
            );
            for stream in streams {
                rustix::fs::fchown(stream, Some(user), Some(group)).ok(); // they work without
            }
        }
    }

    /// The plan of a zygote that forks tasks with namespaces of their own.
    pub(crate) fn nesting_plan(&mut self) -> Result<Plan, Refusal> {
        let nest = self.nest().map_err(at(Step::Namespaces))?;
        let users = nest.users.file().try_clone();
        Ok(confine::nesting_plan(users.map_err(at(Step::Descriptors))?))
    }

    /// It is not needed: its task will not be, or is no more.
    pub(crate) fn abandon(&mut self, cell: Cell) {
        if let Some(init) = &cell.init {
            init.kill();
        }
        if let (Some(nest), Some(user)) = (&mut self.nest, cell.user) {
            nest.taken.remove(&user);
        }
    }

    fn nest(&mut self) -> io::Result<&mut Nest> {
        if self.nest.is_none() {
            self.nest = Some(Nest {
                users: UserNamespace::create(FIRST_USER)?,
                lifeline: Lifeline::new()?,
                taken: BTreeSet::new(),
            });
        }
        Ok(self.nest.as_mut().expect("just made"))
    }
}

impl Nest {
    /// A user that no other living call has.
    fn take_user(&mut self) -> Option<u32> {
        let (base, count) = self.users.slots?;
        let free = (base..base + count).find(|user| !self.taken.contains(user));
        let user = free.unwrap_or(base); // more calls than users: some share one
        self.taken.insert(user);
        Some(user)
    }
}

fn at(step: Step) -> impl Fn(io::Error) -> Refusal {
    move |error| (step, error.raw_os_error().unwrap_or(0))
}
