//! What an outcome and the report say of the isolation that held: counters, who killed, proofs, digests.

use std::time::Duration;

use fairtrial_exec::{
    Call, Exit, Facility, KilledBy, Level, Outcome, Sandbox, SandboxReport, State, Verdict,
};
use fairtrial_tests::{Shell, Story, bare, json};
use serde_json::{Value as Json, json as j};

fn at(level: Level, mut call: Call) -> Call {
    call.sandbox = Sandbox::new(level);
    call
}

fn written(outcome: &Outcome) -> Json {
    outcome.to_json(&Json::Null).expect("a value")
}

/// SB-31
#[tokio::test]
async fn a_kill_that_nobody_recorded_came_from_outside() {
    let story = Story::new();
    let itself = bare::command(["sh", "-c", "kill -9 $$"]);
    for call in [itself.clone(), at(Level::Limits, itself)] {
        let outcome = story.run(call).await;
        let exit = (outcome.verdict, outcome.exit);
        assert_eq!(exit, (Verdict::Signal, Some(Exit::Signal(9))));
        assert_eq!(outcome.killed_by, Some(KilledBy::Outside));
        let exit = j!({"code": null, "signal": 9, "killed_by": "outside"});
        assert_eq!(written(&outcome)["exit"], exit);
    }
    let mut hangs = bare::command(["sleep", "60"]);
    hangs.timeout = Some(Duration::from_millis(100));
    let aborts = bare::command(["sh", "-c", "kill -6 $$"]);
    for (call, verdict) in [(hangs, Verdict::Timeout), (aborts, Verdict::Signal)] {
        let outcome = story.run(call).await;
        assert_eq!((outcome.verdict, outcome.killed_by), (verdict, None));
    }
    story.end().await;
}

/// SB-33
#[tokio::test]
async fn switches_and_faults_of_a_call_with_its_own_process_are_counted() {
    let story = Story::new();
    let work = "import time, mmap\ndef f():\n    for _ in range(20):\n        time.sleep(0.001)\n    \
                space = mmap.mmap(-1, 16 << 20)\n    for at in range(0, 16 << 20, 4096):\n        \
                space[at] = 1\n    return 1\n";
    for level in [Level::None, Level::Limits] {
        let outcome = story.run(at(level, Story::call(work, "[]"))).await;
        assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
        let counters = outcome.in_force.counters;
        assert!(counters.voluntary_switches >= Some(20), "{counters:?}");
        assert!(
            counters.minor_faults >= Some(32),
            "even in huge pages: {counters:?}"
        );
        assert!(counters.involuntary_switches.is_some() && counters.major_faults.is_some());
        let told = &written(&outcome)["in_force"]["counters"];
        assert_eq!(told["minor_faults"].as_u64(), counters.minor_faults);
        for name in ["throttled_s", "memory_stall_s"] {
            assert!(told[name].is_null() || told[name].is_f64(), "{told}");
        }
    }
    // Those of all the calls before would mislead.
    let kept = story.reuse("def f():\n    return 1\n", "[]").await;
    assert_eq!(kept.in_force.counters, Default::default());
    story.end().await;
}

/// SB-33: also where there is no cgroup to list them.
#[tokio::test]
async fn what_a_fresh_call_leaves_running_is_counted_at_every_level() {
    let leave = "import subprocess\ndef f():\n    for _ in range(2):\n        \
                 subprocess.Popen(['sleep', '30'], start_new_session=True)\n    return 1\n";
    for without in [None, Some(Facility::Cgroups)] {
        let story = Story::with(|config| config.without.extend(without));
        for level in Level::ALL {
            let outcome = story.run(at(level, Story::call(leave, "[]"))).await;
            assert_eq!(json(&outcome), 1);
            let leaked = outcome.metrics.leaked_processes;
            assert_eq!(leaked, Some(2), "{level} without {without:?}");
        }
        story.end().await;
    }
}

/// SB-44: a kept worker's limits can be raised by its code, so it does not have all of `limits`.
#[tokio::test]
async fn a_kept_worker_is_not_said_to_have_a_level_that_it_has_not() {
    let story = Story::new();
    let answer = "def f():\n    return 1\n";
    let fresh = story
        .run(at(Level::Limits, Story::call(answer, "[]")))
        .await;
    assert_eq!(fresh.in_force.effective, Level::Limits);
    let kept = story
        .run(at(Level::Limits, Story::reuse_call(answer, "[]")))
        .await;
    assert_eq!(kept.in_force.effective, Level::None);
    let weak: Vec<_> = kept.in_force.weak().map(|one| one.name).collect();
    assert!(weak.contains(&"rlimits"), "{weak:?}");
    story.end().await;
}

