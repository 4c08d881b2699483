//! From a call to a task, and its cancellation.

use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fairtrial_exec::{Answer, Arguments, Call, CallId, EngineError, InvalidCall, Work};

use super::Submission;
use super::coordinator::{Coordinator, Outstanding, Packed, Preparing};
use super::verdicts::cancelled;
use crate::answers::Cancelled;
use crate::blobs::{Blob, BlobError, BlobStore, Fault};
use crate::dispatch::Dispatch;
use crate::envelope::{Outgoing, OutgoingBody, PackedParts, SealedTask, TaskEnvelope};
use crate::jitter::{Backoff, nonce};
use crate::names::TaskId;
use crate::pack::{PackError, Signature, pack};
use crate::terms::Task;

/// A directory that was looked at is taken to be as it was for so long.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl<D: Dispatch + 'static> Coordinator<D> {
    /// Takes a call on its way.
    pub(super) fn take(self: Rc<Self>, submission: Submission) {
        let Submission { id, call, listener } = submission;
        if let Some(error) = &*self.failed.borrow() {
            let problem = error.to_string();
            let code = "server";
            let answer = Err(EngineError::Elsewhere { code, problem });
            return self.tell(id, listener, answer);
        }
        let preparing = Preparing {
            listener,
            cancelled: false,
        };
        self.state.borrow_mut().preparing.insert(id, preparing);
        self.changed.notify_waiters();
        tokio::task::spawn_local(async move {
            match self.make_task(&call).await {
                Ok(task) => self.line_up(id, task),
                Err(error) => self.end_early(id, Err(error)),
            }
        });
    }

    /// A task of a call, with all that belongs to it in the store.
    async fn make_task(&self, call: &Call) -> Result<Task, EngineError> {
        let mut parts = PackedParts::default();
        if let Some(terms) = call.python() {
            for directory in &terms.python_path {
                parts.path.push(self.packed(directory).await?);
            }
        }
        if let Some(file) = arguments_in_file(call)? {
            let blob = Blob::read(&file).map_err(EngineError::io("reading large arguments"))?;
            let outgoing = Outgoing {
                blob,
                body: OutgoingBody::File(file.into()),
            };
            self.put(outgoing).await?;
            parts.file = Some(blob);
        }
        let key = call.key.clone().unwrap_or_else(nonce);
        let python = match call.work {
            Work::Pickled(_) => self.config.python.clone(),
            Work::Source(_) | Work::Command(_) => None,
        };
        let sealed = TaskEnvelope::seal(call, &key, parts, python);
        let sealed = sealed.map_err(|error| refused("call", &error))?;
        let SealedTask {
            bytes,
            outgoing,
            queue_timeout_ns,
        } = sealed;
        for piece in outgoing {
            self.put(piece).await?;
        }
        Ok(Task {
            id: TaskId::of(&self.config.queue, &key, &bytes),
            class: self.config.class,
            envelope: bytes,
            queue_timeout: queue_timeout_ns.map(Duration::from_nanos),
        })
    }

    /// A directory in the store; packed again only if something in it changed.
    async fn packed(&self, directory: &Path) -> Result<Blob, EngineError> {
        let refuse = |error: PackError| refused("python_path", &error);
        let known = self.packed.borrow().get(directory).cloned();
        if let Some(packed) = &known
            && packed.looked.elapsed() < LOOK_AGAIN
        {
            return Ok(packed.blob);
        }
        let looked = Instant::now();
        let signature = Signature::of(directory).map_err(refuse)?;
        if let Some(packed) = known
            && packed.signature == signature
        {
            let blob = packed.blob;
            let packed = Packed { looked, ..packed };
            self.packed
                .borrow_mut()
                .insert(directory.to_owned(), packed);
            return Ok(blob);
        }
        let store = self.store("python_path")?;
        let mut tries = 0;
        let packed = loop {
            tries += 1;
            match pack(directory, &std::env::temp_dir()) {
                // Somebody writes there just now.
                Err(PackError::Changed(_)) if tries < 3 => {}
                packed => break packed.map_err(refuse)?,
            }
        };
        let blob = store.put_file(packed).await.map_err(store_failed)?;
        let packed = Packed {
            signature,
            blob,
            looked,
        };
        self.packed
            .borrow_mut()
            .insert(directory.to_owned(), packed);
        self.pin_packed().await.ok(); // the next sign of life does
        Ok(blob)
    }

    async fn put(&self, piece: Outgoing) -> Result<(), EngineError> {
        let store = self.store("call")?;
        store
            .put_outgoing(piece)
            .await
            .map(drop)
            .map_err(store_failed)
    }

    fn store(&self, field: &str) -> Result<&BlobStore, EngineError> {
        self.store.as_ref().ok_or_else(|| {
            let problem =
                "does not fit into a message, and there is no store: name one with `blobs`";
            InvalidCall::new(field, problem).into()
        })
    }

    /// The task is the server's now.
    pub(super) fn wait_for(&self, call: CallId, task: Task, is_done: bool) {
        self.reached();
        let id = task.id.clone();
        let mut state = self.state.borrow_mut();
        let Some(preparing) = state.preparing.remove(&call) else {
            return; // given up meanwhile
        };
        let outstanding = state.outstanding.entry(id.clone());
        let outstanding = outstanding.or_insert_with(|| Outstanding::new(task));
        outstanding.waiting.push((call, preparing.listener));
        if is_done {
            state.ended.push_back(id.clone());
        }
        drop(state);
        if is_done {
            self.results.notify_one();
        }
        if preparing.cancelled {
            self.ask_to_cancel(id);
        }
    }

    pub(super) fn end_early(&self, call: CallId, answer: Answer) {
        let preparing = self.state.borrow_mut().preparing.remove(&call);
        if let Some(preparing) = preparing {
            self.tell(call, preparing.listener, answer);
        }
    }

    /// Cancels a call, wherever it is.
    pub(super) fn cancel(self: Rc<Self>, call: CallId) {
        let mut state = self.state.borrow_mut();
        if let Some(preparing) = state.preparing.get_mut(&call) {
            preparing.cancelled = true;
            drop(state);
            self.look_for_cancelled();
            return;
        }
        let of = |(_, outstanding): &(&TaskId, &mut Outstanding)| {
            outstanding
                .waiting
                .iter()
                .any(|(waiting, _)| *waiting == call)
        };
        let Some((task, outstanding)) = state.outstanding.iter_mut().find(of) else {
            return; // it is over
        };
        if outstanding.waiting.len() > 1 {
            // Others wait for the same task: only this one does no longer.
            let place = outstanding
                .waiting
                .iter()
                .position(|(waiting, _)| *waiting == call);
            let place = place.expect("just found");
            let (call, listener) = outstanding.waiting.swap_remove(place);
            drop(state);
            self.tell(call, listener, Ok(cancelled()));
            return;
        }
        let task = task.clone();
        drop(state);
        tokio::task::spawn_local(async move { self.cancel_task(&task).await });
    }

    fn ask_to_cancel(&self, task: TaskId) {
        let mut state = self.state.borrow_mut();
        state.to_cancel.push(task);
        drop(state);
        self.results.notify_one();
    }

    /// Its outcome, if there is one by now, stands (CL-21).
    pub(super) async fn cancel_task(&self, task: &TaskId) {
        let mut backoff = Backoff::default();
        loop {
            if !self.state.borrow().outstanding.contains_key(task) {
                return;
            }
            match self.dispatch.cancel(&self.config.queue, task).await {
                Ok(Cancelled::Removed | Cancelled::Done) => {
                    self.state.borrow_mut().ended.push_back(task.clone());
                    self.results.notify_one();
                    return;
                }
                Ok(Cancelled::Signalled) => return, // its agent commits
                Ok(Cancelled::Unknown) => {
                    let outstanding = self.state.borrow_mut().outstanding.remove(task);
                    for (call, listener) in outstanding.into_iter().flat_map(|it| it.waiting) {
                        self.tell(call, listener, Ok(cancelled()));
                    }
                    return;
                }
                Err(error) => self.missed(error),
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Cancels everything, queued and running.
    pub(super) async fn cancel_all(&self) {
        for preparing in self.state.borrow_mut().preparing.values_mut() {
            preparing.cancelled = true;
        }
        self.look_for_cancelled();
        if self.opened.get().is_none() {
            return;
        }
        let mut backoff = Backoff::default();
        loop {
            match self.dispatch.cancel_queue(&self.config.queue).await {
                Ok(done) if !done.more => break,
                Ok(_) => {}
                Err(error) => {
                    self.missed(error);
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
        let mut state = self.state.borrow_mut();
        let all: Vec<TaskId> = state.outstanding.keys().cloned().collect();
        state.ended.extend(all);
        drop(state);
        self.results.notify_one();
    }

    /// Cancels what has not begun.
    pub(super) async fn cancel_queued(&self) {
        let queued: Vec<TaskId> = {
            let mut state = self.state.borrow_mut();
            for preparing in state.preparing.values_mut() {
                preparing.cancelled = true;
            }
            state.outstanding.keys().cloned().collect()
        };
        self.look_for_cancelled();
        for tasks in queued.chunks(100) {
            let Ok(places) = self.dispatch.check(&self.config.queue, tasks).await else {
                return;
            };
            for (task, place) in tasks.iter().zip(places) {
                if place == crate::answers::Place::Queued {
                    self.cancel_task(task).await;
                }
            }
        }
    }
}

fn arguments_in_file(call: &Call) -> Result<Option<File>, EngineError> {
    let arguments = match &call.work {
        Work::Source(work) => &work.arguments,
        Work::Pickled(work) => &work.body,
        Work::Command(_) => return Ok(None),
    };
    match arguments {
        Arguments::Bytes(_) => Ok(None),
        Arguments::File { file, .. } => {
            let file = file.try_clone();
            let file = file.map_err(EngineError::io("opening large arguments again"))?;
            Ok(Some(file.into()))
        }
    }
}

fn refused(field: &str, error: &dyn std::error::Error) -> EngineError {
    InvalidCall::new(field, error.to_string()).into()
}

fn store_failed(error: BlobError) -> EngineError {
    EngineError::Elsewhere {
        code: match &error.fault {
            // Of this call; the store may take others'.
            Fault::TooLarge { .. } | Fault::Source(_) => "blobs",
            _ => "store",
        },
        problem: error.to_string(),
    }
}
