//! What only a server can show: restarts, forgotten scripts, users, memory.

use std::time::Duration;

use fairtrial_cluster::{
    Agent, Announced, Cancelled, Class, Committed, Dispatch, DispatchError, Hint, Leased, Node,
    NodeState, Place, Renewed, StreamId, Submitted, Terms,
};

use crate::for_now::assert_refused_for_now;
use crate::stage::{RedisStage, Stage, dispatch_to};
use crate::users::rules_of;
use crate::words::*;

/// Section 4: reloaded by itself
#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_given_them_again() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    with_tasks(dispatch, &["a", "b"]).await;
    let forget = || async { stage.command::<()>(&["SCRIPT", "FLUSH"]).await };
    forget().await;
    let leased = lease(dispatch, &slot("n1")).await;
    forget().await;
    let (done, next) = dispatch
        .commit_and_lease(&commit(&leased), &queue(), Class::Cpu)
        .await
        .unwrap();
    assert_eq!(done, Committed::Committed);
    assert!(matches!(next, Ok(Leased::Task { .. })), "{next:?}");
}

/// CL-17, X12: of the two that go together only the first is a script that the server has to be given again.
#[tokio::test]
async fn a_commit_is_not_overtaken_by_the_lease_that_it_carries() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    let ids = with_tasks(dispatch, &["a", "b", "c"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    stage
        .delete_entry(&queue(), Class::Cpu, leased.token.entry)
        .await;
    let () = stage.command(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(lease(dispatch, &slot("n2")).await.task, ids[1]);
    let (done, next) = dispatch
        .commit_and_lease(&commit(&leased), &queue(), Class::Cpu)
        .await
        .unwrap();
    assert_eq!(done, Committed::Committed);
    assert!(
        matches!(&next, Ok(Leased::Task { lease, .. }) if lease.task == ids[2]),
        "{next:?}"
    );
}

/// CL-57, CL-72, X6 as far as dispatch goes
#[tokio::test]
async fn a_server_killed_and_started_again_has_lost_nothing() {
    let Some(mut stage) = RedisStage::start() else {
        return;
    };
    let ids = with_tasks(&stage.dispatch, &["a", "b", "c"]).await;
    let done = lease(&stage.dispatch, &slot("n1")).await;
    stage.dispatch.commit(&commit(&done)).await.unwrap();
    let held = lease(&stage.dispatch, &slot("n1")).await;
    let mut hints = stage.dispatch.hints(&[Class::Cpu], None).await.unwrap();
    // What was written a second ago is on the disk, whatever the disk; what is acknowledged now is with the kernel.
    stage.server.kill();
    let away = stage.dispatch.renew(&held).await;
    assert!(
        matches!(away, Err(DispatchError::Unreachable { .. })),
        "{away:?}"
    );
    let away = stage
        .dispatch
        .events(&queue(), StreamId::START, Duration::ZERO)
        .await;
    assert!(
        matches!(away, Err(DispatchError::Unreachable { .. })),
        "{away:?}"
    );
    // Listeners learn that they hear nothing any more.
    let end = async { while hints.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(30), end)
        .await
        .unwrap();
    stage.server.start_again();
    // The next call connects by itself, and scripts are loaded again.
    assert_eq!(stage.dispatch.renew(&held).await.unwrap(), Renewed::Ok);
    let places = stage.dispatch.check(&queue(), &ids).await.unwrap();
    assert_eq!(places, [Place::Done, Place::Leased, Place::Queued]);
    assert_eq!(
        stage.dispatch.commit(&commit(&held)).await.unwrap(),
        Committed::Committed
    );
    assert_eq!(lease(&stage.dispatch, &slot("n1")).await.task, ids[2]);
}

/// CL-58, X13
#[tokio::test]
async fn a_destroyed_group_is_made_again_by_submitting_what_is_missing() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    let held = lease(dispatch, &slot("n1")).await;
    let () = stage
        .command(&["XGROUP", "DESTROY", "ft:{study-1}:q:cpu", "agents"])
        .await;
    assert_eq!(try_lease(dispatch, &slot("n2")).await, Leased::Gone);
    assert_eq!(dispatch.renew(&held).await.unwrap(), Renewed::Lost);
    assert_eq!(
        dispatch.commit(&commit(&held)).await.unwrap(),
        Committed::Fenced
    );
    assert_eq!(
        dispatch.check(&queue(), &ids).await.unwrap(),
        [Place::Missing; 2]
    );
    reap(dispatch, &[]).await;
    assert!(dispatch.queue_status(&queue()).await.unwrap().is_some());
    assert_eq!(
        dispatch.submit(&queue(), &task("a")).await.unwrap(),
        Submitted::Dup
    );
    for id in &ids {
        let leased = lease(dispatch, &slot("n2")).await;
        assert_eq!(&leased.task, id);
        dispatch.commit(&commit(&leased)).await.unwrap();
    }
    assert_eq!(
        dispatch.check(&queue(), &ids).await.unwrap(),
        [Place::Done; 2]
    );
}

/// CL-39
#[tokio::test]
async fn every_key_of_a_queue_expires() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    for (named, expiry) in [(false, 3_600), (true, 7 * 86_400)] {
        stage.flush().await;
        open(dispatch, &Terms { named, ..terms() }).await;
        submit(dispatch, &["a", "b", "c"]).await;
        let done = lease(dispatch, &slot("n1")).await;
        dispatch.commit(&commit(&done)).await.unwrap();
        let running = lease(dispatch, &slot("n1")).await;
        dispatch.cancel(&queue(), &running.task).await.unwrap();
        dispatch.keep(&queue(), &owner("here")).await.unwrap();
        let keys: Vec<String> = stage.command(&["KEYS", "ft:{study-1}:*"]).await;
        assert_eq!(keys.len(), 7, "{keys:?}");
        for key in keys {
            let seconds: i64 = stage.command(&["TTL", &key]).await;
            let about = expiry - 100..=expiry;
            assert!(about.contains(&seconds), "{named} {key}: {seconds}");
        }
    }
}

