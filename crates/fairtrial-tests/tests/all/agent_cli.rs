//! What agents are to those around them: others on the same machine, a store, a server's other users. Real servers, and
//! agents that are processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fairtrial_cluster::{
    Class, ClusterBackend, ClusterConfig, Dispatch as _, Endpoint, Opened, Options, Owner,
    QueueName, RedisDispatch, StreamId, Task, TaskId, Terms, Verdicts,
};
use fairtrial_exec::value::arguments_from_json;
use fairtrial_exec::{
    Arguments, Backend as _, Call, Isolation, MachineLock, PickledWork, PythonTerms, ResultFormat,
    Shutdown, SpillDir, SpillPolicy, Verdict, Work,
};
use fairtrial_tests::{RedisServer, Running, Shell, bare, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

/// An agent that serves, with these words besides.
fn agent(shell: &Shell, server: &RedisServer, name: &str, more: &[&str]) -> Running {
    let url = server.url();
    let words = ["agent", "--redis", &url, "--name", name];
    let terms = ["--open-server-ok", "--lease", "3s"];
    let words = words.into_iter().chain(terms).chain(more.iter().copied());
    let mut agent = shell.fairtrial(words).start();
    let line = agent.error_line();
    assert!(line.contains(&format!("agent {name} serves")), "{line}");
    agent
}

/// The words of an agent whose calls are not confined.
fn bare_agent<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &["--sandbox", "none"]].concat()
}

fn status(shell: &Shell, server: &RedisServer) -> Json {
    let url = server.url();
    let words = ["status", "--cluster", &url, "--json"];
    let status = shell.fairtrial(words).run();
    assert_eq!(status.code, Some(0), "{status:?}");
    serde_json::from_str(&status.stdout).expect("JSON")
}

/// One number of one queue; none if there is no such queue.
fn number(status: &Json, queue: &str, what: &str) -> Option<u64> {
    let queues = status["queues"].as_array().expect("queues");
    let found = queues.iter().find(|found| found["queue"] == queue)?;
    found[what].as_u64()
}

fn records(text: &str) -> Vec<Json> {
    let records = text.lines().map(serde_json::from_str);
    records.map(|record| record.expect("a record")).collect()
}

fn batch(shell: &Shell, server: &RedisServer, calls: &str, query: &str) -> Running {
    let url = format!("{}?lease=3s&{query}", server.url());
    shell
        .fairtrial(["batch", calls, "--backend", &url])
        .patience(Duration::from_secs(120))
        .start()
}

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
    let one = bare_agent(&["--slots", "2", "--class", "cpu"]);
    let two = bare_agent(&["--slots", "2", "--class", "cpu", "--class", "timing"]);
    let _agents =
        [("one", one), ("two", two)].map(|(name, words)| agent(&shell, &server, name, &words));
    let cpu = batch(&shell, &server, "cpu.jsonl", "");
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
    let words = bare_agent(&["--slots", "1", "--class", "timing", "--lock", &ours]);
    let waits = agent(&shell, &server, "waits", &words);
    let words = bare_agent(&["--slots", "1", "--lock", &others]);
    let _works = agent(&shell, &server, "works", &words);
    let waiting = batch(&shell, &server, "call.jsonl", "queue=waits&cls=timing");
    let queued = || number(&status(&shell, &server), "waits", "queued");
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
    let waiting = batch(&shell, &server, "call.jsonl", "queue=waits&cls=timing");
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
    let url = server.url();
    let words = ["agent", "--redis", &url, "--open-server-ok", "--slots", "1"];
    let lock = ["--lock", "/proc/none/lock"];
    let ended = shell.fairtrial(words.into_iter().chain(lock)).run();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .stderr
            .starts_with("error: --lock: cannot use `/proc/none/lock`"),
        "{ended:?}"
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

/// Waits for a file.
const HELD: &str = "import os, time
def f(begun, go):
    open(begun, 'a').write('x')
    while not os.path.exists(go): time.sleep(0.01)";

