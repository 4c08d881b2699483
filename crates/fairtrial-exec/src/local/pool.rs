//! The engine's loop: the one owner of the queue, of the slots and of who runs what.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::admit::Demand;
use super::interpreters::{LaneState, ZygoteState, sweep_cgroups};
use super::member::{Member, STUCK_AFTER};
use super::queue::{COMMANDS, Lane, Queue};
use super::room::{Room, no_room};
use super::vigil::Vigil;
use crate::aside::aside;
use crate::backend::Shutdown;
use crate::call::{Isolation, Time};
use crate::capture::Captured;
use crate::clock::{after, until};
use crate::config::{LocalConfig, available_cpus};
use crate::dispatch::{Answer, Dispatch, PoolNews, Site, WorkerNumber};
use crate::event::{CallId, Event, ExitReason};
use crate::foreign_host;
use crate::linux::monotonic::now_ns;
use crate::linux::spawn::raise_descriptor_limit;
use crate::metrics::Metrics;
use crate::observers::Observers;
use crate::outcome::{ErrorReport, Outcome};
use crate::passed;
use crate::sandbox::{Level, Means, in_force};
use crate::verdict::Verdict;
use crate::worker::Mode;
use crate::worker::drive::ToWorker;
use crate::zygote::Key;

/// What the backend's handle says to the loop.
pub(crate) enum Command {
    /// Run this.
    Submit(Dispatch),
    /// Nobody waits for it any more, or it is unwanted.
    Cancel(CallId),
    /// End; `done` is dropped when that is done. A handler does not wait for handlers.
    Shutdown {
        how: Shutdown,
        from_handler: bool,
        done: oneshot::Sender<()>,
    },
    /// The handle is gone: end at once.
    Abandon,
}

/// A zygote that dies this often in a row without a word gives its calls up.
pub(super) const START_FAILURES: u32 = 5;
/// A call that so many workers do not begin in time is given up.
pub(super) const OVERDUE_TRIES: u32 = 2;
/// A call that finds no process this often fails.
pub(super) const SPAWN_TRIES: u32 = 3;
/// Between two such tries.
pub(super) const SPAWN_PAUSE: Duration = Duration::from_millis(200);

/// Log target of what users can do something about.
pub const ADVICE: &str = "fairtrial_advice";

/// Keys that are remembered though nothing of them is left.
const MOST_UNUSED_LANES: usize = 64;

/// The loop's state.
pub(crate) struct Pool {
    pub(super) config: LocalConfig,
    pub(super) observers: Arc<Observers>,
    pub(super) means: Arc<Means>,
    /// Levels of calls that wait, and of which nobody knows whether they can have namespaces.
    pub(super) untried: Vec<Level>,
    /// Kinds of calls whose mechanisms have been looked at, and what was told to be missing.
    pub(super) demands: HashSet<Demand>,
    pub(super) degraded: HashSet<&'static str>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) news: mpsc::UnboundedReceiver<PoolNews>,
    pub(super) news_sender: mpsc::UnboundedSender<PoolNews>,
    pub(super) site: Option<Site>,
    pub(super) queue: Queue,
    pub(super) queue_deadlines: BTreeSet<(Instant, CallId)>,
    pub(super) lanes: BTreeMap<Lane, LaneState>,
    pub(super) last_lane: Lane,
    recent_lane: Lane,
    pub(super) lane_of: HashMap<Key, Lane>,
    pub(super) workers: HashMap<WorkerNumber, Member>,
    pub(super) running: HashMap<CallId, WorkerNumber>,
    /// Running calls that were cancelled: should one come back unbegun, it is not run.
    pub(super) unwanted: HashSet<CallId>,
    /// The call that has a processor to itself.
    pub(super) alone: Option<CallId>,
    /// It has been told that the host has too little for all calls at once.
    pub(super) told_of_shortage: bool,
    /// The call beside which no other runs.
    pub(super) only: Option<CallId>,
    /// It has been told that calls count processor time while there are more slots than processors.
    crowded: bool,
    pub(super) numbers: u64,
    pub(super) generation: u32,
    pub(super) id_base: u64,
    pub(super) not_before: Option<Instant>,
    pub(super) room: Room,
    /// When calls last got another directory for theirs.
    pub(super) scratch_renewed: Option<Instant>,
    vigil: Vigil,
    pub(super) closing: Option<Closing>,
    /// The handle is gone: nobody waits for handlers to return.
    pub(super) abandoned: bool,
    /// A part of the engine panicked.
    pub(super) broken: bool,
    /// Some call was above the level `none`, so there may be cgroups.
    pub(super) confined: bool,
}

