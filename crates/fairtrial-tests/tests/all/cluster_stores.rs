//! Stores that lose what they took, and agents that have none: what becomes of calls, and of agents.

use fairtrial_tests::{RedisServer, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::cluster_results::blob_server::Act;
use super::cluster_results::{
    agent, agent_without_store, batch, begun, calls_with_inputs, directory, http_store, large_call,
    number,
};
use super::cluster_words::{agent_status, records};

/// CL-10, CL-17, CL-27, X10: what cannot be read back from the store is not recorded. Its agent asks for nothing until the
/// store works.
#[tokio::test]
async fn a_result_that_is_gone_when_it_is_read_back_is_not_recorded() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let (store, url) = http_store(&shell);
    let _agent = agent(&shell, &server, &["--blobs", &url]);
    store.fail("GET", Act::Status(404, ""));
    let running = batch(&shell, &server, Some(&url), &[large_call(&shell)]);
    wait_until("it is given back", || {
        number(&shell, &server, "parked") == 1
    })
    .await;
    assert_eq!(agent_status(&shell, &server, "one")["state"], "unhealthy");
    assert_eq!(number(&shell, &server, "uncollected"), 0);
    assert_eq!(begun(&shell).len(), 1);
    store.work_again();
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(records(&ended.stdout)[0]["verdict"], "ok", "{ended:?}");
    assert_eq!(begun(&shell).len(), 2);
}

/// CL-22: inputs that only a store has are refused by an agent that has none, and used by one that has.
#[tokio::test]
async fn an_agent_without_a_store_leaves_its_calls_to_another() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let blobs = directory(&shell, "blobs");
    let other = agent(&shell, &server, &["--blobs", &blobs]);
    other.signal(Signal::STOP); // it lives, and takes nothing
    let _bare = agent_without_store(&shell, &server);
    let calls = calls_with_inputs(&shell);
    let running = batch(&shell, &server, Some(&blobs), &calls);
    wait_until("both are refused", || {
        number(&shell, &server, "parked") == 2
    })
    .await;
    other.signal(Signal::CONT);
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let records = records(&ended.stdout).into_iter();
    let values: Vec<Json> = records.map(|record| record["value"].clone()).collect();
    assert_eq!(values, [json!(100_000), json!(5)]);
}

/// CL-22: with nobody else there, that is what they end as, and why.
#[test]
fn calls_that_only_agents_without_a_store_could_run_say_what_is_missing() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let blobs = directory(&shell, "blobs");
    let _bare = agent_without_store(&shell, &server);
    let calls = calls_with_inputs(&shell);
    let ended = batch(&shell, &server, Some(&blobs), &calls).end();
    let records = records(&ended.stdout);
    assert_eq!(records.len(), 2, "{ended:?}");
    for record in records {
        assert_eq!(record["verdict"], "setup_failed", "{record}");
        let why = record["error"]["message"].as_str().expect("a reason");
        assert!(why.contains("bare: it needs the blob"), "{why}");
        assert!(why.contains("--blobs"), "{why}");
    }
}
