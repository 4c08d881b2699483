//! The launcher and the warm interpreters: started when a call needs them, ended when none does.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::member::Member;
use super::pool::{ADVICE, Pool, SPAWN_TRIES, START_FAILURES};
use super::queue::{COMMANDS, Lane};
use super::room::no_room;
use crate::aside::aside;
use crate::clock::Clock;
use crate::dispatch::Dispatch;
use crate::dispatch::{Context, PoolNews, Site, WorkerNumber, ZygoteEnd};
use crate::environment::Environment;
use crate::error::EngineError;
use crate::event::ExitReason;
use crate::foreign_host;
use crate::launcher::Launcher;
use crate::linux::cgroup::{Access, sweep_dead_owners};
use crate::linux::spawn::descriptor_limit;
use crate::linux::sweep;
use crate::outcome::ErrorReport;
use crate::protocol::launcher::ToLauncher;
use crate::sandbox::parts_withheld;
use crate::scratch::{ScratchRoot, sweep_dead_roots};
use crate::spill::SpillDir;
use crate::verdict::Verdict;
use crate::zygote::{self, Key, Warm, ZygoteHandle, setup_error};

/// What calls of one lane wait for.
pub(super) struct LaneState {
    /// None for commands.
    pub(super) key: Option<Key>,
    pub(super) zygote: ZygoteState,
    /// Zygotes that died in a row without a word.
    pub(super) failures: u32,
    pub(super) fresh_calls: u64,
    pub(super) last_used: Instant,
}

impl LaneState {
    pub(super) fn new(key: Option<Key>) -> Self {
        Self {
            key,
            zygote: ZygoteState::None,
            failures: 0,
            fresh_calls: 0,
            last_used: Instant::now(),
        }
    }
}

/// Whether a lane has its zygote.
pub(super) enum ZygoteState {
    None,
    Warming(ZygoteHandle),
    Ready { handle: ZygoteHandle, warm: Warm },
}

impl Pool {
    pub(super) fn warm_interpreters(&mut self, site: &Site) {
        for lane in self.queue.lanes() {
            if lane == COMMANDS || !matches!(self.lanes[&lane].zygote, ZygoteState::None) {
                continue;
            }
            if !self.room_for_zygote() {
                return;
            }
            self.numbers += 1;
            let state = self.state(lane);
            let key = state.key.clone().expect("only commands have no key");
            match zygote::start(site, self.numbers, &key) {
                Ok(handle) => self.state(lane).zygote = ZygoteState::Warming(handle),
                Err(source) => return self.no_zygote(lane, "making its channels".into(), source),
            }
        }
    }

    /// Of a lane that is in use, and so not forgotten.
    pub(super) fn state(&mut self, lane: Lane) -> &mut LaneState {
        self.lanes.get_mut(&lane).expect("it is in use")
    }

    /// At most so many zygotes: the idle one used longest ago ends first. `false` if all are wanted.
    fn room_for_zygote(&mut self) -> bool {
        let alive = self
            .lanes
            .values()
            .filter(|lane| !matches!(lane.zygote, ZygoteState::None))
            .count();
        if alive < self.config.max_zygotes {
            return true;
        }
        let idle = self.lanes.iter_mut().filter(|(number, lane)| {
            matches!(lane.zygote, ZygoteState::Ready { .. }) && !self.queue.has(**number)
        });
        match idle.min_by_key(|(_, lane)| lane.last_used) {
            Some((_, lane)) => {
                lane.zygote = ZygoteState::None; // dropping the handle ends it; its workers go on
                true
            }
            None => false,
        }
    }

    /// The launcher and what goes with it, started on first use. Without them every queued call fails.
    pub(super) async fn site(&mut self) -> Option<Site> {
        if let Some(site) = self.site.as_ref().filter(|site| !site.launcher.is_lost()) {
            return Some(site.clone());
        }
        self.launcher_lost().await; // the news of it may come later than the next call
        match self.new_site().await {
            Ok(site) => Some(self.site.insert(site).clone()),
            Err(error) => {
                let text = error.to_string();
                let mut first = Some(error);
                for dispatch in self.queue.drain_all() {
                    let error = first.take().unwrap_or_else(|| EngineError::Unavailable {
                        problem: text.clone(),
                    });
                    self.resolve(dispatch, Err(error));
                }
                None
            }
        }
    }

