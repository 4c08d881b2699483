//! What each level keeps a candidate from, by trying it: through a worker and through a command alike.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use fairtrial_exec::{
    Call, Facility, Isolation, Level, Mechanism, Outcome, Sandbox, State, Verdict,
};
use fairtrial_tests::{Story, json, note};
use serde_json::{Value as Json, json as j};

fn found<'a>(outcome: &'a Outcome, name: &str) -> &'a Mechanism {
    let mut mechanisms = outcome.in_force.mechanisms.iter();
    mechanisms
        .find(|mechanism| mechanism.name == name)
        .expect("it is told of")
}

const TRY_EVERYTHING: &str = include_str!("../../programs/try_everything.py");

/// What is tried, and whether `limits` and `strict` allow it.
const ATTEMPTS: &[(&str, bool, bool)] = &[
    ("write scratch", true, true),
    ("write /dev/null", true, true),
    ("write /dev/shm", true, true),
    ("write elsewhere", false, false),
    ("make elsewhere", false, false),
    ("remove elsewhere", false, false),
    ("read elsewhere", true, false), // SB-18
    ("signal the engine", false, false),
    ("environment of the engine", false, false), // SB-59
    ("memory of the engine", false, false),
    ("own clear_refs", false, false), // SB-36
    ("abstract socket", false, false),
    ("tcp", true, false), // SB-18
    ("udp", true, false),
    ("packet socket", false, false),
    ("netlink socket", true, false),
    ("mount", false, false),
    ("mount namespace", false, false),
    ("io_uring", true, false), // SB-55
    ("keyring", true, false),
    ("personality", true, false),
    ("priority", false, false),
    ("real time", false, false),
    ("lock memory", false, false),
    ("higher limit", false, false),
    ("another user", false, false),
];

/// Somebody outside, who is none of a candidate's business.
struct Outside {
    story: Story,
    port: TcpListener,
    _socket: UnixListener,
    name: String,
    canary: std::path::PathBuf,
}

impl Outside {
    fn new() -> Self {
        let story = Story::new();
        let name = format!("fairtrial-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        Self {
            canary: story.write("outside/canary", "secret"),
            port: TcpListener::bind(("127.0.0.1", 0)).expect("a port"),
            _socket: UnixListener::bind_addr(&address).expect("a socket"),
            story,
            name,
        }
    }

    fn arguments(&self) -> String {
        let port = self.port.local_addr().expect("bound").port();
        let engine = std::process::id();
        j!([engine, self.canary, port, self.name]).to_string()
    }

    /// What a worker at that level could do.
    async fn worker(&self, level: Level) -> Json {
        let mut call = Story::call(TRY_EVERYTHING, &self.arguments());
        call.sandbox = Sandbox::new(level);
        json(&self.story.run(call).await)
    }

    /// What a command at that level could do.
    async fn command(&self, level: Level) -> Json {
        let argv = ["python3", "-c", TRY_EVERYTHING, &self.arguments()];
        let mut call = Call::command(argv);
        call.sandbox = Sandbox::new(level);
        let outcome = self.story.run(call).await;
        let text = outcome.stdout.text();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text} {}", outcome.stderr.text()))
    }
}

fn wanted(level: Level) -> Json {
    let word = |allowed: bool| if allowed { "allowed" } else { "denied" };
    let cells = ATTEMPTS.iter().map(|(what, limits, strict)| {
        let allowed = if level == Level::Strict {
            *strict
        } else {
            *limits
        };
        ((*what).to_owned(), j!(word(allowed)))
    });
    let mut cells: serde_json::Map<_, _> = cells.collect();
    let none = "0000000000000000";
    cells.insert("privileges".into(), j!([none, none, none, none, "1"]));
    cells.insert("oom score".into(), j!("800"));
    Json::Object(cells)
}

