//! What one call leaves for the next (EX-32, EX-33).

use std::os::unix::fs::PermissionsExt;

use fairtrial_exec::{Isolation, Outcome, Verdict};
use fairtrial_tests::{Story, json, note, running_with, wait_until};
use serde_json::json as j;

/// One thing a call can leave behind: how, and how the next one would notice.
struct Leak {
    name: &'static str,
    /// Statements on one line.
    pollute: &'static str,
    /// An expression over data, the same in every clean call.
    report: &'static str,
    /// Whether `reuse` restores it; else it may remain (documented).
    restored: bool,
}

const fn leak(
    name: &'static str,
    pollute: &'static str,
    report: &'static str,
    restored: bool,
) -> Leak {
    Leak {
        name,
        pollute,
        report,
        restored,
    }
}

const LEAKS: &[Leak] = &[
    leak(
        "cwd",
        "os.chdir('/')",
        "os.getcwd() == os.environ['TMPDIR']",
        true,
    ),
    leak(
        "sys.path",
        "sys.path.insert(0, '/nowhere')",
        "list(sys.path)",
        true,
    ),
    leak(
        "sys.path itself",
        "sys.path = ['/nowhere']",
        "list(sys.path)",
        true,
    ),
    leak("sys.path deleted", "del sys.path", "list(sys.path)", true),
    leak("sys.argv", "sys.argv.append('x')", "list(sys.argv)", true),
    leak(
        "a new variable",
        "os.environ['LEAK'] = '1'",
        "os.environ.get('LEAK')",
        true,
    ),
    leak(
        "a new variable, for children",
        "os.environ['LEAK'] = '1'",
        "subprocess.check_output('echo $LEAK', shell=True)",
        true,
    ),
    leak(
        "a removed variable",
        "del os.environ['PATH']",
        "'PATH' in os.environ",
        true,
    ),
    leak(
        "os.environ itself",
        "os.environ = {}",
        "len(os.environ)",
        true,
    ),
    leak(
        "a variable set behind os.environ",
        "os.putenv('LEAK', '1')",
        "os.popen('echo $LEAK').read()",
        false,
    ),
    leak("umask", "os.umask(0o777)", "os.umask(0o022)", true),
    leak(
        "a signal handler",
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "str(signal.getsignal(signal.SIGUSR1))",
        true,
    ),
    leak(
        "the signal mask",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})",
        "sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))",
        true,
    ),
    leak(
        "a real-time timer",
        "signal.setitimer(signal.ITIMER_REAL, 100)",
        "signal.getitimer(signal.ITIMER_REAL)[0] > 0",
        true,
    ),
    leak(
        "a virtual timer",
        "signal.setitimer(signal.ITIMER_VIRTUAL, 100)",
        "signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0",
        true,
    ),
    leak(
        "descriptor 0",
        "os.dup2(os.open('/dev/zero', os.O_RDONLY), 0)",
        "os.readlink('/proc/self/fd/0')",
        true,
    ),
    leak(
        "descriptor 1",
        "os.close(1)",
        "stat.S_ISFIFO(os.fstat(1).st_mode)",
        true,
    ),
    leak(
        "descriptor 2",
        "os.dup2(os.open('/dev/null', os.O_WRONLY), 2)",
        "stat.S_ISFIFO(os.fstat(2).st_mode)",
        true,
    ),
    leak(
        "sys.stdin",
        "sys.stdin = None",
        "type(sys.stdin).__name__",
        true,
    ),
    leak(
        "sys.stdout",
        "sys.stdout = open(os.devnull, 'w')",
        "sys.stdout.fileno()",
        true,
    ),
    leak(
        "a closed sys.stderr",
        "sys.stderr.close()",
        "sys.stderr.closed",
        true,
    ),
    leak(
        "a detached sys.stdout",
        "sys.stdout.detach()",
        "sys.stdout.fileno()",
        true,
    ),
    leak(
        "a soft limit",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",
        "resource.getrlimit(resource.RLIMIT_NOFILE)",
        true,
    ),
    leak(
        "a hard limit",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
        "resource.getrlimit(resource.RLIMIT_NOFILE)",
        false,
    ),
    leak(
        "a global of the source",
        "globals()['LEAK'] = 1",
        "'LEAK' in globals()",
        true,
    ),
    leak(
        "a global of __main__",
        "sys.modules['__main__'].LEAK = 1",
        "hasattr(sys.modules['__main__'], 'LEAK')",
        false,
    ),
    leak(
        "a module's global",
        "json.LEAK = 1",
        "hasattr(json, 'LEAK')",
        false,
    ),
    leak(
        "a module",
        "sys.modules['leak'] = sys",
        "'leak' in sys.modules",
        false,
    ),
    leak(
        "a builtin",
        "builtins.LEAK = 1",
        "hasattr(builtins, 'LEAK')",
        false,
    ),
    leak(
        "random's state",
        "random.seed(1)",
        "random.getstate() == random.Random(1).getstate()",
        false,
    ),
    leak(
        "a thread",
        "threading.Thread(target=time.sleep, args=(30,), daemon=True).start()",
        "[threading.active_count(), len(os.listdir('/proc/self/task'))]",
        false,
    ),
    leak(
        "a further descriptor",
        "os.dup2(os.open('/dev/null', os.O_RDONLY), 77)",
        "os.path.exists('/proc/self/fd/77')",
        false,
    ),
    leak(
        "locale",
        "locale.setlocale(locale.LC_ALL, 'C')",
        "locale.setlocale(locale.LC_ALL)",
        false,
    ),
    leak(
        "warnings",
        "warnings.simplefilter('error')",
        "len(warnings.filters)",
        false,
    ),
    leak(
        "decimal context",
        "decimal.getcontext().prec = 3",
        "decimal.getcontext().prec",
        false,
    ),
    leak(
        "atexit",
        "atexit.register(print)",
        "atexit._ncallbacks()",
        false,
    ),
    leak("gc", "gc.disable()", "gc.isenabled()", false),
    leak(
        "affinity",
        "os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})",
        "len(os.sched_getaffinity(0))",
        false,
    ),
    leak("nice", "os.nice(5)", "os.nice(0)", false),
];

