//! Leases: what comes out, in which order, on which terms.

use std::time::Duration;

use fairtrial_cluster::{
    Class, Committed, Consumer, Dispatch, Lease, Leased, Place, Refusal, Release, Submitted, Task,
    Terms,
};

use crate::stage::Stage;
use crate::words::*;

/// CL-36
pub(crate) async fn tasks_come_out_in_order_and_as_they_went_in(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b", "c"]).await;
    for (id, key) in ids.iter().zip(["a", "b", "c"]) {
        let Leased::Task {
            lease,
            envelope,
            renew_within,
            waited,
        } = try_lease(dispatch, &slot(key)).await
        else {
            panic!("nothing to lease");
        };
        assert_eq!((&lease.task, &envelope), (id, &task(key).envelope));
        assert_eq!((lease.token.delivery, renew_within), (1, LEASE));
        assert!(waited < Duration::from_secs(60), "{waited:?}");
        assert_eq!((lease.queue, lease.consumer), (queue(), slot(key)));
    }
    assert_eq!(try_lease(dispatch, &slot("d")).await, Leased::Empty);
}

/// CL-59
pub(crate) async fn a_lost_reply_is_given_again(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    with_tasks(dispatch, &["a", "b"]).await;
    let first = lease(dispatch, &slot("n1")).await;
    assert_eq!(lease(dispatch, &slot("n1")).await, first);
    // Also when nothing else would be given.
    dispatch.pause(&queue(), true).await.unwrap();
    stage.pass(Duration::from_secs(20)).await;
    assert_eq!(lease(dispatch, &slot("n1")).await, first);
    // And that was a sign of life.
    stage.pass(Duration::from_secs(20)).await;
    assert_eq!(reap(dispatch, &[]).await.parked, 0);
    // Another slot of the agent is another consumer.
    dispatch.pause(&queue(), false).await.unwrap();
    let other = lease(dispatch, &agent("n1").slot(1)).await;
    assert_eq!(other.task, task("b").id);
}

/// CL-37
pub(crate) async fn what_waits_is_seen_and_not_taken(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let (name, one, two) = (queue(), slot("n1"), slot("n2"));
    let waits = async |class: Class, slot: &Consumer| {
        let asked = dispatch.waits(&name, class, slot);
        asked.await.unwrap()
    };
    assert!(!waits(Class::Cpu, &one).await, "there is no queue");
    let bounded = Terms {
        max_inflight: Some(1),
        ..terms()
    };
    open(dispatch, &bounded).await;
    assert!(!waits(Class::Cpu, &one).await);
    let ids = submit(dispatch, &["a", "b"]).await;
    for _ in 0..2 {
        assert!(waits(Class::Cpu, &one).await);
        assert!(!waits(Class::Timing, &one).await);
    }
    dispatch.pause(&name, true).await.unwrap();
    assert!(!waits(Class::Cpu, &one).await);
    dispatch.pause(&name, false).await.unwrap();
    let leased = lease(dispatch, &one).await;
    assert_eq!(leased.task, ids[0], "nothing was taken");
    assert!(waits(Class::Cpu, &one).await, "its reply may be lost");
    assert!(!waits(Class::Cpu, &two).await, "one at a time");
    open(dispatch, &terms()).await;
    let last = lease(dispatch, &two).await;
    let refused = Release::Refused {
        refusal: Refusal::Setup,
        reason: "no".to_owned(),
    };
    dispatch.release(&last, &refused).await.unwrap();
    assert!(!waits(Class::Cpu, &two).await, "it has refused");
    assert!(waits(Class::Cpu, &slot("n3")).await);
}

/// CL-18
pub(crate) async fn a_class_has_its_own_stream(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    let timing = Task {
        class: Class::Timing,
        ..task("t")
    };
    assert_eq!(
        dispatch.submit(&queue(), &timing).await.unwrap(),
        Submitted::Ok
    );
    let consumer = slot("n1");
    let Leased::Task { lease: leased, .. } = dispatch
        .lease(&queue(), Class::Timing, &consumer)
        .await
        .unwrap()
    else {
        panic!("nothing to lease");
    };
    assert_eq!((&leased.task, leased.class), (&timing.id, Class::Timing));
    assert_eq!(
        dispatch
            .lease(&queue(), Class::Timing, &slot("n2"))
            .await
            .unwrap(),
        Leased::Empty
    );
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Committed
    );
    assert_eq!(lease(dispatch, &consumer).await.task, ids[0]);
}