pub(super) struct Closing {
    kill_at: Option<Instant>,
    waiting: Vec<Waiting>,
}

/// Who waits for the end.
struct Waiting {
    from_handler: bool,
    #[expect(dead_code, reason = "held only so that dropping it tells who waits")]
    done: oneshot::Sender<()>,
}

impl Pool {
    pub(crate) fn new(
        config: LocalConfig,
        observers: Arc<Observers>,
        means: Arc<Means>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let (news_sender, news) = mpsc::unbounded_channel();
        let most = raise_descriptor_limit().maximum;
        let room = Room::new(config.max_workers, most);
        if room.is_short() && no_room(most).is_none() {
            let problem = "this process may have too few descriptors for more (see `ulimit -n`)";
            let (slots, asked) = (room.slots(), config.max_workers);
            log::warn!(target: ADVICE, "{slots} of {asked} calls run at a time: {problem}");
        }
        Self {
            room,
            scratch_renewed: None,
            vigil: Vigil::new(config.stays_awake),
            config,
            observers,
            means,
            untried: Vec::new(),
            demands: HashSet::new(),
            degraded: HashSet::new(),
            commands,
            news,
            news_sender,
            site: None,
            queue: Queue::default(),
            queue_deadlines: BTreeSet::new(),
            lanes: BTreeMap::from([(COMMANDS, LaneState::new(None))]),
            last_lane: COMMANDS,
            recent_lane: COMMANDS,
            lane_of: HashMap::new(),
            workers: HashMap::new(),
            running: HashMap::new(),
            unwanted: HashSet::new(),
            alone: None,
            only: None,
            told_of_shortage: false,
            crowded: false,
            numbers: 0,
            generation: 0,
            id_base: crate::locked_dir::random(),
            not_before: None,
            closing: None,
            abandoned: false,
            broken: false,
            confined: false,
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
                Some(news) = self.news.recv() => {
                    self.hear(news).await;
                    if self.broken {
                        return; // all that is dropped with it is answered for by that
                    }
                    self.vigil.keep(self.running.len());
                }
                command = self.commands.recv() => {
                    self.obey(command.unwrap_or(Command::Abandon));
                    self.vigil.keep(self.running.len());
                }
                () = self.vigil.pass() => {}
                () = until(timer) => self.timer(),
            }
        }
        self.finish().await;
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(dispatch) => self.submit(dispatch),
            Command::Cancel(id) => self.cancel(id),
            Command::Shutdown {
                how,
                from_handler,
                done,
            } => self.shut_down(how, Some(Waiting { from_handler, done })),
            Command::Abandon => {
                self.abandoned = true;
                self.shut_down(Shutdown::now(), None);
            }
        }
    }

    pub(super) fn submit(&mut self, mut dispatch: Dispatch) {
        dispatch.queue_deadline = dispatch
            .call
            .queue_timeout
            .and_then(|wait| after(Instant::now(), wait));
        if dispatch.call.time == Time::Cpu {
            self.warn_if_crowded();
        }
        if dispatch.call.sandbox.level > Level::None && !self.confined {
            self.confined = true;
            tokio::task::spawn_local(aside(sweep_cgroups));
        }
        self.enter_queue(dispatch);
    }

    /// Once: it costs time, for what is in doubt is run again.
    fn warn_if_crowded(&mut self) {
        let (slots, cpus) = (self.config.max_workers, available_cpus());
        if slots > cpus && !std::mem::replace(&mut self.crowded, true) {
            log::warn!(
                target: ADVICE,
                "{slots} calls run at a time on {cpus} processors: verdicts count processor time, but calls that time \
                 out beside others are run again alone, one after the other"
            );
        }
    }

    pub(super) fn enter_queue(&mut self, dispatch: Dispatch) {
        if let Some(dispatch) = self.admit(dispatch) {
            let lane = self.lane(&dispatch);
            self.enqueue(lane, dispatch);
        }
    }

    pub(super) fn enqueue(&mut self, lane: Lane, dispatch: Dispatch) {
        if let Some(at) = dispatch.queue_deadline {
            self.queue_deadlines.insert((at, dispatch.id));
        }
        match dispatch.first.is_some() || dispatch.lacked.is_some() {
            true => self.queue.push_alone(lane, dispatch.id, dispatch),
            false => self.queue.push(lane, dispatch.id, dispatch),
        }
    }

    pub(super) fn no_longer_alone(&mut self, call: CallId) {
        self.alone.take_if(|alone| *alone == call);
        self.only.take_if(|only| *only == call);
    }

    pub(super) fn lane(&mut self, dispatch: &Dispatch) -> Lane {
        let recent = self.lanes.get(&self.recent_lane);
        if let Some(key) = recent.and_then(|lane| lane.key.as_ref())
            && key.is_plainly_of(&dispatch.call, &self.means)
        {
            return self.recent_lane;
        }
        let Some(key) = Key::of(&dispatch.call, &self.means) else {
            return COMMANDS;
        };
        if let Some(lane) = self.lane_of.get(&key) {
            self.recent_lane = *lane;
            return *lane;
        }
        if self.lanes.len() >= MOST_UNUSED_LANES + self.config.max_zygotes {
            self.forget_lanes();
        }
        let lane = Lane(self.last_lane.0 + 1);
        self.last_lane = lane;
        self.lanes.insert(lane, LaneState::new(Some(key.clone())));
        self.lane_of.insert(key, lane);
        lane
    }

    /// Keys that no call, zygote or worker has any more.
    fn forget_lanes(&mut self) {
        let in_use: HashSet<Lane> = self.workers.values().map(|member| member.lane).collect();
        let queue = &self.queue;
        self.lanes.retain(|lane, state| {
            *lane == COMMANDS
                || !matches!(state.zygote, ZygoteState::None)
                || queue.has(*lane)
                || in_use.contains(lane)
        });
        self.lane_of.retain(|_, lane| self.lanes.contains_key(lane));
    }

    pub(super) fn cancel(&mut self, id: CallId) {
        if let Some(dispatch) = self.queue.remove(id) {
            self.resolve_unstarted(dispatch, Verdict::Cancelled, cancelled());
        } else if let Some(worker) = self.running.get(&id) {
            self.unwanted.insert(id);
            if let Some(member) = self.workers.get(worker) {
                member.mailbox.send(ToWorker::Cancel(id)).ok(); // if the worker is gone, its end is on its way here
            }
        }
    }

    fn shut_down(&mut self, how: Shutdown, waiting: Option<Waiting>) {
        let kill_at = how.kill_after.and_then(|wait| after(Instant::now(), wait));
        if self.closing.is_none() {
            tokio::task::spawn_local(foreign_host::looking(std::future::pending::<()>()));
        }
        let closing = self.closing.get_or_insert_with(|| Closing {
            kill_at: None,
            waiting: Vec::new(),
        });
        closing.kill_at = [closing.kill_at, kill_at].into_iter().flatten().min();
        closing.waiting.extend(waiting);
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
        for id in running {
            self.cancel(id);
            self.cancel(id); // again: it has no grace
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

    pub(super) fn retire(&mut self, number: WorkerNumber, reason: ExitReason) {
        if let Some(member) = self.workers.get_mut(&number) {
            member.leaving = true;
            member.mailbox.send(ToWorker::Retire(reason)).ok(); // if it is gone, its end is on its way here
        }
    }

    pub(super) fn retire_idle(&mut self, reason: ExitReason, which: impl Fn(Instant) -> bool) {
        let idle = self
            .workers
            .iter()
            .filter(|(_, member)| member.is_idle() && which(member.since));
        let idle: Vec<_> = idle.map(|(number, _)| *number).collect();
        idle.into_iter()
            .for_each(|number| self.retire(number, reason));
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let queue = self.queue_deadlines.first().map(|(at, _)| *at);
        let kill = self.closing.as_ref().and_then(|closing| closing.kill_at);
        let retry = self.not_before.filter(|_| !self.queue.is_empty());
        let free = self.busy() < self.room.slots();
        let idle = self
            .workers
            .values()
            .filter_map(|member| match member.calls.len() {
                0 if !member.leaving => after(member.since, self.config.idle_timeout),
                2.. if free && !member.skipping => Some(member.since + STUCK_AFTER),
                _ => None,
            });
        let zygotes = self.lanes.iter().filter_map(|(number, lane)| {
            let unused =
                matches!(lane.zygote, ZygoteState::Ready { .. }) && !self.queue.has(*number);
            unused
                .then(|| after(lane.last_used, self.config.idle_timeout))
                .flatten()
        });
        [queue, kill, retry]
            .into_iter()
            .flatten()
            .chain(idle)
            .chain(zygotes)
            .min()
    }

    pub(super) fn timer(&mut self) {
        self.free_stuck();
        let now = Instant::now();
        self.cancel_overdue(now);
        let idle_timeout = self.config.idle_timeout;
        self.retire_idle(ExitReason::Idle, |since| {
            now.duration_since(since) >= idle_timeout
        });
        self.end_idle_zygotes(now);
        self.kill_if_due();
    }

    /// Calls that waited too long for their turn.
    fn cancel_overdue(&mut self, now: Instant) {
        while let Some((at, id)) = self
            .queue_deadlines
            .first()
            .copied()
            .filter(|(at, _)| *at <= now)
        {
            self.queue_deadlines.remove(&(at, id));
            if let Some(dispatch) = self.queue.remove(id) {
                self.queue_timed_out(dispatch);
            }
        }
    }

    fn end_idle_zygotes(&mut self, now: Instant) {
        for (number, lane) in &mut self.lanes {
            let unused =
                matches!(lane.zygote, ZygoteState::Ready { .. }) && !self.queue.has(*number);
            if unused && now.duration_since(lane.last_used) >= self.config.idle_timeout {
                lane.zygote = ZygoteState::None; // dropping the handle ends it
            }
        }
    }

    /// Everything is answered for and every worker is gone: the rest goes too.
    pub(super) async fn finish(mut self) {
        foreign_host::check_all(); // before it closes them all
        if let Some(site) = self.site.take() {
            self.lanes.clear();
            site.launcher.end().await;
            site.context.spare_scratch.take();
            let mut removals = site.context.removals.take();
            while removals.join_next().await.is_some() {}
        }
        self.observers.tell(Event::Shutdown);
        if !self.abandoned {
            self.wait_for_handlers().await;
        }
        self.observers.leave();
    }

    /// They may be slow, and one of them may be waiting for us, or may drop the handle on us.
    async fn wait_for_handlers(&mut self) {
        let mut waiting = self
            .closing
            .take()
            .map_or(Vec::new(), |closing| closing.waiting);
        let observers = self.observers.clone();
        let mut heard = std::pin::pin!(aside(move || observers.finish()));
        loop {
            waiting.retain(|waiting| !waiting.from_handler);
            tokio::select! {
                () = &mut heard => return,
                command = self.commands.recv() => match command {
                    Some(Command::Shutdown { from_handler, done, .. }) => {
                        waiting.push(Waiting { from_handler, done });
                    }
                    Some(Command::Submit(_) | Command::Cancel(_)) => {} // too late
                    Some(Command::Abandon) | None => return,
                }
            }
        }
    }

    /// The one place where a call is answered for.
    pub(super) fn resolve(&self, dispatch: Dispatch, mut answer: Answer) {
        if let Ok(outcome) = &mut answer {
            passed::mask(&dispatch.call, outcome);
        }
        let verdict = answer.as_ref().ok().map(|outcome| outcome.verdict);
        self.observers.tell(Event::Complete {
            call: dispatch.id,
            verdict,
        });
        dispatch.listener.ended(answer);
    }

    pub(super) fn queue_timed_out(&self, dispatch: Dispatch) {
        let waited = dispatch.call.queue_timeout.unwrap_or_default();
        let message = format!("it waited for its turn longer than {waited:?}");
        let report = ErrorReport::new("QueueTimeout", message);
        self.resolve_unstarted(dispatch, Verdict::Cancelled, report);
    }

    /// Of a call that no process ran.
    pub(super) fn resolve_unstarted(
        &self,
        dispatch: Dispatch,
        verdict: Verdict,
        error: ErrorReport,
    ) {
        let waited_ns = now_ns().saturating_sub(dispatch.submitted_ns);
        let outcome = Outcome {
            verdict,
            value: None,
            error: Some(error),
            exit: None,
            killed_by: None,
            stdout: Captured::default(),
            stderr: Captured::default(),
            metrics: Metrics {
                queue_ns: Some(waited_ns),
                node_id: Some(self.config.node_id.clone()),
                ..Metrics::default()
            },
            in_force: in_force(&dispatch.call, mode_of(&dispatch), &self.means),
            tried_alone: None,
            upper: None,
        };
        self.resolve(dispatch, Ok(outcome));
    }
}

pub(super) fn mode_of(dispatch: &Dispatch) -> Mode {
    match dispatch.call.python().map(|terms| terms.isolation) {
        None => Mode::Command,
        Some(Isolation::Fresh) => Mode::Fresh,
        Some(Isolation::Reuse) => Mode::Reuse,
    }
}

pub(super) fn cancelled() -> ErrorReport {
    ErrorReport::new("Cancelled", "it was cancelled before it began")
}
