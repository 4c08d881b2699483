//! Entries, tasks and results that do not belong together, as another program or half a backup leaves them.

use fairtrial_cluster::{Class, Committed, Dispatch, Leased, Place, Renewed, TaskId};

use crate::stage::{RedisStage, Stage};
use crate::words::*;

const STREAM: &str = "ft:{study-1}:q:cpu";
const TASKS: &str = "ft:{study-1}:task";

/// How many entries there are, leased or not.
async fn entries(stage: &RedisStage) -> usize {
    stage.command(&["XLEN", STREAM]).await
}

/// How many entries slots hold, and `parked`.
async fn held(stage: &RedisStage) -> usize {
    let words = ["XPENDING", STREAM, "agents", "-", "+", "100"];
    let held: Vec<redis::Value> = stage.command(&words).await;
    held.len()
}

/// CL-31: two entries name a task, and it is one slot's: whoever finds the other one drops it.
#[tokio::test]
async fn an_entry_that_is_not_its_tasks_own_is_dropped() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    let ids = with_tasks(dispatch, &["a"]).await;
    let own = lease(dispatch, &slot("n1")).await;
    let stray = async || {
        let words = ["XADD", STREAM, "*", "task", ids[0].as_str()];
        stage.command::<()>(&words).await;
    };
    let stray_of = async |consumer: &str| {
        stray().await;
        let group = ["XREADGROUP", "GROUP", "agents", consumer, "COUNT", "1"];
        let words = [&group[..], &["STREAMS", STREAM, ">"]].concat();
        stage.command::<()>(&words).await;
        assert_eq!((entries(&stage).await, held(&stage).await), (2, 2));
    };
    // By whoever would be given it,
    stray().await;
    assert_eq!(try_lease(dispatch, &slot("n2")).await, Leased::Empty);
    assert_eq!(entries(&stage).await, 1);
    // by the slot that has it,
    stray_of(&slot("n2").to_string()).await;
    assert_eq!(try_lease(dispatch, &slot("n2")).await, Leased::Empty);
    assert_eq!((entries(&stage).await, held(&stage).await), (1, 1));
    // and by a reaper if that slot is silent.
    stray_of(&slot("n2").to_string()).await;
    stage.pass(PAST_LEASE).await;
    assert_eq!(dispatch.renew(&own).await.unwrap(), Renewed::Ok);
    let reaped = reap(dispatch, &[]).await;
    assert_eq!((reaped.stale, reaped.parked), (1, 0));
    assert_eq!(place(dispatch, &ids[0]).await, Place::Leased);
    assert_eq!(
        dispatch.commit(&commit(&own)).await.unwrap(),
        Committed::Committed
    );
    assert_eq!((entries(&stage).await, held(&stage).await), (0, 0));
}

/// CL-59: whoever holds an entry of what has its result gives it up when it hears of that.
#[tokio::test]
async fn an_entry_whose_task_is_done_goes_with_a_commit() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    let ids = with_tasks(dispatch, &["a"]).await;
    let own = lease(dispatch, &slot("n1")).await;
    let words = ["HSET", "ft:{study-1}:res", ids[0].as_str(), "theirs"];
    let () = stage.command(&words).await;
    let note = format!("cpu:{}", own.token.entry);
    let () = stage
        .command(&["HDEL", TASKS, ids[0].as_str(), &note])
        .await;
    let stored = b"theirs".to_vec();
    assert_eq!(
        dispatch.commit(&commit(&own)).await.unwrap(),
        Committed::Duplicate { stored }
    );
    assert_eq!((entries(&stage).await, held(&stage).await), (0, 0));
}

/// CL-34, X12: what was added anew leaves nothing behind, which would be counted as a task for ever.
#[tokio::test]
async fn a_task_added_anew_leaves_no_note_of_its_first_entry() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    with_tasks(dispatch, &["a"]).await;
    let first = lease(dispatch, &slot("n1")).await;
    stage
        .delete_entry(&queue(), Class::Cpu, first.token.entry)
        .await;
    dispatch.release(&first, &uncounted()).await.unwrap();
    let again = lease(dispatch, &slot("n1")).await;
    dispatch.commit(&commit(&again)).await.unwrap();
    assert_eq!(stage.command::<usize>(&["HLEN", TASKS]).await, 0);
}

/// Section 4: entries without a task, however many, keep no script for long, and what is behind them is found.
#[tokio::test]
async fn a_task_behind_many_entries_without_one_is_found() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    with_tasks(dispatch, &["first"]).await;
    let held = lease(dispatch, &slot("n1")).await;
    let keys: Vec<String> = (0..300).map(|n| format!("gone-{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let gone = submit(dispatch, &keys).await;
    let mut words = vec!["HDEL", TASKS];
    words.extend(gone.iter().map(TaskId::as_str));
    assert_eq!(stage.command::<usize>(&words).await, 300);
    let real = submit(dispatch, &["real"]).await;

    let (done, next) = dispatch
        .commit_and_lease(&commit(&held), &queue(), Class::Cpu)
        .await
        .unwrap();
    assert_eq!(done, Committed::Committed);
    let mut next = next.unwrap();
    assert!(entries(&stage).await >= 150, "one script took them all");
    for _ in 0..4 {
        if next == Leased::Empty {
            next = try_lease(dispatch, &slot("n1")).await;
        }
    }
    assert!(
        matches!(&next, Leased::Task { lease, .. } if lease.task == real[0]),
        "{next:?}"
    );
    assert_eq!(entries(&stage).await, 1, "only its own entry is left");
}
