//! The engine's loop: the one owner of the queue, of the slots and of who runs what.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::queue::{COMMANDS, Lane, Queue};
use super::start::{self, Identity, Mailbox, NotStarted};
use crate::backend::Shutdown;
use crate::call::{Isolation, Work};
use crate::capture::Captured;
use crate::clock::{Clock, now_ns};
use crate::config::{LocalConfig, Recycle};
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
use crate::protocol::launcher::{Step, TaskId, ToLauncher};
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

/// Calls that a worker has beyond the one it runs.
const MOST_AHEAD: usize = 16;
/// Calls that take less are worth sending ahead.
const SHORT_CALL_NS: u64 = 1_000_000;
/// Calls that wait behind a longer one than this go to another slot, if one is free (EX-31).
const STUCK_AFTER: Duration = Duration::from_millis(2);

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
    /// Running calls that were cancelled: should one come back unbegun, it is not run.
    unwanted: HashSet<CallId>,
    numbers: u64,
    generation: u32,
    id_base: u64,
    not_before: Option<Instant>,
    closing: Option<Closing>,
}

struct LaneState {
    key: Option<Key>,
    zygote: ZygoteState,
    failures: u32,
    fresh_calls: u64,
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
    mailbox: Mailbox,
    /// The call it runs, and those sent ahead.
    calls: Vec<CallId>,
    /// When it was last given or done with a call.
    since: Instant,
    leaving: bool,
    served: u64,
    born: Instant,
    /// How long its recent calls took; none until it has served one.
    recent_ns: Option<u64>,
    /// Its calls write output: which of two wrote what can be told only if the second is sent after the first is done.
    loud: bool,
    /// Calls were taken back from it, and it has not yet skipped them all.
    skipping: bool,
}

impl Member {
    fn is_idle(&self) -> bool {
        self.calls.is_empty() && !self.leaving
    }

    /// Whether its calls are so short that it should have the next ones before it asks (EX-30).
    fn takes_ahead(&self) -> bool {
        self.mode == Mode::Reuse
            && !self.calls.is_empty()
            && self.calls.len() <= MOST_AHEAD
            && !(self.leaving || self.skipping || self.loud)
            && self.recent_ns.is_some_and(|ns| ns < SHORT_CALL_NS)
    }

    fn learn(&mut self, outcome: &Outcome) {
        self.loud |= !(outcome.stdout.is_empty() && outcome.stderr.is_empty());
        if let Some(wall_ns) = outcome.metrics.wall_ns {
            let recent = self.recent_ns.unwrap_or(wall_ns);
            self.recent_ns = Some((3 * recent + wall_ns) / 4);
        }
    }

