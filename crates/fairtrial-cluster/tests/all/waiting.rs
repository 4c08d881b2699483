//! Waiting for events and hints.

use std::time::Duration;

use fairtrial_cluster::{Class, Dispatch, Hint, Hints, Leased};
use futures_util::FutureExt;

use crate::stage::Stage;
use crate::words::*;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(30);

/// The next hint, if it is there already.
fn taken(hints: &mut Hints) -> Option<Hint> {
    hints.next().now_or_never().flatten()
}

/// CL-62, CL-73: meanwhile operations go on
pub(crate) async fn a_reader_waits_for_the_next_event(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let opened = open(dispatch, &terms()).await;
    let queue = queue();
    let reader = dispatch.events(&queue, opened, LONG);
    let writer = async {
        for _ in 0..10 {
            assert_eq!(dispatch.queues().await.unwrap().len(), 1);
        }
        submit(dispatch, &["a"]).await;
    };
    let (read, ()) = tokio::join!(reader, writer);
    let read = read.unwrap();
    assert_eq!(
        (read.events[0].event.name.as_str(), read.gap),
        ("submit", false)
    );
    let none = dispatch
        .events(&queue, read.events[0].id, Duration::from_millis(10))
        .await
        .unwrap();
    assert_eq!(none, fairtrial_cluster::Events::default());
}

/// CL-18
pub(crate) async fn a_submission_wakes_those_who_listen(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(dispatch, &terms()).await;
    let mut cpu = dispatch.hints(&[Class::Cpu], None).await.unwrap();
    let mut timing = dispatch.hints(&[Class::Timing], Some("n1")).await.unwrap();
    submit(dispatch, &["a"]).await;
    let wake = Hint::Wake {
        class: Class::Cpu,
        queue: queue(),
    };
    assert_eq!(
        tokio::time::timeout(LONG, cpu.next()).await.unwrap(),
        Some(wake.clone())
    );
    let leased = lease(dispatch, &slot("n1")).await;
    dispatch.release(&leased, &uncounted()).await.unwrap();
    assert_eq!(
        tokio::time::timeout(LONG, cpu.next()).await.unwrap(),
        Some(wake)
    );
    assert_eq!(taken(&mut timing), None);
}

/// CL-18: whoever found nothing is told of the next submission, however many there were before.
pub(crate) async fn whoever_found_nothing_is_woken(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    open(dispatch, &terms()).await;
    let mut hints = dispatch.hints(&[Class::Cpu], None).await.unwrap();
    for key in ["a", "b", "c"] {
        submit(dispatch, &[key, &format!("{key}2")]).await;
        tokio::time::timeout(LONG, hints.next()).await.unwrap();
        lease(dispatch, &slot(key)).await;
        lease(dispatch, &slot(&format!("{key}2"))).await;
        assert_eq!(try_lease(dispatch, &slot("n1")).await, Leased::Empty);
        while taken(&mut hints).is_some() {}
    }
}

/// CL-20
pub(crate) async fn an_agent_is_told_what_was_cancelled(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    let mut mine = dispatch.hints(&[], Some("n1")).await.unwrap();
    let mut other = dispatch.hints(&[], Some("n2")).await.unwrap();
    lease(dispatch, &slot("n1")).await;
    dispatch.cancel(&queue(), &ids[0]).await.unwrap();
    let told = tokio::time::timeout(LONG, mine.next()).await.unwrap();
    assert_eq!(
        told,
        Some(Hint::Cancel {
            queue: queue(),
            task: Some(ids[0].clone())
        })
    );
    dispatch.cancel_queue(&queue()).await.unwrap();
    let told = tokio::time::timeout(LONG, mine.next()).await.unwrap();
    assert_eq!(
        told,
        Some(Hint::Cancel {
            queue: queue(),
            task: None
        })
    );
    assert_eq!(taken(&mut other), None);
}
