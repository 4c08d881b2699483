//! The engine's loop: the one owner of the queue, of the slots and of who runs what.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::queue::{COMMANDS, Lane, Queue};
use super::start::{self, Identity, NotStarted};
use crate::backend::Shutdown;
use crate::call::{Isolation, Work};
use crate::capture::Captured;
use crate::clock::{Clock, now_ns};
use crate::config::LocalConfig;
use crate::dispatch::{
    Answer, Context, Dispatch, PoolNews, Site, Unstarted, WorkerNumber, ZygoteEnd,
};
use crate::environment::Environment;
use crate::error::EngineError;
use crate::event::{CallId, Event, ExitReason};
use crate::launcher::Launcher;
use crate::linux::sweep;
use crate::metrics::Metrics;
use crate::observers::Observers;
use crate::outcome::{ErrorReport, Outcome};
use crate::protocol::launcher::{Step, ToLauncher};
use crate::sandbox::in_force;
use crate::scratch::{ScratchRoot, sweep_dead_roots};
use crate::spill::SpillDir;
use crate::verdict::Verdict;
use crate::worker::Mode;
use crate::worker::drive::ToWorker;
use crate::zygote::{self, Key, ZygoteHandle, setup_error};

/// What the backend's handle says to the loop.
pub(crate) enum Command {
    /// Run this.
    Submit(Dispatch),
    /// Nobody waits for it any more, or it is unwanted.
    Cancel(CallId),
    /// End.
    Shutdown(Shutdown, oneshot::Sender<()>),
    /// The handle is gone: end at once.
    Abandon,
}

/// A zygote that dies this often in a row without a word gives its calls up.
const START_FAILURES: u32 = 5;
/// A call that finds no process this often fails.
const SPAWN_TRIES: u32 = 3;
/// Between two such tries.
const SPAWN_PAUSE: Duration = Duration::from_millis(200);

/// The loop's state.
pub(crate) struct Pool {
    config: LocalConfig,
    observers: Arc<Observers>,
    commands: mpsc::UnboundedReceiver<Command>,
    news: mpsc::UnboundedReceiver<PoolNews>,
    news_sender: mpsc::UnboundedSender<PoolNews>,
    site: Option<Site>,
    queue: Queue,
    queue_deadlines: BTreeSet<(Instant, CallId)>,
    lanes: Vec<LaneState>,
    lane_of: HashMap<Key, Lane>,
    workers: HashMap<WorkerNumber, Member>,
    running: HashMap<CallId, WorkerNumber>,
    numbers: u64,
    generation: u32,
    id_base: u64,
    not_before: Option<Instant>,
    closing: Option<Closing>,
    /// The handle is gone: nobody waits for handlers to return.
    abandoned: bool,
}

struct LaneState {
    key: Option<Key>,
    zygote: ZygoteState,
    failures: u32,
    last_used: Instant,
}

enum ZygoteState {
    None,
    Warming(ZygoteHandle),
    Ready { handle: ZygoteHandle, threads: u32 },
}

/// A worker as the pool sees it.
struct Member {
    lane: Lane,
    mode: Mode,
    id: String,
    mailbox: mpsc::UnboundedSender<ToWorker>,
    doing: Doing,
    served: u64,
    born: Instant,
    /// Observers know of it.
    told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Call(CallId),
    Nothing { since: Instant },
    Leaving,
}

