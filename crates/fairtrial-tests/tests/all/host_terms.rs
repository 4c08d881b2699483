//! What a Python host gives its workers of itself: its path and arguments, and an initializer (PY-24, PY-29, PY-30,
//! PY-32).

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairtrial_exec::{
    Backend, Call, HostTerms, Isolation, PickledWork, PythonTerms, ResultFormat, Shutdown, Streams,
    Tap, Verdict, Work,
};
use fairtrial_tests::{PATIENCE, Story, json};
use serde_json::json as j;

/// The host's own module: what its initializers and functions are.
const SIDE: &str = r#"
import os, signal, sys, time

count = 0

def initialize(*_):
    global count
    count += 1

def state():
    return [count, os.getpid()]

def fail(text):
    print("about to fail", file=sys.stderr)
    raise ValueError(text)

def leave(*_):
    return os._exit(3)

def settle_in(directory):
    os.chdir(directory)
    os.environ["LEFT"] = "by the initializer"
    sys.path.append("/left/by/the/initializer")
    sys.argv = ["left"]
    os.umask(0o027)

def found():
    mask = os.umask(0)
    os.umask(mask)
    return [os.getcwd(), os.environ.get("LEFT"), sys.path[-1], sys.argv, mask]

def pollute():
    os.chdir("/")
    os.environ.clear()
    sys.path.clear()
    sys.argv = None
    os.umask(0)

def slow(seconds):
    print("slow start")
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        pass

def wait_for(directory):
    initialize()
    with open(directory + "/started", "w") as file:
        file.write(str(os.getpid()))
    os.rename(directory + "/started", directory + "/hangs")
    while not os.path.exists(directory + "/go"):
        time.sleep(0.001)

def crash():
    import ctypes
    ctypes.string_at(0)

def play_with_signals():
    signal.signal(signal.SIGSEGV, lambda *_: None)

def surroundings():
    return [sys.path, sys.argv, os.getcwd(), "marker" in vars(sys.modules["__main__"])]

def name():
    import multiprocessing
    return [multiprocessing.current_process().name, os.getpid()]

def nested(method):
    import multiprocessing
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=queue.put, args=(7,))
    process.start()
    value = queue.get()
    process.join()
    with context.Pool(2) as pool:
        return [value, process.exitcode, pool.map(abs, range(-5, 0))]
"#;

/// PY-30: the second call finds what the first one found, whatever that did.
#[tokio::test]
async fn workers_have_the_hosts_path_arguments_and_cwd() {
    let host = Host::new().await;
    let main = host.story.write("main.py", "marker = 1\n");
    let terms = HostTerms {
        argv: vec![main.into(), "--option".into()],
        ..host.terms()
    };
    let here = std::env::current_dir().expect("there is one");
    let texts = |list: &[OsString]| -> Vec<_> {
        list.iter()
            .map(|text| text.to_string_lossy().into_owned())
            .collect()
    };
    let expected = j!([texts(&terms.sys_path), texts(&terms.argv), here, false]);
    let terms = Arc::new(terms);
    for isolation in [Isolation::Reuse, Isolation::Fresh] {
        for function in ["surroundings", "pollute", "surroundings"] {
            let mut call = call(&terms, function, &[]);
            call.python_mut().expect("a pickled call").isolation = isolation;
            let outcome = host.story.run(call).await;
            assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
            if function == "surroundings" {
                assert_eq!(json(&outcome), expected);
            }
        }
    }
    host.story.end().await;
}

/// PY-30
#[tokio::test]
async fn calls_on_other_terms_of_a_host_have_workers_of_their_own() {
    let host = Host::new().await;
    for argument in ["one", "two", "one"] {
        let terms = HostTerms {
            argv: vec![argument.into()],
            ..host.terms()
        };
        let outcome = host
            .story
            .run(call(&Arc::new(terms), "surroundings", &[]))
            .await;
        assert_eq!(json(&outcome)[1], j!([argument]));
    }
    host.story.end().await;
}

