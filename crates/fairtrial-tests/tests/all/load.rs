//! Verdicts that do not depend on what else the machine does (FA-14 to FA-16).

use std::collections::BTreeSet;
use std::time::Duration;

use fairtrial_exec::{
    Call, Event, Level, Outcome, Sandbox, Time, Verdict, WaitSource, available_cpus,
};
use fairtrial_tests::{Cli, Shell, Story, bare, json, note};
use serde_json::json as j;

/// Uses so many seconds of processor time.
const SPIN: &str = "import time\ndef f(seconds):\n    end = time.process_time() + seconds\n    \
    while time.process_time() < end:\n        pass\n    return seconds";

/// With all processors it spins; with one to itself it is done at once and says which it had.
const NEEDS_SILENCE: &str = "import os\ndef f():\n    while len(os.sched_getaffinity(0)) > 1:\n        pass\n    \
    return sorted(os.sched_getaffinity(0))";

/// Tells which processors it was allowed to use, from time to time, until it saw them taken and given back.
const WITNESS: &str = "import os, time\ndef f():\n    seen, end = [], time.monotonic() + 40\n    \
    while time.monotonic() < end and not (len(seen) > 2 and seen[-1] == seen[0]):\n        \
    now = sorted(os.sched_getaffinity(0))\n        if not seen or seen[-1] != now:\n            seen.append(now)\n        \
    time.sleep(0.001)\n    return seen";

fn by_cpu(mut call: Call, limit: Duration) -> Call {
    (call.timeout, call.time) = (Some(limit), Time::Cpu);
    call
}

fn spin(seconds: f64, limit: Duration) -> Call {
    by_cpu(Story::call(SPIN, &j!([seconds]).to_string()), limit)
}

fn message(outcome: &Outcome) -> &str {
    let error = outcome.error.as_ref().expect("it says why");
    &error.message
}

/// FA-14: with wall time as the limit those that share the processors time out.
#[tokio::test]
async fn many_calls_on_few_processors_are_judged_by_their_own_time() {
    let story = Story::with(|config| config.max_workers = 8 * available_cpus());
    let limit = Duration::from_millis(400);
    let calls = (0..8 * available_cpus())
        .map(|_| story.backend.submit(spin(0.2, limit)).expect("accepted"));
    let (mut longest_ns, mut wall_ns, mut accounted_ns) = (0, 0, 0);
    for call in calls.collect::<Vec<_>>() {
        let outcome = call.await.expect("the engine does its work");
        assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
        longest_ns = longest_ns.max(outcome.metrics.wall_ns.expect("measured"));
        wall_ns += outcome.metrics.wall_ns.expect("measured");
        let waited_ns = outcome.metrics.wait_ns.expect("measured");
        accounted_ns += waited_ns + outcome.metrics.user_ns.expect("measured");
        let margin = outcome.metrics.margin.expect("it has a limit");
        assert_eq!(margin.limit, "timeout_s");
        assert!((0.5..1.0).contains(&margin.used), "{margin:?}");
    }
    assert!(u128::from(longest_ns) > limit.as_nanos(), "{longest_ns}");
    // They ran or waited all the time, and a wait takes longer than the time between two looks.
    let share = accounted_ns as f64 / wall_ns as f64;
    assert!(share > 0.7, "{share}");
    story.end().await;
}

