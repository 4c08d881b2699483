//! A server with the list of users that is shipped: who may what, and what is said of those who may not.

use std::fs;
use std::path::{Path, PathBuf};

use fairtrial_tests::{RedisServer, Running, ServerTerms, Shell};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

/// No password of ours is ever anywhere but in the file that a command is given.
const PASSWORDS: [(&str, &str); 3] = [
    ("submitter", "pass-5ub-7c1f09d2"),
    ("agent", "pass-4ge-93be5a60"),
    ("reader", "pass-r3a-d18c442f"),
];

/// Who may do everything, which the list does not name.
const ADMIN: &str = "user admin on >pass-adm ~* &* +@all\n";

pub(crate) fn password(user: &str) -> &'static str {
    let found = PASSWORDS.iter().find(|(name, _)| *name == user);
    found.expect("one of ours").1
}

pub(crate) fn in_docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

/// The shipped list with these passwords, as the manual says to make it.
pub(crate) fn users() -> String {
    let list = fs::read_to_string(in_docs("cluster/users.acl")).expect("it is shipped");
    let filled = PASSWORDS.iter().fold(list, |list, (user, password)| {
        let place = format!("{}_SHA256", user.to_uppercase());
        assert!(list.contains(&place), "{list}");
        list.replace(&place, &format!("{:x}", Sha256::digest(password)))
    });
    filled + ADMIN
}

/// A server with them.
pub(crate) fn start() -> Option<RedisServer> {
    RedisServer::start_on(|dir| {
        fs::write(dir.join("users.acl"), users()).expect("a file");
        ServerTerms {
            words: vec!["--aclfile".into(), "users.acl".into()],
            user: None,
        }
    })
}

/// A file that holds a user's URL, named as commands want it.
fn url_file(shell: &Shell, server: &RedisServer, user: &str) -> String {
    // How long a lease lasts is a submitter's to say.
    let lease = if user == "submitter" { "&lease=3s" } else { "" };
    let url = format!("{}{lease}\n", server.url_as(user, password(user)));
    format!("@{}", shell.write(user, &url).display())
}

fn command(server: &RedisServer, words: &[&str]) -> redis::Value {
    let client = redis::Client::open(server.url_as("admin", "pass-adm")).expect("a URL");
    let mut connection = client.get_connection().expect("it serves");
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..])
        .query(&mut connection)
        .expect("an answer")
}

/// An agent at the default level, its URL by standard input.
fn agent(shell: &Shell, server: &RedisServer, name: &str) -> Running {
    let words = ["agent", "--redis", "@-", "--slots", "2", "--name", name];
    let mut agent = shell.fairtrial(words).start();
    agent.say(&server.url_as("agent", password("agent")));
    let line = agent.error_line();
    assert!(line.contains(&format!("agent {name} serves")), "{line}");
    agent
}

/// All bytes below a directory, and how many files they are.
fn everything_below(dir: &Path) -> (Vec<u8>, usize) {
    let mut all = (Vec::new(), 0);
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("it is there"));
        if kind.is_dir() {
            let (bytes, files) = everything_below(&path);
            all.0.extend(bytes);
            all.1 += files;
        } else if kind.is_file() {
            all.0.extend(fs::read(path).expect("it can be read"));
            all.1 += 1;
        }
    }
    all
}

pub(crate) fn assert_no_password(what: &str, text: &[u8]) {
    for (user, password) in PASSWORDS {
        let has = text
            .windows(password.len())
            .any(|bytes| bytes == password.as_bytes());
        assert!(!has, "{what} has the password of {user}");
    }
}

const STUDY: &str = "study_id: kept
title: Kept
factors: {f: [1, 2]}
agents: {a: {python: 'agent.py:go', isolation: fresh}}
problems: {p: {payload: {x: 1}}}
run_budget: {replicates: 2}
seed_policy: {base_seed: 5}
";

