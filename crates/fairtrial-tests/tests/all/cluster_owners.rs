//! Whoever submits owns a queue: says who else does, repairs what the server lost, takes no more than there is room for, and
//! leaves nothing behind.

use std::time::Duration;

use fairtrial_tests::{RedisServer, Shell, wait_until};
use serde_json::json;

use super::cluster_words::{
    agent, batch, command, dispatch, has_begun, held_calls, number, records, told,
};

/// CL-39: who finds a queue in use says at once by whom.
#[tokio::test]
async fn a_second_coordinator_says_who_holds_the_queue() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let first = batch(&shell, &server, "calls.jsonl", "");
    let queued = || number(&shell, &server, "q", "queued");
    wait_until("it has the queue", || queued() == Some(1)).await;
    let mut second = batch(&shell, &server, "calls.jsonl", "");
    let line = second.error_line();
    let host = rustix::system::uname();
    let host = host.nodename().to_str().expect("text");
    let says = format!(
        "held by process {} on {host};",
        first.pid().as_raw_nonzero()
    );
    assert!(line.contains(&says), "{line}");
}

/// CL-39: a queue without a name ends with whoever made it.
#[tokio::test]
async fn nothing_is_left_of_a_queue_without_a_name() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let _agent = agent(&shell, &server, "one", &["--slots", "1"]);
    let url = server.url();
    let running = shell.fairtrial(["batch", "calls.jsonl", "--backend", &url]);
    let running = running.start();
    wait_until("it began", || has_begun(&shell, "one")).await;
    let keys = || -> Vec<String> { command(&server, &["KEYS", "ft:{*"]) };
    assert!(!keys().is_empty(), "it has a queue");
    shell.write("go", "");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(keys(), Vec::<String>::new());
    let listed: u64 = command(&server, &["HLEN", "ft:queues"]);
    assert_eq!(listed, 0);
}

/// CL-58, X13: without its group nobody is given anything. The owner finds that when it has to connect again (else within a
/// minute), makes a new one, says so, and all calls end.
#[tokio::test]
async fn a_queue_whose_group_was_destroyed_is_repaired() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 3);
    let _agent = agent(&shell, &server, "one", &["--slots", "1", "--lease", "2s"]);
    let running = batch(&shell, &server, "calls.jsonl", "lease=2s");
    wait_until("it began", || has_begun(&shell, "one")).await;
    let queued = || number(&shell, &server, "q", "queued");
    wait_until("others wait", || queued() == Some(2)).await;
    let destroy = ["XGROUP", "DESTROY", "ft:{q}:q:cpu", "agents"];
    assert_eq!(command::<u64>(&server, &destroy), 1);
    let _: u64 = command(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    let dispatch = dispatch(&server);
    let repaired = async {
        while told(&dispatch, "queue.repaired").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // Less than the least time until the look that comes by itself.
    let in_time = tokio::time::timeout(Duration::from_secs(25), repaired).await;
    in_time.expect("it is told");
    shell.write("go", "");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(records(&ended.stdout).len(), 3);
}

/// CL-33: of calls without end no more are read than a window of them, while the queue is full.
#[tokio::test]
async fn calls_are_not_read_ahead_of_a_full_queue() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let calls = vec![json!({"id": 1, "argv": ["true"]}); 100_000];
    shell.write_lines("calls.jsonl", &calls);
    let url = format!("{}?queue=q&max_queue=10", server.url());
    let batch = shell.fairtrial(["batch", "-", "--backend", &url]);
    let given = ["sh", "-c", "exec \"$@\" < calls.jsonl", "sh"];
    let running = batch.under_all(&given).start();
    let queued = || number(&shell, &server, "q", "queued");
    wait_until("the queue is full", || queued() == Some(10)).await;
    let read = || -> u64 {
        let pid = running.pid().as_raw_nonzero();
        let facts = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/0"));
        let facts = facts.expect("it runs");
        let at = facts.lines().find_map(|line| line.strip_prefix("pos:"));
        at.expect("it has a place")
            .trim()
            .parse()
            .expect("a number")
    };
    // A window of 1,024 lines, and what a reader of lines has besides.
    let bound = shell.size("calls.jsonl") * 1_024 / 100_000 + (256 << 10);
    assert!(bound < shell.size("calls.jsonl") / 4);
    for _ in 0..5 {
        assert_eq!(queued(), Some(10)); // somebody else asks, which takes longer than to read all there is
        assert!((1..bound).contains(&read()), "{} of {bound}", read());
    }
}
