//! Whether an agent is well (CL-10). After three engine errors in a row, or a write to the store that failed, it leases
//! nothing until what it needs works again.

use std::time::Duration;

use fairtrial_exec::{Backend as _, Call, Sandbox, Verdict};
use serde_json::json;

use super::NodeAgent;
use super::trial::Ran;
use super::workers::Telling;
use crate::dispatch::{Dispatch, DispatchError};
use crate::jitter::jittered;
use crate::names::QueueName;
use crate::terms::{NewEvent, NodeState, Release};

/// Engine errors in a row that make an agent unhealthy.
const MOST_FAILURES: u32 = 3;

/// An agent that is ill looks this often whether it still is.
const RECOVER_EVERY: Duration = Duration::from_secs(5);

/// A command that ends at once has ended by then, or something is wrong.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

impl<D: Dispatch + 'static> NodeAgent<D> {
    /// CL-26
    pub(super) fn engine_failed(&self, error: &dyn std::error::Error) -> Ran {
        let reason = error.to_string();
        self.failures.set(self.failures.get() + 1);
        if self.failures.get() >= MOST_FAILURES {
            self.fall_ill(&reason);
        }
        Ran::Back(Release::Counted { reason })
    }

    /// CL-27
    pub(super) fn store_failed(&self, why: &str) -> Ran {
        self.fall_ill(why);
        Ran::Back(Release::Uncounted {
            reason: why.to_owned(),
        })
    }

    fn fall_ill(&self, why: &str) {
        // Who drains leases nothing anyway, and is soon gone.
        if self.state.get() == NodeState::Up {
            log::error!("no more leases until the start checks pass: {why}");
            self.turn(NodeState::Unhealthy, Some(why));
        }
    }

    /// After a while: whether what an agent needs works again. Never at once, or an agent that cannot do with a task
    /// what it can do with a probe would be given the same task again and again.
    pub(super) async fn recovers(&self) -> bool {
        tokio::time::sleep(jittered(RECOVER_EVERY)).await;
        self.is_well().await
    }

    /// Whether the store works, and a command at the level that all calls have.
    async fn is_well(&self) -> bool {
        if let Some(store) = &self.store
            && store.check().await.is_err()
        {
            return false;
        }
        let mut call = Call::command(["true"]);
        call.sandbox = Sandbox::new(self.config.floor);
        call.timeout = Some(PROBE_TIMEOUT);
        let tried = self.engine.execute(call).await;
        let works = tried.is_ok_and(|outcome| outcome.verdict == Verdict::Ok);
        if works && self.state.get() == NodeState::Unhealthy {
            log::info!("well again");
            self.failures.set(0);
            self.turn(NodeState::Up, None);
        }
        works
    }

    /// It is in another state from now on, and says so.
    pub(super) fn turn(&self, state: NodeState, why: Option<&str>) {
        self.state.set(state);
        let name = match state {
            NodeState::Up => "agent.up",
            NodeState::Draining => "agent.draining",
            NodeState::Unhealthy => "agent.unhealthy",
        };
        self.report(name, self.config.agent.name(), why);
    }

    /// Queues are told this of an agent.
    pub(super) fn report(&self, name: &str, agent: &str, why: Option<&str>) {
        self.news.borrow_mut().push(NewEvent {
            name: name.to_owned(),
            task: None,
            agent: Some(agent.to_owned()),
            data: why.map_or_else(String::new, |why| json!({ "reason": why }).to_string()),
        });
        self.turned.notify_one();
    }

    /// Tells a queue which of its calls began, and what became of the workers that ran them.
    pub(super) async fn tell_of_workers(&self, queue: &QueueName) -> Result<(), DispatchError> {
        let telling = Telling::of(&self.workers, queue);
        unless_spoilt(self.dispatch.emit(queue, &telling.events).await)?;
        telling.arrived();
        Ok(())
    }

    /// Tells all queues what has not been told yet, and each what concerns it alone (CL-61).
    pub(super) async fn tell_news(&self) -> Result<(), DispatchError> {
        let queues = self.workers.borrow_mut().with_news();
        for queue in &queues {
            self.tell_of_workers(queue).await?;
        }
        if self.news.borrow().is_empty() {
            return Ok(());
        }
        let queues = self.dispatch.queues().await?;
        let news = self.news.take();
        for listed in queues {
            unless_spoilt(self.dispatch.emit(&listed.queue, &news).await)?;
        }
        Ok(())
    }
}

/// Where another program spoilt a queue nobody can be told anything, and the others are told all the same.
fn unless_spoilt(told: Result<(), DispatchError>) -> Result<(), DispatchError> {
    match told {
        Err(DispatchError::Protocol { .. }) => Ok(()),
        told => told,
    }
}
