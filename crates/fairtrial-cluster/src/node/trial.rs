//! From an envelope to what is committed: everything fetched, the call run by the local engine, its outcome sealed and
//! what is large stored.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fairtrial_exec::{
    Answer, Arguments, Call, EngineError, Execution, Level, Listener, Outcome, Sandbox, Streams,
    Verdict,
};
use serde_json::json;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::slot::Held;
use super::{NodeAgent, Stop};
use crate::aside::aside;
use crate::backend::cancelled;
use crate::blobs::{Blob, BlobError, BlobStore, Digest, Fault, patiently};
use crate::dispatch::Dispatch;
use crate::envelope::{
    BlobUse, ErrorCode, ResultEnvelope, Sealed, TaskEnvelope, TaskError, UnreadableTask, shortened,
};
use crate::names::TaskId;
use crate::pack::{CachedTree, PackError};
use crate::terms::{Lease, Refusal, Release};

/// Text of a task (source, input) that is in a blob may be this long.
const MOST_TEXT: u64 = 1 << 30;
/// Arguments up to this size are sent to the worker by its socket.
const SMALL_ARGUMENTS: u64 = 64 << 10;
/// A value up to this size is hashed in a few milliseconds.
const LONG_TO_HASH: usize = 1 << 20;
/// Why something was not done is a candidate's word at times; so much of it is told.
const MOST_REASON: usize = 4 << 10;

/// A call that runs for longer is told of when it has begun, and not only with its end.
const BRIEF: Duration = Duration::from_millis(50);

/// How long the end of a worker is waited for when its only call is over.
const EXIT_PATIENCE: Duration = Duration::from_millis(100);

/// What became of a task here.
pub(super) enum Ran {
    /// To be recorded.
    Committable(Ended),
    /// To be given back.
    Back(Release),
    /// Somebody else has it by now.
    Lost,
}

/// What is recorded.
pub(super) struct Ended {
    pub(super) result: Vec<u8>,
    pub(super) complete: String,
}

/// A call ready to run, and the directories it stands on.
struct Ready {
    call: Call,
    _directories: Vec<CachedTree>,
}

