//! Faults between agents, server and store that random kills do not reach (CL-76); `.ci/chaos.py` has the others.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fairtrial_tests::{RedisServer, Running, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::cluster_words::records;

/// An agent that serves from there.
fn agent(shell: &Shell, url: &str, name: &str, more: &[&str]) -> Running {
    let words = ["agent", "--redis", url, "--slots", "1", "--name", name];
    let terms = ["--sandbox", "none", "--open-server-ok", "--lease", "1s"];
    let words = words.into_iter().chain(terms).chain(more.iter().copied());
    let mut agent = shell.fairtrial(words).start();
    let line = agent.error_line();
    assert!(line.contains(&format!("agent {name} serves")), "{line}");
    agent
}

/// One of the only queue's numbers.
fn number(shell: &Shell, url: &str, what: &str) -> u64 {
    let told = shell
        .fairtrial(["status", "--cluster", url, "--json"])
        .run();
    let told: Json = serde_json::from_str(&told.stdout).unwrap_or(Json::Null);
    told["queues"][0][what].as_u64().unwrap_or(0)
}

fn socket_of(server: &RedisServer) -> PathBuf {
    let url = server.url();
    PathBuf::from(url.strip_prefix("redis+unix://").expect("a socket"))
}

/// What the server answers to a command of the test's own.
fn command(server: &RedisServer, words: &str) -> String {
    let mut stream = UnixStream::connect(socket_of(server)).expect("it listens");
    let line = format!("{words}\r\nQUIT\r\n");
    stream.write_all(line.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// A way to the server that can be cut: whoever is connected is thrown out, and nobody gets through.
struct Way {
    socket: PathBuf,
    is_cut: Arc<AtomicBool>,
    // A plain mutex: held to add an end, or to shut all of them.
    ends: Arc<Mutex<Vec<UnixStream>>>,
}

impl Way {
    fn open(dir: &Path, server: &RedisServer) -> Self {
        let socket = dir.join("way");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (is_cut, ends) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let way = Self {
            socket,
            is_cut: Arc::clone(&is_cut),
            ends: Arc::clone(&ends),
        };
        let to = socket_of(server);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if !is_cut.load(Ordering::SeqCst) {
                    join(near, &to, &ends);
                }
            }
        });
        way
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", self.socket.display())
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        for end in ends.drain(..) {
            end.shutdown(std::net::Shutdown::Both).ok(); // it may have ended
        }
    }

    fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

/// Passes on what either end says, until one of them is shut.
fn join(near: UnixStream, to: &Path, ends: &Mutex<Vec<UnixStream>>) {
    let far = UnixStream::connect(to).expect("the server listens");
    let again = |stream: &UnixStream| stream.try_clone().expect("a descriptor");
    let mut kept = ends.lock().unwrap_or_else(PoisonError::into_inner);
    kept.extend([again(&near), again(&far)]);
    for (mut from, mut into) in [(again(&near), again(&far)), (far, near)] {
        std::thread::spawn(move || {
            std::io::copy(&mut from, &mut into).ok(); // cut
            into.shutdown(std::net::Shutdown::Both).ok();
        });
    }
}

/// CL-16, CL-57, X7: an agent that nobody hears for two leases loses what it runs, kills it, and serves again.
#[tokio::test]
async fn an_agent_cut_off_for_two_leases_loses_its_call_and_nothing_else() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let way = Way::open(shell.path(), &server);
    shell.write("begun", "");
    let begun = shell.path().join("begun").display().to_string();
    // On the agent that is cut off it never ends by itself.
    let source = "import os, time
def f(path):
    node = os.environ['FAIRTRIAL_NODE_ID']
    open(path, 'a').write('%s:%d ' % (node, os.getpid()))
    while node == 'far':
        time.sleep(0.1)
    return node";
    let mut calls = vec![json!({"id": 0, "source": source, "function": "f", "args": [begun]})];
    calls.extend((1..50).map(
        |id| json!({"id": id, "source": "def f(x): return x", "function": "f", "args": [id], "isolation": "reuse"}),
    ));
    shell.write_lines("calls.jsonl", &calls);
    let far = agent(&shell, &way.url(), "far", &[]);
    let url = format!("{}?lease=1s", server.url());
    let running = shell
        .fairtrial(["batch", "calls.jsonl", "--backend", &url])
        .start();
    wait_until("it began", || shell.read("begun").contains("far")).await;
    way.cut();
    let _near = agent(&shell, &server.url(), "near", &[]);
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let records = records(&ended.stdout);
    assert_eq!(records[0]["value"], "near", "{records:?}");
    let others = records[1..].iter().map(|record| record["value"].as_u64());
    assert!(others.eq((1..50).map(Some)), "{records:?}");
    let begun = shell.read("begun");
    let lost = begun.split_once("far:").expect("it began there").1;
    let lost = PathBuf::from("/proc").join(lost.split_whitespace().next().expect("a pid"));
    assert!(lost.exists(), "nobody has told it yet");
    way.mend();
    wait_until("its tree is killed", || !lost.exists()).await;
    assert_eq!(shell.read("begun").split_whitespace().count(), 2);
    far.signal(Signal::TERM);
    assert_eq!(far.end().code, Some(0));
}

