//! An agent's slot with a dispatch in memory. Nothing is run: its engine is never started.

use std::path::Path;
use std::sync::Arc;

use fairtrial_exec::{
    Body, Call, EncodedValue, Level, LocalBackend, LocalConfig, MachineLock, Outcome, ResultFormat,
};
use tokio::sync::watch;

use super::*;
use crate::backend::cancelled;
use crate::blobs::{BlobError, Digest, Fault};
use crate::envelope::{PackedParts, TaskEnvelope};
use crate::memory::MemoryDispatch;
use crate::names::{Agent, Class, StreamId, TaskId};
use crate::node::trial::{NotRun, sealed};
use crate::node::{NodeConfig, NodeError};
use crate::pack::{PackError, TreeCache};
use crate::terms::{Owner, Refusal, Task, Terms, Verdicts};

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
    let id = TaskId::of(&queue(), "key", b"{}");
    (id.clone(), leased(agent, id, b"{}".to_vec()).await)
}

/// A task of this id, with this envelope.
async fn leased(agent: &NodeAgent<MemoryDispatch>, id: TaskId, envelope: Vec<u8>) -> Held {
    open(agent).await;
    submit(agent, id, envelope).await;
    let consumer = agent.config.agent.slot(0);
    let held = agent.ask_around(&consumer).await.expect("memory answers");
    held.expect("a task")
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

async fn submit(agent: &NodeAgent<MemoryDispatch>, id: TaskId, envelope: Vec<u8>) {
    let task = Task {
        id,
        class: Class::Cpu,
        envelope,
        queue_timeout: None,
    };
    let submitted = agent.dispatch.submit(&queue(), &task).await;
    submitted.expect("it is there");
}

/// What the queue's result of a task says.
async fn result(agent: &NodeAgent<MemoryDispatch>, task: &TaskId) -> ResultEnvelope {
    let asked = std::slice::from_ref(task);
    let results = agent.dispatch.collect(&queue(), asked, &[]).await;
    let results = results.expect("memory answers");
    ResultEnvelope::read(&results[0].1).expect("it is one")
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
    let task = TaskId::of(&queue(), "key", b"{}");
    submit(&agent, task.clone(), b"{}".to_vec()).await;
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
    let result = result(&agent, &task).await;
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

/// What becomes of a task, in a word.
fn becomes(agent: &NodeAgent<MemoryDispatch>, ran: Ran) -> &'static str {
    match ran {
        Ran::Committable(ended) => {
            let result = ResultEnvelope::read(&ended.result).expect("it is one");
            let error = result.to_outcome(|_| None).expect_err("no outcome");
            error.code.name()
        }
        Ran::Back(Release::Uncounted { .. }) if agent.state.get() == NodeState::Unhealthy => {
            "uncounted, ill"
        }
        Ran::Back(Release::Counted { .. }) => "counted",
        Ran::Back(Release::Refused {
            refusal: Refusal::Setup,
            ..
        }) => "refused",
        _ => "something else",
    }
}

/// CL-24, CL-25, CL-26, CL-27, CL-52: why an input is not here decides what becomes of its call.
#[tokio::test]
async fn an_input_that_is_not_here_ends_its_call_as_its_reason_says() {
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
    let altered = Fault::Corrupt {
        digest,
        problem: "it was altered".to_owned(),
    };
    for (error, expected) in [
        (blob(Fault::Missing(digest)), "blob_missing"),
        (blob(altered), "blob_corrupt"),
        (blob(Fault::Full("disk".into())), "uncounted, ill"),
        (blob(Fault::Unreachable("away".into())), "uncounted, ill"),
        (cache(std::io::ErrorKind::StorageFull), "uncounted, ill"),
        (cache(std::io::ErrorKind::PermissionDenied), "counted"),
        (PackError::Hostile("no archive".into()), "invalid"),
    ] {
        let (agent, _stop) = agent(dir.path());
        let (_, held) = held(&agent).await;
        let shown = error.to_string();
        let ran = agent.not_run(&held, &NotRun::from(error));
        assert_eq!(becomes(&agent, ran), expected, "{shown}");
    }
}

fn sealed_call(source: &str) -> Vec<u8> {
    let call = Call::source(source, "f", Vec::new());
    let sealed = TaskEnvelope::seal(&call, "key", PackedParts::default(), None);
    sealed.expect("it fits").bytes
}

/// CL-14, CL-24: an id is its envelope's digest, and whatever else is found under it is not run.
#[tokio::test]
async fn an_envelope_that_is_not_the_one_submitted_is_not_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let (agent, _stop) = agent(dir.path());
    let id = TaskId::of(&queue(), "key", &sealed_call("def f(): return 1"));
    let held = leased(&agent, id, sealed_call("def f(): return 2")).await;
    let ran = agent.run_trial(&held, &Notify::new(), &Notify::new()).await;
    assert_eq!(becomes(&agent, ran), "invalid");
}

