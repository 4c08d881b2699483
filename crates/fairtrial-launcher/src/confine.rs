//! What confines a task, prepared before its process exists.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::OwnedFd;

use fairtrial_exec::linux::cgroup::{Access, EngineName, Kind, Leaf, LeafLimits, Leaves};
use fairtrial_exec::linux::confine::{self, Birth, Means};
use fairtrial_exec::linux::monotonic::now_ns;
use fairtrial_exec::linux::plan::Plan;
use fairtrial_exec::linux::proc_status::Stat;
use fairtrial_exec::linux::proc_tree::descendants;
use fairtrial_exec::linux::spawn::WayIn;
use fairtrial_exec::linux::user_namespace::UserNamespace;
use fairtrial_exec::linux::world::{self, Init, Inside, Lifeline};
use fairtrial_exec::protocol::launcher::{
    Confine, LeafCounts, Namespaces, Program, Step, TaskId, TreeUpper,
};
use rustix::fs::StatVfs;

use crate::serve::Launcher;

/// What the namespaces of all calls have in common.
pub(crate) struct Nest {
    /// None as long as nobody wanted it.
    users: Option<UserNamespace>,
    lifeline: Lifeline,
    taken: BTreeSet<u32>,
    /// Those that could be set up, their directories apart.
    proven: HashSet<Namespaces>,
    /// Inits of namespaces of processes that nobody is in: one is like the other, and lent again.
    spare: Vec<Init>,
    /// User namespaces in which quotas are counted apart, and that nobody is in.
    spare_quotas: Vec<UserNamespace>,
}

/// The name of what belongs to no task.
const NOBODY: TaskId = TaskId(u64::MAX);

/// More than that are ended.
const MOST_SPARE: usize = 64;

/// What confines one task, beside what its process does itself.
#[derive(Default)]
pub(crate) struct Cell {
    pub(crate) leaf: Option<Leaf>,
    pub(crate) init: Option<Init>,
    /// Its task is in namespaces of an init's, or is to be, whether that lives or not.
    pub(crate) has_namespaces: bool,
    /// Another task can have the init once nobody else is in its namespace.
    lent: bool,
    /// So it was seen.
    vacated: Option<Init>,
    pub(crate) user: Option<u32>,
    /// The user namespace in which quotas are counted for its task alone.
    quotas: Option<UserNamespace>,
    /// Its namespaces are this process's own but for those that the init made: there is no user namespace.
    by_root: bool,
    /// Its directory, if that has a quota.
    scratch: Option<Vec<u8>>,
    /// Where changes to its tree go, if it has one.
    tree: Option<TreeUpper>,
    /// The directory that this is.
    upper: Option<OwnedFd>,
    /// What its init could not do.
    failure: Option<Refusal>,
    /// Processes besides the leader when it ended.
    pub(crate) leaked: Option<u64>,
    /// The quota was used up when somebody last looked.
    pub(crate) scratch_full: bool,
    /// So was that of its tree.
    pub(crate) upper_full: bool,
}

impl Cell {
    /// What the cgroup counted so far.
    pub(crate) fn counts(&self) -> Option<LeafCounts> {
        let counters = self.leaf.as_ref()?.counters();
        let memory_limit = counters.memory_limit_killed();
        Some(LeafCounts {
            memory_limit,
            host_memory: counters.oom_kill.unwrap_or(0) > 0 && !memory_limit,
            refused: counters.refused.unwrap_or(0),
            peak_bytes: counters.peak.map(|peak| peak.bytes),
            cpu_ns: counters.cpu_ns,
            throttled_ns: counters.throttled_ns,
            memory_stall_ns: counters.memory_stall_ns,
        })
    }

    /// Opens the directory that changes to its tree go to, as long as there is an init to ask. Held from then on.
    pub(crate) fn hold_upper(&mut self) -> io::Result<()> {
        if let (Some(_), None, Some(init)) = (&self.tree, &self.upper, &self.init) {
            self.upper = Some(init.upper()?);
        }
        Ok(())
    }

    /// What its task changed.
    pub(crate) fn take_upper(&mut self) -> Option<OwnedFd> {
        self.upper.take()
    }

    /// Its init ended.
    pub(crate) fn lose(&mut self, pid: i32) {
        if let Some(init) = self.init.take_if(|init| init.pid == pid) {
            self.failure = self.failure.or(init.told_failure());
        }
    }

