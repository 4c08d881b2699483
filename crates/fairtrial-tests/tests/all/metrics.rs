//! Metrics, identity and seeds (EX-81 to EX-84, EX-86 to EX-89).

use std::collections::HashSet;
use std::time::Duration;

use fairtrial_exec::{Level, MeasuredBy, Outcome, PeakSource, Sandbox, Verdict};
use fairtrial_tests::bare;
use fairtrial_tests::{Story, is_alone, json, note};
use serde_json::json as j;

const MB: u64 = 1_000_000;

/// EX-81
#[tokio::test]
async fn wall_time_is_the_difference_of_the_time_stamps_exactly() {
    let story = Story::with(|config| config.max_workers = 1);
    let sleep = "import time\ndef f():\n    time.sleep(0.1)";
    let calls = [
        Story::call(sleep, "[]"),
        Story::reuse_call(sleep, "[]"),
        bare::command(["sleep", "0.1"]),
        Story::call("def f():\n    raise ValueError", "[]"),
    ];
    let mut last = 0;
    for (number, call) in calls.into_iter().enumerate() {
        #[expect(
            clippy::disallowed_methods,
            reason = "what the anchor is compared with"
        )]
        let unix = || {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .expect("after 1970")
                .as_nanos()
        };
        let before = unix();
        let metrics = story.run(call).await.metrics;
        let (start, finish) = (
            metrics.started_at_ns.expect("measured"),
            metrics.finished_at_ns.expect("measured"),
        );
        assert_eq!(finish - start, metrics.wall_ns.expect("measured"));
        if number < 3 {
            assert!(metrics.wall_ns >= Some(100_000_000), "{metrics:?}");
        }
        assert!(metrics.queue_ns.is_some());
        assert!(start >= last, "calls on one slot follow each other");
        // One clock for both; a second of slack for a machine that disciplines its own.
        assert!(
            u128::from(start) + 1_000_000_000 > before
                && u128::from(finish) < unix() + 1_000_000_000
        );
        last = finish;
    }
    story.end().await;
}

/// EX-81: from submission to acknowledgement.
#[tokio::test]
async fn the_queue_has_a_time_of_its_own() {
    let story = Story::with(|config| config.max_workers = 1);
    let call = || Story::call("import time\ndef f():\n    time.sleep(0.2)", "[]");
    let (first, second) = (story.backend.submit(call()), story.backend.submit(call()));
    let first = first.expect("accepted").await.expect("it runs").metrics;
    let second = second.expect("accepted").await.expect("it runs").metrics;
    assert!(
        second.queue_ns.expect("measured") >= first.wall_ns.expect("measured"),
        "{second:?}"
    );
    story.end().await;
}

/// EX-82
#[tokio::test]
async fn processor_time_is_the_calls_own() {
    let story = Story::with(|config| config.max_workers = 1);
    let burn = "import time\ndef f():\n    while time.process_time() < BASE + 0.3:\n        pass\n";
    let burn = format!("import time\nBASE = time.process_time()\n{burn}");
    let idle = "def f():\n    pass";
    for make in [Story::call, Story::reuse_call] {
        let busy = story.run(make(&burn, "[]")).await.metrics;
        let calm = story.run(make(idle, "[]")).await.metrics;
        let cpu = |metrics: &fairtrial_exec::Metrics| {
            Duration::from_nanos(
                metrics.user_ns.expect("measured") + metrics.system_ns.expect("measured"),
            )
        };
        assert!(cpu(&busy) >= Duration::from_millis(280), "{busy:?}");
        assert!(
            cpu(&calm) < Duration::from_millis(250),
            "not the sum of both calls: {calm:?}"
        );
    }
    // Of the whole tree, and of a command.
    let script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
    let command = story
        .run(bare::command(["sh", "-c", &format!("sh -c '{script}'")]))
        .await
        .metrics;
    assert!(command.user_ns > Some(5_000_000), "{command:?}");
    story.end().await;
}