impl<D: Dispatch + 'static> NodeAgent<D> {
    /// Runs a task. `cancel` is told when it is to be cancelled, `lost` when it is somebody else's.
    pub(super) async fn run_trial(&self, held: &Held, cancel: &Notify, lost: &Notify) -> Ran {
        let broken_off = self.broken_off(lost);
        tokio::pin!(broken_off); // one for all of it: its time does not begin anew with each part
        let ready = tokio::select! {
            biased;
            ready = self.prepare(held) => ready,
            ran = &mut broken_off => return ran,
            () = cancel.notified() => return Ran::Committable(called_off(&held.lease)),
        };
        let ready = match ready {
            Ok(ready) => ready,
            Err(why) => return self.not_run(held, &why),
        };
        let is_own = ready.call.has_its_own_worker();
        let (mut execution, began) = match self.begin(ready.call, &held.lease) {
            Ok(begun) => begun,
            Err(EngineError::InvalidCall(invalid)) => {
                return Ran::Back(Release::Refused {
                    refusal: Refusal::Setup,
                    reason: invalid.to_string(),
                });
            }
            Err(error) => return self.engine_failed(&error),
        };
        let call = execution.id();
        let (mut is_cancelled, mut is_told) = (false, false);
        let answer = {
            // Of this block: what it had to tell and did not is told by others as soon as the call has ended.
            let telling = self.tell_began(&held.lease, began);
            tokio::pin!(telling);
            loop {
                tokio::select! {
                    biased;
                    answer = &mut execution => break answer,
                    ran = &mut broken_off => {
                        self.kill(execution).await;
                        self.workers.borrow_mut().ended(call, None);
                        return ran;
                    }
                    // Once: a second time would be without the grace it may have.
                    () = cancel.notified(), if !is_cancelled => {
                        execution.cancel();
                        is_cancelled = true;
                    }
                    () = &mut telling, if !is_told => is_told = true,
                }
            }
        };
        let metrics = answer.as_ref().ok().map(|outcome| &outcome.metrics);
        let worker_id = metrics.and_then(|metrics| metrics.worker_id.as_deref());
        self.workers.borrow_mut().ended(call, worker_id);
        if is_own {
            self.worker_goes(worker_id).await;
        }
        match answer {
            Ok(outcome) if outcome.verdict == Verdict::SetupFailed => {
                let error = outcome
                    .error
                    .map(|error| format!("{}: {}", error.kind, error.message));
                let reason = error.unwrap_or_else(|| "it could not be set up".to_owned());
                Ran::Back(Release::Refused {
                    refusal: Refusal::Setup,
                    reason: shortened(reason, MOST_REASON),
                })
            }
            Ok(mut outcome) => {
                self.failures.set(0);
                let waited = u64::try_from(held.waited.as_nanos()).unwrap_or(u64::MAX);
                let queue_ns = &mut outcome.metrics.queue_ns;
                *queue_ns = queue_ns.map(|here| here.saturating_add(waited));
                tokio::select! {
                    biased;
                    ran = self.seal(held, outcome) => ran,
                    ran = &mut broken_off => ran,
                }
            }
            Err(error) => self.engine_failed(&error),
        }
    }

    /// Submits a call; something comes when it begins.
    fn begin(
        &self,
        call: Call,
        lease: &Lease,
    ) -> Result<(Execution, oneshot::Receiver<()>), EngineError> {
        let (answer, answered) = oneshot::channel();
        let (began, begun) = oneshot::channel();
        let listener = Box::new(Begins {
            began: Mutex::new(Some(began)),
            answer,
        });
        let handle = self.engine.submit_for(call, Streams::default(), listener)?;
        self.workers.borrow_mut().submitted(handle.id(), lease);
        Ok((Execution::new(handle, answered), begun))
    }

    /// Tells that a call runs, unless it is over soon.
    async fn tell_began(&self, lease: &Lease, began: oneshot::Receiver<()>) {
        if began.await.is_ok() {
            tokio::time::sleep(BRIEF).await;
            let told = self.tell_of_workers(&lease.queue).await;
            told.ok(); // it is told with the end
        }
    }

    /// Until a worker that ran its only call is gone, which the engine tells just after that call's end: so a queue hears of it
    /// before it hears that the call is complete.
    async fn worker_goes(&self, worker_id: Option<&str>) {
        let told = self.workers.borrow().told();
        let gone = async {
            loop {
                let told = told.notified();
                if worker_id.is_none_or(|id| self.workers.borrow_mut().is_gone(id)) {
                    return;
                }
                told.await;
            }
        };
        tokio::time::timeout(EXIT_PATIENCE, gone).await.ok(); // else it is told a little later
    }

    /// Until it is not to be gone on with, whatever it is about: a store may be slow (CL-7).
    async fn broken_off(&self, lost: &Notify) -> Ran {
        tokio::select! {
            biased;
            () = lost.notified() => Ran::Lost,
            () = self.overdue() => {
                let reason = "the agent was told to end".to_owned();
                Ran::Back(Release::Uncounted { reason })
            }
        }
    }

    /// Until what still runs has to end: at once, or when draining has taken too long.
    pub(super) async fn overdue(&self) {
        tokio::select! {
            () = self.stopped(Stop::Now) => {}
            () = async {
                self.stopped(Stop::Drain).await;
                let by = self.drain_by.get().unwrap_or_else(|| Instant::now() + self.config.drain_timeout);
                self.drain_by.set(Some(by)); // for all that is still to be done, and not for each part of it
                tokio::time::sleep_until(by).await;
            } => {}
        }
    }

    async fn kill(&self, execution: Execution) {
        execution.cancel();
        execution.cancel(); // without the grace it may have
        drop(execution.await);
    }

    async fn prepare(&self, held: &Held) -> Result<Ready, NotRun> {
        let envelope = TaskEnvelope::read(&held.envelope)?;
        if TaskId::of(&held.lease.queue, envelope.key(), &held.envelope) != held.lease.task {
            return Err(NotRun::Altered);
        }
        self.check_python(&envelope).await?;
        let mut fetched: HashMap<Digest, Arguments> = HashMap::new();
        let mut directories = Vec::new();
        for (blob, purpose) in envelope.blobs() {
            match purpose {
                BlobUse::Directory => {
                    let store = self.store_of(blob)?;
                    directories.push(self.cache.fetch(store, *blob).await?);
                }
                BlobUse::Text | BlobUse::Arguments => {
                    let bytes = self.fetch(blob, purpose).await?;
                    fetched.insert(blob.digest, bytes);
                }
            }
        }
        let path: Vec<PathBuf> = directories
            .iter()
            .map(|held| held.path().to_owned())
            .collect();
        let mut call = envelope.to_call(path, |blob| fetched.get(&blob.digest).cloned())?;
        call.sandbox = at_least(call.sandbox, self.config.floor);
        Ok(Ready {
            call,
            _directories: directories,
        })
    }

    async fn fetch(&self, blob: &Blob, purpose: BlobUse) -> Result<Arguments, NotRun> {
        let store = self.store_of(blob)?;
        if purpose == BlobUse::Text || blob.bytes <= SMALL_ARGUMENTS {
            let bytes = patiently(|| store.get(*blob, MOST_TEXT)).await?;
            return Ok(Arguments::Bytes(bytes));
        }
        let file = patiently(|| store.get_file(*blob, &self.config.scratch)).await?;
        Ok(Arguments::File {
            file: Arc::new(file.into()),
            size: blob.bytes,
        })
    }

    fn store_of(&self, blob: &Blob) -> Result<&BlobStore, NotRun> {
        let store = self.store.as_ref();
        store.ok_or(NotRun::NoStore(blob.digest))
    }

    pub(super) fn not_run(&self, held: &Held, why: &NotRun) -> Ran {
        let refused = |refusal| {
            let reason = shortened(why.to_string(), MOST_REASON);
            Ran::Back(Release::Refused { refusal, reason })
        };
        let code = match why {
            NotRun::Unreadable(UnreadableTask::OtherProtocol { .. }) => {
                return refused(Refusal::Protocol);
            }
            // Another agent may have what is missing here.
            NotRun::OtherPython { .. } | NotRun::NoStore(_) => return refused(Refusal::Setup),
            NotRun::Unreadable(_) | NotRun::Altered => ErrorCode::Invalid,
            NotRun::Blob(error) => match error.code() {
                Some(code) => code,
                None => return self.store_failed(&why.to_string()),
            },
            NotRun::Pack(error) if error.is_full() => return self.store_failed(&why.to_string()),
            // The directory's archive is as good as ever; it is this agent's cache that is not.
            NotRun::Pack(PackError::Cache { .. }) => return self.engine_failed(why),
            NotRun::Pack(_) => ErrorCode::Invalid,
        };
        Ran::Committable(error_of(&held.lease, code, why))
    }

    /// What is large is stored and read back before anything is recorded (CL-17).
    async fn seal(&self, held: &Held, outcome: Outcome) -> Ran {
        let complete = json!({"verdict": outcome.verdict.name()}).to_string();
        let sealed = sealed(outcome, &held.lease).await;
        for piece in sealed.outgoing {
            let Some(store) = &self.store else {
                let problem = format!(
                    "a result of {} bytes does not fit, and this agent has no store: give it one with --blobs",
                    piece.blob.bytes
                );
                return Ran::Committable(error_of(&held.lease, ErrorCode::NoStore, &problem));
            };
            if let Err(error) = store.keep_outgoing(piece).await {
                return match (&error.fault, error.code()) {
                    // Another run of it, here or elsewhere, would come to the same.
                    (Fault::TooLarge { .. } | Fault::Source(_), Some(code)) => {
                        Ran::Committable(error_of(&held.lease, code, &error))
                    }
                    _ => self.store_failed(&error.to_string()),
                };
            }
        }
        Ran::Committable(Ended {
            result: sealed.bytes,
            complete,
        })
    }
}

