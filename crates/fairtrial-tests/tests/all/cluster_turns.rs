//! Whose turn it is on a machine that agents share with each other and with measurements: the class `timing`.

use fairtrial_exec::MachineLock;
use fairtrial_tests::{RedisServer, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::cluster_words::{agent, agent_words, batch, batch_to, number, records};

/// Says when it began and when it ended.
const LOGGED: &str = "import time
def f(path, kind):
    begun = time.monotonic_ns()
    time.sleep(0.02)
    with open(path, 'a') as log:
        log.write('%s %d %d\\n' % (kind, begun, time.monotonic_ns()))";

fn logged(shell: &Shell, kind: &str, count: usize) {
    let log = shell.path().join("log").display().to_string();
    let call = |id| json!({"id": id, "source": LOGGED, "function": "f", "args": [log, kind]});
    let calls: Vec<Json> = (0..count).map(call).collect();
    shell.write_lines(&format!("{kind}.jsonl"), &calls);
}

/// A call of a kind, from when until when.
type Stay = (String, u64, u64);

fn stays(log: &str) -> Vec<Stay> {
    let stay = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let at = |place: usize| words[place].parse().expect("a time");
        (words[0].to_owned(), at(1), at(2))
    };
    log.lines().map(stay).collect()
}

fn meet(one: &Stay, other: &Stay) -> bool {
    one.1 < other.2 && other.1 < one.2
}

/// CL-37: two agents on one machine. Calls of class `cpu` run beside each other, those of class `timing` alone, and they
/// have their turn although there is always a call of the other class.
#[tokio::test]
async fn a_timing_call_is_alone_on_its_machine_and_does_not_starve() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    shell.write("log", "");
    logged(&shell, "cpu", 300);
    logged(&shell, "timing", 5);
    let words = ["--slots", "2", "--class", "cpu", "--class", "timing"];
    let _agents = [
        agent(&shell, &server, "one", &words[..4]),
        agent(&shell, &server, "two", &words),
    ];
    let cpu = batch_to("cpu", &shell, &server, "cpu.jsonl", "");
    wait_until("some calls ran", || shell.read("log").lines().count() > 3).await;
    let timing = batch(&shell, &server, "timing.jsonl", "cls=timing").end();
    assert_eq!(timing.code, Some(0), "{timing:?}");
    let cpu = cpu.end();
    assert_eq!(cpu.code, Some(0), "{}", cpu.stderr);
    let stays = stays(&shell.read("log"));
    let (alone, beside): (Vec<Stay>, Vec<Stay>) =
        stays.into_iter().partition(|stay| stay.0 == "timing");
    assert_eq!((alone.len(), beside.len()), (5, 300));
    for (at, one) in alone.iter().enumerate() {
        let others = beside.iter().chain(&alone[at + 1..]);
        let met: Vec<&Stay> = others.filter(|other| meet(one, other)).collect();
        assert!(met.is_empty(), "{one:?} met {met:?}");
    }
    let met = |(at, one)| beside[at + 1..].iter().any(|other| meet(one, other));
    assert!(beside.iter().enumerate().any(met), "cpu calls share");
    let last_alone = alone.iter().map(|stay| stay.2).max();
    let last_begun = beside.iter().map(|stay| stay.1).max();
    assert!(last_alone < last_begun, "it had to wait for all others");
}

/// CL-37, CA-62: who measures on the machine is left alone by agents, and they take no call that they could not run.
#[tokio::test]
async fn while_somebody_measures_agents_lease_nothing() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let path = |name: &str| shell.path().join(name).display().to_string();
    let source = "import os\ndef f(path): return os.path.exists(path)";
    let free = path("free");
    let call = json!({"id": 1, "source": source, "function": "f", "args": [free]});
    shell.write_lines("call.jsonl", &[call]);
    logged(&shell, "others", 20);
    let (ours, others) = (path("ours.lock"), path("others.lock"));
    let lock = MachineLock::at(&ours);
    let measuring = lock.exclusive("a measurement", |_| ()).await.expect("free");
    let words = ["--slots", "1", "--class", "timing", "--lock", &ours];
    let waits = agent(&shell, &server, "waits", &words);
    let words = ["--slots", "1", "--lock", &others];
    let _works = agent(&shell, &server, "works", &words);
    let waiting = batch_to("waits", &shell, &server, "call.jsonl", "cls=timing");
    let queued = || number(&shell, &server, "waits", "queued");
    wait_until("it is queued", || queued() == Some(1)).await;
    // An agent with another lock does a good deal of work meanwhile.
    let others = batch(&shell, &server, "others.jsonl", "").end();
    assert_eq!(others.code, Some(0), "{others:?}");
    assert_eq!(queued(), Some(1));
    shell.write("free", "");
    drop(measuring);
    let ended = waiting.end();
    assert_eq!(records(&ended.stdout)[0]["value"], true, "{ended:?}");
    // Who waits for the lock hears that it is to end.
    let measuring = lock.exclusive("another", |_| ()).await.expect("free");
    let waiting = batch_to("waits", &shell, &server, "call.jsonl", "cls=timing");
    wait_until("it is queued", || queued() == Some(1)).await;
    waits.signal(Signal::TERM);
    assert_eq!(waits.end().code, Some(0));
    drop((measuring, waiting));
}

/// CL-37, CL-6: a lock that cannot be used is told at once.
#[test]
fn an_agent_without_its_lock_ends() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let words = ["--slots", "1", "--lock", "/proc/none/lock"];
    let words = agent_words(&server, "none", &words);
    let ended = shell.fairtrial(words.iter().map(String::as_str)).run();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .stderr
            .starts_with("error: --lock: cannot use `/proc/none/lock`"),
        "{ended:?}"
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}
