//! A server on loopback that does everything servers do.

mod server;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::ask::{Ask, Kind, RequestId};
use super::super::wire::{BaseFacts, Parent};
use super::*;
use crate::stage::Content;
use server::{Act, TestServer};

const PATCH: &str = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n";
const KEY: &str = "sk-test-0123456789";

/// Nothing here takes so long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn request() -> Request {
    let ask = Ask {
        id: RequestId::numbered(1),
        kind: Kind::Repair,
        n: 1,
        parents: vec!["c-1".to_owned()],
        ancestry: Vec::new(),
    };
    Request::new(&ask, BaseFacts::default(), |id| Parent {
        id: id.to_owned(),
        ..Parent::default()
    })
}

fn completion() -> Act {
    let text = format!("Faster.\n```diff\n{PATCH}```\n");
    let body = json!({
        "choices": [{"message": {"content": text}}],
        "usage": {"total_tokens": 42},
    });
    Act::answer(200, body.to_string())
}

fn settings(base_url: &str) -> HttpSettings {
    HttpSettings {
        retries: 2,
        ..HttpSettings::new(base_url, "some-model")
    }
}

/// Waits of no account between tries.
const HASTE: Pace = Pace {
    first: Duration::from_millis(1),
    most: Duration::from_millis(2),
};

fn proposer(settings: HttpSettings) -> HttpProposer {
    let env = BTreeMap::from([("OPENAI_API_KEY".into(), KEY.into())]);
    HttpProposer::at_pace(settings, &env, HASTE).expect("a good server")
}

async fn asked(settings: HttpSettings) -> Result<Answer, Failure> {
    let asking = proposer(settings).ask(request());
    tokio::time::timeout(PATIENCE, asking)
        .await
        .expect("it ends")
}

async fn asked_of(server: &TestServer) -> Result<Answer, Failure> {
    asked(settings(&server.url())).await
}

/// CA-85
#[tokio::test]
async fn a_completion_is_asked_for_and_read() {
    let server = TestServer::new(vec![completion()]);
    let answer = asked_of(&server).await.expect("an answer");
    assert_eq!(answer.candidates[0].content, Content::Patch(PATCH.into()));
    assert_eq!(answer.tokens, Some(42));
    let heard = server.heard();
    let [(head, body)] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert!(
        head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.to_lowercase()
            .contains(&format!("authorization: bearer {KEY}\r\n")),
        "{head}"
    );
    let body: Value = serde_json::from_slice(body).expect("JSON");
    assert_eq!(body["model"], "some-model");
}

/// CA-85
#[tokio::test]
async fn without_a_key_none_is_sent() {
    let server = TestServer::new(vec![completion()]);
    let proposer =
        HttpProposer::new(settings(&server.url()), &BTreeMap::new()).expect("a good server");
    assert!(!proposer.has_key());
    let asking = tokio::time::timeout(PATIENCE, proposer.ask(request()));
    asking.await.expect("it ends").expect("an answer");
    assert!(!server.heard()[0].0.to_lowercase().contains("authorization"));
}

/// CA-85
#[tokio::test]
async fn what_may_pass_is_tried_again() {
    let server = TestServer::new(vec![
        Act::answer(429, "slow down").with("retry-after", "0"),
        Act::CloseEarly,
        completion(),
    ]);
    asked_of(&server).await.expect("an answer");
    assert_eq!(server.heard().len(), 3);
}

/// CA-85
#[tokio::test]
async fn tries_are_counted() {
    for act in [
        Act::answer(503, "busy"),
        Act::CloseAtOnce,
        Act::CloseEarly,
        Act::Rubbish,
    ] {
        let server = TestServer::new(vec![act.clone()]);
        let failure = asked_of(&server).await.expect_err("no answer");
        assert_eq!(failure.kind, FailureKind::Lost, "{act:?}: {failure}");
        assert!(
            failure.message.ends_with("tried 3 times"),
            "{act:?}: {failure}"
        );
        assert_eq!(server.heard().len(), 3, "{act:?}");
    }
}

/// CA-9, CA-85
#[tokio::test]
async fn who_is_refused_does_not_try_again_and_does_not_tell_the_key() {
    for status in [401, 403, 404] {
        let server = TestServer::new(vec![Act::answer(status, format!("bad key {KEY}"))]);
        let failure = asked_of(&server).await.expect_err("refused");
        assert_eq!(failure.kind, FailureKind::ProposerDead);
        let message = format!("the server answered {status}: bad key [secret]");
        assert_eq!(failure.message, message);
        assert_eq!(server.heard().len(), 1);
    }
}

/// CA-85
#[tokio::test]
async fn a_bad_request_fails_alone() {
    let server = TestServer::new(vec![Act::answer(
        400,
        r#"{"error": {"message": "context too long"}}"#,
    )]);
    let failure = asked_of(&server).await.expect_err("refused");
    assert_eq!(failure.kind, FailureKind::Lost);
    assert!(failure.message.contains("context too long"));
    assert_eq!(server.heard().len(), 1);
}

