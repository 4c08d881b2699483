//! Who waits for which call, besides the engine's thread: should that never answer, somebody else does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dispatch::Answer;
use crate::error::EngineError;
use crate::event::{CallId, Event};
use crate::listener::{Listener, Tap};
use crate::observers::Observers;

/// The unanswered calls of one engine.
#[derive(Default)]
pub(super) struct Unanswered(Mutex<HashMap<CallId, Waiting>>);

struct Waiting {
    listener: Arc<Shared>,
    output: Option<Tap>,
}

/// A call's listener; whoever takes it out answers.
type Shared = Mutex<Option<Box<dyn Listener>>>;

impl Unanswered {
    /// A listener for the engine, in place of the caller's.
    pub(super) fn wait(
        self: &Arc<Self>,
        call: CallId,
        listener: Box<dyn Listener>,
        output: Option<Tap>,
    ) -> Box<dyn Listener> {
        let listener = Arc::new(Mutex::new(Some(listener)));
        let waiting = Waiting {
            listener: Arc::clone(&listener),
            output,
        };
        lock(&self.0).insert(call, waiting);
        Box::new(Noted {
            call,
            listener,
            of: Arc::clone(self),
        })
    }

    /// Answers all in the place of an engine that never will.
    pub(super) fn give_up(&self, observers: &Observers) {
        let mut all: Vec<_> = lock(&self.0).drain().collect();
        all.sort_by_key(|(call, _)| call.0);
        for (call, Waiting { listener, output }) in all {
            if let Some(output) = output {
                output.cut();
            }
            let taken = lock(&listener).take();
            if let Some(listener) = taken {
                observers.tell(Event::Complete {
                    call,
                    verdict: None,
                });
                listener.ended(Err(EngineError::DescriptorsClosed));
            }
        }
    }
}

struct Noted {
    call: CallId,
    listener: Arc<Shared>,
    of: Arc<Unanswered>,
}

impl Listener for Noted {
    fn wants_start(&self) -> bool {
        let listener = lock(&self.listener);
        listener.as_ref().is_some_and(|it| it.wants_start())
    }

    fn began(&self, worker_id: &str) {
        if let Some(listener) = &*lock(&self.listener) {
            listener.began(worker_id);
        }
    }

    fn ended(self: Box<Self>, answer: Answer) {
        let taken = lock(&self.listener).take(); // and not told under the lock
        if let Some(listener) = taken {
            listener.ended(answer);
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        drop(lock(&self.of.0).remove(&self.call));
        let untold = lock(&self.listener).take();
        drop(untold);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    fn call(
        unanswered: &Arc<Unanswered>,
        number: u64,
    ) -> (Box<dyn Listener>, oneshot::Receiver<Answer>) {
        let (answer, receiver) = oneshot::channel();
        let listener = unanswered.wait(CallId(number), Box::new(answer), None);
        (listener, receiver)
    }

    /// FA-13
    #[test]
    fn each_call_is_answered_once_by_the_engine_or_in_its_place() {
        let unanswered = Arc::new(Unanswered::default());
        let (first, mut answered) = call(&unanswered, 1);
        let (second, mut given_up) = call(&unanswered, 2);
        first.ended(Err(EngineError::ShutDown));
        unanswered.give_up(&Observers::default());
        assert!(matches!(
            answered.try_recv(),
            Ok(Err(EngineError::ShutDown))
        ));
        assert!(matches!(
            given_up.try_recv(),
            Ok(Err(EngineError::DescriptorsClosed))
        ));
        assert!(!second.wants_start(), "nobody waits for it any more");
        second.ended(Err(EngineError::ShutDown));
    }

    /// FA-13
    #[test]
    fn a_listener_that_the_engine_drops_is_dropped() {
        let unanswered = Arc::new(Unanswered::default());
        let (listener, mut receiver) = call(&unanswered, 1);
        drop(listener);
        assert!(matches!(
            receiver.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        ));
        assert!(lock(&unanswered.0).is_empty());
    }
}
