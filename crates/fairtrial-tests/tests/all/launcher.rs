//! The launcher by itself: what it is, what it answers, how it ends (SB-2 to SB-9, SB-21).

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use fairtrial_exec::linux::cgroup::LeafLimits;
use fairtrial_exec::linux::monotonic::now_ns;
use fairtrial_exec::linux::seccomp::{Filter, Others, Sockets};
use fairtrial_exec::protocol::launcher::{
    Bind, Cause, Confine, FromLauncher, Landlock, Namespaces, Network, Step, TaskId, ToLauncher,
    Watch, World,
};
use fairtrial_tests::{
    Gate, Launcher, Process, Story, bare, note, program, running_with, wait_until,
};
use rustix::process::Signal;

use crate::process::with_env;

// ---- what it is --------------------------------------------------------------------------------------------------

/// SB-1: static, so that it runs where there is no library for it.
#[tokio::test]
async fn the_launcher_needs_no_library() {
    if !rustix::process::geteuid().is_root() {
        return note("skipped: needs root, to look into the launcher");
    }
    let story = Story::new();
    let shown = story
        .run(bare::command(["sh", "-c", "cat /proc/$PPID/maps"]))
        .await;
    let maps = shown.stdout.text();
    assert!(maps.contains("[stack]") && !maps.contains(".so"), "{maps}");
    story.end().await;
}

/// SB-1
#[tokio::test]
async fn a_launcher_that_cannot_be_started_is_named() {
    let path = "/no/such/launcher";
    let story = Story::with(|config| config.launcher = Some(path.into()));
    let error = story.try_run(bare::command(["true"])).await;
    let error = error.expect_err("nothing can run").to_string();
    assert!(
        error.contains(path) && error.contains("No such file"),
        "{error}"
    );
    story.end().await;
}

/// SB-2: looked at while it serves a call whose program, arguments, environment and source all hold the word.
#[tokio::test]
async fn nothing_of_a_call_is_in_the_launchers_own_files() {
    let word = "canary_8f2b";
    let story = Story::with(|config| config.max_workers = 3);
    let gate = Gate::new(&story, "gate");
    let running = story.backend.submit(gate.call()).expect("taken");
    gate.reached_by(1).await;
    let launcher = Process::find(gate.arrived()[0]).expect("it waits").parent();
    let command = with_env(bare::command(["sh", "-c", ":", word]), "NAME", word);
    story.run(command).await;
    let source = format!("def f(x):\n    {word} = '{word}'\n");
    story
        .source(&source, &format!("['{word}']").replace('\'', "\""))
        .await;

    let file = |name: &str| std::fs::read(format!("/proc/{}/{name}", launcher.pid));
    match file("environ") {
        Ok(environ) => assert_eq!(environ, b""),
        // Nobody but root looks into what is not dumpable.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    for name in ["cmdline", "comm", "status", "maps", "mountinfo"] {
        let text = file(name).unwrap_or_default();
        let found = text.windows(word.len()).any(|part| part == word.as_bytes());
        assert!(!found, "{name}: {}", String::from_utf8_lossy(&text));
    }
    if rustix::process::geteuid().is_root() {
        let link = |name: &str| std::fs::read_link(format!("/proc/{}/{name}", launcher.pid));
        assert_eq!(link("cwd").expect("root may").as_os_str(), "/");
        for number in 0..3 {
            let at = link(&format!("fd/{number}")).expect("root may");
            assert_eq!(at.as_os_str(), "/dev/null");
        }
    } else {
        note("skipped: needs root to see where the launcher is and what it has open");
    }
    gate.open();
    running.await.expect("the engine does its work");
    story.end().await;
}

/// SB-2: looked into by a process of the same user, which has no privileges over it.
#[test]
fn the_launcher_is_closed_to_its_own_user() {
    let launcher = Launcher::start();
    let environ = format!("/proc/{}/environ", launcher.process().pid);
    let mut cat = vec!["cat", environ.as_str()];
    if rustix::process::geteuid().is_root() {
        cat.splice(
            0..0,
            ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"],
        );
        if !std::path::Path::new("/usr/bin/setpriv").exists() {
            return note("skipped: needs `setpriv`, to be root without root's privileges");
        }
    }
    let mut looker = Launcher::start(); // any process will do, and this one is at hand
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe can be had");
    let null = || -> OwnedFd {
        std::fs::File::open("/dev/null")
            .expect("always there")
            .into()
    };
    looker.spawn_with(1, program(&cat), [null(), null(), writer]);
    let (_, end) = looker.hear_the_end_of(1);
    let mut said = String::new();
    std::fs::File::from(reader)
        .read_to_string(&mut said)
        .expect("it is text");
    assert_ne!(end.status, 0);
    assert!(said.contains("ermission denied"), "{said}");
}

