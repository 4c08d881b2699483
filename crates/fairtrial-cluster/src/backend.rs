//! A backend whose calls are run by agents: submits tasks, hears of their ends, gives out their results.
//!
//! One thread of its own keeps the queue; whoever uses the backend may be on any thread or event loop. Making one
//! connects to nothing; the first call does.

mod collect;
mod coordinator;
mod leftovers;
mod line;
mod served;
mod submit;
mod too_long;
mod verdicts;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fairtrial_exec::{
    Answer, Backend, Beginning, Call, CallHandle, CallId, Cancels, EngineError, Event, Execution,
    Listener, Observers, Shutdown, SpillPolicy, event_loop,
};
use tokio::sync::{mpsc, oneshot};

use crate::blobs::BlobStore;
use crate::dispatch::Dispatch;
use crate::names::{Class, QueueName};
use coordinator::Coordinator;
pub(crate) use verdicts::cancelled;
pub use verdicts::unrun;

/// How a backend is set up.
#[derive(Clone)]
pub struct ClusterConfig {
    /// Its queue; a name that somebody may come back to, if `named`.
    pub queue: QueueName,
    /// Whether somebody may come back to it.
    pub named: bool,
    /// The slots that its calls need.
    pub class: Class,
    /// Its share among queues.
    pub weight: u32,
    /// Tasks and uncollected results, at most.
    pub max_queue: u64,
    /// Calls that run at a time, at most.
    pub max_inflight: Option<u64>,
    /// What happens when the queue is full.
    pub on_full: OnFull,
    /// How long the server may be away.
    pub server_timeout: Duration,
    /// A lease that is not renewed so long is lost.
    pub lease: Duration,
    /// Where large values go.
    pub spill: SpillPolicy,
    /// The version of Python (`3.12`) that pickles this backend's calls.
    pub python: Option<String>,
    /// Whether the directories that calls run in are sent along (CL-42).
    pub packs_cwd: bool,
    /// Whether the values of passed variables are sent along, from this process's environment.
    pub sends_passed: bool,
}

/// What happens when the queue is full (CL-33).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// The call waits.
    #[default]
    Wait,
    /// It fails.
    Error,
}

/// What the thread is told.
enum Command {
    Submit(Submission),
    Cancel(CallId),
    Shutdown {
        how: Shutdown,
        done: oneshot::Sender<()>,
    },
    Abandon,
}

/// A call on its way.
struct Submission {
    id: CallId,
    call: Box<Call>,
    listener: Box<dyn Listener>,
    /// Whatever it needs is sent as it was then, or later.
    at: Instant,
}

/// Gives a call the values of its passed variables, so that they travel. They stay named: agents mask them.
fn take_passed(call: &mut Call) -> Result<(), EngineError> {
    for name in &call.pass_env {
        let Some(value) = std::env::var_os(name) else {
            let field = format!("pass_env.{}", name.display());
            let problem = "is not set here, and `pass_env=send` takes it from here";
            return Err(fairtrial_exec::InvalidCall::new(field, problem).into());
        };
        call.env.entry(name.clone()).or_insert(Some(value));
    }
    Ok(())
}

/// Notes that a call began where whoever submitted it looks, too.
struct Noting {
    beginning: Beginning,
    listener: Box<dyn Listener>,
}

impl Listener for Noting {
    fn wants_start(&self) -> bool {
        self.listener.wants_start()
    }

    fn began(&self, worker_id: &str) {
        self.beginning.set();
        self.listener.began(worker_id);
    }

    fn ended(self: Box<Self>, answer: Answer) {
        self.listener.ended(answer);
    }
}

/// Runs calls by agents that lease them from `D`.
pub struct ClusterBackend<D> {
    config: ClusterConfig,
    store: Option<BlobStore>,
    observers: Arc<Observers>,
    /// What its thread could not tell the end of is still somewhere.
    left_behind: Arc<AtomicBool>,
    next_call: AtomicU64,
    // A plain mutex: held to read or change one word, never across a wait.
    state: Mutex<State<D>>,
}

