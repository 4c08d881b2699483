//! Where a case plays: a backend of a kind, a directory, and what cases do over and over.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairtrial_exec::{Backend, Call, CallId, EngineError, Event, Outcome, Shutdown};
use fairtrial_tests::{Gate, PATIENCE, Story, is_alone, note};

use super::{Factory, skips};

pub(super) const ONE: &str = "def f(): return 1\n";
pub(super) const HANG: &str = "import time\ndef f(): time.sleep(600)\n";

/// A backend and who made it.
pub(crate) struct Scene<F: Factory> {
    /// The backend under test.
    pub(super) backend: Arc<F::Backend>,
    /// Its maker.
    pub(super) factory: F,
    test: String,
}

impl<F: Factory> Scene<F> {
    /// Sets it up, unless the case is not to be shown for this kind.
    pub(super) fn begin(
        module: &str,
        case: &str,
        factory: impl FnOnce() -> Option<F>,
    ) -> Option<Self> {
        let (_, kind) = module.rsplit_once("::").expect("a module of ours");
        if let Some(why) = skips::reason(kind, case) {
            note(format!("skipped: {why}"));
            return None;
        }
        let factory = factory()?;
        let (_, within) = module.split_once("::").expect("a module of ours");
        Some(Self {
            backend: Arc::new(factory.make()),
            factory,
            test: format!("{within}::{case}"),
        })
    }

    /// Shuts down, and looks for what is left.
    pub(super) async fn end(self) {
        shut(&*self.backend).await;
        drop(self.backend);
        self.factory.end();
    }

    /// As [`fairtrial_tests::is_alone`], for the case that this is the scene of.
    pub(super) fn is_alone(&self) -> bool {
        is_alone(&self.test)
    }

    /// Runs a call to its outcome, or fails the test.
    pub(super) async fn run(&self, call: Call) -> Outcome {
        run(&*self.backend, call).await
    }

    /// Submits a call and keeps it; dropped, it is cancelled.
    pub(super) async fn submit(&self, call: Call) -> Pin<Box<impl Future<Output = Answer> + Send>> {
        begin(self.backend.execute(call)).await
    }

    /// Runs `f(*args)` of a source text.
    pub(super) async fn source(&self, source: &str, args: &str) -> Outcome {
        self.run(Story::call(source, args)).await
    }

    /// A shut gate.
    pub(super) fn gate(&self, name: &str) -> Gate {
        Gate::at(self.factory.path(), name)
    }

    /// Calls that take every slot until their gates are opened, and those gates.
    pub(super) async fn take_all_slots(
        &self,
        name: &str,
    ) -> Vec<(Gate, Pin<Box<impl Future<Output = Answer> + Send>>)> {
        let mut taken = Vec::new();
        for slot in 0..self.factory.slots() {
            let gate = self.gate(&format!("{name}{slot}"));
            let call = self.submit(gate.call()).await;
            gate.reached_by(1).await;
            taken.push((gate, call));
        }
        taken
    }
}

/// What becomes of a call.
pub(super) type Answer = Result<Outcome, EngineError>;

/// Runs a call to its outcome, or fails the test.
pub(super) async fn run<B: Backend>(backend: &B, call: Call) -> Outcome {
    in_time(backend.execute(call))
        .await
        .expect("the engine does its work")
}

/// Fails the test if it takes too long.
pub(super) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes no longer than it may")
}

/// Shuts down when all is done.
pub(super) async fn shut<B: Backend>(backend: &B) {
    in_time(backend.shutdown(Shutdown::default())).await;
}

/// Polls a future once, so that its call is submitted, and keeps it.
pub(super) async fn begin<T, F: Future<Output = T>>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    let once = std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending(), "not so soon");
        std::task::Poll::Ready(())
    });
    once.await;
    future
}

/// The same call with a deadline.
pub(super) fn timed(mut call: Call, timeout: Duration) -> Call {
    call.timeout = Some(timeout);
    call
}

/// What a backend told from some moment on.
pub(super) struct Heard(Arc<Mutex<Vec<Event>>>);

impl Heard {
    /// From now on.
    pub(super) fn by<B: Backend>(backend: &B) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = heard.clone();
        backend
            .subscribe(Box::new(move |event| {
                sink.lock().expect("no panic").push(event.clone());
            }))
            .expect("a thread can be had");
        Self(heard)
    }

    /// So far.
    pub(super) fn all(&self) -> Vec<Event> {
        self.0.lock().expect("no panic").clone()
    }

    /// How many of that name.
    pub(super) fn count(&self, name: &str) -> usize {
        let all = self.all();
        all.iter().filter(|event| event.name() == name).count()
    }

    /// Which calls were told of by that name, in that order.
    pub(super) fn calls(&self, name: &str) -> Vec<CallId> {
        let all = self.all();
        let named = all.iter().filter(|event| event.name() == name);
        named.filter_map(call_of).collect()
    }

    /// Which workers were told of by that name, in that order.
    pub(super) fn workers(&self, name: &str) -> Vec<String> {
        let all = self.all();
        let named = all.iter().filter(|event| event.name() == name);
        named.filter_map(worker_of).map(str::to_owned).collect()
    }
}

/// Which worker an event is about.
pub(super) fn worker_of(event: &Event) -> Option<&str> {
    match event {
        Event::Start { worker_id, .. }
        | Event::WorkerStart { worker_id, .. }
        | Event::WorkerExit { worker_id, .. } => Some(worker_id),
        _ => None,
    }
}

/// Whose event it is, if it is a call's.
pub(super) fn call_of(event: &Event) -> Option<CallId> {
    match event {
        Event::Submit { call } | Event::Start { call, .. } | Event::Complete { call, .. } => {
            Some(*call)
        }
        _ => None,
    }
}
