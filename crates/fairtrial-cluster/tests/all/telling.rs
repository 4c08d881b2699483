//! Events: what is told, in which order, and what a reader can know from them.

use std::time::Duration;

use fairtrial_cluster::{Dispatch, NewEvent, Refusal, Release, StreamId, Task};

use crate::stage::Stage;
use crate::words::*;

/// CL-61, CL-62, X19
pub(crate) async fn events_are_told_in_order_and_read_from_any_id(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let opened = open(dispatch, &terms()).await;
    submit(dispatch, &["a"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    dispatch.commit(&commit(&leased)).await.unwrap();
    let read = |after| async move {
        dispatch
            .events(&queue(), after, Duration::ZERO)
            .await
            .unwrap()
    };
    let all = read(StreamId::START).await;
    let names: Vec<_> = all
        .events
        .iter()
        .map(|stored| stored.event.name.as_str())
        .collect();
    assert_eq!(names, ["queue.opened", "submit", "call.leased", "complete"]);
    assert_eq!(all.events[0].id, opened);
    assert_eq!(all.events[2].event.agent.as_deref(), Some("n1"));
    let data: serde_json::Value = serde_json::from_str(&all.events[2].event.data).unwrap();
    assert_eq!(data["delivery"], 1);
    // A reader that comes again with the last id it had sees neither gap nor repeat.
    let mut after = StreamId::START;
    for expected in &all.events {
        let rest = read(after).await;
        assert!(!rest.gap);
        assert_eq!(&rest.events[0], expected);
        after = expected.id;
    }
    assert_eq!(read(after).await, fairtrial_cluster::Events::default());
    let server_ms = dispatch.server_status().await.unwrap().time_ms.unwrap();
    assert!(
        after.ms.abs_diff(server_ms) < 60_000,
        "event ids are server times"
    );
}

/// CL-61, EX-92
pub(crate) async fn one_complete_for_each_submit_on_every_path(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(dispatch, &terms()).await;
    let hurried = Task {
        queue_timeout: Some(Duration::from_secs(1)),
        ..task("late")
    };
    dispatch.submit(&queue(), &hurried).await.unwrap();
    stage.pass(Duration::from_secs(2)).await;
    submit(dispatch, &["done"]).await;
    let done = lease(dispatch, &slot("n1")).await;
    dispatch.commit(&commit(&done)).await.unwrap();

    let refused = submit(dispatch, &["refused"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    let refusal = Release::Refused {
        refusal: Refusal::Setup,
        reason: "no".to_owned(),
    };
    dispatch.release(&leased, &refusal).await.unwrap();
    reap(dispatch, &[agent("n1")]).await;

    let lost = submit(dispatch, &["lost"]).await;
    for _ in 0..3 {
        lease(dispatch, &slot("n2")).await;
        stage.pass(PAST_LEASE).await;
        reap(dispatch, &[]).await;
    }
    let cancelled = submit(dispatch, &["cancelled", "swept"]).await;
    dispatch.cancel(&queue(), &cancelled[0]).await.unwrap();
    dispatch.cancel_queue(&queue()).await.unwrap();

    let all = [&[hurried.id, done.task][..], &refused, &lost, &cancelled].concat();
    for id in &all {
        let told = told_of(dispatch, id).await;
        let count = |name: &str| told.iter().filter(|each| *each == name).count();
        assert_eq!((count("submit"), count("complete")), (1, 1), "{told:?}");
        assert_eq!(told.last().unwrap(), "complete");
    }
    assert_eq!(
        dispatch.collect(&queue(), &all, &[]).await.unwrap().len(),
        all.len()
    );
}

/// CL-63
pub(crate) async fn the_fold_of_all_events_equals_check(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b", "c", "d", "e"]).await;
    let done = lease(dispatch, &slot("n1")).await;
    dispatch.commit(&commit(&done)).await.unwrap();
    let parked = lease(dispatch, &slot("n1")).await;
    let expired = lease(dispatch, &slot("n2")).await;
    dispatch.release(&parked, &uncounted()).await.unwrap();
    stage.pass(PAST_LEASE).await;
    reap(dispatch, &[]).await;
    lease(dispatch, &slot("n3")).await;
    dispatch.cancel(&queue(), &ids[4]).await.unwrap();

    let fold = folded(dispatch).await;
    let folded: Vec<_> = ids.iter().map(|id| fold.place(id)).collect();
    assert_eq!(folded, dispatch.check(&queue(), &ids).await.unwrap());
    assert_eq!(fold.outstanding(), 3);
    assert_eq!(fold.place(&task("z").id), fairtrial_cluster::Place::Missing);
    drop(expired);
}

/// CL-58, CL-62
pub(crate) async fn a_reader_whose_place_is_gone_is_told_of_a_gap(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let read = |after| async move {
        dispatch
            .events(&queue(), after, Duration::ZERO)
            .await
            .unwrap()
    };
    assert!(
        !read(StreamId::START).await.gap,
        "where nothing ever was, nothing is missing"
    );
    let opened = open(dispatch, &terms()).await;
    assert!(!read(opened).await.gap);
    stage.flush().await;
    assert!(read(opened).await.gap);
    stage.pass(Duration::from_secs(1)).await;
    // Within the same millisecond the new event would have the old one's id.
    while dispatch.server_status().await.unwrap().time_ms <= Some(opened.ms) {}
    let again = open(dispatch, &terms()).await;
    let told = read(opened).await;
    assert!(told.gap);
    assert_eq!(told.events[0].id, again);
    assert!(!read(again).await.gap);
}

/// CL-61
pub(crate) async fn events_of_an_agent_stand_between_those_of_dispatch(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let event = |name: &str| NewEvent {
        name: name.to_owned(),
        task: Some(task("a").id),
        agent: Some("n1".to_owned()),
        data: "{\"worker_id\":\"w\"}".to_owned(),
    };
    dispatch.emit(&queue(), &[event("start")]).await.unwrap();
    with_tasks(dispatch, &["a"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    dispatch
        .emit(&queue(), &[event("worker_start"), event("start")])
        .await
        .unwrap();
    dispatch.emit(&queue(), &[]).await.unwrap();
    let mut last = commit(&leased);
    last.events = vec![event("worker_exit")];
    last.complete = "{\"verdict\":\"ok\"}".to_owned();
    dispatch.commit(&last).await.unwrap();
    // A commit that was not needed tells nothing.
    dispatch.commit(&last).await.unwrap();
    let told = dispatch
        .events(&queue(), StreamId::START, Duration::ZERO)
        .await
        .unwrap()
        .events;
    let names: Vec<_> = told
        .iter()
        .map(|stored| stored.event.name.as_str())
        .collect();
    let expected = [
        "queue.opened",
        "submit",
        "call.leased",
        "worker_start",
        "start",
        "worker_exit",
        "complete",
    ];
    assert_eq!(names, expected);
    assert_eq!(told[5].event, event("worker_exit"));
    assert_eq!(told[6].event.data, last.complete);
}