    /// What its init could not do, if that is why there is none. An init says it once, so it is kept.
    pub(crate) fn failure(&mut self) -> Option<Refusal> {
        if self.failure.is_none() {
            self.failure = self.init.as_ref().and_then(Init::told_failure);
        }
        self.failure
    }

    /// Whether nothing of the task is left in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.init.is_none() && self.leaf.as_ref().is_none_or(Leaf::is_empty)
    }

    /// Whether it is known that no process of the task is left.
    fn is_known_empty(&self) -> bool {
        match &self.leaf {
            Some(leaf) => leaf.is_empty(),
            None => self.has_namespaces && self.init.is_none(),
        }
    }

    /// The leader was reaped: an init that is left alone with an empty namespace is none of this task's any more.
    pub(crate) fn vacate(&mut self) {
        if self.lent && self.init.as_ref().is_some_and(Init::is_alone) {
            self.vacated = self.init.take();
        }
    }

    /// Ends all that is in it; `false` where the kernel does not do that at once, and what forks meanwhile may be left.
    pub(crate) fn kill(&mut self, leader: i32, leader_lives: bool) -> bool {
        self.look(leader);
        let at_once = match &self.leaf {
            Some(leaf) if !leaf.kill() => {
                leaf.kill_anyhow();
                false
            }
            leaf => leaf.is_some(),
        };
        // A leader without company is ended by itself; should it make some just now, that is found when it is reaped.
        let alone = self.lent && leader_lives && self.leaked == Some(0);
        if let Some(init) = self.init.as_ref().filter(|_| !alone) {
            init.kill();
        }
        at_once || self.init.is_some()
    }

    /// Looks who is left besides the leader, and whether the quota is used up, while there is still somebody to look at.
    pub(crate) fn look(&mut self, leader: i32) {
        if self.leaked.is_none() {
            self.leaked = match (&self.leaf, &self.init) {
                (Some(leaf), _) => {
                    let others = leaf.processes().into_iter().filter(|pid| *pid != leader);
                    Some(others.count() as u64)
                }
                // Orphans in its namespace are the init's, once their own parent is gone.
                (None, Some(init)) => {
                    let below = alive_below(init.pid).zip(alive_below(leader));
                    below.map(|(orphans, others)| orphans + others)
                }
                (None, None) => None,
            };
        }
        if let (Some(init), Some(scratch)) = (&self.init, &self.scratch) {
            let mut path = format!("/proc/{}/root", init.pid).into_bytes();
            path.extend(scratch);
            // What cannot be asked any more is as it was.
            self.scratch_full |= rustix::fs::statvfs(path.as_slice()).is_ok_and(is_full);
        }
        self.hold_upper().ok(); // where it matters that this fails, it has been tried before
        if let (Some(TreeUpper::Memory { .. }), Some(upper)) = (&self.tree, &self.upper) {
            self.upper_full |= rustix::fs::fstatvfs(upper).is_ok_and(is_full);
        }
    }
}

fn is_full(quota: StatVfs) -> bool {
    // Without a quota there are none at all.
    let no_blocks = quota.f_blocks > 0 && quota.f_bfree == 0;
    no_blocks || (quota.f_files > 0 && quota.f_ffree == 0)
}

/// Processes below one that have not ended. Unknown if all that were seen were just ending: they may be followed by others.
fn alive_below(pid: i32) -> Option<u64> {
    let below = descendants(pid.cast_unsigned()).ok()?;
    let alive = |pid: &&u32| Stat::read(**pid).is_ok_and(|stat| !stat.is_exiting());
    let count = below.iter().filter(alive).count() as u64;
    (count > 0 || below.is_empty()).then_some(count)
}

/// A step that could not be prepared, and why.
pub(crate) type Refusal = (Step, i32);

impl Launcher {
    /// The system calls by which a task confines itself, and what goes with them.
    pub(crate) fn confine(
        &mut self,
        task: TaskId,
        confine: Option<&Confine>,
        birth: Birth,
        ahead: bool,
    ) -> Result<(Plan, Cell), Refusal> {
        let Some(confine) = confine else {
            return Ok((Plan::default(), Cell::default()));
        };
        let mut cell = Cell::default();
        match self.fill(&mut cell, task, confine, birth, ahead) {
            Ok(plan) => Ok((plan, cell)),
            Err(refusal) => {
                self.abandon(cell);
                Err(refusal)
            }
        }
    }

