//! What users of a cluster are told when something is wrong, and when: one line, what to do, the right exit code. Real
//! servers, or none.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use fairtrial_cluster::nonce;
use fairtrial_tests::{Finished, RedisServer, Running, ServerTerms, Shell, wait_until};
use rustix::process::Signal;
use serde_json::json;

const STUDY: &str = "study_id: told
title: Told
agents: {a: {python: 'agent.py:go', isolation: fresh}}
problems: {p: {payload: {x: 1}}}
run_budget: {replicates: 12}
";
const AGENT: &str = "def go(run):
    return {'output': {'v': 1}}
";
const SLOW_AGENT: &str = "import time
def go(run):
    open(run['problem']['payload']['mark'], 'a').write('x')
    time.sleep(60)
";

fn with_study() -> Shell {
    let shell = Shell::new();
    shell.write("study/study.yaml", STUDY);
    shell.write("study/agent.py", AGENT);
    shell
}

/// A shell with a study whose runs leave a mark and last.
fn with_slow_study() -> Shell {
    let shell = Shell::new();
    let mark = shell.write("mark", "").display().to_string();
    shell.write(
        "study/study.yaml",
        &STUDY.replace("{x: 1}", &format!("{{mark: '{mark}'}}")),
    );
    shell.write("study/agent.py", SLOW_AGENT);
    shell
}

fn run(shell: &Shell, url: &str) -> Running {
    let words = ["run", "study/study.yaml", "--out", "out", "--backend", url];
    shell.fairtrial(words).start()
}

fn agent(shell: &Shell, server: &RedisServer) -> Running {
    // A name that was another's is free only a while after its end.
    let name = format!("one-{}", nonce());
    let url = server.url();
    let words = ["agent", "--redis", &url, "--slots", "1", "--name", &name];
    let terms = ["--sandbox", "none", "--open-server-ok", "--lease", "3s"];
    let mut agent = shell.fairtrial(words.into_iter().chain(terms)).start();
    let line = agent.error_line();
    assert!(
        line.contains("serves") && line.ends_with("with 1 slot\n"),
        "{line}"
    );
    agent
}

/// A server that wants a password, and knows a user who may only look.
fn locked() -> Option<RedisServer> {
    let words = [
        "--requirepass",
        "hunter2",
        "--user",
        "reader",
        "on",
        ">hunter2",
        "~*",
        "+@read",
        "+@connection",
    ];
    RedisServer::start_on(|_| ServerTerms {
        words: words.map(str::to_owned).to_vec(),
        user: None,
    })
}

/// One line that says all of this, after those that tell of something else.
fn assert_says(ended: &Finished, code: i32, all: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let others = ["warning: ", "the server is back", "stopping;"];
    let told = |line: &&str| !others.iter().any(|other| line.starts_with(other));
    let lines: Vec<&str> = ended.stderr.lines().filter(told).collect();
    let [line] = lines[..] else {
        panic!("one line: {ended:?}");
    };
    for words in all {
        assert!(line.contains(words), "`{words}` in {line}");
    }
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
}

/// CL-48: who is not let in is told why, and nothing is made.
#[test]
fn a_study_whose_server_does_not_let_it_in_makes_nothing() {
    let Some(server) = locked() else { return };
    let shell = with_study();
    let wrong = server.url_as("default", "hunter3");
    for (url, says) in [
        (&server.url(), "it wants a password"),
        (&wrong, "wrong password"),
    ] {
        let ended = run(&shell, url).end();
        assert_says(
            &ended,
            1,
            &["error: the server denies `AUTH` to user `default`", says],
        );
        assert!(!shell.path().join("out").exists(), "{ended:?}");
    }
}

/// CL-48, CL-57: what every run would end with ends the study; its runs are not lost, and it can be gone on with.
#[test]
fn a_study_whose_backend_fails_ends_with_the_reason() {
    let (Some(server), Some(open)) = (locked(), RedisServer::start()) else {
        return;
    };
    let reader = server.url_as("reader", "hunter2");
    let away = "redis+unix:///nonexistent/s?server_timeout=300ms";
    for (url, says) in [
        (&*reader, "to user `reader`"),
        (away, "cannot reach the server"),
    ] {
        let shell = with_study();
        let ended = run(&shell, url).end();
        assert_says(
            &ended,
            1,
            &["error: ", says, "go on with: fairtrial resume out"],
        );
        assert!(!ended.stdout.contains("lost"), "{ended:?}");
        assert!(ended.stdout.contains("given up after 0 runs"), "{ended:?}");
        let _agent = agent(&shell, &open);
        let url = open.url();
        let resumed = shell.fairtrial(["resume", "out", "--backend", &url]).run();
        assert_eq!(resumed.code, Some(0), "{resumed:?}");
        assert!(resumed.stdout.contains("12 success"), "{resumed:?}");
    }
}