/// CL-18: until somebody finds nothing, one hint is enough for whatever is submitted.
#[tokio::test]
async fn one_hint_is_given_for_many_submissions() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    open(dispatch, &terms()).await;
    let mut hints = dispatch.hints(&[Class::Cpu], Some("n1")).await.unwrap();
    let ids = submit(dispatch, &["a", "b", "c"]).await;
    lease(dispatch, &slot("n1")).await;
    dispatch.cancel(&queue(), &ids[0]).await.unwrap();
    let wake = Hint::Wake {
        class: Class::Cpu,
        queue: queue(),
    };
    let cancel = Hint::Cancel {
        queue: queue(),
        task: Some(ids[0].clone()),
    };
    for expected in [wake, cancel] {
        let hint = tokio::time::timeout(Duration::from_secs(30), hints.next()).await;
        assert_eq!(hint.unwrap(), Some(expected));
    }
}

/// CL-62
#[tokio::test]
async fn a_reader_behind_the_cap_is_told_of_a_gap() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    let opened = open(dispatch, &terms()).await;
    submit(dispatch, &["a", "b", "c"]).await;
    let () = stage
        .command(&["XTRIM", "ft:{study-1}:ev", "MAXLEN", "2"])
        .await;
    for after in [opened, StreamId::START] {
        let told = dispatch
            .events(&queue(), after, Duration::ZERO)
            .await
            .unwrap();
        assert_eq!((told.gap, told.events.len()), (true, 2));
    }
}

/// CL-11, CL-44, CL-70, CL-72
#[tokio::test]
async fn a_server_is_looked_at_before_it_is_used() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let suited = stage.dispatch.suited().await.unwrap();
    assert_eq!(suited.warnings, Vec::<String>::new());
    assert!(stage.dispatch.serves_strangers().await.unwrap());
    let () = stage.command(&["CONFIG", "SET", "appendonly", "no"]).await;
    assert_eq!(stage.dispatch.suited().await.unwrap().warnings.len(), 1);
    let () = stage
        .command(&[
            "CONFIG",
            "SET",
            "maxmemory",
            "100mb",
            "maxmemory-policy",
            "allkeys-lru",
        ])
        .await;
    let refused = stage.dispatch.suited().await;
    assert!(
        matches!(refused, Err(DispatchError::Unsuited { .. })),
        "{refused:?}"
    );
    let () = stage
        .command(&["CONFIG", "SET", "requirepass", "hunter2"])
        .await;
    assert!(!stage.dispatch.serves_strangers().await.unwrap());
}

/// A server that is full takes no task, but every result.
#[tokio::test]
async fn a_full_server_still_takes_results() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    let dispatch = &stage.dispatch;
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    let leased = lease(dispatch, &slot("n1")).await;
    let () = stage.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = dispatch.submit(&queue(), &task("c")).await;
    assert_refused_for_now(refused, "OOM");
    assert_eq!(dispatch.renew(&leased).await.unwrap(), Renewed::Ok);
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Committed
    );
    dispatch.collect(&queue(), &ids, &ids[..1]).await.unwrap();
    let () = stage.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(
        dispatch.submit(&queue(), &task("c")).await.unwrap(),
        Submitted::Ok
    );
    assert_eq!(lease(dispatch, &slot("n1")).await.task, ids[1]);
}

pub(crate) async fn add_user(stage: &RedisStage, name: &str, rules: &str) {
    let rules = rules.split_whitespace();
    let words: Vec<&str> = ["ACL", "SETUSER", name, "on", ">hunter2"]
        .into_iter()
        .chain(rules)
        .collect();
    let () = stage.command(&words).await;
}

