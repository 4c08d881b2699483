//! Queues: who owns one, what it takes, how long it is there.

use std::time::Duration;

use fairtrial_cluster::{
    Committed, Dispatch, DispatchError, Holding, Kept, Leased, MAX_ENVELOPE, MAX_RESULT, Opened,
    Place, Submitted, Task, TaskId, Terms,
};

use crate::stage::Stage;
use crate::words::*;

/// CL-39
pub(crate) async fn a_queue_has_one_living_owner(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(dispatch, &terms()).await;
    let refused = Opened::Owned { by: owner("here") };
    assert_eq!(
        dispatch
            .open(&queue(), &owner("there"), &terms())
            .await
            .unwrap(),
        refused
    );
    assert_eq!(
        dispatch.keep(&queue(), &owner("there")).await.unwrap(),
        Kept::Owned { by: owner("here") }
    );
    stage.pass(Duration::from_secs(20)).await;
    assert_eq!(
        dispatch.keep(&queue(), &owner("here")).await.unwrap(),
        Kept::Ok
    );
    stage.pass(Duration::from_secs(20)).await;
    assert_eq!(
        dispatch
            .open(&queue(), &owner("there"), &terms())
            .await
            .unwrap(),
        refused
    );
    stage.pass(Duration::from_secs(11)).await;
    let opened = dispatch
        .open(&queue(), &owner("there"), &terms())
        .await
        .unwrap();
    assert!(matches!(opened, Opened::Opened { .. }), "{opened:?}");
    assert_eq!(
        dispatch.keep(&queue(), &owner("here")).await.unwrap(),
        Kept::Owned { by: owner("there") }
    );
}

/// CL-39, CL-61
pub(crate) async fn an_unnamed_queue_is_deleted_when_closed_and_a_named_one_kept(
    stage: &impl Stage,
) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    assert_eq!(
        dispatch.close(&queue(), &owner("there")).await.unwrap(),
        Kept::Owned { by: owner("here") }
    );
    assert_eq!(
        dispatch.close(&queue(), &owner("here")).await.unwrap(),
        Kept::Ok
    );
    assert_eq!(place(dispatch, &ids[0]).await, Place::Missing);
    assert_eq!(dispatch.queues().await.unwrap(), []);
    assert_eq!(
        dispatch.keep(&queue(), &owner("here")).await.unwrap(),
        Kept::Gone
    );
    assert_eq!(try_lease(dispatch, &slot("n1")).await, Leased::Gone);
    assert_eq!(events(dispatch).await, [], "its events went with it");

    open(
        dispatch,
        &Terms {
            named: true,
            weight: 7,
            ..terms()
        },
    )
    .await;
    let ids = submit(dispatch, &["a"]).await;
    assert_eq!(
        dispatch.close(&queue(), &owner("here")).await.unwrap(),
        Kept::Ok
    );
    let told: Vec<_> = events(dispatch).await.into_iter().map(|it| it.0).collect();
    assert_eq!(told, ["queue.opened", "submit", "queue.closed"]);
    assert_eq!(
        dispatch.submit(&queue(), &task("b")).await.unwrap(),
        Submitted::Closed
    );
    assert_eq!(try_lease(dispatch, &slot("n1")).await, Leased::Empty);
    let weight = async || dispatch.queues().await.unwrap()[0].weight;
    assert_eq!(weight().await, 0, "agents need not ask it");
    let opened = dispatch
        .open(&queue(), &owner("there"), &terms())
        .await
        .unwrap();
    assert!(matches!(opened, Opened::Opened { .. }), "{opened:?}");
    assert_eq!(lease(dispatch, &slot("n1")).await.task, ids[0]);
}

/// CL-39
pub(crate) async fn a_queue_outlives_its_owner_for_a_while_only(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    stage.pass(Duration::from_secs(3_500)).await;
    assert!(!reap(dispatch, &[]).await.gone);
    assert_eq!(place(dispatch, &ids[0]).await, Place::Queued);
    stage.pass(Duration::from_secs(200)).await;
    assert!(reap(dispatch, &[]).await.gone);
    assert_eq!(place(dispatch, &ids[0]).await, Place::Missing);
    assert_eq!(dispatch.queues().await.unwrap(), []);

    open(
        dispatch,
        &Terms {
            named: true,
            ..terms()
        },
    )
    .await;
    stage.pass(Duration::from_secs(6 * 86_400)).await;
    assert!(!reap(dispatch, &[]).await.gone);
    stage.pass(Duration::from_secs(2 * 86_400)).await;
    assert!(reap(dispatch, &[]).await.gone);
    assert_eq!(dispatch.queues().await.unwrap(), []);
}