/// CL-46, CL-48, CL-60: a batch and a study by the users of the list; the reader sees how it stands and does no more; and
/// no password is in anything that was said, recorded or stored.
#[test]
fn work_is_done_with_the_users_of_the_list_and_no_password_is_left_anywhere() {
    let Some(server) = start() else {
        return;
    };
    let shell = Shell::new();
    let [submitter, reader] = ["submitter", "reader"].map(|user| url_file(&shell, &server, user));
    let running = agent(&shell, &server, "one");
    let calls = [
        json!({"id": 1, "source": "def f(x): return x + 1", "function": "f", "args": [3]}),
        json!({"id": 2, "source": "def f(): raise KeyError('no')", "function": "f"}),
    ];
    shell.write_lines("calls.jsonl", &calls);
    let batch = ["batch", "calls.jsonl", "--backend", &submitter];
    let batch = shell.fairtrial(batch).run();
    assert_eq!(batch.code, Some(3), "{batch:?}");
    let first = batch.stdout.lines().next().expect("a record");
    let first: Json = serde_json::from_str(first).expect("JSON");
    assert_eq!(first["value"], 4, "{first}");

    shell.write("study/study.yaml", STUDY);
    shell.write(
        "study/agent.py",
        "def go(run):\n    return {'output': {'v': 1}}\n",
    );
    // The URL itself on the command line: a study records that line.
    let url = server.url_as("submitter", password("submitter"));
    let study = ["run", "study/study.yaml", "--out", "out", "--backend", &url];
    let study = shell.fairtrial(study).run();
    assert_eq!(study.code, Some(0), "{study:?}");

    let status = ["status", "--cluster", &reader, "--json"];
    let status = shell.fairtrial(status).run();
    assert_eq!(status.code, Some(0), "{status:?}");
    let told: Json = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!(told["agents"][0]["name"], "one", "{told}");
    let queue = told["queues"][0]["queue"].as_str().expect("a name");
    assert!(queue.starts_with("kept"), "{told}");

    let as_reader = ["batch", "calls.jsonl", "--backend", &reader];
    let refused = shell.fairtrial(as_reader).run();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("to user `reader`"), "{refused:?}");
    let as_reader = [
        "agent",
        "--redis",
        &reader,
        "--slots",
        "1",
        "--sandbox",
        "strict",
    ];
    let not_served = shell.fairtrial(as_reader).run();
    assert_eq!(not_served.code, Some(1), "{not_served:?}");
    assert!(
        not_served
            .stderr
            .contains("denies `evalsha` to user `reader`"),
        "{not_served:?}"
    );

    running.signal(rustix::process::Signal::TERM);
    for ended in [batch, study, status, refused, not_served, running.end()] {
        assert_no_password("what was said", format!("{ended:?}").as_bytes());
    }
    let (journal, files) = everything_below(&shell.path().join("out"));
    assert!(files > 2, "{files}");
    assert_no_password("the study's directory", &journal);
    assert!(
        String::from_utf8_lossy(&journal).contains("pass=***"),
        "the command line is recorded"
    );
    // All that was ever stored: tasks, results, events, nodes.
    let (stored, _) = everything_below(&server.dir().join("appendonlydir"));
    assert!(String::from_utf8_lossy(&stored).contains("call.leased"));
    assert_no_password("what the server stored", &stored);
}

/// How often the server has refused somebody.
fn refusals(server: &RedisServer, user: &str) -> u64 {
    let log: Vec<std::collections::HashMap<String, redis::Value>> =
        redis::from_redis_value(command(server, &["ACL", "LOG"])).expect("a list");
    let of_user = log.iter().filter(|entry| {
        let name: String = redis::from_redis_value(entry["username"].clone()).expect("a name");
        name == user
    });
    let count = |entry: &std::collections::HashMap<String, redis::Value>| {
        redis::from_redis_value::<u64>(entry["count"].clone()).expect("a number")
    };
    of_user.map(count).sum()
}

/// CL-48, X14: with a wrong password it is asked for once, and the answer is the end.
#[test]
fn who_is_denied_says_so_with_user_and_command_and_does_not_try_again() {
    let Some(server) = start() else {
        return;
    };
    let shell = Shell::new();
    let wrong = server.url_as("agent", "pass-wrong-1b7");
    let wrong = format!("@{}", shell.write("wrong", &wrong).display());
    shell.write_lines("calls.jsonl", &[json!({"id": 1, "argv": ["true"]})]);
    for (words, least) in [
        (
            vec![
                "agent",
                "--redis",
                &wrong,
                "--slots",
                "4",
                "--sandbox",
                "strict",
            ],
            1,
        ),
        (vec!["status", "--cluster", &wrong], 1),
        (vec!["batch", "calls.jsonl", "--backend", &wrong], 1),
    ] {
        command(&server, &["ACL", "LOG", "RESET"]);
        let ended = shell.fairtrial(words.iter().copied()).run();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(
            said.contains("the server denies `AUTH` to user `agent`"),
            "{said}"
        );
        assert!(!said.contains("pass-"), "{said}");
        let refused = refusals(&server, "agent");
        // A coordinator does several things at a time, each of which learns it for itself.
        assert!((least..=3).contains(&refused), "{words:?}: {refused} times");
    }
}

/// CL-48, X14: what an agent was allowed and is not any more, ends it.
#[test]
fn an_agent_whose_rights_are_taken_away_ends_by_itself() {
    let Some(server) = start() else {
        return;
    };
    let shell = Shell::new();
    let running = agent(&shell, &server, "one");
    command(&server, &["ACL", "LOG", "RESET"]);
    command(&server, &["ACL", "SETUSER", "agent", "-evalsha"]);
    // It asks for work every second; a queue makes it ask by script.
    command(&server, &["HSET", "ft:queues", "q", "1"]);
    let ended = running.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("the server denies `evalsha` to user `agent`"),
        "{ended:?}"
    );
    assert!(
        refusals(&server, "agent") <= 6,
        "both slots, the reaper, and a farewell"
    );
    assert_no_password("what it said", ended.stderr.as_bytes());
    shell.assert_nothing_left();
}

