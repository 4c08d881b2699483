//! The short way that nearly each commit goes through its script (`plain.lua`): it must not be shorter than what is sure. In
//! queues without bounds, where others are sent the long way.

use std::time::Duration;

use fairtrial_cluster::{
    Class, Commit, Committed, Dispatch as _, Lease, Leased, NewEvent, Renewed, StreamId,
};

use crate::stage::{RedisStage, Stage as _};
use crate::words::*;

const META: &str = "ft:{study-1}:meta";
const TASKS: &str = "ft:{study-1}:task";
const ENTRIES: &str = "ft:{study-1}:q:cpu";

/// What becomes of a commit, and of the lease that it carries.
async fn committed(stage: &RedisStage, commit: &Commit) -> (Committed, Leased) {
    let queue = queue();
    let both = stage.dispatch.commit_and_lease(commit, &queue, Class::Cpu);
    let (committed, next) = both.await.unwrap();
    (committed, next.unwrap())
}

/// The task that this commit carries.
async fn next_after(stage: &RedisStage, held: &Lease) -> (Lease, Duration, Duration) {
    match committed(stage, &commit(held)).await {
        (
            Committed::Committed,
            Leased::Task {
                lease,
                renew_within,
                waited,
                ..
            },
        ) => (lease, renew_within, waited),
        other => panic!("{other:?}"),
    }
}

/// It expired, and whoever asks next has it.
async fn expires(stage: &RedisStage) {
    stage.pass(PAST_LEASE).await;
    assert_eq!(reap(&stage.dispatch, &[]).await.parked, 1);
}

/// CL-15: the same slot has the same entry, by another delivery.
#[tokio::test]
async fn a_commit_of_an_older_delivery_is_fenced() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    with_tasks(dispatch, &["a", "b"]).await;
    let old = lease(dispatch, &slot("n1")).await;
    expires(&stage).await;
    let new = lease(dispatch, &slot("n1")).await;
    assert_eq!((new.token.entry, new.token.delivery), (old.token.entry, 2));
    lease(dispatch, &slot("n2")).await; // nothing is parked any more
    assert_eq!(committed(&stage, &commit(&old)).await.0, Committed::Fenced);
    assert_eq!(
        committed(&stage, &commit(&new)).await.0,
        Committed::Committed
    );
}

/// CL-15: the slot has another entry, by as many deliveries.
#[tokio::test]
async fn a_commit_of_what_another_slot_has_is_fenced() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    with_tasks(dispatch, &["a", "b"]).await;
    let lost = lease(dispatch, &slot("n1")).await;
    expires(&stage).await;
    let theirs = lease(dispatch, &slot("n2")).await;
    assert_eq!(theirs.task, lost.task);
    let own = lease(dispatch, &slot("n1")).await;
    assert_eq!(own.token.delivery, lost.token.delivery);
    assert_eq!(committed(&stage, &commit(&lost)).await.0, Committed::Fenced);
    assert_eq!(
        committed(&stage, &commit(&theirs)).await.0,
        Committed::Committed
    );
}

/// CL-58: what the server was made to forget is not recorded.
#[tokio::test]
async fn a_commit_of_a_task_that_is_not_there_records_nothing() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    with_tasks(&stage.dispatch, &["a"]).await;
    let held = lease(&stage.dispatch, &slot("n1")).await;
    let () = stage.command(&["DEL", TASKS]).await;
    assert_eq!(
        committed(&stage, &commit(&held)).await.0,
        Committed::Unknown
    );
    let results = ["HLEN", "ft:{study-1}:res"];
    assert_eq!(stage.command::<usize>(&results).await, 0);
}

/// CL-20, CL-34: nothing is left of a task that has its result, not even that it was cancelled.
#[tokio::test]
async fn a_task_that_comes_again_is_not_cancelled() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    let ids = with_tasks(dispatch, &["a"]).await;
    let held = lease(dispatch, &slot("n1")).await;
    dispatch.cancel(&queue(), &ids[0]).await.unwrap();
    let done = committed(&stage, &commit(&held)).await;
    assert_eq!(done, (Committed::Committed, Leased::Empty));
    assert_eq!(stage.command::<usize>(&["HLEN", TASKS]).await, 0);
    dispatch.collect(&queue(), &[], &ids).await.unwrap();
    submit(dispatch, &["a"]).await;
    let again = lease(dispatch, &slot("n1")).await;
    assert_eq!(dispatch.renew(&again).await.unwrap(), Renewed::Ok);
}

/// CL-61, CL-18: the agent's own events are told, and a queue that had nothing gives the next hint.
#[tokio::test]
async fn events_are_told_and_the_next_submission_wakes() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    let ids = with_tasks(dispatch, &["a"]).await;
    let held = lease(dispatch, &slot("n1")).await;
    submit(dispatch, &["b"]).await; // a hint was given
    let note = ["HEXISTS", META, "told.cpu"];
    assert_eq!(stage.command::<usize>(&note).await, 1);
    let event = NewEvent {
        name: "start".to_owned(),
        task: Some(ids[0].clone()),
        agent: Some("n1".to_owned()),
        data: "{}".to_owned(),
    };
    let with_event = Commit {
        events: vec![event],
        ..commit(&held)
    };
    let (_, next) = committed(&stage, &with_event).await;
    assert_eq!(
        told_of(dispatch, &ids[0]).await,
        ["submit", "call.leased", "start", "complete"]
    );
    let Leased::Task { lease, .. } = next else {
        panic!("{next:?}")
    };
    let done = committed(&stage, &commit(&lease)).await;
    assert_eq!(done, (Committed::Committed, Leased::Empty));
    assert_eq!(stage.command::<usize>(&note).await, 0);
}

/// CL-5, EX-46: for how long it is leased, and how long it waited.
#[tokio::test]
async fn what_is_carried_says_how_long() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    with_tasks(&stage.dispatch, &["a", "b"]).await;
    let held = lease(&stage.dispatch, &slot("n1")).await;
    let wait = Duration::from_secs(20);
    stage.pass(wait).await;
    let (_, renew_within, waited) = next_after(&stage, &held).await;
    assert_eq!(renew_within, LEASE);
    assert!(waited >= wait && waited < wait * 10, "{waited:?}");
}

/// X12, CL-10: entries that are not their task's, and tasks that another program wrote, are passed by.
#[tokio::test]
async fn what_is_no_task_of_its_entry_is_passed_by() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    with_tasks(dispatch, &["a"]).await;
    let held = lease(dispatch, &slot("n1")).await;
    let stale = task("b").id;
    let words = ["XADD", ENTRIES, "*", "task", stale.as_str()];
    let stale_entry: String = stage.command(&words).await;
    let written = "local entry = redis.call('XADD', KEYS[1], '*', 'task', 'theirs')
redis.call('HSET', KEYS[2], 'theirs', cmsgpack.pack({ entry = entry }))";
    let () = stage.command(&["EVAL", written, "2", ENTRIES, TASKS]).await;
    submit(dispatch, &["b"]).await;
    let (next, ..) = next_after(&stage, &held).await;
    assert_eq!(next.task, stale);
    let stale_entry: StreamId = stale_entry.parse().unwrap();
    assert!(next.token.entry > stale_entry, "its own entry");
    let held: (usize, redis::Value, redis::Value, redis::Value) =
        stage.command(&["XPENDING", ENTRIES, "agents"]).await;
    assert_eq!(held.0, 1, "nothing else is held");
}