struct Closing {
    kill_at: Option<Instant>,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Pool {
    pub(crate) fn new(
        config: LocalConfig,
        observers: Arc<Observers>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let (news_sender, news) = mpsc::unbounded_channel();
        let commands_lane = LaneState {
            key: None,
            zygote: ZygoteState::None,
            failures: 0,
            last_used: Instant::now(),
        };
        Self {
            config,
            observers,
            commands,
            news,
            news_sender,
            site: None,
            queue: Queue::default(),
            queue_deadlines: BTreeSet::new(),
            lanes: vec![commands_lane],
            lane_of: HashMap::new(),
            workers: HashMap::new(),
            running: HashMap::new(),
            numbers: 0,
            generation: 0,
            id_base: crate::scratch::random(),
            not_before: None,
            closing: None,
            abandoned: false,
        }
    }

    /// Until the backend is shut down and nothing is left.
    pub(crate) async fn run(mut self) {
        loop {
            self.start_what_can_start().await;
            if self.is_done() {
                break;
            }
            let timer = self.next_timer();
            tokio::select! {
                biased;
                Some(news) = self.news.recv() => self.hear(news).await,
                command = self.commands.recv() => self.obey(command.unwrap_or(Command::Abandon)),
                () = tokio::time::sleep_until(timer.unwrap_or_else(far_away)), if timer.is_some() => self.timer(),
            }
        }
        self.finish().await;
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(dispatch) => self.submit(dispatch),
            Command::Cancel(id) => self.cancel(id),
            Command::Shutdown(how, done) => self.shut_down(how, Some(done)),
            Command::Abandon => {
                self.abandoned = true;
                self.shut_down(Shutdown::now(), None);
            }
        }
    }

    fn submit(&mut self, dispatch: Dispatch) {
        let lane = self.lane(&dispatch);
        if let Some(wait) = dispatch.call.queue_timeout {
            self.queue_deadlines
                .insert((Instant::now() + wait, dispatch.id));
        }
        self.queue.push(lane, dispatch.id, dispatch);
    }

    fn lane(&mut self, dispatch: &Dispatch) -> Lane {
        let Some(key) = Key::of(&dispatch.call) else {
            return COMMANDS;
        };
        if let Some(lane) = self.lane_of.get(&key) {
            return *lane;
        }
        let lane = Lane(u32::try_from(self.lanes.len()).expect("fewer keys than calls"));
        let zygote = ZygoteState::None;
        self.lanes.push(LaneState {
            key: Some(key.clone()),
            zygote,
            failures: 0,
            last_used: Instant::now(),
        });
        self.lane_of.insert(key, lane);
        lane
    }

    fn cancel(&mut self, id: CallId) {
        if let Some(dispatch) = self.queue.remove(id) {
            self.resolve_unstarted(dispatch, Verdict::Cancelled, cancelled());
        } else if let Some(member) = self
            .running
            .get(&id)
            .and_then(|worker| self.workers.get(worker))
        {
            member.mailbox.send(ToWorker::Cancel).ok(); // if the worker is gone, its end is on its way here
        }
    }

    fn shut_down(&mut self, how: Shutdown, done: Option<oneshot::Sender<()>>) {
        let kill_at = how.kill_after.map(|after| Instant::now() + after);
        let closing = self.closing.get_or_insert_with(|| Closing {
            kill_at: None,
            waiting: Vec::new(),
        });
        closing.kill_at = [closing.kill_at, kill_at].into_iter().flatten().min();
        closing.waiting.extend(done);
        if how.cancel_queued {
            for dispatch in self.queue.drain_all() {
                self.resolve_unstarted(dispatch, Verdict::Cancelled, cancelled());
            }
        }
        self.kill_if_due();
    }

    fn kill_if_due(&mut self) {
        let due = self
            .closing
            .as_ref()
            .and_then(|closing| closing.kill_at)
            .is_some_and(|at| at <= Instant::now());
        if !due {
            return;
        }
        for dispatch in self.queue.drain_all() {
            self.resolve_unstarted(dispatch, Verdict::Cancelled, cancelled());
        }
        for worker in self.running.values() {
            if let Some(member) = self.workers.get(worker) {
                member.mailbox.send(ToWorker::Cancel).ok(); // as in `cancel`
            }
        }
        if let Some(closing) = &mut self.closing {
            closing.kill_at = None;
        }
    }

    /// Once closing: no call is left, so idle workers go too, and then nobody is left.
    fn is_done(&mut self) -> bool {
        if self.closing.is_none() || !self.queue.is_empty() || !self.running.is_empty() {
            return false;
        }
        self.retire_idle(ExitReason::Shutdown, |_| true);
        self.workers.is_empty()
    }

    // ---- starting ----------------------------------------------------------------------------------------------

