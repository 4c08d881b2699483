//! Whoever submits is stopped: Ctrl-C of `run` and `batch`, with the server there or not, and a backend's shutdown.

use std::time::Duration;

use fairtrial_cluster::{ClusterBackend, ClusterConfig, Options, QueueName, RedisDispatch};
use fairtrial_exec::{Backend as _, Shutdown, SpillDir, SpillPolicy, Verdict};
use fairtrial_tests::{RedisServer, Running, Shell, bare, wait_until};
use rustix::process::Signal;

use super::cluster_words::{
    agent, batch, begun, command, dispatch, has_begun, held_calls, is_alive, records, status, told,
};

const STUDY: &str = "study_id: s
title: S
factors: {f: [1, 2, 3, 4, 5, 6, 7, 8]}
agents: {a: {python: 'agent.py:go', sandbox: none}}
";

/// Says that it began, and waits for a file.
const AGENT: &str = "import os, time
def go(run):
    with open('BEGUN', 'a') as log: log.write('%s %d\\n' % (os.environ['FAIRTRIAL_NODE_ID'], os.getpid()))
    while not os.path.exists('GO'): time.sleep(0.01)
    return {'output': {}}
";

/// A study of eight runs by agents, two at a time.
fn study(shell: &Shell, server: &RedisServer) -> Running {
    let path = |name: &str| shell.path().join(name).display().to_string();
    shell.write("begun", "");
    shell.write("study/study.yaml", STUDY);
    let agent = AGENT.replace("BEGUN", &path("begun"));
    shell.write("study/agent.py", &agent.replace("GO", &path("go")));
    let url = format!("{}?lease=3s&queue=q", server.url());
    let words = ["run", "study/study.yaml", "--out", "out", "--backend", &url];
    shell
        .fairtrial(words.into_iter().chain(["-j", "2"]))
        .start()
}

/// CL-56: Ctrl-C cancels the queue, what runs ends, and a later `resume` does the rest; `-j` is `max_inflight`.
#[tokio::test]
async fn an_interrupted_study_is_cancelled_on_all_agents_and_resumable() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let words = ["--slots", "4", "--lease", "3s"];
    let _agent = agent(&shell, &server, "one", &words);
    let running = study(&shell, &server);
    wait_until("two runs began", || begun(&shell).len() == 2).await;
    let most: String = command(&server, &["HGET", "ft:{q}:meta", "max_inflight"]);
    assert_eq!(most, "2");
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let record = "8 runs: 2 cancelled, 6 to run";
    assert!(ended.stdout.contains(record), "{ended:?}");
    assert!(begun(&shell).iter().all(|(_, pid)| !is_alive(*pid)));
    assert_eq!(begun(&shell).len(), 2, "none began after that");
    shell.write("go", "");
    let url = format!("{}?lease=3s&queue=q", server.url());
    let hint = format!("go on with: fairtrial resume out --backend '{url}'");
    assert!(ended.stdout.contains(&hint), "{ended:?}");
    let resumed = shell.fairtrial(["resume", "out", "--backend", &url]);
    let resumed = resumed.patience(Duration::from_secs(120)).run();
    assert!(resumed.stdout.contains("8 success"), "{resumed:?}");
}

/// CL-56, CL-57: nobody waits longer than 5 s, and the grace of the runs, for a server that is away.
#[tokio::test]
async fn an_interrupted_study_does_not_wait_for_a_server_that_is_away() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let _agent = agent(&shell, &server, "one", &["--slots", "2"]);
    let running = study(&shell, &server);
    wait_until("two runs began", || begun(&shell).len() == 2).await;
    server.kill();
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.stderr.contains("may still run"), "{ended:?}");
    let known = shell.fairtrial(["status", "out"]).run();
    assert!(
        known.stdout.contains('8'),
        "its journal is whole: {known:?}"
    );
}