/// PY-32: also when a call before had put a handler of its own in place.
#[tokio::test]
async fn a_crash_writes_its_stack_to_stderr_if_the_host_wants_it() {
    let host = Host::new().await;
    for faulthandler in [true, false] {
        let terms = Arc::new(HostTerms {
            faulthandler,
            ..host.terms()
        });
        host.story.run(call(&terms, "play_with_signals", &[])).await;
        let outcome = host.story.run(call(&terms, "crash", &[])).await;
        assert_eq!(outcome.verdict, Verdict::Signal);
        let stderr = outcome.stderr.text();
        for part in ["Segmentation fault", "in crash"] {
            assert_eq!(stderr.contains(part), faulthandler, "{stderr}");
        }
    }
    host.story.end().await;
}

/// PY-29
#[tokio::test]
async fn multiprocessing_works_in_a_worker_which_is_not_the_main_process() {
    let host = Host::new().await;
    let terms = Arc::new(host.terms());
    for preload in [Vec::new(), vec!["multiprocessing".to_owned()]] {
        let on_terms = |function, arguments: &[&str]| {
            let mut call = call(&terms, function, arguments);
            call.python_mut().expect("a pickled call").preload = preload.clone();
            call
        };
        let outcome = host.story.run(on_terms("name", &[])).await;
        let (name, pid) = (&json(&outcome)[0], &json(&outcome)[1]);
        assert_eq!(*name, j!(format!("FairtrialWorker-{pid}")));
        for method in ["fork", "spawn"] {
            let outcome = host.story.run(on_terms("nested", &[method])).await;
            assert_eq!(json(&outcome), j!([7, 0, [5, 4, 3, 2, 1]]), "{method}");
        }
    }
    host.story.end().await;
}

/// PY-24
#[tokio::test]
async fn an_initializer_runs_once_in_each_worker_before_its_first_call() {
    let host = Host::new().await;
    let large = "x".repeat(100_000); // more than rides in a frame
    for argument in ["small", &large] {
        let terms = host.initialized_by("initialize", &[argument]);
        for isolation in [Isolation::Reuse, Isolation::Fresh] {
            let mut pids = Vec::new();
            for _ in 0..4 {
                let mut call = call(&terms, "state", &[]);
                call.python_mut().expect("a pickled call").isolation = isolation;
                let outcome = host.story.run(call).await;
                assert_eq!(json(&outcome)[0], j!(1));
                pids.push(json(&outcome)[1].clone());
            }
            pids.dedup();
            assert_eq!(
                pids.len(),
                if isolation == Isolation::Reuse { 1 } else { 4 }
            );
        }
    }
    host.story.end().await;
}

/// PY-24, EX-33
#[tokio::test]
async fn what_an_initializer_leaves_is_what_every_call_finds() {
    let host = Host::new().await;
    let home = host.story.path().to_string_lossy().into_owned();
    let terms = host.initialized_by("settle_in", &[&home]);
    let path = "/left/by/the/initializer";
    let left = j!([home, "by the initializer", path, ["left"], 0o027]);
    for function in ["found", "pollute", "found", "found"] {
        let outcome = host.story.run(call(&terms, function, &[])).await;
        assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
        if function == "found" {
            assert_eq!(json(&outcome), left);
        }
    }
    // A call's own terms come on top, and go with it.
    let mut with_terms = call(&terms, "found", &[]);
    with_terms.cwd = Some("/".into());
    with_terms.env.insert("LEFT".into(), Some("mine".into()));
    let outcome = host.story.run(with_terms).await;
    assert_eq!(json(&outcome), j!(["/", "mine", path, ["left"], 0o027]));
    let outcome = host.story.run(call(&terms, "found", &[])).await;
    assert_eq!(json(&outcome), left);
    host.story.end().await;
}

