//! What preloads hold and no call may have of another: descriptors, shared memory, random numbers. At each level.

use std::collections::BTreeMap;

use fairtrial_exec::{Call, Event, Isolation, Level, Sandbox, Verdict};
use fairtrial_tests::{Story, json};
use rustix::io::Errno;
use serde_json::{Value as Json, json as j};

const LEVELS: [Level; 3] = [Level::None, Level::Limits, Level::Strict];

/// A call of `source` that preloads a module of this text.
fn preloading(story: &Story, level: Level, module: &str, text: &str, source: &str) -> Call {
    let path = story.write(&format!("modules/{module}.py"), text);
    let dir = path.parent().expect("a file is in a directory");
    let mut call = Story::call(source, "[]");
    call.sandbox = Sandbox::new(level);
    call.env.insert("PYTHONPATH".into(), Some(dir.into()));
    call.python_mut().expect("a Python call").preload = vec![module.into()];
    call
}

async fn values(story: &Story, call: &Call) -> Vec<Json> {
    let mut values = Vec::new();
    for _ in 0..3 {
        values.push(json(&story.run(call.clone()).await));
    }
    values
}

/// FA-2
#[tokio::test]
async fn no_descriptor_of_a_preload_is_open_in_a_call_and_observers_are_told() {
    let story = Story::with(|config| config.fork_ahead = false);
    let secret = story.write("home/secret", "the key");
    let home = secret.parent().expect("a directory").to_owned();
    let holder = format!(
        "import os\nHOME = os.dup2(os.open({home:?}, os.O_RDONLY), 500)\nos.dup2(os.open({secret:?}, os.O_RDWR), 501)\n"
    );
    let source = "\
import os

def errno_of(action):
    try:
        return repr(action())
    except OSError as error:
        return error.errno

def f():
    return [
        errno_of(lambda: os.open('secret', os.O_RDONLY, dir_fd=500)),
        errno_of(lambda: os.fchdir(500)),
        errno_of(lambda: os.pread(501, 9, 0)),
        errno_of(lambda: os.pwrite(501, b'overwritten', 0)),
    ]
";
    let (no_directory, bad) = (Errno::NOTDIR.raw_os_error(), Errno::BADF.raw_os_error());
    let refused = j!([no_directory, no_directory, bad, bad]);
    for level in LEVELS {
        let mut call = preloading(&story, level, "holder", &holder, source);
        let mut found = values(&story, &call).await;
        if level < Level::Strict {
            call.python_mut().expect("Python").isolation = Isolation::Reuse;
            found.extend(values(&story, &call).await);
        }
        assert!(found.iter().all(|it| *it == refused), "{level}: {found:?}");
    }
    let left = std::fs::read_to_string(&secret).expect("still there");
    assert_eq!(left, "the key");
    let events = story.end().await;
    let mut starts = 0;
    for event in &events {
        if let Event::WorkerStart { closed_fds, .. } = event {
            starts += 1;
            let told = |number| closed_fds.get(&number).map(String::as_str);
            let of_holder =
                |path: &std::path::Path| format!("{} (preload `holder`)", path.display());
            assert_eq!(told(500), Some(of_holder(&home).as_str()), "{event:?}");
            assert_eq!(told(501), Some(of_holder(&secret).as_str()), "{event:?}");
        }
    }
    assert!(starts >= 11, "{starts} workers were told of");
}

/// FA-2
#[tokio::test]
async fn nothing_is_told_to_be_closed_where_preloads_hold_nothing() {
    let story = Story::with(|config| config.fork_ahead = false);
    story.source("def f(): pass", "[]").await;
    let events = story.end().await;
    let told = events.iter().find_map(|event| match event {
        Event::WorkerStart { closed_fds, .. } => Some(closed_fds),
        _ => None,
    });
    assert_eq!(told, Some(&BTreeMap::new()));
}

/// FA-3
#[tokio::test]
async fn memory_that_a_preload_shares_is_each_calls_own() {
    let story = Story::new();
    let text = "import multiprocessing\nCOUNTER = multiprocessing.Value('i', 5)\nLOCK = multiprocessing.Lock()\n";
    let source = "\
import shared

def f():
    taken = shared.LOCK.acquire(timeout=60)
    shared.COUNTER.value += 1
    return [taken, shared.COUNTER.value]
";
    for level in LEVELS {
        let call = preloading(&story, level, "shared", text, source);
        let found = values(&story, &call).await;
        assert!(
            found.iter().all(|it| *it == j!([true, 6])),
            "{level}: {found:?}"
        );
    }
    story.end().await;
}

