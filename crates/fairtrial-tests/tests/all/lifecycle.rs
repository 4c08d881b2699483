//! Lifecycle of workers: start, reuse, recycling (EX-12 to EX-17).

use std::collections::BTreeSet;
use std::time::Duration;

use fairtrial_exec::{
    Backend, Call, Event, ExitReason, LocalBackend, LocalConfig, Recycle, Verdict,
};
use fairtrial_tests::bare;
use fairtrial_tests::{Census, Gate, PATIENCE, Story, is_alone, json, wait_until};

use crate::process::{launcher, script, with_python, worker};

pub(crate) const ONE: &str = "def f(): return 1\n";

fn reasons(events: &[Event]) -> Vec<ExitReason> {
    let reasons = events.iter().filter_map(|event| match event {
        Event::WorkerExit { reason, .. } => Some(*reason),
        _ => None,
    });
    reasons.collect()
}

pub(crate) fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.name() == name).count()
}

// ---- starting ----------------------------------------------------------------------------------------------------

/// EX-12, SB-1
#[test]
fn constructing_a_backend_starts_nothing_and_makes_no_directory() {
    if !is_alone("lifecycle::constructing_a_backend_starts_nothing_and_makes_no_directory") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let mut config = LocalConfig::from_env().expect("the test's environment is sound");
    config.spill_dir = dir.path().join("spill");
    let before = Census::take(dir.path());
    let backend = LocalBackend::new(config);
    assert_eq!(Census::take(dir.path()), before);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    let outcome = runtime
        .block_on(backend.execute(bare::command(["true"])))
        .expect("the engine does its work");
    assert_eq!(outcome.verdict, Verdict::Ok);
    let after = Census::take(dir.path());
    assert!(
        after.children > before.children && after.threads > before.threads && after.spilled == 1,
        "the first call starts them: {after:?}"
    );
}

/// EX-13
#[tokio::test]
async fn sequential_calls_on_eight_slots_use_one_worker() {
    let story = Story::with(|config| config.max_workers = 8);
    let mut ids = BTreeSet::new();
    for _ in 0..50 {
        ids.insert(story.reuse(ONE, "[]").await.metrics.worker_id);
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(count(&story.end().await, "worker_start"), 1);
}

/// EX-13
#[tokio::test]
async fn as_many_workers_start_as_calls_run_at_once() {
    let story = Story::with(|config| config.max_workers = 4);
    let gate = Gate::new(&story, "gate");
    let running: Vec<_> = (0..3)
        .map(|_| story.backend.submit(gate.reuse_call()).expect("taken"))
        .collect();
    gate.reached_by(3).await;
    gate.open();
    for call in running {
        assert_eq!(json(&call.await.expect("runs")), "through");
    }
    assert_eq!(count(&story.end().await, "worker_start"), 3);
}

/// EX-14
#[tokio::test]
async fn an_interpreter_that_is_slow_to_start_delays_no_other_key() {
    let story = Story::new();
    let opened = story.path().join("opened");
    let slow = script(
        &story,
        "slow-python",
        &format!(
            "#!/bin/sh\nn=0\nwhile [ ! -e '{}' ] && [ $n -lt 1500 ]; do sleep 0.02; n=$((n+1)); done\n\
             exec python3 \"$@\"\n",
            opened.display()
        ),
    );
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let call = with_python(Story::call(ONE, "[]"), &slow);
            story.backend.submit(call).expect("taken")
        })
        .collect();
    for _ in 0..10 {
        assert_eq!(json(&story.source(ONE, "[]").await), 1);
        assert_eq!(json(&story.reuse(ONE, "[]").await), 1);
        let command = story.run(bare::command(["true"])).await;
        assert_eq!(command.verdict, Verdict::Ok);
    }
    assert!(!opened.exists(), "all that while key A was starting");
    std::fs::write(&opened, "").expect("a file can be written");
    for call in waiting {
        assert_eq!(json(&call.await.expect("runs")), 1);
    }
    story.end().await;
}

/// EX-15
#[tokio::test]
async fn idle_workers_and_zygotes_end_and_return_on_demand() {
    let story = Story::with(|config| config.idle_timeout = Duration::from_millis(300));
    let (launcher, first) = launcher(&story).await;
    wait_until("worker and zygote have ended", || {
        launcher.children().is_empty()
    })
    .await;
    let second = worker(
        &story
            .reuse("import os\ndef f(): return os.getpid()", "[]")
            .await,
    );
    assert_ne!(first, second);
    assert_eq!(second.parent(), launcher);
    wait_until("the first worker's end is told", || {
        !reasons(&story.events()).is_empty()
    })
    .await;
    assert_eq!(reasons(&story.events())[0], ExitReason::Idle);
    story.end().await;
}

/// EX-15
#[test]
fn the_idle_time_is_300_seconds_unless_said() {
    let config = LocalConfig::from_vars([].into()).expect("nothing is sound");
    assert_eq!(config.idle_timeout, Duration::from_secs(300));
}

// ---- recycling ---------------------------------------------------------------------------------------------------

/// EX-16: how many of the calls each process serves, and the reason of each exit.
async fn recycled(recycle: Recycle, calls: Vec<Call>) -> (Vec<usize>, Vec<ExitReason>) {
    let story = Story::with(|config| {
        config.max_workers = 1;
        config.recycle = recycle;
    });
    let mut served: Vec<(Option<String>, usize)> = Vec::new();
    for call in calls {
        let id = story.run(call).await.metrics.worker_id;
        match served.last_mut().filter(|(last, _)| *last == id) {
            Some((_, calls)) => *calls += 1,
            None => served.push((id, 1)),
        }
    }
    let events = story.end().await;
    // In the order in which they served, for one that grew ends slowly.
    let reasons = served.iter().map(|(id, _)| {
        let reason = events.iter().find_map(|event| match event {
            Event::WorkerExit {
                worker_id, reason, ..
            } if Some(worker_id) == id.as_ref() => Some(*reason),
            _ => None,
        });
        reason.expect("each worker's exit is told")
    });
    (
        served.iter().map(|(_, calls)| *calls).collect(),
        reasons.collect(),
    )
}