    /// Gives free slots to the oldest calls that can start, and warms interpreters for those that cannot yet.
    async fn start_what_can_start(&mut self) {
        if self.queue.is_empty() || self.not_before.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.not_before = None;
        let Some(site) = self.site().await else {
            return;
        };
        self.warm_interpreters(&site);
        // A start that fails for want of a resource pauses them all.
        while self.running.len() < self.config.max_workers && self.not_before.is_none() {
            let lanes = &self.lanes;
            let ready = |lane: Lane| {
                lane == COMMANDS
                    || matches!(lanes[lane.0 as usize].zygote, ZygoteState::Ready { .. })
            };
            let Some((lane, dispatch)) = self.queue.pop(ready) else {
                return;
            };
            self.start(&site, lane, dispatch);
        }
    }

    fn start(&mut self, site: &Site, lane: Lane, dispatch: Dispatch) {
        self.lanes[lane.0 as usize].last_used = Instant::now();
        let reuse = dispatch
            .call
            .python()
            .is_some_and(|terms| terms.isolation == Isolation::Reuse);
        if reuse {
            if let Some(number) = self.idle_worker(lane) {
                return self.assign(site, number, dispatch);
            }
        }
        self.make_room();
        self.numbers += 1;
        self.generation = self.generation.wrapping_add(1);
        let number = WorkerNumber(self.numbers);
        let id = self.worker_id();
        let identity = Identity {
            number,
            id: id.clone(),
            generation: self.generation,
        };
        let call = dispatch.id;
        let (mode, asked) = match &self.lanes[lane.0 as usize].zygote {
            ZygoteState::Ready { handle, .. } => {
                let mode = if reuse { Mode::Reuse } else { Mode::Fresh };
                (
                    mode,
                    start::fork(site, handle.task, mode, identity, dispatch),
                )
            }
            _ => (Mode::Command, start::command(site, identity, dispatch)),
        };
        match asked {
            Ok(asked) => {
                self.running.insert(call, number);
                let (doing, born) = (Doing::Call(call), Instant::now());
                self.workers.insert(
                    number,
                    Member {
                        lane,
                        mode,
                        id,
                        mailbox: asked.mailbox,
                        doing,
                        served: 0,
                        born,
                        told: false,
                    },
                );
            }
            Err(not_started) => self.not_started(lane, *not_started),
        }
    }

    fn not_started(&mut self, lane: Lane, NotStarted { dispatch, error }: NotStarted) {
        match error {
            EngineError::Spawn { step, source } => self.try_again(lane, dispatch, step, source),
            error => self.resolve(dispatch, Err(error)),
        }
    }

    fn assign(&mut self, site: &Site, number: WorkerNumber, dispatch: Dispatch) {
        let Some(member) = self.workers.get_mut(&number) else {
            return;
        };
        self.generation = self.generation.wrapping_add(1);
        match start::call_frame(site, &dispatch.call, &member.id, Mode::Reuse) {
            Ok(frame) => {
                member.doing = Doing::Call(dispatch.id);
                self.running.insert(dispatch.id, number);
                let message = ToWorker::Assign {
                    dispatch,
                    generation: self.generation,
                    frame,
                };
                if let Err(mpsc::error::SendError(ToWorker::Assign { dispatch, .. })) =
                    member.mailbox.send(message)
                {
                    self.running.remove(&dispatch.id); // it is gone, and said so: the news is on its way
                    member.doing = Doing::Leaving;
                    let lane = member.lane;
                    self.queue.push(lane, dispatch.id, dispatch);
                }
            }
            Err(error) => self.resolve(dispatch, Err(error)),
        }
    }

    fn idle_worker(&self, lane: Lane) -> Option<WorkerNumber> {
        let idle = self.workers.iter().filter(|(_, member)| {
            member.lane == lane
                && member.mode == Mode::Reuse
                && matches!(member.doing, Doing::Nothing { .. })
        });
        idle.map(|(number, _)| *number).min() // the oldest: the others may then be idle long enough to end
    }