/// Lease, step 3
pub(crate) async fn at_most_so_many_are_leased_at_a_time(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(
        dispatch,
        &Terms {
            max_inflight: Some(2),
            ..terms()
        },
    )
    .await;
    submit(dispatch, &["a", "b", "c"]).await;
    let timing = Task {
        class: Class::Timing,
        ..task("t")
    };
    dispatch.submit(&queue(), &timing).await.unwrap();
    let first = lease(dispatch, &slot("n1")).await;
    let consumer = slot("n2");
    let second = dispatch
        .lease(&queue(), Class::Timing, &consumer)
        .await
        .unwrap();
    assert!(matches!(second, Leased::Task { .. }), "both classes count");
    assert_eq!(try_lease(dispatch, &slot("n3")).await, Leased::Empty);
    dispatch.release(&first, &uncounted()).await.unwrap();
    // What is parked does not count.
    assert_eq!(lease(dispatch, &slot("n3")).await.task, first.task);
    assert_eq!(try_lease(dispatch, &slot("n1")).await, Leased::Empty);
}

/// Lease, step 3
pub(crate) async fn a_paused_queue_gives_nothing(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    assert!(!dispatch.pause(&queue(), true).await.unwrap());
    with_tasks(dispatch, &["a"]).await;
    assert!(dispatch.pause(&queue(), true).await.unwrap());
    assert_eq!(try_lease(dispatch, &slot("n1")).await, Leased::Empty);
    submit(dispatch, &["b"]).await;
    assert!(dispatch.pause(&queue(), false).await.unwrap());
    assert_eq!(lease(dispatch, &slot("n1")).await.task, task("a").id);
    let names: Vec<_> = events(dispatch)
        .await
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "queue.opened",
            "submit",
            "queue.paused",
            "submit",
            "queue.opened",
            "call.leased"
        ]
    );
}

/// EX-46 through dispatch
pub(crate) async fn a_task_that_waited_too_long_is_recorded_so(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(dispatch, &terms()).await;
    let hurried = |key: &str| Task {
        queue_timeout: Some(Duration::from_secs(10)),
        ..task(key)
    };
    for key in ["a", "b"] {
        dispatch.submit(&queue(), &hurried(key)).await.unwrap();
    }
    let calm = submit(dispatch, &["c"]).await;
    assert_eq!(lease(dispatch, &slot("n1")).await.task, hurried("a").id);
    stage.pass(Duration::from_secs(12)).await;
    let Leased::Task { lease, waited, .. } = try_lease(dispatch, &slot("n2")).await else {
        panic!("nothing to lease");
    };
    assert_eq!(lease.task, calm[0]);
    assert!((12..600).contains(&waited.as_secs()), "{waited:?}");
    let recorded = recorded(dispatch, &hurried("b").id).await;
    assert_eq!(recorded["verdict"], "queue_timeout");
    let waited = recorded["waited_s"].as_f64().unwrap();
    assert!((12.0..600.0).contains(&waited), "{waited}");
    assert!(
        recorded["reason"].as_str().unwrap().starts_with("waited 1"),
        "{recorded}"
    );
    // An empty list stays one: templates are text to the server.
    assert_eq!(recorded["none"], serde_json::json!([]));
    assert_eq!(
        told_of(dispatch, &hurried("b").id).await,
        ["submit", "complete"]
    );
}

/// EX-46 through dispatch, where nobody leases
pub(crate) async fn one_that_waits_too_long_ends_when_it_is_asked_for(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(dispatch, &terms()).await;
    let hurried = |key: &str| Task {
        queue_timeout: Some(Duration::from_secs(10)),
        ..task(key)
    };
    let [leased, queued] = [hurried("leased"), hurried("queued")];
    for task in [&leased, &queued] {
        dispatch.submit(&queue(), task).await.unwrap();
    }
    let calm = submit(dispatch, &["calm"]).await;
    lease(dispatch, &slot("n1")).await;
    let all = [leased.id, queued.id.clone(), calm[0].clone()];
    let again = dispatch.expire(&queue(), &all).await.unwrap();
    let most = Duration::from_secs(10);
    assert_eq!((again[0], again[2]), (Some(most), None));
    assert!(again[1].is_some_and(|left| left <= most), "{again:?}");
    stage.pass(Duration::from_secs(12)).await;
    let again = dispatch.expire(&queue(), &all).await.unwrap();
    assert_eq!(again, [Some(most), None, None]);
    let recorded = recorded(dispatch, &queued.id).await;
    assert_eq!(recorded["verdict"], "queue_timeout");
    assert_eq!(place(dispatch, &all[0]).await, Place::Leased);
}