/// CL-51, CL-57: a store of no use is found before anything is written down.
#[test]
fn a_study_whose_store_is_of_no_use_makes_nothing() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = with_study();
    let url = format!("{}?blobs=file:///proc/none/q", server.url());
    let ended = run(&shell, &url).end();
    assert_says(&ended, 1, &["error: blob store `file:///proc/none/q`"]);
    assert!(!shell.path().join("out").exists(), "{ended:?}");
}

/// CL-57: a server that goes away in the middle and stays away.
#[tokio::test]
async fn a_study_whose_server_stays_away_is_given_up_in_time() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = with_slow_study();
    let _agent = agent(&shell, &server);
    let mut running = run(&shell, &format!("{}?server_timeout=3s", server.url()));
    wait_until("a run began", || shell.read("mark") == "x").await;
    server.kill();
    let line = running.error_line();
    assert!(
        line.contains("trying again for up to 3 s (`?server_timeout=`)"),
        "{line}"
    );
    let begun = Instant::now();
    let ended = running.end();
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    assert_says(
        &ended,
        1,
        &[
            "cannot reach the server",
            "go on with: fairtrial resume out",
        ],
    );
    assert!(!ended.stdout.contains("lost"), "{ended:?}");
}

/// CL-56: whoever was to say what became of a run may be gone; 5 s later nobody waits any more.
#[tokio::test]
async fn an_interrupted_study_waits_five_seconds_for_nobody() {
    for server_goes in [true, false] {
        let Some(mut server) = RedisServer::start() else {
            return;
        };
        let shell = with_slow_study();
        let agent = agent(&shell, &server);
        let running = run(&shell, &server.url());
        wait_until("a run began", || shell.read("mark") == "x").await;
        match server_goes {
            true => server.kill(),
            false => agent.signal(Signal::KILL),
        }
        let begun = Instant::now();
        running.signal(Signal::INT);
        let ended = running.end();
        let took = begun.elapsed();
        assert!((4..10).contains(&took.as_secs()), "{took:?}");
        assert_eq!(ended.code, Some(130), "{ended:?}");
        assert!(
            ended.stderr.contains("stopping; once more to stop at once"),
            "{ended:?}"
        );
        // At most the one that began: what was waiting did not run.
        let counts = ["interrupted after 0 runs\n", "interrupted after 1 run\n"];
        let counted = counts.iter().any(|count| ended.stdout.contains(count));
        assert!(counted, "{ended:?}");
        assert!(!ended.stderr.contains("has been killed"), "{ended:?}");
    }
}

/// CL-48, CL-57: what every call would end with is told once, and ends the batch.
#[test]
fn a_batch_whose_backend_fails_says_so_once() {
    let Some(server) = locked() else { return };
    let shell = Shell::new();
    let calls: Vec<_> = (0..300)
        .map(|id| json!({"id": id, "argv": ["true"]}))
        .collect();
    shell.write_lines("calls.jsonl", &calls);
    let away = "redis+unix:///nonexistent/s?server_timeout=300ms";
    for (url, says) in [
        (&*server.url(), "it wants a password"),
        (away, "cannot reach the server"),
    ] {
        let ended = shell
            .fairtrial(["batch", "calls.jsonl", "--backend", url])
            .run();
        assert_says(&ended, 1, &["error: ", says]);
        assert_eq!(ended.stdout, "");
    }
}

/// CL-55, CL-45: what an address, or an option in it, cannot be.
#[test]
fn what_a_url_cannot_be_is_told() {
    let shell = Shell::new();
    shell.write_lines("calls.jsonl", &[json!({"id": 1, "argv": ["true"]})]);
    shell.write("empty", "\n");
    let backend = ["batch", "calls.jsonl", "--backend"].as_slice();
    let agent = ["agent", "--slots", "1", "--redis"].as_slice();
    let status = ["status", "--cluster"].as_slice();
    for (words, url, says) in [
        (backend, "loacl", ["`loacl`", "`local`"]),
        (backend, "", ["``", "redis://host:6379"]),
        (
            backend,
            "redis//127.0.0.1",
            ["`redis//127.0.0.1`", "redis://host:6379"],
        ),
        (
            backend,
            "reddis://127.0.0.1",
            ["`reddis://127.0.0.1`", "redis://host:6379"],
        ),
        (
            backend,
            "redis://:hunter2@h:x",
            ["`redis://***@h:…`", "redis://host:6379"],
        ),
        (
            backend,
            "@empty",
            ["`@empty` is empty", "redis://host:6379"],
        ),
        (
            agent,
            "127.0.0.1:17391",
            ["`127.0.0.1:17391`", "redis://host:6379"],
        ),
        (
            agent,
            "redis://h?queue=x",
            ["--redis: `queue`", "for `--backend`"],
        ),
        (
            agent,
            "redis://h?quue=x",
            ["--redis: `quue`", "is no option"],
        ),
        (
            status,
            "redis://h?lease=abc",
            ["--cluster: `lease`", "for `--backend`"],
        ),
        (
            status,
            "redis://h/abc",
            ["`redis://h/abc`", "redis://host:6379"],
        ),
    ] {
        let ended = shell.fairtrial(words.iter().copied().chain([url])).run();
        assert_says(&ended, 2, &says);
    }
}

