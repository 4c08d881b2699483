//! Which call starts next, and in which worker. How its process is made is `start.rs`'s business.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::interpreters::{LaneState, ZygoteState};
use super::member::Member;
use super::pool::{Pool, cancelled, mode_of};
use super::queue::{COMMANDS, Lane};
use super::start::{self, Identity, Mailbox, NotStarted};
use crate::call::Time;
use crate::config::{Recycle, available_cpus};
use crate::dispatch::{Dispatch, Site, WorkerNumber};
use crate::error::EngineError;
use crate::event::{CallId, ExitReason};
use crate::protocol::launcher::{Shared, TaskId};
use crate::sandbox::Terms;
use crate::verdict::Verdict;
use crate::worker::Mode;
use crate::worker::drive::ToWorker;

/// Between two looks whether directories are removed.
const REMOVAL_LOOK: Duration = Duration::from_millis(2);

/// A call as a worker is given it.
struct Given {
    call: CallId,
    /// It has no timeout.
    endless: bool,
    /// It runs alone.
    alone: bool,
    /// No other call runs beside it.
    only: bool,
}

impl Given {
    fn of(dispatch: &Dispatch) -> Self {
        Self {
            call: dispatch.id,
            endless: dispatch.call.timeout.is_none(),
            alone: dispatch.runs_alone(),
            only: dispatch.lacked.is_some(),
        }
    }
}

/// Who may start.
enum Turn {
    Anyone,
    AloneFirst,
    Nobody,
}

impl Pool {
    /// Gives free slots to the oldest calls that can start, and warms interpreters for those that cannot yet.
    pub(super) async fn start_what_can_start(&mut self) {
        if self.queue.is_empty() || self.not_before.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.not_before = None;
        let Some(site) = self.site().await else {
            return;
        };
        self.try_namespaces(&site).await;
        self.warm_interpreters(&site);
        // A call that found no process is tried again after a pause, not in this very loop.
        while self.busy() < self.room.slots() && self.not_before.is_none() {
            let lanes = &self.lanes;
            let ready = |lane: Lane| {
                lane == COMMANDS || matches!(lanes[&lane].zygote, ZygoteState::Ready { .. })
            };
            let next = match self.turn() {
                Turn::Anyone => self.queue.pop(ready),
                Turn::AloneFirst => match self.queue.pop_alone(ready) {
                    None => self.queue.pop(ready),
                    alone => alone,
                },
                Turn::Nobody => None,
            };
            let Some((lane, dispatch)) = next else {
                if self.waits_for_removals() {
                    self.not_before = Some(Instant::now() + REMOVAL_LOOK);
                }
                return;
            };
            if let Some(dispatch) = self.if_wanted(dispatch) {
                self.start(&site, lane, dispatch);
            }
        }
        self.send_ahead();
    }

    /// Who may start now. With processors to spare one call at a time runs alone while others go on beside it; with a
    /// single one it needs that, and others wait until it is done, unless they would wait for a call without a timeout.
    fn turn(&self) -> Turn {
        if self.only.is_some() {
            return Turn::Nobody;
        }
        if self
            .queue
            .peek_alone()
            .is_some_and(|call| call.lacked.is_some())
        {
            let beside_others =
                !self.running.is_empty() && !self.workers.values().any(Member::is_endless);
            return if beside_others || self.waits_for_removals() {
                Turn::Nobody
            } else {
                Turn::AloneFirst
            };
        }
        if self.alone.is_none() && !self.queue.has_alone() {
            return Turn::Anyone;
        }
        match (self.alone, available_cpus()) {
            (None, 2..) => Turn::AloneFirst,
            (Some(_), 2..) => Turn::Anyone,
            (None, _) if self.running.is_empty() => Turn::AloneFirst,
            (None, _) if self.workers.values().any(Member::is_endless) => Turn::Anyone,
            _ => Turn::Nobody,
        }
    }

    /// Whether the next call is to find the disk space that the directories of earlier ones still take.
    fn waits_for_removals(&self) -> bool {
        let next = self.queue.peek_alone().and_then(|call| call.lacked);
        let removes = |site: &Site| site.context.is_removing();
        next == Some(Shared::ScratchDisk) && self.site.as_ref().is_some_and(removes)
    }

    /// A call that is about to start, unless nobody wants it any more.
    fn if_wanted(&mut self, dispatch: Dispatch) -> Option<Dispatch> {
        if dispatch.listener.wants_start() {
            return Some(dispatch);
        }
        self.resolve_unstarted(dispatch, Verdict::Cancelled, cancelled());
        None
    }

    /// Slots in use: workers that have a call.
    pub(super) fn busy(&self) -> usize {
        self.workers
            .values()
            .filter(|member| !member.calls.is_empty())
            .count()
    }

