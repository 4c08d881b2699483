//! What is left, and what is done, after SIGKILL of those who ran or submitted calls.

use std::time::Duration;

use fairtrial_tests::{RedisServer, Shell, wait_until};
use rustix::process::Signal;
use serde_json::json;

use super::cluster_cli::{AGENT, STUDY, backend, done, tables};
use super::cluster_words::{agent, batch, begun, command, has_begun, is_alive, records, status};

/// Says who runs it, in which process and with which child, and then waits; unless it is run by `last`.
const WITH_CHILD: &str = "import os, signal, subprocess
def f(begun):
    node = os.environ['FAIRTRIAL_NODE_ID']
    if node == 'last': return node
    child = subprocess.Popen(['sleep', '1000'], start_new_session=True)
    with open(begun, 'a') as log: log.write('%s %d\\n%s %d\\n' % (node, os.getpid(), node, child.pid))
    signal.pause()";

/// X3: nothing that a killed agent ran outlives it, and its call is run elsewhere.
#[tokio::test]
async fn the_tree_of_a_killed_agent_is_gone() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let path = shell.write("begun", "").display().to_string();
    let call = json!({"id": 1, "source": WITH_CHILD, "function": "f", "args": [path]});
    shell.write_lines("calls.jsonl", &[call]);
    let killed = agent(&shell, &server, "killed", &["--slots", "1"]);
    let running = batch(&shell, &server, "calls.jsonl", "lease=2s");
    wait_until("it began", || has_begun(&shell, "killed")).await;
    let tree: Vec<u32> = begun(&shell).into_iter().map(|(_, pid)| pid).collect();
    assert_eq!(tree.len(), 2, "the call and its child");
    killed.signal(Signal::KILL);
    // 1 s is allowed, and a machine with much else to do may take longer to run whoever kills: waited for as all else is.
    let is_gone = || !tree.iter().any(|pid| is_alive(*pid));
    wait_until("its tree is gone", is_gone).await;
    let _last = agent(&shell, &server, "last", &["--slots", "1", "--lease", "2s"]);
    assert_eq!(records(&running.end().stdout)[0]["value"], "last");
}

/// ST-43, CL-32, CL-56, CL-58: all of them are killed in the middle of a study, which is then resumed: its tables are those
/// of an undisturbed run on this machine.
#[tokio::test]
async fn a_study_killed_with_its_whole_cluster_is_resumed() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    shell.write("study/study.yaml", STUDY);
    shell.write("study/agent.py", AGENT);
    let local = ["run", "study/study.yaml", "--out", "local"];
    let local = shell.fairtrial(local).run();
    assert_eq!(local.code, Some(0), "{local:?}");
    let words = ["--slots", "1", "--lease", "3s"];
    let agents = ["one", "two"].map(|name| agent(&shell, &server, name, &words));
    let url = backend(&server);
    let run = ["run", "study/study.yaml", "--out", "out", "--backend", &url];
    let running = shell.fairtrial(run).start();
    wait_until("some runs are done", || done(&shell, &server) >= 3).await;
    running.signal(Signal::KILL);
    agents.iter().for_each(|agent| agent.signal(Signal::KILL));
    server.kill();
    assert_eq!(running.end().code, None);
    for agent in agents {
        assert_eq!(agent.end().code, None);
    }

    server.start_again();
    let recorded = done(&shell, &server);
    assert!(recorded < 40, "it was killed in the middle: {recorded}");
    // Its killed owner would hold the queue for 30 s.
    let status = status(&shell, &server);
    let queue = status["queues"][0]["queue"].as_str().expect("a queue");
    let meta = format!("ft:{{{queue}}}:meta");
    let () = command(&server, &["HSET", &meta, "seen", "0"]);
    let _agents = ["three", "four"].map(|name| agent(&shell, &server, name, &words));
    let resume = shell.fairtrial(["resume", "out", "--backend", &url]);
    let resumed = resume.patience(Duration::from_secs(120)).run();
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(resumed.stdout.contains("40 success"), "{resumed:?}");
    assert_eq!(tables(&shell, "out"), tables(&shell, "local"));
}
