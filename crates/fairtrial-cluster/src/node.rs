//! The daemon of a node: a lease loop around the local engine.
//!
//! Each slot asks for one task when it is free, runs it and commits what came of it; nothing is fetched ahead (CL-4).
//! Leases are renewed by timers of this process, whatever a call does (CL-5). All of it runs on one thread.

mod duties;
mod health;
mod place;
mod python;
mod rounds;
mod slot;
mod trial;
mod workers;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::{Backend as _, Level, LocalBackend, LockError, MachineLock, Shutdown};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::answers::Announced;
use crate::aside::with_its_panic;
use crate::away::Away;
use crate::blobs::BlobStore;
use crate::dispatch::{Dispatch, DispatchError};
use crate::names::{Agent, Class, QueueName, TaskId};
use crate::pack::TreeCache;
use crate::terms::{NODE_LOST_AFTER, NewEvent, Node, NodeState};
use rounds::Rounds;
use workers::Workers;

/// How an agent is set up.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Who it is.
    pub agent: Agent,
    /// Calls at a time.
    pub slots: u32,
    /// What it serves.
    pub classes: Vec<Class>,
    /// The least isolation of any call.
    pub floor: Level,
    /// Longest time between renewals, three times; queues may ask for less.
    pub lease: Duration,
    /// How long running calls may take to end when it drains.
    pub drain_timeout: Duration,
    /// How long it goes on without the server.
    pub give_up: Duration,
    /// What keeps calls of class `timing` alone on this machine (CL-37).
    pub lock: MachineLock,
    /// Where large arguments are put, without a name.
    pub scratch: PathBuf,
    /// What others are told of it, besides its state.
    pub about: serde_json::Value,
}

/// What an agent was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Nothing: go on.
    #[default]
    No,
    /// End when what runs has ended.
    Drain,
    /// End now.
    Now,
}

/// Why an agent ended other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Another agent of that name lives.
    #[error("an agent `{name}` is alive, or was {} ago: give this one another name with --name, or wait", shown(NODE_LOST_AFTER), name = .0)]
    NameTaken(String),
    /// The server refuses or is not one to work with.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// Nobody can say whether a call would run alone.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The server was away for too long.
    #[error("no answer from the server for {}: {last}", shown(*.since))]
    GaveUp {
        /// For how long.
        since: Duration,
        /// What it said last.
        last: DispatchError,
    },
}

fn shown(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// An agent.
pub struct NodeAgent<D> {
    dispatch: D,
    engine: Arc<LocalBackend>,
    store: Option<BlobStore>,
    cache: TreeCache,
    config: NodeConfig,
    stop: watch::Receiver<Stop>,
    rounds: RefCell<Rounds>,
    /// A queue that is not known here has work.
    unknown_queue: Cell<bool>,
    /// Somebody may have work.
    wake: Notify,
    /// What runs, and how to cancel it.
    running: RefCell<HashMap<(QueueName, TaskId), Rc<Notify>>>,
    state: Cell<NodeState>,
    /// There is news of it.
    turned: Notify,
    /// What queues have not been told yet.
    news: RefCell<Vec<NewEvent>>,
    /// Those of the engine.
    workers: RefCell<Workers>,
    /// Interpreters that calls named, and the version of each.
    pythons: RefCell<HashMap<String, String>>,
    /// Engine failures in a row (CL-10).
    failures: Cell<u32>,
    /// Since when the server is away.
    away: RefCell<Away>,
    /// Queues that are passed over, each told of once.
    spoilt: RefCell<BTreeSet<(QueueName, Class)>>,
    /// Until when what runs may end by itself; since it was told to drain.
    drain_by: Cell<Option<tokio::time::Instant>>,
    ended: RefCell<Option<NodeError>>,
    over: Notify,
}

impl<D: Dispatch + 'static> NodeAgent<D> {
    /// An agent that has done nothing yet.
    #[must_use]
    pub fn new(
        dispatch: D,
        engine: Arc<LocalBackend>,
        store: Option<BlobStore>,
        cache: TreeCache,
        config: NodeConfig,
        stop: watch::Receiver<Stop>,
    ) -> Self {
        Self {
            workers: RefCell::new(Workers::of(&engine, config.agent.name())),
            dispatch,
            engine,
            store,
            cache,
            config,
            stop,
            rounds: RefCell::default(),
            unknown_queue: Cell::new(false),
            wake: Notify::new(),
            running: RefCell::default(),
            state: Cell::new(NodeState::Up),
            turned: Notify::new(),
            news: RefCell::default(),
            pythons: RefCell::default(),
            failures: Cell::new(0),
            away: RefCell::default(),
            spoilt: RefCell::default(),
            drain_by: Cell::new(None),
            ended: RefCell::default(),
            over: Notify::new(),
        }
    }

    /// Serves until it is told to stop, or cannot go on; tells by `serves` that it begins. To be awaited
    /// where tasks of this thread can be started (`event_loop`).
    pub async fn run(self, serves: impl FnOnce()) -> Result<(), NodeError> {
        let agent = Rc::new(self);
        match agent.dispatch.announce(&agent.node()).await? {
            Announced::Ok => {}
            Announced::Taken => {
                return Err(NodeError::NameTaken(agent.config.agent.name().to_owned()));
            }
        }
        serves();
        agent.turn(NodeState::Up, None);
        let (mut slots, mut duties) = (JoinSet::new(), JoinSet::new());
        duties.spawn_local(agent.clone().keep_announced());
        duties.spawn_local(agent.clone().reap());
        duties.spawn_local(agent.clone().hear_hints());
        for slot in 0..agent.config.slots {
            slots.spawn_local(agent.clone().serve(slot));
        }
        while !slots.is_empty() {
            tokio::select! {
                Some(ended) = slots.join_next() => with_its_panic(ended),
                Some(ended) = duties.join_next() => with_its_panic(ended),
            }
        }
        drop(duties);
        agent.report("agent.down", agent.config.agent.name(), None);
        let is_told = agent.tell_news().await.is_ok(); // that it is gone is seen by its name
        agent.dispatch.remove_node(&agent.config.agent).await.ok(); // it expires by itself
        agent.engine.shutdown(Shutdown::now()).await;
        if is_told {
            agent.tell_news().await.ok(); // of its last workers; nothing is known by an event alone
        }
        match agent.ended.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn node(&self) -> Node {
        let mut about = self.config.about.clone();
        if let Some(about) = about.as_object_mut() {
            about.insert("busy".into(), self.running.borrow().len().into());
        }
        Node {
            agent: self.config.agent.clone(),
            classes: self.config.classes.clone(),
            state: self.state.get(),
            about,
        }
    }

    /// What it was told, as far as it goes on by itself.
    fn told(&self) -> Stop {
        match *self.ended.borrow() {
            Some(_) => Stop::Now,
            None => *self.stop.borrow(),
        }
    }

    /// It cannot go on.
    fn end(&self, error: NodeError) {
        self.ended.borrow_mut().get_or_insert(error);
        self.over.notify_waiters();
    }

    /// Until it is told to stop at least so much.
    async fn stopped(&self, least: Stop) {
        let mut stop = self.stop.clone();
        let mut is_heard = true;
        loop {
            let over = self.over.notified();
            if self.told() >= least {
                return;
            }
            tokio::select! {
                // With nobody left who could say so, it can still end by itself.
                changed = stop.changed(), if is_heard => is_heard = changed.is_ok(),
                () = over => {}
            }
        }
    }
}
