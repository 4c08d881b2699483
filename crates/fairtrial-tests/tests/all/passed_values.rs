//! Values of `pass_env` are a canary: every file and every server that a study touched is searched for them.

use std::fs;
use std::path::Path;

use fairtrial_tests::{Finished, RedisServer, Running, ServerTerms, Shell};

use super::cluster_words::{agent_words, command};

/// With a quote and a letter beyond ASCII, so that JSON writes it in two other ways.
const CANARY: &str = "canary\"-7f3a91c2-s\u{e9}same";

/// Agents tell their key by every way there is: value, key, metric, event, output, error, and a result that is too
/// large for a message.
const AGENTS: &str = r#"
import json, os, sys
def tells(run):
    key = os.environ["KEY"]
    print(key, json.dumps(key), json.dumps(key, ensure_ascii=False))
    print(key.encode() * 3, key, file=sys.stderr)
    if run["replicate"] == 2:
        raise ValueError("the key is " + key)
    if run["replicate"] == 3:
        sys.stdout.buffer.write(b"\xff" + key.encode() + b"\n")
        return {"output": {"long": (key + " ") * 9000}}
    return {"output": {"key": key, key: [key]}, "metrics": {"m": key}, "metadata": {"k": key},
            "events": [{"event_type": "x", "level": key, "text": key}]}
def score(task):
    return [{"metric_name": os.environ["KEY"], "metric_value": 1, "notes": os.environ["KEY"]}]
"#;
const STUDY: &str = r#"
study_id: keys
title: Keys
run_budget: {replicates: 3}
agents:
  function: {python: 'agents.py:tells', pass_env: [KEY]}
  program:
    command: [python3, -c, 'import json, os; print(json.dumps({"output": {"key": os.environ["KEY"]}}))']
    pass_env: [KEY]
evaluator: {python: 'agents.py:score', pass_env: [KEY]}
"#;

fn study() -> Shell {
    let shell = Shell::new();
    shell.write("agents.py", AGENTS);
    shell.write("study.yaml", STUDY);
    shell
}

/// What the canary looks like: as it is, as JSON, and in base64 wherever it begins.
fn forms() -> Vec<Vec<u8>> {
    let mut forms = ["canary\"-7f3a91c2", "canary\\\"-7f3a91c2", "7f3a91c2-s"]
        .map(Vec::from)
        .to_vec();
    for before in 0..3 {
        let bytes = [&b"\0\0"[..before], CANARY.as_bytes()].concat();
        let encoded = base64(&bytes);
        forms.push(encoded[4..encoded.len() - 4].to_vec());
    }
    forms
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks_exact(3).flat_map(|three| {
        let word = three
            .iter()
            .fold(0, |word, byte| word << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| DIGITS[word >> shift & 63])
    });
    digits.collect()
}

fn has(bytes: &[u8], form: &[u8]) -> bool {
    bytes.windows(form.len()).any(|window| window == form)
}

/// How many files below a directory were searched, all in vain.
fn search(directory: &Path) -> usize {
    let mut searched = 0;
    for entry in fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        let kind = fs::symlink_metadata(&path)
            .expect("it is there")
            .file_type();
        if kind.is_dir() {
            searched += search(&path);
        } else if kind.is_file() {
            assert_clean(
                &path.display().to_string(),
                &fs::read(&path).expect("it can be read"),
            );
            searched += 1;
        }
    }
    searched
}

fn assert_clean(place: &str, bytes: &[u8]) {
    for form in forms() {
        let form = String::from_utf8_lossy(&form).into_owned();
        assert!(!has(bytes, form.as_bytes()), "{place} holds {form}");
    }
}

fn assert_says_nothing(done: &Finished) {
    assert_clean("stdout", done.stdout.as_bytes());
    assert_clean("stderr", done.stderr.as_bytes());
}

/// Everything that can be made of a study is made.
fn make_all(shell: &Shell) {
    for words in [
        &["report", "out"][..],
        &[
            "export",
            "out",
            "--format",
            "json,sqlite,dre",
            "--to",
            "exported",
        ],
        &["status", "out"],
        &["bundle", "out"],
    ] {
        let done = shell.fairtrial(words.iter().copied()).run();
        assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
        assert_says_nothing(&done);
    }
    // A bundle is compressed.
    let unpacked = shell.path().join("unpacked");
    fs::create_dir(&unpacked).expect("a directory");
    #[expect(
        clippy::disallowed_methods,
        reason = "a bundle is unpacked as a user would"
    )]
    let status = std::process::Command::new("tar")
        .args(["-xzf", "out.tar.gz", "-C", "unpacked"])
        .current_dir(shell.path())
        .status()
        .expect("tar is there");
    assert!(status.success());
}