/// CL-51: the store of an agent may stand in its URL, and is one.
#[test]
fn an_agent_takes_its_store_from_the_url() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let url = format!("{}?blobs=file:///proc/none/q", server.url());
    let words = ["agent", "--slots", "1", "--open-server-ok", "--redis", &url];
    let ended = shell.fairtrial(words).run();
    assert_says(&ended, 1, &["error: blob store `file:///proc/none/q`"]);
    let ended = shell
        .fairtrial(words.into_iter().chain(["--blobs", "file:///tmp"]))
        .run();
    assert_says(
        &ended,
        2,
        &["--blobs: the URL of --redis names another store"],
    );
}

/// CL-6: what is no Redis server is told as such, once, in one line.
#[test]
fn another_kind_of_server_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            drop(stream.read(&mut [0; 512]));
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    let shell = with_study();
    let url = format!("redis://127.0.0.1:{port}");
    for words in [
        ["status", "--cluster", &url].as_slice(),
        &["run", "study/study.yaml", "--out", "out", "--backend", &url],
    ] {
        let ended = shell.fairtrial(words.iter().copied()).run();
        assert_says(
            &ended,
            1,
            &[
                "error: cannot use the server",
                "no Redis server answers there",
            ],
        );
    }
    let tls = format!("rediss://127.0.0.1:{port}");
    let ended = shell.fairtrial(["status", "--cluster", &tls]).run();
    assert_says(
        &ended,
        1,
        &["cannot reach the server", "does it speak TLS?"],
    );
}

/// CL-44, CL-48: a password on the command line is everybody's.
#[test]
fn a_password_on_the_command_line_is_warned_of_once() {
    let Some(server) = locked() else { return };
    let shell = Shell::new();
    let url = server.url_as("default", "hunter2");
    let file = format!("@{}", shell.write("url", &url).display());
    for (given, warns) in [(&url, 1), (&file, 0)] {
        let ended = shell.fairtrial(["status", "--cluster", given]).run();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let warnings = ended
            .stderr
            .matches("can read a password on the command line")
            .count();
        assert_eq!(warnings, warns, "{ended:?}");
        assert_eq!(ended.stderr.matches("`@FILE`").count(), warns, "{ended:?}");
    }
}

/// CL-6: nobody is said to serve who does not.
#[test]
fn an_agent_that_may_not_serve_does_not_say_it_does() {
    let Some(server) = locked() else { return };
    let shell = Shell::new();
    let url = server.url_as("reader", "hunter2");
    let words = ["agent", "--redis", &url, "--slots", "1", "--open-server-ok"];
    let ended = shell.fairtrial(words).run();
    assert_says(&ended, 1, &["error: ", "to user `reader`"]);
}

/// ST-79: runs that a killed command left in the queue are not lost, and it is said who goes on with them.
#[tokio::test]
async fn what_a_killed_command_left_under_way_is_not_called_lost() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = with_slow_study();
    let _agent = agent(&shell, &server);
    let running = run(&shell, &server.url());
    wait_until("a run began", || shell.read("mark") == "x").await;
    running.signal(Signal::KILL);
    drop(running.end());
    let status = shell.fairtrial(["status", "out"]).run();
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(!status.stdout.contains("lost"), "{status:?}");
    let said = "12 under way when it was ended; `fairtrial resume out` goes on with them";
    assert!(status.stdout.contains(said), "{status:?}");
}

/// EX-97: the hint is of the command that was meant.
#[test]
fn bad_usage_names_its_command() {
    let shell = Shell::new();
    for (line, says) in [
        (
            "agent --redis redis://h --slots two",
            ["--slots: `two` is not a whole number", "1 to 4096"],
        ),
        (
            "agent --redis redis://h --slots 5000",
            ["--slots: `5000` is not a whole number", "1 to 4096"],
        ),
        (
            "agent --redis redis://h --slots 1 --name a/b",
            ["--name: `a/b` is no agent name", "one of"],
        ),
        (
            "batch",
            ["were not provided", "(see `fairtrial batch --help`)"],
        ),
        (
            "exec a.py --backend redis://h",
            ["`--backend`", "`exec` runs on this machine"],
        ),
    ] {
        let ended = shell.fairtrial(line.split(' ')).run();
        assert_says(&ended, 2, &says);
    }
}
