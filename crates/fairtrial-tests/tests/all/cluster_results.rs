//! What becomes of a call whose inputs, envelope or result an agent has trouble with: agents are processes, servers and
//! stores are real.

#[expect(dead_code, reason = "the store's own tests use all of it")]
#[path = "../../../fairtrial-cluster/src/blobs/tests/server.rs"]
pub(super) mod blob_server;

use std::path::Path;
use std::time::{Duration, Instant};

use blob_server::{Act, Server, Speaks, TOKEN};
use fairtrial_cluster::envelope::{PackedParts, ResultEnvelope, TaskEnvelope};
use fairtrial_cluster::{
    Class, Dispatch, Endpoint, Owner, QueueName, RedisDispatch, Task, TaskId, Terms, Verdicts,
};
use fairtrial_exec::{Call, Level, Sandbox};
use fairtrial_tests::{RedisServer, Running, Shell, arguments, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::cluster_words::{self, records, status};

/// An agent that serves.
pub(super) fn agent(shell: &Shell, server: &RedisServer, more: &[&str]) -> Running {
    agent_with("1", shell, server, more)
}

fn agent_with(slots: &str, shell: &Shell, server: &RedisServer, more: &[&str]) -> Running {
    let words = [&["--slots", slots, "--lease", "3s"], more].concat();
    cluster_words::agent(shell, server, "one", &words)
}

/// An agent that has no store: there is no directory that it could share with anybody.
pub(super) fn agent_without_store(shell: &Shell, server: &RedisServer) -> Running {
    let words = cluster_words::agent_words(server, "bare", &["--slots", "2", "--cache", "cache"]);
    let agent = shell.fairtrial(words.iter().map(String::as_str));
    let names = ["XDG_CACHE_HOME", "HOME", "FAIRTRIAL_CACHE_DIR"];
    let agent = names
        .iter()
        .fold(agent, |agent, name| agent.env_remove(name));
    let mut agent = agent.start();
    assert!(agent.error_line().contains("serves"));
    agent
}

/// A directory that is a store, and its URL.
pub(super) fn directory(shell: &Shell, name: &str) -> String {
    let path = shell.path().join(name);
    std::fs::create_dir(&path).expect("a directory");
    format!("file://{}", path.display())
}

/// A store that can be told to fail.
pub(super) fn http_store(shell: &Shell) -> (Server, String) {
    let root = shell.path().join("http");
    std::fs::create_dir(&root).expect("a directory");
    let token = shell.write("token", TOKEN);
    let server = Server::new(Speaks::Http, &root);
    let (address, token) = (server.address(), token.display());
    let url = format!("http://{address}/b?token_file={token}");
    (server, url)
}

/// Calls on their way to agents.
pub(super) fn batch(
    shell: &Shell,
    server: &RedisServer,
    blobs: Option<&str>,
    calls: &[Json],
) -> Running {
    shell.write_lines("calls.jsonl", calls);
    let mut url = format!("{}?lease=3s", server.url());
    if let Some(blobs) = blobs {
        let blobs = blobs.replace('&', "%26").replace('?', "%3F");
        url += &format!("&blobs={blobs}");
    }
    let words = ["batch", "calls.jsonl", "--backend", &url];
    shell.fairtrial(words).start()
}

/// One of the only queue's numbers.
pub(super) fn number(shell: &Shell, server: &RedisServer, what: &str) -> u64 {
    let told = status(shell, server);
    told["queues"][0][what].as_u64().unwrap_or(0)
}

fn message(record: &Json) -> &str {
    assert_eq!(record["verdict"], Json::Null, "{record}");
    record["error"]["message"].as_str().expect("a message")
}

/// CL-3, CL-13: a candidate that gives its exception a name of 100,000 letters is told as any other, and its agent lives.
#[test]
fn an_exception_with_a_name_without_end_harms_nobody() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let agent = agent(&shell, &server, &[]);
    let source = "def f(): raise type('A' * 100_000, (Exception,), {})('x')";
    let calls = [
        json!({"id": 1, "source": source, "function": "f"}),
        json!({"id": 2, "source": "def f(): return 1", "function": "f"}),
    ];
    let ended = batch(&shell, &server, None, &calls).end();
    let records = records(&ended.stdout);
    assert_eq!(records[0]["verdict"], "exception", "{ended:?}");
    let kind = records[0]["error"]["type"].as_str().expect("a name");
    assert_eq!(kind, "A".repeat(500));
    assert_eq!(records[1]["verdict"], "ok", "{ended:?}");
    agent.signal(Signal::TERM);
    assert_eq!(agent.end().code, Some(0));
}