/// Who is told when a call begins, and when it ends.
struct Begins {
    began: Mutex<Option<oneshot::Sender<()>>>,
    answer: oneshot::Sender<Answer>,
}

impl Listener for Begins {
    fn began(&self, _worker_id: &str) {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(began) = began.take() {
            began.send(()).ok(); // it is over by now
        }
    }

    fn ended(self: Box<Self>, answer: Answer) {
        self.answer.send(answer).ok(); // nobody waits any more
    }
}

/// An envelope of it. What takes long to hash is hashed on another thread: this one has leases to renew (CL-5).
pub(super) async fn sealed(outcome: Outcome, lease: &Lease) -> Sealed {
    let (token, consumer) = (lease.token, lease.consumer.to_string());
    let bytes = outcome.value.as_ref().map_or(0, |value| value.body.len());
    if bytes <= LONG_TO_HASH {
        return ResultEnvelope::seal(outcome, token, &consumer);
    }
    aside(move || ResultEnvelope::seal(outcome, token, &consumer)).await
}

/// A task that was cancelled before it began.
fn called_off(lease: &Lease) -> Ended {
    let outcome = cancelled();
    let complete = json!({"verdict": outcome.verdict.name()}).to_string();
    let sealed = ResultEnvelope::seal(outcome, lease.token, &lease.consumer.to_string());
    Ended {
        result: sealed.bytes,
        complete,
    }
}

/// That a task has no outcome, and never will have one.
pub(super) fn error_of(lease: &Lease, code: ErrorCode, why: &dyn Display) -> Ended {
    let message = shortened(why.to_string(), MOST_REASON);
    let error = TaskError { code, message };
    Ended {
        result: ResultEnvelope::of_error(error, lease.token, &lease.consumer.to_string()),
        complete: json!({"verdict": null, "error": code.name()}).to_string(),
    }
}

/// Why a task was not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRun {
    #[error("it was pickled by Python {wanted}, and `{python}` is {found} here")]
    OtherPython {
        python: String,
        wanted: String,
        found: String,
    },
    #[error("it needs the blob {0}, and this agent has no store: give it one with --blobs")]
    NoStore(Digest),
    #[error(transparent)]
    Unreadable(#[from] UnreadableTask),
    #[error("the task's envelope is not the one that was submitted: its digest is another")]
    Altered,
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Pack(PackError),
}

impl From<PackError> for NotRun {
    fn from(error: PackError) -> Self {
        match error {
            PackError::Blob(error) => Self::Blob(error),
            error => Self::Pack(error),
        }
    }
}

/// The stronger of what is asked for and a floor (CL-9).
fn at_least(asked: Sandbox, floor: Level) -> Sandbox {
    if asked.level >= floor {
        return asked;
    }
    let mut raised = Sandbox::new(floor);
    raised.read = asked.read;
    raised.write = asked.write;
    raised.devices = asked.devices;
    raised.cpus = asked.cpus;
    raised.address_space = asked.address_space;
    raised
}