/// SB-4: a subreaper, with the score that its engine has.
#[test]
fn orphans_come_to_the_launcher_and_it_is_no_ones_first_victim() {
    let mut launcher = Launcher::start();
    let score = |who: &str| std::fs::read_to_string(format!("/proc/{who}/oom_score_adj"));
    let its = score(&launcher.process().pid.to_string()).expect("it runs");
    assert_eq!(its, score("self").expect("we run"));
    launcher.spawn(1, program(&["sh", "-c", "(setsid sleep 73.25 &); exit 3"]));
    let (_, end) = launcher.hear_the_end_of(1);
    assert_eq!((end.status >> 8, end.survivors), (3, 0));
    assert_eq!(running_with("73.25"), [0; 0], "{end:?}");
}

/// SB-4: the engine lives, and has no more to say.
#[test]
fn a_launcher_whose_socket_closes_ends_and_takes_everything_with_it() {
    let mut launcher = Launcher::start();
    launcher.spawn(
        1,
        program(&["sh", "-c", "setsid sleep 74.25 & sleep 74.25"]),
    );
    assert!(matches!(
        launcher.hear(),
        Some(FromLauncher::Spawned { .. })
    ));
    launcher.hang_up();
    launcher.ended();
    assert_eq!(running_with("74.25"), [0; 0]);
}

// ---- what it answers ---------------------------------------------------------------------------------------------

/// SB-5: programs that end by themselves just when they are told to, and some that never begin.
#[test]
fn every_spawn_has_one_end_however_kill_and_exit_race() {
    const TASKS: u64 = 10_000;
    const AT_ONCE: u64 = 20;
    let mut launcher = Launcher::start();
    let mut ends = vec![0; TASKS as usize];
    let mut killed = 0;
    for first in (0..TASKS).step_by(AT_ONCE as usize) {
        let batch = first..TASKS.min(first + AT_ONCE);
        for task in batch.clone() {
            let ends = ["true", "false", "no-such-program"][task as usize % 3];
            launcher.spawn(task, program(&[ends]));
        }
        // As they start and end: some are gone, some have not begun.
        for task in batch.clone() {
            let cause = Cause::Cancelled;
            let task = TaskId(task);
            launcher.say(&ToLauncher::Kill { task, cause });
            launcher.say(&ToLauncher::Kill { task, cause });
        }
        let mut open = batch.count();
        while open > 0 {
            let (task, dead) = match launcher.hear().expect("it lives") {
                FromLauncher::Exited { task, end } => (task, end.status & 0x7f == 9),
                FromLauncher::Failed { task, .. } => (task, false),
                _ => continue,
            };
            ends[task.0 as usize] += 1;
            killed += u32::from(dead);
            open -= 1;
        }
    }
    assert!(!launcher.has_news_within(Duration::from_millis(50)));
    assert!(ends.iter().all(|ends| *ends == 1), "{ends:?}");
    note(format!(
        "{killed} of {TASKS} were killed, the others ended by themselves"
    ));
}

/// SB-5, SB-9
#[test]
fn word_of_an_older_dispatch_ends_nothing() {
    let mut launcher = Launcher::start();
    launcher.spawn(1, program(&["sleep", "75.25"]));
    assert!(matches!(
        launcher.hear(),
        Some(FromLauncher::Spawned { .. })
    ));
    let arm = |generation, deadline_ns| ToLauncher::Arm {
        task: TaskId(1),
        generation,
        watch: Watch {
            deadline_ns: Some(deadline_ns),
            confirm: true,
            ..Watch::default()
        },
    };
    let confirm = |generation| ToLauncher::Confirm {
        task: TaskId(1),
        generation,
    };
    launcher.say(&arm(6, now_ns() + 3_600_000_000_000));
    launcher.say(&confirm(5));
    assert!(!launcher.has_news_within(Duration::from_millis(100)));
    launcher.say(&confirm(6));
    let (_, end) = launcher.hear_the_end_of(1);
    assert_eq!(end.status & 0x7f, Signal::KILL.as_raw());
}

