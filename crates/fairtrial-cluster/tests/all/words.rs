//! The words that tests are told in.

use std::time::Duration;

use fairtrial_cluster::{
    Agent, Class, Commit, Consumer, Dispatch, Fold, Lease, Leased, Opened, Owner, Place, QueueName,
    Reaped, Release, StreamId, Submitted, Task, TaskId, Terms, Verdicts,
};
use serde_json::{Value, json};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const PAST_LEASE: Duration = Duration::from_secs(31);

pub(crate) fn queue() -> QueueName {
    QueueName::new("study-1").unwrap()
}

pub(crate) fn owner(host: &str) -> Owner {
    Owner {
        host: host.to_owned(),
        pid: 42,
        nonce: format!("nonce-of-{host}"),
    }
}

pub(crate) fn verdicts() -> Verdicts {
    let text = |kind: &str, verdict: &str| {
        let reason = Verdicts::REASON.trim_matches('"');
        let waited = Verdicts::WAITED_S.trim_matches('"');
        json!({ "kind": kind, "token": null, "verdict": verdict, "reason": reason, "waited_s": waited, "none": [] })
            .to_string()
    };
    Verdicts {
        queue_timeout: text("outcome", "queue_timeout"),
        cancelled: text("outcome", "cancelled"),
        lost: text("error", "lost"),
        setup_failed: text("outcome", "setup_failed"),
        invalid: text("error", "invalid"),
    }
}

pub(crate) fn terms() -> Terms {
    Terms {
        lease: LEASE,
        ..Terms::new(verdicts())
    }
}

pub(crate) fn task(key: &str) -> Task {
    // Any bytes will do: dispatch does not read them.
    let envelope = [b"\x00\xff\"%REASON%\" ".as_slice(), key.as_bytes()].concat();
    let id = TaskId::of(&queue(), key, &envelope);
    Task {
        id,
        class: Class::Cpu,
        envelope,
        queue_timeout: None,
    }
}

pub(crate) fn agent(name: &str) -> Agent {
    Agent::new(name, format!("{name}-first")).unwrap()
}

pub(crate) fn slot(name: &str) -> Consumer {
    agent(name).slot(0)
}

/// A result as an agent makes it: whose it is can be seen.
pub(crate) fn result(lease: &Lease) -> Vec<u8> {
    let (token, agent) = (lease.token, lease.consumer.to_string());
    json!({ "kind": "outcome", "token": token, "agent": agent })
        .to_string()
        .into_bytes()
}

pub(crate) fn commit(lease: &Lease) -> Commit {
    Commit {
        lease: lease.clone(),
        result: result(lease),
        events: Vec::new(),
        complete: String::new(),
    }
}

pub(crate) fn uncounted() -> Release {
    Release::Uncounted {
        reason: "drained".to_owned(),
    }
}

/// Opens the queue of all tests.
pub(crate) async fn open(dispatch: &impl Dispatch, terms: &Terms) -> StreamId {
    match dispatch
        .open(&queue(), &owner("here"), terms)
        .await
        .unwrap()
    {
        Opened::Opened { event } => event,
        Opened::Owned { by } => panic!("owned by {by:?}"),
    }
}

/// Submits tasks of these keys.
pub(crate) async fn submit(dispatch: &impl Dispatch, keys: &[&str]) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for key in keys {
        let task = task(key);
        assert_eq!(
            dispatch.submit(&queue(), &task).await.unwrap(),
            Submitted::Ok
        );
        ids.push(task.id);
    }
    ids
}

/// Opens the queue on the usual terms, with these tasks in it.
pub(crate) async fn with_tasks(dispatch: &impl Dispatch, keys: &[&str]) -> Vec<TaskId> {
    open(dispatch, &terms()).await;
    submit(dispatch, keys).await
}

pub(crate) async fn try_lease(dispatch: &impl Dispatch, consumer: &Consumer) -> Leased {
    dispatch
        .lease(&queue(), Class::Cpu, consumer)
        .await
        .unwrap()
}

/// A lease, which there must be.
pub(crate) async fn lease(dispatch: &impl Dispatch, consumer: &Consumer) -> Lease {
    match try_lease(dispatch, consumer).await {
        Leased::Task { lease, .. } => lease,
        other => panic!("nothing to lease: {other:?}"),
    }
}

pub(crate) async fn reap(dispatch: &impl Dispatch, live: &[Agent]) -> Reaped {
    dispatch.reap_all(&queue(), Class::Cpu, live).await.unwrap()
}

pub(crate) async fn place(dispatch: &impl Dispatch, id: &TaskId) -> Place {
    dispatch
        .check(&queue(), std::slice::from_ref(id))
        .await
        .unwrap()[0]
}

/// The result of a task, which there must be, as bytes.
pub(crate) async fn stored(dispatch: &impl Dispatch, id: &TaskId) -> Vec<u8> {
    let mut results = dispatch
        .collect(&queue(), std::slice::from_ref(id), &[])
        .await
        .unwrap();
    let (of, result) = results.pop().expect("there is a result");
    assert_eq!(&of, id);
    result
}

/// The result of a task, which there must be, as JSON.
pub(crate) async fn recorded(dispatch: &impl Dispatch, id: &TaskId) -> Value {
    serde_json::from_slice(&stored(dispatch, id).await).unwrap()
}

/// All events so far.
pub(crate) async fn events(dispatch: &impl Dispatch) -> Vec<(String, Option<TaskId>)> {
    let events = dispatch
        .events(&queue(), StreamId::START, Duration::ZERO)
        .await
        .unwrap();
    assert!(!events.gap);
    events
        .events
        .into_iter()
        .map(|stored| (stored.event.name, stored.event.task))
        .collect()
}

/// The names of a task's events so far.
pub(crate) async fn told_of(dispatch: &impl Dispatch, id: &TaskId) -> Vec<String> {
    let of = |(name, task): (String, Option<TaskId>)| (task.as_ref() == Some(id)).then_some(name);
    events(dispatch).await.into_iter().filter_map(of).collect()
}

/// Where tasks are by all events so far (CL-63).
pub(crate) async fn folded(dispatch: &impl Dispatch) -> Fold {
    let queue = queue();
    let told = dispatch.events(&queue, StreamId::START, Duration::ZERO);
    let mut fold = Fold::default();
    let told = told.await.unwrap().events;
    told.iter().for_each(|event| fold.hear(event));
    fold
}
