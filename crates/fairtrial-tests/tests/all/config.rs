//! Configuration (EX-94).

use std::collections::BTreeMap;

use fairtrial_exec::{EngineError, LocalConfig, available_cpus};
use fairtrial_tests::{Cli, json};

fn config(vars: &[(&str, &str)]) -> Result<LocalConfig, EngineError> {
    let vars = vars
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()));
    LocalConfig::from_vars(vars.collect::<BTreeMap<_, _>>())
}

fn workers(vars: &[(&str, &str)]) -> usize {
    config(vars).expect("sound").max_workers
}

/// EX-94
#[test]
fn slots_are_the_cpus_that_affinity_allows_unless_a_variable_says() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    // Affinity is a thread's own: this thread ends with the test.
    std::thread::spawn(|| {
        let allowed = sched_getaffinity(None).expect("one may ask");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
        let mut one = CpuSet::new();
        one.set(first.expect("one runs somewhere"));
        sched_setaffinity(None, &one).expect("one may have less");
        assert_eq!(available_cpus(), 1);
        assert_eq!(workers(&[]), 1);
        assert_eq!(workers(&[("FAIRTRIAL_MAX_WORKERS", "6")]), 6);
    })
    .join()
    .expect("it holds");
}

/// EX-94
#[test]
fn test_processes_share_the_cpus_but_not_what_was_said() {
    let cpus = available_cpus();
    let share = cpus.to_string();
    for (count, expected) in [
        (share.as_str(), 1),
        ("1000", 1),
        ("1", cpus),
        ("0", cpus),
        ("", cpus),
    ] {
        assert_eq!(workers(&[("PYTEST_XDIST_WORKER_COUNT", count)]), expected);
    }
    let both = [
        ("PYTEST_XDIST_WORKER_COUNT", "1000"),
        ("FAIRTRIAL_MAX_WORKERS", "3"),
    ];
    assert_eq!(workers(&both), 3);
}

/// EX-94
#[test]
fn a_value_that_does_not_parse_is_an_error_at_construction_that_names_the_variable() {
    for (name, value) in [
        ("FAIRTRIAL_MAX_WORKERS", "two"),
        ("FAIRTRIAL_MAX_WORKERS", "2.5"),
        ("FAIRTRIAL_IDLE_TIMEOUT_S", "soon"),
        ("FAIRTRIAL_IDLE_TIMEOUT_S", "0"),
        ("FAIRTRIAL_IDLE_TIMEOUT_S", "inf"),
        ("PYTEST_XDIST_WORKER_COUNT", "auto"),
    ] {
        let error = config(&[(name, value)]).expect_err("it does not parse");
        assert!(
            matches!(&error, EngineError::Config { name: named, .. } if named == name)
                && error.to_string().contains(value),
            "{error}"
        );
        assert!(config(&[(name, "  ")]).is_ok(), "blank counts as unset");
    }
}

/// EX-94, SB-15: a bad sandbox is bad usage wherever it is asked for.
#[test]
fn the_binary_names_a_bad_variable_and_starts_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    for (name, value, code) in [
        ("FAIRTRIAL_MAX_WORKERS", "many", 1),
        ("FAIRTRIAL_IDLE_TIMEOUT_S", "-1", 1),
        ("FAIRTRIAL_SANDBOX", "padded-cell", 2),
    ] {
        let finished = Cli::new(["exec", "--", "touch", "started"])
            .current_dir(dir.path())
            .env("FAIRTRIAL_SPILL_DIR", dir.path().join("spill"))
            .env(name, value)
            .run();
        assert_eq!(finished.code, Some(code), "{finished:?}");
        assert!(
            finished.stderr.contains(name) && finished.stderr.contains(value),
            "{finished:?}"
        );
        assert!(!dir.path().join("spill").exists());
    }
}

/// EX-94: explicit arguments win over variables.
#[test]
fn a_flag_wins_over_a_variable() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    // Two calls that each wait for the other need two slots, whatever the variable says.
    let meet = "import os, time\ndef f(mine, other):\n    open(mine, 'w').close()\n    \
                end = time.monotonic() + 20\n    \
                while not os.path.exists(other):\n        \
                if time.monotonic() > end: return False\n        time.sleep(0.005)\n    return True\n";
    let place = |name: &str| dir.path().join(name);
    let line = |mine, other| {
        let args = [place(mine), place(other)];
        serde_json::json!({"source": meet, "function": "f", "args": args}).to_string()
    };
    let calls = format!("{}\n{}\n", line("a", "b"), line("b", "a"));
    let finished = Cli::new(["batch", "-", "-j", "2"])
        .env("FAIRTRIAL_MAX_WORKERS", "1")
        .env("FAIRTRIAL_SPILL_DIR", dir.path().join("spill"))
        .run_with(&calls);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for line in finished.stdout.lines() {
        let outcome: serde_json::Value = serde_json::from_str(line).expect("a record");
        assert_eq!(outcome["value"], true, "{line}");
    }
}

/// EX-94: the number of slots is the number of calls that run at once.
#[tokio::test]
async fn no_more_calls_run_at_once_than_there_are_slots() {
    let story = fairtrial_tests::Story::with(|config| config.max_workers = 2);
    let count = "import os, time\ndef f(dir):\n    mine = os.path.join(dir, 'running-%d' % os.getpid())\n    \
                 open(mine, 'w').close()\n    \
                 seen = sum(name.startswith('running') for name in os.listdir(dir))\n    \
                 time.sleep(0.01)\n    os.remove(mine)\n    return seen\n";
    let arguments = serde_json::json!([story.path()]).to_string();
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let call = fairtrial_tests::Story::call(count, &arguments);
            fairtrial_exec::LocalBackend::submit(&story.backend, call).expect("taken")
        })
        .collect();
    for call in calls {
        let seen = json(&call.await.expect("runs"));
        assert!(seen.as_u64().is_some_and(|seen| seen <= 2), "{seen}");
    }
    story.end().await;
}
