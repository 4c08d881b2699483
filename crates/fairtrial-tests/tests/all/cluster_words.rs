//! What tests of agents are told in: agents that are processes, calls that wait for a file, what a server knows.

use std::path::Path;
use std::time::Duration;

use fairtrial_cluster::{Dispatch as _, Endpoint, NewEvent, QueueName, RedisDispatch, StreamId};
use fairtrial_tests::{RedisServer, Running, Shell};
use serde_json::{Value as Json, json};

/// The words of an agent, with these besides. Its calls are not confined, unless these say so.
pub(crate) fn agent_words(server: &RedisServer, name: &str, more: &[&str]) -> Vec<String> {
    let url = server.url();
    let words = ["agent", "--redis", &url, "--name", name, "--open-server-ok"];
    let bare: &[&str] = match more.contains(&"--sandbox") {
        true => &[],
        false => &["--sandbox", "none"],
    };
    let words = words.iter().chain(bare).chain(more);
    words.map(|word| (*word).to_owned()).collect()
}

/// An agent that serves.
pub(crate) fn agent(shell: &Shell, server: &RedisServer, name: &str, more: &[&str]) -> Running {
    let words = agent_words(server, name, more);
    let mut agent = shell.fairtrial(words.iter().map(String::as_str)).start();
    let line = agent.error_line();
    assert!(line.contains(&format!("agent {name} serves")), "{line}");
    agent
}

/// Calls of a file, handed to the queue `q` on these terms.
pub(crate) fn batch(shell: &Shell, server: &RedisServer, calls: &str, query: &str) -> Running {
    batch_to("q", shell, server, calls, query)
}

/// As [`batch`], to a queue of this name.
pub(crate) fn batch_to(
    queue: &str,
    shell: &Shell,
    server: &RedisServer,
    calls: &str,
    query: &str,
) -> Running {
    let url = format!("{}?queue={queue}&{query}", server.url());
    let batch = shell.fairtrial(["batch", calls, "--backend", &url]);
    batch.patience(Duration::from_secs(120)).start()
}

pub(crate) fn status(shell: &Shell, server: &RedisServer) -> Json {
    let url = server.url();
    let words = ["status", "--cluster", &url, "--json"];
    let status = shell.fairtrial(words).run();
    assert_eq!(status.code, Some(0), "{status:?}");
    serde_json::from_str(&status.stdout).expect("JSON")
}

/// One number of one queue; none if there is no such queue.
pub(crate) fn number(shell: &Shell, server: &RedisServer, queue: &str, what: &str) -> Option<u64> {
    let status = status(shell, server);
    let mut queues = status["queues"].as_array().expect("queues").iter();
    queues.find(|found| found["queue"] == queue)?[what].as_u64()
}

/// An agent as `status` tells of it; null if it does not.
pub(crate) fn agent_status(shell: &Shell, server: &RedisServer, name: &str) -> Json {
    let status = status(shell, server);
    let mut agents = status["agents"].as_array().expect("agents").iter();
    let found = agents.find(|agent| agent["name"] == name);
    found.cloned().unwrap_or(Json::Null)
}

pub(crate) fn records(text: &str) -> Vec<Json> {
    let records = text.lines().map(serde_json::from_str);
    records.map(|record| record.expect("a record")).collect()
}

/// Says who runs it and in which process, and then waits for a file, unless it is run by `last`.
const HELD: &str = "import os, time
def f(begun, go):
    node = os.environ['FAIRTRIAL_NODE_ID']
    with open(begun, 'a') as log: log.write('%s %d\\n' % (node, os.getpid()))
    while node != 'last' and not os.path.exists(go): time.sleep(0.01)
    return node";

/// Writes so many of these to a file of calls. They end when there is a file `go`.
pub(crate) fn held_calls(shell: &Shell, file: &str, count: usize) {
    shell.write("begun", "");
    let paths = ["begun", "go"].map(|name| shell.path().join(name).display().to_string());
    let call = |id| json!({"id": id, "source": HELD, "function": "f", "args": paths});
    let calls: Vec<Json> = (0..count).map(call).collect();
    shell.write_lines(file, &calls);
}

/// Who began held calls, and in which processes.
pub(crate) fn begun(shell: &Shell) -> Vec<(String, u32)> {
    let begun = shell.read("begun");
    let one = |line: &str| {
        let (node, pid) = line.split_once(' ').expect("two words");
        (node.to_owned(), pid.parse().expect("a number"))
    };
    begun.lines().map(one).collect()
}

/// Whether somebody of this name began one.
pub(crate) fn has_begun(shell: &Shell, name: &str) -> bool {
    shell.read("begun").contains(&format!("{name} "))
}

/// Whether it runs; a zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// What is asked of the server directly.
pub(crate) fn command<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut connection = client.get_connection().expect("it serves");
    let mut cmd = redis::cmd(words[0]);
    let answer = cmd.arg(&words[1..]).query(&mut connection);
    answer.expect("an answer")
}

pub(crate) fn dispatch(server: &RedisServer) -> RedisDispatch {
    let endpoint = Endpoint::parse(&server.url()).expect("an address");
    RedisDispatch::new(endpoint).expect("a client")
}

/// Events of this name in the queue `q`.
pub(crate) async fn told(dispatch: &RedisDispatch, name: &str) -> Vec<NewEvent> {
    let queue = QueueName::new("q").expect("a name");
    let events = dispatch.events(&queue, StreamId::START, Duration::ZERO);
    let events = events.await.expect("the server answers").events;
    let events = events.into_iter().map(|stored| stored.event);
    events.filter(|event| event.name == name).collect()
}

/// Waits until the queue `q` is told this of an agent.
pub(crate) async fn wait_for(dispatch: &RedisDispatch, name: &str, agent: &str) {
    let told_of = async {
        while !told(dispatch, name)
            .await
            .iter()
            .any(|event| event.agent.as_deref() == Some(agent))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), told_of).await;
    assert!(in_time.is_ok(), "waited in vain for {name} of {agent}");
}