/// PY-24: neither the acknowledgement's time nor the call's includes it, and what it wrote is no call's output.
#[tokio::test]
async fn an_initializer_has_no_deadline_and_is_charged_to_no_call() {
    let host = Host::with(|config| config.ack_timeout = Duration::from_millis(200)).await;
    let terms = host.initialized_by("slow", &["0.7"]);
    let mut timed = call(&terms, "state", &[]);
    timed.timeout = Some(Duration::from_millis(600));
    timed.limits.output_bytes = Some(5);
    timed.limits.cpu = Some(Duration::from_millis(600));
    let (tap, echo) = Tap::new();
    let streams = Streams {
        output: Some(tap),
        ..Streams::default()
    };
    let execution = host.story.backend.submit_with(timed, streams);
    let outcome = patiently(execution.expect("accepted"))
        .await
        .expect("the engine does its work");
    assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
    assert!(outcome.metrics.wall_ns.expect("it ran") < 600_000_000);
    assert!(outcome.metrics.queue_ns.expect("it ran") > 600_000_000);
    assert!(outcome.stdout.is_empty());
    host.story.end().await;
    let echo = std::thread::spawn(|| echo.flat_map(|(_, bytes)| bytes).collect::<Vec<u8>>());
    let echo = echo.join().expect("no panic");
    assert_eq!(String::from_utf8_lossy(&echo), "slow start\n");
}

/// PY-24: each call says so for itself; calls of another key are untouched.
#[tokio::test]
async fn a_failed_initializer_is_told_to_the_call_that_waited_for_it() {
    let host = Host::new().await;
    let terms = host.initialized_by("fail", &["no luck"]);
    let well = Arc::new(host.terms());
    for isolation in [Isolation::Reuse, Isolation::Fresh] {
        for result in [ResultFormat::Pickle, ResultFormat::Data] {
            let mut call_of_it = call(&terms, "state", &[]);
            let python = call_of_it.python_mut().expect("a pickled call");
            (python.isolation, python.result) = (isolation, result);
            let outcome = host.story.run(call_of_it).await;
            assert_eq!(outcome.verdict, Verdict::SetupFailed);
            assert_eq!(outcome.stderr.text(), "about to fail\n");
            let error = outcome.error.expect("an error");
            assert_eq!(error.kind, "InitializerFailed");
            assert_eq!(error.message, "ValueError: no luck");
            assert!(error.traceback.contains("in fail"), "{}", error.traceback);
            assert_eq!(error.exception.is_some(), result == ResultFormat::Pickle);
            let other = host.story.run(call(&well, "state", &[])).await;
            assert_eq!(other.verdict, Verdict::Ok, "{:?}", other.error);
        }
    }
    host.story.end().await;
}

/// PY-24: one that cannot be unpickled, too.
#[tokio::test]
async fn an_initializer_that_is_not_found_is_a_failed_one() {
    let host = Host::new().await;
    let terms = host.initialized_by("nowhere", &[]);
    let error = host.story.run(call(&terms, "state", &[])).await.error;
    let error = error.expect("an error");
    assert_eq!(error.kind, "InitializerFailed");
    let expected = "cannot unpickle the initializer: AttributeError";
    assert!(error.message.starts_with(expected), "{}", error.message);
    host.story.end().await;
}

/// PY-24, EX-23
#[tokio::test]
async fn workers_that_die_in_their_initializer_fail_the_call_after_some_tries() {
    let host = Host::new().await;
    let terms = host.initialized_by("leave", &[]);
    let outcome = host.story.run(call(&terms, "state", &[])).await;
    assert_eq!(outcome.verdict, Verdict::SetupFailed);
    let message = outcome.error.expect("an error").message;
    assert_eq!(
        message,
        "5 workers ended in their initializer, the last with EXIT(3)"
    );
    host.story.end().await;
}

/// PY-24, EX-49
#[tokio::test]
async fn cancelling_a_call_ends_the_worker_that_hangs_in_its_initializer() {
    let host = Host::new().await;
    let execution = host
        .story
        .backend
        .submit(call(&host.hanging(), "state", &[]))
        .expect("accepted");
    let pid = host.pid_of_hanging().await;
    execution.cancel();
    let outcome = patiently(execution)
        .await
        .expect("the engine does its work");
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(outcome.metrics.wall_ns, None);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    host.story.end().await;
}