/// CL-46
#[tokio::test]
async fn every_operation_works_with_the_rights_of_the_users_list() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    add_user(&stage, "agent", &rules_of("agent")).await;
    add_user(&stage, "reader", &rules_of("reader")).await;
    let dispatch = &dispatch_to(&stage.server.url_as("agent", "hunter2"));
    dispatch.suited().await.unwrap();
    let ids = with_tasks(dispatch, &["a", "b", "c", "d"]).await;
    dispatch.keep(&queue(), &owner("here")).await.unwrap();
    let _hints = dispatch.hints(&Class::ALL, Some("n1")).await.unwrap();
    let leased = lease(dispatch, &slot("n1")).await;
    assert_eq!(dispatch.renew(&leased).await.unwrap(), Renewed::Ok);
    assert_eq!(
        dispatch.commit(&commit(&leased)).await.unwrap(),
        Committed::Committed
    );
    let leased = lease(dispatch, &slot("n1")).await;
    dispatch.release(&leased, &uncounted()).await.unwrap();
    lease(dispatch, &slot("n1")).await;
    stage.pass(PAST_LEASE).await;
    assert_eq!(reap(dispatch, &[]).await.parked, 1);
    assert_eq!(
        dispatch.cancel(&queue(), &ids[3]).await.unwrap(),
        Cancelled::Removed
    );
    dispatch.pause(&queue(), true).await.unwrap();
    let node = Node {
        agent: Agent::new("n1", "x").unwrap(),
        classes: vec![Class::Cpu],
        state: NodeState::Up,
        about: serde_json::Value::Null,
    };
    assert_eq!(dispatch.announce(&node).await.unwrap(), Announced::Ok);
    dispatch.emit(&queue(), &[]).await.unwrap();

    let reader = &dispatch_to(&stage.server.url_as("reader", "hunter2"));
    assert_eq!(reader.queues().await.unwrap().len(), 1);
    assert_eq!(
        reader.nodes().await.unwrap().live,
        std::slice::from_ref(&node)
    );
    let status = reader.queue_status(&queue()).await.unwrap().unwrap();
    assert_eq!(
        (status.queued, status.parked, status.uncollected),
        (1, 1, 2)
    );
    assert!(["redis", "valkey"].contains(&&*reader.server_status().await.unwrap().name));
    assert_eq!(reader.dead_letters(&queue()).await.unwrap(), []);
    assert!(
        !reader
            .events(&queue(), StreamId::START, Duration::ZERO)
            .await
            .unwrap()
            .events
            .is_empty()
    );
    let denied = reader.submit(&queue(), &task("z")).await;
    assert!(
        matches!(&denied, Err(DispatchError::Denied { user, .. }) if user == "reader"),
        "{denied:?}"
    );

    dispatch.collect(&queue(), &ids, &ids).await.unwrap();
    dispatch.check(&queue(), &ids).await.unwrap();
    dispatch.cancel_queue(&queue()).await.unwrap();
    dispatch.remove_node(&node.agent).await.unwrap();
    dispatch.forget_node("n1").await.unwrap();
    dispatch.close(&queue(), &owner("here")).await.unwrap();
}

/// CL-48, X14
#[tokio::test]
async fn what_is_denied_is_told_with_user_and_command_and_never_a_password() {
    let Some(stage) = RedisStage::start() else {
        return;
    };
    with_tasks(&stage.dispatch, &["a"]).await;
    add_user(
        &stage,
        "weak",
        "~ft:* &ft:* +@hash +@scripting +@connection +time",
    )
    .await;
    add_user(&stage, "mute", "~ft:* +@connection").await;
    let url = |user, password| stage.server.url_as(user, password);
    let denied = |user: &str, command: &str| DispatchError::Denied {
        user: user.to_owned(),
        command: command.to_owned(),
        hint: match command {
            "AUTH" => ": wrong password, or no such user",
            _ => "",
        },
    };
    let in_script = try_with(&url("weak", "hunter2")).await;
    // Valkey says which command of the script it denied.
    let command = match in_script.to_string().contains("xpending") {
        true => "xpending",
        false => "lease",
    };
    assert_eq!(in_script, denied("weak", command));
    assert_eq!(
        try_with(&url("mute", "hunter2")).await,
        denied("mute", "evalsha")
    );
    assert_eq!(
        try_with(&url("weak", "hunter3")).await,
        denied("weak", "AUTH")
    );
    let () = stage
        .command(&["CONFIG", "SET", "requirepass", "hunter2"])
        .await;
    let stranger = try_with(&stage.server.url()).await;
    assert!(
        matches!(stranger, DispatchError::Denied { hint, .. } if hint.contains("it wants a password")),
        "{stranger:?}"
    );
    let listening = dispatch_to(&url("mute", "hunter2"))
        .hints(&[Class::Cpu], None)
        .await
        .unwrap_err();
    assert_eq!(listening, denied("mute", "subscribe"));
    for error in [in_script, stranger, listening] {
        assert!(!error.to_string().contains("hunter") && !format!("{error:?}").contains("hunter"));
    }
}

async fn try_with(url: &str) -> DispatchError {
    dispatch_to(url)
        .lease(&queue(), Class::Cpu, &slot("n1"))
        .await
        .unwrap_err()
}
