//! The level `confined`: no namespaces, and yet no file of the host's, no network, no rarely used system call.

use fairtrial_exec::{Call, Facility, Level, Network, OnMissing, Sandbox, State, Verdict};
use fairtrial_tests::{Story, json, note};
use serde_json::json as j;

fn confined(mut call: Call) -> Call {
    call.sandbox = Sandbox::new(Level::Confined);
    call
}

/// Which attempts succeeded.
const ATTEMPTS: &str = r#"
import ctypes, os, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def made(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
def run(attempts):
    done = []
    for name, attempt in attempts.items():
        try:
            attempt()
            done.append(name)
        except OSError:
            pass
    return sorted(done)
def listen():
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("own.socket")
        server.listen()
"#;

/// RE-11
#[tokio::test]
async fn a_confined_call_reads_and_writes_only_what_is_its_own_or_the_systems() {
    // Its `/dev/shm` is the host's.
    let story = Story::with(|config| config.without.extend([Facility::Namespaces]));
    let canary = story.write("outside/canary", "secret");
    let given = story.write("given/data", "for all");
    let source = format!(
        "{ATTEMPTS}\ndef f(canary, given, engine):\n    return run({{\n        \
         'canary': lambda: open(canary).close(),\n        \
         'canary directory': lambda: os.listdir(os.path.dirname(canary)),\n        \
         'change canary': lambda: open(canary, 'a').close(),\n        \
         'program of home': lambda: open('/root/.bashrc').close(),\n        \
         'shadow': lambda: open('/etc/shadow').close(),\n        \
         'processes': lambda: os.listdir('/proc'),\n        \
         'command line': lambda: open('/proc/%d/cmdline' % engine).read(1),\n        \
         'environment': lambda: open('/proc/%d/environ' % engine).read(1),\n        \
         'other scratch': lambda: os.listdir(os.path.dirname(os.environ['TMPDIR'])),\n        \
         'shared memory listed': lambda: os.listdir('/dev/shm'),\n        \
         'given': lambda: open(given).close(),\n        \
         'change given': lambda: open(given, 'a').close(),\n        \
         'own file': lambda: open('own', 'w').close(),\n        \
         'home': lambda: open(os.path.expanduser('~/own'), 'w').close(),\n        \
         'program': lambda: subprocess.run(['ls', '/usr/bin'], stdout=-3, check=True),\n        \
         'random': lambda: open('/dev/urandom', 'rb').read(1),\n    }})\n"
    );
    let arguments = j!([canary, given, std::process::id()]).to_string();
    let mut call = confined(Story::call(&source, &arguments));
    call.sandbox.read = vec![given.parent().expect("below").to_path_buf()];
    let outcome = story.run(call).await;
    assert_eq!(
        json(&outcome),
        j!(["given", "home", "own file", "program", "random"])
    );
    assert_eq!(outcome.in_force.effective, Level::Confined);
    story.end().await;
}

/// RE-11: what `/proc` shows to a call that asks for it, and what Landlock keeps from it all the same.
#[tokio::test]
async fn a_confined_call_that_reads_proc_sees_command_lines_and_no_environment_or_memory() {
    let story = Story::new();
    let source = format!(
        "{ATTEMPTS}\ndef f(engine):\n    place = '/proc/%d/' % engine\n    return run({{\n        \
         'own status': lambda: open('/proc/self/status').close(),\n        \
         'command line': lambda: open(place + 'cmdline').read(1),\n        \
         'environment': lambda: open(place + 'environ').read(1),\n        \
         'memory': lambda: open(place + 'mem', 'rb').close(),\n        \
         'maps': lambda: open(place + 'maps').read(1),\n        \
         'program': lambda: os.readlink(place + 'exe'),\n        \
         'descriptor': lambda: os.readlink(place + 'fd/0'),\n        \
         'files': lambda: os.listdir(place + 'root/'),\n    }})\n"
    );
    let mut call = confined(Story::call(&source, &j!([std::process::id()]).to_string()));
    assert_eq!(json(&story.run(call.clone()).await), j!([]));
    call.sandbox.read = vec!["/proc".into()];
    let done = json(&story.run(call).await);
    assert_eq!(done, j!(["command line", "own status"]));
    story.end().await;
}

/// RE-11
#[tokio::test]
async fn a_confined_call_has_pairs_of_sockets_and_no_others_unless_it_asks_for_the_hosts_network() {
    let story = Story::new();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let source = format!(
        "{ATTEMPTS}\ndef f(port):\n    return run({{\n        \
         'connect': lambda: socket.create_connection(('127.0.0.1', port), 5).close(),\n        \
         'datagram': lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),\n        \
         'listen at a path': listen,\n        \
         'netlink': lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),\n        \
         'pair': lambda: socket.socketpair(),\n        \
         'pair of datagrams': lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),\n        \
         'raw pair': lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW),\n    }})\n"
    );
    let mut call = confined(Story::call(&source, &j!([port]).to_string()));
    assert_eq!(json(&story.run(call.clone()).await), j!(["pair"]));
    call.sandbox.network = Network::Host;
    let outcome = story.run(call).await;
    let wanted = j!([
        "connect",
        "datagram",
        "listen at a path",
        "pair",
        "pair of datagrams",
        "raw pair"
    ]);
    assert_eq!(json(&outcome), wanted);
    assert_eq!(outcome.in_force.effective, Level::Confined, "as asked for");
    story.end().await;
}

/// RE-11
#[tokio::test]
async fn a_confined_call_makes_no_objects_of_the_hosts_and_hands_on_no_user() {
    let story = Story::new();
    let source = format!(
        "{ATTEMPTS}\nimport multiprocessing\ndef lock():\n    with multiprocessing.Lock():\n        pass\ndef f():\n    \
         open('own', 'w').close()\n    return run({{\n        \
         'shared memory': lambda: made(libc.shmget(0, 4096, 0o1600)),\n        \
         'semaphore': lambda: made(libc.semget(0, 1, 0o1600)),\n        \
         'queue': lambda: made(libc.msgget(0, 0o1600)),\n        \
         'unshare': lambda: made(libc.unshare(0x10000000)),\n        \
         'setuid': lambda: os.chmod('own', 0o4755),\n        \
         'setgid by descriptor': lambda: os.fchmod(os.open('own', os.O_RDONLY), 0o2755),\n        \
         'executable': lambda: os.chmod('own', 0o755),\n        \
         'lock': lock,\n    }})\n"
    );
    let done = json(&story.run(confined(Story::call(&source, "[]"))).await);
    assert_eq!(done, j!(["executable", "lock"]));
    // Each attempt can succeed, so that its failure says something.
    let mut call = Story::call(&source, "[]");
    call.sandbox = Sandbox::new(Level::None);
    let done = json(&story.run(call).await);
    for name in [
        "shared memory",
        "semaphore",
        "queue",
        "setuid",
        "setgid by descriptor",
    ] {
        assert!(
            done.as_array().expect("a list").contains(&j!(name)),
            "{name}: {done}"
        );
    }
    story.end().await;
}

/// RE-11: never more than it says, and nothing runs where a part is missing.
#[tokio::test]
async fn confined_fails_closed_and_degrades_only_if_told() {
    for (lacking, mechanism) in [
        (Facility::Landlock, "read_scope"),
        (Facility::LandlockTruncate, "write_scope"),
        (Facility::Seccomp, "seccomp"),
    ] {
        let story = Story::with(|config| {
            config.without.extend([lacking, Facility::Namespaces]);
        });
        let call = confined(Call::command(["true"]));
        let outcome = story.run(call.clone()).await;
        let message = outcome.error.map(|error| error.message).unwrap_or_default();
        assert_eq!(outcome.verdict, Verdict::SetupFailed, "{lacking:?}");
        assert!(
            message.starts_with("level `confined` cannot be had: `"),
            "{message}"
        );
        let mut call = call;
        call.sandbox.on_missing = OnMissing::Degrade;
        let outcome = story.run(call).await;
        assert_eq!(outcome.verdict, Verdict::Ok, "{lacking:?}");
        assert!(outcome.in_force.effective < Level::Confined, "{lacking:?}");
        let mut weak = outcome.in_force.weak();
        let named = weak.any(|one| one.name == mechanism && one.state != State::Enforced);
        assert!(named, "{mechanism} without {lacking:?}");
        story.end().await;
    }
}

/// RE-11: programs that people run find what they need.
#[tokio::test]
async fn compilers_and_interpreters_work_in_a_confined_call() {
    let story = Story::new();
    for (program, script) in [
        (
            "gcc",
            "echo 'int main(void) { return 0; }' > a.c && gcc a.c -o a && ./a",
        ),
        (
            "git",
            "git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m c",
        ),
        ("perl", "perl -e 'print 1'"),
        ("node", "node -e 'console.log(1)'"),
        ("java", "java -version"),
    ] {
        if !std::path::Path::new("/usr/bin").join(program).exists() {
            note(format!("skipped: there is no `{program}`"));
            continue;
        }
        let mut call = confined(Call::command(["sh", "-c", script]));
        call.limits.memory_bytes = Some(4 << 30);
        let outcome = story.run(call).await;
        assert_eq!(
            outcome.verdict,
            Verdict::Ok,
            "{program}: {:?}",
            outcome.stderr.text()
        );
    }
    story.end().await;
}
