//! Verdicts and error reports (EX-70 to EX-75).

use std::time::Duration;

use fairtrial_exec::{ErrorReport, Exit, Outcome, Verdict};
use fairtrial_tests::bare;
use fairtrial_tests::{Cli, Story, json, stress};

/// EX-70, EX-71, SB-57: one table, both ways to run a function.
#[tokio::test]
async fn each_end_has_its_verdict() {
    let ends: [(&str, Verdict, Option<Exit>); 12] = [
        ("return 1", Verdict::Ok, None),
        ("sys.exit(0)", Verdict::Exception, None),
        ("sys.exit(3)", Verdict::Exception, None),
        ("raise SystemExit('text')", Verdict::Exception, None),
        ("os._exit(0)", Verdict::NoResult, Some(Exit::Code(0))),
        ("os._exit(3)", Verdict::Exit, Some(Exit::Code(3))),
        ("os._exit(137)", Verdict::Exit, Some(Exit::Code(137))),
        (
            "os.kill(os.getpid(), 9)",
            Verdict::Signal,
            Some(Exit::Signal(9)),
        ),
        ("os.abort()", Verdict::Signal, Some(Exit::Signal(6))),
        (
            "ctypes.string_at(0)",
            Verdict::Signal,
            Some(Exit::Signal(11)),
        ),
        ("return open", Verdict::BadResult, None),
        ("raise KeyError('x')", Verdict::Exception, None),
    ];
    let story = Story::new();
    for (end, verdict, exit) in ends {
        for make in [Story::call, Story::reuse_call] {
            let source = format!("import ctypes, os, sys\ndef f():\n    {end}");
            let outcome = story.run(make(&source, "[]")).await;
            assert_eq!(
                (outcome.verdict, outcome.exit),
                (verdict, exit),
                "{end}: {:?}",
                outcome.error
            );
            assert_eq!(outcome.error.is_none(), verdict == Verdict::Ok, "{end}");
            if verdict == Verdict::Exception && end.contains("xit(") {
                assert_eq!(error(outcome).kind, "SystemExit", "{end}");
            }
        }
    }
    for (script, verdict, exit) in [
        ("exit 0", Verdict::Ok, Some(Exit::Code(0))),
        ("exit 3", Verdict::Exit, Some(Exit::Code(3))),
        ("kill -9 $$", Verdict::Signal, Some(Exit::Signal(9))),
    ] {
        let outcome = story.run(bare::command(["sh", "-c", script])).await;
        assert_eq!((outcome.verdict, outcome.exit), (verdict, exit), "{script}");
    }
    story.end().await;
}

/// EX-70, SB-7, SB-24
#[tokio::test]
async fn a_limit_that_killed_is_the_verdict_and_not_the_signal_it_killed_with() {
    let story = Story::new();
    let mut over_time = Story::call("def f():\n    while True:\n        pass", "[]");
    over_time.timeout = Some(Duration::from_millis(200));
    let mut over_cpu = over_time.clone();
    over_cpu.timeout = Some(Duration::from_secs(30));
    over_cpu.limits.cpu = Some(Duration::from_millis(200));
    let mut over_memory = Story::call(
        "import time\ndef f():\n    x = b'x' * (300 << 20)\n    time.sleep(20)",
        "[]",
    );
    over_memory.limits.memory_bytes = Some(150 << 20);
    let mut over_output = Story::call(
        "import time\ndef f():\n    print('x' * 5000)\n    time.sleep(20)",
        "[]",
    );
    over_output.limits.output_bytes = Some(1000);
    let mut over_processes = Story::call(
        "import subprocess, time\ndef f():\n    x = [subprocess.Popen(['sleep', '20']) for _ in range(6)]\n    time.sleep(20)",
        "[]",
    );
    over_processes.limits.processes = Some(3);
    let mut over_file = Story::call("def f():\n    open('x', 'wb').write(b'x' * 5000)", "[]");
    over_file.limits.file_bytes = Some(1000);
    for (call, verdict) in [
        (over_time, Verdict::Timeout),
        (over_cpu, Verdict::CpuLimit),
        (over_memory, Verdict::MemoryLimit),
        (over_output, Verdict::OutputLimit),
        (over_processes, Verdict::ProcessLimit),
    ] {
        let outcome = story.run(call).await;
        assert_eq!(
            (outcome.verdict, outcome.exit),
            (verdict, None),
            "{:?}",
            outcome.error
        );
    }
    // Here it is the kernel that kills, with a signal that has no other cause.
    let mut command = bare::command(["sh", "-c", "exec head -c 5000 /dev/zero > x"]);
    command.limits.file_bytes = Some(1000);
    for call in [over_file, command] {
        assert_eq!(story.run(call).await.verdict, Verdict::DiskLimit);
    }
    story.end().await;
}

