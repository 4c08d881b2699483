//! Idle agents ask by themselves: a hint that never came costs a second, and no call.

use fairtrial_tests::{RedisServer, Shell, wait_until};

use super::cluster_words::{agent, batch, command, has_begun, held_calls};

/// CL-18: with a note that a hint was given already none is given, and an idle agent begins the call all the same.
#[tokio::test]
async fn an_idle_agent_asks_without_a_hint() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    shell.write("go", "");
    let _idle = agent(&shell, &server, "idle", &["--slots", "1"]);
    let first = batch(&shell, &server, "calls.jsonl", "").end();
    assert_eq!(first.code, Some(0), "{first:?}");
    // Nobody asks a queue that is closed: the note stays until it is open again.
    let _: u64 = command(&server, &["HSET", "ft:{q}:meta", "told.cpu", "1"]);
    shell.write("begun", "");
    let _second = batch(&shell, &server, "calls.jsonl", "");
    wait_until("it began", || has_begun(&shell, "idle")).await;
}
