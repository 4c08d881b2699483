//! An agent's slot with a dispatch in memory. Nothing is run: its engine is never started.

use std::path::Path;
use std::sync::Arc;

use fairtrial_exec::{
    Body, EncodedValue, Level, LocalBackend, LocalConfig, MachineLock, Outcome, ResultFormat,
};
use tokio::sync::watch;

use super::*;
use crate::backend::cancelled;
use crate::blobs::{BlobError, Digest, Fault};
use crate::memory::MemoryDispatch;
use crate::names::{Agent, Class, TaskId};
use crate::node::trial::{NotRun, sealed};
use crate::node::{NodeConfig, NodeError};
use crate::pack::{PackError, TreeCache};
use crate::terms::{Owner, Task, Terms, Verdicts};

fn agent(dir: &Path) -> (Rc<NodeAgent<MemoryDispatch>>, watch::Sender<Stop>) {
    let engine = LocalConfig::from_env().expect("a configuration");
    let (stop, stopped) = watch::channel(Stop::No);
    let config = NodeConfig {
        agent: Agent::new("a", "nonce").expect("a name"),
        slots: 1,
        classes: vec![Class::Cpu],
        floor: Level::None,
        lease: Duration::from_secs(30),
        drain_timeout: Duration::from_secs(60),
        give_up: Duration::from_secs(60),
        lock: MachineLock::at(dir.join("lock")),
        scratch: dir.to_owned(),
        about: serde_json::json!({}),
    };
    let agent = NodeAgent::new(
        MemoryDispatch::new(),
        Arc::new(LocalBackend::new(engine)),
        None,
        TreeCache::at(dir, 1 << 20),
        config,
        stopped,
    );
    (Rc::new(agent), stop)
}

fn queue() -> QueueName {
    QueueName::new("q").expect("a name")
}

/// A task that is submitted and leased.
async fn held(agent: &NodeAgent<MemoryDispatch>) -> (TaskId, Held) {
    open(agent).await;
    let task = submit(agent).await;
    let consumer = agent.config.agent.slot(0);
    let held = agent.ask_around(&consumer).await.expect("memory answers");
    (task, held.expect("a task"))
}

async fn open(agent: &NodeAgent<MemoryDispatch>) {
    let text = String::new;
    let owner = Owner {
        host: "h".into(),
        pid: 1,
        nonce: "n".into(),
    };
    let terms = Terms::new(Verdicts {
        queue_timeout: text(),
        cancelled: text(),
        lost: text(),
        setup_failed: text(),
        invalid: text(),
    });
    let opened = agent.dispatch.open(&queue(), &owner, &terms).await;
    opened.expect("it is open");
}

async fn submit(agent: &NodeAgent<MemoryDispatch>) -> TaskId {
    let task = Task {
        id: TaskId::of(&queue(), "key", b"{}"),
        class: Class::Cpu,
        envelope: b"{}".to_vec(),
        queue_timeout: None,
    };
    let submitted = agent.dispatch.submit(&queue(), &task).await;
    submitted.expect("it is there");
    task.id
}

/// CL-18: an idle slot begins at the hint. Time stands still here until all have nothing to do but to wait for it: none
/// passes.
#[tokio::test(start_paused = true)]
async fn an_idle_slot_is_woken_by_the_hint() {
    let dir = tempfile::tempdir().expect("a directory");
    let (agent, _stop) = agent(dir.path());
    open(&agent).await;
    let local = tokio::task::LocalSet::new();
    local.spawn_local(agent.clone().hear_hints());
    let seeking = agent.clone();
    let seeking = local.spawn_local(async move {
        let consumer = seeking.config.agent.slot(0);
        seeking.seek(&consumer).await.map(|held| held.lease.task)
    });
    let idle = local.run_until(tokio::time::sleep(ASK_EVERY / 4)); // it asked, and found nothing
    idle.await;
    let begun = tokio::time::Instant::now();
    let task = submit(&agent).await;
    let found = local.run_until(seeking).await.expect("no panic");
    assert_eq!(found, Some(task));
    assert_eq!(begun.elapsed(), Duration::ZERO, "it did not wait to ask");
}