/// SB-7, SB-57: who was killed had been told on before, and who ended long before its deadline never is.
#[test]
fn a_kill_has_its_cause_on_record_and_a_natural_end_has_none() {
    let mut launcher = Launcher::start();
    let (mut hits, mut misses) = (0, 0);
    for task in 0..60_u64 {
        launcher.spawn(task, program(&["sleep", "0.02"]));
        let Some(FromLauncher::Spawned { at_ns, .. }) = launcher.hear() else {
            panic!("it could not be started");
        };
        // Around when it ends by itself; every third a while afterwards.
        let after_ns = match task % 3 {
            0 => 200_000_000,
            _ => 15_000_000 + task * 200_000,
        };
        launcher.say(&ToLauncher::Arm {
            task: TaskId(task),
            generation: 1,
            watch: Watch {
                deadline_ns: Some(at_ns + after_ns),
                ..Watch::default()
            },
        });
        let (said, end) = launcher.hear_the_end_of(task);
        let timeout = FromLauncher::Hit {
            task: TaskId(task),
            generation: 1,
            cause: Cause::Timeout,
        };
        let hit = said.contains(&timeout);
        let killed = end.status & 0x7f == Signal::KILL.as_raw();
        assert!(hit || !killed, "killed without a cause: {end:?}");
        assert!(!hit || task % 3 != 0, "{end:?}");
        hits += u32::from(hit);
        misses += u32::from(!hit);
    }
    assert!(!launcher.has_news_within(Duration::from_millis(300)));
    note(format!("{hits} were stopped, {misses} ended by themselves"));
}

