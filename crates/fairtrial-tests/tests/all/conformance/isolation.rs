//! Isolation: nothing leaks from one call to the next, and no call harms another.

use std::collections::BTreeSet;
use std::time::Duration;

use fairtrial_exec::{Call, Level, Sandbox, Verdict};
use fairtrial_tests::{Story, json};
use serde_json::json as j;

use super::scene::{Scene, in_time, timed};
use super::{Factory, SECRET};

cases! {
    nothing_of_a_fresh_calls_memory_is_found_by_the_next,
    nothing_of_a_calls_directory_is_found_by_the_next,
    nothing_of_a_calls_environment_is_found_by_the_next,
    no_call_finds_the_hosts_secrets,
    each_fresh_call_has_a_process_of_its_own,
    a_call_beside_one_that_crashes_is_unharmed,
    a_call_beside_one_that_hangs_is_unharmed,
    a_call_beside_a_memory_bomb_is_unharmed,
}

/// CL-74
async fn nothing_of_a_fresh_calls_memory_is_found_by_the_next<F: Factory>(scene: &Scene<F>) {
    let count = "import builtins\ndef f():\n    builtins.n = getattr(builtins, 'n', 0) + 1\n    return builtins.n";
    for _ in 0..4 {
        assert_eq!(json(&scene.source(count, "[]").await), 1);
    }
}

/// CL-74
async fn nothing_of_a_calls_directory_is_found_by_the_next<F: Factory>(scene: &Scene<F>) {
    let leave = "import os\ndef f():\n    open('left', 'w').close()\n    return os.listdir('.')";
    for make in [Story::call, Story::reuse_call] {
        for _ in 0..3 {
            assert_eq!(json(&scene.run(make(leave, "[]")).await), j!(["left"]));
        }
    }
}

/// CL-74
async fn nothing_of_a_calls_environment_is_found_by_the_next<F: Factory>(scene: &Scene<F>) {
    let look = "import os\ndef f(): return os.environ.get('OF_ONE_CALL')";
    for make in [Story::call, Story::reuse_call] {
        let mut given = make(look, "[]");
        given.env.insert("OF_ONE_CALL".into(), Some("x".into()));
        assert_eq!(json(&scene.run(given).await), "x");
        for _ in 0..scene.factory.slots() {
            assert_eq!(json(&scene.run(make(look, "[]")).await), j!(null));
        }
    }
}

/// CL-43, CL-74
async fn no_call_finds_the_hosts_secrets<F: Factory>(scene: &Scene<F>) {
    let look = "import os\ndef f(name): return [name in os.environ, 'PATH' in os.environ]";
    for level in [Level::None, Level::Limits] {
        let mut call = Story::call(look, &j!([SECRET.0]).to_string());
        call.sandbox = Sandbox::new(level);
        assert_eq!(json(&scene.run(call).await), j!([false, true]), "{level}");
    }
}

/// CL-74
async fn each_fresh_call_has_a_process_of_its_own<F: Factory>(scene: &Scene<F>) {
    let mut pids = BTreeSet::from([u64::from(std::process::id())]);
    for _ in 0..4 {
        let outcome = scene
            .source("import os\ndef f(): return os.getpid()", "[]")
            .await;
        let pid = json(&outcome).as_u64().expect("a number");
        assert_eq!(outcome.metrics.worker_pid.map(u64::from), Some(pid));
        pids.insert(pid);
    }
    assert_eq!(pids.len(), 5);
}

/// CL-74
async fn a_call_beside_one_that_crashes_is_unharmed<F: Factory>(scene: &Scene<F>) {
    let crash = Story::call("import os\ndef f(): os.abort()", "[]");
    unharmed_beside(scene, crash, Verdict::Signal).await;
}

/// CL-74
async fn a_call_beside_one_that_hangs_is_unharmed<F: Factory>(scene: &Scene<F>) {
    let hang = Story::call("def f():\n    while True: pass", "[]");
    unharmed_beside(
        scene,
        timed(hang, Duration::from_millis(500)),
        Verdict::Timeout,
    )
    .await;
}

/// CL-74
async fn a_call_beside_a_memory_bomb_is_unharmed<F: Factory>(scene: &Scene<F>) {
    let bomb = "def f():\n    x = []\n    while True: x.append(bytearray(10_000_000))";
    let mut bomb = timed(Story::call(bomb, "[]"), Duration::from_secs(30));
    bomb.limits.memory_bytes = Some(200_000_000);
    bomb.sandbox = Sandbox::new(Level::Limits);
    unharmed_beside(scene, bomb, Verdict::MemoryLimit).await;
}

async fn unharmed_beside<F: Factory>(scene: &Scene<F>, harm: Call, verdict: Verdict) {
    let gate = scene.gate("sibling");
    let sibling = scene.submit(gate.call()).await;
    gate.reached_by(1).await;
    let outcome = scene.run(harm).await;
    assert_eq!(outcome.verdict, verdict, "{:?}", outcome.error);
    gate.open();
    assert_eq!(json(&in_time(sibling).await.expect("runs")), "through");
    assert_eq!(gate.arrived().len(), 1, "begun once");
}
