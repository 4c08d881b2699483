//! What an agent is to its cluster: how many calls it takes, at which level, and what it does when it is not well.

use fairtrial_tests::{RedisServer, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::cluster_words::{
    agent, agent_status, batch, begun, dispatch, held_calls, number, records, told,
};

/// CL-4: as many as there are slots, and what waits can be had by others.
#[tokio::test]
async fn an_agent_leases_no_more_than_it_has_slots() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 6);
    let _first = agent(&shell, &server, "first", &["--slots", "2"]);
    let running = batch(&shell, &server, "calls.jsonl", "");
    let leased =
        || ["leased", "queued"].map(|what| number(&shell, &server, "q", what).unwrap_or(0));
    wait_until("two run", || begun(&shell).len() == 2).await;
    wait_until("all are there", || leased() == [2, 4]).await;
    let _second = agent(&shell, &server, "second", &["--slots", "1"]);
    wait_until("another has one", || begun(&shell).len() == 3).await;
    assert_eq!(leased(), [3, 3]);
    shell.write("go", "");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(begun(&shell).len(), 6);
}

/// CL-9: the stronger of what a call asks for and the agent's floor; the outcome says which.
#[test]
fn an_agents_level_is_a_floor() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let call = |level: &str| {
        let sandbox = json!({"level": level, "on_missing": "degrade"});
        json!({"id": level, "argv": ["true"], "sandbox": sandbox})
    };
    let asked = ["none", "limits", "confined", "strict"];
    shell.write_lines("calls.jsonl", &asked.map(call));
    for (floor, expected) in [
        ("none", ["none", "limits", "confined", "strict"]),
        ("limits", ["limits", "limits", "confined", "strict"]),
    ] {
        let agent = agent(
            &shell,
            &server,
            floor,
            &["--slots", "1", "--sandbox", floor],
        );
        let ended = batch(&shell, &server, "calls.jsonl", "").end();
        let records = records(&ended.stdout);
        let levels: Vec<&Json> = records
            .iter()
            .map(|record| &record["in_force"]["requested"])
            .collect();
        assert_eq!(levels, expected, "{records:?}");
        agent.signal(Signal::TERM);
        assert_eq!(agent.end().code, Some(0));
    }
}

/// CL-10, CL-27, CL-61, X10: what cannot be stored is not committed; the agent leases nothing until the store is back,
/// and everybody can see why.
#[tokio::test]
async fn an_agent_whose_store_fails_is_ill_until_it_works_again() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let (store, aside) = (shell.path().join("blobs"), shell.path().join("aside"));
    std::fs::create_dir(&store).expect("a directory");
    let blobs = format!("file://{}", store.display());
    let words = ["--slots", "1", "--lease", "3s", "--blobs", &blobs];
    let state = || agent_status(&shell, &server, "ill")["state"].clone();
    let _agent = agent(&shell, &server, "ill", &words);
    let source = "def f(): return 'x' * 300_000";
    let calls = [json!({"id": 1, "source": source, "function": "f"})];
    shell.write_lines("calls.jsonl", &calls);
    std::fs::rename(&store, &aside).expect("it is ours");
    let terms = format!("lease=3s&blobs={blobs}");
    let running = batch(&shell, &server, "calls.jsonl", &terms);
    wait_until("it is ill", || state() == "unhealthy").await;
    for what in ["leased", "uncollected"] {
        assert_eq!(number(&shell, &server, "q", what), Some(0), "{what}");
    }
    std::fs::rename(&aside, &store).expect("it is ours");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(state(), "up");
    let dispatch = dispatch(&server);
    let why = told(&dispatch, "agent.unhealthy").await;
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why[0].data.contains(&blobs), "{why:?}");
    assert!(!told(&dispatch, "agent.up").await.is_empty());
}

/// CL-10, CL-26: three engine errors in a row, here of a launcher that is killed; then its own checks pass, and it goes on.
#[tokio::test]
async fn an_agent_whose_engine_fails_three_times_is_ill_until_its_checks_pass() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let killer = "import os, signal\ndef f():\n    os.kill(os.getppid(), signal.SIGKILL)\n    signal.pause()";
    let calls = [
        json!({"id": "kills", "source": killer, "function": "f"}),
        json!({"id": "ok", "source": "def f(): return 1", "function": "f"}),
    ];
    shell.write_lines("calls.jsonl", &calls);
    let state = || agent_status(&shell, &server, "ill")["state"].clone();
    let _agent = agent(&shell, &server, "ill", &["--slots", "1", "--lease", "3s"]);
    let ended = batch(&shell, &server, "calls.jsonl", "lease=3s").end();
    let records = records(&ended.stdout);
    let error = records[0]["error"]["message"].as_str().expect("an error");
    assert!(
        error.contains("(lost)") && error.contains("launcher"),
        "{error}"
    );
    assert_eq!(records[1]["verdict"], "ok", "{records:?}");
    let dispatch = dispatch(&server);
    let why = told(&dispatch, "agent.unhealthy").await;
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why[0].data.contains("launcher"), "{why:?}");
    wait_until("it is well", || state() == "up").await;
}