/// CL-4: as many as there are slots, and what waits can be had by others.
#[tokio::test]
async fn an_agent_leases_no_more_than_it_has_slots() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let path = |name: &str| shell.path().join(name).display().to_string();
    shell.write("begun", "");
    let arguments = [path("begun"), path("go")];
    let call = |id| json!({"id": id, "source": HELD, "function": "f", "args": arguments});
    let calls: Vec<Json> = (0..6).map(call).collect();
    shell.write_lines("calls.jsonl", &calls);
    let _first = agent(&shell, &server, "first", &bare_agent(&["--slots", "2"]));
    let running = batch(&shell, &server, "calls.jsonl", "queue=q");
    let leased = || {
        let status = status(&shell, &server);
        let of = |what| number(&status, "q", what).unwrap_or(0);
        (of("leased"), of("queued"))
    };
    wait_until("two run", || shell.read("begun").len() == 2).await;
    wait_until("all are there", || leased() == (2, 4)).await;
    let _second = agent(&shell, &server, "second", &bare_agent(&["--slots", "1"]));
    wait_until("another has one", || shell.read("begun").len() == 3).await;
    assert_eq!(leased(), (3, 3));
    shell.write("go", "");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(shell.read("begun").len(), 6);
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
    let asked = ["none", "limits", "strict"];
    shell.write_lines("calls.jsonl", &asked.map(call));
    for (floor, expected) in [
        ("none", ["none", "limits", "strict"]),
        ("limits", ["limits", "limits", "strict"]),
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

fn dispatch(server: &RedisServer) -> RedisDispatch {
    let endpoint = Endpoint::parse(&server.url()).expect("an address");
    RedisDispatch::new(endpoint).expect("a client")
}

/// What events of this name say, in a queue.
async fn told(dispatch: &RedisDispatch, queue: &str, name: &str) -> Vec<String> {
    let queue = QueueName::new(queue).expect("a name");
    let events = dispatch.events(&queue, StreamId::START, Duration::ZERO);
    let events = events.await.expect("the server answers").events;
    let named = events
        .into_iter()
        .filter(|stored| stored.event.name == name);
    named.map(|stored| stored.event.data).collect()
}

fn state(shell: &Shell, server: &RedisServer) -> Json {
    status(shell, server)["agents"][0]["state"].clone()
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
    let words = ["--slots", "1", "--blobs", &blobs, "--sandbox", "none"];
    let _agent = agent(&shell, &server, "ill", &words);
    let source = "def f(): return 'x' * 300_000";
    let calls = [json!({"id": 1, "source": source, "function": "f"})];
    shell.write_lines("calls.jsonl", &calls);
    std::fs::rename(&store, &aside).expect("it is ours");
    let running = batch(
        &shell,
        &server,
        "calls.jsonl",
        &format!("queue=q&blobs={blobs}"),
    );
    wait_until("it is ill", || state(&shell, &server) == "unhealthy").await;
    let known = status(&shell, &server);
    let of = |what| number(&known, "q", what);
    assert_eq!((of("leased"), of("uncollected")), (Some(0), Some(0)));
    std::fs::rename(&aside, &store).expect("it is ours");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(state(&shell, &server), "up");
    let dispatch = dispatch(&server);
    let why = told(&dispatch, "q", "agent.unhealthy").await;
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why[0].contains(&blobs), "{why:?}");
    assert!(!told(&dispatch, "q", "agent.up").await.is_empty());
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
    let _agent = agent(&shell, &server, "ill", &bare_agent(&["--slots", "1"]));
    let ended = batch(&shell, &server, "calls.jsonl", "queue=q").end();
    let records = records(&ended.stdout);
    let error = records[0]["error"]["message"].as_str().expect("an error");
    assert!(
        error.contains("(lost)") && error.contains("launcher"),
        "{error}"
    );
    assert_eq!(records[1]["verdict"], "ok", "{records:?}");
    let dispatch = dispatch(&server);
    let why = told(&dispatch, "q", "agent.unhealthy").await;
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why[0].contains("launcher"), "{why:?}");
    wait_until("it is well", || state(&shell, &server) == "up").await;
}

/// A backend whose calls are pickled by that Python.
fn pickling(server: &RedisServer, shell: &Shell, python: &str) -> ClusterBackend<RedisDispatch> {
    let options = Options::default();
    let config = ClusterConfig {
        queue: QueueName::new("pickles").expect("a name"),
        named: false,
        class: options.class,
        weight: options.weight,
        max_queue: options.max_queue,
        max_inflight: None,
        on_full: options.on_full,
        server_timeout: options.server_timeout,
        lease: Duration::from_secs(3),
        spill: SpillPolicy {
            dir: SpillDir::new(shell.path()),
            memfd_cap_bytes: u64::MAX,
            memory_limit_bytes: None,
        },
        python: Some(python.to_owned()),
    };
    ClusterBackend::new(dispatch(server), None, config)
}