/// SB-17, SB-18, SB-20, SB-23, SB-36, SB-55, SB-59
#[tokio::test]
async fn what_a_level_forbids_is_refused_to_workers_and_to_commands() {
    for level in [Level::Limits, Level::Strict] {
        let outside = Outside::new();
        let (worker, command) = (outside.worker(level).await, outside.command(level).await);
        assert_eq!(worker, wanted(level), "a worker at {level}");
        assert_eq!(command, wanted(level), "a command at {level}");
        let left = std::fs::read_to_string(&outside.canary).expect("still there");
        assert_eq!(left, "secret");
        outside.story.end().await;
    }
}

fn at(level: Level, mut call: Call) -> Call {
    call.sandbox = Sandbox::new(level);
    call
}

/// SB-16, SB-67, step 5 of section 3, SB-56
#[tokio::test]
async fn a_strict_call_sees_a_small_world_and_nobody_elses() {
    let story = Story::new();
    let look = "import os, glob\ndef f():\n    me = open('/proc/self/status').read()\n    \
                return dict(pid=os.getpid(), processes=len(glob.glob('/proc/[0-9]*')), root=sorted(os.listdir('/')), \
                shadow=os.path.exists('/etc/shadow'), home=os.environ['HOME'] == os.environ['TMPDIR'] == os.getcwd(), \
                blocks=os.statvfs('.').f_blocks * os.statvfs('.').f_frsize, inodes=os.statvfs('.').f_files, \
                root_user=os.getuid() == 0, links=sorted(os.listdir('/sys/class/net')) if os.path.exists('/sys') else [])\n";
    let seen = json(&story.run(at(Level::Strict, Story::call(look, "[]"))).await);
    assert_eq!(seen["pid"], 2);
    assert_eq!(seen["processes"], 2);
    assert_eq!(seen["shadow"], false);
    assert_eq!(seen["home"], true);
    assert_eq!(
        (&seen["blocks"], &seen["inodes"]),
        (&j!(1 << 30), &j!(50_000))
    );
    assert_eq!((&seen["root_user"], &seen["links"]), (&j!(false), &j!([])));
    let root = seen["root"].as_array().expect("a list");
    assert!(
        !root.contains(&j!("root")) || !root.contains(&j!("sys")),
        "{root:?}"
    );
    story.end().await;
}

/// SB-67: its directory is found whatever is seen beside it, here the directory where the engine keeps its own.
#[tokio::test]
async fn a_strict_call_may_see_the_directory_that_all_scratch_is_in() {
    let story = Story::new();
    let write = "import os\ndef f():\n    open('mine', 'w').close()\n    return os.listdir('.')\n";
    for writable in [false, true] {
        let mut call = at(Level::Strict, Story::call(write, "[]"));
        let seen = vec![story.path().to_path_buf()];
        match writable {
            true => call.sandbox.write = seen,
            false => call.sandbox.read = seen,
        }
        assert_eq!(json(&story.run(call).await), j!(["mine"]));
    }
    story.end().await;
}

/// H6: nobody waits for them but the launcher, at once: they are no part of the processes that a call may have.
#[tokio::test]
async fn orphans_that_ended_do_not_count() {
    let story = Story::new();
    let orphans = "import os\ndef f(count):\n    for _ in range(count):\n        if os.fork() == 0:\n            \
                   if os.fork() == 0:\n                os._exit(0)\n            os._exit(0)\n        \
                   os.wait()\n    return 'done'\n";
    for level in [Level::Limits, Level::Strict] {
        let mut call = at(level, Story::call(orphans, "[200]"));
        call.limits.processes = Some(40);
        let outcome = story.run(call).await;
        assert_eq!(json(&outcome), j!("done"), "{level}: {:?}", outcome.error);
    }
    story.end().await;
}