/// CL-22: what a store would have is another agent's to fetch.
#[tokio::test]
async fn an_agent_without_a_store_refuses_what_needs_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let (agent, _stop) = agent(dir.path());
    let envelope = sealed_call(&format!("def f(): return '{}'", "x".repeat(100_000)));
    let id = TaskId::of(&queue(), "key", &envelope);
    let held = leased(&agent, id, envelope).await;
    let ran = agent.run_trial(&held, &Notify::new(), &Notify::new()).await;
    let Ran::Back(Release::Refused { refusal, reason }) = ran else {
        panic!("not refused");
    };
    assert_eq!(refusal, Refusal::Setup);
    assert!(reason.ends_with("with --blobs"), "{reason}");
}

/// How often the queue was told that a result came too late.
async fn fenced(agent: &NodeAgent<MemoryDispatch>) -> usize {
    let (dispatch, queue) = (&agent.dispatch, queue());
    let events = dispatch.events(&queue, StreamId::START, Duration::ZERO);
    let events = events.await.expect("memory answers").events;
    let names = events.iter().map(|stored| &*stored.event.name);
    names.filter(|name| *name == "call.fenced").count()
}

/// CL-59: a commit whose reply was lost is told again, and is as good as the first.
#[tokio::test]
async fn a_result_committed_twice_is_not_fenced() {
    let dir = tempfile::tempdir().expect("a directory");
    let (agent, _stop) = agent(dir.path());
    let (task, held) = held(&agent).await;
    let consumer = agent.config.agent.slot(0);
    let ended = error_of(&held.lease, ErrorCode::Invalid, &"once");
    let first = Commit {
        lease: held.lease.clone(),
        result: ended.result.clone(),
        events: Vec::new(),
        complete: String::new(),
    };
    let committed = agent.dispatch.commit(&first).await;
    assert_eq!(committed.expect("memory answers"), Committed::Committed);
    assert!(agent.commit(held, ended, &consumer).await.is_none());
    assert_eq!(fenced(&agent).await, 0);
    assert!(result(&agent, &task).await.token.is_some());
}

/// CL-15, CL-16, X4: whoever lost its lease says so once, whether or not the other is done; its result is nobody's.
#[tokio::test]
async fn a_result_that_comes_too_late_is_told_as_fenced() {
    let dir = tempfile::tempdir().expect("a directory");
    for is_done in [true, false] {
        let (agent, _stop) = agent(dir.path());
        let (task, held) = held(&agent).await;
        let dispatch = &agent.dispatch;
        dispatch.advance(Duration::from_secs(31));
        let reaped = dispatch.reap_all(&queue(), Class::Cpu, &[]).await;
        assert_eq!(reaped.expect("memory answers").parked, 1);
        let other = Agent::new("b", "nonce").expect("a name").slot(0);
        let taken = dispatch.lease(&queue(), Class::Cpu, &other).await;
        let Ok(Leased::Task { lease, .. }) = taken else {
            panic!("{taken:?}");
        };
        let theirs = Commit {
            result: error_of(&lease, ErrorCode::Invalid, &"theirs").result,
            lease,
            events: Vec::new(),
            complete: String::new(),
        };
        if is_done {
            dispatch.commit(&theirs).await.expect("memory answers");
        }
        let late = error_of(&held.lease, ErrorCode::Invalid, &"ours");
        let consumer = agent.config.agent.slot(0);
        assert!(agent.commit(held, late, &consumer).await.is_none());
        assert_eq!(fenced(&agent).await, 1, "{is_done}");
        dispatch.commit(&theirs).await.expect("memory answers");
        let stands = result(&agent, &task).await;
        assert_eq!(stands.agent, Some(other.to_string()));
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
