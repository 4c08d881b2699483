//! Tasks on their way to the server: in one line, in the order of their calls, many in one breath. Owns who waits for room
//! and for the server; a full queue is asked again by the first in line alone.

use std::rc::Rc;
use std::time::Duration;

use fairtrial_exec::{CallId, EngineError};

use super::OnFull;
use super::coordinator::Coordinator;
use super::verdicts::cancelled;
use crate::answers::Submitted;
use crate::dispatch::{Dispatch, DispatchError};
use crate::jitter::Backoff;
use crate::names::TaskId;
use crate::terms::Task;

/// Tasks submitted in one breath.
const AT_ONCE: usize = 100;
/// As many are submitted to a queue that was full.
const FEW: usize = 8;

/// A task whose call waits for the server to take it.
pub(super) struct InLine {
    call: CallId,
    pub(super) task: Task,
}

/// CL-33
fn for_room_backoff() -> Backoff {
    Backoff::between(Duration::from_millis(10), Duration::from_secs(1))
}

/// What comes of asking.
enum Asked {
    /// All were taken, or have ended.
    Taken,
    /// There was no room for some.
    Full,
    /// The server was not there for some.
    Away(DispatchError),
    /// The queue is not open.
    Closed,
}

impl<D: Dispatch + 'static> Coordinator<D> {
    /// A task is made: the server is to have it.
    pub(super) fn line_up(&self, call: CallId, task: Task) {
        let mut state = self.state.borrow_mut();
        if state.preparing.get(&call).is_none_or(|it| it.cancelled) {
            self.cancelled.set(true); // while its task was made
        }
        state.line.push_back(InLine { call, task });
        drop(state);
        self.line.notify_one();
    }

    /// Submits what is in line, waiting for room and for the server.
    pub(super) async fn submit_line(self: Rc<Self>) {
        let mut backoff = Backoff::default();
        let mut for_room = for_room_backoff();
        let mut many = AT_ONCE;
        loop {
            let opened = self.changed.notified();
            self.end_cancelled();
            let is_open = self.opened.get().is_some();
            let first: Vec<InLine> = match is_open {
                true => self.first_in_line(many),
                false => Vec::new(),
            };
            if first.is_empty() {
                tokio::select! {
                    () = opened, if !is_open => {}
                    () = self.line.notified() => {}
                }
                continue;
            }
            let wait = match self.ask(first).await {
                Asked::Taken => {
                    backoff = Backoff::default();
                    for_room = for_room_backoff();
                    many = (many * 2).min(AT_ONCE);
                    continue;
                }
                Asked::Full => {
                    many = FEW;
                    if self.make_room().await {
                        continue;
                    }
                    for_room.next()
                }
                Asked::Closed => {
                    self.opened.set(None); // somebody cancelled or flushed it
                    self.changed.notify_waiters();
                    backoff.next()
                }
                Asked::Away(error) => {
                    self.missed(error);
                    backoff.next()
                }
            };
            self.wait_in_line(wait).await;
        }
    }

    /// Until there may be room, or somebody was cancelled; so long at most.
    async fn wait_in_line(&self, time: Duration) {
        let over = tokio::time::sleep(time);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return,
                () = self.room.notified() => return,
                () = self.line.notified() => self.end_cancelled(),
            }
        }
    }

    /// Those that are asked for next.
    fn first_in_line(&self, many: usize) -> Vec<InLine> {
        let mut state = self.state.borrow_mut();
        let many = state.line.len().min(many);
        state.line.drain(..many).collect()
    }

    /// Somebody was cancelled, perhaps in the line.
    pub(super) fn look_for_cancelled(&self) {
        self.cancelled.set(true);
        self.line.notify_one();
    }

    /// Who was cancelled while it waited here is told so.
    fn end_cancelled(&self) {
        if !self.cancelled.take() {
            return;
        }
        let mut ended = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            state
                .line
                .retain(|in_line| match state.preparing.get(&in_line.call) {
                    Some(preparing) if preparing.cancelled => {
                        ended.push(in_line.call);
                        false
                    }
                    Some(_) => true,
                    None => false,
                });
        }
        for call in ended {
            self.end_early(call, Ok(cancelled()));
        }
    }

    /// Submits these; what was not taken is first in line again.
    async fn ask(&self, asked: Vec<InLine>) -> Asked {
        let tasks: Vec<&Task> = asked.iter().map(|in_line| &in_line.task).collect();
        let ids = tasks.iter().map(|task| task.id.clone());
        self.state.borrow_mut().asked.extend(ids);
        let answers = self.dispatch.submit_all(&self.config.queue, &tasks).await;
        let mut became = Asked::Taken;
        let mut again = Vec::new();
        match answers {
            Ok(answers) => {
                for (in_line, answer) in asked.into_iter().zip(answers) {
                    let (left, what) = self.heed(in_line, answer);
                    again.extend(left);
                    if !matches!(what, Asked::Taken) {
                        became = what;
                    }
                }
            }
            Err(error) => {
                again = asked;
                became = Asked::Away(error);
            }
        }
        let early = {
            let mut state = self.state.borrow_mut();
            for in_line in again.into_iter().rev() {
                state.line.push_front(in_line);
            }
            state.asked.clear();
            std::mem::take(&mut state.early)
        };
        early.iter().for_each(|event| self.hear(event));
        became
    }

    /// Whether this may be news of a task whose submission is not answered yet: an agent can be quicker than the answer.
    /// What is about no task comes after what was told before it.
    pub(super) fn is_early(&self, task: Option<&TaskId>) -> bool {
        let state = self.state.borrow();
        match task {
            Some(task) => state.asked.contains(task) && !state.outstanding.contains_key(task),
            None => !state.early.is_empty(),
        }
    }

    /// What an answer means for one; itself, if it is to be asked for again.
    fn heed(
        &self,
        in_line: InLine,
        answer: Result<Submitted, DispatchError>,
    ) -> (Option<InLine>, Asked) {
        let InLine { call, task } = in_line;
        let again = |task| Some(InLine { call, task });
        match answer {
            Ok(found @ (Submitted::Ok | Submitted::Dup | Submitted::Done)) => {
                self.wait_for(call, task, found);
            }
            Ok(Submitted::Full) if self.config.on_full == OnFull::Error => {
                let problem = format!("queue `{}` is full", self.config.queue);
                let code = "full";
                self.end_early(call, Err(EngineError::Elsewhere { code, problem }));
            }
            Ok(Submitted::Full) => return (again(task), Asked::Full),
            Ok(Submitted::Closed) => return (again(task), Asked::Closed),
            Err(error @ DispatchError::Unreachable { .. }) => {
                return (again(task), Asked::Away(error));
            }
            Err(error) => {
                let (code, problem) = ("server", error.to_string());
                self.end_early(call, Err(EngineError::Elsewhere { code, problem }));
            }
        }
        (None, Asked::Taken)
    }

    /// Drops results that nobody asks for again; whether there were any.
    async fn make_room(&self) -> bool {
        let before = self.state.borrow().delivered.len();
        self.drop_delivered(self.keeps()).await;
        self.state.borrow().delivered.len() < before || self.drop_some_leftovers().await
    }
}