/// SB-5: more workers asked for at once than fit into the zygote's socket; each is answered for.
#[tokio::test]
async fn a_burst_of_calls_waits_for_room() {
    let story = Story::with(|config| config.max_workers = 150);
    let gate = "import time, os\ndef f(path):\n    while not os.path.exists(path):\n        time.sleep(0.01)\n";
    let opened = story.path().join("open");
    let args = j!([opened]).to_string();
    let calls: Vec<_> = (0..150)
        .map(|_| {
            story
                .backend
                .submit(at(Level::Limits, Story::call(gate, &args)))
        })
        .collect();
    std::fs::write(&opened, "").expect("the gate opens");
    for call in calls {
        assert_eq!(
            call.expect("accepted").await.expect("an outcome").verdict,
            Verdict::Ok
        );
    }
    story.end().await;
}

/// A worker is made for one call: what the last one did to its world is not there for the next.
#[tokio::test]
async fn no_strict_call_finds_what_another_left() {
    let story = Story::new();
    let litter = "import os\ndef f():\n    found = os.listdir('.') + os.listdir('/dev/shm')\n    \
                  open('left', 'w').close()\n    open('/dev/shm/left', 'w').close()\n    return found\n";
    for _ in 0..4 {
        let outcome = story
            .run(at(Level::Strict, Story::call(litter, "[]")))
            .await;
        assert_eq!(json(&outcome), j!([]));
    }
    story.end().await;
}

/// SB-14: what a level cannot give is refused before anything starts.
#[tokio::test]
async fn a_worker_that_is_kept_is_refused_at_strict() {
    let story = Story::new();
    let mut call = at(Level::Strict, Story::call("def f():\n    return 1\n", "[]"));
    call.python_mut().expect("a source call").isolation = Isolation::Reuse;
    let error = story.try_run(call).await.expect_err("refused");
    assert!(error.to_string().contains("use `fresh`"), "{error}");
    let events = story.end().await;
    assert!(events.iter().all(|event| event.name() != "worker_start"));
}

async fn verdict(story: &Story, level: Level, source: &str) -> Outcome {
    story.run(at(level, Story::call(source, "[]"))).await
}

/// SB-40, section 5: a full quota is a disk limit, by blocks and by inodes, and is gone with the call.
#[tokio::test]
async fn a_full_directory_is_a_disk_limit_at_strict() {
    let story = Story::new();
    let fill = "def f():\n    with open('big', 'wb') as file:\n        while True:\n            file.write(bytes(1 << 22))\n";
    let many =
        "def f():\n    n = 0\n    while True:\n        open(str(n), 'w').close()\n        n += 1\n";
    for source in [fill, many] {
        let mut call = at(Level::Strict, Story::call(source, "[]"));
        call.limits.file_bytes = Some(8 << 30);
        let outcome = story.run(call).await;
        assert_eq!(outcome.verdict, Verdict::DiskLimit, "{:?}", outcome.error);
    }
    // An error of another kind is not taken for one.
    let outcome = verdict(&story, Level::Strict, "def f():\n    open('/usr/x', 'w')\n").await;
    assert_eq!(outcome.verdict, Verdict::Exception);
    story.end().await;
}

/// SB-20, FA-1: a foreign ABI, whose system calls would pass the filter by, is killed.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn system_calls_of_a_foreign_kind_are_forbidden_where_there_is_a_filter() {
    let story = Story::new();
    let x32 =
        "import ctypes\ndef f():\n    ctypes.CDLL(None).syscall(0x40000000 | 39)\n    return 1\n";
    for (level, expected) in [
        (Level::Strict, Verdict::Forbidden),
        (Level::Limits, Verdict::Forbidden),
        (Level::None, Verdict::Ok),
    ] {
        let outcome = verdict(&story, level, x32).await;
        assert_eq!(outcome.verdict, expected, "{level}");
    }
    story.end().await;
}

