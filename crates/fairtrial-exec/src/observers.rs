//! Who listens to the event stream: one thread tells everybody, in order, off the dispatch path.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::event::Event;

/// A handler that takes longer is worth a word in the log.
const SLOW: Duration = Duration::from_secs(10);

/// Somebody who listens.
pub(crate) type Observer = Box<dyn FnMut(&Event) + Send>;

/// The observers of one backend. Nothing runs until there is one.
#[derive(Default)]
pub(crate) struct Observers {
    // A plain mutex: held for a channel send, never while a handler runs.
    inner: Mutex<Option<Telling>>,
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
    pub(crate) fn add(&self, observer: Observer) {
        let mut inner = self.inner.lock().expect("no handler runs under the lock");
        let telling = inner.get_or_insert_with(|| {
            let (sender, notes) = mpsc::channel();
            let thread = std::thread::Builder::new()
                .name("fairtrial-events".into())
                .spawn(move || tell_all(&notes));
            Telling {
                sender,
                thread: thread.expect("a thread can be had for observers"),
            }
        });
        telling
            .sender
            .send(Note::Observe(observer))
            .expect("the thread ends only when the sender is dropped");
    }

    /// Queues an event for everybody.
    pub(crate) fn tell(&self, event: Event) {
        if let Some(telling) = &*self.inner.lock().expect("no handler runs under the lock") {
            telling
                .sender
                .send(Note::Tell(event))
                .expect("the thread ends only when the sender is dropped");
        }
    }

    /// Nothing is told after this; what was told before is still delivered, behind the caller's back.
    pub(crate) fn leave(&self) {
        self.inner
            .lock()
            .expect("no handler runs under the lock")
            .take();
    }

    /// Waits until everybody has heard everything; nothing is told after this.
    pub(crate) fn finish(&self) {
        let telling = self
            .inner
            .lock()
            .expect("no handler runs under the lock")
            .take();
        if let Some(Telling { sender, thread }) = telling {
            drop(sender);
            // A handler may itself be what ends the backend; it cannot wait for its own end.
            if thread.thread().id() != std::thread::current().id() {
                thread.join().ok(); // handlers' panics are caught one by one
            }
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
        observers.add(Box::new(move |event| {
            first.lock().unwrap().push(("first", event.name()))
        }));
        observers.add(Box::new(|_| panic!("bad handler")));
        let last = seen.clone();
        observers.add(Box::new(move |event| {
            last.lock().unwrap().push(("last", event.name()))
        }));
        observers.tell(Event::Shutdown);
        observers.finish();
        assert_eq!(
            *seen.lock().unwrap(),
            [("first", "shutdown"), ("last", "shutdown")]
        );
    }
}