/// CL-44: below `strict` a call could use what its agent uses; each way to it is a refusal that says what helps.
#[test]
fn an_agent_whose_credentials_calls_could_find_does_not_start() {
    let Some(server) = start() else {
        return;
    };
    let Some(open) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let file = url_file(&shell, &server, "agent");
    let url = server.url_as("agent", password("agent"));
    let open_url = open.url();
    for (given, level, says) in [
        (&*open_url, "limits", "Redis has no password"),
        (&file, "limits", "calls could read"),
        (&file, "none", "calls could read"),
        (&url, "limits", "on the command line"),
    ] {
        let words = [
            "agent",
            "--redis",
            given,
            "--slots",
            "1",
            "--sandbox",
            level,
        ];
        let refused = shell.fairtrial(words).run();
        // How the URL is given is a matter of usage, and no agent that is started again would do better.
        let code = if says == "Redis has no password" {
            1
        } else {
            2
        };
        assert_eq!(refused.code, Some(code), "{given}: {refused:?}");
        for word in [says, "--sandbox strict", "--open-server-ok"] {
            assert!(refused.stderr.contains(word), "{}", refused.stderr);
        }
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
        assert_no_password("the refusal", refused.stderr.as_bytes());
        // What it offers helps.
        for offer in [["--sandbox", "strict"].as_slice(), &["--open-server-ok"]] {
            let given: Vec<&str> = match offer[0] {
                "--sandbox" => words[..5].iter().chain(offer).copied().collect(),
                _ => words.iter().chain(offer).copied().collect(),
            };
            let mut serves = shell.fairtrial(given).start();
            let line = serves.error_line();
            assert!(line.contains("serves"), "{line}");
            serves.signal(rustix::process::Signal::TERM);
            assert_eq!(serves.end().code, Some(0));
        }
    }
    // Standard input hides nothing that has a name; from a pipe it is gone.
    let path = file.trim_start_matches('@');
    let script = format!("exec \"$@\" < {path}");
    let words = ["agent", "--redis", "@-", "--slots", "1"];
    let refused = shell
        .fairtrial(words)
        .under_all(&["sh", "-c", &script, "sh"])
        .run();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("calls could read"),
        "{}",
        refused.stderr
    );
    let running = agent(&shell, &server, "by-pipe");
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.end().code, Some(0));
}

/// CL-46: the list is made as the manual says, by a shell; and without passwords no server takes it.
#[test]
fn the_list_of_users_is_filled_in_as_the_manual_says() {
    let manual = fs::read_to_string(in_docs("cluster.md")).expect("it is shipped");
    let (_, block) = manual
        .split_once("for user in SUBMITTER")
        .expect("it is there");
    let (block, _) = block.split_once("\ndone\n").expect("it ends");
    let script = format!("set -e\nfor user in SUBMITTER{block}\ndone\n");
    let shell = Shell::new();
    let list = fs::read_to_string(in_docs("cluster/users.acl")).expect("it is shipped");
    shell.write("users.acl", &list);
    #[expect(
        clippy::disallowed_methods,
        reason = "a shell of the manual's reader is no candidate"
    )]
    let mut bash = std::process::Command::new("bash");
    let made = bash
        .args(["-c", &script])
        .current_dir(shell.path())
        .output();
    let made = made.expect("bash is there");
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        return fairtrial_tests::note(format!("skipped: it needs openssl: {said}"));
    }
    let filled = shell.read("users.acl");
    assert!(!filled.contains("_SHA256"), "{filled}");
    let Some(server) = RedisServer::start_on(|dir| {
        fs::write(dir.join("users.acl"), filled).expect("a file");
        ServerTerms {
            words: vec!["--aclfile".into(), "users.acl".into()],
            user: None,
        }
    }) else {
        return;
    };
    let url = server.url_as("reader", shell.read("READER.password").trim());
    let file = format!("@{}", shell.write("reader-url", &url).display());
    let status = shell.fairtrial(["status", "--cluster", &file]).run();
    assert_eq!(status.code, Some(0), "{status:?}");
    let url = server.url();
    let stranger = shell.fairtrial(["status", "--cluster", &url]).run();
    assert_eq!(stranger.code, Some(1), "{stranger:?}");
}

/// CL-47
#[test]
fn the_manual_says_who_can_forge_results() {
    let manual = fs::read_to_string(in_docs("cluster.md")).expect("it is shipped");
    assert!(manual.contains("A holder of the agents' password can forge results"));
    assert!(manual.contains("Agents and submitters are trusted, calls are not"));
}
