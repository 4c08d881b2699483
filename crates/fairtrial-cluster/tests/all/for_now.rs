//! What a server does not do now, and may do a while later.

use fairtrial_cluster::{Dispatch as _, DispatchError, Renewed};

use crate::stage::RedisStage;
use crate::words::*;

pub(crate) fn assert_refused_for_now<T: std::fmt::Debug>(
    answer: Result<T, DispatchError>,
    code: &str,
) {
    assert!(
        matches!(&answer, Err(DispatchError::Unreachable { problem, .. }) if problem.contains(code)),
        "{code}: {answer:?}"
    );
}

/// CL-57: whoever asks again later may be served.
#[tokio::test]
async fn what_a_server_refuses_for_now_is_worth_another_try() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    with_tasks(dispatch, &["a"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    let () = stage.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_refused_for_now(dispatch.renew(&leased).await, "READONLY");
    let () = stage.command(&["REPLICAOF", "NO", "ONE"]).await;
    let few = ["CONFIG", "SET", "min-replicas-to-write"];
    let () = stage.command(&[&few[..], &["1"]].concat()).await;
    assert_refused_for_now(dispatch.renew(&leased).await, "NOREPLICAS");
    let () = stage.command(&[&few[..], &["0"]].concat()).await;
    let soon = ["CONFIG", "SET", "busy-reply-threshold", "1"];
    let () = stage.command(&soon).await;
    let mut other = stage.raw().await;
    let endless = tokio::spawn(async move {
        let mut eval = redis::cmd("EVAL");
        eval.arg("while true do end").arg(0);
        eval.query_async::<()>(&mut other).await
    });
    let busy = loop {
        match dispatch.renew(&leased).await {
            Ok(_) => tokio::task::yield_now().await, // it has not begun
            refused => break refused,
        }
    };
    assert_refused_for_now(busy, "BUSY");
    let () = stage.command(&["SCRIPT", "KILL"]).await;
    assert!(endless.await.unwrap().is_err());
    assert_eq!(dispatch.renew(&leased).await.unwrap(), Renewed::Ok);
}