const IMPORTS: &str = "import atexit, builtins, decimal, gc, json, locale, os, random, resource, signal, stat, \
                       subprocess, sys, threading, time, warnings\n";

impl Leak {
    fn polluter(&self, end: &str) -> String {
        format!("{IMPORTS}def f():\n    {}\n    {end}\n", self.pollute)
    }

    fn reporter(&self) -> String {
        format!("{IMPORTS}def f():\n    return {}\n", self.report)
    }

    /// A leak that its own call does not notice would prove nothing.
    async fn is_noticed(&self, story: &Story, clean: &serde_json::Value) {
        if self.name == "affinity" && fairtrial_exec::available_cpus() == 1 {
            note("affinity cannot be narrowed on a machine with one processor");
            return;
        }
        let both = self.polluter(&format!("return {}", self.report));
        let seen = story.source(&both, "[]").await;
        assert!(
            seen.verdict != Verdict::Ok || json(&seen) != *clean,
            "{}: nothing is polluted",
            self.name
        );
    }
}

/// EX-32
#[tokio::test]
async fn a_fresh_call_finds_nothing_that_the_one_before_left() {
    let story = Story::new();
    for leak in LEAKS {
        let clean = json(&story.source(&leak.reporter(), "[]").await);
        leak.is_noticed(&story, &clean).await;
        let polluter = story.source(&leak.polluter("return 1"), "[]").await;
        assert_eq!(
            polluter.verdict,
            Verdict::Ok,
            "{}: {:?}",
            leak.name,
            polluter.error
        );
        let after = story.source(&leak.reporter(), "[]").await;
        assert_eq!(json(&after), clean, "{}", leak.name);
    }
    story.end().await;
}

/// EX-33
#[tokio::test]
async fn a_reused_worker_is_restored_after_a_value_an_exception_and_an_exit() {
    let story = Story::with(|config| config.max_workers = 1);
    let ends = [
        ("return 1", Verdict::Ok),
        ("raise KeyError('x')", Verdict::Exception),
        ("sys.exit(3)", Verdict::Exception),
    ];
    for leak in LEAKS.iter().filter(|leak| leak.restored) {
        let clean = json(&story.reuse(&leak.reporter(), "[]").await);
        for (end, verdict) in ends {
            let polluter = story.reuse(&leak.polluter(end), "[]").await;
            assert_eq!(
                polluter.verdict, verdict,
                "{}: {:?}",
                leak.name, polluter.error
            );
            let after = story.reuse(&leak.reporter(), "[]").await;
            assert_eq!(json(&after), clean, "{} after `{end}`", leak.name);
            assert_eq!(
                worker(&after),
                worker(&polluter),
                "{} after `{end}`",
                leak.name
            );
        }
    }
    story.end().await;
}

/// EX-33
#[tokio::test]
async fn a_timer_left_by_one_call_does_not_strike_the_next() {
    let story = Story::with(|config| config.max_workers = 1);
    let arm = "import signal\ndef f():\n    signal.setitimer(signal.ITIMER_REAL, 0.05)";
    let outlast = "import time\ndef f():\n    time.sleep(0.2)\n    return 1";
    let first = story.reuse(arm, "[]").await;
    let second = story.reuse(outlast, "[]").await;
    assert_eq!(json(&second), 1);
    assert_eq!(worker(&first), worker(&second));
    story.end().await;
}