/// CL-13: a result that nobody takes ends its task, and not the agent.
#[tokio::test]
async fn a_result_too_large_to_record_ends_its_task_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let (agent, _stop) = agent(dir.path());
    let (task, held) = held(&agent).await;
    let ended = Ended {
        result: vec![b'x'; 100_000],
        complete: String::new(),
    };
    let consumer = agent.config.agent.slot(0);
    assert!(agent.commit(held, ended, &consumer).await.is_none());
    assert!(agent.ended.borrow().is_none(), "it goes on");
    let results = agent.dispatch.collect(&queue(), &[task], &[]).await;
    let results = results.expect("memory answers");
    let result = ResultEnvelope::read(&results[0].1).expect("it is one");
    let error = result.to_outcome(|_| None).expect_err("no outcome");
    assert_eq!(error.code, ErrorCode::TooLarge);
}

/// CL-7: with nobody left who could tell it to stop, an agent that cannot go on still ends.
#[tokio::test]
async fn an_agent_that_nobody_can_stop_can_still_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let (agent, stop) = agent(dir.path());
    drop(stop);
    let stopped = agent.stopped(Stop::Drain);
    tokio::pin!(stopped);
    assert!(futures_util::poll!(&mut stopped).is_pending());
    agent.end(NodeError::NameTaken("a".into()));
    let ended = tokio::time::timeout(Duration::from_secs(10), stopped).await;
    ended.expect("it heard of its end");
}

/// CL-5: a large value is hashed beside whatever else the agent has to do.
#[tokio::test]
async fn others_go_on_while_a_large_value_is_hashed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (agent, _stop) = agent(dir.path());
    let (_, held) = held(&agent).await;
    let outcome = Outcome {
        value: Some(EncodedValue {
            format: ResultFormat::Data,
            body: Body::Inline(vec![7; 64 << 20]),
        }),
        ..cancelled()
    };
    let sealing = sealed(outcome, &held.lease);
    tokio::pin!(sealing);
    assert!(futures_util::poll!(&mut sealing).is_pending());
    assert_eq!(sealing.await.outgoing.len(), 1);
}

/// CL-24, CL-25, CL-26, CL-27: why a directory is not here decides what becomes of its call.
#[tokio::test]
async fn a_directory_that_is_not_here_ends_as_its_reason_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let blob = |fault| -> PackError {
        let store = "file:///s".to_owned();
        BlobError { store, fault }.into()
    };
    let cache = |kind: std::io::ErrorKind| PackError::Cache {
        path: "/c".into(),
        source: kind.into(),
    };
    let digest = Digest::of(b"");
    for (error, becomes) in [
        (blob(Fault::Missing(digest)), "blob_missing"),
        (blob(Fault::Full("disk".into())), "uncounted, ill"),
        (blob(Fault::Unreachable("away".into())), "uncounted, ill"),
        (cache(std::io::ErrorKind::StorageFull), "uncounted, ill"),
        (cache(std::io::ErrorKind::PermissionDenied), "counted"),
        (PackError::Hostile("no archive".into()), "invalid"),
    ] {
        let (agent, _stop) = agent(dir.path());
        let (_, held) = held(&agent).await;
        let shown = error.to_string();
        let became = match agent.not_run(&held, &NotRun::from(error)) {
            Ran::Committable(ended) => {
                let result = ResultEnvelope::read(&ended.result).expect("it is one");
                let error = result.to_outcome(|_| None).expect_err("no outcome");
                error.code.name()
            }
            Ran::Back(Release::Uncounted { .. }) if agent.state.get() == NodeState::Unhealthy => {
                "uncounted, ill"
            }
            Ran::Back(Release::Counted { .. }) => "counted",
            _ => "something else",
        };
        assert_eq!(became, becomes, "{shown}");
    }
}

/// CL-7: `--drain-timeout` is that of all that is still to be done, and not of each part of it.
#[tokio::test(start_paused = true)]
async fn what_comes_after_the_drain_is_given_no_second_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let (agent, stop) = agent(dir.path());
    stop.send_replace(Stop::Drain);
    let told = tokio::time::Instant::now();
    agent.overdue().await; // the call
    agent.overdue().await; // its release
    let taken = told.elapsed();
    assert!(taken < agent.config.drain_timeout * 2, "{taken:?}");
}