/// Says that it began, and returns something large.
const LARGE: &str = "import time
def f(path):
    open(path, 'a').write('%f\\n' % time.monotonic())
    return 'x' * 300_000";

pub(super) fn large_call(shell: &Shell) -> Json {
    shell.write("begun", "");
    let begun = shell.path().join("begun").display().to_string();
    json!({"id": 1, "source": LARGE, "function": "f", "args": [begun]})
}

/// When it began, each time.
pub(super) fn begun(shell: &Shell) -> Vec<f64> {
    let times = shell.read("begun");
    let times = times.lines().map(|line| line.parse().expect("a time"));
    times.collect()
}

/// CL-51: what the store takes from nobody is an error, and is not run again.
#[test]
fn a_result_larger_than_the_store_takes_ends_its_call() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let (_store, url) = http_store(&shell);
    let _agent = agent(&shell, &server, &["--blobs", &format!("{url}&max=100K")]);
    let calls = [large_call(&shell)];
    let ended = batch(&shell, &server, None, &calls).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let records = records(&ended.stdout);
    let message = message(&records[0]);
    assert!(message.ends_with("(too_large)"), "{message}");
    assert_eq!(begun(&shell).len(), 1);
}

/// CL-10, CL-27: without room in the store a call is given back, and its agent asks for the next one after a while only.
#[tokio::test]
async fn a_result_that_the_store_has_no_room_for_is_found_again() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let (store, url) = http_store(&shell);
    let _agent = agent(&shell, &server, &["--blobs", &url]);
    store.fail("PUT", Act::Crowded(1000)); // what the agent tries it with has room
    let calls = [large_call(&shell)];
    let running = batch(&shell, &server, Some(&url), &calls);
    wait_until("its agent is not well", || {
        status(&shell, &server)["agents"][0]["state"] == "unhealthy"
    })
    .await;
    wait_until("it began again", || begun(&shell).len() >= 2).await;
    store.work_again();
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let begun = begun(&shell);
    assert!(
        begun.windows(2).all(|two| two[1] - two[0] > 2.0),
        "{begun:?}"
    );
}

/// CL-51: without a store a large result is an error that says what to do.
#[test]
fn a_large_result_without_a_store_names_the_option() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let _agent = agent_without_store(&shell, &server);
    let calls = [large_call(&shell)];
    let ended = batch(&shell, &server, None, &calls).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let records = records(&ended.stdout);
    let message = message(&records[0]);
    assert!(
        message.contains("--blobs") && message.ends_with("(no_store)"),
        "{message}"
    );
    assert_eq!(begun(&shell).len(), 1);
}

/// A call with large arguments, and one with a directory.
pub(super) fn calls_with_inputs(shell: &Shell) -> [Json; 2] {
    shell.write("lib/mine.py", "VALUE = 5");
    let source = "def f():\n    import mine\n    return mine.VALUE";
    [
        json!({"id": 1, "source": "def f(x): return len(x)", "function": "f", "args": ["y".repeat(100_000)]}),
        json!({"id": 2, "source": source, "function": "f", "python_path": ["lib"]}),
    ]
}

/// CL-25, CL-30: an input that is in no store is asked for three times, and then its call has ended.
#[test]
fn inputs_that_are_nowhere_end_their_calls_after_a_while() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let (ours, theirs) = (directory(&shell, "ours"), directory(&shell, "theirs"));
    let _agent = agent_with("2", &shell, &server, &["--blobs", &theirs]);
    let began = Instant::now();
    let calls = calls_with_inputs(&shell);
    let ended = batch(&shell, &server, Some(&ours), &calls).end();
    assert!(began.elapsed() > Duration::from_secs(9), "it was patient");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for record in records(&ended.stdout) {
        let message = message(&record);
        assert!(message.ends_with("(blob_missing)"), "{message}");
    }
}