/// EX-82: a call that never ran has no numbers, rather than zeroes.
#[tokio::test]
async fn what_was_not_measured_is_null() {
    let story = Story::new();
    let outcome = story.run(bare::command(["no-such-program-anywhere"])).await;
    assert_eq!(outcome.verdict, Verdict::SetupFailed);
    let metrics = outcome.metrics.to_json();
    for name in [
        "wall_s",
        "user_s",
        "system_s",
        "peak_rss_bytes",
        "peak_source",
        "started_at_ns",
        "finished_at_ns",
    ] {
        assert_eq!(metrics[name], j!(null), "{name}: {metrics}");
    }
    story.end().await;
}

/// EX-83
#[tokio::test]
async fn the_peak_of_a_reused_worker_is_that_of_the_call() {
    let story = Story::with(|config| config.max_workers = 1);
    let large = story
        .reuse("def f():\n    return len(b'x' * 200_000_000)", "[]")
        .await;
    let tiny = story.reuse("def f():\n    return 1", "[]").await;
    assert_eq!(large.metrics.worker_id, tiny.metrics.worker_id);
    assert!(
        large.metrics.peak_rss_bytes > Some(200 * MB),
        "{:?}",
        large.metrics
    );
    assert!(
        tiny.metrics.peak_rss_bytes < Some(60 * MB),
        "{:?}",
        tiny.metrics
    );
    assert_eq!(tiny.metrics.peak_source, Some(PeakSource::Vmhwm));
    story.end().await;
}

/// EX-84, SB-47
#[test]
fn a_large_host_does_not_raise_the_peak_of_what_it_runs() {
    if !is_alone("metrics::a_large_host_does_not_raise_the_peak_of_what_it_runs") {
        return;
    }
    let ballast = vec![1_u8; 400 << 20];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let story = Story::new();
        let command = story.run(bare::command(["true"])).await;
        let metrics = command.metrics;
        assert!(
            metrics
                .peak_rss_bytes
                .is_some_and(|peak| peak > 0 && peak < 8 * MB),
            "{metrics:?}"
        );
        assert!(metrics.peak_source.is_some());
        let source = story.source("def f():\n    return 1", "[]").await.metrics;
        assert!(source.peak_rss_bytes < Some(60 * MB), "{source:?}");
        story.end().await;
    });
    assert_eq!(ballast[ballast.len() / 2], 1);
}

/// EX-84
#[tokio::test]
async fn the_size_at_the_start_includes_what_was_preloaded() {
    let story = Story::with(|config| config.max_workers = 1);
    story.write("lib/heavy_preload.py", "BALLAST = b'x' * 100_000_000\n");
    let lib = story.path().join("lib");
    let source = "def f():\n    return len(b'y' * 50_000_000)";
    for make in [Story::call, Story::reuse_call] {
        let light = story.run(make(source, "[]")).await.metrics;
        let mut call = make(source, "[]");
        call.env
            .insert("PYTHONPATH".into(), Some(lib.clone().into()));
        call.python_mut().expect("a source call").preload = vec!["heavy_preload".into()];
        let heavy = story.run(call).await.metrics;
        assert!(
            light
                .base_rss_bytes
                .is_some_and(|base| base > 0 && base < 60 * MB),
            "{light:?}"
        );
        assert!(heavy.base_rss_bytes > Some(90 * MB), "{heavy:?}");
        assert!(light.peak_rss_bytes > Some(50 * MB), "{light:?}");
        assert!(heavy.peak_rss_bytes > Some(140 * MB), "{heavy:?}");
    }
    story.end().await;
}

/// RE-14, EX-84: pages that a worker has from its warm interpreter are resident, and charged to no control group of the call.
#[tokio::test]
async fn the_peak_is_never_below_the_size_at_the_start() {
    let story = Story::with(|config| config.max_workers = 1);
    story.write("lib/ballast.py", "BALLAST = b'x' * 100_000_000\n");
    let lib = story.path().join("lib");
    for level in [Level::None, Level::Limits, Level::Strict] {
        let mut call = Story::call("def f():\n    return 1", "[]");
        call.sandbox = Sandbox::new(level);
        call.env
            .insert("PYTHONPATH".into(), Some(lib.clone().into()));
        call.python_mut().expect("a source call").preload = vec!["ballast".into()];
        let metrics = story.run(call).await.metrics;
        let sizes = metrics.peak_rss_bytes.zip(metrics.base_rss_bytes);
        assert!(
            sizes.is_some_and(|(peak, base)| peak >= base && base > 100 * MB),
            "{level}: {metrics:?}"
        );
    }
    story.end().await;
}

