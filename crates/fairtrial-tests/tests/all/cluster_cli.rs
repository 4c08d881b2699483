//! `fairtrial agent`, `--backend` and `status --cluster` with a real server: agents are processes, and are killed.

use std::collections::BTreeSet;
use std::time::Duration;

use fairtrial_tests::{RedisServer, Running, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::cluster_words::{self, records, status};

/// An agent of one slot that serves; it finds lost leases soon.
fn agent(shell: &Shell, server: &RedisServer, name: &str) -> Running {
    cluster_words::agent(shell, server, name, &["--slots", "1", "--lease", "3s"])
}

/// The backend's URL; a lost lease is soon found, and yet not lost because the machine is busy.
pub(crate) fn backend(server: &RedisServer) -> String {
    format!("{}?lease=3s", server.url())
}

/// What does not depend on where and when it ran.
fn lasting(mut record: Json) -> Json {
    let metrics = record["metrics"].as_object().expect("metrics").clone();
    record["metrics"] = metrics.keys().cloned().collect::<Vec<_>>().into();
    record["in_force"]["counters"] = Json::Null;
    // Stacks name threads by their addresses.
    let traceback = record["error"]["traceback"].as_str().map(str::to_owned);
    if let Some(traceback) = traceback.filter(|text| text.contains("thread 0x")) {
        record["error"]["traceback"] = traceback.split_once("(most").map(|(_, rest)| rest).into();
    }
    record
}

/// CL-1, CL-13, CL-51: each kind of end, and a value that is too large for a message.
#[test]
fn what_agents_find_is_what_this_machine_finds() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let calls = [
        json!({"id": 1, "source": "def f(x):\n    print('hi')\n    return {'a': [x, b'z', 1.5]}", "function": "f", "args": [3]}),
        json!({"id": 2, "source": "def f(): raise KeyError('no')", "function": "f"}),
        json!({"id": 3, "source": "import os\ndef f(): os._exit(4)", "function": "f"}),
        json!({"id": 4, "source": "def f():\n    while True: pass", "function": "f", "timeout_s": 0.2}),
        json!({"id": 5, "source": "def f(): return 'x' * 300_000", "function": "f"}),
        json!({"id": 6, "argv": ["sh", "-c", "cat; echo err >&2; exit 3"], "stdin": "in"}),
        json!({"id": 7, "source": "def g(): pass", "function": "f"}),
        json!({"id": 8, "source": "def f(x): return len(x)", "function": "f", "args": ["y".repeat(100_000)]}),
    ];
    shell.write_lines("calls.jsonl", &calls);
    let _agents = [agent(&shell, &server, "one"), agent(&shell, &server, "two")];
    let local = shell.fairtrial(["batch", "calls.jsonl"]).run();
    let remote = shell
        .fairtrial(["batch", "calls.jsonl", "--backend", &backend(&server)])
        .run();
    assert_eq!((local.code, remote.code), (Some(3), Some(3)), "{remote:?}");
    for (local, remote) in records(&local.stdout)
        .into_iter()
        .zip(records(&remote.stdout))
    {
        let node = remote["metrics"]["node_id"]
            .as_str()
            .expect("a node")
            .to_owned();
        assert!(["one", "two"].contains(&&*node), "{node}");
        assert_eq!(lasting(remote), lasting(local));
    }
}

pub(crate) const STUDY: &str = "study_id: kept
title: Kept
factors: {f: [1, 2]}
agents: {a: {python: 'agent.py:go', isolation: fresh}}
problems: {p: {payload: {x: 1}}}
run_budget: {replicates: 20}
seed_policy: {base_seed: 5}
";
pub(crate) const AGENT: &str = "import time
def go(run):
    time.sleep(0.02)
    return {'output': {'v': run['seed'] % 11}}
";