/// FA-23: here the variable is the engine's own.
#[test]
fn a_passed_value_is_in_no_file_of_a_study() {
    let shell = study();
    let done = shell
        .fairtrial(["run", "study.yaml", "--out", "out", "--sqlite"])
        .env("KEY", CANARY)
        .run();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(
        done.stdout.contains("6 runs: 5 success, 1 failed"),
        "{done:?}"
    );
    assert_says_nothing(&done);
    make_all(&shell);
    assert!(search(shell.path()) > 20);
    assert!(shell.read("out/attempts.csv").contains("***"));
}

/// A server whose dumps can be searched.
fn start() -> Option<RedisServer> {
    RedisServer::start_on(|_| ServerTerms {
        words: ["--rdbcompression", "no"].map(str::to_owned).to_vec(),
        user: None,
    })
}

/// The store that agent and desk share.
fn store(desk: &Shell) -> String {
    let directory = desk.path().join("blobs");
    fs::create_dir_all(&directory).expect("a directory");
    format!("file://{}", directory.display())
}

fn agent(server: &RedisServer, desk: &Shell, node: &Shell, key: Option<&str>) -> Running {
    let words = agent_words(server, "far", &["--slots", "2", "--blobs", &store(desk)]);
    let cli = node.fairtrial(words.iter().map(String::as_str));
    let mut agent = match key {
        Some(key) => cli.env("KEY", key).start(),
        None => cli.env_remove("KEY").start(),
    };
    let line = agent.error_line();
    assert!(line.contains("serves"), "{line}");
    agent
}

/// FA-23: over Redis only the name goes, the agent has the value, and what a program tells of it is taken out before
/// anything is sent back. What the server ever held is in its append-only file.
#[test]
fn a_passed_value_is_in_no_key_and_no_file_of_a_cluster() {
    let Some(server) = start() else {
        return;
    };
    let (desk, node) = (study(), Shell::new());
    let agent = agent(&server, &desk, &node, Some(CANARY));
    let url = format!("{}?queue=q&blobs={}", server.url(), store(&desk));
    let done = desk
        .fairtrial(["run", "study.yaml", "--out", "out", "--backend", &url])
        .env("KEY", "another-value-of-this-machine")
        .run();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(
        done.stdout.contains("6 runs: 5 success, 1 failed"),
        "{done:?}"
    );
    assert_says_nothing(&done);
    make_all(&desk);
    for key in command::<Vec<Vec<u8>>>(&server, &["KEYS", "*"]) {
        let key = String::from_utf8(key).expect("text");
        let dump: Vec<u8> = command(&server, &["DUMP", &key]);
        assert_clean(&key, &dump);
    }
    agent.signal(rustix::process::Signal::TERM);
    let agent = agent.end();
    assert_eq!(agent.code, Some(0), "{agent:?}");
    assert_says_nothing(&agent);
    assert!(search(server.dir()) > 0);
    assert!(search(desk.path()) > 20);
    search(node.path());
    let log = append_only_file(&server);
    assert!(has(&log, b"pass_env"), "the name goes");
    assert!(!has(&log, b"another-value-of-this-machine"));
}

fn append_only_file(server: &RedisServer) -> Vec<u8> {
    let directory = server.dir().join("appendonlydir");
    let files = fs::read_dir(directory).expect("it is append-only");
    let files = files.map(|file| fs::read(file.expect("a file").path()).expect("it can be read"));
    files.collect::<Vec<_>>().concat()
}

/// FA-23: which variable, and on which node.
#[test]
fn a_variable_that_is_not_set_on_an_agent_is_named_with_the_agent() {
    let Some(server) = start() else {
        return;
    };
    let (desk, node) = (study(), Shell::new());
    let _agent = agent(&server, &desk, &node, None);
    let url = format!("{}?blobs={}", server.url(), store(&desk));
    let done = desk
        .fairtrial(["run", "study.yaml", "--out", "out", "--backend", &url])
        .env("KEY", CANARY)
        .run();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.stdout.contains("6 failed"), "{done:?}");
    let says = "`pass_env`: not set in the environment of `far`: `KEY`";
    assert!(done.stdout.contains(says), "{done:?}");
}

/// FA-23: whoever says so sends values through the server; outputs are cleaned all the same.
#[test]
fn values_travel_only_if_the_url_says_so() {
    let Some(server) = start() else {
        return;
    };
    let (desk, node) = (study(), Shell::new());
    let _agent = agent(&server, &desk, &node, None);
    let url = format!("{}?pass_env=send&blobs={}", server.url(), store(&desk));
    let done = desk
        .fairtrial(["run", "study.yaml", "--out", "out", "--backend", &url])
        .env("KEY", CANARY)
        .run();
    assert!(
        done.stdout.contains("6 runs: 5 success, 1 failed"),
        "{done:?}"
    );
    search(&desk.path().join("out"));
    assert!(has(&append_only_file(&server), b"7f3a91c2"));
}