    fn fill(
        &mut self,
        cell: &mut Cell,
        task: TaskId,
        confine: &Confine,
        birth: Birth,
        ahead: bool,
    ) -> Result<Plan, Refusal> {
        let mut means = Means::default();
        if let Some(limits) = &confine.leaf {
            cell.leaf = self.leaf(limits).map_err(at(Step::Leaf))?;
            let joins = cell.leaf.iter().flat_map(|leaf| leaf.joins(ahead));
            let joins = joins.map(|join| join.try_clone_to_owned());
            means.orphans_are_known = cell.leaf.as_ref().is_some_and(Leaf::limits_all);
            means.joins = joins
                .collect::<io::Result<_>>()
                .map_err(at(Step::Descriptors))?;
        }
        if let Some(namespaces) = &confine.namespaces {
            let tree = confine.tree.as_ref();
            cell.by_root = tree.is_some_and(|tree| tree.by_root);
            let nest = self.nest(!cell.by_root).map_err(at(Step::Namespaces))?;
            if let Namespaces::All(world) = namespaces {
                // A tree and what is changed in it belong to the engine's own user.
                cell.user = if tree.is_none() && !world.as_caller {
                    nest.take_user()
                } else {
                    None
                };
                cell.scratch = Some(world.scratch.clone());
            }
            cell.tree = tree.map(|tree| tree.upper.clone());
            let processes = *namespaces == Namespaces::Processes;
            (cell.has_namespaces, cell.lent) = (true, processes && tree.is_none());
            let inside = Inside {
                namespaces,
                tree,
                writable: confine.landlock.as_ref().map(|kept| &kept.writable[..]),
                user: cell.user,
            };
            let init = nest.init(inside, cell.by_root);
            let init = cell.init.insert(init.map_err(at(Step::Namespaces))?);
            let proved = nest.prove(inside, init);
            self.by_pid.insert(init.pid, task); // whatever came of it, it is reaped as what it is
            proved?;
            means.orphans_are_known = true;
            let way_in = init.pidfd.try_clone().map_err(at(Step::Descriptors))?;
            (means.user, means.init) = (cell.user, Some((way_in, init.ready.take())));
        }
        if let Some(sharers) = confine.own_quotas {
            let nest = self.nest(true).map_err(at(Step::Namespaces))?;
            let quotas = nest.take_quotas(sharers).map_err(at(Step::Namespaces))?;
            let quotas = cell.quotas.insert(quotas).file().try_clone();
            means.quotas = Some(quotas.map_err(at(Step::Descriptors))?);
        }
        confine::plan(confine, means, birth).map_err(at(Step::Landlock))
    }

    /// Its streams are its own, to be opened by name too.
    pub(crate) fn hand_over(&self, cell: &Cell, streams: &[OwnedFd]) {
        if let Some(user) = cell.user {
            let (user, group) = (
                rustix::fs::Uid::from_raw(user),
                rustix::fs::Gid::from_raw(user),
            );
            // Only what was made for it: its input may be a file of somebody else's, or `/dev/null`.
            let is_pipe = |stream: &&OwnedFd| {
                rustix::fs::fstat(stream).is_ok_and(|stat| {
                    rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo
                })
            };
            for stream in streams.iter().filter(is_pipe) {
                rustix::fs::fchown(stream, Some(user), Some(group)).ok(); // they work without
            }
        }
    }

    /// The plan of a zygote, which may have to fork tasks with namespaces of their own.
    pub(crate) fn groundwork(&mut self, program: &Program) -> Result<Plan, Refusal> {
        let Some(confine) = &program.confine else {
            return Ok(Plan::default());
        };
        let users = if program.nest {
            let nest = self.nest(true).map_err(at(Step::Namespaces))?;
            let users = nest.users.as_ref().expect("just made");
            Some(users.file().try_clone().map_err(at(Step::Descriptors))?)
        } else {
            None
        };
        Ok(confine::groundwork(confine, users))
    }

    /// It is not needed: its task will not be, or is no more.
    pub(crate) fn abandon(&mut self, mut cell: Cell) {
        let quotas = cell.quotas.take().filter(|_| cell.is_known_empty());
        if let Some(init) = &cell.init {
            init.kill();
        }
        if let (Some(leaf), Some(leaves)) = (cell.leaf, &mut self.leaves) {
            leaves.give_back(leaf, now_ns());
        }
        let Some(nest) = &mut self.nest else {
            return;
        };
        if let Some(user) = cell.user {
            nest.taken.remove(&user);
        }
        nest.spare_quotas.extend(quotas);
        nest.spare_quotas.truncate(MOST_SPARE);
        match cell.vacated {
            Some(init) if nest.spare.len() < MOST_SPARE => {
                self.by_pid.insert(init.pid, NOBODY);
                nest.spare.push(init);
            }
            Some(init) => init.kill(),
            None => {}
        }
    }

