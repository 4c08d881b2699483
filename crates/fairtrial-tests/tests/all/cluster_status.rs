//! What is told of a cluster: by `status --cluster`, and by those who submit.

use std::time::{Duration, Instant};

use fairtrial_tests::{RedisServer, ServerTerms, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::cluster_words::{
    agent, agent_status, batch, begun, command, has_begun, held_calls, records, status,
};

/// A server that keeps nothing, and may be told more.
fn forgetful(more: &[&str]) -> Option<RedisServer> {
    let words = ["--appendonly", "no"].iter().chain(more);
    let words = words.map(|word| (*word).to_owned()).collect();
    RedisServer::start_on(|_| ServerTerms { words, user: None })
}

/// CL-6, CL-60: of each agent there is the digest of what confines its calls, as in their outcomes.
#[test]
fn the_status_tells_by_what_calls_are_confined() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let _agent = agent(&shell, &server, "one", &["--slots", "1"]);
    let calls = ["none", "limits"].map(|level| json!({"argv": ["true"], "sandbox": level}));
    shell.write_lines("calls.jsonl", &calls);
    let ended = batch(&shell, &server, "calls.jsonl", "").end();
    let records = records(&ended.stdout);
    let [own, other] = [0, 1].map(|place| records[place]["in_force"]["digest"].clone());
    assert!(own.is_string() && own != other, "{records:?}");
    assert_eq!(agent_status(&shell, &server, "one")["report"], own);
}

/// CL-60: what is said of slots is fresh, not as old as the agent's last sign.
#[tokio::test]
async fn the_status_tells_how_many_slots_are_busy_now() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let _agent = agent(&shell, &server, "one", &["--slots", "3"]);
    let known = || agent_status(&shell, &server, "one");
    wait_until("it is known", || !known().is_null()).await;
    let told = known();
    assert_eq!((&told["slots"], &told["busy"]), (&json!(3), &json!(0)));
    assert_eq!(told["level"], "none");
    assert_eq!(told["classes"], json!(["cpu"]));
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    let begin = Instant::now();
    for _ in 0..3 {
        held_calls(&shell, "calls.jsonl", 2);
        let running = batch(&shell, &server, "calls.jsonl", "");
        let busy = || agent_status(&shell, &server, "one")["busy"].clone();
        wait_until("both run", || begun(&shell).len() == 2).await;
        wait_until("that is told", || busy() == 2).await;
        shell.write("go", "");
        assert_eq!(running.end().code, Some(0));
        wait_until("it is idle", || busy() == 0).await;
        std::fs::remove_file(shell.path().join("go")).expect("it is there");
    }
    // Six changes; signs come every 5 s at most.
    assert!(begin.elapsed() < Duration::from_secs(25));
}

/// CL-60: the last sign of an agent that stands still grows older.
#[tokio::test]
async fn the_status_tells_when_an_agent_gave_its_last_sign() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let one = agent(&shell, &server, "one", &["--slots", "1"]);
    let last_sign = || agent_status(&shell, &server, "one")["last_sign_s"].as_f64();
    wait_until("it is known", || last_sign().is_some()).await;
    one.signal(Signal::STOP);
    let first = last_sign().expect("a time");
    assert!((0.0..30.0).contains(&first), "{first}");
    wait_until("it is older", || last_sign() > Some(first + 1.0)).await;
    let url = server.url();
    let text = shell.fairtrial(["status", "--cluster", &url]).run().stdout;
    assert!(text.contains("last sign "), "{text}");
    one.signal(Signal::CONT);
}

/// CL-60
#[tokio::test]
async fn the_status_tells_a_queues_numbers_and_rate() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let calls: Vec<Json> = (0..20)
        .map(|id| json!({"id": id, "argv": ["true"]}))
        .collect();
    shell.write_lines("quick.jsonl", &calls);
    let one = agent(&shell, &server, "one", &["--slots", "1"]);
    assert_eq!(
        batch(&shell, &server, "quick.jsonl", "").end().code,
        Some(0)
    );
    held_calls(&shell, "held.jsonl", 3);
    let running = batch(&shell, &server, "held.jsonl", "");
    wait_until("one runs", || has_begun(&shell, "one")).await;
    let queue = || status(&shell, &server)["queues"][0].clone();
    let rate = || queue()["rate_per_s"].as_f64();
    wait_until("there is a rate", || rate().is_some()).await;
    let told = queue();
    let rate = told["rate_per_s"].as_f64().expect("a rate");
    assert!((20.0 / 60.0..=20.0).contains(&rate), "{told}");
    let number = |what: &str| told[what].as_u64();
    assert_eq!((number("recorded"), number("leased")), (Some(20), Some(1)));
    assert_eq!((number("queued"), number("dead")), (Some(2), Some(0)));
    assert!(told["oldest_wait_s"].as_f64() > Some(0.0), "{told}");
    let url = server.url();
    let text = shell.fairtrial(["status", "--cluster", &url]).run().stdout;
    assert!(text.contains("/s, the oldest waits for "), "{text}");
    drop((running, one));
}

