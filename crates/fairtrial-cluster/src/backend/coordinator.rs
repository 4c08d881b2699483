//! The thread of a backend: one owner of its queue and of everything outstanding in it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairtrial_exec::{Answer, CallId, EngineError, Event, Listener, Observers, Shutdown};
use futures_util::FutureExt as _;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::line::InLine;
use super::{ClusterConfig, Command};
use crate::answers::{Kept, Opened, StoredEvent};
use crate::away::Away;
use crate::blobs::{Blob, BlobStore};
use crate::dispatch::{Dispatch, DispatchError};
use crate::jitter::{Backoff, jittered, nonce, rounded};
use crate::names::{StreamId, TaskId};
use crate::pack::Signature;
use crate::terms::{NewEvent, OWNER_DEAD_AFTER, Owner, Task, Terms};
use crate::worker_events::from_queue;

/// Everything outstanding is looked for this often, whatever events say (CL-58).
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// A queue that somebody else holds is asked for again this often.
const ASK_OWNER: Duration = Duration::from_secs(1);
/// Results that are fetched from the store at a time.
const MOST_FETCHED: usize = 8;
/// After Ctrl-C what was cancelled may take this long to say so (CL-56).
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// One owner of a queue.
pub(super) struct Coordinator<D> {
    pub(super) dispatch: D,
    pub(super) store: Option<BlobStore>,
    pub(super) config: ClusterConfig,
    observers: Arc<Observers>,
    owner: Owner,
    pub(super) state: RefCell<State>,
    /// Directories that are in the store, as they were then.
    pub(super) packed: RefCell<HashMap<PathBuf, Packed>>,
    /// Held while one is looked at, packed and stored.
    pub(super) packing: tokio::sync::Mutex<()>,
    /// Held while a result is fetched from the store.
    pub(super) fetching: Semaphore,
    /// Something was submitted, answered or cancelled.
    pub(super) changed: Notify,
    /// Somebody lined up, or was cancelled.
    pub(super) line: Notify,
    /// Somebody in the line may have been cancelled.
    pub(super) cancelled: Cell<bool>,
    /// There may be room in the queue.
    pub(super) room: Notify,
    /// Results may be there.
    pub(super) results: Notify,
    /// Somebody may not wait for ever.
    pub(super) waits: Notify,
    /// The queue is open, and events are read from here.
    pub(super) opened: Cell<Option<StreamId>>,
    away: RefCell<Away>,
    /// Somebody was given up, everything cancelled, or a result could not be read: somebody may come back.
    pub(super) was_cut_short: Cell<bool>,
    /// Tasks that were given up without an end.
    given_up: Cell<usize>,
    /// Why no call can be run any more.
    pub(super) failed: RefCell<Option<DispatchError>>,
}

/// What is on its way.
#[derive(Default)]
pub(super) struct State {
    /// Calls that are not tasks yet.
    pub(super) preparing: HashMap<CallId, Preparing>,
    /// Tasks that the server does not have yet, oldest first.
    pub(super) line: VecDeque<InLine>,
    /// Tasks that are being submitted.
    pub(super) asked: HashSet<TaskId>,
    /// What was heard of these before the server's answer was.
    pub(super) early: Vec<StoredEvent>,
    /// Tasks, each with those who wait for it.
    pub(super) outstanding: HashMap<TaskId, Outstanding>,
    /// Ended tasks whose results are to be fetched.
    pub(super) ended: VecDeque<TaskId>,
    /// Tasks to be cancelled as soon as that is possible.
    pub(super) to_cancel: Vec<TaskId>,
    /// Results that were given out and can be dropped, oldest first.
    pub(super) delivered: VecDeque<TaskId>,
    /// Ended tasks whose results are being fetched from the store.
    pub(super) being_fetched: HashSet<TaskId>,
    /// Workers that have begun a call, and are not gone.
    workers: HashSet<String>,
    /// Mechanisms that calls do without, as far as it was told.
    degraded: HashSet<&'static str>,
    /// When to ask whether a task has waited too long.
    pub(super) waiting: BTreeSet<(Instant, TaskId)>,
}

