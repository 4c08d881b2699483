//! What becomes of a call whose level the machine cannot give (SB-45): tried with an engine that does without a
//! facility, and on a machine where user namespaces are switched off.

use std::net::TcpListener;

use fairtrial_exec::{Call, Event, Facility, Level, OnMissing, Outcome, Sandbox, State, Verdict};
use fairtrial_tests::{Shell, Story, json};
use serde_json::{Value as Json, json as j};

/// Says what it could do that `strict` forbids.
const TRY: &str = "import os, socket\ndef f(port, canary):\n    done = []\n    try:\n        \
                   socket.create_connection(('127.0.0.1', port), 5)\n        done.append('connect')\n    \
                   except OSError:\n        pass\n    try:\n        open(canary, 'a')\n        \
                   done.append('write')\n    except OSError:\n        pass\n    return done\n";

fn without(facilities: &[Facility]) -> Story {
    Story::with(|config| config.without.extend(facilities))
}

fn at(level: Level, on_missing: OnMissing, mut call: Call) -> Call {
    call.sandbox = Sandbox::new(level);
    call.sandbox.on_missing = on_missing;
    call
}

fn state(outcome: &Outcome, name: &str) -> State {
    let mut mechanisms = outcome.in_force.mechanisms.iter();
    let found = mechanisms.find(|mechanism| mechanism.name == name);
    found.expect(name).state
}

/// The mechanisms that observers were told to be missing, in order.
fn told(events: &[Event]) -> Vec<&'static str> {
    let told = events.iter().filter_map(|event| match event {
        Event::Degraded { mechanism, .. } => Some(*mechanism),
        _ => None,
    });
    told.collect()
}

/// SB-44, SB-45
#[tokio::test]
async fn a_strict_call_that_may_degrade_runs_at_the_best_there_is_and_is_marked() {
    let story = without(&[Facility::Namespaces]);
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let canary = story.write("outside/canary", "");
    let arguments = j!([port, canary]).to_string();
    let worker = at(
        Level::Strict,
        OnMissing::Degrade,
        Story::call(TRY, &arguments),
    );
    let command = at(Level::Strict, OnMissing::Degrade, Call::command(["true"]));
    for _ in 0..2 {
        let outcome = story.run(worker.clone()).await;
        assert_eq!(json(&outcome), j!([]), "still refused");
        for outcome in [outcome, story.run(command.clone()).await] {
            assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
            let in_force = &outcome.in_force;
            let levels = (in_force.requested, in_force.effective);
            assert_eq!(levels, (Level::Strict, Level::Confined));
            assert_eq!(state(&outcome, "userns"), State::Unavailable);
            assert_eq!(state(&outcome, "network"), State::Enforced);
            assert_eq!(state(&outcome, "read_scope"), State::Enforced);
            assert_eq!(state(&outcome, "seccomp"), State::Enforced);
        }
    }
    let events = story.end().await;
    let mut told = told(&events);
    assert!(
        told.contains(&"userns") && told.contains(&"mountns"),
        "{told:?}"
    );
    let count = told.len();
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), count, "each once, however many calls lack it");
}

/// SB-45
#[tokio::test]
async fn a_call_that_insists_on_its_level_ends_before_any_code_of_its_own_runs() {
    for (facilities, level, mechanism, hint) in [
        (
            &[Facility::Namespaces][..],
            Level::Strict,
            "userns",
            "; this engine was set up to do without",
        ),
        (
            &[Facility::Landlock, Facility::Namespaces],
            Level::Limits,
            "environ_guard",
            "; needs Landlock: Linux 5.13",
        ),
    ] {
        let story = without(facilities);
        let mark = story.path().join("ran");
        let touch = Call::command(["touch".into(), mark.clone().into_os_string()]);
        let source = Story::call("open('ran', 'w')\ndef f():\n    return 1\n", "[]");
        for mut call in [touch, source] {
            call.cwd = Some(story.path().to_path_buf());
            let outcome = story.run(at(level, OnMissing::Fail, call)).await;
            assert_eq!(outcome.verdict, Verdict::SetupFailed);
            let message = outcome.error.expect("a reason").message;
            let wanted = format!("level `{level}` cannot be had: `{mechanism}`: ");
            let named = message.starts_with(&wanted) && message.contains(hint);
            assert!(named, "{message}");
        }
        assert!(!mark.exists());
        let events = story.end().await;
        assert!(events.iter().all(|event| event.name() != "worker_start"));
        assert_eq!(told(&events), [""; 0]);
    }
}