    /// Idle workers of other keys give way when every slot would otherwise have a process.
    fn make_room(&mut self) {
        let idle = self
            .workers
            .iter()
            .filter_map(|(number, member)| match member.doing {
                Doing::Nothing { since } => Some((since, *number)),
                _ => None,
            });
        let idle: BTreeSet<_> = idle.collect();
        let surplus = (self.running.len() + idle.len() + 1).saturating_sub(self.config.max_workers);
        for (_, number) in idle.into_iter().take(surplus) {
            self.retire(number, ExitReason::Idle);
        }
    }

    fn warm_interpreters(&mut self, site: &Site) {
        for lane in self.queue.lanes() {
            let index = lane.0 as usize;
            if lane == COMMANDS || !matches!(self.lanes[index].zygote, ZygoteState::None) {
                continue;
            }
            if !self.room_for_zygote() {
                return;
            }
            self.numbers += 1;
            let key = self.lanes[index]
                .key
                .clone()
                .expect("only commands have no key");
            match zygote::start(site, self.numbers, &key) {
                Ok(handle) => self.lanes[index].zygote = ZygoteState::Warming(handle),
                Err(source) => return self.no_zygote(lane, "making its channels".into(), source),
            }
        }
    }

    /// At most so many zygotes: the idle one used longest ago ends first. `false` if all are wanted.
    fn room_for_zygote(&mut self) -> bool {
        let alive = self
            .lanes
            .iter()
            .filter(|lane| !matches!(lane.zygote, ZygoteState::None))
            .count();
        if alive < self.config.max_zygotes {
            return true;
        }
        let idle = self.lanes.iter().enumerate().filter(|(index, lane)| {
            matches!(lane.zygote, ZygoteState::Ready { .. }) && !self.queue.has(Lane(*index as u32))
        });
        match idle
            .min_by_key(|(_, lane)| lane.last_used)
            .map(|(index, _)| index)
        {
            Some(index) => {
                self.lanes[index].zygote = ZygoteState::None; // dropping the handle ends it; its workers go on
                true
            }
            None => false,
        }
    }

    /// The launcher and what goes with it, started on first use. Without them every queued call fails.
    async fn site(&mut self) -> Option<Site> {
        if let Some(site) = self.site.as_ref().filter(|site| !site.launcher.is_lost()) {
            return Some(site.clone());
        }
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
        let context = match self.site.take() {
            Some(site) => site.context,
            None => Rc::new(self.new_context()?),
        };
        let launcher = Launcher::start(self.config.launcher.as_deref()).await?;
        let (parent, name) = context.scratch.place();
        let parent = parent
            .try_clone_to_owned()
            .map_err(EngineError::io("duplicating a descriptor"))?;
        launcher.send(
            ToLauncher::ScratchRoot {
                name: name.as_bytes().to_vec(),
            },
            vec![parent],
        );
        let (serving, news) = (launcher.clone(), self.news_sender.clone());
        tokio::task::spawn_local(async move {
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
            clock: Clock::start(),
            spill,
            scratch,
            next_scratch: Cell::new(1),
            removals: RefCell::new(JoinSet::new()),
            news: self.news_sender.clone(),
        })
    }

    /// 12 hex digits that no other worker of this engine has.
    fn worker_id(&self) -> String {
        // An odd factor makes this a permutation of 48-bit numbers: distinct, and without a pattern to guess.
        let mixed = self
            .id_base
            .wrapping_add(self.numbers)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("{:012x}", mixed & 0xffff_ffff_ffff)
    }

    // ---- news --------------------------------------------------------------------------------------------------

    async fn hear(&mut self, news: PoolNews) {
        match news {
            PoolNews::WorkerStarted { worker, pid } => self.worker_started(worker, pid),
            PoolNews::Began { worker } => self.began(worker),
            PoolNews::Finished {
                worker,
                dispatch,
                answer,
                lives,
                rss_growth,
            } => {
                self.finished(worker, dispatch, answer, lives, rss_growth);
            }
            PoolNews::Unstarted {
                worker,
                dispatch,
                why,
            } => self.unstarted(worker, dispatch, why),
            PoolNews::Gone {
                worker,
                reason,
                status,
            } => {
                let member = self.workers.remove(&worker);
                if let Some(member) = member.filter(|member| member.told) {
                    self.observers.tell(Event::WorkerExit {
                        worker_id: member.id,
                        reason,
                        status,
                    });
                }
            }
            PoolNews::ZygoteReady { zygote, threads } => self.zygote_ready(zygote, threads),
            PoolNews::ZygoteGone { zygote, why } => self.zygote_gone(zygote, why),
            PoolNews::LauncherLost => self.launcher_lost().await,
        }
    }

