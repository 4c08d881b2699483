//! What comes back: leases that ended without a word, and tasks given back.

use fairtrial_cluster::{
    Class, Committed, Dispatch, Leased, Place, Reaped, Release, Released, Submitted, Terms,
};

use crate::stage::Stage;
use crate::words::*;

/// CL-29, X3 as far as dispatch goes
pub(crate) async fn a_dead_agents_task_goes_to_another(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    lease(dispatch, &slot("n1")).await;
    assert_eq!(reap(dispatch, &[]).await, Reaped::default());
    stage.pass(PAST_LEASE).await;
    assert_eq!(
        reap(dispatch, &[]).await,
        Reaped {
            parked: 1,
            ..Reaped::default()
        }
    );
    assert_eq!(reap(dispatch, &[]).await, Reaped::default());
    assert_eq!(place(dispatch, &ids[0]).await, Place::Queued);
    let again = lease(dispatch, &slot("n2")).await;
    assert_eq!((&again.task, again.token.delivery), (&ids[0], 2));
    assert_eq!(
        told_of(dispatch, &ids[0]).await,
        ["submit", "call.leased", "call.requeued", "call.leased"]
    );
}

/// CL-29, CL-30, X5
pub(crate) async fn a_task_that_kills_its_agents_ends_as_lost(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    for delivery in 1..=3 {
        let leased = lease(dispatch, &slot(&format!("n{delivery}"))).await;
        assert_eq!(leased.token.delivery, delivery);
        stage.pass(PAST_LEASE).await;
        let reaped = reap(dispatch, &[]).await;
        assert_eq!(
            (reaped.parked, reaped.dead),
            if delivery < 3 { (1, 0) } else { (0, 1) }
        );
    }
    assert_eq!(try_lease(dispatch, &slot("n4")).await, Leased::Empty);
    let recorded = recorded(dispatch, &ids[0]).await;
    assert_eq!(
        (&recorded["kind"], &recorded["verdict"]),
        (&"error".into(), &"lost".into())
    );
    let reason = recorded["reason"].as_str().unwrap();
    assert!(
        reason.contains("3 times") && reason.contains("n3/n3-first/0"),
        "{reason}"
    );
    let dead = dispatch.dead_letters(&queue()).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((&dead[0].task, dead[0].deliveries), (&ids[0], 3));
    assert_eq!(dead[0].agent, "n3/n3-first/0");
    let told = told_of(dispatch, &ids[0]).await;
    assert_eq!(told[told.len() - 2..], ["call.dead", "complete"]);
}

/// CL-26
pub(crate) async fn an_engine_that_fails_counts_and_its_error_is_told(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(
        dispatch,
        &Terms {
            max_deliver: 2,
            ..terms()
        },
    )
    .await;
    let ids = submit(dispatch, &["a"]).await;
    let failed = |reason: &str| Release::Counted {
        reason: reason.to_owned(),
    };
    let first = lease(dispatch, &slot("n1")).await;
    assert_eq!(
        dispatch
            .release(&first, &failed("launcher \"died\"\n1"))
            .await
            .unwrap(),
        Released::Released
    );
    let second = lease(dispatch, &slot("n1")).await;
    assert_eq!(second.token.delivery, 2);
    assert_eq!(
        dispatch
            .release(&second, &failed("launcher \"died\"\n2"))
            .await
            .unwrap(),
        Released::Dead
    );
    let recorded = recorded(dispatch, &ids[0]).await;
    assert_eq!(recorded["verdict"], "lost");
    assert!(
        recorded["reason"]
            .as_str()
            .unwrap()
            .ends_with("launcher \"died\"\n2"),
        "{recorded}"
    );
    assert_eq!(
        dispatch.dead_letters(&queue()).await.unwrap()[0].reason,
        "launcher \"died\"\n2"
    );
}

/// CL-28, CL-36, X16 as far as dispatch goes
pub(crate) async fn given_back_uncounted_it_comes_first_with_the_same_number(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b", "c"]).await;
    for round in 0..10 {
        let consumer = slot(&format!("n{round}"));
        let leased = lease(dispatch, &consumer).await;
        assert_eq!((&leased.task, leased.token.delivery), (&ids[0], 1));
        assert_eq!(
            dispatch.release(&leased, &uncounted()).await.unwrap(),
            Released::Released
        );
        assert_eq!(
            dispatch.release(&leased, &uncounted()).await.unwrap(),
            Released::Lost
        );
    }
    let expired = lease(dispatch, &slot("n1")).await;
    stage.pass(PAST_LEASE).await;
    reap(dispatch, &[]).await;
    let again = lease(dispatch, &slot("n2")).await;
    assert_eq!((&again.task, again.token.delivery), (&expired.task, 2));
    dispatch.release(&again, &uncounted()).await.unwrap();
    assert_eq!(lease(dispatch, &slot("n3")).await.token.delivery, 2);
}