/// EX-16
#[tokio::test]
async fn a_worker_ends_when_it_has_served_max_calls() {
    let recycle = Recycle {
        max_calls: Some(3),
        ..Recycle::default()
    };
    let calls = vec![Story::reuse_call(ONE, "[]"); 7];
    assert_eq!(
        recycled(recycle, calls).await,
        (
            vec![3, 3, 1],
            vec![
                ExitReason::MaxCalls,
                ExitReason::MaxCalls,
                ExitReason::Shutdown
            ]
        )
    );
}

/// EX-16
#[tokio::test]
async fn a_worker_ends_at_the_end_of_the_call_in_which_it_passes_max_age() {
    let recycle = Recycle {
        max_age: Some(Duration::from_millis(1)),
        ..Recycle::default()
    };
    let long = "import time\ndef f(): time.sleep(0.002)\n";
    assert_eq!(
        recycled(recycle, vec![Story::reuse_call(long, "[]"); 2]).await,
        (vec![1, 1], vec![ExitReason::MaxAge, ExitReason::MaxAge])
    );
    let recycle = Recycle {
        max_age: Some(Duration::from_secs(600)),
        ..Recycle::default()
    };
    assert_eq!(
        recycled(recycle, vec![Story::reuse_call(long, "[]"); 2]).await,
        (vec![2], vec![ExitReason::Shutdown])
    );
}

/// EX-16
#[tokio::test]
async fn a_worker_ends_when_it_has_grown() {
    let recycle = Recycle {
        rss_growth: Some(20 << 20),
        ..Recycle::default()
    };
    let grow = "import sys\ndef f(mb): sys.hoard = b'x' * (mb << 20)\n";
    let calls = [1, 2, 60, 1].map(|mb| Story::reuse_call(grow, &format!("[{mb}]")));
    assert_eq!(
        recycled(recycle, calls.into()).await,
        (
            vec![3, 1],
            vec![ExitReason::RssGrowth, ExitReason::Shutdown]
        )
    );
}

/// EX-16
#[tokio::test]
async fn a_worker_ends_after_an_error_only_if_told_to() {
    let calls = || {
        vec![
            Story::reuse_call(ONE, "[]"),
            Story::reuse_call("def f(): raise KeyError(1)", "[]"),
            Story::reuse_call(ONE, "[]"),
        ]
    };
    let recycle = Recycle {
        after_error: true,
        ..Recycle::default()
    };
    assert_eq!(
        recycled(recycle, calls()).await,
        (
            vec![2, 1],
            vec![ExitReason::AfterError, ExitReason::Shutdown]
        )
    );
    assert_eq!(
        recycled(Recycle::default(), calls()).await,
        (vec![3], vec![ExitReason::Shutdown])
    );
}

/// EX-17
#[tokio::test]
async fn a_backlog_of_ten_times_max_calls_drains() {
    const MAX_CALLS: usize = 5;
    let story = Story::with(|config| config.recycle.max_calls = Some(MAX_CALLS as u64));
    let backlog: Vec<_> = (0..10 * MAX_CALLS)
        .map(|_| {
            let call = Story::reuse_call(ONE, "[]");
            story.backend.submit(call).expect("taken")
        })
        .collect();
    for call in backlog {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let outcome = answer.expect("no deadlock").expect("runs");
        assert_eq!(json(&outcome), 1);
    }
    let reasons = reasons(&story.end().await);
    let by_policy = reasons
        .iter()
        .filter(|reason| **reason == ExitReason::MaxCalls);
    assert!(by_policy.count() >= 9, "{reasons:?}");
}

/// EX-17: a process that holds much memory takes long to end; its replacement does not wait for that.
#[tokio::test]
async fn a_replacement_starts_before_the_old_process_is_reaped() {
    let story = Story::with(|config| {
        config.max_workers = 1;
        config.recycle.max_calls = Some(1);
    });
    let fat = "import sys\ndef f(): sys.hoard = b'x' * (96 << 20)\n";
    let backlog: Vec<_> = (0..8)
        .map(|_| {
            story
                .backend
                .submit(Story::reuse_call(fat, "[]"))
                .expect("taken")
        })
        .collect();
    for call in backlog {
        assert_eq!(call.await.expect("runs").verdict, Verdict::Ok);
    }
    let (mut alive, mut most) = (0, 0);
    for event in story.end().await {
        match event.name() {
            "worker_start" => alive += 1,
            "worker_exit" => alive -= 1,
            _ => {}
        }
        most = most.max(alive);
    }
    assert_eq!(most, 2, "one slot: the second is a replacement");
}

/// EX-13: a fresh worker that is forked ahead takes nobody's place.
#[tokio::test]
async fn fresh_calls_between_do_not_cost_a_kept_worker_its_place() {
    let story = Story::new();
    let mut workers = std::collections::HashSet::new();
    for _ in 0..10 {
        assert_eq!(json(&story.source("def f(): return 1", "[]").await), 1);
        let kept = story.reuse("def f(): return 2", "[]").await;
        workers.insert(kept.metrics.worker_id.expect("a worker ran it"));
    }
    assert_eq!(workers.len(), 1);
    story.end().await;
}
