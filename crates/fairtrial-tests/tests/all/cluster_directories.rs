//! Directories that calls run in, on machines that may not have them.

use fairtrial_tests::{RedisServer, Shell};
use serde_json::{Value as Json, json};

use super::cluster_words::{agent, batch, records};

const LOOKS: &str = "import os
def f():
    try:
        open('new', 'w')
    except OSError as error:
        return [os.getcwd(), open('data').read(), error.strerror]
    return 'it can be written to'";

/// CL-42: it goes along if that is asked for, and cannot be changed there.
#[test]
fn a_directory_to_run_in_goes_along() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    shell.write("there/data", "carried");
    let there = shell.path().join("there").display().to_string();
    let source = |level| json!({"id": level, "source": LOOKS, "function": "f", "cwd": there, "sandbox": level});
    let command = json!({"id": "command", "argv": ["cat", "data"], "cwd": there});
    shell.write_lines(
        "calls.jsonl",
        &[source("limits"), source("strict"), command],
    );
    let store = format!("file://{}", shell.path().join("blobs").display());
    std::fs::create_dir(shell.path().join("blobs")).expect("a directory");
    let _agent = agent(&shell, &server, "one", &["--slots", "1", "--blobs", &store]);
    let ended = batch(
        &shell,
        &server,
        "calls.jsonl",
        &format!("cwd=packed&blobs={store}"),
    )
    .end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let records = records(&ended.stdout);
    for record in &records[..2] {
        let [cwd, data, why] = [0, 1, 2].map(|place| record["value"][place].as_str());
        assert_eq!(data, Some("carried"), "{record}");
        assert!(cwd.is_some_and(|cwd| cwd != there), "{record}");
        assert!(why.is_some(), "{record}");
    }
    assert_eq!(records[2]["stdout"], "carried", "{records:?}");
}

/// CL-42, CL-22: else it has to be on the node, and whoever does not have it refuses.
#[test]
fn a_directory_to_run_in_is_looked_for_on_the_node() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let nowhere = shell.path().join("nowhere").display().to_string();
    let call = |id, cwd: &str| json!({"id": id, "argv": ["pwd"], "cwd": cwd});
    let here = shell.path().display().to_string();
    shell.write_lines("calls.jsonl", &[call(1, &here), call(2, &nowhere)]);
    let _agent = agent(&shell, &server, "one", &["--slots", "1"]);
    let ended = batch(&shell, &server, "calls.jsonl", "").end();
    let records = records(&ended.stdout);
    assert_eq!(records[0]["stdout"], format!("{here}\n"), "{records:?}");
    assert_eq!(records[1]["verdict"], "setup_failed", "{records:?}");
    let why = records[1]["error"]["message"].as_str();
    assert!(why.is_some_and(|why| why.contains(&nowhere)), "{records:?}");
    // Nor can it be sent along.
    let ended = batch(&shell, &server, "calls.jsonl", "cwd=packed").end();
    let refused = serde_json::from_str::<Json>(ended.stdout.lines().nth(1).expect("two records"));
    let refused = refused.expect("a record");
    assert_eq!(refused["verdict"], Json::Null, "{refused}");
    let why = refused["error"]["message"].as_str();
    assert!(why.is_some_and(|why| why.contains("cwd")), "{refused}");
}

/// CL-42, CL-30: what is too large to be sent along is told, also of a study, whose own directory it is.
#[test]
fn a_study_beside_too_much_says_why_its_runs_are_lost() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let study = "study_id: s\ntitle: S\nagents: {a: {python: 'agent.py:go', isolation: fresh}}\n\
                 problems: {p: {payload: {x: 1}}}\nrun_budget: {replicates: 2}\n";
    shell.write("study/study.yaml", study);
    shell.write("study/agent.py", "def go(run): return {'output': 1}");
    let data = std::fs::File::create(shell.path().join("study/data")).expect("a file");
    data.set_len(80 << 20).expect("it is sparse");
    let url = server.url();
    let words = ["run", "study/study.yaml", "--out", "out", "--backend", &url];
    let ended = shell.fairtrial(words).run();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(
        ended.stdout.contains("why: fairtrial status out"),
        "{ended:?}"
    );
    let status = shell.fairtrial(["status", "out"]).run();
    assert!(
        status.stdout.contains("larger than 64 MiB with `data`"),
        "{status:?}"
    );
}
