//! Results on their way to those who wait, in memory and with a store in a directory.

use std::path::Path;
use std::sync::Arc;

use fairtrial_exec::{Answer, Captured, Observers};
use tokio::sync::oneshot;

use super::*;
use crate::backend::cancelled;
use crate::backend::coordinator::Outstanding;
use crate::backend::tests::config;
use crate::blobs::BlobStore;
use crate::memory::MemoryDispatch;
use crate::names::{Class, QueueName, StreamId, Token};
use crate::terms::Task;

fn coordinator(store: &Path) -> Rc<Coordinator<MemoryDispatch>> {
    let url = format!("file://{}", store.display());
    let config = config(&store.join("spill"));
    let store = BlobStore::open(&url, &Default::default()).expect("a store");
    let observers = Arc::<Observers>::default();
    Coordinator::new(MemoryDispatch::new(), Some(store), config, observers)
}

fn task() -> Task {
    let queue = QueueName::new("q").expect("a name");
    Task {
        id: TaskId::of(&queue, "key", b"{}"),
        class: Class::Cpu,
        envelope: b"{}".to_vec(),
        queue_timeout: None,
    }
}

/// One more who waits for it.
fn joined(coordinator: &Coordinator<MemoryDispatch>, call: u64) -> oneshot::Receiver<Answer> {
    let (sender, receiver) = oneshot::channel();
    let mut state = coordinator.state.borrow_mut();
    let outstanding = state.outstanding.entry(task().id);
    let outstanding = outstanding.or_insert_with(|| Outstanding::new(task(), false));
    let listener: Box<dyn Listener> = Box::new(sender);
    outstanding.waiting.push((CallId(call), listener));
    receiver
}

/// A result whose output is too long for its envelope and the same on both streams, as an agent stores and commits it.
async fn recorded(coordinator: &Coordinator<MemoryDispatch>) -> Vec<u8> {
    let output = Captured {
        head: vec![b'x'; 200_000],
        ..Captured::default()
    };
    let outcome = Outcome {
        stdout: output.clone(),
        stderr: output,
        ..cancelled()
    };
    let token = Token {
        entry: StreamId { ms: 1, seq: 1 },
        delivery: 1,
    };
    let sealed = ResultEnvelope::seal(outcome, token, "a/b/0");
    assert_eq!(sealed.outgoing.len(), 2);
    let store = coordinator.store.as_ref().expect("it has one");
    for piece in sealed.outgoing {
        store.keep_outgoing(piece).await.expect("it is stored");
    }
    sealed.bytes
}

fn told(receiver: &mut oneshot::Receiver<Answer>) -> Answer {
    receiver.try_recv().expect("it was told")
}

/// CL-13: equal pieces have one blob, and each is in the outcome.
#[tokio::test]
async fn the_same_output_on_both_streams_arrives_twice() {
    let store = tempfile::tempdir().expect("a directory");
    let coordinator = coordinator(store.path());
    let bytes = recorded(&coordinator).await;
    let mut receiver = joined(&coordinator, 1);
    coordinator
        .give_out(task().id, &ResultEnvelope::read(&bytes))
        .await;
    let outcome = told(&mut receiver).expect("an outcome");
    assert_eq!(outcome.stdout.head, vec![b'x'; 200_000]);
    assert_eq!(outcome.stderr.head, outcome.stdout.head);
    assert_eq!(coordinator.state.borrow().delivered, [task().id]);
}

/// CL-14: whoever joins a task while its result is fetched is told as the others are.
#[tokio::test]
async fn who_joins_while_a_blob_is_fetched_is_told_too() {
    let store = tempfile::tempdir().expect("a directory");
    let coordinator = coordinator(store.path());
    let bytes = recorded(&coordinator).await;
    let mut first = joined(&coordinator, 1);
    let read = ResultEnvelope::read(&bytes);
    let giving = coordinator.give_out(task().id, &read);
    tokio::pin!(giving);
    assert!(futures_util::poll!(&mut giving).is_pending());
    let mut second = joined(&coordinator, 2);
    giving.await;
    for receiver in [&mut first, &mut second] {
        assert!(told(receiver).is_ok_and(|outcome| outcome.stderr.head.len() == 200_000));
    }
    assert!(coordinator.state.borrow().outstanding.is_empty());
}

/// CL-32: what could not be fetched just now is not dropped from the server; what never can be, is.
#[tokio::test(start_paused = true)]
async fn a_result_that_could_not_be_read_stays() {
    let store = tempfile::tempdir().expect("a directory");
    let (root, away) = (store.path().join("blobs"), store.path().join("away"));
    std::fs::create_dir(&root).expect("a directory");
    let coordinator = coordinator(&root);
    let bytes = recorded(&coordinator).await;
    std::fs::rename(&root, &away).expect("it is ours");
    let mut receiver = joined(&coordinator, 1);
    coordinator
        .give_out(task().id, &ResultEnvelope::read(&bytes))
        .await;
    let error = told(&mut receiver).expect_err("the store is away");
    assert!(error.to_string().ends_with("(blobs)"), "{error}");
    // Told of its end once more, it is not taken for given out.
    coordinator
        .give_out(task().id, &ResultEnvelope::read(&bytes))
        .await;
    assert!(coordinator.state.borrow().delivered.is_empty());
    assert!(coordinator.was_cut_short.get(), "its queue keeps it");
    std::fs::create_dir(&root).expect("a directory");
    let mut receiver = joined(&coordinator, 2);
    coordinator
        .give_out(task().id, &ResultEnvelope::read(&bytes))
        .await;
    let error = told(&mut receiver).expect_err("nothing is in it");
    assert!(error.to_string().ends_with("(blob_missing)"), "{error}");
    assert_eq!(coordinator.state.borrow().delivered, [task().id]);
}