/// PY-24, EX-18
#[tokio::test]
async fn a_shutdown_with_a_limit_does_not_wait_for_an_initializer() {
    let host = Host::new().await;
    let execution = host
        .story
        .backend
        .submit(call(&host.hanging(), "state", &[]))
        .expect("accepted");
    let pid = host.pid_of_hanging().await;
    let how = Shutdown {
        kill_after: Some(Duration::from_millis(10)),
        ..Shutdown::default()
    };
    patiently(host.story.backend.shutdown(how)).await;
    let outcome = patiently(execution)
        .await
        .expect("the engine does its work");
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// PY-24, EX-46: the worker goes on, and serves the next call once it is ready.
#[tokio::test]
async fn a_call_that_waits_for_an_initializer_is_still_queued() {
    let host = Host::with(|config| config.max_workers = 1).await;
    let mut patient = call(&host.hanging(), "state", &[]);
    patient.python_mut().expect("a pickled call").isolation = Isolation::Fresh;
    // A first one, so that no time goes by while an interpreter starts.
    let go = host.story.write("go", "");
    host.story.run(patient.clone()).await;
    for file in [go, host.story.path().join("hangs")] {
        std::fs::remove_file(file).expect("it is there");
    }
    let mut impatient = patient.clone();
    impatient.queue_timeout = Some(Duration::from_millis(500));
    let execution = host.story.backend.submit(impatient).expect("accepted");
    let pid = host.pid_of_hanging().await;
    let outcome = patiently(execution)
        .await
        .expect("the engine does its work");
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(outcome.error.expect("an error").kind, "QueueTimeout");
    host.story.write("go", "");
    let outcome = host.story.run(patient).await;
    assert_eq!(json(&outcome), j!([1, pid]));
    host.story.end().await;
}

/// A story whose calls find [`SIDE`] on the path of their host.
struct Host {
    story: Story,
    sys_path: Vec<String>,
}

impl Host {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut fairtrial_exec::LocalConfig)) -> Self {
        let story = Story::with(change);
        story.write("lib/side.py", SIDE);
        let path = story
            .source("import sys\ndef f():\n    return sys.path", "[]")
            .await;
        let lib = story.path().join("lib").to_string_lossy().into_owned();
        let mut sys_path = vec![lib];
        sys_path.extend(serde_json::from_value::<Vec<String>>(json(&path)).expect("texts"));
        Self { story, sys_path }
    }

    fn terms(&self) -> HostTerms {
        HostTerms {
            sys_path: self.sys_path.iter().map(OsString::from).collect(),
            argv: vec!["host".into()],
            ..HostTerms::default()
        }
    }

    fn initialized_by(&self, function: &str, arguments: &[&str]) -> Arc<HostTerms> {
        Arc::new(HostTerms {
            initializer: Some(pickle(function, arguments)),
            ..self.terms()
        })
    }

    /// Initialized when there is a file `go`.
    fn hanging(&self) -> Arc<HostTerms> {
        self.initialized_by("wait_for", &[&self.story.path().to_string_lossy()])
    }

    async fn pid_of_hanging(&self) -> u32 {
        let file = self.story.path().join("hangs");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(text) = std::fs::read_to_string(&file) {
                return text.parse().expect("a number");
            }
            assert!(Instant::now() < deadline, "no initializer began");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it resolves in time")
}

fn call(terms: &Arc<HostTerms>, function: &str, arguments: &[&str]) -> Call {
    let python = PythonTerms {
        isolation: Isolation::Reuse,
        result: ResultFormat::Data,
        host: Some(terms.clone()),
        ..PythonTerms::default()
    };
    let body = pickle(function, arguments);
    Call::new(Work::Pickled(PickledWork {
        body: body.into(),
        python,
    }))
}

/// `(side.function, arguments, {})` in protocol 0.
fn pickle(function: &str, arguments: &[&str]) -> Vec<u8> {
    let arguments: String = arguments.iter().map(|text| format!("V{text}\n")).collect();
    let pickle = format!("(cside\n{function}\n({arguments}t}}t.");
    let mut body = (pickle.len() as u64).to_le_bytes().to_vec();
    body.extend_from_slice(&[0; 8]); // no buffers out of band
    body.extend_from_slice(pickle.as_bytes());
    body
}
