//! What an agent finds at its start, and says in one line.

use fairtrial_tests::{Finished, RedisServer, ServerTerms, Shell, wait_until};

use rustix::process::Signal;

use super::cluster_canaries::free_port;
use super::cluster_words::{
    agent, agent_words, batch, batch_to, begun, command, held_calls, is_alive, status,
};

fn assert_ends_in_one_line(ended: &Finished, code: i32, says: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    for word in says {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
}

/// Starts an agent that is to end by itself.
fn started(shell: &Shell, server: &RedisServer, more: &[&str]) -> Finished {
    let words = agent_words(server, "one", more);
    shell.fairtrial(words.iter().map(String::as_str)).run()
}

/// CL-6, CL-72
#[test]
fn a_server_that_evicts_is_refused_by_agents_and_coordinators() {
    let words = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let words = words.map(str::to_owned).to_vec();
    let Some(server) = RedisServer::start_on(|_| ServerTerms { words, user: None }) else {
        return;
    };
    assert_refused(&server, &["allkeys-lru", "set it to `noeviction`"]);
}

/// CL-11
#[test]
fn a_redis_cluster_is_refused_by_agents_and_coordinators() {
    let port = free_port().to_string();
    let words = ["--cluster-enabled", "yes", "--cluster-port", &port];
    let words = words.map(str::to_owned).to_vec();
    let Some(server) = RedisServer::start_on(|_| ServerTerms { words, user: None }) else {
        return;
    };
    assert_refused(&server, &["Redis Cluster", "not supported yet"]);
}

/// Whoever serves and whoever submits says why not with this server.
fn assert_refused(server: &RedisServer, says: &[&str]) {
    let shell = Shell::new();
    let refused = started(&shell, server, &["--slots", "1"]);
    assert_ends_in_one_line(&refused, 1, says);
    let calls = [serde_json::json!({"id": 1, "argv": ["true"]})];
    shell.write_lines("calls.jsonl", &calls);
    let url = server.url();
    let refused = shell.fairtrial(["batch", "calls.jsonl", "--backend", &url]);
    let refused = refused.run();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains(says[0]), "{refused:?}");
}

/// CL-6
#[test]
fn a_server_that_is_away_is_told_at_once() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    server.kill();
    let away = started(&shell, &server, &["--slots", "1"]);
    assert_ends_in_one_line(&away, 1, &["cannot reach the server", "does it run there"]);
}

/// CL-6
#[test]
fn a_store_that_cannot_be_used_is_told_at_once() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let words = ["--slots", "1", "--blobs", "file:///proc/none/blobs"];
    let refused = started(&shell, &server, &words);
    assert_ends_in_one_line(&refused, 1, &["/proc/none/blobs", "--blobs"]);
}

/// CL-6, SB-45: an agent whose least level cannot be had serves nobody. Nothing is withheld here: the kernel refuses.
#[test]
fn an_agent_whose_level_fails_its_self_test_ends() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let off = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"",
        "sh",
    ];
    let words = agent_words(&server, "one", &["--slots", "1", "--sandbox", "strict"]);
    let words = words.iter().map(String::as_str);
    let ended = shell.fairtrial(words).under_all(&off).run();
    let says = ["level `strict`", "user.max_user_namespaces=0", "--sandbox"];
    assert_ends_in_one_line(&ended, 1, &says);
}

/// CL-10: what another program wrote among our keys ends no agent, and keeps nobody from theirs.
#[test]
fn what_another_program_wrote_is_passed_over() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    for words in [
        &["HSET", "ft:queues", "no name", "1"][..],
        &["HSET", "ft:queues", "spoilt", "1"],
        &["SET", "ft:{spoilt}:meta", "no hash"],
        &["HSET", "ft:queues", "half", "1"],
        &[
            "HSET",
            "ft:{half}:meta",
            "state",
            "open",
            "max_inflight",
            "0",
        ],
        &["SET", "ft:{half}:res", "no hash"],
        &["SET", "ft:{half}:ev", "no stream"],
        &["SADD", "ft:nodes", "odd"],
        &["SET", "ft:node:odd", "no node"],
    ] {
        let _: redis::Value = command(&server, words);
    }
    let shell = Shell::new();
    // A short lease: it reaps while the batch runs.
    let classes = ["--class", "cpu", "--class", "timing"];
    let words = [&["--slots", "1", "--lease", "200ms"], &classes[..]].concat();
    let agent = agent(&shell, &server, "one", &words);
    let call = |id| serde_json::json!({"id": id, "argv": ["sleep", "0.3"]});
    shell.write_lines("calls.jsonl", &[call(1), call(2)]);
    let ended = batch(&shell, &server, "calls.jsonl", "").end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = status(&shell, &server);
    assert_eq!(told["agents"][0]["name"], "one", "{told}");
    agent.signal(Signal::TERM);
    let ended = agent.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = ended.stderr.matches("`spoilt` is passed over").count();
    assert_eq!(told, classes.len() / 2, "{ended:?}");
}

/// CL-10: a queue that is spoilt while its call runs loses that call, as the agent renews its lease or commits, and the calls
/// of others go on.
#[tokio::test]
async fn a_queue_that_is_spoilt_later_costs_others_nothing() {
    for lease in ["1s", "60s"] {
        let Some(server) = RedisServer::start() else {
            return;
        };
        let shell = Shell::new();
        let words = ["--slots", "2", "--lease", lease];
        let agent = agent(&shell, &server, "one", &words);
        held_calls(&shell, "calls.jsonl", 1);
        let terms = format!("lease={lease}");
        let batches = ["spoilt", "q"];
        let [spoilt, whole] =
            batches.map(|queue| batch_to(queue, &shell, &server, "calls.jsonl", &terms));
        wait_until("both run", || begun(&shell).len() == 2).await;
        for key in ["ft:{spoilt}:meta", "ft:{spoilt}:res"] {
            let _: redis::Value = command(&server, &["SET", key, "no hash"]);
        }
        if lease == "1s" {
            let run = || {
                begun(&shell)
                    .iter()
                    .filter(|(_, pid)| is_alive(*pid))
                    .count()
            };
            wait_until("one could not be renewed", || run() == 1).await;
        }
        shell.write("go", "");
        let ended = whole.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(spoilt.end().code, Some(1));
        agent.signal(Signal::TERM);
        let ended = agent.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(
            ended.stderr.contains("`spoilt` is passed over"),
            "{ended:?}"
        );
    }
}
