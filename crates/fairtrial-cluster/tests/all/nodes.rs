//! Agents as the server knows them.

use std::time::Duration;

use fairtrial_cluster::{Agent, Announced, Class, Dispatch, Node, NodeState};
use serde_json::json;

use crate::stage::Stage;

fn node(name: &str, nonce: &str) -> Node {
    Node {
        agent: Agent::new(name, nonce).unwrap(),
        classes: vec![Class::Cpu],
        state: NodeState::Up,
        about: json!({ "slots": 4, "nonce": "not that of the agent" }),
    }
}

/// CL-8, X22
pub(crate) async fn a_live_name_is_refused(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let (first, second) = (node("n1", "one"), node("n1", "two"));
    assert_eq!(dispatch.announce(&first).await.unwrap(), Announced::Ok);
    assert_eq!(dispatch.announce(&second).await.unwrap(), Announced::Taken);
    let draining = Node {
        state: NodeState::Draining,
        ..first.clone()
    };
    stage.pass(Duration::from_secs(20)).await;
    assert_eq!(dispatch.announce(&draining).await.unwrap(), Announced::Ok);
    stage.pass(Duration::from_secs(20)).await;
    assert_eq!(dispatch.announce(&second).await.unwrap(), Announced::Taken);
    assert_eq!(dispatch.nodes().await.unwrap().live, [draining]);
    assert_eq!(
        dispatch.remove_node(&second.agent).await.unwrap(),
        Announced::Taken
    );
    assert_eq!(
        dispatch.remove_node(&first.agent).await.unwrap(),
        Announced::Ok
    );
    assert_eq!(dispatch.announce(&second).await.unwrap(), Announced::Ok);
    assert_eq!(dispatch.nodes().await.unwrap().live, [second]);
}

/// CL-8, CL-61
pub(crate) async fn a_silent_node_is_lost_and_forgotten_once(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    dispatch.announce(&node("n1", "one")).await.unwrap();
    stage.pass(Duration::from_secs(20)).await;
    dispatch.announce(&node("n2", "one")).await.unwrap();
    stage.pass(Duration::from_secs(11)).await;
    let nodes = dispatch.nodes().await.unwrap();
    let now_ms = dispatch.server_status().await.unwrap().time_ms.unwrap();
    let seen_ms = nodes.seen_ms[0].unwrap();
    assert!(now_ms.abs_diff(seen_ms) < 60_000, "{now_ms}: {seen_ms}");
    assert_eq!(
        (nodes.live, nodes.lost),
        (vec![node("n2", "one")], vec!["n1".to_owned()])
    );
    assert!(!dispatch.forget_node("n2").await.unwrap());
    assert!(dispatch.forget_node("n1").await.unwrap());
    assert!(!dispatch.forget_node("n1").await.unwrap());
    assert_eq!(dispatch.nodes().await.unwrap().lost, Vec::<String>::new());
    // Its name is free.
    assert_eq!(
        dispatch.announce(&node("n1", "two")).await.unwrap(),
        Announced::Ok
    );
}