/// FA-14: by itself, in threads, in children; as a function and as a command, at every level.
#[tokio::test]
async fn whoever_uses_more_than_its_time_times_out() {
    let story = Story::new();
    let limit = Duration::from_millis(100);
    let endless = "while True:\n    pass";
    let threads = "import threading\ndef f():\n    def g():\n        while True:\n            pass\n    \
        threads = [threading.Thread(target=g) for _ in range(3)]\n    [thread.start() for thread in threads]\n    \
        [thread.join() for thread in threads]";
    for level in Level::ALL {
        let calls = [
            Story::call(
                &format!("def f():\n    {}", endless.replace('\n', "\n    ")),
                "[]",
            ),
            Story::call(threads, "[]"),
            bare::command(["python3", "-c", endless]),
            bare::command([
                "sh",
                "-c",
                "while :; do python3 -c 'sum(range(1000000))'; done",
            ]),
        ];
        for (number, mut call) in calls.into_iter().enumerate() {
            call.sandbox = Sandbox::new(level);
            let outcome = story.run(by_cpu(call, limit)).await;
            let what = format!("{level} {number}: {:?}", outcome.error);
            assert_eq!(outcome.verdict, Verdict::Timeout, "{what}");
            assert!(
                message(&outcome).contains("of processor time (limit 100ms)"),
                "{what}"
            );
            let source = outcome
                .in_force
                .mechanisms
                .iter()
                .find(|it| it.name == "cpu");
            assert!(source.is_some_and(|it| !it.via.is_empty()), "{what}");
            let margin = outcome.metrics.margin.expect("it has a limit");
            assert!(
                margin.limit == "timeout_s" && margin.used > 1.0,
                "{margin:?}"
            );
        }
    }
    story.end().await;
}

/// FA-14: the kernel's sum decides, not whether somebody looked in time.
#[tokio::test]
async fn who_ends_between_two_looks_has_timed_out_all_the_same() {
    let story = Story::new();
    for _ in 0..5 {
        let outcome = story.run(spin(0.03, Duration::from_millis(25))).await;
        assert_eq!(outcome.verdict, Verdict::Timeout, "{:?}", outcome.metrics);
        assert!(outcome.value.is_none());
    }
    let kept = Story::reuse_call(SPIN, "[0.03]");
    let outcome = story.run(by_cpu(kept, Duration::from_millis(25))).await;
    assert_eq!(outcome.verdict, Verdict::Timeout);
    let again = Story::reuse_call(SPIN, "[0.01]");
    let outcome = story.run(by_cpu(again, Duration::from_millis(500))).await;
    assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
    story.end().await;
}

/// FA-14
#[tokio::test]
async fn a_sleeper_is_stopped_by_the_guard() {
    let story = Story::new();
    let sleep = Story::call("import time\ndef f():\n    time.sleep(50)", "[]");
    let outcome = story.run(by_cpu(sleep, Duration::from_millis(20))).await;
    assert_eq!(outcome.verdict, Verdict::Timeout);
    assert!(
        message(&outcome).contains("it slept or waited"),
        "{}",
        message(&outcome)
    );
    assert!(outcome.metrics.wall_ns >= Some(5_000_000_000));
    assert!(outcome.tried_alone.is_none());
    story.end().await;
}

/// FA-15: what it comes to on a processor of its own counts; others leave that processor, and come back.
#[tokio::test]
async fn a_time_out_beside_others_is_tried_again_alone() {
    if available_cpus() < 2 {
        return note("with one processor there is nowhere to go");
    }
    for level in Level::ALL {
        let story = Story::with(|config| config.max_workers = 6);
        let at_level = |mut call: Call| {
            call.sandbox = Sandbox::new(level);
            call
        };
        let witness = story.backend.submit(at_level(Story::call(WITNESS, "[]")));
        let burners: Vec<_> = (0..3)
            .map(|_| story.backend.submit(at_level(Story::call(SPIN, "[100]"))))
            .collect();
        let innocent = by_cpu(Story::call(NEEDS_SILENCE, "[]"), Duration::from_millis(300));
        let outcome = story.run(at_level(innocent)).await;
        assert_eq!(outcome.verdict, Verdict::Ok, "{level}: {:?}", outcome.error);
        let first = outcome.tried_alone.as_deref().expect("it was in doubt");
        assert_eq!(first.verdict, Verdict::Timeout);
        let margin = first.metrics.margin.clone().expect("it has a limit");
        assert!(
            margin.used > 1.5,
            "it may go on to 1.5 times its limit: {margin:?}"
        );
        assert!(outcome.metrics.worker_pid != first.metrics.worker_pid);

        let seen = witness.expect("accepted").await.expect("it runs");
        let seen: Vec<BTreeSet<u64>> = serde_json::from_value(json(&seen)).expect("sets");
        let alone: Vec<u64> = serde_json::from_value(json(&outcome)).expect("a list");
        assert_eq!(seen.len(), 3, "{level}: {seen:?}");
        let left: BTreeSet<u64> = seen[0].difference(&seen[1]).copied().collect();
        assert_eq!(left, BTreeSet::from_iter(alone), "{level}: {seen:?}");
        assert_eq!(seen[2], seen[0]);

        let call = innocent_id(&story);
        drop(burners);
        let events = story.end().await;
        let starts = events
            .iter()
            .filter(|event| matches!(event, Event::Start { call: it, .. } if *it == call));
        assert_eq!(starts.count(), 1, "it is told to have started once");
    }
}