async fn report(story: &Story, level: Level) -> SandboxReport {
    let report = story.backend.sandbox_report(level).await;
    report.expect("the engine does its work")
}

/// SB-41, SB-43, SB-44
#[tokio::test]
async fn a_level_is_proved_by_a_command_and_by_a_worker() {
    let story = Story::new();
    for level in [Level::Limits, Level::Confined, Level::Strict] {
        let found = report(&story, level).await;
        assert_eq!(found.proof.untried, [], "{level}");
        assert_eq!(found.in_force.effective, level, "{:?}", found.missing);
        let names: Vec<_> = found
            .proof
            .attempts
            .iter()
            .map(|(name, _)| &**name)
            .collect();
        let wanted = "connect kill_engine limit_engine ptrace_engine read_memory read_environ read_canary write_canary \
                      gain_nice keep_descriptor unshare memory_limit process_limit";
        assert_eq!(names.join(" "), wanted);
        let attempts = found.proof.attempts.iter();
        let allowed = attempts.filter(|(_, refused)| !refused);
        let allowed: Vec<_> = allowed.map(|(name, _)| &**name).collect();
        let open: &[&str] = match level {
            Level::Confined | Level::Strict => &[],
            _ => &["connect", "read_canary", "unshare"],
        };
        assert_eq!(allowed, open, "{level}");
    }
    story.end().await;
}

/// SB-42, SB-43, and the rule of SB-41 that only what was refused is enforced.
#[tokio::test]
async fn a_proof_is_kept_for_other_engines_and_believed_as_it_stands() {
    let first = Story::new();
    let cache = first.path().join("cache");
    let digest = report(&first, Level::Limits).await.in_force.digest();
    let file = cache.join("fairtrial/selftest.json");
    let kept = std::fs::read_to_string(&file).expect("it was written");
    let another = || {
        Story::with(|config| {
            let cache = cache.clone().into_os_string();
            config.host_env.insert("XDG_CACHE_HOME".into(), cache);
        })
    };

    let second = another();
    assert_eq!(
        report(&second, Level::Limits).await.in_force.digest(),
        digest
    );
    let events = second.end().await;
    assert!(
        events.iter().all(|event| event.name() != "submit"),
        "nothing was tried again"
    );

    let refused = "[\"write_canary\",true]";
    assert!(kept.contains(refused), "{kept}");
    std::fs::write(&file, kept.replace(refused, "[\"write_canary\",false]")).expect("ours");
    let third = another();
    let found = report(&third, Level::Limits).await;
    let mut mechanisms = found.in_force.mechanisms.iter();
    let scope = mechanisms.find(|mechanism| mechanism.name == "write_scope");
    assert_eq!(scope.map(|scope| scope.state), Some(State::Partial));
    assert_ne!(found.in_force.digest(), digest);
    third.end().await;

    std::fs::write(&file, &kept[..kept.len() / 2]).expect("ours");
    let fourth = another();
    assert_eq!(
        report(&fourth, Level::Limits).await.in_force.digest(),
        digest
    );
    let events = fourth.end().await;
    assert!(
        events.iter().any(|event| event.name() == "submit"),
        "tried again"
    );
    let mended: Json =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("there")).expect("whole again");
    assert_eq!(mended["format"], 1);
    first.end().await;
}

/// EX-97, SB-16: a limit that nobody gave is named as well.
#[test]
fn a_limit_that_was_a_default_is_told_with_its_number() {
    let shell = Shell::new();
    let arguments = [
        "exec",
        "--sandbox",
        "limits",
        "--",
        "truncate",
        "-s",
        "2G",
        "big",
    ];
    let run = shell.fairtrial(arguments).run();
    assert_eq!(run.code, Some(3));
    let wanted = "disk_limit: `truncate` wrote a larger file or value than its limit of 1 GiB\n";
    assert_eq!(run.stderr, wanted);
    shell.assert_nothing_left();
}
