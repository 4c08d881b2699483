//! A whole backend beside what an earlier one left, and where no agent is. The test is the agent.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fairtrial_cluster::{
    BlobStore, ClusterBackend, ClusterConfig, Dispatch as _, Lease, Leased, Options, Place,
    RedisDispatch, Renewed, Terms,
};
use fairtrial_exec::{Answer, Backend as _, Call, Shutdown, SpillDir, SpillPolicy, Verdict, Work};

use crate::stage::{RedisStage, Stage as _, dispatch_to};
use crate::words::*;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

fn backend(
    stage: &RedisStage,
    max_queue: u64,
    store: Option<BlobStore>,
) -> ClusterBackend<RedisDispatch> {
    let options = Options::default();
    let config = ClusterConfig {
        queue: queue(),
        named: true,
        class: options.class,
        weight: options.weight,
        max_queue,
        max_inflight: None,
        on_full: options.on_full,
        server_timeout: options.server_timeout,
        lease: options.lease,
        packs_cwd: false,
        sends_passed: false,
        spill: SpillPolicy {
            dir: SpillDir::new(std::env::temp_dir()),
            memfd_cap_bytes: u64::MAX,
            memory_limit_bytes: None,
        },
        python: None,
    };
    ClusterBackend::new(dispatch_to(&stage.server.url()), store, config)
}

fn call(key: &str) -> Call {
    let mut call = Call::source("def f(): pass", "f", b"{}".to_vec());
    call.key = Some(key.to_owned());
    call
}

/// The next task, as soon as there is one.
async fn next(stage: &RedisStage, slot_name: &str) -> (Lease, Vec<u8>) {
    let seek = async {
        loop {
            if let Leased::Task {
                lease, envelope, ..
            } = try_lease(&stage.dispatch, &slot(slot_name)).await
            {
                return (lease, envelope);
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, seek).await.expect("a task")
}

async fn within<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, answer).await.expect("in time")
}

fn verdict(answer: Answer) -> Verdict {
    answer.expect("an outcome").verdict
}

/// The owner was killed long ago.
async fn orphan(stage: &RedisStage) {
    let meta = format!("ft:{{{}}}:meta", queue());
    let _: i64 = stage.command(&["HSET", &meta, "owner", ""]).await;
}

/// CL-56: what an earlier owner cancelled is no answer to who asks for it now; it is run.
#[tokio::test]
async fn a_task_that_an_earlier_owner_cancelled_is_run() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let first = backend(&stage, 100, None);
    let asked = first.submit(call("k")).unwrap();
    let (lease, _) = next(&stage, "n1").await;
    stage.dispatch.release(&lease, &uncounted()).await.unwrap();
    stage.dispatch.cancel(&queue(), &lease.task).await.unwrap();
    assert_eq!(verdict(within(asked).await), Verdict::Cancelled);
    assert_eq!(place(&stage.dispatch, &lease.task).await, Place::Done);
    orphan(&stage).await;

    let second = backend(&stage, 100, None);
    let asked = second.submit(call("k")).unwrap();
    assert_eq!(next(&stage, "n1").await.0.task, lease.task);
    drop((asked, first, second));
}

/// CL-33: nobody can ask for what an earlier owner's calls left; it does not fill the queue for ever.
#[tokio::test]
async fn results_that_nobody_can_ask_for_make_room() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let terms = Terms {
        named: true,
        max_queue: 2,
        ..terms()
    };
    open(&stage.dispatch, &terms).await;
    for id in submit(&stage.dispatch, &["a", "b"]).await {
        let leased = lease(&stage.dispatch, &slot("n1")).await;
        stage.dispatch.commit(&commit(&leased)).await.unwrap();
        assert_eq!(place(&stage.dispatch, &id).await, Place::Done);
    }
    orphan(&stage).await;
    let backend = backend(&stage, 2, None);
    let asked = backend.submit(call("k")).unwrap();
    next(&stage, "n1").await;
    assert_eq!(stage.dispatch.left(&queue()).await.unwrap(), []);
    drop((asked, backend));
}

/// CL-32, CL-39: of a named queue whose calls have all been answered its events stay, and no results, however old.
#[tokio::test]
async fn results_that_nobody_comes_back_for_go_with_their_owner() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let terms = Terms {
        named: true,
        ..terms()
    };
    open(&stage.dispatch, &terms).await;
    submit(&stage.dispatch, &["left"]).await;
    let leased = lease(&stage.dispatch, &slot("n1")).await;
    stage.dispatch.commit(&commit(&leased)).await.unwrap();
    orphan(&stage).await;
    let backend = backend(&stage, 100, None);
    let asked = backend.submit(call("k")).unwrap();
    let (leased, _) = next(&stage, "n1").await;
    stage.dispatch.commit(&commit(&leased)).await.unwrap();
    drop(within(asked).await); // the test's results are not whole
    within(backend.shutdown(Shutdown::default())).await;
    assert_eq!(stage.dispatch.left(&queue()).await.unwrap(), []);
    assert!(
        told_of(&stage.dispatch, &leased.task)
            .await
            .contains(&"complete".to_owned())
    );
}

/// CL-21, CL-58: a flushed server does not bring back what was cancelled.
#[tokio::test]
async fn a_cancelled_task_is_not_repaired() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let backend = backend(&stage, 100, None);
    let asked = backend.submit(call("k")).unwrap();
    let (lease, _) = next(&stage, "n1").await;
    asked.cancel();
    within(async {
        while stage.dispatch.renew(&lease).await.unwrap() != Renewed::Cancel {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stage.flush().await;
    assert_eq!(verdict(within(asked).await), Verdict::Cancelled);
    assert_eq!(place(&stage.dispatch, &lease.task).await, Place::Missing);
}

/// EX-46 where no agent is
#[tokio::test]
async fn a_call_may_wait_so_long_where_nobody_leases() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let backend = backend(&stage, 100, None);
    let mut hurried = call("k");
    hurried.queue_timeout = Some(Duration::from_millis(100));
    let outcome = within(backend.execute(hurried)).await.unwrap();
    let error = outcome.error.expect("a reason");
    assert_eq!(error.kind, "QueueTimeout", "{error:?}");
}

/// CL-42, CL-1: a call sees what was changed in a directory before it was made, however soon.
#[tokio::test]
async fn a_directory_is_sent_as_it_is_when_the_call_is_made() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (tree, blobs) = (dir.path().join("tree"), dir.path().join("blobs"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::create_dir(&blobs).unwrap();
    let store = format!("file://{}", blobs.display());
    let backend = backend(
        &stage,
        100,
        Some(BlobStore::open(&store, &BTreeMap::new()).unwrap()),
    );
    let module = tree.join("m.py");
    let mut seen = Vec::new();
    for step in ["X = 1", "X = 2", "mode", "nothing"] {
        match step {
            "mode" => set_mode(&module, 0o700),
            "nothing" => {}
            text => std::fs::write(&module, text).unwrap(),
        }
        let mut call = call(step);
        if let Work::Source(work) = &mut call.work {
            work.python.python_path = vec![tree.clone()];
        }
        let asked = backend.submit(call).unwrap();
        let (leased, envelope) = next(&stage, "n1").await;
        let envelope: serde_json::Value = serde_json::from_slice(&envelope).unwrap();
        let text = envelope.to_string();
        let (_, digest) = text
            .split_once(r#""digest":""#)
            .expect("a packed directory");
        seen.push(digest[..64].to_owned());
        stage.dispatch.commit(&commit(&leased)).await.unwrap();
        drop(within(asked).await);
    }
    assert_eq!(seen[2], seen[3], "nothing changed");
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
