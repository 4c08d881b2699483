//! Who listens to the event stream: one thread tells everybody, in order, off the dispatch path.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use crate::error::EngineError;
use crate::event::Event;

/// A handler that takes longer is worth a word in the log.
const SLOW: Duration = Duration::from_secs(10);

/// Somebody who listens.
pub type Observer = Box<dyn FnMut(&Event) + Send>;

/// Somebody who is told at once, on the thread where it happens: it must be quick, and may not come back to the backend.
pub type Onlooker = Box<dyn Fn(&Event) + Send + Sync>;

/// The observers of one backend. Nothing runs until there is one.
#[derive(Default)]
pub struct Observers {
    onlooker: OnceLock<Onlooker>,
    // A plain mutex: held for a channel send, never while a handler runs.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    telling: Option<Telling>,
    /// Who tells, or told.
    teller: Option<ThreadId>,
}

struct Telling {
    sender: mpsc::Sender<Note>,
    thread: JoinHandle<()>,
}

enum Note {
    Observe(Observer),
    Tell(Event),
}

impl Observers {
    /// Adds a handler; it hears what happens from now on.
    pub fn add(&self, observer: Observer) -> Result<(), EngineError> {
        let mut inner = self.lock();
        if inner.telling.is_none() {
            let (sender, notes) = mpsc::channel();
            let thread = std::thread::Builder::new()
                .name("fairtrial-events".into())
                .spawn(move || tell_all(&notes))
                .map_err(EngineError::io("starting the thread of observers"))?;
            inner.teller = Some(thread.thread().id());
            inner.telling = Some(Telling { sender, thread });
        }
        inner.send(Note::Observe(observer));
        Ok(())
    }

    /// The one who is told everything at once. Of several the first stays.
    pub fn set_onlooker(&self, onlooker: Onlooker) {
        self.onlooker.get_or_init(|| onlooker);
    }

    /// Queues an event for everybody.
    pub fn tell(&self, event: Event) {
        if let Some(onlooker) = self.onlooker.get() {
            onlooker(&event);
        }
        self.lock().send(Note::Tell(event));
    }

    /// Whether this is the thread that handlers run on.
    #[must_use]
    pub fn is_told_here(&self) -> bool {
        self.lock().teller == Some(std::thread::current().id())
    }

    /// Nothing is told after this; what was told before is still delivered, behind the caller's back.
    pub fn leave(&self) {
        self.lock().telling.take();
    }

    /// Waits until everybody has heard everything; nothing is told after this.
    pub fn finish(&self) {
        let telling = self.lock().telling.take();
        if let Some(Telling { sender, thread }) = telling {
            drop(sender);
            // A handler may itself be what ends the backend; it cannot wait for its own end.
            if !self.is_told_here() {
                thread.join().ok(); // handlers' panics are caught one by one
            }
        }
    }

    /// What a panic left is still sound: each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn send(&self, note: Note) {
        if let Some(telling) = &self.telling {
            telling.sender.send(note).ok(); // the thread ends only when the sender is dropped
        }
    }
}

fn tell_all(notes: &mpsc::Receiver<Note>) {
    let mut observers: Vec<Observer> = Vec::new();
    for note in notes {
        match note {
            Note::Observe(observer) => observers.push(observer),
            Note::Tell(event) => observers
                .iter_mut()
                .for_each(|observer| tell_one(observer, &event)),
        }
    }
}

fn tell_one(observer: &mut Observer, event: &Event) {
    let begun = Instant::now();
    if catch_unwind(AssertUnwindSafe(|| observer(event))).is_err() {
        log::error!("an observer panicked in `{}`", event.name());
    }
    if begun.elapsed() >= SLOW {
        log::warn!(
            "an observer took {:?} in `{}`",
            begun.elapsed(),
            event.name()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// EX-93
    #[test]
    fn handlers_run_in_order_and_a_panic_hurts_nobody() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let observers = Observers::default();
        let first = seen.clone();
        observers
            .add(Box::new(move |event| {
                first.lock().unwrap().push(("first", event.name()))
            }))
            .unwrap();
        observers.add(Box::new(|_| panic!("bad handler"))).unwrap();
        let last = seen.clone();
        observers
            .add(Box::new(move |event| {
                last.lock().unwrap().push(("last", event.name()))
            }))
            .unwrap();
        observers.tell(Event::Shutdown);
        observers.finish();
        assert_eq!(
            *seen.lock().unwrap(),
            [("first", "shutdown"), ("last", "shutdown")]
        );
    }
}