/// The call that was submitted last.
fn innocent_id(story: &Story) -> fairtrial_exec::CallId {
    let events = story.events();
    let submitted = events.iter().filter_map(|event| match event {
        Event::Submit { call } => Some(*call),
        _ => None,
    });
    submitted.max().expect("some were")
}

/// FA-15: one after the other, while others go on.
#[tokio::test]
async fn calls_that_are_tried_alone_starve_nobody() {
    let story = Story::with(|config| config.max_workers = 4);
    let limit = Duration::from_millis(30);
    let slow: Vec<_> = (0..8)
        .map(|_| story.backend.submit(spin(1.0, limit)).expect("accepted"))
        .collect();
    let quick: Vec<_> = (0..8)
        .map(|_| story.backend.submit(spin(0.002, limit)).expect("accepted"))
        .collect();
    for call in quick {
        let outcome = call.await.expect("the engine does its work");
        assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
    }
    let mut alone = Vec::new();
    for call in slow {
        let outcome = call.await.expect("the engine does its work");
        assert_eq!(outcome.verdict, Verdict::Timeout);
        if outcome.tried_alone.is_some() {
            let metrics = outcome.metrics;
            alone.push((metrics.started_at_ns, metrics.finished_at_ns));
        }
    }
    assert!(
        !alone.is_empty(),
        "four calls at a time share the processors"
    );
    alone.sort_unstable(); // of those that wait the first submitted is next, but which wait depends on the machine
    let after = |pair: &[(Option<u64>, Option<u64>)]| pair[0].1 <= pair[1].0;
    assert!(alone.windows(2).all(after), "one at a time: {alone:?}");
    story.end().await;
}

/// FA-16
#[tokio::test]
async fn every_outcome_says_how_long_it_waited_and_how_near_it_came_to_a_limit() {
    let story = Story::new();
    let mut slept = Story::call("import time\ndef f():\n    time.sleep(0.2)", "[]");
    slept.timeout = Some(Duration::from_secs(60));
    let metrics = story.run(slept).await.metrics;
    assert!(metrics.wait_ns < metrics.wall_ns, "{metrics:?}");
    assert_eq!(metrics.wait_source, Some(WaitSource::Schedstat));
    let margin = metrics.margin.expect("it has a limit");
    let used = metrics.wall_ns.expect("measured") as f64 / 60e9;
    assert_eq!((&*margin.limit, margin.used), ("timeout_s", used));

    let mut hungry = Story::call("def f():\n    return len(bytearray(60_000_000))", "[]");
    hungry.timeout = Some(Duration::from_secs(600));
    hungry.limits.memory_bytes = Some(200_000_000);
    let margin = story.run(hungry).await.metrics.margin;
    assert_eq!(margin.expect("it has limits").limit, "limits.memory_bytes");

    let unlimited = story.run(bare::command(["true"])).await.metrics;
    assert!(unlimited.wait_ns.is_some());
    let margin = unlimited.margin.map(|margin| margin.limit);
    assert_eq!(margin.as_deref(), Some("limits.output_bytes")); // which every call has
    let kept = story.reuse("def f():\n    return 1", "[]").await.metrics;
    assert!(kept.wait_ns.is_some());
    story.end().await;
}