/// EX-33
#[tokio::test]
async fn the_shim_works_with_references_of_its_own() {
    let sins = [
        "import os\ndef f():\n    for name in dir(os):\n        setattr(os, name, None)",
        "import builtins\ndef f():\n    for name in ('len', 'sum', 'map', 'isinstance', 'type', 'getattr', 'memoryview'):\n        \
         setattr(builtins, name, None)",
        "import sys\ndef f():\n    sys.modules.clear()",
        "import sys\ndef f():\n    sys.meta_path[:] = []\n    sys.path_hooks[:] = []",
        "import signal, struct, _socket, marshal\ndef f():\n    signal.signal = signal.getsignal = None\n    \
         struct.Struct = struct.pack = None\n    _socket.socket = None\n    marshal.loads = None",
    ];
    let story = Story::with(|config| {
        config.max_workers = 1;
        config.recycle.max_calls = Some(2); // each sin has a worker of its own
    });
    for sin in sins {
        let outcome = story.reuse(sin, "[]").await;
        assert_eq!(outcome.verdict, Verdict::Ok, "{sin}: {:?}", outcome.error);
        let next = story.reuse("def f(x):\n    return x + 1", "[1]").await;
        assert_eq!(next.verdict, Verdict::Ok, "after {sin}: {:?}", next.error);
        assert_eq!(json(&next), 2, "after {sin}");
    }
    story.end().await;
}

/// EX-33: the first sin closes the shim's duplicates of 0 to 2, so that it cannot restore them and gives up after its
/// reply; the others it may survive.
#[tokio::test]
async fn a_worker_that_cannot_be_restored_is_replaced_at_nobodys_cost() {
    let sins = [
        "for fd in range(200, 300):\n        try:\n            if not stat.S_ISSOCK(os.fstat(fd).st_mode): os.close(fd)\n        \
         except OSError: pass",
        "os.rmdir(os.getcwd())",
        "threading.Thread(target=lambda: (time.sleep(0.002), os._exit(1))).start()",
    ];
    let story = Story::with(|config| config.max_workers = 1);
    for round in 0..10 {
        for (number, sin) in sins.into_iter().enumerate() {
            let source =
                format!("import os, stat, threading, time\ndef f():\n    {sin}\n    return 1");
            let first = story.reuse(&source, "[]").await;
            if number < 2 {
                assert_eq!(json(&first), 1, "{sin}");
            }
            if number == 2 {
                let dies = worker(&first);
                wait_until("it is gone", || running_with(&dies).is_empty()).await;
            }
            let next = story.reuse("def f():\n    return 2", "[]").await;
            assert_eq!(
                next.verdict,
                Verdict::Ok,
                "round {round}, after {sin}: {:?}",
                next.error
            );
            if number == 0 {
                assert_ne!(worker(&next), worker(&first), "{sin}");
            }
        }
    }
    story.end().await;
}

/// EX-32, EX-33
#[tokio::test]
async fn modules_from_a_python_path_do_not_outlive_their_call() {
    let story = Story::with(|config| config.max_workers = 1);
    let (one, two) = (
        story.write("one/mine.py", "name = 'one'"),
        story.write("two/mine.py", "name = 'two'"),
    );
    let source = "def f():\n    try:\n        import mine\n    except ImportError:\n        return None\n    return mine.name";
    for isolation in [Isolation::Fresh, Isolation::Reuse] {
        let call = |path: Option<&std::path::Path>| {
            let mut call = Story::call(source, "[]");
            let terms = call.python_mut().expect("a source call");
            terms.isolation = isolation;
            terms.python_path = path.into_iter().map(Into::into).collect();
            call
        };
        for (path, expected) in [
            (one.parent(), j!("one")),
            (two.parent(), j!("two")),
            (None, j!(null)),
            (one.parent(), j!("one")),
        ] {
            assert_eq!(json(&story.run(call(path)).await), expected, "{isolation}");
        }
    }
    story.end().await;
}

/// EX-32, EX-33, SB-39: also of mode 000, deep, or a link, which is removed and not followed.
#[tokio::test]
async fn nothing_is_left_of_a_scratch_directory_and_links_are_not_followed() {
    let story = Story::with(|config| config.max_workers = 1);
    let outside = story.write("outside/kept.txt", "kept");
    let dir = outside.parent().expect("it has one").to_path_buf();
    let source = include_str!("../../programs/litter_scratch.py");
    let args = j!([dir]).to_string();
    for call in [Story::call(source, &args), Story::reuse_call(source, &args)] {
        let outcome = story.run(call).await;
        let scratch = json(&outcome).as_str().expect("a path").to_owned();
        wait_until("the scratch directory is gone", || {
            !std::path::Path::new(&scratch).exists()
        })
        .await;
        assert_eq!(
            std::fs::read_to_string(&outside).expect("still there"),
            "kept"
        );
        assert_eq!(
            std::fs::metadata(&dir)
                .expect("still there")
                .permissions()
                .mode()
                & 0o777,
            0o755
        );
    }
    story.end().await;
}

/// EX-32
#[tokio::test]
async fn a_process_started_by_a_fresh_call_is_gone_when_the_call_is() {
    let story = Story::new();
    let source = "import subprocess\ndef f():\n    return subprocess.Popen(['sleep', '30']).pid";
    let outcome = story.source(source, "[]").await;
    let pid = json(&outcome).as_u64().expect("a pid");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(outcome.metrics.leaked_processes, Some(1));
    story.end().await;
}

pub(crate) fn worker(outcome: &Outcome) -> String {
    outcome
        .metrics
        .worker_id
        .clone()
        .expect("a call that ran had a worker")
}