/// A directory in the store.
#[derive(Clone)]
pub(super) struct Packed {
    /// As it was.
    pub(super) signature: Signature,
    pub(super) blob: Blob,
    /// When that was found.
    pub(super) looked: Instant,
}

/// A call on its way to being a task.
pub(super) struct Preparing {
    pub(super) listener: Box<dyn Listener>,
    pub(super) cancelled: bool,
}

/// A task.
pub(super) struct Outstanding {
    pub(super) task: Task,
    pub(super) waiting: Vec<(CallId, Box<dyn Listener>)>,
    /// Nobody wants it any more.
    pub(super) cancelled: bool,
    /// It was there before it was asked for.
    pub(super) was_there: bool,
    pub(super) began: bool,
}

impl Outstanding {
    pub(super) fn new(task: Task, was_there: bool) -> Self {
        Self {
            task,
            waiting: Vec::new(),
            cancelled: false,
            was_there,
            began: false,
        }
    }
}

impl<D: Dispatch + 'static> Coordinator<D> {
    pub(super) fn new(
        dispatch: D,
        store: Option<BlobStore>,
        config: ClusterConfig,
        observers: Arc<Observers>,
    ) -> Rc<Self> {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        Rc::new(Self {
            dispatch,
            store,
            config,
            observers,
            owner: Owner {
                host,
                pid: std::process::id(),
                nonce: nonce(),
            },
            state: RefCell::default(),
            packed: RefCell::default(),
            packing: tokio::sync::Mutex::default(),
            fetching: Semaphore::new(MOST_FETCHED),
            changed: Notify::new(),
            line: Notify::new(),
            cancelled: Cell::new(false),
            room: Notify::new(),
            results: Notify::new(),
            waits: Notify::new(),
            opened: Cell::new(None),
            away: RefCell::default(),
            was_cut_short: Cell::new(false),
            given_up: Cell::new(0),
            failed: RefCell::default(),
        })
    }

    /// Until it is shut down. How many tasks are then with the server whose ends it does not know.
    pub(super) async fn run(
        self: Rc<Self>,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) -> usize {
        let duties = [
            self.start(self.clone().keep_open()),
            self.start(self.clone().read_events()),
            self.start(self.clone().submit_line()),
            self.start(self.clone().collect_results()),
            self.start(self.clone().check_now_and_then()),
            self.start(self.clone().end_long_waits()),
            self.start(self.clone().look_for_agents()),
        ];
        let mut ending: Vec<oneshot::Sender<()>> = Vec::new();
        let mut deadline: Option<Instant> = None;
        let mut abandoned = false;
        loop {
            let idle = self.is_idle();
            if idle && (abandoned || !ending.is_empty()) {
                break;
            }
            let overdue = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = commands.recv(), if !abandoned => match command {
                    Some(Command::Submit(submission)) => self.take(submission),
                    Some(Command::Cancel(call)) => self.cancel(call),
                    Some(Command::Shutdown { how, done }) => {
                        deadline = earlier(deadline, self.wind_down(how));
                        ending.push(done);
                    }
                    Some(Command::Abandon) | None => {
                        deadline = earlier(deadline, self.wind_down(Shutdown::now()));
                        abandoned = true;
                    }
                },
                () = self.changed.notified() => {}
                () = overdue => break,
            }
        }
        duties.iter().for_each(JoinHandle::abort);
        self.give_up_rest();
        let left = self.given_up.get();
        if self.opened.get().is_some() {
            self.drop_delivered(0).await;
            self.drop_leftovers().await;
            self.dispatch
                .close(&self.config.queue, &self.owner)
                .await
                .ok(); // it expires by itself
        }
        self.observers.tell(Event::Shutdown);
        drop(ending); // whoever waits is told
        left
    }

    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.preparing.is_empty() && state.outstanding.is_empty()
    }

    /// Cancels what is to be cancelled; when the rest is given up.
    fn wind_down(self: &Rc<Self>, how: Shutdown) -> Option<Instant> {
        let this = self.clone();
        match how.kill_after {
            Some(grace) => {
                self.start(async move {
                    tokio::time::sleep(grace).await;
                    this.cancel_all().await;
                });
                Some(Instant::now() + grace + CANCEL_PATIENCE)
            }
            None => {
                // Queued or running is the server's to know: a queued one is removed, a running one ends.
                if how.cancel_queued {
                    self.start(async move { this.cancel_queued().await });
                }
                None
            }
        }
    }

    /// Starts a task of this thread. Should it panic, nobody waits for what it had to do: all is given up.
    pub(super) fn start(
        self: &Rc<Self>,
        work: impl Future<Output = ()> + 'static,
    ) -> JoinHandle<()> {
        let this = self.clone();
        tokio::task::spawn_local(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                this.missed(DispatchError::Protocol {
                    operation: "coordinate",
                    problem: "the coordinator panicked".to_owned(),
                });
            }
        })
    }

    // -- the queue

    /// Opens the queue when there is something for it, and says every so often that it has an owner.
    async fn keep_open(self: Rc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            let changed = self.changed.notified();
            let wanted = !self.is_idle();
            let done = match (self.opened.get(), wanted) {
                (None, false) => {
                    changed.await;
                    continue;
                }
                (None, true) => self.open().await,
                (Some(_), _) => self.refresh().await,
            };
            match done {
                Ok(()) => {
                    self.reached();
                    backoff = Backoff::default();
                    tokio::time::sleep(jittered(OWNER_DEAD_AFTER / 3)).await;
                }
                Err(error) => {
                    self.missed(error);
                    // Not past the time that it may be away.
                    let next = backoff.next().min(self.time_left());
                    tokio::time::sleep(next).await;
                }
            }
        }
    }

    async fn open(&self) -> Result<(), DispatchError> {
        let terms = Terms {
            weight: self.config.weight,
            max_queue: self.config.max_queue,
            max_inflight: self.config.max_inflight,
            lease: self.config.lease,
            named: self.config.named,
            ..Terms::new(super::verdicts::verdicts())
        };
        let begun = tokio::time::Instant::now();
        let by = loop {
            let opened = self.dispatch.open(&self.config.queue, &self.owner, &terms);
            let by = match opened.await? {
                Opened::Opened { event } => {
                    self.opened.set(Some(event));
                    self.changed.notify_waiters();
                    return self.pin_packed().await;
                }
                Opened::Owned { by } => by,
            };
            // Whoever was killed holds it a while longer (CL-39), and whoever goes on in its place need not know that.
            if begun.elapsed() > OWNER_DEAD_AFTER + OWNER_DEAD_AFTER / 3 {
                break by;
            }
            if begun.elapsed() < ASK_OWNER {
                let Owner { pid, host, .. } = &by;
                let queue = &self.config.queue;
                log::warn!(
                    "queue `{queue}` is held by process {pid} on {host}; waiting for its end"
                );
            }
            tokio::time::sleep(ASK_OWNER).await;
        };
        Err(DispatchError::Protocol {
            operation: "open",
            problem: format!(
                "queue `{}` is used by process {} on {}: wait for it, or use another queue",
                self.config.queue, by.pid, by.host
            ),
        })
    }

    async fn refresh(&self) -> Result<(), DispatchError> {
        match self.dispatch.keep(&self.config.queue, &self.owner).await? {
            Kept::Ok => self.pin_packed().await,
            Kept::Gone => {
                self.open().await?;
                self.repair().await
            }
            Kept::Owned { by } => Err(DispatchError::Protocol {
                operation: "keep",
                problem: format!("process {} on {} took the queue over", by.pid, by.host),
            }),
        }
    }

    /// Directories are stored once, however long they are used (CL-53).
    pub(super) async fn pin_packed(&self) -> Result<(), DispatchError> {
        let pins: Vec<String> = {
            let packed = self.packed.borrow();
            let digests = packed.values().map(|packed| packed.blob.digest.to_string());
            digests.collect()
        };
        match pins.is_empty() {
            true => Ok(()),
            false => self.dispatch.pin(&self.config.queue, &pins).await,
        }
    }

    async fn check_now_and_then(self: Rc<Self>) {
        loop {
            tokio::time::sleep(jittered(CHECK_EVERY)).await;
            if self.opened.get().is_some()
                && let Err(error) = self.repair().await
            {
                self.missed(error);
            }
        }
    }

    // -- the server

    pub(super) fn reached(&self) {
        self.away.borrow_mut().reached(Instant::now());
    }

    /// How long the server may still be away; never so little that it is asked all the time.
    fn time_left(&self) -> Duration {
        let away = self.away.borrow().time(Instant::now());
        let left = self.config.server_timeout.saturating_sub(away);
        left + Duration::from_millis(50)
    }

    /// The server did not answer, or refused: after too long nothing can be run any more.
    pub(super) fn missed(&self, error: DispatchError) {
        let lasting = match &error {
            DispatchError::Unreachable { .. } => {
                let mut away = self.away.borrow_mut();
                let most = rounded(self.config.server_timeout);
                let goes_on = format!("trying again for up to {most} (`?server_timeout=`)");
                let missed = away.missed(Instant::now(), &error, &goes_on);
                missed > self.config.server_timeout
            }
            _ => true,
        };
        if lasting {
            self.failed.borrow_mut().get_or_insert(error);
            self.give_up_rest();
            self.changed.notify_waiters();
        }
    }

    // -- those who wait

    pub(super) fn tell(&self, call: CallId, listener: Box<dyn Listener>, answer: Answer) {
        let verdict = answer.as_ref().ok().map(|outcome| outcome.verdict);
        self.observers.tell(Event::Complete { call, verdict });
        listener.ended(answer);
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    #[cfg(test)]
    pub(super) fn observe(&self, observer: fairtrial_exec::Observer) {
        self.observers.add(observer).expect("a thread can be had");
    }

    /// What agents tell of the workers that ran calls of this queue: each once, whatever was told again.
    pub(super) fn tell_of_worker(&self, event: &NewEvent) {
        let Some(event) = from_queue(event) else {
            return;
        };
        let mut state = self.state.borrow_mut();
        let is_news = match &event {
            Event::WorkerStart { worker_id, .. } => state.workers.insert(worker_id.clone()),
            Event::WorkerExit { worker_id, .. } => state.workers.remove(worker_id),
            Event::Degraded { mechanism, .. } => state.degraded.insert(mechanism),
            _ => false,
        };
        if is_news {
            self.observers.tell(event);
        }
    }

    pub(super) fn tell_began(&self, task: &TaskId, worker_id: &str) {
        let mut state = self.state.borrow_mut();
        let Some(outstanding) = state.outstanding.get_mut(task).filter(|it| !it.began) else {
            return;
        };
        outstanding.began = true;
        for (call, listener) in &outstanding.waiting {
            listener.began(worker_id);
            self.observers.tell(Event::Start {
                call: *call,
                worker_id: worker_id.to_owned(),
            });
        }
    }

    /// Nobody can tell what becomes of what is left.
    fn give_up_rest(&self) {
        let why = self.failed.borrow().clone();
        let error = || match &why {
            Some(error) => EngineError::Elsewhere {
                code: "server",
                problem: error.to_string(),
            },
            None => EngineError::ShutDown,
        };
        let (preparing, outstanding) = {
            let mut state = self.state.borrow_mut();
            state.line.clear();
            (
                std::mem::take(&mut state.preparing),
                std::mem::take(&mut state.outstanding),
            )
        };
        if !preparing.is_empty() || !outstanding.is_empty() {
            self.was_cut_short.set(true);
        }
        self.given_up.set(self.given_up.get() + outstanding.len());
        for (call, preparing) in preparing {
            self.tell(call, preparing.listener, Err(error()));
        }
        for (call, listener) in outstanding.into_values().flat_map(|task| task.waiting) {
            self.tell(call, listener, Err(error()));
        }
    }
}

/// Who is told twice to end does so when the first of both says.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests;