/// SB-25, SB-45: each facility can be missing, and `limits` runs all the same.
#[tokio::test]
async fn limits_runs_without_landlock_and_without_cgroups() {
    let (landlock, namespaces) = (Facility::Landlock, Facility::Namespaces);
    for (facilities, effective) in [
        (&[landlock, namespaces][..], Level::None),
        (&[landlock], Level::Limits),
        (&[Facility::Cgroups], Level::Limits),
    ] {
        let story = without(facilities);
        let outcome = story
            .run(at(
                Level::Limits,
                OnMissing::Degrade,
                Call::command(["true"]),
            ))
            .await;
        assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
        assert_eq!(outcome.in_force.effective, effective, "{facilities:?}");
        if facilities == [Facility::Cgroups] {
            assert_eq!(state(&outcome, "memory"), State::Sampled);
        }
        let events = story.end().await;
        assert_eq!(told(&events).is_empty(), effective == Level::Limits);
    }
}

/// SB-45, SB-46: nothing is withheld here: the kernel refuses.
#[test]
fn where_user_namespaces_are_switched_off_strict_fails_closed_or_degrades_as_asked() {
    let shell = Shell::new();
    let off = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"",
        "sh",
    ];
    let outcome = |sandbox: &str| -> Json {
        let arguments = ["exec", "--json", "--sandbox", sandbox, "--", "true"];
        let run = shell.fairtrial(arguments).under_all(&off).run();
        serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
    };
    let failed = outcome("strict");
    assert_eq!(failed["verdict"], "setup_failed", "{failed}");
    assert_eq!(
        failed["error"]["message"],
        "level `strict` cannot be had: `userns`: cannot be set up ENOSPC; user.max_user_namespaces=0"
    );
    let degraded = outcome("strict,on_missing=degrade");
    assert_eq!(degraded["verdict"], "ok", "{degraded}");
    assert_eq!(degraded["in_force"]["effective"], "confined", "{degraded}");
    let userns = &degraded["in_force"]["mechanisms"]["userns"];
    assert_eq!(userns["errno"], "ENOSPC", "{degraded}");
}

/// SB-26, SB-50: the kernel lets it have one process more than it may, and that one is the breach.
#[tokio::test]
async fn without_cgroups_the_tasks_of_a_call_are_counted_by_its_user() {
    let story = without(&[Facility::Cgroups]);
    let fork = "import os, resource, signal\ndef f(count):\n    for _ in range(count):\n        if os.fork() == 0:\n            \
                signal.pause()\n    return resource.getrlimit(resource.RLIMIT_NPROC)[1]\n";
    let mut call = at(Level::Strict, OnMissing::Fail, Story::call(fork, "[9]"));
    call.limits.processes = Some(10);
    let outcome = story.run(call.clone()).await;
    assert_eq!(json(&outcome), j!(11), "{:?}", outcome.error);
    assert!(
        outcome
            .in_force
            .mechanisms
            .iter()
            .any(|mechanism| mechanism.name == "processes" && mechanism.state == State::Enforced)
    );
    let bomb = "import os\ndef f():\n    while True:\n        try:\n            os.fork()\n        except OSError:\n            pass\n";
    let mut bomb = at(Level::Strict, OnMissing::Fail, Story::call(bomb, "[]"));
    bomb.limits.processes = Some(10);
    assert_eq!(story.run(bomb).await.verdict, Verdict::ProcessLimit);
    // One that reaches the limit and answers at once, before anybody looks every so often.
    let quick = "import os, signal\ndef f():\n    try:\n        while True:\n            if os.fork() == 0:\n                \
                 signal.pause()\n    except OSError:\n        return 1\n";
    for round in 0..10 {
        let mut quick = at(Level::Strict, OnMissing::Fail, Story::call(quick, "[]"));
        quick.limits.processes = Some(10);
        let verdict = story.run(quick).await.verdict;
        assert_eq!(verdict, Verdict::ProcessLimit, "{round}");
    }
    story.end().await;
}