/// CL-41, CL-22: what another version of Python pickled is refused by every agent, with what each has; source text needs
/// no version.
#[tokio::test]
async fn what_another_python_pickled_is_refused() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let words = bare_agent(&["--slots", "1"]);
    let _agents = ["one", "two"].map(|name| agent(&shell, &server, name, &words));
    let backend = pickling(&server, &shell, "2.6");
    let terms = PythonTerms {
        python: "python3".to_owned(),
        python_path: Vec::new(),
        preload: Vec::new(),
        isolation: Isolation::Fresh,
        result: ResultFormat::Data,
        host: None,
    };
    let pickled = Call::new(Work::Pickled(PickledWork {
        body: Arguments::Bytes(b"never read".to_vec()),
        python: terms,
    }));
    let refused = backend.execute(pickled).await.expect("an outcome");
    assert_eq!(refused.verdict, Verdict::SetupFailed);
    let why = refused.error.expect("a reason").message;
    for name in ["one", "two"] {
        let said = format!("{name}: it was pickled by Python 2.6, and `python3` is 3.");
        assert!(why.contains(&said), "{why}");
    }
    let arguments = arguments_from_json(&json!([]), &json!({})).expect("plain");
    let source = bare::source("def f(): return 1", "f", arguments);
    let ran = backend.execute(source).await.expect("an outcome");
    assert_eq!(ran.verdict, Verdict::Ok, "{ran:?}");
    backend.shutdown(Shutdown::now()).await;
}

/// Blobs that are in a store.
fn blobs(store: &Path) -> Vec<PathBuf> {
    let below = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        entries.map(|entry| entry.expect("it can be listed").path())
    };
    let folders = below(&store.join("sha256"));
    folders
        .flat_map(|folder| below(&folder).collect::<Vec<_>>())
        .collect()
}

/// They were stored two days ago.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock that dates files is the one of the wall"
)]
fn age(store: &Path) {
    let then = SystemTime::now() - Duration::from_secs(48 * 60 * 60);
    for path in blobs(store) {
        let file = File::options().write(true).open(path).expect("a blob");
        file.set_modified(then).expect("it is ours");
    }
}

/// CL-53: what is old goes, unless a call that waits, a result that nobody took or a running command names it; what is
/// young stays.
#[tokio::test]
async fn a_sweep_removes_what_nobody_needs() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let store = shell.path().join("blobs");
    std::fs::create_dir(&store).expect("a directory");
    let url = format!("file://{}", store.display());
    let path = |name: &str| shell.path().join(name).display().to_string();
    let start = |queue: &str, calls: &[Json]| {
        let file = format!("{queue}.jsonl");
        shell.write_lines(&file, calls);
        batch(
            &shell,
            &server,
            &file,
            &format!("queue={queue}&blobs={url}"),
        )
    };
    let large = |text: &str| {
        let source = "def f(x): return x";
        json!({"id": 1, "source": source, "function": "f", "args": [text.repeat(100_000)]})
    };
    let held = |begun: &str, go: &str, value: &str| {
        let source = format!("{HELD}\n    return {value}");
        json!({"id": 2, "source": source, "function": "f", "args": [path(begun), path(go)]})
    };
    let is = |queue: &str, what| number(&status(&shell, &server), queue, what) == Some(1);
    let words = ["--slots", "1", "--sandbox", "none", "--blobs", &url];
    let _agent = agent(&shell, &server, "one", &words);
    // Nobody needs what belonged to a call that is over.
    let over = start("over", &[large("a")]).end();
    assert_eq!(over.code, Some(0), "{over:?}");
    let of_nobody = blobs(&store);
    assert!(!of_nobody.is_empty());
    // A directory that no call names now, and that the command may use again.
    shell.write("lib/helper.py", "X = 1");
    let source = "import helper\ndef f(): return helper.X";
    let uses = json!({"id": 1, "source": source, "function": "f", "python_path": [path("lib")]});
    let _pins = start("pins", &[uses, held("begun-1", "go-1", "1")]);
    wait_until("its second call runs", || shell.size("begun-1") == 1).await;
    // A result that nobody took.
    let second = agent(&shell, &server, "two", &words);
    let stopped = start("stopped", &[held("begun-2", "go-2", "'x' * 300_000")]);
    wait_until("it runs", || shell.size("begun-2") == 1).await;
    stopped.signal(Signal::STOP);
    second.signal(Signal::TERM);
    shell.write("go-2", "");
    assert_eq!(second.end().code, Some(0));
    assert!(is("stopped", "uncollected"));
    // Calls that wait, one before and one after the rest has become old.
    let _waits = start("waits", &[large("b")]);
    wait_until("it is queued", || is("waits", "queued")).await;
    let needed: Vec<PathBuf> = blobs(&store)
        .into_iter()
        .filter(|blob| !of_nobody.contains(blob))
        .collect();
    assert_eq!(needed.len(), 3, "{needed:?}");
    age(&store);
    let _young = start("young", &[large("c")]);
    wait_until("it is queued", || is("young", "queued")).await;
    let redis = server.url();
    let sweep = ["agent", "--redis", &redis, "--sweep-blobs", "--blobs", &url];
    let swept = shell.fairtrial(sweep).run();
    assert_eq!(swept.code, Some(0), "{swept:?}");
    let said = format!("{} blobs removed", of_nobody.len()).replace("1 blobs", "1 blob");
    assert!(swept.stdout.contains(&said), "{swept:?}");
    let said = "3 blobs in use, 1 blob younger than a day";
    assert!(swept.stdout.contains(said), "{swept:?}");
    let left = blobs(&store);
    assert_eq!(left.len(), 4);
    assert!(needed.iter().all(|blob| left.contains(blob)), "{left:?}");
}