/// FA-3
#[tokio::test]
async fn a_preload_whose_memory_calls_would_share_is_refused_by_name() {
    let story = Story::new();
    let text = "import mmap\nHUGE = mmap.mmap(-1, (1 << 30) + 4096)\n";
    for level in LEVELS {
        let call = preloading(&story, level, "huge", text, "def f(): pass");
        let outcome = story.run(call).await;
        let error = outcome.error.expect("it says why");
        assert_eq!(outcome.verdict, Verdict::SetupFailed, "{level}: {error:?}");
        assert!(
            error.message.starts_with("cannot preload `huge`: "),
            "{error:?}"
        );
        assert_eq!(error.message.lines().count(), 1, "{error:?}");
    }
    story.end().await;
}

/// FA-4
#[tokio::test]
async fn generators_of_a_preload_follow_the_seed_or_differ() {
    let story = Story::new();
    let text = "import random\nFIRST, SECOND = random.Random(5), random.Random(5)\n";
    let source = "import drawn\ndef f(): return [drawn.FIRST.random(), drawn.SECOND.random()]\n";
    for level in LEVELS {
        let mut call = preloading(&story, level, "drawn", text, source);
        let drawn = values(&story, &call).await;
        assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2], "{drawn:?}");
        assert!(drawn.iter().all(|it| it[0] != it[1]), "{drawn:?}");
        call.env.insert("FAIRTRIAL_SEED".into(), Some("3".into()));
        let drawn = values(&story, &call).await;
        assert!(drawn[0] == drawn[1] && drawn[1] == drawn[2], "{drawn:?}");
    }
    story.end().await;
}

/// PY-29
#[tokio::test]
async fn a_pool_of_new_interpreters_finds_the_functions_of_the_source_at_every_level() {
    let story = Story::new();
    let source = "\
import multiprocessing

def square(x):
    return x * x

def f(kind):
    with multiprocessing.get_context(kind).Pool(2) as pool:
        return pool.map_async(square, range(3)).get(60)
";
    for level in LEVELS {
        for kind in ["spawn", "forkserver"] {
            let mut call = Story::call(source, &j!([kind]).to_string());
            call.sandbox = Sandbox::new(level);
            let found = json(&story.run(call).await);
            assert_eq!(found, j!([0, 1, 4]), "{kind} at {level}");
        }
    }
    story.end().await;
}

/// FA-3: only that of the module that is named, and outcomes tell it.
#[tokio::test]
async fn memory_stays_shared_where_that_is_asked_for_by_name() {
    let story = Story::new();
    let text = "import mmap\nCOUNTER = mmap.mmap(-1, 4096)\n";
    let source = "\
import ours, theirs

def f():
    ours.COUNTER[0] += 1
    theirs.COUNTER[0] += 1
    return [ours.COUNTER[0], theirs.COUNTER[0]]
";
    for level in LEVELS {
        let mut call = preloading(&story, level, "ours", text, source);
        preloading(&story, level, "theirs", text, source);
        let python = call.python_mut().expect("a Python call");
        python.preload = vec!["ours".into(), "theirs".into()];
        python.preload_shared = vec!["theirs".into()];
        for number in 1..4 {
            let outcome = story.run(call.clone()).await;
            let told = &outcome.in_force.preload_shared;
            assert_eq!(*told, ["theirs"], "{level}");
            assert_eq!(json(&outcome), j!([1, number]), "{level}");
        }
        let python = call.python_mut().expect("a Python call");
        python.preload_shared.clear();
        let outcome = story.run(call).await;
        assert_eq!(json(&outcome), j!([1, 1]), "{level}: another interpreter");
        assert!(outcome.in_force.preload_shared.is_empty(), "{level}");
        assert!(outcome.in_force.to_json()["preload_shared"].is_null());
    }
    story.end().await;
}

/// FA-3
#[tokio::test]
async fn memory_that_cannot_be_copied_is_shared_where_that_is_asked_for() {
    let story = Story::new();
    let text = "import mmap\nHUGE = mmap.mmap(-1, (1 << 30) + 4096)\n";
    let source = "\
import huge

def f():
    huge.HUGE[0] += 1
    return huge.HUGE[0]
";
    for level in LEVELS {
        let mut call = preloading(&story, level, "huge", text, source);
        call.python_mut().expect("a Python call").preload_shared = vec!["huge".into()];
        for number in 1..3 {
            let outcome = story.run(call.clone()).await;
            assert_eq!(json(&outcome), j!(number), "{level}: {outcome:?}");
            let told = &outcome.in_force.to_json()["preload_shared"];
            assert_eq!(*told, j!(["huge"]), "{level}");
        }
    }
    story.end().await;
}

/// FA-3
#[test]
fn only_what_is_preloaded_can_be_shared() {
    let mut call = Story::call("def f(): pass", "[]");
    call.python_mut().expect("a Python call").preload_shared = vec!["math".into()];
    let refused = call.validate().expect_err("it is not preloaded");
    assert_eq!(refused.field, "preload_shared");
    assert_eq!(refused.problem, "`math` is not a module of `preload`");
}