/// CL-25, CL-32: a blob that is seen late is waited for, and results behind it are not.
#[tokio::test(start_paused = true)]
async fn a_result_whose_blob_is_late_keeps_nobody_waiting() {
    let store = tempfile::tempdir().expect("a directory");
    let coordinator = coordinator(store.path());
    let bytes = recorded(&coordinator).await;
    let (root, away) = (store.path().join("sha256"), store.path().join("away"));
    std::fs::rename(&root, &away).expect("it is ours");
    let mut late = joined(&coordinator, 1);
    let local = tokio::task::LocalSet::new();
    let handed_out = coordinator.hand_out(task().id, &bytes);
    local.run_until(handed_out).await; // others come next
    assert!(late.try_recv().is_err(), "it is asked for again");
    let asked = tokio::time::sleep(Duration::from_secs(1)); // once, in vain
    local.run_until(asked).await;
    assert!(late.try_recv().is_err(), "it is asked for again");
    std::fs::rename(&away, &root).expect("it is ours");
    local.await;
    let outcome = told(&mut late).expect("an outcome");
    assert_eq!(outcome.stdout.head.len(), 200_000);
}

/// CL-58: somebody looks where everything is while a result is on its way: it is not fetched twice.
#[tokio::test(start_paused = true)]
async fn a_result_that_is_being_fetched_is_not_fetched_again() {
    let store = tempfile::tempdir().expect("a directory");
    let coordinator = coordinator(store.path());
    let bytes = recorded(&coordinator).await;
    let mut receiver = joined(&coordinator, 1);
    let local = tokio::task::LocalSet::new();
    for _ in 0..3 {
        let handed_out = coordinator.hand_out(task().id, &bytes);
        local.run_until(handed_out).await;
    }
    assert_eq!(coordinator.state.borrow().being_fetched.len(), 1);
    local.await;
    assert!(told(&mut receiver).is_ok());
    assert!(coordinator.state.borrow().being_fetched.is_empty());
    assert_eq!(coordinator.state.borrow().delivered, [task().id]);
}

/// CL-61, CL-74, X19: an agent that is not sure tells again, and a reader that lost its connection reads again.
#[tokio::test]
async fn of_a_worker_hooks_hear_once_whatever_is_told_again() {
    let store = tempfile::tempdir().expect("a directory");
    let coordinator = coordinator(store.path());
    let (heard, hears) = std::sync::mpsc::channel();
    let observe = move |event: &fairtrial_exec::Event| heard.send(event.name()).expect("heard");
    coordinator.observe(Box::new(observe));
    let event = |name: &str, data: &str| StoredEvent {
        id: StreamId { ms: 1, seq: 1 },
        event: NewEvent {
            name: name.into(),
            data: data.into(),
            ..NewEvent::default()
        },
    };
    let start = event("worker_start", r#"{"worker_id":"w","pid":1}"#);
    let exit = event("worker_exit", r#"{"worker_id":"w","reason":"call_done"}"#);
    let lack = event(
        "degraded",
        r#"{"requested":"strict","mechanism":"memory","reason":"none"}"#,
    );
    for each in [&start, &start, &lack, &exit, &exit, &lack] {
        coordinator.hear(each);
    }
    let names: Vec<_> = (0..3).map(|_| hears.recv().expect("an event")).collect();
    assert_eq!(names, ["worker_start", "degraded", "worker_exit"]);
    assert!(hears.try_recv().is_err());
}

/// CL-32: what was given out is not dropped while somebody who submits the same again is about to ask for it.
#[tokio::test]
async fn a_result_that_is_asked_for_again_is_not_dropped() {
    let store = tempfile::tempdir().expect("a directory");
    let mut coordinator = coordinator(store.path());
    let owner = Rc::get_mut(&mut coordinator).expect("it is ours alone");
    owner.config.named = false;
    let mut state = coordinator.state.borrow_mut();
    state.delivered.push_back(task().id);
    state.asked.insert(task().id);
    drop(state);
    assert_eq!(coordinator.droppable(), []);
    coordinator.state.borrow_mut().asked.clear();
    assert_eq!(coordinator.droppable(), [task().id]);
}

/// CL-30: a fault of ours is told to everybody who waits, and whoever comes later, instead of keeping them waiting.
#[tokio::test]
async fn when_a_task_of_the_coordinator_panics_nobody_waits_for_ever() {
    let store = tempfile::tempdir().expect("a directory");
    let coordinator = coordinator(store.path());
    let mut receiver = joined(&coordinator, 1);
    let local = tokio::task::LocalSet::new();
    let panics = async { coordinator.start(async { panic!("as it should") }).await };
    local.run_until(panics).await.expect("it is caught");
    let error = told(&mut receiver).expect_err("no outcome");
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(coordinator.failed.borrow().is_some());
}