/// EX-86
#[tokio::test]
async fn what_a_candidate_says_of_time_and_of_itself_changes_no_metric() {
    let story = Story::with(|config| config.max_workers = 1);
    let source = include_str!("../../programs/lie_about_itself.py");
    for make in [Story::call, Story::reuse_call] {
        let outcome = story.run(make(source, "[]")).await;
        assert_eq!(
            json(&outcome)["time"],
            0,
            "the lie is told: {:?}",
            outcome.error
        );
        let metrics = outcome.metrics;
        assert!(metrics.wall_ns >= Some(300_000_000), "{metrics:?}");
        let cpu = metrics.user_ns.expect("measured") + metrics.system_ns.expect("measured");
        assert!(cpu >= 100_000_000, "{metrics:?}");
        assert!(metrics.peak_rss_bytes > Some(50 * MB), "{metrics:?}");
        assert_eq!(metrics.measured_by, Some(MeasuredBy::Engine));
        assert_eq!(
            metrics.leaked_processes,
            Some(1),
            "found in spite of its name: {metrics:?}"
        );
    }
    story.end().await;
}

/// EX-87
#[tokio::test]
async fn workers_and_nodes_have_names_that_the_worker_knows() {
    let story = Story::with(|config| {
        config.max_workers = 1;
        config.node_id = "node-seven".into();
    });
    let source = "import os\ndef f():\n    block = open('/proc/self/environ').read()\n    \
        return [os.environ['FAIRTRIAL_WORKER_ID'], os.environ['FAIRTRIAL_NODE_ID'], os.environ['FAIRTRIAL_WORKER_ID'] in block]";
    let mut ids = Vec::new();
    for make in [
        Story::call,
        Story::call,
        Story::reuse_call,
        Story::reuse_call,
    ] {
        let outcome = story.run(make(source, "[]")).await;
        let id = id(&outcome);
        assert!(
            id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{id}"
        );
        assert_eq!(json(&outcome), j!([id, "node-seven", true]));
        assert_eq!(outcome.metrics.node_id.as_deref(), Some("node-seven"));
        ids.push(id);
    }
    let outcome = story
        .run(bare::command([
            "sh",
            "-c",
            "echo $FAIRTRIAL_WORKER_ID $FAIRTRIAL_NODE_ID",
        ]))
        .await;
    assert_eq!(
        outcome.stdout.text(),
        format!("{} node-seven\n", id(&outcome))
    );
    ids.push(id(&outcome));
    assert_eq!(ids[2], ids[3], "stable for a process");
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4, "new for each");
    story.end().await;
    let host = Story::new();
    let named = host
        .source("def f():\n    pass", "[]")
        .await
        .metrics
        .node_id
        .expect("it has one");
    let system = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    assert!(named == system || std::env::var("FAIRTRIAL_NODE_ID").is_ok_and(|name| name == named));
    host.end().await;
}

fn id(outcome: &Outcome) -> String {
    outcome
        .metrics
        .worker_id
        .clone()
        .expect("a call that ran had a worker")
}

/// EX-88
#[tokio::test]
async fn failed_calls_have_metrics_too() {
    let ends = [
        ("raise ValueError", Verdict::Exception),
        ("os._exit(3)", Verdict::Exit),
        ("os._exit(0)", Verdict::NoResult),
        ("os.kill(os.getpid(), 11)", Verdict::Signal),
        ("return open", Verdict::BadResult),
        ("time.sleep(40)", Verdict::Timeout),
        (
            "print('x' * 5000)\n    time.sleep(20)",
            Verdict::OutputLimit,
        ),
    ];
    let story = Story::new();
    for (end, verdict) in ends {
        for make in [Story::call, Story::reuse_call] {
            let mut call = make(&format!("import os, time\ndef f():\n    {end}"), "[]");
            call.limits.output_bytes = Some(1000);
            if verdict == Verdict::Timeout {
                call.timeout = Some(Duration::from_millis(200));
            }
            let outcome = story.run(call).await;
            assert_eq!(outcome.verdict, verdict, "{end}: {:?}", outcome.error);
            let metrics = outcome.metrics;
            let numbers = [
                metrics.queue_ns,
                metrics.peak_rss_bytes,
                metrics.started_at_ns,
            ];
            assert!(
                numbers.iter().all(|number| *number > Some(0)),
                "{end}: {metrics:?}"
            );
            let wall = metrics.finished_at_ns.zip(metrics.started_at_ns);
            let wall = wall.map(|(finish, start)| finish - start);
            assert!(
                wall.is_some() && metrics.wall_ns == wall,
                "{end}: {metrics:?}"
            );
            assert!(
                metrics.user_ns.is_some() && metrics.system_ns.is_some(),
                "{end}: {metrics:?}"
            );
            assert!(
                metrics.worker_pid.is_some() && metrics.worker_id.is_some(),
                "{end}: {metrics:?}"
            );
            assert_ne!(
                metrics.base_rss_bytes,
                Some(0),
                "{end}: what was not measured is null"
            );
        }
    }
    story.end().await;
}

