//! Who may speak for a task: owner and delivery number together.

use std::time::Duration;

use fairtrial_cluster::{Committed, Dispatch, Lease, Place, Released, Renewed};

use crate::stage::Stage;
use crate::words::*;

/// CL-15, CL-16, CL-31, X4
pub(crate) async fn a_slot_that_lost_its_lease_can_do_nothing_more(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    let stalled = lease(dispatch, &slot("n1")).await;
    stage.pass(PAST_LEASE).await;
    assert_eq!(reap(dispatch, &[]).await.parked, 1);
    let powerless = || async {
        assert_eq!(dispatch.renew(&stalled).await.unwrap(), Renewed::Lost);
        assert_eq!(
            dispatch.commit(&commit(&stalled)).await.unwrap(),
            Committed::Fenced
        );
        assert_eq!(
            dispatch.release(&stalled, &uncounted()).await.unwrap(),
            Released::Lost
        );
    };
    powerless().await;
    let taken = lease(dispatch, &slot("n2")).await;
    assert_eq!((&taken.task, taken.token.delivery), (&ids[0], 2));
    powerless().await;
    assert_eq!(dispatch.renew(&taken).await.unwrap(), Renewed::Ok);
    assert_eq!(
        dispatch.commit(&commit(&taken)).await.unwrap(),
        Committed::Committed
    );
    let stands = Committed::Duplicate {
        stored: result(&taken),
    };
    assert_eq!(dispatch.commit(&commit(&stalled)).await.unwrap(), stands);
    assert_eq!(stored(dispatch, &ids[0]).await, result(&taken));
    dispatch.collect(&queue(), &[], &ids).await.unwrap();
    assert_eq!(
        dispatch.commit(&commit(&stalled)).await.unwrap(),
        Committed::Unknown
    );
    assert_eq!(place(dispatch, &ids[0]).await, Place::Missing);
}

/// CL-15
pub(crate) async fn a_delivery_number_of_old_proves_nothing(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    with_tasks(dispatch, &["a"]).await;
    let first = lease(dispatch, &slot("n1")).await;
    stage.pass(PAST_LEASE).await;
    reap(dispatch, &[]).await;
    let second = lease(dispatch, &slot("n1")).await;
    assert_eq!(
        (first.token.entry, second.token.delivery),
        (second.token.entry, 2)
    );
    assert_eq!(dispatch.renew(&first).await.unwrap(), Renewed::Lost);
    assert_eq!(
        dispatch.commit(&commit(&first)).await.unwrap(),
        Committed::Fenced
    );
    assert_eq!(
        dispatch.release(&first, &uncounted()).await.unwrap(),
        Released::Lost
    );
    // Nor does the right number in another's name, or of another task.
    let other = Lease {
        consumer: slot("n2"),
        ..second.clone()
    };
    assert_eq!(
        dispatch.commit(&commit(&other)).await.unwrap(),
        Committed::Fenced
    );
    let ids = submit(dispatch, &["b"]).await;
    let other = Lease {
        task: ids[0].clone(),
        ..second.clone()
    };
    assert_eq!(
        dispatch.commit(&commit(&other)).await.unwrap(),
        Committed::Fenced
    );
    assert_eq!(
        dispatch.release(&other, &uncounted()).await.unwrap(),
        Released::Lost
    );
    assert_eq!(
        dispatch.commit(&commit(&second)).await.unwrap(),
        Committed::Committed
    );
}

/// CL-59
pub(crate) async fn a_commit_told_twice_counts_once(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Committed
    );
    let own = Committed::Duplicate {
        stored: result(&leased),
    };
    assert_eq!(dispatch.commit(&commit(&leased)).await.unwrap(), own);
    assert_eq!(
        told_of(dispatch, &ids[0]).await,
        ["submit", "call.leased", "complete"]
    );
    assert_eq!(dispatch.renew(&leased).await.unwrap(), Renewed::Lost);
    let status = dispatch.queue_status(&queue()).await.unwrap().unwrap();
    assert_eq!((status.recorded, status.leased, status.queued), (1, 0, 0));
}

/// CL-5
pub(crate) async fn a_renewed_lease_is_not_reaped(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    with_tasks(dispatch, &["a"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    for _ in 0..5 {
        stage.pass(Duration::from_secs(20)).await;
        assert_eq!(dispatch.renew(&leased).await.unwrap(), Renewed::Ok);
        assert_eq!(reap(dispatch, &[]).await.parked, 0);
    }
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Committed
    );
}