/// EX-46 through dispatch
pub(crate) async fn the_wait_begins_anew_after_a_run_but_not_after_a_refusal(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(dispatch, &terms()).await;
    let hurried = |key: &str| Task {
        queue_timeout: Some(Duration::from_secs(100)),
        ..task(key)
    };
    for key in ["ran", "refused"] {
        dispatch.submit(&queue(), &hurried(key)).await.unwrap();
    }
    let ran = lease(dispatch, &slot("n1")).await;
    let refused = lease(dispatch, &slot("n2")).await;
    stage.pass(Duration::from_secs(80)).await;
    dispatch.release(&ran, &uncounted()).await.unwrap();
    let refusal = Release::Refused {
        refusal: Refusal::Setup,
        reason: "no".to_owned(),
    };
    dispatch.release(&refused, &refusal).await.unwrap();
    stage.pass(Duration::from_secs(40)).await;
    assert_eq!(lease(dispatch, &slot("n3")).await.task, ran.task);
    assert_eq!(try_lease(dispatch, &slot("n4")).await, Leased::Empty);
    assert_eq!(place(dispatch, &refused.task).await, Place::Done);
}

/// CL-17, CL-59
pub(crate) async fn a_commit_carries_the_next_lease(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    let first = lease(dispatch, &slot("n1")).await;
    let (done, queue) = (commit(&first), queue());
    let both = || dispatch.commit_and_lease(&done, &queue, Class::Cpu);
    let (committed, leased) = both().await.unwrap();
    assert_eq!(committed, Committed::Committed);
    let Ok(Leased::Task { lease: second, .. }) = &leased else {
        panic!("{leased:?}")
    };
    assert_eq!(second.task, ids[1]);
    // Asked again, since the reply was lost: the same.
    let (committed, again) = both().await.unwrap();
    assert_eq!(
        committed,
        Committed::Duplicate {
            stored: result(&first)
        }
    );
    assert!(
        matches!(&again, Ok(Leased::Task { lease, .. }) if lease == second),
        "{again:?}"
    );
    let last = commit(second);
    let (committed, none) = dispatch
        .commit_and_lease(&last, &queue, Class::Cpu)
        .await
        .unwrap();
    assert_eq!(committed, Committed::Committed);
    assert_eq!(none.unwrap(), Leased::Empty);
}

/// CL-17
pub(crate) async fn a_commit_carries_a_lease_of_another_class(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    with_tasks(dispatch, &["a", "b"]).await;
    let timed = Task {
        class: Class::Timing,
        ..task("timed")
    };
    dispatch.submit(&queue(), &timed).await.unwrap();
    let first = lease(dispatch, &slot("n1")).await;
    let (_, next) = dispatch
        .commit_and_lease(&commit(&first), &queue(), Class::Timing)
        .await
        .unwrap();
    assert!(
        matches!(&next, Ok(Leased::Task { lease, .. }) if lease.task == timed.id),
        "{next:?}"
    );
}

/// CL-17, EX-46
pub(crate) async fn a_commit_carries_nothing_that_waited_too_long(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    with_tasks(dispatch, &["a"]).await;
    let first = lease(dispatch, &slot("n1")).await;
    let hurried = Task {
        queue_timeout: Some(Duration::from_secs(10)),
        ..task("hurried")
    };
    dispatch.submit(&queue(), &hurried).await.unwrap();
    stage.pass(Duration::from_secs(11)).await;
    let both = dispatch
        .commit_and_lease(&commit(&first), &queue(), Class::Cpu)
        .await
        .unwrap();
    assert_eq!(both, (Committed::Committed, Ok(Leased::Empty)));
    let recorded = recorded(dispatch, &hurried.id).await;
    assert_eq!(recorded["verdict"], "queue_timeout");
}

/// CL-17, CL-36: what a commit carries is what a lease would give: nothing of a queue that is paused or has as many as it may,
/// and returned work first.
pub(crate) async fn a_commit_carries_what_a_lease_would_give(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b", "c", "d", "e"]).await;
    let next_after = async |held: &Lease| {
        let (commit, queue) = (commit(held), queue());
        let both = dispatch.commit_and_lease(&commit, &queue, held.class);
        let (committed, next) = both.await.unwrap();
        assert_eq!(committed, Committed::Committed);
        next.unwrap()
    };
    let first = lease(dispatch, &slot("n1")).await;
    dispatch.pause(&queue(), true).await.unwrap();
    assert_eq!(next_after(&first).await, Leased::Empty, "it is paused");
    dispatch.pause(&queue(), false).await.unwrap();
    let second = lease(dispatch, &slot("n1")).await;
    let third = lease(dispatch, &slot("n2")).await;
    let bounded = Terms {
        max_inflight: Some(1),
        ..terms()
    };
    open(dispatch, &bounded).await;
    assert_eq!(next_after(&second).await, Leased::Empty, "one runs");
    open(dispatch, &terms()).await;
    let fourth = lease(dispatch, &slot("n1")).await;
    dispatch.release(&third, &uncounted()).await.unwrap();
    let Leased::Task {
        lease: returned, ..
    } = next_after(&fourth).await
    else {
        panic!("there is work")
    };
    assert_eq!(returned.task, ids[2], "it comes before {}", ids[4]);
}
