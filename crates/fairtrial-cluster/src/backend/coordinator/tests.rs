//! A coordinator and its queue, in memory, on a clock that nobody waits for.

use super::*;
use crate::answers::Place;
use crate::backend::tests::config;
use crate::memory::MemoryDispatch;
use crate::names::{Class, QueueName};
use crate::terms::Verdicts;

fn coordinator() -> Rc<Coordinator<MemoryDispatch>> {
    let config = config(&std::env::temp_dir());
    let observers = Arc::<Observers>::default();
    Coordinator::new(MemoryDispatch::new(), None, config, observers)
}

fn queue() -> QueueName {
    QueueName::new("q").expect("a name")
}

fn other() -> Owner {
    Owner {
        host: "elsewhere".into(),
        pid: 4711,
        nonce: "other".into(),
    }
}

fn terms() -> Terms {
    let text = String::new;
    Terms::new(Verdicts {
        queue_timeout: text(),
        cancelled: text(),
        lost: text(),
        setup_failed: text(),
        invalid: text(),
    })
}

async fn opened_by_other(coordinator: &Coordinator<MemoryDispatch>) -> Opened {
    let (queue, owner, terms) = (queue(), other(), terms());
    let opened = coordinator.dispatch.open(&queue, &owner, &terms);
    opened.await.expect("memory answers")
}

/// Something that is to be run: without it no queue is opened.
fn expect_task(coordinator: &Coordinator<MemoryDispatch>) -> Task {
    let task = Task {
        id: TaskId::of(&queue(), "key", b"{}"),
        class: Class::Cpu,
        envelope: b"{}".to_vec(),
        queue_timeout: None,
    };
    let outstanding = Outstanding::new(task.clone(), false);
    let mut state = coordinator.state.borrow_mut();
    state.outstanding.insert(task.id.clone(), outstanding);
    task
}

/// A second passes, here and on the server.
async fn second_passes(coordinator: &Coordinator<MemoryDispatch>) {
    let second = Duration::from_secs(1);
    coordinator.dispatch.advance(second);
    tokio::time::sleep(second).await;
}

/// CL-39: an owner that lives is never taken for dead, however long it has nothing to say.
#[tokio::test(start_paused = true)]
async fn an_owner_stays_one_while_it_lives() {
    let coordinator = coordinator();
    expect_task(&coordinator);
    let local = tokio::task::LocalSet::new();
    let owning = local.spawn_local(coordinator.clone().keep_open());
    let watched = async {
        for _ in 0..300 {
            second_passes(&coordinator).await;
            let by = coordinator.owner.clone();
            assert_eq!(opened_by_other(&coordinator).await, Opened::Owned { by });
        }
    };
    local.run_until(watched).await;
    owning.abort();
    let left = async {
        for _ in 0..30 {
            second_passes(&coordinator).await;
        }
    };
    local.run_until(left).await;
    let opened = opened_by_other(&coordinator).await;
    assert!(matches!(opened, Opened::Opened { .. }), "{opened:?}");
}

/// CL-39: who waited in vain for a queue is refused, and told whose it is.
#[tokio::test(start_paused = true)]
async fn a_queue_that_stays_another_s_is_refused_with_process_and_host() {
    let coordinator = coordinator();
    opened_by_other(&coordinator).await;
    let lives = async {
        loop {
            second_passes(&coordinator).await;
            let kept = coordinator.dispatch.keep(&queue(), &other()).await;
            assert_eq!(kept, Ok(Kept::Ok));
        }
    };
    let begun = tokio::time::Instant::now();
    let refused = tokio::select! {
        opened = coordinator.open() => opened.expect_err("it is used"),
        () = lives => unreachable!("it lives on"),
    };
    // Long enough for a killed owner to be taken for dead.
    assert!(begun.elapsed() > OWNER_DEAD_AFTER);
    let says = "queue `q` is used by process 4711 on elsewhere";
    assert!(refused.to_string().contains(says), "{refused}");
}

/// CL-58: what the server lost without a word is found within a minute, given to it again, and told of.
#[tokio::test(start_paused = true)]
async fn a_task_that_the_server_lost_is_found_within_a_minute() {
    let coordinator = coordinator();
    let task = expect_task(&coordinator);
    let (queue, dispatch) = (queue(), &coordinator.dispatch);
    coordinator.open().await.expect("it is free");
    let local = tokio::task::LocalSet::new();
    local.spawn_local(coordinator.clone().check_now_and_then());
    let tasks = [task.id];
    let places = dispatch.check(&queue, &tasks).await;
    assert_eq!(places, Ok(vec![Place::Missing]));
    local.run_until(tokio::time::sleep(CHECK_EVERY)).await;
    let places = dispatch.check(&queue, &tasks).await;
    assert_eq!(places, Ok(vec![Place::Queued]));
    let events = dispatch.events(&queue, StreamId::START, Duration::ZERO);
    let events = events.await.expect("memory answers").events;
    let repairs = events.iter().filter(|it| it.event.name == "queue.repaired");
    let repairs: Vec<&str> = repairs.map(|it| &*it.event.data).collect();
    assert_eq!(repairs, [r#"{"tasks":1}"#]);
}