/// SB-8
#[test]
fn a_message_longer_than_a_packet_arrives_whole() {
    let mut launcher = Launcher::start();
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe can be had");
    let long = "x".repeat(100_000);
    let mut print = program(&["sh", "-c", r#"printf '%s' "${#1} ${#NAME}""#, "sh", &long]);
    print.env = vec![format!("NAME={long}").into_bytes()];
    let null = || -> OwnedFd {
        std::fs::File::open("/dev/null")
            .expect("always there")
            .into()
    };
    launcher.spawn_with(1, print, [null(), writer, null()]);
    let (_, end) = launcher.hear_the_end_of(1);
    assert_eq!(end.status, 0);
    let mut said = String::new();
    std::fs::File::from(reader)
        .read_to_string(&mut said)
        .expect("it is text");
    assert_eq!(said, "100000 100000");
}

/// SB-8
#[test]
fn a_malformed_message_ends_the_launcher_and_everything_below_it() {
    type Sin = (&'static str, fn(&Launcher));
    let sins: [Sin; 4] = [
        ("junk", |launcher| launcher.say_bytes(b"\0\xff\xff\xff\xff")),
        ("an unknown form", |launcher| launcher.say_bytes(b"\x07")),
        ("bytes behind a message", |launcher| {
            launcher.say_bytes(&[0, 5, 1, 1])
        }),
        ("a memfd that is missing", |launcher| {
            launcher.say_bytes(&[1])
        }),
    ];
    for (number, (sin, commit)) in sins.into_iter().enumerate() {
        let mut launcher = Launcher::start();
        let mark = format!("76.{number}125");
        let script = format!("setsid sleep {mark} & sleep {mark}");
        launcher.spawn(1, program(&["sh", "-c", &script]));
        assert!(matches!(
            launcher.hear(),
            Some(FromLauncher::Spawned { .. })
        ));
        commit(&launcher);
        let status = launcher.ended();
        assert_eq!(status.code(), Some(1), "{sin}");
        assert_eq!(running_with(&mark), [0; 0], "{sin}");
    }
}

/// FA-12: the kernel drops descriptors for which the launcher has no room, and the launcher goes on.
#[test]
fn a_worker_whose_descriptors_were_lost_fails_alone() {
    let mut launcher = Launcher::start();
    launcher.say(&ToLauncher::Fork {
        task: TaskId(2),
        zygote: TaskId(1),
        confine: None,
        alone: false,
    });
    let said = launcher.hear();
    let expected = FromLauncher::Failed {
        task: TaskId(2),
        step: Step::Descriptors,
        errno: rustix::io::Errno::MFILE.raw_os_error(),
    };
    assert_eq!(said, Some(expected));
    launcher.spawn(3, program(&["true"]));
    assert!(matches!(
        launcher.hear(),
        Some(FromLauncher::Spawned {
            task: TaskId(3),
            ..
        })
    ));
}

/// SB-21
#[test]
fn a_step_that_fails_is_named_with_the_kernels_answer() {
    let mut launcher = Launcher::start();
    let mut nowhere = program(&["true"]);
    nowhere.cwd = b"/no/such/place".to_vec();
    let mut unlimited = program(&["true"]);
    unlimited.rlimits = vec![(99, 1)];
    let mut unmarked = program(&["true"]);
    unmarked.confine = Some(Box::new(Confine {
        cpus: vec![1023],
        ..Confine::default()
    }));
    let failures = [
        (program(&["no-such-program"]), Step::Exec, 2),
        (nowhere, Step::Chdir, 2),
        (unlimited, Step::Rlimits, 22),
        (unmarked, Step::Affinity, 22),
    ];
    for (number, (program, step, errno)) in failures.into_iter().enumerate() {
        let task = number as u64;
        launcher.spawn(task, program);
        let task = TaskId(task);
        let failed = FromLauncher::Failed { task, step, errno };
        assert_eq!(launcher.hear(), Some(failed));
    }
}

/// SB-22: at each step of a confinement that has all there is, again and again.
#[tokio::test]
async fn a_step_that_fails_leaves_nothing_in_the_launcher() {
    if !rustix::process::geteuid().is_root() {
        return note("skipped: needs root, to look into the launcher");
    }
    let confined = |change: fn(&mut Confine, &mut World)| {
        let mut world = World {
            binds: ["/usr", "/bin", "/lib", "/lib64"].map(seen).into(),
            devices: Vec::new(),
            scratch: b"/scratch".to_vec(),
            scratch_bytes: 1 << 20,
            scratch_inodes: 100,
            as_caller: false,
            network: Network::None,
        };
        let mut confine = Confine {
            leaf: Some(LeafLimits::default()),
            oom_score: 800,
            landlock: Some(Landlock {
                abi: 1,
                writable: vec![b"/scratch".to_vec()],
                ..Landlock::default()
            }),
            filter: Some(Filter {
                others: Others::InNamespace,
                rare_calls: Some(Sockets::Namespaced),
                shares_host: false,
            }),
            ..Confine::default()
        };
        change(&mut confine, &mut world);
        confine.namespaces = Some(Namespaces::All(world));
        let mut program = program(&["true"]);
        program.confine = Some(Box::new(confine));
        program
    };
    let mut nowhere = confined(|_, _| {});
    nowhere.cwd = b"/no/such/place".to_vec();
    let mut nothing = confined(|_, _| {});
    nothing.paths = vec![b"/no/such/program".to_vec()];
    let failing = [
        (nowhere, Step::Chdir),
        (nothing, Step::Exec),
        (
            confined(|_, world| world.scratch = b"/usr/bin/true/x".to_vec()),
            Step::Mounts, // or the init is gone before anybody enters
        ),
        (
            confined(|confine, _| confine.rlimits = vec![(99, 1)]),
            Step::Rlimits,
        ),
        (
            confined(|confine, _| confine.cpus = vec![1023]),
            Step::Affinity,
        ),
    ];
    let mut launcher = Launcher::start();
    let own = launcher.process();
    let descriptors = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", own.pid)).expect("it runs");
        files.count()
    };
    let mut after_first = 0;
    for round in 0..20 {
        for (number, (program, step)) in failing.iter().enumerate() {
            launcher.spawn(10 * round + number as u64, program.clone());
            let said = launcher.hear();
            assert!(
                matches!(said, Some(FromLauncher::Failed { step: failed, errno, .. })
                    if failed == *step || (*step == Step::Mounts && errno == 3)),
                "{step:?}: {said:?}"
            );
        }
        wait_until("its children are gone", || own.children().is_empty()).await;
        if round == 0 {
            after_first = descriptors(); // its cgroup and its namespace stay, for the next
        }
    }
    // A cgroup or two more may have been needed, where the last one's process took long to end: fewer than one each.
    let most = after_first + 60;
    wait_until("no descriptor stays", || descriptors() <= most).await;
    let task = TaskId(1000);
    launcher.spawn(task.0, confined(|_, _| {}));
    let said = launcher.hear();
    assert!(
        matches!(said, Some(FromLauncher::Spawned { .. })),
        "{said:?}"
    );
}

fn seen(path: &str) -> Bind {
    Bind {
        path: path.into(),
        writable: false,
        device: false,
    }
}

// ---- how its own end is heard ------------------------------------------------------------------------------------

/// SB-11: killed, so that nobody but the kernel is left to end what it started.
#[tokio::test]
async fn who_gave_up_its_privileges_dies_with_the_launcher_all_the_same() {
    let mut launcher = Launcher::start();
    let mut confined = program(&["sleep", "77.125"]);
    confined.confine = Some(Box::new(Confine {
        oom_score: 800,
        ..Confine::default()
    }));
    launcher.spawn(1, program(&["sleep", "77.125"]));
    launcher.spawn(2, confined);
    for _ in 0..2 {
        let said = launcher.hear();
        assert!(
            matches!(said, Some(FromLauncher::Spawned { .. })),
            "{said:?}"
        );
    }
    launcher.process().signal(Signal::KILL);
    wait_until("both are gone", || running_with("77.125").is_empty()).await;
}