    async fn new_site(&mut self) -> Result<Site, EngineError> {
        if let Some(problem) = no_room(descriptor_limit()) {
            return Err(EngineError::Unavailable { problem });
        }
        let context = match self.site.take() {
            Some(site) => site.context,
            None => Rc::new(self.new_context()?),
        };
        let parts = parts_withheld(&self.config.without);
        let launcher = Launcher::start(self.config.launcher.as_deref(), &parts).await?;
        tell_scratch_root(&launcher, &context.scratch.borrow())?;
        let (serving, news) = (launcher.clone(), self.news_sender.clone());
        context.spawn(async move {
            serving.serve().await;
            news.send(PoolNews::LauncherLost).ok(); // the pool has ended: nobody to tell
        });
        Ok(Site { context, launcher })
    }

    fn new_context(&self) -> Result<Context, EngineError> {
        let spill = SpillDir::new(&self.config.spill_dir);
        let scratch = ScratchRoot::create(&spill)?;
        if let Err(error) = sweep_dead_roots(&spill) {
            log::warn!("cannot remove what dead engines left: {error}");
        }
        Ok(Context {
            config: self.config.clone(),
            environment: Environment::new(&self.config),
            means: self.means.clone(),
            clock: Clock::start(),
            spill,
            scratch: RefCell::new(scratch),
            next_scratch: Cell::new(1),
            spare_scratch: RefCell::default(),
            removals: RefCell::new(JoinSet::new()),
            news: self.news_sender.clone(),
        })
    }

    /// Whether the directory in which calls have theirs was removed, moved or replaced.
    pub(super) fn scratch_is_lost(&self) -> bool {
        foreign_host::check_all();
        let site = self.site.as_ref();
        site.is_some_and(|site| !site.context.scratch.borrow().is_in_place())
    }

    /// Whether it was when this worker was started, or is now.
    pub(super) fn had_no_scratch(&self, worker: WorkerNumber) -> bool {
        let older = |at: Instant| self.workers.get(&worker).is_none_or(|it| it.born < at);
        self.scratch_renewed.is_some_and(older) || self.scratch_is_lost()
    }

    /// A call that could not begin for want of its directory: the engine makes a new root for all, and the call is
    /// tried again.
    pub(super) fn try_with_new_scratch(&mut self, lane: Lane, mut dispatch: Dispatch) {
        dispatch.failed_spawns += 1;
        let renewed = match &self.site {
            Some(_) if dispatch.failed_spawns < SPAWN_TRIES && !self.scratch_is_lost() => Ok(()),
            Some(site) if dispatch.failed_spawns < SPAWN_TRIES => {
                self.scratch_renewed = Some(Instant::now());
                renew_scratch(site)
            }
            _ => Err(EngineError::SpillDir {
                dir: self.config.spill_dir.clone(),
                problem: "it was removed or replaced again and again while calls ran".into(),
            }),
        };
        if let Err(error) = renewed {
            return self.resolve(dispatch, Err(error));
        }
        // What they may write to is the old one.
        let stale = |member: &Member| self.scratch_renewed.is_some_and(|at| member.born < at);
        for member in self.workers.values_mut().filter(|member| stale(member)) {
            member.spoilt = true;
        }
        self.retire_idle(ExitReason::AfterError, |_| true);
        self.requeue(lane, dispatch);
    }

    pub(super) fn zygote_ready(&mut self, number: u64, warm: Warm) {
        let Some(lane) = self.lane_of_zygote(number) else {
            return;
        };
        let lane = self.state(lane);
        lane.failures = 0;
        lane.last_used = Instant::now();
        if let ZygoteState::Warming(handle) = std::mem::replace(&mut lane.zygote, ZygoteState::None)
        {
            lane.zygote = ZygoteState::Ready { handle, warm };
        }
    }

