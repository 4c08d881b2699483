use fairtrial_exec::{ExitReason, Level, LocalConfig};

use super::*;
use crate::names::{Agent, Class, StreamId, Token};

fn workers() -> Workers {
    let config = LocalConfig::from_env().expect("a configuration");
    Workers::of(&LocalBackend::new(config), "a") // never started
}

fn tell(workers: &Workers, events: impl IntoIterator<Item = Event>) {
    workers.heard.lock().unwrap().extend(events);
}

fn worker_start(worker_id: &str) -> Event {
    Event::WorkerStart {
        worker_id: worker_id.into(),
        pid: 1,
        zygote_threads: None,
        closed_fds: std::collections::BTreeMap::new(),
    }
}

fn start(call: u64, worker_id: &str) -> Event {
    Event::Start {
        call: CallId(call),
        worker_id: worker_id.into(),
    }
}

fn worker_exit(worker_id: &str) -> Event {
    Event::WorkerExit {
        worker_id: worker_id.into(),
        reason: ExitReason::CallDone,
        status: None,
        stale_frames: 0,
    }
}

fn degraded(mechanism: &'static str) -> Event {
    Event::Degraded {
        requested: Level::Limits,
        mechanism,
        reason: "none".into(),
    }
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn lease(name: &str, key: &str) -> Lease {
    let queue = queue(name);
    Lease {
        task: TaskId::of(&queue, key, b"{}"),
        queue,
        class: Class::Cpu,
        token: Token {
            entry: StreamId { ms: 1, seq: 1 },
            delivery: 1,
        },
        consumer: Agent::new("a", "nonce").expect("a name").slot(0),
    }
}

fn names(events: &[NewEvent]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

/// CL-61
#[test]
fn each_queue_that_a_worker_served_hears_of_its_start_and_its_end_once() {
    let (mut workers, one, other) = (workers(), queue("one"), queue("other"));
    tell(&workers, [worker_start("w")]);
    assert!(workers.with_news().is_empty(), "it has run nothing yet");
    for (call, name) in [(1, "one"), (2, "one"), (3, "other")] {
        workers.submitted(CallId(call), &lease(name, "key"));
        tell(&workers, [start(call, "w")]);
    }
    assert_eq!(
        names(&workers.take(&one)),
        ["worker_start", "start", "start"]
    );
    tell(&workers, [worker_exit("w")]);
    assert_eq!(names(&workers.take(&one)), ["worker_exit"]);
    assert_eq!(
        names(&workers.take(&other)),
        ["worker_start", "start", "worker_exit"]
    );
    assert!(workers.live.is_empty() && workers.calls.is_empty());
}

/// CL-61: whoever is heard of by one slot is not lost for another.
#[test]
fn workers_of_two_slots_that_end_together_are_both_told_of() {
    let (mut workers, one, other) = (workers(), queue("one"), queue("other"));
    workers.submitted(CallId(1), &lease("one", "a"));
    workers.submitted(CallId(2), &lease("other", "b"));
    tell(&workers, [worker_start("v"), worker_start("w")]);
    tell(&workers, [start(1, "v"), start(2, "w")]);
    tell(&workers, [worker_exit("v"), worker_exit("w")]);
    for queue in [one, other] {
        let told = workers.take(&queue);
        assert_eq!(names(&told), ["worker_start", "start", "worker_exit"]);
    }
}

/// CL-61: a worker's end comes after its commit, and before the next worker's start.
#[test]
fn events_are_told_in_the_order_in_which_they_happened() {
    let (mut workers, queue) = (workers(), queue("q"));
    for (call, worker) in [(1, "v"), (2, "w")] {
        workers.submitted(CallId(call), &lease("q", worker));
        let events = [
            worker_start(worker),
            start(call, worker),
            worker_exit(worker),
        ];
        tell(&workers, events);
    }
    let told = workers.take(&queue);
    let once = ["worker_start", "start", "worker_exit"];
    assert_eq!(names(&told), [once, once].concat());
}

/// CL-61: a worker's acknowledgement may be quicker than the launcher's word.
#[test]
fn a_worker_that_is_heard_of_after_its_call_began_is_told_of() {
    let (mut workers, queue) = (workers(), queue("q"));
    workers.submitted(CallId(1), &lease("q", "key"));
    tell(&workers, [start(1, "w"), worker_start("w")]);
    assert!(!workers.is_gone("w"));
    tell(&workers, [worker_exit("w")]);
    assert!(workers.is_gone("w"));
    let told = workers.take(&queue);
    assert_eq!(names(&told), ["start", "worker_start", "worker_exit"]);
}

/// CL-61: a command that writes too much is stopped before it is known to run.
#[test]
fn a_worker_whose_call_never_began_is_told_of_when_it_is_over() {
    let (mut workers, queue) = (workers(), queue("q"));
    workers.submitted(CallId(1), &lease("q", "key"));
    tell(&workers, [worker_start("w"), worker_exit("w")]);
    workers.ended(CallId(1), Some("w"));
    assert_eq!(
        names(&workers.take(&queue)),
        ["worker_start", "worker_exit"]
    );
    workers.submitted(CallId(2), &lease("q", "other"));
    workers.ended(CallId(2), Some("never heard of"));
    assert!(workers.live.is_empty() && workers.calls.is_empty());
}

/// CL-61: one that was forked ahead and never used is nobody's, and neither is a probe.
#[test]
fn of_what_served_nobody_nobody_hears() {
    let mut workers = workers();
    tell(
        &workers,
        [worker_start("w"), start(7, "w"), worker_exit("w")],
    );
    assert!(workers.with_news().is_empty());
}

/// CL-61
#[test]
fn what_calls_do_without_is_told_to_each_queue_whose_calls_begin() {
    let (mut workers, early, late) = (workers(), queue("early"), queue("late"));
    tell(&workers, [degraded("memory")]);
    workers.submitted(CallId(1), &lease("early", "a"));
    tell(&workers, [start(1, "w")]);
    assert_eq!(names(&workers.take(&early)), ["degraded", "start"]);
    workers.submitted(CallId(2), &lease("early", "b"));
    workers.submitted(CallId(3), &lease("late", "c"));
    tell(&workers, [degraded("cpu"), start(2, "w"), start(3, "w")]);
    assert_eq!(names(&workers.take(&early)), ["degraded", "start"]);
    assert_eq!(
        names(&workers.take(&late)),
        ["degraded", "degraded", "start"]
    );
}

/// CL-61: an emission that fails, or that nobody waits for any more, loses nothing.
#[test]
fn what_did_not_arrive_is_told_again_and_first() {
    let (workers, queue) = (RefCell::new(workers()), queue("q"));
    let told = |call, worker: &str| {
        let mut workers = workers.borrow_mut();
        workers.submitted(CallId(call), &lease("q", worker));
        tell(&workers, [worker_start(worker), start(call, worker)]);
    };
    told(1, "v");
    let telling = Telling::of(&workers, &queue);
    assert_eq!(names(&telling.events), ["worker_start", "start"]);
    told(2, "w");
    assert_eq!(workers.borrow_mut().with_news().len(), 1);
    drop(telling);
    let telling = Telling::of(&workers, &queue);
    assert!(telling.events[0].data.contains("\"v\""), "in their order");
    assert_eq!(telling.events.len(), 4);
    telling.arrived();
    assert!(workers.borrow_mut().with_news().is_empty());
}

/// CL-28: a task that was given back did not begin; its worker did.
#[test]
fn of_a_task_that_was_given_up_only_its_worker_is_told() {
    let mut workers = workers();
    let given_up = lease("q", "key");
    workers.submitted(CallId(1), &given_up);
    tell(&workers, [worker_start("w"), start(1, "w")]);
    workers.give_up(&given_up);
    assert_eq!(names(&workers.take(&given_up.queue)), ["worker_start"]);
}
