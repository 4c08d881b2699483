//! `fairtrial agent --sweep-blobs`: what goes, and what somebody still needs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fairtrial_cluster::{
    Class, Dispatch as _, Opened, Owner, QueueName, Task, TaskId, Terms, Verdicts,
};
use fairtrial_tests::{RedisServer, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::cluster_words::{agent, batch_to, command, dispatch, number};

/// Waits for a file.
const HELD: &str = "import os, time
def f(begun, go):
    open(begun, 'a').write('x')
    while not os.path.exists(go): time.sleep(0.01)";

/// Blobs that are in a store.
fn blobs(store: &Path) -> Vec<PathBuf> {
    let below = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        entries.map(|entry| entry.expect("it can be listed").path())
    };
    let folders = below(&store.join("sha256"));
    folders
        .flat_map(|folder| below(&folder).collect::<Vec<_>>())
        .collect()
}

/// They were stored two days ago.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock that dates files is the one of the wall"
)]
fn age(store: &Path) {
    let then = SystemTime::now() - Duration::from_secs(48 * 60 * 60);
    for path in blobs(store) {
        let file = File::options().write(true).open(path).expect("a blob");
        file.set_modified(then).expect("it is ours");
    }
}

/// CL-53: what is old goes, unless a call that waits, a result that nobody took or a running command names it; what is
/// young stays.
#[tokio::test]
async fn a_sweep_removes_what_nobody_needs() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let store = shell.path().join("blobs");
    std::fs::create_dir(&store).expect("a directory");
    let url = format!("file://{}", store.display());
    let path = |name: &str| shell.path().join(name).display().to_string();
    let start = |queue: &str, calls: &[Json]| {
        let file = format!("{queue}.jsonl");
        shell.write_lines(&file, calls);
        let terms = format!("lease=3s&blobs={url}");
        batch_to(queue, &shell, &server, &file, &terms)
    };
    let large = |text: &str| {
        let source = "def f(x): return x";
        json!({"id": 1, "source": source, "function": "f", "args": [text.repeat(100_000)]})
    };
    let held = |begun: &str, go: &str, value: &str| {
        let source = format!("{HELD}\n    return {value}");
        json!({"id": 2, "source": source, "function": "f", "args": [path(begun), path(go)]})
    };
    let is = |queue: &str, what| number(&shell, &server, queue, what) == Some(1);
    let words = ["--slots", "1", "--blobs", &url];
    let _agent = agent(&shell, &server, "one", &words);
    // Nobody needs what belonged to a call that is over.
    let over = start("over", &[large("a")]).end();
    assert_eq!(over.code, Some(0), "{over:?}");
    let of_nobody = blobs(&store);
    assert!(!of_nobody.is_empty());
    // A directory that no call names now, and that the command may use again.
    shell.write("lib/helper.py", "X = 1");
    let source = "import helper\ndef f(): return helper.X";
    let uses = json!({"id": 1, "source": source, "function": "f", "python_path": [path("lib")]});
    let _pins = start("pins", &[uses, held("begun-1", "go-1", "1")]);
    wait_until("its second call runs", || shell.size("begun-1") == 1).await;
    // A result that nobody took.
    let second = agent(&shell, &server, "two", &words);
    let stopped = start("stopped", &[held("begun-2", "go-2", "'x' * 300_000")]);
    wait_until("it runs", || shell.size("begun-2") == 1).await;
    stopped.signal(Signal::STOP);
    second.signal(Signal::TERM);
    shell.write("go-2", "");
    assert_eq!(second.end().code, Some(0));
    assert!(is("stopped", "uncollected"));
    // Calls that wait, one before and one after the rest has become old.
    let _waits = start("waits", &[large("b")]);
    wait_until("it is queued", || is("waits", "queued")).await;
    let needed: Vec<PathBuf> = blobs(&store)
        .into_iter()
        .filter(|blob| !of_nobody.contains(blob))
        .collect();
    assert_eq!(needed.len(), 3, "{needed:?}");
    age(&store);
    let _young = start("young", &[large("c")]);
    wait_until("it is queued", || is("young", "queued")).await;
    let redis = server.url();
    let sweep = ["agent", "--redis", &redis, "--sweep-blobs", "--blobs", &url];
    let swept = shell.fairtrial(sweep).run();
    assert_eq!(swept.code, Some(0), "{swept:?}");
    let said = format!("{} blobs removed", of_nobody.len()).replace("1 blobs", "1 blob");
    assert!(swept.stdout.contains(&said), "{swept:?}");
    let said = "3 blobs in use, 1 blob younger than a day";
    assert!(swept.stdout.contains(said), "{swept:?}");
    let left = blobs(&store);
    assert_eq!(left.len(), 4);
    assert!(needed.iter().all(|blob| left.contains(blob)), "{left:?}");
}