/// FA-16: all on one processor, so that each has a seventh of it.
#[tokio::test]
async fn a_wall_timeout_of_a_starved_call_says_so() {
    let story = Story::with(|config| config.max_workers = 7);
    let crowded = |mut call: Call| {
        call.sandbox = Sandbox::new(Level::Limits);
        call.sandbox.cpus = Some(vec![0]);
        call
    };
    let burners: Vec<_> = (0..6)
        .map(|_| story.backend.submit(crowded(Story::call(SPIN, "[100]"))))
        .collect();
    let mut call = crowded(Story::call(SPIN, "[50]"));
    call.timeout = Some(Duration::from_secs(2));
    let outcome = story.run(call).await;
    drop(burners);
    assert_eq!(outcome.verdict, Verdict::Timeout);
    let wait_ns = outcome.metrics.wait_ns.expect("measured");
    assert!(wait_ns > 500_000_000, "{:?}", outcome.metrics);
    assert!(
        message(&outcome).contains("the machine was busy"),
        "{}",
        message(&outcome)
    );
    story.end().await;
}

/// FA-14, FA-16: the first of its kind tells what `-j` above the processors means; all are judged by their own time.
#[test]
fn a_batch_of_more_calls_than_processors_warns_once_and_judges_alike() {
    let line = j!({"source": SPIN, "function": "f", "args": [0.1], "timeout_s": 0.2, "time": "cpu", "sandbox": "none"});
    let jobs = (4 * available_cpus()).to_string();
    let lines = format!("{line}\n").repeat(4 * available_cpus());
    let done = Cli::new(["batch", "-", "-j", &jobs, "--no-progress"]).run_with(&lines);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(
        done.stderr.matches("warning: ").count(),
        1,
        "{}",
        done.stderr
    );
    assert!(
        done.stderr.contains("calls run at a time on"),
        "{}",
        done.stderr
    );
    for record in done.stdout.lines() {
        let record: serde_json::Value = serde_json::from_str(record).expect("JSON");
        assert_eq!(record["verdict"], "ok", "{record}");
        assert_eq!(record["metrics"]["margin"]["limit"], "timeout_s");
        assert_eq!(record["metrics"]["wait_source"], "schedstat");
    }
    let slow = [
        "exec",
        "--cpu-timeout",
        "50ms",
        "--sandbox",
        "none",
        "--",
        "sh",
        "-c",
        "while :; do :; done",
    ];
    let done = Cli::new(slow).run();
    assert!(
        done.stderr.contains("of processor time (limit 50ms)"),
        "{}",
        done.stderr
    );
    let both = Cli::new([
        "exec",
        "--timeout",
        "1s",
        "--cpu-timeout",
        "1s",
        "--",
        "true",
    ])
    .run();
    assert_eq!(both.code, Some(2), "{}", both.stderr);
}

/// FA-14
#[test]
fn a_study_counts_processor_time_where_it_says_so() {
    let shell = Shell::new();
    let spin = "import time\ndef spin(run):\n    end = time.process_time() + run['condition']['factors']['s']\n    \
        while time.process_time() < end:\n        pass\n    return {'output': {}}\n";
    shell.write("a.py", spin);
    let study = "study_id: s\ntitle: S\nfactors: {s: [0.02, 60]}\nagents: {a: 'a.py:spin'}\n\
        defaults: {timeout: 200ms, time: cpu}\n";
    shell.write("study.yaml", study);
    let run = ["run", "study.yaml", "--out", "out", "-j", "2"];
    let done = shell.fairtrial(run).run();
    assert_eq!(done.code, Some(3), "{}", done.stderr);
    let runs = shell.read("out/runs.csv");
    assert!(
        runs.contains("success") && runs.contains("timeout"),
        "{runs}"
    );
    assert!(runs.contains("of processor time (limit 200ms)"), "{runs}");
}
