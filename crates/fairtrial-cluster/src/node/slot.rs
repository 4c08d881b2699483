//! One slot: asks for a task when it is free, has it run, and tells what came of it.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::place::Place;
use super::trial::{Ended, Ran, error_of};
use super::{NodeAgent, Stop};
use crate::answers::{Committed, Leased, Renewed};
use crate::dispatch::{Dispatch, DispatchError};
use crate::envelope::{ErrorCode, ResultEnvelope};
use crate::jitter::{Backoff, jittered};
use crate::names::{Class, Consumer, QueueName};
use crate::terms::{Commit, Lease, NewEvent, NodeState, Release};

/// An idle slot asks this often, hints or none (CL-18).
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A task that a slot holds.
pub(super) struct Held {
    pub(super) lease: Lease,
    pub(super) envelope: Vec<u8>,
    /// Between renewals.
    renew_every: Duration,
    /// For this slot.
    pub(super) waited: Duration,
    place: Place,
}

impl<D: Dispatch + 'static> NodeAgent<D> {
    /// A slot's life.
    pub(super) async fn serve(self: Rc<Self>, slot: u32) {
        let consumer = self.config.agent.slot(slot);
        let mut next = None;
        while let Some(held) = match next.take() {
            Some(held) => Some(held),
            None => self.seek(&consumer).await,
        } {
            next = self.see_through(held, &consumer).await;
        }
    }

    /// The next task; none when it is told to stop.
    async fn seek(&self, consumer: &Consumer) -> Option<Held> {
        let mut backoff = Backoff::default();
        loop {
            let woken = self.wake.notified();
            if self.told() != Stop::No {
                return None;
            }
            if self.state.get() == NodeState::Unhealthy {
                tokio::select! {
                    _ = self.recovers() => continue,
                    () = self.stopped(Stop::Drain) => return None,
                }
            }
            let wait = match self.ask_around(consumer).await {
                Ok(Some(held)) => {
                    // One hint is given for all that came with it: where there was a task there may be more.
                    self.wake.notify_one();
                    return Some(held);
                }
                Ok(None) => {
                    self.reached();
                    backoff = Backoff::default();
                    jittered(ASK_EVERY)
                }
                Err(error) => {
                    self.missed(error);
                    backoff.next()
                }
            };
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep(wait) => self.look_for_queues().await,
                () = self.stopped(Stop::Drain) => return None,
            }
        }
    }

    /// Asks each queue in its turn.
    async fn ask_around(&self, consumer: &Consumer) -> Result<Option<Held>, DispatchError> {
        if self.unknown_queue.take() || self.rounds.borrow().is_empty() {
            self.know_queues().await?;
        }
        let order = self.rounds.borrow().order(Instant::now());
        let mut place = None;
        for queue in &order {
            let asked = Instant::now();
            for class in &self.config.classes {
                place = match self.place_for((queue, *class), consumer, place).await {
                    Ok(place) => place,
                    Err(error) => {
                        self.pass_over((queue, *class), error)?;
                        None
                    }
                };
                if place.as_ref().is_none_or(|place| place.class != *class) || !self.goes_on() {
                    continue;
                }
                let leased = match self.dispatch.lease(queue, *class, consumer).await {
                    Ok(leased) => leased,
                    Err(error) => {
                        self.pass_over((queue, *class), error)?;
                        continue;
                    }
                };
                if let Some(held) = self.taken(queue, leased, &mut place) {
                    return Ok(Some(held));
                }
            }
            self.rounds.borrow_mut().had_nothing(queue, asked);
        }
        Ok(None)
    }

    /// A queue that another program spoilt costs the others nothing; whatever else went wrong does.
    pub(super) fn pass_over(
        &self,
        (queue, class): (&QueueName, Class),
        error: DispatchError,
    ) -> Result<(), DispatchError> {
        if !matches!(error, DispatchError::Protocol { .. }) {
            return Err(error);
        }
        let mut spoilt = self.spoilt.borrow_mut();
        if spoilt.insert((queue.clone(), class)) {
            log::warn!("queue `{queue}` is passed over: {error}");
        }
        Ok(())
    }

    fn is_spoilt(&self, queue: &QueueName, class: Class) -> bool {
        let spoilt = self.spoilt.borrow();
        !spoilt.is_empty() && spoilt.contains(&(queue.clone(), class))
    }

    async fn look_for_queues(&self) {
        if let Err(error) = self.know_queues().await {
            self.missed(error);
        }
    }

    async fn know_queues(&self) -> Result<(), DispatchError> {
        let queues = self.dispatch.queues().await?;
        self.rounds.borrow_mut().know(&queues);
        Ok(())
    }

    /// What was leased, with the place that was taken for it.
    fn taken(&self, queue: &QueueName, leased: Leased, place: &mut Option<Place>) -> Option<Held> {
        match leased {
            Leased::Task {
                lease,
                envelope,
                renew_within,
                waited,
            } => {
                self.rounds.borrow_mut().served(queue);
                if self.is_spoilt(queue, lease.class) {
                    let place = (queue.clone(), lease.class);
                    self.spoilt.borrow_mut().remove(&place); // it is as it should be again
                }
                Some(Held {
                    lease,
                    envelope,
                    renew_every: renew_within.min(self.config.lease) / 3,
                    waited,
                    place: place.take().expect("it is taken before the lease"),
                })
            }
            Leased::Empty | Leased::Gone => None,
        }
    }

    /// Runs a task and tells what came of it; the next one, if that came with it.
    async fn see_through(&self, held: Held, consumer: &Consumer) -> Option<Held> {
        let place = (held.lease.queue.clone(), held.lease.task.clone());
        let (cancel, lost) = (Rc::new(Notify::new()), Notify::new());
        self.running
            .borrow_mut()
            .insert(place.clone(), cancel.clone());
        let (lease, every) = (held.lease.clone(), held.renew_every);
        let next = tokio::select! {
            biased;
            next = self.run_and_tell(held, &cancel, &lost, consumer) => next,
            never = self.renew(&lease, every, &cancel, &lost) => match never {},
        };
        self.running.borrow_mut().remove(&place);
        next
    }

    async fn run_and_tell(
        &self,
        held: Held,
        cancel: &Notify,
        lost: &Notify,
        consumer: &Consumer,
    ) -> Option<Held> {
        match self.run_trial(&held, cancel, lost).await {
            Ran::Committable(ended) => return self.commit(held, ended, consumer).await,
            Ran::Back(release) => {
                drop(held.place);
                self.workers.borrow_mut().give_up(&held.lease);
                self.release(&held.lease, &release).await;
            }
            Ran::Lost => {
                drop(held.place);
                self.workers.borrow_mut().give_up(&held.lease);
                self.tell_fenced(&held.lease).await;
            }
        }
        None
    }

    /// Keeps the lease, by its own timer (CL-5), until that is of no use.
    async fn renew(
        &self,
        lease: &Lease,
        every: Duration,
        cancel: &Notify,
        lost: &Notify,
    ) -> Infallible {
        let mut backoff = Backoff::default();
        let mut wait = every;
        loop {
            tokio::time::sleep(wait).await;
            wait = every;
            match self.dispatch.renew(lease).await {
                Ok(Renewed::Ok) => {
                    self.reached();
                    backoff = Backoff::default();
                }
                Ok(Renewed::Cancel) => cancel.notify_one(),
                Ok(Renewed::Lost) => {
                    lost.notify_one();
                    return std::future::pending().await;
                }
                Err(error) => match self.pass_over((&lease.queue, lease.class), error) {
                    Ok(()) => {
                        lost.notify_one(); // with the queue
                        return std::future::pending().await;
                    }
                    Err(error) => {
                        self.missed(error);
                        wait = backoff.next().min(every);
                    }
                },
            }
        }
    }

    /// Commits, as often as it takes, and asks for the next task in the same breath.
    async fn commit(&self, held: Held, ended: Ended, consumer: &Consumer) -> Option<Held> {
        let mut place = Some(held.place);
        let mut commit = Commit {
            events: self.workers.borrow_mut().take(&held.lease.queue),
            lease: held.lease,
            result: ended.result,
            complete: ended.complete,
        };
        let mut backoff = Backoff::default();
        let overdue = self.overdue();
        tokio::pin!(overdue);
        loop {
            let next = self.next_from(&commit.lease.queue, &mut place);
            let answer = match &next {
                Some(queue) => self.commit_and_ask(&commit, queue, &mut place).await,
                None => self
                    .dispatch
                    .commit(&commit)
                    .await
                    .map(|committed| (committed, None)),
            };
            match answer {
                Ok((committed, held)) => {
                    self.reached();
                    self.note(commit, &committed, consumer).await;
                    return held;
                }
                // Anybody's would be: it ends here, and not the agent.
                Err(error @ DispatchError::TooLarge { .. }) => {
                    let ended = error_of(&commit.lease, ErrorCode::TooLarge, &error);
                    (commit.result, commit.complete) = (ended.result, ended.complete);
                    continue;
                }
                Err(error) => {
                    let own = (&commit.lease.queue, commit.lease.class);
                    let Err(error) = self.pass_over(own, error) else {
                        self.workers.borrow_mut().give_up(&commit.lease);
                        self.rounds.borrow_mut().had_nothing(own.0, Instant::now());
                        return None; // the result is lost with the queue
                    };
                    self.missed(error);
                }
            }
            place = None; // nobody is kept from theirs by a server that is away
            tokio::select! {
                () = tokio::time::sleep(backoff.next()) => {}
                () = &mut overdue => return None, // CL-7: its lease expires by itself
            }
        }
    }

    fn goes_on(&self) -> bool {
        self.told() == Stop::No && self.state.get() == NodeState::Up
    }

    /// The queue that the next task is asked of at once, from the same place; else the place is given up.
    ///
    /// Who serves several classes asks each of them anew, lest the others never have their turn.
    fn next_from(&self, own: &QueueName, place: &mut Option<Place>) -> Option<QueueName> {
        let stays = self.goes_on() && self.config.classes.len() == 1;
        if !stays || place.as_ref().is_none_or(Place::is_wanted) {
            *place = None;
            return None;
        }
        let (now, mut rounds) = (Instant::now(), self.rounds.borrow_mut());
        // One that had the most it may have running has room when this is committed.
        rounds.may_have(own, now);
        let mut order = rounds.order(now).into_iter();
        order.find(|queue| !self.is_spoilt(queue, self.config.classes[0]))
    }

    async fn commit_and_ask(
        &self,
        commit: &Commit,
        queue: &QueueName,
        place: &mut Option<Place>,
    ) -> Result<(Committed, Option<Held>), DispatchError> {
        let (class, asked) = (commit.lease.class, Instant::now());
        let (committed, leased) = self.dispatch.commit_and_lease(commit, queue, class).await?;
        let held = match leased {
            Ok(leased) => self.taken(queue, leased, place),
            Err(error) => {
                self.pass_over((queue, class), error).ok(); // what else is wrong shows when it is asked again
                None
            }
        };
        if held.is_none() {
            self.rounds.borrow_mut().had_nothing(queue, asked);
        }
        Ok((committed, held))
    }

    async fn note(&self, commit: Commit, committed: &Committed, consumer: &Consumer) {
        match committed {
            Committed::Committed => return,
            // Its reply was lost the first time (CL-59).
            Committed::Duplicate { stored } if is_own(stored, &commit.lease, consumer) => return,
            Committed::Duplicate { .. } | Committed::Fenced => {
                self.tell_fenced(&commit.lease).await
            }
            Committed::Unknown => log::info!("task {} is known no more", commit.lease.task),
        }
        let mut workers = self.workers.borrow_mut();
        workers.put_back(&commit.lease.queue, commit.events);
        workers.give_up(&commit.lease);
    }

    async fn release(&self, lease: &Lease, release: &Release) {
        let mut backoff = Backoff::default();
        let overdue = self.overdue();
        tokio::pin!(overdue);
        loop {
            match self.dispatch.release(lease, release).await {
                Ok(_) => return self.reached(),
                Err(error) => match self.pass_over((&lease.queue, lease.class), error) {
                    Ok(()) => return,
                    Err(error) => self.missed(error),
                },
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next()) => {}
                () = &mut overdue => return, // the lease expires by itself
            }
        }
    }

    /// CL-16: what somebody else has now, is theirs.
    async fn tell_fenced(&self, lease: &Lease) {
        let event = NewEvent {
            name: "call.fenced".to_owned(),
            task: Some(lease.task.clone()),
            agent: Some(self.config.agent.name().to_owned()),
            data: String::new(),
        };
        let told = self.dispatch.emit(&lease.queue, &[event]).await;
        told.ok(); // an event is never all that is known of anything
    }
}

fn is_own(stored: &[u8], lease: &Lease, consumer: &Consumer) -> bool {
    ResultEnvelope::read(stored).is_ok_and(|result| {
        result.token == Some(lease.token) && result.agent.as_deref() == Some(&*consumer.to_string())
    })
}

#[cfg(test)]
mod tests;