/// CL-20, CL-57: what agents run is not said to be killed if they could not be told.
#[tokio::test]
async fn an_interrupted_batch_says_what_it_does_not_know() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let _agent = agent(&shell, &server, "one", &["--slots", "1"]);
    let running = batch(&shell, &server, "calls.jsonl", "");
    wait_until("it began", || has_begun(&shell, "one")).await;
    server.kill();
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.stderr.contains("may still run"), "{ended:?}");
    assert!(!ended.stderr.contains("has been killed"), "{ended:?}");
    assert!(is_alive(begun(&shell)[0].1), "so it is");
}

/// CL-56: `-j` is how many run at a time, whatever slots are free.
#[tokio::test]
async fn jobs_are_how_many_calls_run_at_a_time_over_all_agents() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 5);
    let _agents = ["one", "two"].map(|name| agent(&shell, &server, name, &["--slots", "2"]));
    let url = format!("{}?queue=q", server.url());
    let words = ["batch", "calls.jsonl", "-j", "2", "--backend", &url];
    let running = shell.fairtrial(words).start();
    let known = || {
        let status = status(&shell, &server);
        let mut queues = status["queues"].as_array().expect("queues").iter();
        let queue = queues.find(|queue| queue["queue"] == "q").cloned();
        queue.map(|queue| (queue["leased"].as_u64(), queue["queued"].as_u64()))
    };
    let two = Some((Some(2), Some(3)));
    wait_until("all are there", || known() == two).await;
    wait_until("two began", || begun(&shell).len() == 2).await;
    // Free slots serve somebody else meanwhile.
    let calls: Vec<_> = (0..10)
        .map(|id| serde_json::json!({"id": id, "argv": ["true"]}))
        .collect();
    shell.write_lines("others.jsonl", &calls);
    let url = server.url();
    let others = shell.fairtrial(["batch", "others.jsonl", "--backend", &url]);
    assert_eq!(others.run().code, Some(0));
    assert_eq!((known(), begun(&shell).len()), (two, 2));
    shell.write("go", "");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(records(&ended.stdout).len(), 5);
}

fn backend(server: &RedisServer, shell: &Shell) -> ClusterBackend<RedisDispatch> {
    let options = Options::default();
    let config = ClusterConfig {
        queue: QueueName::new("q").expect("a name"),
        named: true,
        class: options.class,
        weight: options.weight,
        max_queue: options.max_queue,
        max_inflight: None,
        on_full: options.on_full,
        server_timeout: options.server_timeout,
        lease: options.lease,
        packs_cwd: false,
        sends_passed: false,
        spill: SpillPolicy {
            dir: SpillDir::new(shell.path()),
            memfd_cap_bytes: u64::MAX,
            memory_limit_bytes: None,
        },
        python: None,
    };
    ClusterBackend::new(dispatch(server), None, config)
}

/// CL-57: what waits is cancelled once the server is back, though it was away when that was asked for.
#[tokio::test]
async fn what_waits_is_cancelled_when_the_server_is_back() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let backend = backend(&server, &shell);
    let calls = [(); 3].map(|()| {
        backend
            .submit(bare::command(["true"]))
            .expect("it is taken")
    });
    let asking = dispatch(&server);
    let all_are_there = async {
        while told(&asking, "submit").await.len() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let there = tokio::time::timeout(Duration::from_secs(30), all_are_there).await;
    there.expect("the server has them");
    server.kill();
    let how = Shutdown {
        wait: true,
        cancel_queued: true,
        kill_after: None,
    };
    let mut ending = Box::pin(backend.shutdown(how));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut ending).await;
    assert!(early.is_err(), "nobody knows what became of them");
    server.start_again();
    let ended = tokio::time::timeout(Duration::from_secs(60), ending).await;
    ended.expect("it is told of their ends");
    for call in calls {
        assert_eq!(call.await.expect("an end").verdict, Verdict::Cancelled);
    }
}