/// CL-25: inputs that come late are waited for, directories too.
#[tokio::test]
async fn inputs_that_come_late_are_used() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let (ours, theirs) = (directory(&shell, "ours"), directory(&shell, "theirs"));
    let _agent = agent_with("2", &shell, &server, &["--blobs", &theirs]);
    let calls = calls_with_inputs(&shell);
    let running = batch(&shell, &server, Some(&ours), &calls);
    wait_until("both are leased", || number(&shell, &server, "leased") == 2).await;
    copy(&shell.path().join("ours"), &shell.path().join("theirs"));
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let values: Vec<Json> = records(&ended.stdout)
        .into_iter()
        .map(|record| record["value"].clone())
        .collect();
    assert_eq!(values, [json!(100_000), json!(5)]);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(std::fs::copy(&path, &to).expect("it is copied")),
        }
    }
}

const KEY: &str = "key";

/// A queue of the test's own, without a coordinator.
struct Queue {
    dispatch: RedisDispatch,
    name: QueueName,
}

impl Queue {
    async fn open(server: &RedisServer) -> Self {
        let endpoint = Endpoint::parse(&server.url()).expect("a URL");
        let dispatch = RedisDispatch::new(endpoint).expect("an address");
        let name = QueueName::new("own").expect("a name");
        let owner = Owner {
            host: "here".into(),
            pid: 1,
            nonce: "n".into(),
        };
        let text = || "{}".to_owned();
        let terms = Terms::new(Verdicts {
            queue_timeout: text(),
            cancelled: text(),
            lost: text(),
            setup_failed: text(),
            invalid: text(),
        });
        let opened = dispatch.open(&name, &owner, &terms).await;
        opened.expect("it is open");
        Self { dispatch, name }
    }

    async fn submit(&self, envelope: Vec<u8>) -> TaskId {
        let task = Task {
            id: TaskId::of(&self.name, KEY, &envelope),
            class: Class::Cpu,
            envelope,
            queue_timeout: None,
        };
        let submitted = self.dispatch.submit(&self.name, &task).await;
        submitted.expect("it is there");
        task.id
    }

    /// Its result, if there is one by now.
    async fn result(&self, task: &TaskId) -> Option<ResultEnvelope> {
        let asked = std::slice::from_ref(task);
        let results = self.dispatch.collect(&self.name, asked, &[]).await;
        let (_, bytes) = results.expect("the server answers").pop()?;
        Some(ResultEnvelope::read(&bytes).expect("it can be read"))
    }
}