/// SB-10, SB-51: nothing of a tree outlives its call, whatever session it took.
#[tokio::test]
async fn a_daemon_dies_with_its_call_at_every_level() {
    let daemon = "import os, time\ndef f(mark):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            \
                  os.execvp('sleep', ['sleep', mark])\n        os._exit(0)\n    os.wait()\n    return 'done'\n";
    for (level, mark) in [
        (Level::None, "71.125"),
        (Level::Limits, "71.25"),
        (Level::Strict, "71.5"),
    ] {
        let story = Story::new();
        let call = at(level, Story::call(daemon, &j!([mark]).to_string()));
        assert_eq!(json(&story.run(call).await), "done");
        fairtrial_tests::wait_until("the daemon is gone", || {
            fairtrial_tests::running_with(mark).is_empty()
        })
        .await;
        story.end().await;
    }
}

/// SB-66
#[test]
fn the_manual_says_what_is_not_defended() {
    let manual = include_str!("../../../../docs/security.md");
    let (_, rest) = manual
        .split_once("## What is not defended")
        .expect("a section");
    let (section, _) = rest.split_once("\n## ").expect("another one after it");
    let undefended = [
        "Exploits of the kernel",
        "Side channels",
        "Talk between calls",
        "Contention",
        "GPU",
        "Reads and the network at `limits`",
        "at `none`",
    ];
    for word in undefended {
        assert!(section.contains(word), "{word}");
    }
    assert!(manual.contains("micro-VM"));
}

/// What is everybody's stays so: a call's user is given the pipes that were made for it, and nothing else.
#[tokio::test]
async fn a_strict_call_is_given_nothing_of_the_hosts() {
    use std::os::unix::fs::MetadataExt;
    let owner = || std::fs::metadata("/dev/null").expect("it is there").uid();
    let before = owner();
    if before >= 1_900_000_000 {
        return note(
            "skipped: `/dev/null` belongs to a call's user already; an earlier version did that",
        );
    }
    let story = Story::new();
    let outcome = story.run(at(Level::Strict, Call::command(["true"]))).await;
    assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
    story
        .run(at(
            Level::Strict,
            Story::call("def f():\n    return 1\n", "[]"),
        ))
        .await;
    assert_eq!(owner(), before);
    story.end().await;
}

/// SB-67: by both routes.
#[tokio::test]
async fn a_strict_call_of_roots_has_no_groups() {
    if !rustix::process::geteuid().is_root() {
        return note("skipped: groups can be dropped by root only");
    }
    let story = Story::new();
    let groups = "import os\ndef f():\n    return os.getgroups()\n";
    assert_eq!(
        json(
            &story
                .run(at(Level::Strict, Story::call(groups, "[]")))
                .await
        ),
        j!([])
    );
    let command = Call::command(["sh", "-c", "grep Groups /proc/self/status"]);
    let outcome = story.run(at(Level::Strict, command)).await;
    assert_eq!(outcome.stdout.text().trim(), "Groups:");
    story.end().await;
}

