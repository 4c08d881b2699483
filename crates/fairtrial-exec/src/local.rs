//! The backend on this machine: a handle on the engine's thread, which it starts on first use.

mod admit;
mod answers;
mod door;
mod interpreters;
mod member;
mod news;
mod pool;
mod queue;
mod room;
mod slots;
mod start;
mod vigil;

pub use pool::ADVICE;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Poll, ready};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::backend::{Backend, Shutdown};
use crate::call::Call;
use crate::config::LocalConfig;
use crate::dispatch::{Answer, Dispatch};
use crate::error::EngineError;
use crate::event::{CallId, Event};
use crate::event_loop;
use crate::linux::machine_memory::MachineMemory;
use crate::linux::monotonic::now_ns;
use crate::listener::{Listener, Streams};
use crate::observers::{Observers, Onlooker};
use crate::sandbox::{Level, Means};
use crate::spill::ArgumentFile;
use door::Door;
use pool::{Command, Pool};

/// Runs calls on this machine. Constructing it starts nothing; the first call does.
pub struct LocalBackend {
    config: LocalConfig,
    observers: Arc<Observers>,
    next_call: AtomicU64,
    means: Arc<Means>,
    /// Read when a call first needs a default of it.
    memory: OnceLock<MachineMemory>,
    // A plain mutex: held to read or change one word, never across a wait.
    state: Mutex<State>,
}

enum State {
    New,
    Running {
        commands: Arc<Door>,
        /// None if it runs on a thread of the host's.
        thread: Option<JoinHandle<()>>,
    },
    /// Ended; the thread is joined by whoever waited first.
    Ended {
        commands: Option<Arc<Door>>,
        thread: Option<JoinHandle<()>>,
    },
}

impl State {
    /// An engine whose descriptors its host closed is none: the next call starts another.
    fn forget_if_lost(&mut self) {
        match self {
            Self::Running { commands, .. } if commands.is_lost() => *self = Self::New,
            Self::Ended { commands, thread }
                if commands.as_ref().is_some_and(|it| it.is_lost()) =>
            {
                (*commands, *thread) = (None, None);
            }
            _ => {}
        }
    }
}

impl LocalBackend {
    /// A backend that has started nothing yet.
    #[must_use]
    pub fn new(config: LocalConfig) -> Self {
        Self {
            means: Arc::new(Means::of(&config)),
            config,
            observers: Arc::default(),
            next_call: AtomicU64::new(1),
            memory: OnceLock::new(),
            state: Mutex::new(State::New),
        }
    }

    /// How it was set up.
    pub(crate) fn config(&self) -> &LocalConfig {
        &self.config
    }

    /// Whether calls above the level `none` are kept from writing where they may not.
    #[must_use]
    pub fn limits_writes(&self) -> bool {
        self.means.landlock() > 0
    }

    /// What it confines calls by.
    pub(crate) fn means(&self) -> &Means {
        &self.means
    }

    /// Submits a call. The returned execution can be awaited, cancelled, or dropped, which cancels too.
    pub fn submit(&self, call: Call) -> Result<Execution, EngineError> {
        self.submit_with(call, Streams::default())
    }

    /// As [`LocalBackend::submit`], with streams of the caller's.
    pub fn submit_with(&self, call: Call, streams: Streams) -> Result<Execution, EngineError> {
        let (answer, receiver) = oneshot::channel();
        let handle = self.submit_for(call, streams, Box::new(answer))?;
        Ok(Execution::new(handle, receiver))
    }

    /// Submits a call for a listener, which is told what becomes of it; dropping the handle changes nothing.
    pub fn submit_for(
        &self,
        mut call: Call,
        streams: Streams,
        listener: Box<dyn Listener>,
    ) -> Result<CallHandle, EngineError> {
        call.validate()?;
        call.sandbox.validate_here()?;
        self.fill_limits(&mut call)?;
        let mut state = self.lock();
        state.forget_if_lost();
        let commands = match &*state {
            State::Running { commands, .. } => commands.clone(),
            State::New => self.start_thread(&mut state)?,
            State::Ended { .. } => return Err(EngineError::ShutDown),
        };
        // Under the lock, so that `submit` is told in the order of ids, and never after `shutdown`.
        let id = CallId(self.next_call.fetch_add(1, Ordering::Relaxed));
        let (listener, streams) = commands.note(id, listener, streams);
        let dispatch = Dispatch {
            id,
            call: Box::new(call),
            listener,
            streams,
            submitted_ns: now_ns(),
            queue_deadline: None,
            unacknowledged: 0,
            goes_alone: false,
            lacked: None,
            failed_spawns: 0,
            first: None,
            alone_runs: 0,
        };
        self.observers.tell(Event::Submit { call: id });
        if !commands.send_to_whole(Command::Submit(dispatch)) {
            self.observers.tell(Event::Complete {
                call: id,
                verdict: None,
            });
            return Err(EngineError::ShutDown);
        }
        Ok(CallHandle { id, by: commands })
    }

