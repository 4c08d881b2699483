//! From a call to a task, and its cancellation.

use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fairtrial_exec::{Answer, Arguments, Call, CallId, EngineError, InvalidCall, Work};

use super::Submission;
use super::coordinator::{Coordinator, Outstanding, Packed, Preparing};
use super::verdicts::cancelled;
use crate::answers::{Cancelled, Place, Submitted};
use crate::aside::aside;
use crate::blobs::{Blob, BlobError, BlobStore};
use crate::dispatch::Dispatch;
use crate::envelope::{Outgoing, PackedParts, SealedTask, TaskEnvelope};
use crate::jitter::{Backoff, nonce};
use crate::names::TaskId;
use crate::pack::{PackError, Signature, pack};
use crate::terms::Task;

impl<D: Dispatch + 'static> Coordinator<D> {
    /// Takes a call on its way.
    pub(super) fn take(self: &Rc<Self>, submission: Submission) {
        let Submission {
            id,
            call,
            listener,
            at,
        } = submission;
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
        let this = self.clone();
        self.start(async move {
            match this.make_task(&call, at).await {
                Ok(task) => this.line_up(id, task),
                Err(error) => this.end_early(id, Err(error)),
            }
        });
    }

    /// A task of a call, with all that belongs to it in the store.
    async fn make_task(&self, call: &Call, at: Instant) -> Result<Task, EngineError> {
        let mut parts = PackedParts::default();
        if let Some(terms) = call.python() {
            for directory in &terms.python_path {
                parts
                    .path
                    .push(self.packed("python_path", directory, at).await?);
            }
        }
        if let (true, Some(cwd)) = (self.config.packs_cwd, &call.cwd) {
            parts.cwd = Some(self.packed("cwd", cwd, at).await?);
        }
        if let Some(file) = arguments_in_file(call)? {
            // Hashed by the store's thread: this one has leases and owners to keep.
            parts.file = Some(
                self.store("call")?
                    .put_file(file)
                    .await
                    .map_err(store_failed)?,
            );
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

    /// A directory in the store, with all that was changed there before the call was made; packed again only then. Calls
    /// that were made before somebody looked share that look.
    async fn packed(
        &self,
        field: &str,
        directory: &Path,
        at: Instant,
    ) -> Result<Blob, EngineError> {
        let refuse = |error: PackError| refused(field, &error);
        let _one_at_a_time = self.packing.lock().await;
        let known = self.packed.borrow().get(directory).cloned();
        if let Some(packed) = &known
            && packed.looked >= at
        {
            return Ok(packed.blob);
        }
        let looked = Instant::now();
        let root = directory.to_owned();
        let signature = aside(move || Signature::of(&root)).await.map_err(refuse)?;
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
        let store = self.store(field)?;
        let root = directory.to_owned();
        let packed = aside(move || packed_at_last(&root)).await;
        let packed = packed.map_err(refuse)?;
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
        self.store("call")?
            .put_outgoing(piece)
            .await
            .map_err(store_failed)?;
        Ok(())
    }

    fn store(&self, field: &str) -> Result<&BlobStore, EngineError> {
        self.store.as_ref().ok_or_else(|| {
            let problem =
                "does not fit into a message, and there is no store: name one with `blobs`";
            InvalidCall::new(field, problem).into()
        })
    }

    /// The task is the server's now.
    pub(super) fn wait_for(&self, call: CallId, task: Task, found: Submitted) {
        self.reached();
        let id = task.id.clone();
        let is_done = found == Submitted::Done;
        let was_there = found != Submitted::Ok;
        let mut state = self.state.borrow_mut();
        let Some(preparing) = state.preparing.remove(&call) else {
            return; // given up meanwhile
        };
        let outstanding = state.outstanding.entry(id.clone());
        let outstanding = outstanding.or_insert_with(|| Outstanding::new(task, was_there));
        outstanding.waiting.push((call, preparing.listener));
        drop(state);
        if is_done {
            self.has_ended(id.clone());
        }
        self.watch_wait(&id);
        if preparing.cancelled
            && let Some(task) = self.leave(call)
        {
            self.ask_to_cancel(task);
        }
    }

    pub(super) fn end_early(&self, call: CallId, answer: Answer) {
        let preparing = self.state.borrow_mut().preparing.remove(&call);
        if let Some(preparing) = preparing {
            self.tell(call, preparing.listener, answer);
        }
    }

    /// Cancels a call, wherever it is.
    pub(super) fn cancel(self: &Rc<Self>, call: CallId) {
        if let Some(preparing) = self.state.borrow_mut().preparing.get_mut(&call) {
            preparing.cancelled = true;
            self.look_for_cancelled();
            return;
        }
        if let Some(task) = self.leave(call) {
            let this = self.clone();
            self.start(async move { this.cancel_task(&task).await });
        }
    }

    /// A call does not want its task any more. Where others wait for the same one, only it is told so; else the task.
    fn leave(&self, call: CallId) -> Option<TaskId> {
        let mut state = self.state.borrow_mut();
        let (task, outstanding, place) = state.outstanding.iter_mut().find_map(|(task, it)| {
            let mut waiting = it.waiting.iter();
            let place = waiting.position(|(waiting, _)| *waiting == call)?;
            Some((task, it, place))
        })?;
        if outstanding.waiting.len() == 1 {
            outstanding.cancelled = true;
            return Some(task.clone());
        }
        let (call, listener) = outstanding.waiting.swap_remove(place);
        drop(state);
        self.tell(call, listener, Ok(cancelled()));
        None
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
                    self.has_ended(task.clone());
                    return;
                }
                Ok(Cancelled::Signalled) => return, // its agent commits
                Ok(Cancelled::Unknown) => return self.end_cancelled_task(task),
                Err(error) => self.missed(error),
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// It was cancelled, and the server does not know it.
    pub(super) fn end_cancelled_task(&self, task: &TaskId) {
        let outstanding = self.state.borrow_mut().outstanding.remove(task);
        for (call, listener) in outstanding.into_iter().flat_map(|it| it.waiting) {
            self.tell(call, listener, Ok(cancelled()));
        }
    }

    /// Cancels everything, queued and running.
    pub(super) async fn cancel_all(&self) {
        {
            let mut state = self.state.borrow_mut();
            let preparing = state.preparing.values_mut();
            preparing.for_each(|preparing| preparing.cancelled = true);
            let outstanding = state.outstanding.values_mut();
            outstanding.for_each(|outstanding| outstanding.cancelled = true);
        }
        self.was_cut_short.set(true);
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
            let Some(places) = self.places(tasks).await else {
                return; // all were given up
            };
            for (task, place) in tasks.iter().zip(places) {
                if place == Place::Queued {
                    self.cancel_task(task).await;
                }
            }
        }
    }

    /// Where each is, as soon as the server says so; none if it never will.
    async fn places(&self, tasks: &[TaskId]) -> Option<Vec<Place>> {
        let mut backoff = Backoff::default();
        loop {
            match self.dispatch.check(&self.config.queue, tasks).await {
                Ok(places) => return Some(places),
                Err(error) => self.missed(error),
            }
            if self.failed.borrow().is_some() {
                return None;
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }
}

/// An archive of a directory, once nobody has written there meanwhile.
fn packed_at_last(root: &Path) -> Result<File, PackError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match pack(root, &std::env::temp_dir()) {
            Err(PackError::Changed(_)) if tries < 3 => {}
            packed => return packed,
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

/// A store that takes nothing takes nobody's.
fn store_failed(error: BlobError) -> EngineError {
    match error.code() {
        Some(_) => error.into(),
        None => EngineError::Elsewhere {
            code: "store",
            problem: error.to_string(),
        },
    }
}
