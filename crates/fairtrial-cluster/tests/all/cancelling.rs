//! Cancelling one task, and a queue.

use fairtrial_cluster::{
    Cancelled, Committed, Dispatch, Leased, Place, QueueCancelled, Released, Renewed, Submitted,
};

use crate::stage::Stage;
use crate::words::*;

/// CL-21, X8
pub(crate) async fn a_queued_task_is_removed(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b", "c"]).await;
    assert_eq!(
        dispatch.cancel(&queue(), &ids[1]).await.unwrap(),
        Cancelled::Removed
    );
    assert_eq!(
        dispatch.cancel(&queue(), &ids[1]).await.unwrap(),
        Cancelled::Done
    );
    assert_eq!(recorded(dispatch, &ids[1]).await["verdict"], "cancelled");
    let parked = lease(dispatch, &slot("n1")).await;
    dispatch.release(&parked, &uncounted()).await.unwrap();
    assert_eq!(
        dispatch.cancel(&queue(), &ids[0]).await.unwrap(),
        Cancelled::Removed
    );
    assert_eq!(lease(dispatch, &slot("n1")).await.task, ids[2]);
    assert_eq!(try_lease(dispatch, &slot("n2")).await, Leased::Empty);
    assert_eq!(
        dispatch.cancel(&queue(), &task("z").id).await.unwrap(),
        Cancelled::Unknown
    );
    assert_eq!(told_of(dispatch, &ids[1]).await, ["submit", "complete"]);
}

/// CL-20, CL-21, X8
pub(crate) async fn a_running_one_is_told_and_its_word_stands(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    for _ in 0..2 {
        assert_eq!(
            dispatch.cancel(&queue(), &ids[0]).await.unwrap(),
            Cancelled::Signalled
        );
        assert_eq!(dispatch.renew(&leased).await.unwrap(), Renewed::Cancel);
    }
    assert_eq!(place(dispatch, &ids[0]).await, Place::Leased);
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Committed
    );
    assert_eq!(stored(dispatch, &ids[0]).await, result(&leased));
    assert_eq!(
        dispatch.cancel(&queue(), &ids[0]).await.unwrap(),
        Cancelled::Done
    );
    // The flag is gone with the task: the same key again is not cancelled.
    dispatch.collect(&queue(), &[], &ids).await.unwrap();
    submit(dispatch, &["a"]).await;
    let again = lease(dispatch, &slot("n1")).await;
    assert_eq!(dispatch.renew(&again).await.unwrap(), Renewed::Ok);
}

/// CL-21
pub(crate) async fn one_whose_agent_dies_after_the_flag_is_recorded_as_cancelled(
    stage: &impl Stage,
) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    lease(dispatch, &slot("n1")).await;
    let released = lease(dispatch, &slot("n2")).await;
    for id in &ids {
        assert_eq!(
            dispatch.cancel(&queue(), id).await.unwrap(),
            Cancelled::Signalled
        );
    }
    assert_eq!(
        dispatch.release(&released, &uncounted()).await.unwrap(),
        Released::Released
    );
    stage.pass(PAST_LEASE).await;
    let reaped = reap(dispatch, &[]).await;
    assert_eq!((reaped.cancelled, reaped.parked), (1, 0));
    for id in &ids {
        assert_eq!(recorded(dispatch, id).await["verdict"], "cancelled");
    }
    assert_eq!(try_lease(dispatch, &slot("n3")).await, Leased::Empty);
}

/// CL-21, CL-29: whoever asked for its end is told so, and not that its agents died.
pub(crate) async fn one_cancelled_in_its_last_run_is_not_lost(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    for _ in 0..2 {
        lease(dispatch, &slot("n1")).await;
        stage.pass(PAST_LEASE).await;
        assert_eq!(reap(dispatch, &[]).await.parked, 1);
    }
    assert_eq!(lease(dispatch, &slot("n1")).await.token.delivery, 3);
    dispatch.cancel(&queue(), &ids[0]).await.unwrap();
    stage.pass(PAST_LEASE).await;
    let reaped = reap(dispatch, &[]).await;
    assert_eq!((reaped.cancelled, reaped.dead), (1, 0));
    assert_eq!(recorded(dispatch, &ids[0]).await["verdict"], "cancelled");
}

/// CL-14, CL-21: who submits it anew wants it, whoever cancelled it before.
pub(crate) async fn one_that_is_submitted_again_is_not_to_be_cancelled(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    dispatch.cancel(&queue(), &ids[0]).await.unwrap();
    assert_eq!(dispatch.renew(&leased).await.unwrap(), Renewed::Cancel);
    assert_eq!(
        dispatch.submit(&queue(), &task("a")).await.unwrap(),
        Submitted::Dup
    );
    assert_eq!(dispatch.renew(&leased).await.unwrap(), Renewed::Ok);
}

/// CL-21
pub(crate) async fn a_result_that_came_first_stands(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    dispatch.commit(&commit(&leased)).await.unwrap();
    assert_eq!(
        dispatch.cancel(&queue(), &ids[0]).await.unwrap(),
        Cancelled::Done
    );
    assert_eq!(
        dispatch.cancel_queue(&queue()).await.unwrap(),
        QueueCancelled {
            recorded: 0,
            more: false
        }
    );
    assert_eq!(stored(dispatch, &ids[0]).await, result(&leased));
}

/// CL-20, X8
pub(crate) async fn a_cancelled_queue_stops_and_records_what_was_queued(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let none = QueueCancelled {
        recorded: 0,
        more: false,
    };
    assert_eq!(dispatch.cancel_queue(&queue()).await.unwrap(), none);
    let keys: Vec<String> = (0..150).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let ids = with_tasks(dispatch, &keys).await;
    let parked = lease(dispatch, &slot("n1")).await;
    let running = lease(dispatch, &slot("n2")).await;
    let dying = lease(dispatch, &slot("n3")).await;
    dispatch.release(&parked, &uncounted()).await.unwrap();

    let first = dispatch.cancel_queue(&queue()).await.unwrap();
    assert_eq!(
        first,
        QueueCancelled {
            recorded: 100,
            more: true
        }
    );
    assert_eq!(try_lease(dispatch, &slot("n4")).await, Leased::Empty);
    assert_eq!(
        dispatch.submit(&queue(), &task("new")).await.unwrap(),
        Submitted::Closed
    );
    assert_eq!(dispatch.renew(&running).await.unwrap(), Renewed::Cancel);
    let second = dispatch.cancel_queue(&queue()).await.unwrap();
    assert_eq!(
        second,
        QueueCancelled {
            recorded: 48,
            more: false
        }
    );

    assert_eq!(
        dispatch.commit(&commit(&running)).await.unwrap(),
        Committed::Committed
    );
    stage.pass(PAST_LEASE).await;
    assert_eq!(reap(dispatch, &[]).await.cancelled, 1);
    assert_eq!(
        recorded(dispatch, &dying.task).await["verdict"],
        "cancelled"
    );
    assert_eq!(
        dispatch.check(&queue(), &ids).await.unwrap(),
        vec![Place::Done; 150]
    );
    let cancelled = events(dispatch)
        .await
        .into_iter()
        .filter(|(name, _)| name == "queue.cancelled")
        .count();
    assert_eq!(cancelled, 1);

    // Opened again it works again.
    open(dispatch, &terms()).await;
    let ids = submit(dispatch, &["new"]).await;
    assert_eq!(lease(dispatch, &slot("n4")).await.task, ids[0]);
}