/// EX-70: the reply came first; what the process does afterwards is no news.
#[tokio::test]
async fn a_reply_stands_whatever_the_process_does_next() {
    let story = Story::new();
    let source = "import atexit, os, threading, time\ndef later():\n    time.sleep(0.005)\n    os._exit(9)\n\
        def f():\n    threading.Thread(target=later).start()\n    atexit.register(time.sleep, 30)\n    return 1";
    for _ in 0..20 {
        let outcome = story.source(source, "[]").await;
        // Unless the thread was faster than the reply, which then never came.
        assert!(
            outcome.verdict == Verdict::Ok || outcome.exit == Some(Exit::Code(9)),
            "{} {:?}",
            outcome.verdict,
            outcome.error
        );
    }
    story.end().await;
}

/// EX-72
#[tokio::test]
async fn no_verdict_comes_from_text() {
    let story = Story::new();
    let cases = [
        (
            "raise KeyError('MemoryError')",
            Verdict::Exception,
            "KeyError",
        ),
        (
            "raise ValueError('timeout: killed, exit code 137, SIGSEGV')",
            Verdict::Exception,
            "ValueError",
        ),
        (
            "raise type('TimeoutError', (Exception,), {})('Timeout')",
            Verdict::Exception,
            "TimeoutError",
        ),
        (
            "raise MemoryError('memory_limit')",
            Verdict::Exception,
            "MemoryError",
        ),
    ];
    for (end, verdict, kind) in cases {
        let outcome = story.source(&format!("def f():\n    {end}"), "[]").await;
        assert_eq!(outcome.verdict, verdict, "{end}");
        assert_eq!(error(outcome).kind, kind, "{end}");
    }
    let source =
        "import sys\ndef f():\n    print('MemoryError: Killed', file=sys.stderr)\n    return 1";
    assert_eq!(story.source(source, "[]").await.verdict, Verdict::Ok);
    story.end().await;
}

/// EX-73
#[tokio::test]
async fn a_hostile_text_of_an_exception_harms_only_its_own_call() {
    let size = if stress() { 1_u64 << 30 } else { 1 << 28 };
    let huge = format!("return 'x' * {size}");
    let sins = [
        ("raise ValueError('again')", Verdict::Exception),
        ("sys.exit(5)", Verdict::Exception),
        ("raise KeyboardInterrupt", Verdict::Exception),
        ("return 7", Verdict::Exception),
        ("return str(self)", Verdict::Exception),
        (huge.as_str(), Verdict::Exception),
        ("os._exit(5)", Verdict::Exit),
        ("time.sleep(40)", Verdict::Timeout),
    ];
    let story = Story::with(|config| config.max_workers = 1);
    for (sin, verdict) in sins {
        let source = format!(
            "import os, sys, time\nclass Sin(Exception):\n    def __str__(self):\n        {sin}\n    \
             __repr__ = __str__\ndef f():\n    raise Sin"
        );
        for make in [Story::call, Story::reuse_call] {
            let mut call = make(&source, "[]");
            if verdict == Verdict::Timeout {
                call.timeout = Some(Duration::from_millis(400));
            }
            call.capture_bytes = 2000;
            let outcome = story.run(call).await;
            assert_eq!(outcome.verdict, verdict, "{sin}: {:?}", outcome.error);
            if verdict == Verdict::Exception {
                let error = error(outcome);
                assert_eq!(error.kind, "Sin", "{sin}");
                assert!(
                    error.message.len() < 3000 && error.traceback.len() < 3000,
                    "{sin}"
                );
            }
            assert_eq!(
                json(&story.run(make("def f():\n    return 1", "[]")).await),
                1,
                "after {sin}"
            );
        }
    }
    story.end().await;
}