const DRAW: &str = "import os, random\ntry:\n    import numpy.random as nr\nexcept ImportError:\n    nr = None\n\
    def f():\n    return [random.random(), nr.rand() if nr else None, hash('text')]";

/// EX-89
#[tokio::test]
async fn without_a_seed_no_two_workers_of_a_zygote_draw_the_same() {
    let story = Story::new();
    let numpy = std::env::var("FAIRTRIAL_TEST_NUMPY").ok();
    if numpy.is_none() {
        note("numpy.random is not tried: FAIRTRIAL_TEST_NUMPY names no interpreter");
    }
    for preload in [
        vec![],
        vec!["random".to_owned()],
        vec!["numpy.random".to_owned()],
    ] {
        if preload.iter().any(|name| name.starts_with("numpy")) && numpy.is_none() {
            continue;
        }
        let (mut python, mut numpys, mut hashes) = (HashSet::new(), HashSet::new(), HashSet::new());
        for _ in 0..20 {
            let mut call = Story::call(DRAW, "[]");
            let terms = call.python_mut().expect("a source call");
            terms.preload = preload.clone();
            terms.python = numpy.clone().unwrap_or_else(|| terms.python.clone());
            let drawn = json(&story.run(call).await);
            assert!(python.insert(drawn[0].to_string()), "random: drawn twice");
            assert!(
                drawn[1].is_null() || numpys.insert(drawn[1].to_string()),
                "numpy: drawn twice"
            );
            hashes.insert(drawn[2].to_string());
        }
        assert_eq!(hashes.len(), 1, "source calls hash alike");
    }
    story.end().await;
}

/// EX-89
#[tokio::test]
async fn a_seed_in_the_calls_environment_decides_every_draw() {
    let story = Story::new();
    let numpy = std::env::var("FAIRTRIAL_TEST_NUMPY").ok();
    let call = |seed: &str, reuse: bool, preload: bool| {
        let mut call = if reuse {
            Story::reuse_call(DRAW, "[]")
        } else {
            Story::call(DRAW, "[]")
        };
        call.env.insert("FAIRTRIAL_SEED".into(), Some(seed.into()));
        let terms = call.python_mut().expect("a source call");
        if preload {
            terms.preload = vec!["random".into()];
        }
        terms.python = numpy.clone().unwrap_or_else(|| terms.python.clone());
        call
    };
    let first = json(&story.run(call("7", false, false)).await);
    for (reuse, preload) in [
        (false, false),
        (false, true),
        (true, false),
        (true, false),
        (true, true),
    ] {
        assert_eq!(
            json(&story.run(call("7", reuse, preload)).await),
            first,
            "reuse {reuse}, preload {preload}"
        );
    }
    let other = json(&story.run(call("8", false, false)).await);
    assert_ne!(
        (&other[0], other[1].is_null() || other[1] != first[1]),
        (&first[0], false)
    );
    assert_ne!(other[0], first[0]);
    let mut hashed = call("7", false, false);
    hashed.env.insert("PYTHONHASHSEED".into(), Some("5".into()));
    assert_ne!(json(&story.run(hashed).await)[2], first[2]);
    let bad = story.run(call("seven", false, false)).await;
    assert_eq!(bad.verdict, Verdict::SetupFailed);
    story.end().await;
}
