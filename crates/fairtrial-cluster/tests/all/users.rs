//! The list of users that is shipped: what each of them may, and that it is no more.

use std::path::Path;

use fairtrial_cluster::Dispatch;

use crate::server_only::add_user;
use crate::stage::{RedisStage, dispatch_to};
use crate::words::*;

/// The rules of one user in the shipped list.
pub(crate) fn rules_of(user: &str) -> String {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster/users.acl");
    let list = std::fs::read_to_string(list).unwrap();
    let start = format!("user {user} on ");
    let line = list.lines().find_map(|line| line.strip_prefix(&start));
    let (password, rules) = line.unwrap().split_once(' ').unwrap();
    // What a server refuses to load, until somebody puts a password's hash there.
    assert!(
        password.starts_with('#') && password.ends_with("_SHA256"),
        "{password}"
    );
    rules.to_owned()
}

/// Commands of a category, each as words with as many arguments as it needs.
async fn commands(stage: &RedisStage, category: &str, argument: &str) -> Vec<Vec<String>> {
    let names: Vec<String> = stage
        .command(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", category])
        .await;
    let mut all = Vec::new();
    for name in names {
        let info: Vec<Option<(String, i64)>> = {
            let raw: Vec<Option<Vec<redis::Value>>> =
                stage.command(&["COMMAND", "INFO", &name]).await;
            let arity = |fields: Vec<redis::Value>| {
                let redis::Value::Int(arity) = fields[1] else {
                    panic!("{fields:?}")
                };
                (name.clone(), arity)
            };
            raw.into_iter().map(|fields| fields.map(arity)).collect()
        };
        // A command that only holds others has no rights of its own.
        let Some((_, arity)) = info.into_iter().flatten().next() else {
            continue;
        };
        let mut words: Vec<String> = name.split('|').map(str::to_owned).collect();
        let least = usize::try_from(arity.unsigned_abs()).unwrap();
        words.resize(words.len().max(least), argument.to_owned());
        all.push(words);
    }
    all
}

/// What the server would say; empty if it would do it.
async fn refusal(stage: &RedisStage, user: &str, words: &[String]) -> String {
    let mut dry: Vec<&str> = vec!["ACL", "DRYRUN", user];
    dry.extend(words.iter().map(String::as_str));
    let mut cmd = redis::cmd("ACL");
    cmd.arg(&dry[1..]);
    let said: redis::RedisResult<String> = cmd.query_async(&mut stage.raw().await).await;
    match said {
        Ok(said) if said == "OK" => String::new(),
        Ok(said) => said,
        Err(error) => panic!("{words:?}: {error}"),
    }
}

/// CL-46: of every command that the server says writes, publishes, runs scripts or administers, none is the reader's.
#[tokio::test]
async fn the_reader_can_do_nothing_that_writes() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    add_user(&stage, "reader", &rules_of("reader")).await;
    let mut tried = 0;
    for category in [
        "write",
        "pubsub",
        "scripting",
        "admin",
        "dangerous",
        "keyspace",
    ] {
        for words in commands(&stage, category, "ft:x").await {
            // What it describes itself with.
            if words[0] == "info" {
                continue;
            }
            let said = refusal(&stage, "reader", &words).await;
            assert!(said.contains("no permissions to"), "{words:?}: {said:?}");
            tried += 1;
        }
    }
    assert!(tried > 150, "{tried}");
    // The same question has another answer where it is allowed.
    let status = ["hlen", "ft:x"].map(str::to_owned);
    assert_eq!(refusal(&stage, "reader", &status).await, "");
    let others = ["hlen", "other"].map(str::to_owned);
    assert!(!refusal(&stage, "reader", &others).await.is_empty());
}

/// CL-46: agents and submitters have the keys and channels below `ft:`, and no way to other keys or the server's settings.
#[tokio::test]
async fn agents_and_submitters_have_our_keys_and_no_others() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    for user in ["agent", "submitter"] {
        add_user(&stage, user, &rules_of(user)).await;
        for category in ["admin", "dangerous"] {
            for words in commands(&stage, category, "ft:x").await {
                if words[0] == "info" {
                    continue;
                }
                let said = refusal(&stage, user, &words).await;
                assert!(said.contains("no permissions to"), "{words:?}: {said:?}");
            }
        }
        for (words, is_ours) in [
            (["publish", "ft:wake:cpu", "q"].as_slice(), true),
            (&["publish", "other", "q"], false),
            (&["hset", "ft:{q}:meta", "a", "b"], true),
            (&["hset", "other", "a", "b"], false),
            (&["script", "load", "return 1"], true),
            (&["script", "flush"], false),
            (&["function", "flush"], false),
            (&["keys", "*"], false),
            (&["scan", "0"], false),
        ] {
            let owned: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let said = refusal(&stage, user, &owned).await;
            assert_eq!(said.is_empty(), is_ours, "{user}, {words:?}: {said}");
        }
    }
    let submitter = dispatch_to(&stage.server.url_as("submitter", "hunter2"));
    with_tasks(&submitter, &["a"]).await;
    submitter.close(&queue(), &owner("here")).await.unwrap();
}