/// EX-73
#[tokio::test]
async fn the_type_of_an_error_is_its_qualified_name() {
    let story = Story::new();
    for (raised, kind, message) in [
        ("KeyError('x')", "KeyError", "'x'"),
        (
            "json.JSONDecodeError('bad', 'doc', 1)",
            "json.decoder.JSONDecodeError",
            "bad: line 1 column 2 (char 1)",
        ),
        ("Outer.Inner('m')", "Outer.Inner", "m"),
    ] {
        let source = format!(
            "import json\nclass Outer:\n    class Inner(Exception):\n        pass\ndef f():\n    raise {raised}"
        );
        let error = error(story.source(&source, "[]").await);
        assert_eq!(
            (error.kind.as_str(), error.message.as_str()),
            (kind, message)
        );
    }
    story.end().await;
}

/// EX-74
#[tokio::test]
async fn a_traceback_has_the_users_frames_causes_and_source_context() {
    let story = Story::new();
    let source = "# 1\n# 2\ndef inner():\n    raise KeyError('x')  # line 4\n# 5\n# 6\n# 7\n# 8\n\
        def f():\n    try:\n        inner()\n    except KeyError as error:\n        raise ValueError('y') from error  # 13\n";
    let traceback = error(story.source(source, "[]").await).traceback;
    for part in [
        "File \"<source>\", line 4, in inner",
        "KeyError: 'x'",
        "The above exception was the direct cause",
        "File \"<source>\", line 13, in f",
        "ValueError: y",
        ">> 13 |         raise ValueError('y') from error  # 13",
        "   10 |     try:",
    ] {
        assert!(traceback.contains(part), "{part}\n{traceback}");
    }
    assert!(!traceback.contains("fairtrial"), "{traceback}");
    let syntax = error(story.source("def f():\n    return (1 +\n", "[]").await);
    assert_eq!(syntax.kind, "SyntaxError");
    assert!(
        syntax.traceback.contains("line 2") && syntax.traceback.contains('^'),
        "{}",
        syntax.traceback
    );
    let file = story.write("mine/solve.py", "def f():\n    1 / 0\n");
    let spill = story.path().join("s");
    let finished = Cli::new(["exec", &file.to_string_lossy(), "--function", "f"])
        .env("FAIRTRIAL_SPILL_DIR", spill)
        .run();
    assert!(
        finished.stderr.contains("solve.py\", line 2, in f"),
        "{finished:?}"
    );
    story.end().await;
}

/// EX-75
#[tokio::test]
async fn a_function_that_cannot_be_called_is_an_exception_that_names_what_is_there() {
    let story = Story::new();
    for (source, kind, named) in [
        (
            "def solve():\n    pass\ndef g():\n    pass",
            "LookupError",
            "`solve`, `g`",
        ),
        ("f = 3", "TypeError", "not callable"),
        ("def f(:\n    pass", "SyntaxError", "syntax"),
        ("", "LookupError", "defines none"),
    ] {
        let outcome = story.source(source, "[]").await;
        assert_eq!(outcome.verdict, Verdict::Exception, "{source}");
        let error = error(outcome);
        assert_eq!(error.kind, kind, "{source}");
        assert!(error.message.contains(named), "{source}: {}", error.message);
    }
    let near = bare::source(
        "def solve():\n    pass",
        "slove",
        fairtrial_tests::arguments("[]"),
    );
    assert!(
        error(story.run(near).await)
            .message
            .contains("did you mean `solve`?")
    );
    let coroutine =
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0.01)\n    return x + 1";
    assert_eq!(json(&story.source(coroutine, "[1]").await), 2);
    story.end().await;
}

pub(crate) fn error(outcome: Outcome) -> ErrorReport {
    outcome
        .error
        .unwrap_or_else(|| panic!("no error: {}", outcome.verdict))
}
