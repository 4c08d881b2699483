//! A whole agent, and a task that it cannot read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fairtrial_cluster::{
    Class, Dispatch, NodeAgent, NodeConfig, Stop, StreamId, Submitted, Task, TaskId, Terms,
    TreeCache,
};
use fairtrial_exec::{Level, LocalBackend, LocalConfig, MachineLock};
use tokio::sync::watch;

use crate::stage::{RedisStage, dispatch_to};
use crate::words::*;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);
const SHORT_LEASE: Duration = Duration::from_millis(200);

/// CL-23, CL-40, X21: an agent refuses what a newer one made, once; it ends as `invalid`.
#[tokio::test]
async fn an_old_agent_refuses_a_newer_envelope_once() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    let terms = Terms {
        lease: SHORT_LEASE,
        ..terms()
    };
    open(dispatch, &terms).await;
    let envelope = br#"{"protocol":"2.0","work":"of a kind that is not known here"}"#.to_vec();
    let newer = Task {
        id: TaskId::of(&queue(), "newer", &envelope),
        class: Class::Cpu,
        envelope,
        queue_timeout: None,
    };
    let submitted = dispatch.submit(&queue(), &newer).await.unwrap();
    assert_eq!(submitted, Submitted::Ok);
    let cache = tempfile::tempdir().unwrap();
    let (stop, stopped) = watch::channel(Stop::No);
    let engine = LocalConfig::from_vars(BTreeMap::new()).unwrap();
    let engine = Arc::new(LocalBackend::new(engine));
    let old = NodeAgent::new(
        dispatch_to(&stage.server.url()),
        engine,
        None,
        TreeCache::at(cache.path(), 1 << 20),
        config(cache.path()),
        stopped,
    );
    let watching = async {
        let names = told_until_complete(dispatch).await;
        stop.send_replace(Stop::Drain);
        names
    };
    let local = tokio::task::LocalSet::new();
    let both = local.run_until(async { tokio::join!(old.run(|| ()), watching) });
    let (served, names) = tokio::time::timeout(LONG, both).await.unwrap();
    served.unwrap();
    let counted = |wanted: &str| names.iter().filter(|name| *name == wanted).count();
    assert_eq!((counted("call.refused"), counted("call.leased")), (1, 1));
    let recorded = recorded(dispatch, &newer.id).await;
    assert_eq!(
        (&recorded["kind"], &recorded["verdict"]),
        (&"error".into(), &"invalid".into())
    );
    assert!(
        recorded["reason"]
            .as_str()
            .unwrap()
            .contains("protocol 2.0"),
        "{recorded}"
    );
}

fn config(place: &Path) -> NodeConfig {
    NodeConfig {
        agent: agent("old"),
        slots: 1,
        classes: vec![Class::Cpu],
        floor: Level::None,
        lease: SHORT_LEASE,
        drain_timeout: LONG,
        give_up: LONG,
        scratch: std::env::temp_dir(),
        lock: MachineLock::at(place.join("lock")),
        about: serde_json::json!({}),
    }
}

/// Names of events until a task has its result.
async fn told_until_complete(dispatch: &impl Dispatch) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), StreamId::START);
    while !names.iter().any(|name| name == "complete") {
        let read = dispatch.events(&queue(), after, LONG).await.unwrap();
        for stored in read.events {
            after = stored.id;
            names.push(stored.event.name);
        }
    }
    names
}