/// CL-14, X1
pub(crate) async fn the_same_key_is_the_same_task(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    with_tasks(dispatch, &["a"]).await;
    assert_eq!(
        dispatch.submit(&queue(), &task("a")).await.unwrap(),
        Submitted::Dup
    );
    let leased = lease(dispatch, &slot("n1")).await;
    assert_eq!(
        dispatch.submit(&queue(), &task("a")).await.unwrap(),
        Submitted::Dup
    );
    assert_eq!(try_lease(dispatch, &slot("n2")).await, Leased::Empty);
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Committed
    );
    assert_eq!(
        dispatch.submit(&queue(), &task("a")).await.unwrap(),
        Submitted::Done
    );
    assert_eq!(try_lease(dispatch, &slot("n2")).await, Leased::Empty);

    // Each part counts, and where one ends.
    let id = |key: &str, envelope: &str| TaskId::of(&queue(), key, envelope.as_bytes());
    let ids = [id("a", "bc"), id("ab", "c"), id("", "abc"), id("abc", "")];
    assert!(
        ids.iter()
            .all(|one| ids.iter().filter(|other| one == *other).count() == 1)
    );
    assert_eq!(id("a", "bc"), id("a", "bc"));
}

/// CL-33, CL-34, X2
pub(crate) async fn a_full_queue_takes_no_more_until_results_are_kept(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(
        dispatch,
        &Terms {
            max_queue: 2,
            ..terms()
        },
    )
    .await;
    let ids = submit(dispatch, &["a", "b"]).await;
    let full = || async { dispatch.submit(&queue(), &task("c")).await.unwrap() };
    assert_eq!(full().await, Submitted::Full);
    assert_eq!(
        dispatch.submit(&queue(), &task("a")).await.unwrap(),
        Submitted::Dup
    );
    let leased = lease(dispatch, &slot("n1")).await;
    assert_eq!(full().await, Submitted::Full);
    dispatch.commit(&commit(&leased)).await.unwrap();
    assert_eq!(full().await, Submitted::Full);
    dispatch.collect(&queue(), &[], &ids[..1]).await.unwrap();
    assert_eq!(full().await, Submitted::Ok);
    assert_eq!(
        dispatch.submit(&queue(), &task("d")).await.unwrap(),
        Submitted::Full
    );
}

/// CL-53
pub(crate) async fn all_that_a_queue_holds_is_told(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let held = async || {
        let mut held = Vec::new();
        let each = |holding| held.push(holding);
        dispatch.each_held(&queue(), each).await.unwrap();
        held.sort();
        held
    };
    let pins = ["one".to_owned(), "two".to_owned()];
    dispatch.pin(&queue(), &pins).await.unwrap();
    assert_eq!(held().await, [], "there is no queue, and none was made");
    // More than one page of them.
    let keys: Vec<String> = (0..250).map(|number| format!("task {number:03}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    with_tasks(dispatch, &keys).await;
    let done = lease(dispatch, &slot("n1")).await;
    dispatch.commit(&commit(&done)).await.unwrap();
    lease(dispatch, &slot("n1")).await;
    dispatch.pin(&queue(), &pins).await.unwrap();
    dispatch.pin(&queue(), &pins[..1]).await.unwrap();
    let tasks = keys[1..]
        .iter()
        .map(|key| Holding::Task(task(key).envelope));
    let mut expected: Vec<Holding> = tasks.collect();
    expected.push(Holding::Result(result(&done)));
    expected.extend(pins.map(Holding::Pin));
    expected.sort();
    assert!(held().await == expected);
    assert!(dispatch.queue_status(&queue()).await.unwrap().is_some());
}

/// CL-14, CL-33, CL-36: many in one breath are as many one by one.
pub(crate) async fn many_are_submitted_at_once_each_with_its_answer(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let tasks = ["a", "b", "a", "c", "d"].map(task);
    let large = Task {
        envelope: vec![0; MAX_ENVELOPE + 1],
        ..task("e")
    };
    let all: Vec<&Task> = tasks.iter().chain([&large]).collect();
    let closed = dispatch.submit_all(&queue(), &all[..2]).await.unwrap();
    assert_eq!(closed, vec![Ok(Submitted::Closed); 2]);
    let max_queue = 3;
    open(
        dispatch,
        &Terms {
            max_queue,
            ..terms()
        },
    )
    .await;
    let mut answers = dispatch.submit_all(&queue(), &all).await.unwrap();
    let refused = answers.pop().unwrap();
    assert!(
        matches!(refused, Err(DispatchError::TooLarge { .. })),
        "{refused:?}"
    );
    let wanted = [
        Submitted::Ok,
        Submitted::Ok,
        Submitted::Dup,
        Submitted::Ok,
        Submitted::Full,
    ];
    assert_eq!(answers, wanted.map(Ok).to_vec());
    for at in [0, 1, 3] {
        assert_eq!(
            lease(dispatch, &slot(&format!("n{at}"))).await.task,
            tasks[at].id
        );
    }
}

/// CL-32
pub(crate) async fn results_stay_until_they_are_kept(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b", "c"]).await;
    for _ in 0..2 {
        let leased = lease(dispatch, &slot("n1")).await;
        dispatch.commit(&commit(&leased)).await.unwrap();
    }
    for _ in 0..2 {
        let found = dispatch.collect(&queue(), &ids, &[]).await.unwrap();
        let found: Vec<_> = found.into_iter().map(|(id, _)| id).collect();
        assert_eq!(found, ids[..2]);
    }
    // A restarted coordinator is another owner, and finds them.
    stage.pass(PAST_LEASE).await;
    dispatch
        .open(&queue(), &owner("again"), &terms())
        .await
        .unwrap();
    assert_eq!(
        dispatch.submit(&queue(), &task("a")).await.unwrap(),
        Submitted::Done
    );
    let found = dispatch
        .collect(&queue(), &ids[..1], &ids[..1])
        .await
        .unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        dispatch.collect(&queue(), &ids, &[]).await.unwrap().len(),
        1
    );
    assert_eq!(place(dispatch, &ids[0]).await, Place::Missing);
}

/// CL-58, X13
pub(crate) async fn what_a_flushed_server_forgot_is_missing_and_can_be_submitted_again(
    stage: &impl Stage,
) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    stage.flush().await;
    assert_eq!(
        dispatch.check(&queue(), &ids).await.unwrap(),
        [Place::Missing; 2]
    );
    assert_eq!(
        dispatch.submit(&queue(), &task("a")).await.unwrap(),
        Submitted::Closed
    );
    assert_eq!(
        dispatch.keep(&queue(), &owner("here")).await.unwrap(),
        Kept::Gone
    );
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Unknown
    );
    open(dispatch, &terms()).await;
    submit(dispatch, &["a", "b"]).await;
    // An agent that did not notice cannot commit for the new one.
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Fenced
    );
    for id in &ids {
        let leased = lease(dispatch, &slot("n2")).await;
        assert_eq!(&leased.task, id);
        assert_eq!(
            dispatch.commit(&commit(&leased)).await.unwrap(),
            Committed::Committed
        );
    }
    assert_eq!(
        dispatch.check(&queue(), &ids).await.unwrap(),
        [Place::Done; 2]
    );
}