pub(crate) fn tables(shell: &Shell, directory: &str) -> Vec<String> {
    let to = format!("{directory}-masked");
    let words = ["export", directory, "--mask-volatile", "--to", &to];
    let exported = shell.fairtrial(words).run();
    assert_eq!(exported.code, Some(0), "{exported:?}");
    let names = ["runs.csv", "conditions.csv", "evaluations.csv"];
    let read = |name: &&str| std::fs::read_to_string(shell.path().join(&to).join(name));
    names.iter().filter_map(|name| read(name).ok()).collect()
}

pub(crate) fn done(shell: &Shell, server: &RedisServer) -> u64 {
    let status = status(shell, server);
    status["queues"][0]["recorded"].as_u64().unwrap_or(0)
}

/// ST-43, CL-29, CL-31, CL-56, CL-57, X3, X6: an agent and the server are killed in the middle; nothing is lost, nothing is
/// there twice, and the study ends by itself with the tables of an undisturbed one.
#[tokio::test]
async fn a_study_outlives_an_agent_and_the_server() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    shell.write("study/study.yaml", STUDY);
    shell.write("study/agent.py", AGENT);
    let local = shell
        .fairtrial(["run", "study/study.yaml", "--out", "local"])
        .run();
    assert_eq!(local.code, Some(0), "{local:?}");
    let agents = ["one", "two", "three"].map(|name| agent(&shell, &server, name));
    let url = backend(&server);
    let run = [
        "run",
        "study/study.yaml",
        "--out",
        "remote",
        "--backend",
        &url,
    ];
    let running = shell.fairtrial(run).start();
    wait_until("some runs are done", || done(&shell, &server) >= 3).await;
    agents[0].signal(Signal::KILL);
    let before = done(&shell, &server);
    wait_until("others go on", || done(&shell, &server) > before).await;
    server.kill();
    server.start_again();
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(tables(&shell, "remote"), tables(&shell, "local"));
}

/// CL-32, CL-39: whoever goes on in the place of a killed coordinator waits until its queue is free, and loses nothing.
#[tokio::test]
async fn a_study_whose_coordinator_was_killed_goes_on() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    shell.write("study/study.yaml", STUDY);
    shell.write("study/agent.py", AGENT);
    let _agent = agent(&shell, &server, "one");
    let url = backend(&server);
    let run = ["run", "study/study.yaml", "--out", "out", "--backend", &url];
    let running = shell.fairtrial(run).start();
    wait_until("some runs are done", || done(&shell, &server) >= 3).await;
    running.signal(Signal::KILL);
    let resume = shell.fairtrial(["resume", "out", "--backend", &url]);
    let resumed = resume.patience(std::time::Duration::from_secs(120)).run();
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(resumed.stdout.contains("40 success"), "{resumed:?}");
}

/// CL-29, CL-30, X5: a call that kills whoever runs it is given up after three of them, and only that call.
#[test]
fn a_call_that_kills_its_agents_is_lost_and_all_others_are_not() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let killer = "import os, signal
def parent(pid):
    return int(next(l for l in open('/proc/%d/status' % pid) if l.startswith('PPid')).split()[1])
def f():
    launcher = os.getppid()
    os.kill(parent(launcher), signal.SIGKILL)
    signal.pause()";
    let calls = [
        json!({"id": "kills", "source": killer, "function": "f"}),
        json!({"id": "ok", "source": "def f(): return 1", "function": "f"}),
    ];
    shell.write_lines("calls.jsonl", &calls);
    let _agents = ["one", "two", "three", "four"].map(|name| agent(&shell, &server, name));
    let ended = shell
        .fairtrial(["batch", "calls.jsonl", "--backend", &backend(&server)])
        .run();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let records = records(&ended.stdout);
    assert_eq!(records[0]["verdict"], Json::Null);
    assert!(
        records[0]["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("(lost)")),
        "{records:?}"
    );
    assert_eq!(records[1]["verdict"], "ok");
}

/// CL-7, CL-28, X16: what runs ends and is committed; the agent then ends with 0.
#[tokio::test]
async fn an_agent_that_is_told_to_end_finishes_what_it_runs() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    shell.write("begun", "");
    let source = "import time