    fn worker_started(&mut self, worker: WorkerNumber, pid: u32) {
        let Some(member) = self.workers.get_mut(&worker) else {
            return;
        };
        member.told = true;
        let zygote_threads = match &self.lanes[member.lane.0 as usize].zygote {
            ZygoteState::Ready { threads, .. } => Some(*threads),
            _ => None,
        };
        self.observers.tell(Event::WorkerStart {
            worker_id: member.id.clone(),
            pid,
            zygote_threads,
        });
    }

    fn began(&self, worker: WorkerNumber) {
        if let Some(Member {
            doing: Doing::Call(call),
            id,
            ..
        }) = self.workers.get(&worker)
        {
            self.observers.tell(Event::Start {
                call: *call,
                worker_id: id.clone(),
            });
        }
    }

    fn finished(
        &mut self,
        worker: WorkerNumber,
        dispatch: Dispatch,
        answer: Answer,
        lives: bool,
        rss_growth: Option<u64>,
    ) {
        let ok = answer
            .as_ref()
            .is_ok_and(|outcome| outcome.verdict == Verdict::Ok);
        self.running.remove(&dispatch.id);
        self.resolve(dispatch, answer);
        let Some(member) = self.workers.get_mut(&worker) else {
            return;
        };
        member.served += 1;
        if !lives {
            member.doing = Doing::Leaving;
            return;
        }
        member.doing = Doing::Nothing {
            since: Instant::now(),
        };
        if let Some(reason) = recycle(&self.config, member, ok, rss_growth) {
            self.retire(worker, reason);
        }
    }

    fn unstarted(&mut self, worker: WorkerNumber, mut dispatch: Dispatch, why: Unstarted) {
        self.running.remove(&dispatch.id);
        let lane = self.lane(&dispatch);
        match why {
            Unstarted::Cancelled => {
                self.workers.remove(&worker);
                self.resolve_unstarted(dispatch, Verdict::Cancelled, cancelled());
            }
            Unstarted::Spawn {
                step: step @ (Step::Exec | Step::Chdir),
                errno,
            } => {
                self.workers.remove(&worker);
                let report = cannot_start(&dispatch, step, errno);
                self.resolve_unstarted(dispatch, Verdict::SetupFailed, report);
            }
            Unstarted::Spawn {
                step: Step::Zygote,
                errno: 0,
            }
            | Unstarted::LauncherLost => {
                self.workers.remove(&worker);
                self.requeue(lane, dispatch);
            }
            Unstarted::Spawn { step, errno } => {
                self.workers.remove(&worker);
                self.try_again(
                    lane,
                    dispatch,
                    step.name().into(),
                    io::Error::from_raw_os_error(errno),
                );
            }
            Unstarted::Died | Unstarted::Overdue => {
                let most = if matches!(why, Unstarted::Overdue) {
                    2
                } else {
                    START_FAILURES
                };
                dispatch.unacknowledged += 1;
                if dispatch.unacknowledged < most {
                    return self.requeue(lane, dispatch);
                }
                let limit = self.config.ack_timeout;
                let times = dispatch.unacknowledged;
                let report = match why {
                    Unstarted::Overdue => {
                        setup_error(format!("{times} workers did not begin it within {limit:?}"))
                    }
                    _ => setup_error(format!("{times} workers died before they began it")),
                };
                self.resolve_unstarted(dispatch, Verdict::SetupFailed, report);
            }
        }
    }

    fn requeue(&mut self, lane: Lane, dispatch: Dispatch) {
        if self
            .closing
            .as_ref()
            .is_some_and(|closing| closing.kill_at.is_some_and(|at| at <= Instant::now()))
        {
            return self.resolve_unstarted(dispatch, Verdict::Cancelled, cancelled());
        }
        self.queue.push(lane, dispatch.id, dispatch);
    }