/// SB-66: the directory that a program is in is not the program.
#[tokio::test]
async fn a_strict_command_sees_its_program_and_not_what_lies_beside_it() {
    let story = Story::new();
    let secret = story.write("home/secret", "secret");
    let program = story.write(
        "home/candidate",
        "#!/bin/sh\ncat \"$1\" 2>&1; ls -a \"${1%/*}\"\n",
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("its own");
    let words = [program.as_os_str(), secret.as_os_str()];
    let outcome = story.run(at(Level::Strict, Call::command(words))).await;
    let seen = outcome.stdout.text();
    assert!(
        seen.contains("No such file") && seen.contains("candidate"),
        "{seen}"
    );
    story.end().await;
}

/// SB-14: what is asked for in vain is said before anything starts.
#[tokio::test]
async fn places_that_are_not_there_or_are_everything_are_refused() {
    let story = Story::new();
    let [nowhere, everything] = ["/no/such/place", "/"].map(std::path::PathBuf::from);
    let call = || at(Level::Strict, Call::command(["true"]));
    let mut refused = Vec::new();
    for path in [&nowhere, &everything] {
        let (mut read, mut write) = (call(), call());
        read.sandbox.read = vec![path.clone()];
        write.sandbox.write = vec![path.clone()];
        refused.extend([("sandbox.read", read), ("sandbox.write", write)]);
    }
    let mut working = call();
    working.cwd = Some(everything);
    refused.push(("cwd", working));
    for (field, call) in refused {
        let error = story.try_run(call).await.expect_err("refused").to_string();
        assert!(error.contains(field), "{error}");
    }
    story.end().await;
}

/// Where a link leads is seen, and so is what a path with `..` means.
#[tokio::test]
async fn links_and_paths_that_climb_are_followed() {
    let story = Story::new();
    story.write("data/file", "found");
    let link = story.path().join("link");
    std::os::unix::fs::symlink(story.path().join("data"), &link).expect("a link");
    let climbing = story.path().join("data/../data");
    for (seen, file) in [
        (&link, link.join("file")),
        (&climbing, story.path().join("data/file")),
    ] {
        let mut call = at(
            Level::Strict,
            Call::command(["cat", file.to_str().expect("text")]),
        );
        call.sandbox.read = vec![seen.clone()];
        let outcome = story.run(call).await;
        assert_eq!(outcome.stdout.text(), "found", "{}", outcome.stderr.text());
    }
    story.end().await;
}

/// With a quota lifted there is none to be used up.
#[tokio::test]
async fn a_call_without_quotas_that_fails_has_no_full_directory() {
    let story = Story::new();
    let mut call = at(Level::Strict, Story::call("def f():\n    1 / 0\n", "[]"));
    call.sandbox.scratch_bytes = None;
    call.sandbox.scratch_inodes = None;
    assert_eq!(story.run(call).await.verdict, Verdict::Exception);
    story.end().await;
}

/// SB-70: at `limits` without namespaces nothing tells whose it was, and the outcome says so; else it was the call's own.
#[tokio::test]
async fn what_a_call_leaves_in_shared_memory_is_told_or_is_its_own() {
    let story = Story::new();
    let bare = Story::with(|config| config.without.extend([Facility::Namespaces]));
    let name = format!("/dev/shm/fairtrial-test-{}", std::process::id());
    let leave = "def f(path):\n    open(path, 'w').close()\n    return 1\n";
    for (story, level, state) in [
        (&bare, Level::Limits, State::Unavailable),
        (&story, Level::Limits, State::Enforced),
        (&story, Level::Strict, State::Enforced),
    ] {
        let outcome = story
            .run(at(level, Story::call(leave, &j!([name]).to_string())))
            .await;
        assert_eq!(json(&outcome), 1);
        let mut mechanisms = outcome.in_force.mechanisms.iter();
        let found = mechanisms.find(|one| one.name == "shared_memory");
        assert_eq!(found.expect("told of").state, state);
        let left = std::fs::remove_file(&name).is_ok();
        assert_eq!(left, state == State::Unavailable, "{level}");
    }
    bare.end().await;
    story.end().await;
}

/// A call that names a place in `/dev/shm` shares the host's, and so do functions of the caller's own.
#[tokio::test]
async fn a_call_that_is_given_shared_memory_has_the_hosts() {
    let story = Story::new();
    let given = std::path::PathBuf::from("/dev/shm");
    let name = given.join(format!("fairtrial-given-{}", std::process::id()));
    std::fs::write(&name, "the host's").expect("written");
    let read = "def f(path):\n    return open(path).read()\n";
    let call = || at(Level::Limits, Story::call(read, &j!([name]).to_string()));
    let refused = story.run(call()).await;
    let mut given_it = call();
    given_it.sandbox.write = vec![given];
    let outcome = story.run(given_it).await;
    std::fs::remove_file(&name).expect("still there");
    if found(&refused, "mountns").state == State::Enforced {
        let error = refused.error.expect("an exception");
        assert_eq!(error.kind, "FileNotFoundError");
    }
    assert_eq!(json(&outcome), "the host's");
    assert_ne!(found(&outcome, "shared_memory").state, State::Enforced);
    story.end().await;
}

/// FA-8: modes and times of the host's files, where the engine's user owns them.
#[tokio::test]
async fn a_call_changes_no_modes_or_times_but_of_its_own_files() {
    let story = Story::new();
    let file = story.write("outside/file", "the user's");
    let given = story.write("given/file", "for it to change");
    let source = "import os\ndef f(outside, given):\n    done = []\n    for path in (outside, given, 'own'):\n        \
                  for way in (lambda: os.chmod(path, 0o777), lambda: os.utime(path, (1, 1)), \
                  lambda: os.chown(path, -1, os.getgid())):\n            \
                  try:\n                way()\n                done.append(path)\n            except OSError as error:\n                \
                  assert error.errno == 30, error\n    return [done.count(path) for path in (outside, given, 'own')]\n";
    let source = source.replace(
        "    done = []",
        "    open('own', 'w').close()\n    done = []",
    );
    for level in [Level::Limits, Level::Confined] {
        let mut call = at(level, Story::call(&source, &j!([file, given]).to_string()));
        call.sandbox.write = vec![given.parent().expect("below").to_path_buf()];
        let outcome = story.run(call).await;
        if found(&outcome, "mountns").state != State::Enforced {
            return fairtrial_tests::note("skipped: no mounts of a call's own here");
        }
        assert_eq!(json(&outcome), j!([0, 3, 3]), "{level}");
    }
    story.end().await;
}

/// More places to write than a call can have mounts for: Landlock alone sees to them, and the outcome says so.
#[tokio::test]
async fn a_call_with_very_many_places_to_write_is_told_what_it_lacks() {
    let story = Story::new();
    let places = (0..100).map(|number| story.path().join(format!("place-{number}")));
    let places: Vec<_> = places.collect();
    for place in &places {
        std::fs::create_dir(place).expect("a directory");
    }
    let last = places[99].join("file");
    let write = "def f(path):\n    open(path, 'w').close()\n";
    let mut call = at(Level::Limits, Story::call(write, &j!([last]).to_string()));
    call.sandbox.write = places;
    let outcome = story.run(call).await;
    assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
    assert_eq!(found(&outcome, "mountns").state, State::Unavailable);
    story.end().await;
}

/// SB-8, SB-23: half a plan would confine half; the next call is none the worse.
#[tokio::test]
async fn more_places_than_a_zygote_can_be_told_of_are_refused() {
    let story = Story::new();
    let places = (0..2000).map(|number| story.path().join(format!("place-{number}")));
    let places: Vec<_> = places.collect();
    for place in &places {
        std::fs::create_dir(place).expect("a directory");
    }
    let answer = "def f():\n    return 1\n";
    let mut call = at(Level::Strict, Story::call(answer, "[]"));
    call.sandbox.write = places;
    let outcome = story.run(call).await;
    assert_eq!(outcome.verdict, Verdict::SetupFailed, "{:?}", outcome.error);
    let message = outcome.error.expect("a reason").message;
    assert!(
        message.contains("Landlock: Argument list too long"),
        "{message}"
    );
    let next = story
        .run(at(Level::Strict, Story::call(answer, "[]")))
        .await;
    assert_eq!(json(&next), 1);
    story.end().await;
}

/// SB-14, SB-16: what nobody here can have is said before anything starts.
#[tokio::test]
async fn limits_and_processors_that_are_not_there_are_refused() {
    let story = Story::new();
    let mut files = at(Level::Limits, Call::command(["true"]));
    files.limits.open_files = Some(1 << 40);
    let mut processors = at(Level::Limits, Call::command(["true"]));
    processors.sandbox.cpus = Some(vec![0, 999]);
    for (call, field, words) in [
        (files, "limits.open_files", "own hard limit"),
        (
            processors,
            "sandbox.cpus",
            "there is no processor 999 for this process; it has 0",
        ),
    ] {
        let error = story.try_run(call).await.expect_err("refused").to_string();
        assert!(error.contains(field) && error.contains(words), "{error}");
    }
    story.end().await;
}