    /// Every slot is busy: those with short calls get the next ones already, evenly.
    pub(super) fn send_ahead(&mut self) {
        if self.config.recycle != Recycle::default() || self.closing.is_some() {
            return; // whether a worker serves another call is decided between calls
        }
        if matches!(self.turn(), Turn::Nobody) {
            return;
        }
        for lane in self.queue.lanes() {
            while let Some(number) = self.next_ahead(lane) {
                let goes = |dispatch: &Dispatch| {
                    mode_of(dispatch) == Mode::Reuse
                        && dispatch.call.queue_timeout.is_none()
                        && dispatch.call.time == Time::Wall
                        && !dispatch.goes_alone
                };
                let Some(dispatch) = self.queue.pop_if(lane, goes) else {
                    break;
                };
                let Some(dispatch) = self.if_wanted(dispatch) else {
                    continue;
                };
                let generation = self.next_generation();
                self.give(number, &Given::of(&dispatch));
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

    fn next_ahead(&mut self, lane: Lane) -> Option<WorkerNumber> {
        let takers = self.workers.iter_mut().filter_map(|(number, member)| {
            let takes = member.lane == lane && member.takes_ahead();
            takes.then_some((number, member))
        });
        takers
            .min_by_key(|(number, member)| (member.calls.len(), **number))
            .map(|(number, _)| *number)
    }

    /// With a slot free, nobody's call waits behind another's long one.
    pub(super) fn free_stuck(&mut self) {
        if self.busy() >= self.room.slots() {
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
    pub(super) fn come_back(&mut self, worker: WorkerNumber, dispatch: Dispatch) {
        self.running.remove(&dispatch.id);
        self.no_longer_alone(dispatch.id);
        let lane = self.lane(&dispatch);
        if let Some(member) = self.workers.get_mut(&worker) {
            member.calls.retain(|call| *call != dispatch.id);
            if member.spoilt && member.calls.is_empty() {
                self.retire_spoilt(worker);
            }
        }
        self.requeue(lane, dispatch);
    }

    /// Ends a worker that is no more use; the calls it has not begun go to others first.
    pub(super) fn retire_spoilt(&mut self, worker: WorkerNumber) {
        match self.workers.get_mut(&worker) {
            Some(member) if !member.calls.is_empty() => {
                member.skipping = true;
                member.mailbox.send(ToWorker::TakeBack).ok(); // if it is gone, its calls are on their way here
            }
            Some(member) if !member.leaving => self.retire(worker, ExitReason::AfterError),
            _ => {}
        }
    }

    pub(super) fn start(&mut self, site: &Site, lane: Lane, dispatch: Dispatch) {
        if let Some(at) = dispatch.queue_deadline {
            self.queue_deadlines.remove(&(at, dispatch.id)); // it waits no longer
        }
        let state = self.state(lane);
        state.last_used = Instant::now();
        let mode = mode_of(&dispatch);
        let zygote = match &state.zygote {
            ZygoteState::Ready { handle, .. } => handle.task,
            _ => return self.start_command(site, dispatch),
        };
        let terms = Terms::of(&dispatch.call);
        let alone = dispatch.runs_alone();
        let idle = match alone {
            true => None, // it is to be born where it runs
            false => self.idle_worker(lane, mode, terms.as_ref()),
        };
        let worker = match idle {
            Some(worker) => worker,
            None => match self.fork_for_call(site, lane, zygote, mode, terms, alone) {
                Ok(worker) => worker,
                Err(_) if self.scratch_is_lost() => {
                    return self.try_with_new_scratch(lane, dispatch);
                }
                Err(source) => {
                    return self.try_again(lane, dispatch, "making its channels".into(), source);
                }
            },
        };
        self.assign(worker, dispatch);
        if mode == Mode::Fresh {
            self.state(lane).fresh_calls += 1;
        }
    }

    fn start_command(&mut self, site: &Site, dispatch: Dispatch) {
        self.make_room();
        let given = Given::of(&dispatch);
        let (identity, generation) = (self.identity(given.alone), self.next_generation());
        let (number, id) = (identity.number, identity.id.clone());
        match start::command(site, identity, dispatch, generation) {
            Ok(mailbox) => {
                self.add_member(number, id, COMMANDS, Mode::Command, mailbox);
                self.give(number, &given);
            }
            Err(not_started) => {
                let NotStarted { dispatch, error } = *not_started;
                match error {
                    EngineError::Spawn { step, source } => {
                        self.try_again(COMMANDS, dispatch, step, source)
                    }
                    EngineError::Scratch { .. } if self.scratch_is_lost() => {
                        self.try_with_new_scratch(COMMANDS, dispatch);
                    }
                    // What fills the disk may be gone with a call that runs.
                    EngineError::Scratch { dir, source }
                        if source.kind() == io::ErrorKind::StorageFull
                            && !self.running.is_empty() =>
                    {
                        let step = format!("making a directory in `{}`", dir.display());
                        self.try_again(COMMANDS, dispatch, step, source);
                    }
                    error => self.resolve(dispatch, Err(error)),
                }
            }
        }
    }

    pub(super) fn fork(
        &mut self,
        site: &Site,
        lane: Lane,
        zygote: TaskId,
        mode: Mode,
        terms: Option<Terms>,
        alone: bool,
    ) -> io::Result<WorkerNumber> {
        let identity = self.identity(alone);
        let (number, id) = (identity.number, identity.id.clone());
        let host = self
            .state(lane)
            .key
            .as_ref()
            .and_then(|key| key.host.clone());
        let paths = match (&terms, &self.state(lane).zygote) {
            (Some(_), ZygoteState::Ready { warm, .. }) => warm.paths.clone(),
            _ => Vec::new(),
        };
        let mailbox = start::fork(
            site,
            zygote,
            host.as_deref(),
            mode,
            identity,
            terms.as_ref(),
            &paths,
        )?;
        self.add_member(number, id, lane, mode, mailbox);
        if let Some(member) = self.workers.get_mut(&number) {
            member.terms = terms;
        }
        Ok(number)
    }

    fn fork_for_call(
        &mut self,
        site: &Site,
        lane: Lane,
        zygote: TaskId,
        mode: Mode,
        terms: Option<Terms>,
        alone: bool,
    ) -> io::Result<WorkerNumber> {
        self.make_room();
        self.fork(site, lane, zygote, mode, terms, alone)
    }

    /// From a key's second call on, the next `fresh` worker is forked as soon as one has replied: a fork is most of a
    /// call's cost. Not earlier, since it would compete with the call that is being measured. It has run no code of
    /// anybody's.
    pub(super) fn keep_spare(&mut self, lane: Lane, terms: Option<Terms>) {
        let Some(site) = self.site.clone() else {
            return;
        };
        let wanted = self.config.fork_ahead && self.closing.is_none() && !self.room.is_short();
        let zygote = match self.lanes.get(&lane) {
            Some(LaneState {
                zygote: ZygoteState::Ready { handle, .. },
                fresh_calls: 2..,
                ..
            }) if wanted => handle.task,
            _ => return,
        };
        let mut spares = self
            .workers
            .values()
            .filter(|member| member.lane == lane && member.mode == Mode::Fresh && member.is_idle());
        let fits = spares.next().map(|member| member.terms == terms);
        if fits == Some(false) {
            // Calls come on other terms now.
            let idle = |member: &Member| member.mode == Mode::Fresh && member.is_idle();
            let unfit = self
                .workers
                .iter()
                .find(|(_, member)| member.lane == lane && idle(member));
            if let Some(number) = unfit.map(|(number, _)| *number) {
                self.retire(number, ExitReason::Idle);
            }
        }
        if fits != Some(true) {
            // Without one the next call forks its own, and says what is wrong if it cannot.
            self.fork(&site, lane, zygote, Mode::Fresh, terms, false)
                .ok();
        }
    }

    fn identity(&mut self, alone: bool) -> Identity {
        self.numbers += 1;
        // An odd factor makes this a permutation of 48-bit numbers: distinct, and without a pattern to guess.
        let mixed = self
            .id_base
            .wrapping_add(self.numbers)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Identity {
            number: WorkerNumber(self.numbers),
            id: format!("{:012x}", mixed & 0xffff_ffff_ffff),
            alone,
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
            filling: false,
            blamed: false,
            spoilt: false,
            told: false,
            endless: false,
            terms: None,
        };
        self.workers.insert(number, member);
    }

    fn give(&mut self, worker: WorkerNumber, given: &Given) {
        if let Some(member) = self.workers.get_mut(&worker) {
            if member.calls.is_empty() {
                member.since = Instant::now();
                member.endless = false;
            }
            member.endless |= given.endless;
            member.calls.push(given.call);
            self.running.insert(given.call, worker);
            if given.alone {
                self.alone = Some(given.call);
            }
            if given.only {
                self.only = Some(given.call);
            }
        }
    }

    fn assign(&mut self, worker: WorkerNumber, dispatch: Dispatch) {
        let generation = self.next_generation();
        self.give(worker, &Given::of(&dispatch));
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

    fn idle_worker(&self, lane: Lane, mode: Mode, terms: Option<&Terms>) -> Option<WorkerNumber> {
        let idle = self.workers.iter().filter(|(_, member)| {
            member.lane == lane
                && member.mode == mode
                && member.is_idle()
                && member.terms.as_ref() == terms
        });
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
        let surplus = (self.busy() + idle.len() + 1).saturating_sub(self.room.slots());
        for (_, number) in idle.into_iter().take(surplus) {
            self.retire(number, ExitReason::Idle);
        }
    }
}