    /// Processes or descriptors were short: a pause, and a few more tries.
    fn try_again(&mut self, lane: Lane, mut dispatch: Dispatch, step: String, source: io::Error) {
        dispatch.failed_spawns += 1;
        if dispatch.failed_spawns >= SPAWN_TRIES {
            return self.resolve(dispatch, Err(EngineError::Spawn { step, source }));
        }
        self.not_before = Some(Instant::now() + SPAWN_PAUSE);
        self.requeue(lane, dispatch);
    }

    fn zygote_ready(&mut self, number: u64, threads: u32) {
        let Some(lane) = self.lane_of_zygote(number) else {
            return;
        };
        let lane = &mut self.lanes[lane.0 as usize];
        lane.failures = 0;
        lane.last_used = Instant::now();
        if let ZygoteState::Warming(handle) = std::mem::replace(&mut lane.zygote, ZygoteState::None)
        {
            lane.zygote = ZygoteState::Ready { handle, threads };
        }
    }

    fn zygote_gone(&mut self, number: u64, why: ZygoteEnd) {
        let Some(lane) = self.lane_of_zygote(number) else {
            return;
        };
        let state = &mut self.lanes[lane.0 as usize];
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
        self.lanes
            .iter()
            .position(has)
            .map(|index| Lane(index as u32))
    }

    /// Everybody below it has a parent-death signal; what had freed itself from that is found by its mark.
    async fn launcher_lost(&mut self) {
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
        tokio::task::spawn_blocking(move || sweep::kill_marked(&marks))
            .await
            .ok(); // it cannot panic
        for lane in &mut self.lanes {
            lane.zygote = ZygoteState::None;
        }
    }

    // ---- ending ------------------------------------------------------------------------------------------------

    fn retire(&mut self, number: WorkerNumber, reason: ExitReason) {
        if let Some(member) = self.workers.get_mut(&number) {
            member.doing = Doing::Leaving;
            member.mailbox.send(ToWorker::Retire(reason)).ok(); // if it is gone, its end is on its way here
        }
    }

    fn retire_idle(&mut self, reason: ExitReason, which: impl Fn(Instant) -> bool) {
        let idle: Vec<_> = self
            .workers
            .iter()
            .filter(|(_, member)| matches!(member.doing, Doing::Nothing { since } if which(since)))
            .map(|(number, _)| *number)
            .collect();
        idle.into_iter()
            .for_each(|number| self.retire(number, reason));
    }

    fn next_timer(&self) -> Option<Instant> {
        let queue = self.queue_deadlines.first().map(|(at, _)| *at);
        let kill = self.closing.as_ref().and_then(|closing| closing.kill_at);
        let retry = self.not_before.filter(|_| !self.queue.is_empty());
        let idle = self
            .workers
            .values()
            .filter_map(|member| match member.doing {
                Doing::Nothing { since } => Some(since + self.config.idle_timeout),
                _ => None,
            });
        let zygotes = self.lanes.iter().enumerate().filter_map(|(index, lane)| {
            let unused = matches!(lane.zygote, ZygoteState::Ready { .. })
                && !self.queue.has(Lane(index as u32));
            unused.then(|| lane.last_used + self.config.idle_timeout)
        });
        [queue, kill, retry]
            .into_iter()
            .flatten()
            .chain(idle)
            .chain(zygotes)
            .min()
    }

    fn timer(&mut self) {
        let now = Instant::now();
        while let Some((at, id)) = self
            .queue_deadlines
            .first()
            .copied()
            .filter(|(at, _)| *at <= now)
        {
            self.queue_deadlines.remove(&(at, id));
            if let Some(dispatch) = self.queue.remove(id) {
                let waited = dispatch.call.queue_timeout.unwrap_or_default();
                let message = format!("it waited for its turn longer than {waited:?}");
                let report = ErrorReport {
                    kind: "QueueTimeout".into(),
                    message,
                    traceback: String::new(),
                };
                self.resolve_unstarted(dispatch, Verdict::Cancelled, report);
            }
        }
        let idle_timeout = self.config.idle_timeout;
        self.retire_idle(ExitReason::Idle, |since| since + idle_timeout <= now);
        for index in 0..self.lanes.len() {
            let lane = &self.lanes[index];
            let unused = matches!(lane.zygote, ZygoteState::Ready { .. })
                && !self.queue.has(Lane(index as u32));
            if unused && lane.last_used + idle_timeout <= now {
                self.lanes[index].zygote = ZygoteState::None; // dropping the handle ends it
            }
        }
        self.kill_if_due();
    }