/// CL-60: as the server itself tells it.
#[test]
fn the_status_tells_the_servers_version_memory_and_persistence() {
    let Some(server) = forgetful(&["--maxmemory", "64mb"]) else {
        return;
    };
    let shell = Shell::new();
    let told = || status(&shell, &server)["server"].clone();
    let before = told();
    let info: String = command(&server, &["INFO", "server"]);
    let says = |field: &str| {
        let lines = info.lines().map(|line| line.split_once(':'));
        let mut values = lines.filter_map(|line| line.filter(|(name, _)| *name == field));
        values.next().map(|(_, value)| value.to_owned())
    };
    let (name, version) = match says("valkey_version") {
        Some(version) => ("valkey", version),
        None => ("redis", says("redis_version").expect("a version")),
    };
    assert_eq!(before["name"], name);
    assert_eq!(before["version"], version);
    assert_eq!(before["max_memory_bytes"], 64 << 20);
    assert_eq!(before["append_only"], false);
    let () = command(&server, &["SET", "large", &"x".repeat(20 << 20)]);
    let used = |told: &Json| told["used_memory_bytes"].as_u64().expect("a number");
    let grown = used(&told()) - used(&before);
    assert!((20 << 20..30 << 20).contains(&grown), "{grown}");
    let url = server.url();
    let text = shell.fairtrial(["status", "--cluster", &url]).run().stdout;
    let line = text.lines().next().expect("the server's");
    assert!(
        line.starts_with(&format!("server   {name} {version}, 2")),
        "{line}"
    );
    assert!(line.ends_with(" MiB, not append-only"), "{line}");
}

/// CL-38: a call whose class nobody serves waits, and whoever submits is told so, once.
#[tokio::test]
async fn a_class_that_nobody_serves_is_told_of_once() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let _cpu = agent(&shell, &server, "cpu", &["--slots", "1"]);
    let mut waiting = batch(&shell, &server, "calls.jsonl", "cls=timing");
    let said = waiting.error_line();
    assert!(
        said.contains("no agent serves calls of class `timing`"),
        "{said}"
    );
    assert!(begun(&shell).is_empty());
    let _last = agent(
        &shell,
        &server,
        "last",
        &["--slots", "1", "--class", "timing"],
    );
    let ended = waiting.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("no agent serves"), "{ended:?}");
    // Of a class that somebody serves nothing is said.
    let served = batch(&shell, &server, "calls.jsonl", "cls=timing").end();
    assert_eq!(served.stderr, "", "{served:?}");
}

/// CL-72: whoever submits to a server that keeps nothing is told so, once, though the queue is opened twice.
#[tokio::test]
async fn a_server_without_persistence_is_told_of_once() {
    let Some(server) = forgetful(&[]) else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let mut running = batch(&shell, &server, "calls.jsonl", "lease=2s");
    let said = running.error_line();
    assert!(said.contains("does not survive the server"), "{said}");
    let words = ["agent", "--redis", &server.url(), "--open-server-ok"].map(str::to_owned);
    let terms = ["--slots", "1", "--name", "one", "--sandbox", "none"];
    let words = words.iter().map(String::as_str).chain(terms);
    let mut one = shell.fairtrial(words).start();
    let said = one.error_line();
    assert!(said.contains("does not survive the server"), "{said}");
    wait_until("it began", || has_begun(&shell, "one")).await;
    let () = command(&server, &["FLUSHALL"]);
    wait_until("it is queued anew", || begun(&shell).len() == 2).await;
    shell.write("go", "");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("does not survive"), "{ended:?}");
}

/// CL-60: on a terminal it is kept up to date until Ctrl-C, and what was last known stays.
#[tokio::test]
async fn on_a_terminal_the_status_is_live() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let url = server.url();
    let mut watching = shell
        .fairtrial(["status", "--cluster", &url])
        .start_on_terminal();
    wait_until("nobody serves", || watching.has_shown("no agent serves")).await;
    let _agent = agent(&shell, &server, "late", &["--slots", "1"]);
    wait_until("it is seen", || watching.has_shown("agent    late  up")).await;
    watching.signal(Signal::INT);
    let (code, shown) = watching.end();
    assert_eq!(code, Some(130), "{shown}");
    let (_, left) = shown.rsplit_once("\u{1b}[?1049l").expect("its own screen");
    assert!(left.contains("agent    late  up"), "{left}");
    let words = ["status", "--cluster", &url, "--once"];
    let (code, shown) = shell.fairtrial(words).run_on_terminal();
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        !shown.contains('\u{1b}') && shown.contains("late"),
        "{shown}"
    );
}