/// CL-24, CL-30: what is no envelope ends as an error, and the agent goes on.
#[tokio::test]
async fn an_envelope_that_cannot_be_read_ends_as_invalid() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let _agent = agent(&shell, &server, &[]);
    let queue = Queue::open(&server).await;
    let sound = TaskEnvelope::seal(
        &call("def f(): return 1"),
        KEY,
        PackedParts::default(),
        None,
    );
    let sound = sound.expect("it fits").bytes;
    let half = sound[..sound.len() / 2].to_vec();
    let unsound = br#"{"protocol": "1.0", "call": {"work": {"kind": "dance"}}}"#.to_vec();
    for damaged in [b"not JSON".to_vec(), half, unsound] {
        let task = queue.submit(damaged).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        let result = loop {
            if let Some(result) = queue.result(&task).await {
                break result;
            }
            assert!(Instant::now() < deadline, "it does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let error = result.to_outcome(|_| None).expect_err("no outcome");
        assert_eq!(error.code.name(), "invalid");
    }
    let task = queue.submit(sound).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while queue.result(&task).await.is_none() {
        assert!(Instant::now() < deadline, "it does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn call(source: &str) -> Call {
    let mut call = Call::source(source, "f", arguments("[]"));
    call.sandbox = Sandbox::new(Level::None);
    call
}

/// Memory of a process that is its own, in bytes: a value's mapped pages are its file's.
fn own_memory(agent: &Running) -> u64 {
    let path = format!("/proc/{}/status", agent.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    number.expect("a number") << 10
}

/// CL-54, X9: a result of 200 MB passes through an agent that does not grow by it.
#[tokio::test]
async fn an_agent_does_not_grow_with_a_result() {
    const BYTES: u64 = 200_000_000;
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let blobs = directory(&shell, "blobs");
    let agent = agent(&shell, &server, &["--blobs", &blobs]);
    let queue = Queue::open(&server).await;
    let source = format!("def f(): return bytes({BYTES})");
    let sealed = TaskEnvelope::seal(&call(&source), KEY, PackedParts::default(), None);
    let before = own_memory(&agent);
    let task = queue.submit(sealed.expect("it fits").bytes).await;
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut most = before;
    let result = loop {
        most = most.max(own_memory(&agent));
        if let Some(result) = queue.result(&task).await {
            break result;
        }
        assert!(Instant::now() < deadline, "it does not end");
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let stored: Vec<u64> = result.blobs().iter().map(|blob| blob.bytes).collect();
    assert_eq!(stored, [BYTES + 9], "a tag and a length before it");
    assert!(most - before < 40 << 20, "{before} grew to {most}");
}

/// CL-7: whatever an agent waits for of a slow store, a second signal ends it, and what it held goes back uncounted.
#[tokio::test]
async fn a_second_signal_ends_an_agent_whose_store_is_slow() {
    for method in ["GET", "PUT"] {
        let Some(server) = RedisServer::start() else {
            return;
        };
        let shell = Shell::new();
        let (store, url) = http_store(&shell);
        let leaving = agent(&shell, &server, &["--blobs", &url]);
        let tried = store.heard(method).len();
        let call = match method {
            "GET" => calls_with_inputs(&shell)[1].clone(),
            _ => large_call(&shell),
        };
        store.fail(method, Act::Hang);
        let running = batch(&shell, &server, Some(&url), &[call]);
        wait_until("it waits for the store", || {
            store.heard(method).len() > tried
        })
        .await;
        leaving.signal(Signal::TERM);
        wait_until("it heard the first", || {
            status(&shell, &server)["agents"][0]["state"] == "draining"
        })
        .await;
        let told = Instant::now();
        leaving.signal(Signal::TERM);
        assert_eq!(leaving.end().code, Some(0));
        assert!(told.elapsed() < Duration::from_secs(20), "{method}");
        assert_eq!(number(&shell, &server, "parked"), 1, "{method}");
        assert_eq!(number(&shell, &server, "leased"), 0, "{method}");
        drop(running);
    }
}

/// CL-7, CL-10: an agent that is ill, and looks whether a slow store works again, ends when it is told to.
#[tokio::test]
async fn an_agent_that_is_ill_ends_when_it_is_told_to() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let (store, url) = http_store(&shell);
    let leaving = agent(&shell, &server, &["--blobs", &url]);
    store.fail("PUT", Act::Status(507, ""));
    let running = batch(&shell, &server, Some(&url), &[large_call(&shell)]);
    wait_until("it is ill", || {
        status(&shell, &server)["agents"][0]["state"] == "unhealthy"
    })
    .await;
    let tried = store.heard("PUT").len();
    store.fail("PUT", Act::Hang);
    wait_until("it waits for the store", || {
        store.heard("PUT").len() > tried
    })
    .await;
    leaving.signal(Signal::TERM);
    let told = Instant::now();
    assert_eq!(leaving.end().code, Some(0));
    assert!(told.elapsed() < Duration::from_secs(20));
    drop(running);
}

/// CL-7: who is told to end while it tries a store that does not answer, does.
#[tokio::test]
async fn an_agent_that_has_not_begun_to_serve_can_be_ended() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let (store, url) = http_store(&shell);
    store.fail("PUT", Act::Hang);
    let words = ["--slots", "1", "--blobs", &url];
    let words = cluster_words::agent_words(&server, "one", &words);
    let agent = shell.fairtrial(words.iter().map(String::as_str)).start();
    wait_until("it tries the store", || !store.heard("PUT").is_empty()).await;
    agent.signal(Signal::TERM);
    assert_eq!(agent.end().code, Some(0));
}