    /// Everything is answered for and every worker is gone: the rest goes too.
    async fn finish(mut self) {
        if let Some(site) = self.site.take() {
            self.lanes.clear();
            site.launcher.end().await;
            let mut removals = site.context.removals.take();
            while removals.join_next().await.is_some() {}
        }
        self.observers.tell(Event::Shutdown);
        if self.abandoned {
            return self.observers.leave();
        }
        let observers = self.observers.clone();
        // Handlers may be slow, and one of them may be waiting for us.
        tokio::task::spawn_blocking(move || observers.finish())
            .await
            .ok();
        for done in self
            .closing
            .take()
            .map(|closing| closing.waiting)
            .unwrap_or_default()
        {
            done.send(()).ok(); // whoever asked may have gone
        }
    }

    // ---- answering ---------------------------------------------------------------------------------------------

    /// The one place where a call is answered for.
    fn resolve(&self, dispatch: Dispatch, answer: Answer) {
        let verdict = answer.as_ref().ok().map(|outcome| outcome.verdict);
        self.observers.tell(Event::Complete {
            call: dispatch.id,
            verdict,
        });
        dispatch.answer.send(answer).ok(); // nobody waits for a call whose future was dropped
    }

    /// Of a call that no process ran.
    fn resolve_unstarted(&self, dispatch: Dispatch, verdict: Verdict, error: ErrorReport) {
        let mode = match &dispatch.call.work {
            Work::Command(_) => "command",
            _ if dispatch
                .call
                .python()
                .is_some_and(|terms| terms.isolation == Isolation::Reuse) =>
            {
                "reuse"
            }
            _ => "fresh",
        };
        let waited_ns = now_ns().saturating_sub(dispatch.submitted_ns);
        let outcome = Outcome {
            verdict,
            value: None,
            error: Some(error),
            exit: None,
            stdout: Captured::default(),
            stderr: Captured::default(),
            metrics: Metrics {
                queue_ns: Some(waited_ns),
                node_id: Some(self.config.node_id.clone()),
                ..Metrics::default()
            },
            in_force: in_force(&dispatch.call, mode),
        };
        self.resolve(dispatch, Ok(outcome));
    }
}

/// Whether a worker that just answered is to be replaced.
fn recycle(
    config: &LocalConfig,
    member: &Member,
    ok: bool,
    rss_growth: Option<u64>,
) -> Option<ExitReason> {
    let policy = &config.recycle;
    if policy.after_error && !ok {
        Some(ExitReason::AfterError)
    } else if policy.max_calls.is_some_and(|most| member.served >= most) {
        Some(ExitReason::MaxCalls)
    } else if policy
        .max_age
        .is_some_and(|most| member.born.elapsed() >= most)
    {
        Some(ExitReason::MaxAge)
    } else if policy
        .rss_growth
        .zip(rss_growth)
        .is_some_and(|(most, grown)| grown > most)
    {
        Some(ExitReason::RssGrowth)
    } else {
        None
    }
}

fn cancelled() -> ErrorReport {
    ErrorReport {
        kind: "Cancelled".into(),
        message: "it was cancelled before it began".into(),
        traceback: String::new(),
    }
}

fn cannot_start(dispatch: &Dispatch, step: Step, errno: i32) -> ErrorReport {
    let problem = io::Error::from_raw_os_error(errno);
    let program = match &dispatch.call.work {
        Work::Command(work) => work.argv[0].as_str(),
        _ => "the worker",
    };
    match (step, &dispatch.call.cwd) {
        (Step::Chdir, Some(cwd)) => {
            setup_error(format!("cannot enter cwd `{}`: {problem}", cwd.display()))
        }
        _ => setup_error(format!("cannot run `{program}`: {problem}")),
    }
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