    /// An init ended, perhaps one that was nobody's.
    pub(crate) fn forget_spare(&mut self, pid: i32) {
        if let Some(nest) = &mut self.nest {
            nest.spare.retain(|spare| spare.pid != pid);
        }
    }

    /// A cgroup of its own, where such can be had.
    fn leaf(&mut self, limits: &LeafLimits) -> io::Result<Option<Leaf>> {
        if !self.looked_for_leaves {
            let access = Access::find_without(&self.without);
            // Without any, limits are watched from outside; the engine has looked, too.
            if access.kind() != Kind::None {
                let name = EngineName::new(std::process::id(), 0)?;
                self.leaves = Some(Leaves::new(&access, &name)?);
            }
            self.looked_for_leaves = true;
        }
        let leaves = self.leaves.as_mut();
        leaves.map(|leaves| leaves.take(limits)).transpose()
    }

    /// What leads a process to the namespaces of its cell, if it has any.
    pub(crate) fn way_in<'a>(&'a self, cell: &'a Cell) -> Option<WayIn<'a>> {
        let (init, nest) = (cell.init.as_ref()?, self.nest.as_ref()?);
        let users = nest.users.as_ref().filter(|_| !cell.by_root);
        let init = &init.pidfd;
        Some(WayIn { users, init })
    }

    fn nest(&mut self, with_users: bool) -> io::Result<&mut Nest> {
        if self.nest.is_none() {
            self.nest = Some(Nest {
                users: None,
                lifeline: Lifeline::new()?,
                taken: BTreeSet::new(),
                proven: HashSet::new(),
                spare: Vec::new(),
                spare_quotas: Vec::new(),
            });
        }
        let nest = self.nest.as_mut().expect("just made");
        if with_users && nest.users.is_none() {
            nest.users = Some(UserNamespace::create()?);
        }
        Ok(nest)
    }
}

/// Kinds of namespaces that are remembered.
const MOST_PROVEN: usize = 256;

impl Nest {
    fn init(&mut self, inside: Inside<'_>, by_root: bool) -> io::Result<Init> {
        let spare = match (inside.namespaces, inside.tree) {
            (Namespaces::Processes, None) => self.spare.pop(),
            _ => None,
        };
        let users = self.users.as_ref().filter(|_| !by_root);
        match spare {
            Some(init) => Ok(init),
            None => world::start(users, inside, &self.lifeline),
        }
    }

    /// The first of its kind is waited for, since only its init knows why something cannot be mounted. The others are
    /// waited for by their own processes, which just end if there is nothing to wait for. Of a tree nothing is known
    /// beforehand: its init is asked when its process did not come about.
    fn prove(&mut self, inside: Inside<'_>, init: &Init) -> Result<(), Refusal> {
        if inside.tree.is_some() {
            return Ok(());
        }
        let mut kind = inside.namespaces.clone();
        if let Namespaces::All(world) = &mut kind {
            world.scratch.clear();
        }
        if self.proven.contains(&kind) {
            return Ok(());
        }
        init.is_mounted()?;
        if self.proven.len() < MOST_PROVEN {
            self.proven.insert(kind);
        }
        Ok(())
    }

    /// A user namespace in which nobody is.
    fn take_quotas(&mut self, sharers: u32) -> io::Result<UserNamespace> {
        match (self.spare_quotas.pop(), &self.users) {
            (Some(spare), _) => Ok(spare),
            (None, Some(users)) => users.with_own_quotas(sharers),
            (None, None) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A user that no other living call has.
    fn take_user(&mut self) -> Option<u32> {
        let (base, count) = self.users.as_ref()?.slots?;
        let free = (base..base + count).find(|user| !self.taken.contains(user));
        let user = free.unwrap_or(base); // more calls than users: some share one
        self.taken.insert(user);
        Some(user)
    }
}

fn at(step: Step) -> impl Fn(io::Error) -> Refusal {
    move |error| (step, error.raw_os_error().unwrap_or(0))
}
