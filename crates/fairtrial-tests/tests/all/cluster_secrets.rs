//! What an agent finds out about its own credentials before it serves: whether calls could read them, and whether they are
//! good for all that an agent does.

use std::fs;
use std::path::Path;

use fairtrial_tests::{RedisServer, Running, ServerTerms, Shell};

use super::cluster_canaries::{free_port, make_certificate, start_store};
use super::cluster_users::{assert_no_password, password, start, users};

/// An agent at the level `limits` whose URL comes by a pipe, and the first line that it says.
fn started(shell: &Shell, url: &str, more: &[&str]) -> (Running, String) {
    let words = [
        "agent",
        "--redis",
        "@-",
        "--slots",
        "1",
        "--sandbox",
        "limits",
    ];
    let mut agent = shell.fairtrial(words.iter().chain(more).copied()).start();
    agent.say(url);
    let line = agent.error_line();
    (agent, line)
}

/// It does not start because of this file, and because of nothing else.
fn assert_guards(file: &Path, url: &str, more: &[&str]) {
    let shell = Shell::new();
    let (refused, line) = started(&shell, url, more);
    let says = format!("calls could read `{}`", file.display());
    assert!(line.contains(&says), "{line}");
    assert_no_password("the refusal", line.as_bytes());
    let refused = refused.end();
    assert_eq!((refused.code, &*refused.stderr), (Some(2), ""));
    // Told that calls may, it serves.
    let (serves, line) = started(&shell, url, &[more, &["--open-server-ok"]].concat());
    assert!(line.contains("serves"), "{line}");
    serves.signal(rustix::process::Signal::TERM);
    assert_eq!(serves.end().code, Some(0));
}

/// CL-44: the key that an agent shows itself with is as good as a password.
#[test]
fn an_agent_whose_key_calls_could_read_does_not_start() {
    let port = free_port();
    let mut is_certified = false;
    let server = RedisServer::start_on(|dir| {
        is_certified = make_certificate(dir);
        if !is_certified {
            return ServerTerms::default();
        }
        fs::write(dir.join("users.acl"), users()).expect("a file");
        let words = format!(
            "--aclfile users.acl --tls-port {port} --bind 127.0.0.1 --tls-key-file server.key --tls-cert-file \
             server.pem --tls-ca-cert-file server.pem --tls-auth-clients optional"
        );
        ServerTerms {
            words: words.split_whitespace().map(str::to_owned).collect(),
            user: None,
        }
    });
    let Some(server) = server.filter(|_| is_certified) else {
        return;
    };
    let dir = server.dir().canonicalize().expect("it is there");
    let (shown, password) = (dir.display(), password("agent"));
    let url = format!(
        "rediss://agent:{password}@localhost:{port}?ca={shown}/server.pem&cert={shown}/server.pem&key={shown}/server.key"
    );
    assert_guards(&dir.join("server.key"), &url, &[]);
}

/// CL-44: so is the token that opens the store.
#[test]
fn an_agent_whose_token_calls_could_read_does_not_start() {
    let Some(server) = start() else {
        return;
    };
    let shell = Shell::new();
    let token = shell.write("token", "a-token");
    let blobs = shell.path().join("blobs");
    fs::create_dir(&blobs).expect("a directory");
    let (_store, port) = start_store(&blobs, "a-token");
    let token = token.canonicalize().expect("it is there");
    let store = format!("http://127.0.0.1:{port}/b?token_file={}", token.display());
    let url = server.url_as("agent", password("agent"));
    assert_guards(&token, &url, &["--blobs", &store]);
}

/// CL-6, CL-48: a user who may come in and not serve is told at the start, not by the first call.
#[test]
fn an_agent_whose_user_is_too_weak_never_serves() {
    let list = users();
    let agent = list.lines().find(|line| line.starts_with("user agent "));
    let rules = agent.and_then(|line| line.splitn(5, ' ').nth(4));
    let rules = rules.expect("name, state, password, rules");
    let weak = [
        ("streamless", "-@stream", "xreadgroup"),
        ("silent", "-@pubsub", "publish"),
        ("deaf", "-subscribe", "subscribe"),
        ("scriptless", "-@scripting", "evalsha"),
    ];
    let lines = weak.map(|(user, less, _)| format!("user {user} on >pass-weak {rules} {less}\n"));
    let server = RedisServer::start_on(|dir| {
        fs::write(dir.join("users.acl"), list.clone() + &lines.concat()).expect("a file");
        ServerTerms {
            words: vec!["--aclfile".into(), "users.acl".into()],
            user: None,
        }
    });
    let Some(server) = server else {
        return;
    };
    let shell = Shell::new();
    for (user, _, command) in weak {
        let url = server.url_as(user, "pass-weak");
        let url = format!("@{}", shell.write(user, &url).display());
        let words = ["agent", "--redis", &url, "--slots", "1", "--open-server-ok"];
        let refused = shell.fairtrial(words).run();
        assert_eq!(refused.code, Some(1), "{user}: {refused:?}");
        let says = format!("the server denies `{command}` to user `{user}`");
        assert!(refused.stderr.contains(&says), "{refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        assert!(!refused.stderr.contains("serves"), "{refused:?}");
    }
}
