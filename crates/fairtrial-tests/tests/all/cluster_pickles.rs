//! Pickles that say who loads them, on their way through a cluster.

use std::time::Duration;

use fairtrial_cluster::{Class, ClusterBackend, ClusterConfig, OnFull, QueueName, RedisDispatch};
use fairtrial_exec::{
    Backend, Call, Level, PickledWork, PythonTerms, ResultFormat, Sandbox, Shutdown, SpillDir,
    SpillPolicy, Verdict, Work,
};
use fairtrial_tests::{RedisServer, Shell, arguments, bare};

use super::cluster_words::{agent, dispatch};

/// A coordinator in this process, which pickles by that Python.
fn coordinator(
    shell: &Shell,
    server: &RedisServer,
    python: Option<&str>,
) -> ClusterBackend<RedisDispatch> {
    let config = ClusterConfig {
        queue: QueueName::new("pickles").expect("a name"),
        named: false,
        class: Class::Cpu,
        weight: 1,
        max_queue: 100,
        max_inflight: None,
        on_full: OnFull::Wait,
        server_timeout: Duration::from_secs(60),
        lease: Duration::from_secs(30),
        packs_cwd: false,
        sends_passed: false,
        spill: SpillPolicy {
            dir: SpillDir::new(shell.path().join("spill")),
            memfd_cap_bytes: u64::MAX,
            memory_limit_bytes: None,
        },
        python: python.map(str::to_owned),
    };
    ClusterBackend::new(dispatch(server), None, config)
}

fn pickled(body: Vec<u8>) -> Call {
    let python = PythonTerms {
        result: ResultFormat::Data,
        ..PythonTerms::default()
    };
    let body = body.into();
    Call::new(Work::Pickled(PickledWork { body, python }))
}

/// `repr(exec(code))`, in protocol 0: the code runs when it is loaded.
fn loaded_with_a_trace(code: &str) -> Vec<u8> {
    let pickle = format!("(cbuiltins\nrepr\n(cbuiltins\nexec\n(V{code}\ntRt}}t.");
    let mut body = (pickle.len() as u64).to_le_bytes().to_vec();
    body.extend_from_slice(&[0; 8]); // no buffers out of band
    body.extend_from_slice(pickle.as_bytes());
    body
}

/// CL-49: an argument is loaded once, by the worker; a value by nobody, as long as nobody asks for it.
#[tokio::test]
async fn neither_coordinator_nor_agent_loads_a_pickle() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let _agent = agent(&shell, &server, "one", &["--slots", "1"]);
    let backend = coordinator(&shell, &server, None);
    let said = shell.path().join("loaded");
    let trace = format!(
        "import os; open('{}', 'a').write('%d ' % os.getpid())",
        said.display()
    );
    let at_none = |mut call: Call| {
        call.sandbox = Sandbox::new(Level::None);
        call
    };

    let given = backend.execute(at_none(pickled(loaded_with_a_trace(&trace))));
    let given = given.await.expect("an outcome");
    assert_eq!(given.verdict, Verdict::Ok, "{:?}", given.error);
    let worker = given.metrics.worker_pid.expect("a worker ran it");
    assert_eq!(
        shell.read("loaded").trim(),
        worker.to_string(),
        "it, and nobody else"
    );

    std::fs::remove_file(&said).expect("it is there");
    let source = format!(
        "class Traced:\n    def __reduce__(self):\n        return (exec, (\"{trace}\",))\ndef f():\n    return Traced()\n"
    );
    let mut call = at_none(Call::source(&source, "f", arguments("[]")));
    call.python_mut().expect("Python").result = ResultFormat::Pickle;
    let made = backend.execute(call).await.expect("an outcome");
    assert_eq!(made.verdict, Verdict::Ok, "{:?}", made.error);
    assert!(made.value.is_some(), "it came");
    drop(made);
    assert!(!said.exists(), "loaded by {}", shell.read("loaded"));
    backend.shutdown(Shutdown::now()).await;
}

/// CL-41, CL-22: what another version of Python pickled is refused by every agent, with what each has; source text needs
/// no version.
#[tokio::test]
async fn what_another_python_pickled_is_refused() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let _agents = ["one", "two"].map(|name| agent(&shell, &server, name, &["--slots", "1"]));
    let backend = coordinator(&shell, &server, Some("2.6"));
    let pickled = pickled(b"never read".to_vec());
    let refused = backend.execute(pickled).await.expect("an outcome");
    assert_eq!(refused.verdict, Verdict::SetupFailed);
    let why = refused.error.expect("a reason").message;
    for name in ["one", "two"] {
        let said = format!("{name}: it was pickled by Python 2.6, and `python3` is 3.");
        assert!(why.contains(&said), "{why}");
    }
    let source = bare::source("def f(): return 1", "f", arguments("[]"));
    let ran = backend.execute(source).await.expect("an outcome");
    assert_eq!(ran.verdict, Verdict::Ok, "{ran:?}");
    backend.shutdown(Shutdown::now()).await;
}
