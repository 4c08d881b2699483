//! From an envelope to what is committed: everything fetched, the call run by the local engine, its outcome sealed and
//! what is large stored.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use fairtrial_exec::{Arguments, Call, EngineError, Execution, Level, Outcome, Sandbox, Verdict};
use serde_json::json;
use tokio::sync::Notify;

use super::slot::Held;
use super::{NodeAgent, Stop};
use crate::blobs::{Blob, BlobError, Digest, Fault, patiently};
use crate::dispatch::Dispatch;
use crate::envelope::{
    BlobUse, ErrorCode, ResultEnvelope, TaskEnvelope, TaskError, UnreadableTask,
};
use crate::pack::CachedTree;
use crate::terms::{NewEvent, Refusal, Release};

/// Text of a task (source, input) that is in a blob may be this long.
const MOST_TEXT: u64 = 1 << 30;
/// Arguments up to this size are sent to the worker by its socket.
const SMALL_ARGUMENTS: u64 = 64 << 10;

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
    pub(super) events: Vec<NewEvent>,
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
        let ready = match self.prepare(&held.envelope).await {
            Ok(ready) => ready,
            Err(why) => return self.not_run(held, why),
        };
        let mut execution = match self.engine.submit(ready.call) {
            Ok(execution) => execution,
            Err(EngineError::InvalidCall(invalid)) => {
                return Ran::Back(Release::Refused {
                    refusal: Refusal::Setup,
                    reason: invalid.to_string(),
                });
            }
            Err(error) => return self.engine_failed(&error),
        };
        let answer = tokio::select! {
            biased;
            answer = &mut execution => answer,
            () = lost.notified() => {
                self.kill(execution).await;
                return Ran::Lost;
            }
            () = cancel.notified() => {
                execution.cancel();
                execution.await
            }
            () = self.overdue() => {
                self.kill(execution).await;
                let reason = "the agent was told to end".to_owned();
                return Ran::Back(Release::Uncounted { reason });
            }
        };
        match answer {
            Ok(outcome) if outcome.verdict == Verdict::SetupFailed => {
                let error = outcome
                    .error
                    .map(|error| format!("{}: {}", error.kind, error.message));
                Ran::Back(Release::Refused {
                    refusal: Refusal::Setup,
                    reason: error.unwrap_or_else(|| "it could not be set up".to_owned()),
                })
            }
            Ok(mut outcome) => {
                self.failures.set(0);
                let waited = u64::try_from(held.waited.as_nanos()).unwrap_or(u64::MAX);
                let queue_ns = &mut outcome.metrics.queue_ns;
                *queue_ns = queue_ns.map(|here| here.saturating_add(waited));
                self.seal(held, outcome).await
            }
            Err(error) => self.engine_failed(&error),
        }
    }

    /// Until what still runs has to end: at once, or when draining has taken too long.
    async fn overdue(&self) {
        tokio::select! {
            () = self.stopped(Stop::Now) => {}
            () = async {
                self.stopped(Stop::Drain).await;
                tokio::time::sleep(self.config.drain_timeout).await;
            } => {}
        }
    }

    async fn kill(&self, execution: Execution) {
        execution.cancel();
        execution.cancel(); // without the grace it may have
        drop(execution.await);
    }

    async fn prepare(&self, envelope: &[u8]) -> Result<Ready, NotRun> {
        let envelope = TaskEnvelope::read(envelope)?;
        self.check_python(&envelope).await?;
        let mut fetched: HashMap<Digest, Arguments> = HashMap::new();
        let mut directories = Vec::new();
        for (blob, purpose) in envelope.blobs() {
            match purpose {
                BlobUse::Directory => {
                    let store = self.store.as_ref().ok_or_else(|| NotRun::missing(blob))?;
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
        let store = self.store.as_ref().ok_or_else(|| NotRun::missing(blob))?;
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

    fn not_run(&self, held: &Held, why: NotRun) -> Ran {
        let refused = |refusal| {
            let reason = why.to_string();
            Ran::Back(Release::Refused { refusal, reason })
        };
        let error = match &why {
            NotRun::Unreadable(UnreadableTask::OtherProtocol { .. }) => {
                return refused(Refusal::Protocol);
            }
            NotRun::OtherPython { .. } => return refused(Refusal::Setup),
            NotRun::Unreadable(_) => TaskError {
                code: ErrorCode::Invalid,
                message: why.to_string(),
            },
            NotRun::Blob(BlobError {
                fault: Fault::Missing(_),
                ..
            }) => TaskError {
                code: ErrorCode::BlobMissing,
                message: why.to_string(),
            },
            NotRun::Blob(BlobError {
                fault: Fault::Corrupt { .. },
                ..
            }) => TaskError {
                code: ErrorCode::BlobCorrupt,
                message: why.to_string(),
            },
            NotRun::Pack(_) => TaskError {
                code: ErrorCode::Invalid,
                message: why.to_string(),
            },
            NotRun::Blob(_) => return self.store_failed(&why.to_string()),
        };
        Ran::Committable(self.error(held, error))
    }

    fn error(&self, held: &Held, error: TaskError) -> Ended {
        let complete = json!({"verdict": null, "error": error.code.name()}).to_string();
        Ended {
            result: ResultEnvelope::of_error(
                error,
                held.lease.token,
                &held.lease.consumer.to_string(),
            ),
            events: Vec::new(),
            complete,
        }
    }

    /// What is large is stored and read back before anything is recorded (CL-17).
    async fn seal(&self, held: &Held, outcome: Outcome) -> Ran {
        let complete = json!({"verdict": outcome.verdict.name()}).to_string();
        let started = NewEvent {
            name: "start".to_owned(),
            task: Some(held.lease.task.clone()),
            agent: Some(self.config.agent.name().to_owned()),
            data: json!({"worker_id": outcome.metrics.worker_id}).to_string(),
        };
        let consumer = held.lease.consumer.to_string();
        let sealed = ResultEnvelope::seal(outcome, held.lease.token, &consumer);
        for piece in sealed.outgoing {
            let Some(store) = &self.store else {
                let message = format!(
                    "a result of {} bytes does not fit, and this agent has no store: give it one with --blobs",
                    piece.blob.bytes
                );
                let error = TaskError {
                    code: ErrorCode::NoStore,
                    message,
                };
                return Ran::Committable(self.error(held, error));
            };
            if let Err(error) = store.keep_outgoing(piece).await {
                return self.store_failed(&error.to_string());
            }
        }
        Ran::Committable(Ended {
            result: sealed.bytes,
            events: vec![started],
            complete,
        })
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
    #[error(transparent)]
    Unreadable(#[from] UnreadableTask),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Pack(#[from] crate::pack::PackError),
}

impl NotRun {
    fn missing(blob: &Blob) -> Self {
        Self::Unreadable(UnreadableTask::Damaged(format!(
            "it needs the blob {}, and this agent has no store: give it one with --blobs",
            blob.digest
        )))
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
