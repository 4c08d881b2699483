//! What an agent does besides its calls: says that it lives, takes back what others lost, hears hints.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{NodeAgent, NodeError, Stop};
use crate::answers::Announced;
use crate::dispatch::{Dispatch, DispatchError};
use crate::hints::Hint;
use crate::jitter::{Backoff, jittered};
use crate::names::Agent;
use crate::terms::{NODE_LOST_AFTER, NodeState};

/// A sign of life.
const SIGN: Duration = Duration::from_secs(NODE_LOST_AFTER.as_secs() / 3);

/// How old it may be what is said of busy slots.
const LOOK_BUSY: Duration = Duration::from_secs(1);

impl<D: Dispatch + 'static> NodeAgent<D> {
    /// Says that it lives, and how it is.
    pub(super) async fn keep_announced(self: Rc<Self>) {
        let mut busy = 0;
        loop {
            tokio::select! {
                () = tokio::time::sleep(jittered(SIGN)) => {}
                () = self.turned.notified() => {}
                () = self.has_changed(busy) => {}
                () = self.stopped(Stop::Drain), if self.state.get() != NodeState::Draining => {
                    self.turn(NodeState::Draining, None);
                }
            }
            busy = self.running.borrow().len();
            match self.dispatch.announce(&self.node()).await {
                Ok(Announced::Ok) => self.reached(),
                // It was away for so long that somebody else took its name.
                Ok(Announced::Taken) => {
                    let name = self.config.agent.name().to_owned();
                    self.end(NodeError::NameTaken(name));
                    return;
                }
                Err(error) => self.missed(error),
            }
            self.tell_news().await.ok(); // no state is known by an event alone
        }
    }

    /// Until not as many slots are busy as was said (CL-60), or a worker ended of which no commit told (CL-61); calls that
    /// are shorter than the time between two looks cost nothing.
    async fn has_changed(&self, said: usize) {
        loop {
            tokio::time::sleep(LOOK_BUSY).await;
            if self.running.borrow().len() != said
                || !self.workers.borrow_mut().with_news().is_empty()
            {
                return;
            }
        }
    }

    /// Takes back leases that were not renewed, of all queues (CL-19).
    pub(super) async fn reap(self: Rc<Self>) {
        loop {
            tokio::time::sleep(jittered(self.config.lease / 2)).await;
            if let Err(error) = self.reap_once().await {
                self.missed(error);
            }
        }
    }

    async fn reap_once(&self) -> Result<(), DispatchError> {
        let nodes = self.dispatch.nodes().await?;
        let queues = self.dispatch.queues().await?;
        self.rounds.borrow_mut().know(&queues);
        for name in &nodes.lost {
            if self.dispatch.forget_node(name).await? {
                self.report("agent.lost", name, None);
            }
        }
        for queue in &queues {
            for class in crate::names::Class::ALL {
                let serves = |node: &&crate::terms::Node| {
                    node.classes.contains(&class) && node.state != NodeState::Draining
                };
                let live = nodes.live.iter().filter(serves);
                let live: Vec<Agent> = live.map(|node| node.agent.clone()).collect();
                let reaped = match self.dispatch.reap_all(&queue.queue, class, &live).await {
                    Ok(reaped) => reaped,
                    Err(error) => {
                        self.pass_over((&queue.queue, class), error)?;
                        continue;
                    }
                };
                if reaped.parked + reaped.anew > 0 {
                    let mut rounds = self.rounds.borrow_mut();
                    rounds.may_have(&queue.queue, Instant::now());
                    self.wake.notify_waiters();
                }
            }
        }
        Ok(())
    }

    /// Hears that there may be work, or that something was cancelled.
    pub(super) async fn hear_hints(self: Rc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            let name = self.config.agent.name();
            match self.dispatch.hints(&self.config.classes, Some(name)).await {
                Ok(mut hints) => {
                    backoff = Backoff::default();
                    while let Some(hint) = hints.next().await {
                        self.heed(&hint);
                    }
                }
                Err(error) => self.missed(error),
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    fn heed(&self, hint: &Hint) {
        match hint {
            Hint::Wake { queue, .. } => {
                let mut rounds = self.rounds.borrow_mut();
                rounds.may_have(queue, Instant::now());
                if !rounds.knows(queue) {
                    self.unknown_queue.set(true);
                }
                self.wake.notify_one();
            }
            Hint::Cancel { queue, task } => {
                for ((of, running), cancel) in &*self.running.borrow() {
                    if of == queue && task.as_ref().is_none_or(|task| task == running) {
                        cancel.notify_one();
                    }
                }
            }
        }
    }

    /// The server answered.
    pub(super) fn reached(&self) {
        self.away.borrow_mut().reached(Instant::now());
    }

    /// It did not. What is denied is not asked again; who is away too long is given up.
    pub(super) fn missed(&self, error: DispatchError) {
        if !matches!(error, DispatchError::Unreachable { .. }) {
            self.end(error.into());
            return;
        }
        let mut away = self.away.borrow_mut();
        let goes_on = "going on with what runs, and trying again";
        let since = away.missed(Instant::now(), &error, goes_on);
        drop(away);
        if since > self.config.give_up {
            self.end(NodeError::GaveUp { since, last: error });
        }
    }
}