    /// Whether it was shut down and its thread has nothing left to do.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let mut state = self.lock();
        state.forget_if_lost();
        match &*state {
            State::New | State::Running { .. } => false,
            State::Ended { thread, commands } => match thread {
                Some(thread) => thread.is_finished(),
                None => commands.as_ref().is_none_or(|it| it.is_closed()),
            },
        }
    }

    /// A file for arguments that are too large to be copied more than once.
    pub fn argument_file(&self, size: u64) -> Result<ArgumentFile, EngineError> {
        ArgumentFile::create(size, &self.config.spill_policy())
    }

    /// Gives a call the limits that its level has here unless told otherwise, as submitting it does.
    pub fn fill_limits(&self, call: &mut Call) -> Result<(), EngineError> {
        let level = call.sandbox.level;
        call.limits.validate_here(level)?;
        if level == Level::None {
            return Ok(());
        }
        let memory = match self.memory.get() {
            Some(memory) => *memory,
            None => *self.memory.get_or_init(MachineMemory::read),
        };
        let ram = memory.ram_bytes;
        let cgroup = memory.share_of_bound(self.config.max_workers);
        let asked = call.limits.clone();
        call.limits = asked.filled(level, ram, cgroup);
        call.limits.keep_to_own(&asked);
        Ok(())
    }

    /// Starts the engine now, as a task of this thread, where otherwise the first call starts a thread for it: for a host
    /// that lives in one event loop, each call is spared two changes of threads. To be called on an
    /// [`event_loop`] of this thread, which is to run until `shutdown` has returned.
    pub fn start_here(&self) -> Result<(), EngineError> {
        let mut state = self.lock();
        match *state {
            State::New => {}
            State::Running { .. } => return Ok(()),
            State::Ended { .. } => return Err(EngineError::ShutDown),
        }
        let (sender, pool) = self.prepared();
        tokio::task::spawn_local(pool().run());
        *state = State::Running {
            commands: Arc::new(Door::new(sender, None, &self.observers)),
            thread: None,
        };
        Ok(())
    }

    /// Tells of everything at once, on the engine's thread. For whoever passes it on, and has no use for a thread of its own
    /// as [`Backend::subscribe`] has.
    pub fn set_onlooker(&self, onlooker: Onlooker) {
        self.observers.set_onlooker(onlooker);
    }

    /// Where commands go, and what makes the pool that takes them, on the thread where it is to run.
    fn prepared(
        &self,
    ) -> (
        mpsc::UnboundedSender<Command>,
        impl FnOnce() -> Pool + Send + use<>,
    ) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let (config, observers) = (self.config.clone(), self.observers.clone());
        let means = self.means.clone();
        let pool = move || Pool::new(config, observers, means, receiver);
        (commands, pool)
    }

    fn start_thread(&self, state: &mut State) -> Result<Arc<Door>, EngineError> {
        let (sender, pool) = self.prepared();
        let work = || async move {
            // As a task, and not awaited here: to wake a task of the same thread takes no system call.
            let ended = tokio::task::spawn_local(pool().run()).await;
            if ended.is_err() {
                log::error!("the engine panicked; its calls are given up");
            }
        };
        let is_guest = self.config.guards_descriptors;
        let (thread, guard) = event_loop::on_guarded_thread("fairtrial-engine", is_guest, work)
            .map_err(EngineError::io("starting the engine's thread"))?;
        let commands = Arc::new(Door::new(sender, guard, &self.observers));
        *state = State::Running {
            commands: commands.clone(),
            thread: Some(thread),
        };
        Ok(commands)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under the lock")
    }

    /// No more calls are taken; where the engine's thread is told of its end.
    fn close(&self) -> Option<Arc<Door>> {
        let mut state = self.lock();
        state.forget_if_lost();
        match std::mem::replace(
            &mut *state,
            State::Ended {
                commands: None,
                thread: None,
            },
        ) {
            State::New => {
                self.observers.tell(Event::Shutdown);
                None
            }
            State::Running { commands, thread } => {
                *state = State::Ended {
                    commands: Some(commands.clone()),
                    thread,
                };
                Some(commands)
            }
            State::Ended { commands, thread } => {
                *state = State::Ended {
                    commands: commands.clone(),
                    thread,
                };
                commands
            }
        }
    }

    fn join(&self) {
        self.join_thread();
        self.observers.finish(); // an engine that panicked did not
    }

    fn join_thread(&self) {
        let mut state = self.lock();
        state.forget_if_lost();
        let State::Ended { thread, commands } = &mut *state else {
            return;
        };
        let (thread, commands) = (thread.take(), commands.clone());
        drop(state);
        if let Some(thread) = thread
            && commands.is_none_or(|door| door.wait_for_end())
        {
            thread.join().ok(); // a panic was logged, and has ended it
        }
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
        let command = Command::Shutdown {
            how,
            from_handler,
            done,
        };
        if let Some(commands) = self.close()
            && commands.send(command)
            && how.wait
        {
            let ended = async {
                _ = finished.await; // never sent, only dropped
                if !from_handler {
                    commands.closed().await; // by the engine's last act, on whatever thread
                }
            };
            commands.unless_lost(ended).await;
        }
        if how.wait && !from_handler {
            self.join();
        }
    }
}