/// CL-53: where something may name blobs that cannot be read, nothing is removed.
#[tokio::test]
async fn a_sweep_that_cannot_read_a_task_removes_nothing() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let store = shell.path().join("blobs");
    std::fs::create_dir(&store).expect("a directory");
    let url = format!("file://{}", store.display());
    let dispatch = dispatch(&server);
    let queue = QueueName::new("later").expect("a name");
    let owner = Owner {
        host: "here".to_owned(),
        pid: 1,
        nonce: "n".to_owned(),
    };
    let terms = Terms::new(Verdicts::default());
    let opened = dispatch.open(&queue, &owner, &terms).await;
    assert!(matches!(opened, Ok(Opened::Opened { .. })), "{opened:?}");
    let envelope = br#"{"protocol": "9.0"}"#.to_vec();
    let task = Task {
        id: TaskId::of(&queue, "key", &envelope),
        class: Class::Cpu,
        envelope,
        queue_timeout: None,
    };
    dispatch.submit(&queue, &task).await.expect("it answers");
    let folder = store.join("sha256/00");
    std::fs::create_dir_all(&folder).expect("a directory");
    std::fs::write(folder.join("0".repeat(64)), "old").expect("a file");
    age(&store);
    let redis = server.url();
    let sweep = ["agent", "--redis", &redis, "--sweep-blobs", "--blobs", &url];
    let swept = shell.fairtrial(sweep).run();
    assert_eq!(swept.code, Some(1), "{swept:?}");
    assert!(swept.stderr.contains("`later`"), "{swept:?}");
    assert_eq!(blobs(&store).len(), 1);
}

/// CL-53: what is no task any more may have named blobs, and keeps none of the others from being told.
#[tokio::test]
async fn a_sweep_that_finds_a_spoilt_task_among_others_removes_nothing() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let store = shell.path().join("blobs");
    std::fs::create_dir(&store).expect("a directory");
    let url = format!("file://{}", store.display());
    let large = |text: &str| json!({"id": text, "source": "def f(x): pass", "function": "f", "args": [text.repeat(100_000)]});
    let calls: Vec<Json> = ["a", "b", "c", "d", "e"].map(large).into();
    shell.write_lines("calls.jsonl", &calls);
    let terms = format!("lease=3s&blobs={url}");
    let _waits = batch_to("waits", &shell, &server, "calls.jsonl", &terms);
    wait_until("they are queued", || {
        number(&shell, &server, "waits", "queued") == Some(5)
    })
    .await;
    let spoilt = "s".repeat(43);
    let () = command(&server, &["HSET", "ft:{waits}:task", &spoilt, "no task"]);
    age(&store);
    let redis = server.url();
    let sweep = ["agent", "--redis", &redis, "--sweep-blobs", "--blobs", &url];
    let swept = shell.fairtrial(sweep).run();
    assert_eq!(swept.code, Some(1), "{swept:?}");
    assert!(swept.stderr.contains("`waits`"), "{swept:?}");
    assert_eq!(blobs(&store).len(), 5);
}