def f(path):
    open(path, 'a').write('x')
    time.sleep(0.5)
    return 'whole'";
    let begun = shell.path().join("begun").display().to_string();
    shell.write_lines(
        "calls.jsonl",
        &[json!({"id": 1, "source": source, "function": "f", "args": [begun]})],
    );
    let leaving = agent(&shell, &server, "leaving");
    let url = backend(&server);
    let running = shell
        .fairtrial(["batch", "calls.jsonl", "--backend", &url])
        .start();
    wait_until("it began", || shell.read("begun") == "x").await;
    leaving.signal(Signal::TERM);
    let ended = running.end();
    assert_eq!(records(&ended.stdout)[0]["value"], "whole", "{ended:?}");
    assert_eq!(leaving.end().code, Some(0));
    assert_eq!(shell.read("begun"), "x", "it ran once");
    shell.assert_nothing_left();
}

/// CL-8, X22
#[test]
fn a_name_is_one_agents_alone() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let _first = agent(&shell, &server, "same");
    let url = server.url();
    let words = [
        "agent",
        "--redis",
        &url,
        "--slots",
        "1",
        "--name",
        "same",
        "--open-server-ok",
    ];
    let second = shell.fairtrial(words).run();
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(
        second.stderr.contains("an agent `same` is alive"),
        "{}",
        second.stderr
    );
}

/// CL-60, CL-57
#[test]
fn the_status_of_a_cluster_names_agents_queues_and_server() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let _agents = [agent(&shell, &server, "one"), agent(&shell, &server, "two")];
    let told = status(&shell, &server);
    let names: BTreeSet<&str> = told["agents"]
        .as_array()
        .expect("agents")
        .iter()
        .filter_map(|agent| agent["name"].as_str())
        .collect();
    assert_eq!(names, BTreeSet::from(["one", "two"]));
    assert_eq!(told["server"]["append_only"], true);
    let url = server.url();
    server.kill();
    let away = shell.fairtrial(["status", "--cluster", &url]).run();
    assert_eq!(away.code, Some(1), "{away:?}");
    assert!(
        away.stderr.contains("cannot reach the server"),
        "{}",
        away.stderr
    );
}

/// CL-6, CL-44, CL-45: what cannot be is said in one line.
#[test]
fn bad_usage_is_told_in_one_line() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    shell.write_lines("calls.jsonl", &[json!({"id": 1, "argv": ["true"]})]);
    let url = server.url();
    for (words, code, says) in [
        (
            vec!["agent", "--redis", "mail://x", "--slots", "1"],
            2,
            "--redis",
        ),
        (
            vec!["agent", "--redis", &*url, "--slots", "0"],
            2,
            "--slots",
        ),
        (
            vec!["agent", "--redis", &*url, "--slots", "1"],
            1,
            "--open-server-ok",
        ),
        (
            vec!["agent", "--redis", "@nowhere", "--slots", "1"],
            2,
            "nowhere",
        ),
        (
            vec![
                "agent",
                "--redis",
                "redis://u:secret@far.example:1",
                "--slots",
                "1",
            ],
            2,
            "in the clear",
        ),
        (
            vec!["batch", "calls.jsonl", "--backend", "redis://h?wait=1"],
            2,
            "wait",
        ),
        (
            vec!["batch", "calls.jsonl", "--backend", "nonsense"],
            2,
            "--backend",
        ),
    ] {
        let refused = shell.fairtrial(words.iter().copied()).run();
        assert_eq!(refused.code, Some(code), "{words:?}: {refused:?}");
        assert!(
            refused.stderr.contains(says),
            "{words:?}: {}",
            refused.stderr
        );
        let lines = refused.stderr.lines().count();
        assert_eq!(lines, 1, "{words:?}: {}", refused.stderr);
        assert!(!refused.stderr.contains("secret"), "{}", refused.stderr);
    }
}

const PLAIN_STUDY: &str = "study_id: again
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
    shell.write("study/study.yaml", PLAIN_STUDY);
    shell.write("study/agent.py", &program);
    let _agent = agent(&shell, &server, "one");
    let url = backend(&server);
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