impl Backend for LocalBackend {
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

impl Drop for LocalBackend {
    fn drop(&mut self) {
        if let Some(commands) = self.close() {
            commands.send(Command::Abandon); // or it has ended
        }
        self.join_thread();
        self.observers.leave(); // a handler may take its time, dropping may not
    }
}

/// A submitted call. Resolves once; dropping it cancels.
#[derive(Debug)]
pub struct Execution {
    handle: CallHandle,
    receiver: oneshot::Receiver<Answer>,
    done: bool,
}

impl Execution {
    /// One of somebody else's engine, whose listener is the other end of `receiver`.
    #[must_use]
    pub fn new(handle: CallHandle, receiver: oneshot::Receiver<Answer>) -> Self {
        Self {
            handle,
            receiver,
            done: false,
        }
    }

    /// The call's number.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.handle.id
    }

    /// Cancels: a queued call never starts, a running one is killed, after its grace or when it is cancelled again. The
    /// outcome still comes.
    pub fn cancel(&self) {
        self.handle.cancel();
    }
}

/// A submitted call whose listener is told.
#[derive(Clone)]
pub struct CallHandle {
    id: CallId,
    by: Arc<dyn Cancels>,
}

/// Whoever can cancel calls by their numbers.
pub trait Cancels: Send + Sync {
    /// Cancels a call; nothing happens to one that is over.
    fn cancel(&self, call: CallId);
}

impl std::fmt::Debug for CallHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CallHandle").field(&self.id).finish()
    }
}

impl CallHandle {
    /// A handle on a call of somebody else's engine.
    #[must_use]
    pub fn new(id: CallId, by: Arc<dyn Cancels>) -> Self {
        Self { id, by }
    }

    /// The call's number.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Cancels: a queued call never starts, a running one is killed. The listener is still told.
    pub fn cancel(&self) {
        self.by.cancel(self.id);
    }
}

impl Future for Execution {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Answer> {
        let answer = ready!(Pin::new(&mut self.receiver).poll(context));
        self.done = true;
        Poll::Ready(answer.unwrap_or(Err(EngineError::ShutDown)))
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        if !self.done {
            self.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Resource;
    use crate::sandbox::Sandbox;

    /// SB-16
    #[test]
    fn a_call_gets_the_limits_of_its_level_on_this_machine() {
        let config = LocalConfig::from_vars(Default::default()).unwrap();
        let backend = LocalBackend::new(config);
        let filled = |level| {
            let mut call = Call::command(["true"]);
            call.sandbox = Sandbox::new(level);
            call.limits.set(Resource::OpenFiles, None);
            backend.fill_limits(&mut call).unwrap();
            call.limits
        };
        let memory = MachineMemory::read();
        let unset = filled(Level::None);
        assert_eq!((unset.memory_bytes, unset.processes), (None, None));
        let limits = filled(Level::Limits);
        assert!(limits.memory_bytes.unwrap() <= memory.ram_bytes / 5 * 4);
        assert_eq!((limits.processes, limits.open_files), (Some(512), None));
    }
}