/// CA-85: the silence of a server is bounded by `timeout` for each try.
#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for_any_longer() {
    for act in [Act::Stall, Act::StallInBody] {
        let server = TestServer::new(vec![act]);
        let settings = HttpSettings {
            timeout: Duration::from_millis(150),
            retries: 1,
            ..settings(&server.url())
        };
        let failure = asked(settings).await.expect_err("no answer");
        assert_eq!(failure.kind, FailureKind::Lost, "{failure}");
    }
}

/// CA-85
#[tokio::test]
async fn who_is_told_to_wait_too_long_gives_up_at_once() {
    let server = TestServer::new(vec![Act::answer(429, "").with("retry-after", "86400")]);
    let failure = asked_of(&server).await.expect_err("no answer");
    assert!(
        failure
            .message
            .contains("to wait 86400 s more would be too long"),
        "{failure}"
    );
    assert_eq!(server.heard().len(), 1);
}

/// CA-9: a key is sent to the server that was named, and to no other.
#[tokio::test]
async fn redirects_are_not_followed() {
    for status in [301, 302, 307, 308] {
        let elsewhere = TestServer::new(vec![completion()]);
        let act = Act::answer(status, "").with("location", &format!("{}/x", elsewhere.url()));
        let server = TestServer::new(vec![act]);
        let failure = asked_of(&server).await.expect_err("no answer");
        assert_eq!(failure.kind, FailureKind::Lost);
        assert!(
            failure.message.contains("which is not followed"),
            "{failure}"
        );
        assert!(elsewhere.heard().is_empty());
    }
}

/// CA-86
#[tokio::test]
async fn a_huge_answer_is_malformed_and_so_is_one_that_is_no_json() {
    let server = TestServer::new(vec![Act::Huge]);
    let failure = asked_of(&server).await.expect_err("no answer");
    let malformed = failure.malformed.expect("malformed");
    assert_eq!(
        (malformed.problem.as_str(), malformed.excerpt.len()),
        ("has more than 16 MiB", 2048)
    );
    let server = TestServer::new(vec![Act::answer(200, "<html>hello</html>")]);
    let failure = asked_of(&server).await.expect_err("no answer");
    assert_eq!(
        failure.malformed.expect("malformed").excerpt,
        "<html>hello</html>"
    );
    assert_eq!(
        server.heard().len(),
        1,
        "it was paid for, and would be no better"
    );
}

/// CA-85
#[tokio::test]
async fn a_server_that_is_not_there_is_a_network_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    drop(listener);
    let failure = asked(settings(&format!("http://{address}/v1")))
        .await
        .expect_err("no answer");
    assert_eq!(failure.kind, FailureKind::Lost);
    assert!(failure.message.ends_with("tried 3 times"), "{failure}");
}

/// CA-85
#[tokio::test]
async fn who_does_not_speak_tls_is_a_network_error() {
    let server = TestServer::new(vec![completion()]);
    let failure = asked(settings(&server.url().replace("http:", "https:"))).await;
    let failure = failure.expect_err("no answer");
    assert_eq!(failure.kind, FailureKind::Lost);
    assert!(failure.message.ends_with("tried 3 times"), "{failure}");
    assert!(server.heard().is_empty(), "no key is sent in the clear");
}

/// CA-41: nobody waits for what was given up.
#[tokio::test]
async fn a_question_can_be_given_up() {
    let server = TestServer::new(vec![Act::Stall]);
    let asking = proposer(settings(&server.url())).ask(request());
    let (stop, stopped) = oneshot::channel::<()>();
    let given_up = tokio::spawn(async move {
        tokio::select! {
            answer = asking => panic!("{answer:?}"),
            _ = stopped => {}
        }
    });
    tokio::task::yield_now().await;
    drop(stop);
    tokio::time::timeout(PATIENCE, given_up)
        .await
        .expect("it ends")
        .expect("no answer");
}

/// CA-6, CA-9
#[test]
fn servers_that_cannot_be_are_refused_without_telling_the_key() {
    let refused = |base_url: &str, key: &str| {
        let env = BTreeMap::from([("OPENAI_API_KEY".into(), key.into())]);
        let refused = HttpProposer::new(HttpSettings::new(base_url, "m"), &env);
        refused.err().map(|error| error.to_string())
    };
    assert_eq!(refused("https://example.org/v1/", KEY), None);
    assert_eq!(refused("http://[::1]:8080", ""), None);
    for base_url in [
        "",
        "example.org",
        "ftp://example.org",
        "http://",
        "https://exa mple.org",
    ] {
        let message = refused(base_url, KEY).unwrap_or_else(|| panic!("`{base_url}` is taken"));
        assert!(message.starts_with("`proposer.base_url`: `"), "{message}");
    }
    let message = refused("https://example.org", "sk-\nevil").expect("refused");
    assert_eq!(
        message,
        "`proposer.api_key_env`: the value of `OPENAI_API_KEY` has characters that no key has"
    );
    let env = BTreeMap::from([("SSL_CERT_FILE".into(), "/nonexistent/roots.pem".into())]);
    let refused = HttpProposer::new(HttpSettings::new("https://example.org", "m"), &env);
    assert!(
        refused
            .expect_err("no such file")
            .problem
            .starts_with("the certificates of `SSL_CERT_FILE`")
    );
    let proposer = proposer(HttpSettings::new("https://example.org", "m"));
    assert!(!format!("{proposer:?}").contains(KEY));
}