/// CL-53: where something may name blobs that cannot be read, nothing is removed.
#[tokio::test]
async fn a_sweep_that_cannot_read_a_task_removes_nothing() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let store = shell.path().join("blobs");
    std::fs::create_dir(&store).expect("a directory");
    let url = format!("file://{}", store.display());
    let dispatch = dispatch(&server);
    let queue = QueueName::new("later").expect("a name");
    let owner = Owner {
        host: "here".to_owned(),
        pid: 1,
        nonce: "n".to_owned(),
    };
    let terms = Terms::new(Verdicts::default());
    let opened = dispatch.open(&queue, &owner, &terms).await;
    assert!(matches!(opened, Ok(Opened::Opened { .. })), "{opened:?}");
    let envelope = br#"{"protocol": "9.0"}"#.to_vec();
    let task = Task {
        id: TaskId::of(&queue, "key", &envelope),
        class: Class::Cpu,
        envelope,
        queue_timeout: None,
    };
    dispatch.submit(&queue, &task).await.expect("it answers");
    let folder = store.join("sha256/00");
    std::fs::create_dir_all(&folder).expect("a directory");
    std::fs::write(folder.join("0".repeat(64)), "old").expect("a file");
    age(&store);
    let redis = server.url();
    let sweep = ["agent", "--redis", &redis, "--sweep-blobs", "--blobs", &url];
    let swept = shell.fairtrial(sweep).run();
    assert_eq!(swept.code, Some(1), "{swept:?}");
    assert!(swept.stderr.contains("`later`"), "{swept:?}");
    assert_eq!(blobs(&store).len(), 1);
}

const STUDY: &str = "study_id: again
title: Again
factors: {f: [1, 2]}
agents: {a: {python: 'agent.py:go', isolation: fresh}}
problems: {p: {payload: {x: 1}}}
run_budget: {replicates: 4}
seed_policy: {base_seed: 5}
";

/// CL-32, CL-56: who goes on with a killed run finds what agents did meanwhile, and nothing is run again; who begins anew
/// finds nothing of it.
#[tokio::test]
async fn a_new_run_of_a_study_takes_no_result_of_an_earlier_one() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let ran = shell.write("ran", "");
    let program = format!(
        "def go(run):\n    open({:?}, 'a').write('x')\n    return {{'output': {{'v': 1}}}}",
        ran.display().to_string()
    );
    shell.write("study/study.yaml", STUDY);
    shell.write("study/agent.py", &program);
    let _agent = agent(&shell, &server, "one", &bare_agent(&["--slots", "1"]));
    let url = format!("{}?lease=3s", server.url());
    let run = |out| {
        let words = ["run", "study/study.yaml", "--out", out, "--backend", &url];
        shell.fairtrial(words).patience(Duration::from_secs(120))
    };
    let killed = run("killed").start();
    let known = |names: &[&str]| {
        let queue = status(&shell, &server)["queues"][0].clone();
        let counts = names.iter().filter_map(|name| queue[name].as_u64());
        counts.sum::<u64>()
    };
    let submitted = || known(&["queued", "leased", "recorded"]) == 8;
    wait_until("all was submitted", submitted).await;
    killed.signal(Signal::KILL);
    wait_until("agents have done the rest", || known(&["recorded"]) == 8).await;
    assert_eq!(shell.size("ran"), 8);
    let anew = run("anew").run();
    assert!(anew.stdout.contains("8 success"), "{anew:?}");
    assert_eq!(shell.size("ran"), 16, "each was run anew");
    let words = ["resume", "killed", "--backend", &url];
    let resume = shell.fairtrial(words).patience(Duration::from_secs(120));
    let resumed = resume.run();
    assert!(resumed.stdout.contains("8 success"), "{resumed:?}");
    assert_eq!(shell.size("ran"), 16, "nothing was run again");
}