enum State<D> {
    New(D),
    Running {
        commands: Arc<Commands>,
        thread: JoinHandle<()>,
    },
    Ended {
        commands: Option<Arc<Commands>>,
        thread: Option<JoinHandle<()>>,
    },
}

struct Commands(mpsc::UnboundedSender<Command>);

impl Cancels for Commands {
    fn cancel(&self, call: CallId) {
        self.0.send(Command::Cancel(call)).ok(); // it has ended, and answered
    }
}

impl<D: Dispatch + 'static> ClusterBackend<D> {
    /// A backend that has connected to nothing yet.
    #[must_use]
    pub fn new(dispatch: D, store: Option<BlobStore>, config: ClusterConfig) -> Self {
        Self {
            config,
            store,
            observers: Arc::default(),
            left_behind: Arc::default(),
            next_call: AtomicU64::new(1),
            state: Mutex::new(State::New(dispatch)),
        }
    }

    /// Submits a call. The returned execution can be awaited, cancelled, or dropped, which cancels too.
    pub fn submit(&self, call: Call) -> Result<Execution, EngineError> {
        let (answer, receiver) = oneshot::channel();
        let handle = self.submit_for(call, Box::new(answer))?;
        Ok(Execution::new(handle, receiver))
    }

    /// Submits a call for a listener, which is told what becomes of it; dropping the handle changes nothing.
    pub fn submit_for(
        &self,
        mut call: Call,
        listener: Box<dyn Listener>,
    ) -> Result<CallHandle, EngineError> {
        call.validate()?;
        if self.config.sends_passed {
            take_passed(&mut call)?;
        }
        if call.workspace.is_some() {
            let invalid = fairtrial_exec::InvalidCall::new("workspace", "is of this machine alone");
            return Err(invalid.into());
        }
        let mut state = self.lock();
        let commands = self.running(&mut state)?;
        // Under the lock, so that `submit` is told in the order of ids, and never after `shutdown`.
        let id = CallId(self.next_call.fetch_add(1, Ordering::Relaxed));
        self.observers.tell(Event::Submit { call: id });
        let listener = Box::new(Noting {
            beginning: call.beginning.clone(),
            listener,
        });
        let submission = Submission {
            id,
            call: Box::new(call),
            listener,
            at: Instant::now(),
        };
        if commands.0.send(Command::Submit(submission)).is_err() {
            let verdict = None;
            self.observers.tell(Event::Complete { call: id, verdict });
            return Err(EngineError::ShutDown);
        }
        Ok(CallHandle::new(id, commands))
    }

    /// Whether it was shut down and its thread has nothing left to do.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &*self.lock() {
            State::New(_) | State::Running { .. } => false,
            State::Ended { thread, .. } => thread.as_ref().is_none_or(JoinHandle::is_finished),
        }
    }

    /// Whether agents may still run calls of this backend's although it was shut down: it does not know their ends.
    #[must_use]
    pub fn has_left_calls(&self) -> bool {
        let is_over = match &*self.lock() {
            State::New(_) => true,
            State::Running { .. } => false,
            State::Ended { thread, .. } => thread.as_ref().is_none_or(JoinHandle::is_finished),
        };
        !is_over || self.left_behind.load(Ordering::Relaxed)
    }

    /// Whether this runs in a handler of an event of this backend's.
    #[must_use]
    pub fn is_in_handler(&self) -> bool {
        self.observers.is_told_here()
    }

    /// As [`Backend::shutdown`], on behalf of a handler if `from_handler`: then no handler is waited for, since it is
    /// one of them that waits.
    pub async fn shut_down(&self, how: Shutdown, from_handler: bool) {
        let (done, finished) = oneshot::channel();
        if let Some(commands) = self.close()
            && commands.0.send(Command::Shutdown { how, done }).is_ok()
            && how.wait
        {
            _ = finished.await; // never sent, only dropped
        }
        if how.wait && !from_handler {
            if let Some(thread) = self.take_thread() {
                thread.join().ok(); // a panic was logged, and has ended it
            }
            self.observers.finish();
        }
    }

    fn running(&self, state: &mut State<D>) -> Result<Arc<Commands>, EngineError> {
        let ended = State::Ended {
            commands: None,
            thread: None,
        };
        match std::mem::replace(state, ended) {
            State::New(dispatch) => {
                let (commands, thread) = self.start(dispatch)?;
                let running = commands.clone();
                *state = State::Running { commands, thread };
                Ok(running)
            }
            State::Running { commands, thread } => {
                let running = commands.clone();
                *state = State::Running { commands, thread };
                Ok(running)
            }
            ended @ State::Ended { .. } => {
                *state = ended;
                Err(EngineError::ShutDown)
            }
        }
    }

    fn start(&self, dispatch: D) -> Result<(Arc<Commands>, JoinHandle<()>), EngineError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (config, store) = (self.config.clone(), self.store.clone());
        let (observers, left_behind) = (self.observers.clone(), self.left_behind.clone());
        let thread = event_loop::on_new_thread("fairtrial-cluster", || async move {
            let coordinator = Coordinator::new(dispatch, store, config, observers);
            let left = coordinator.run(receiver).await;
            left_behind.store(left > 0, Ordering::Relaxed);
        })
        .map_err(EngineError::io("starting the cluster's thread"))?;
        Ok((Arc::new(Commands(sender)), thread))
    }

    /// No more calls are taken; where the thread is told of its end.
    fn close(&self) -> Option<Arc<Commands>> {
        let mut state = self.lock();
        let ended = State::Ended {
            commands: None,
            thread: None,
        };
        match std::mem::replace(&mut *state, ended) {
            State::New(_) => {
                self.observers.tell(Event::Shutdown);
                None
            }
            State::Running { commands, thread } => {
                *state = State::Ended {
                    commands: Some(commands.clone()),
                    thread: Some(thread),
                };
                Some(commands)
            }
            State::Ended { commands, thread } => {
                let again = commands.clone();
                *state = State::Ended { commands, thread };
                again
            }
        }
    }

    fn take_thread(&self) -> Option<JoinHandle<()>> {
        match &mut *self.lock() {
            State::Ended { thread, .. } => thread.take(),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Dispatch + 'static> Backend for ClusterBackend<D> {
    fn execute(&self, call: Call) -> impl Future<Output = Answer> + Send {
        let submitted = self.submit(call);
        async move { submitted?.await }
    }

    fn execute_unless(
        &self,
        call: Call,
        cancelled: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = Option<Answer>> + Send {
        let submitted = self.submit(call);
        async move {
            let mut execution = match submitted {
                Ok(execution) => execution,
                Err(error) => return Some(Err(error)),
            };
            tokio::select! {
                biased;
                answer = &mut execution => return Some(answer),
                () = cancelled => execution.cancel(),
            }
            Some(execution.await)
        }
    }

    async fn shutdown(&self, how: Shutdown) {
        self.shut_down(how, self.is_in_handler()).await;
    }

    fn subscribe(&self, observer: Box<dyn FnMut(&Event) + Send>) -> Result<(), EngineError> {
        self.observers.add(observer)
    }
}

impl<D> Drop for ClusterBackend<D> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (commands, thread) = match state {
            State::New(_) => (None, None),
            State::Running { commands, .. } => (Some(commands.clone()), None),
            State::Ended { commands, thread } => (commands.take(), thread.take()),
        };
        if let Some(commands) = commands {
            commands.0.send(Command::Abandon).ok(); // already ended
        }
        drop(thread); // it ends by itself, and nothing of a call is on this machine
        self.observers.leave();
    }
}

#[cfg(test)]
mod tests;