    pub(super) fn zygote_gone(&mut self, number: u64, why: ZygoteEnd) {
        let Some(lane) = self.lane_of_zygote(number) else {
            return;
        };
        let state = self.state(lane);
        state.zygote = ZygoteState::None;
        match why {
            ZygoteEnd::Ended => {}
            ZygoteEnd::Refused(report) => self.give_up(lane, &report),
            ZygoteEnd::Died(problem) => {
                state.failures += 1;
                if state.failures >= START_FAILURES {
                    state.failures = 0;
                    self.give_up(lane, &setup_error(problem));
                }
            }
            ZygoteEnd::Killed => {
                state.failures += 1;
                if state.failures >= START_FAILURES {
                    state.failures = 0;
                    let python = state.key.as_ref().map_or("", |key| &key.python);
                    let what = format!("the interpreter `{python}`");
                    for dispatch in self.queue.drain(lane) {
                        let (what, times) = (what.clone(), START_FAILURES);
                        self.resolve(dispatch, Err(EngineError::Killed { what, times }));
                    }
                }
            }
            ZygoteEnd::Spawn { step, errno } => {
                self.no_zygote(
                    lane,
                    step.name().into(),
                    io::Error::from_raw_os_error(errno),
                );
            }
        }
    }

    /// The set-up cannot succeed: calls that wait for it fail, other keys go on.
    fn give_up(&mut self, lane: Lane, report: &ErrorReport) {
        for dispatch in self.queue.drain(lane) {
            self.resolve_unstarted(dispatch, Verdict::SetupFailed, report.clone());
        }
    }

    /// No process for a zygote: as when there is none for the oldest call that waits for it.
    fn no_zygote(&mut self, lane: Lane, step: String, source: io::Error) {
        if let Some((lane, dispatch)) = self.queue.pop(|other| other == lane) {
            self.try_again(lane, dispatch, step, source);
        }
    }

    fn lane_of_zygote(&self, number: u64) -> Option<Lane> {
        let has = |lane: &LaneState| match &lane.zygote {
            ZygoteState::None => false,
            ZygoteState::Warming(handle) | ZygoteState::Ready { handle, .. } => {
                handle.number == number
            }
        };
        let found = self.lanes.iter().find(|(_, lane)| has(lane));
        found.map(|(number, _)| *number)
    }

    /// Everybody below it has a parent-death signal; what had freed itself from that is found by its mark.
    pub(super) async fn launcher_lost(&mut self) {
        let Some(site) = self
            .site
            .as_ref()
            .filter(|site| site.launcher.is_lost())
            .cloned()
        else {
            return;
        };
        let marks: Vec<String> = self
            .workers
            .values()
            .map(|member| member.id.clone())
            .collect();
        site.launcher.end().await;
        let (adopts_orphans, confined) = (self.config.adopts_orphans, self.confined);
        let sweep = move || {
            if confined {
                sweep_cgroups(); // the dead launcher's too
            }
            if adopts_orphans {
                sweep::kill_orphans();
            }
            sweep::kill_marked(&marks);
        };
        aside(sweep).await;
        for lane in self.lanes.values_mut() {
            lane.zygote = ZygoteState::None;
        }
    }
}

fn renew_scratch(site: &Site) -> Result<(), EngineError> {
    let context = &site.context;
    log::warn!(
        target: ADVICE,
        "the scratch directory `{}` is gone: calls get another",
        context.scratch.borrow().path().display()
    );
    let root = ScratchRoot::create(&context.spill)?;
    tell_scratch_root(&site.launcher, &root)?;
    context.spare_scratch.borrow_mut().clear();
    context.scratch.replace(root);
    Ok(())
}

/// So that the launcher removes it, should the engine be killed.
fn tell_scratch_root(launcher: &Launcher, root: &ScratchRoot) -> Result<(), EngineError> {
    let attempt = EngineError::io("opening the directory of the scratch root");
    let (parent, name) = root.place().map_err(attempt)?;
    launcher.send(
        ToLauncher::ScratchRoot {
            name: name.as_bytes().to_vec(),
        },
        vec![parent],
    );
    Ok(())
}

/// Ends what is in the cgroups of dead launchers, and removes them (SB-11, SB-12).
pub(super) fn sweep_cgroups() {
    if let Err(error) = sweep_dead_owners(&Access::find()) {
        log::warn!("cannot remove control groups that dead engines left: {error}");
    }
}