    /// Whether calls wait behind one that turned out long.
    fn is_stuck(&self, now: Instant) -> bool {
        self.calls.len() > 1 && !self.skipping && now >= self.since + STUCK_AFTER
    }
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
            fresh_calls: 0,
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
            unwanted: HashSet::new(),
            numbers: 0,
            generation: 0,
            id_base: crate::scratch::random(),
            not_before: None,
            closing: None,
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
            Command::Abandon => self.shut_down(Shutdown::now(), None),
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
            fresh_calls: 0,
            last_used: Instant::now(),
        });
        self.lane_of.insert(key, lane);
        lane
    }

    fn cancel(&mut self, id: CallId) {
        if let Some(dispatch) = self.queue.remove(id) {
            self.resolve_unstarted(dispatch, Verdict::Cancelled, cancelled());
        } else if let Some(worker) = self.running.get(&id) {
            self.unwanted.insert(id);
            if let Some(member) = self.workers.get(worker) {
                member.mailbox.send(ToWorker::Cancel(id)).ok(); // if the worker is gone, its end is on its way here
            }
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
        let running: Vec<_> = self.running.keys().copied().collect();
        running.into_iter().for_each(|id| self.cancel(id));
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
        while self.busy() < self.config.max_workers {
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
        self.send_ahead();
    }

    /// Slots in use: workers that have a call.
    fn busy(&self) -> usize {
        self.workers
            .values()
            .filter(|member| !member.calls.is_empty())
            .count()
    }

    /// Every slot is busy: those with short calls get the next ones already, evenly.
    fn send_ahead(&mut self) {
        if self.config.recycle != Recycle::default() || self.closing.is_some() {
            return; // whether a worker serves another call is decided between calls
        }
        for lane in self.queue.lanes() {
            while let Some(number) = self.next_ahead(lane) {
                let goes = |dispatch: &Dispatch| {
                    mode_of(dispatch) == Mode::Reuse && dispatch.call.queue_timeout.is_none()
                };
                let Some(dispatch) = self.queue.pop_if(lane, goes) else {
                    break;
                };
                let (id, generation) = (dispatch.id, self.next_generation());
                self.give(number, id);
                let message = ToWorker::Ahead {
                    dispatch,
                    generation,
                };
                let Some(member) = self.workers.get(&number) else {
                    return;
                };
                if let Err(mpsc::error::SendError(ToWorker::Ahead { dispatch, .. })) =
                    member.mailbox.send(message)
                {
                    self.come_back(number, dispatch); // it is gone, and the news of that is on its way
                    break;
                }
            }
        }
    }

    fn next_ahead(&self, lane: Lane) -> Option<WorkerNumber> {
        let takers = self
            .workers
            .iter()
            .filter(|(_, member)| member.lane == lane && member.takes_ahead());
        takers
            .min_by_key(|(number, member)| (member.calls.len(), **number))
            .map(|(number, _)| *number)
    }

    /// With a slot free, nobody's call waits behind another's long one.
    fn free_stuck(&mut self) {
        if self.busy() >= self.config.max_workers {
            return;
        }
        let now = Instant::now();
        for member in self
            .workers
            .values_mut()
            .filter(|member| member.is_stuck(now))
        {
            member.skipping = true;
            member.mailbox.send(ToWorker::TakeBack).ok(); // if it is gone, its calls are on their way here
        }
    }

    /// A call left its worker unbegun: back to its place in the queue, unless nobody wants it.
    fn come_back(&mut self, worker: WorkerNumber, dispatch: Dispatch) {
        self.running.remove(&dispatch.id);
        let lane = self.lane(&dispatch);
        if let Some(member) = self.workers.get_mut(&worker) {
            member.calls.retain(|call| *call != dispatch.id);
        }
        self.requeue(lane, dispatch);
    }

    fn start(&mut self, site: &Site, lane: Lane, dispatch: Dispatch) {
        let state = &mut self.lanes[lane.0 as usize];
        state.last_used = Instant::now();
        let mode = mode_of(&dispatch);
        let zygote = match &state.zygote {
            ZygoteState::Ready { handle, .. } => handle.task,
            _ => return self.start_command(site, dispatch),
        };
        let worker = match self.idle_worker(lane, mode) {
            Some(worker) => worker,
            None => match self.fork(site, lane, zygote, mode) {
                Ok(worker) => worker,
                Err(source) => {
                    return self.try_again(lane, dispatch, "making its channels".into(), source);
                }
            },
        };
        self.assign(worker, dispatch);
        if mode == Mode::Fresh {
            self.keep_spare(site, lane, zygote);
        }
    }

    fn start_command(&mut self, site: &Site, dispatch: Dispatch) {
        self.make_room();
        let (call, identity, generation) = (dispatch.id, self.identity(), self.next_generation());
        let (number, id) = (identity.number, identity.id.clone());
        match start::command(site, identity, dispatch, generation) {
            Ok(mailbox) => {
                self.add_member(number, id, COMMANDS, Mode::Command, mailbox);
                self.give(number, call);
            }
            Err(not_started) => {
                let NotStarted { dispatch, error } = *not_started;
                match error {
                    EngineError::Spawn { step, source } => {
                        self.try_again(COMMANDS, dispatch, step, source)
                    }
                    error => self.resolve(dispatch, Err(error)),
                }
            }
        }
    }

    fn fork(
        &mut self,
        site: &Site,
        lane: Lane,
        zygote: TaskId,
        mode: Mode,
    ) -> io::Result<WorkerNumber> {
        self.make_room();
        let identity = self.identity();
        let (number, id) = (identity.number, identity.id.clone());
        let mailbox = start::fork(site, zygote, mode, identity)?;
        self.add_member(number, id, lane, mode, mailbox);
        Ok(number)
    }

    /// From a key's second call on, the next `fresh` worker is forked while this one runs: a fork is most of a call's
    /// cost. It has run no code of anybody's.
    fn keep_spare(&mut self, site: &Site, lane: Lane, zygote: TaskId) {
        let state = &mut self.lanes[lane.0 as usize];
        state.fresh_calls += 1;
        if state.fresh_calls > 1
            && self.closing.is_none()
            && self.idle_worker(lane, Mode::Fresh).is_none()
        {
            // Without one the next call forks its own, and says what is wrong if it cannot.
            self.fork(site, lane, zygote, Mode::Fresh).ok();
        }
    }

    fn identity(&mut self) -> Identity {
        self.numbers += 1;
        // An odd factor makes this a permutation of 48-bit numbers: distinct, and without a pattern to guess.
        let mixed = self
            .id_base
            .wrapping_add(self.numbers)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Identity {
            number: WorkerNumber(self.numbers),
            id: format!("{:012x}", mixed & 0xffff_ffff_ffff),
        }
    }

    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    fn add_member(
        &mut self,
        number: WorkerNumber,
        id: String,
        lane: Lane,
        mode: Mode,
        mailbox: Mailbox,
    ) {
        let now = Instant::now();
        let member = Member {
            lane,
            mode,
            id,
            mailbox,
            calls: Vec::new(),
            since: now,
            leaving: false,
            served: 0,
            born: now,
            recent_ns: None,
            loud: false,
            skipping: false,
        };
        self.workers.insert(number, member);
    }

    fn give(&mut self, worker: WorkerNumber, call: CallId) {
        if let Some(member) = self.workers.get_mut(&worker) {
            if member.calls.is_empty() {
                member.since = Instant::now();
            }
            member.calls.push(call);
            self.running.insert(call, worker);
        }
    }

    fn assign(&mut self, worker: WorkerNumber, dispatch: Dispatch) {
        let (call, generation) = (dispatch.id, self.next_generation());
        self.give(worker, call);
        let Some(member) = self.workers.get_mut(&worker) else {
            return;
        };
        let message = ToWorker::Assign {
            dispatch,
            generation,
        };
        if let Err(mpsc::error::SendError(ToWorker::Assign { dispatch, .. })) =
            member.mailbox.send(message)
        {
            member.leaving = true; // it is gone, and the news of that is on its way
            self.come_back(worker, dispatch);
        }
    }

    fn idle_worker(&self, lane: Lane, mode: Mode) -> Option<WorkerNumber> {
        let idle = self
            .workers
            .iter()
            .filter(|(_, member)| member.lane == lane && member.mode == mode && member.is_idle());
        idle.map(|(number, _)| *number).min() // the oldest: the others may then be idle long enough to end
    }

    /// Idle workers of other keys give way when every slot would otherwise have a process.
    fn make_room(&mut self) {
        let idle = self
            .workers
            .iter()
            .filter(|(_, member)| member.mode == Mode::Reuse && member.is_idle());
        let idle = idle.map(|(number, member)| (member.since, *number));
        let idle: BTreeSet<_> = idle.collect();
        let surplus = (self.busy() + idle.len() + 1).saturating_sub(self.config.max_workers);
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
            spare_scratch: RefCell::default(),
            removals: RefCell::new(JoinSet::new()),
            news: self.news_sender.clone(),
        })
    }

    // ---- news --------------------------------------------------------------------------------------------------

    async fn hear(&mut self, news: PoolNews) {
        match news {
            PoolNews::WorkerStarted { worker, pid } => self.worker_started(worker, pid),
            PoolNews::Began { worker, call } => self.began(worker, call),
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
                if let Some(member) = self.workers.remove(&worker) {
                    self.observers.tell(Event::WorkerExit {
                        worker_id: member.id,
                        reason,
                        status,
                    });
                }
            }
            PoolNews::GivenBack { worker, dispatches } => {
                dispatches
                    .into_iter()
                    .for_each(|dispatch| self.come_back(worker, dispatch));
            }
            PoolNews::CanSendAhead { worker } => {
                if let Some(member) = self.workers.get_mut(&worker) {
                    member.skipping = false;
                }
            }
            PoolNews::ZygoteReady { zygote, threads } => self.zygote_ready(zygote, threads),
            PoolNews::ZygoteGone { zygote, why } => self.zygote_gone(zygote, why),
            PoolNews::LauncherLost => self.launcher_lost().await,
        }
    }

    fn worker_started(&self, worker: WorkerNumber, pid: u32) {
        let Some(member) = self.workers.get(&worker) else {
            return;
        };
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

    fn began(&mut self, worker: WorkerNumber, call: CallId) {
        if let Some(member) = self.workers.get_mut(&worker) {
            member.since = Instant::now();
            let worker_id = member.id.clone();
            self.observers.tell(Event::Start { call, worker_id });
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
        self.running.remove(&dispatch.id);
        self.unwanted.remove(&dispatch.id);
        if let Some(member) = self.workers.get_mut(&worker) {
            member.calls.retain(|call| *call != dispatch.id);
            member.since = Instant::now();
            member.served += 1;
            member.leaving |= !lives;
            if let Ok(outcome) = &answer {
                member.learn(outcome);
            }
            let ok = answer
                .as_ref()
                .is_ok_and(|outcome| outcome.verdict == Verdict::Ok);
            if let Some(reason) = recycle(&self.config, member, ok, rss_growth).filter(|_| lives) {
                self.retire(worker, reason);
            }
        }
        self.resolve(dispatch, answer);
    }

    fn unstarted(&mut self, worker: WorkerNumber, mut dispatch: Dispatch, why: Unstarted) {
        self.running.remove(&dispatch.id);
        if let Some(member) = self.workers.get_mut(&worker) {
            member.calls.retain(|call| *call != dispatch.id);
            member.leaving = true;
        }
        let lane = self.lane(&dispatch);
        match why {
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
        if self.unwanted.remove(&dispatch.id) {
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
            member.leaving = true;
            member.mailbox.send(ToWorker::Retire(reason)).ok(); // if it is gone, its end is on its way here
        }
    }

    fn retire_idle(&mut self, reason: ExitReason, which: impl Fn(Instant) -> bool) {
        let idle = self
            .workers
            .iter()
            .filter(|(_, member)| member.is_idle() && which(member.since));
        let idle: Vec<_> = idle.map(|(number, _)| *number).collect();
        idle.into_iter()
            .for_each(|number| self.retire(number, reason));
    }

    fn next_timer(&self) -> Option<Instant> {
        let queue = self.queue_deadlines.first().map(|(at, _)| *at);
        let kill = self.closing.as_ref().and_then(|closing| closing.kill_at);
        let retry = self.not_before.filter(|_| !self.queue.is_empty());
        let free = self.busy() < self.config.max_workers;
        let idle = self
            .workers
            .values()
            .filter_map(|member| match member.calls.len() {
                0 if !member.leaving => Some(member.since + self.config.idle_timeout),
                2.. if free && !member.skipping => Some(member.since + STUCK_AFTER),
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
        self.free_stuck();
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
            site.context.spare_scratch.take();
            let mut removals = site.context.removals.take();
            while removals.join_next().await.is_some() {}
        }
        self.observers.tell(Event::Shutdown);
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
        let mode = match mode_of(&dispatch) {
            Mode::Command => "command",
            Mode::Reuse => "reuse",
            Mode::Fresh => "fresh",
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

fn mode_of(dispatch: &Dispatch) -> Mode {
    match dispatch.call.python().map(|terms| terms.isolation) {
        None => Mode::Command,
        Some(Isolation::Fresh) => Mode::Fresh,
        Some(Isolation::Reuse) => Mode::Reuse,
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