/// CL-52, X9: a result whose blob was cut short is an error with its name, never a wrong value.
#[tokio::test]
async fn a_result_whose_blob_was_cut_short_is_told_as_corrupt() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let store = shell.path().join("blobs");
    std::fs::create_dir(&store).expect("a directory");
    let blobs = format!("file://{}", store.display());
    let call = json!({"id": 0, "source": "def f(): return 'x' * 300_000", "function": "f"});
    shell.write_lines("calls.jsonl", &[call]);
    let url = format!("{}?blobs={blobs}", server.url());
    let running = shell
        .fairtrial(["batch", "calls.jsonl", "--backend", &url])
        .start();
    wait_until("it is queued", || {
        number(&shell, &server.url(), "queued") == 1
    })
    .await;
    running.signal(Signal::STOP);
    let _agent = agent(&shell, &server.url(), "one", &["--blobs", &blobs]);
    wait_until("it is recorded", || {
        number(&shell, &server.url(), "recorded") == 1
    })
    .await;
    assert_eq!(cut_short(&store), 1);
    running.signal(Signal::CONT);
    let ended = running.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let record = &records(&ended.stdout)[0];
    assert_eq!(record["verdict"], Json::Null);
    let message = record["error"]["message"].as_str().expect("a message");
    assert!(message.contains("(blob_corrupt)"), "{message}");
}

/// Takes a byte of every blob below; how many there are.
fn cut_short(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let cut = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            return cut_short(&path);
        }
        let bytes = std::fs::read(&path).expect("a blob");
        if bytes.len() < 300_000 {
            return 0; // the agent's own try of the store
        }
        std::fs::remove_file(&path).expect("it is ours");
        std::fs::write(&path, &bytes[1..]).expect("it is ours");
        1
    });
    cut.sum()
}

const STUDY: &str = "study_id: flushed
title: Flushed
factors: {f: [1, 2]}
agents: {a: {python: 'agent.py:go', isolation: reuse}}
problems: {p: {payload: {x: 1}}}
run_budget: {replicates: 20}
seed_policy: {base_seed: 5}
";
const AGENT: &str = "import time
def go(run):
    time.sleep(0.02)
    return {'output': {'v': run['seed'] % 11}}
";

/// CL-58, X13: a server that forgot everything is given again what is outstanding, and the study ends.
#[tokio::test]
async fn a_study_outlives_a_server_that_forgot_everything() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    shell.write("study/study.yaml", STUDY); // beside nothing that changes: it is packed
    shell.write("study/agent.py", AGENT);
    let url = server.url();
    let _agents = ["one", "two"].map(|name| agent(&shell, &url, name, &[]));
    let backend = format!("{url}?lease=1s");
    let run = [
        "run",
        "study/study.yaml",
        "--out",
        "out",
        "--backend",
        &backend,
    ];
    let running = shell.fairtrial(run).start();
    wait_until("some runs are done", || {
        number(&shell, &url, "recorded") >= 3
    })
    .await;
    assert!(command(&server, "FLUSHALL").contains("OK"));
    let ended = running.end();
    let attempts = shell.read("out/attempts.csv");
    let failed: Vec<&str> = attempts
        .lines()
        .filter(|line| line.contains(",lost,"))
        .collect();
    assert_eq!(ended.code, Some(0), "{ended:?}: {failed:?}");
    assert!(ended.stdout.contains("40 success"), "{ended:?}");
    let queue = shell
        .fairtrial(["status", "--cluster", &url, "--json"])
        .run();
    let queue: Json = serde_json::from_str(&queue.stdout).expect("JSON");
    let queue = queue["queues"][0]["queue"]
        .as_str()
        .expect("a queue")
        .to_owned();
    let events = command(&server, &format!("XRANGE ft:{{{queue}}}:ev - +"));
    assert!(events.contains("queue.repaired"), "{events}");
}