/// Section 3's sizes
pub(crate) async fn an_envelope_too_large_is_refused(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(dispatch, &terms()).await;
    let large = Task {
        envelope: vec![0; MAX_ENVELOPE + 1],
        ..task("a")
    };
    let refused = dispatch.submit(&queue(), &large).await;
    assert!(
        matches!(refused, Err(DispatchError::TooLarge { bytes: 16_385, .. })),
        "{refused:?}"
    );
    let fits = Task {
        envelope: vec![0; MAX_ENVELOPE],
        ..task("a")
    };
    assert_eq!(
        dispatch.submit(&queue(), &fits).await.unwrap(),
        Submitted::Ok
    );
    let leased = lease(dispatch, &slot("n1")).await;
    let mut large = commit(&leased);
    large.result = vec![b'x'; MAX_RESULT + 1];
    assert!(matches!(
        dispatch.commit(&large).await,
        Err(DispatchError::TooLarge { .. })
    ));
    large.result.pop();
    assert_eq!(dispatch.commit(&large).await.unwrap(), Committed::Committed);
    assert_eq!(stored(dispatch, &fits.id).await, large.result);
}

/// CL-60
pub(crate) async fn numbers_tell_where_tasks_are(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    assert_eq!(dispatch.queue_status(&queue()).await.unwrap(), None);
    with_tasks(dispatch, &["a", "b", "c", "d", "e"]).await;
    let first = lease(dispatch, &slot("n1")).await;
    dispatch.commit(&commit(&first)).await.unwrap();
    let second = lease(dispatch, &slot("n1")).await;
    lease(dispatch, &slot("n2")).await;
    dispatch.release(&second, &uncounted()).await.unwrap();
    let status = dispatch.queue_status(&queue()).await.unwrap().unwrap();
    assert_eq!((status.queued, status.leased, status.parked), (2, 1, 1));
    assert_eq!(
        (status.uncollected, status.recorded, status.dead),
        (1, 1, 0)
    );
    assert!(status.oldest_wait.is_some());
    assert_eq!(status.owner.unwrap().0, owner("here"));
    assert_eq!(status.state, "open");
    let (ends, within) = status.lately.unwrap();
    assert!(ends == 1 && within <= Duration::from_secs(60), "{ends}");
    let server = dispatch.server_status().await.unwrap();
    assert!(
        !server.name.is_empty() && server.time_ms > Some(1_600_000_000_000),
        "{server:?}"
    );
}