/// CL-19, X11
pub(crate) async fn two_reapers_at_once_handle_each_entry_once(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let keys: Vec<String> = (0..60).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let ids = with_tasks(dispatch, &keys).await;
    for key in &keys {
        lease(dispatch, &slot(key)).await;
    }
    stage.pass(PAST_LEASE).await;
    let (one, other, third) = tokio::join!(
        reap(dispatch, &[]),
        reap(dispatch, &[]),
        reap(dispatch, &[])
    );
    assert_eq!(one.parked + other.parked + third.parked, 60);
    let requeued = events(dispatch)
        .await
        .into_iter()
        .filter(|(name, _)| name == "call.requeued")
        .count();
    assert_eq!(requeued, 60);
    for id in &ids {
        let leased = lease(dispatch, &slot("n1")).await;
        assert_eq!((&leased.task, leased.token.delivery), (id, 2));
        dispatch.commit(&commit(&leased)).await.unwrap();
    }
}

/// CL-19, section 4: at most 100 at a time
pub(crate) async fn more_than_a_page_is_reaped(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let keys: Vec<String> = (0..250).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    with_tasks(dispatch, &keys).await;
    for key in &keys {
        lease(dispatch, &slot(key)).await;
    }
    stage.pass(PAST_LEASE).await;
    let page = dispatch
        .reap(&queue(), Class::Cpu, &[], None)
        .await
        .unwrap();
    assert_eq!(page.parked, 100);
    assert!(page.next.is_some());
    let rest = reap(dispatch, &[]).await;
    assert_eq!((rest.parked, rest.next), (150, None));
}

/// CL-19, X12
pub(crate) async fn an_entry_deleted_while_leased_is_added_anew(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    stage.pass(PAST_LEASE).await;
    stage
        .delete_entry(&queue(), Class::Cpu, leased.token.entry)
        .await;
    assert_eq!(place(dispatch, &ids[0]).await, Place::Leased);
    assert_eq!(
        reap(dispatch, &[]).await,
        Reaped {
            anew: 1,
            ..Reaped::default()
        }
    );
    assert_eq!(place(dispatch, &ids[0]).await, Place::Queued);
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Fenced
    );
    assert_eq!(lease(dispatch, &slot("n2")).await.task, ids[1]);
    let anew = lease(dispatch, &slot("n3")).await;
    assert_eq!(anew.task, ids[0]);
    assert_ne!(anew.token.entry, leased.token.entry);

    // While it is leased and in time, its slot may still commit.
    stage
        .delete_entry(&queue(), Class::Cpu, anew.token.entry)
        .await;
    dispatch.renew(&anew).await.unwrap();
    assert_eq!(
        dispatch.commit(&commit(&anew)).await.unwrap(),
        Committed::Committed
    );
    let status = dispatch.queue_status(&queue()).await.unwrap().unwrap();
    assert_eq!((status.leased, status.uncollected), (1, 1));

    // A parked one is found by the next lease.
    let submitted = submit(dispatch, &["c"]).await;
    let parked = lease(dispatch, &slot("n4")).await;
    dispatch.release(&parked, &uncounted()).await.unwrap();
    stage
        .delete_entry(&queue(), Class::Cpu, parked.token.entry)
        .await;
    assert_eq!(lease(dispatch, &slot("n4")).await.task, submitted[0]);
}

/// CL-19, CL-59, X12
pub(crate) async fn an_entry_deleted_while_leased_is_its_slots_until_it_is_reaped(
    stage: &impl Stage,
) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    stage
        .delete_entry(&queue(), Class::Cpu, leased.token.entry)
        .await;
    assert_eq!(lease(dispatch, &slot("n1")).await, leased);
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Committed
    );
    assert_eq!(lease(dispatch, &slot("n1")).await.task, ids[1]);
    assert_eq!(try_lease(dispatch, &slot("n2")).await, Leased::Empty);
}

/// CL-28, X12: what cannot be parked begins again at once.
pub(crate) async fn a_task_whose_entry_was_deleted_can_be_given_back(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    stage
        .delete_entry(&queue(), Class::Cpu, leased.token.entry)
        .await;
    assert_eq!(
        dispatch.release(&leased, &uncounted()).await.unwrap(),
        Released::Released
    );
    assert_eq!(place(dispatch, &ids[0]).await, Place::Queued);
    let status = dispatch.queue_status(&queue()).await.unwrap().unwrap();
    assert_eq!((status.queued, status.leased, status.parked), (1, 0, 0));
    assert_eq!(lease(dispatch, &slot("n2")).await.task, ids[0]);
}

/// CL-58
pub(crate) async fn an_entry_deleted_while_queued_is_missing_and_submitted_again(
    stage: &impl Stage,
) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    // Which entry it has is known from a lease.
    let leased = lease(dispatch, &slot("n1")).await;
    dispatch.release(&leased, &uncounted()).await.unwrap();
    stage
        .delete_entry(&queue(), Class::Cpu, leased.token.entry)
        .await;
    assert_eq!(place(dispatch, &ids[0]).await, Place::Missing);
    assert_eq!(
        dispatch.submit(&queue(), &task("a")).await.unwrap(),
        Submitted::Dup
    );
    assert_eq!(place(dispatch, &ids[0]).await, Place::Queued);
    let leased = lease(dispatch, &slot("n1")).await;
    assert_eq!(leased.task, ids[0]);
    dispatch.commit(&commit(&leased)).await.unwrap();
    assert_eq!(try_lease(dispatch, &slot("n1")).await, Leased::Empty);
    let status = dispatch.queue_status(&queue()).await.unwrap().unwrap();
    assert_eq!((status.queued, status.leased, status.parked), (0, 0, 0));
}
