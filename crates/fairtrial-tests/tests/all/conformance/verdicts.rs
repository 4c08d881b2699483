//! Verdicts: each that a level can give, by one misbehaving program.

use std::time::Duration;

use fairtrial_exec::{Exit, Level, Sandbox, Verdict};
use fairtrial_tests::{Story, bare, json};

use super::Factory;
use super::scene::{HANG, ONE, Scene, timed};

cases! {
    each_end_of_a_function_has_its_verdict,
    each_end_of_a_command_has_its_verdict,
    a_deadline_is_the_verdict_of_what_it_stopped,
    each_limit_is_the_verdict_of_what_passed_it,
    what_cannot_be_set_up_says_so,
    a_reused_workers_failure_is_that_calls_alone,
    the_level_asked_for_is_in_force,
}

/// CL-74, EX-90, section 8
async fn each_end_of_a_function_has_its_verdict<F: Factory>(scene: &Scene<F>) {
    let table = [
        (ONE, Verdict::Ok),
        ("def f(): raise ValueError('no')", Verdict::Exception),
        ("def f(): raise SystemExit(0)", Verdict::Exception),
        ("def f(:", Verdict::Exception),
        ("def g(): pass", Verdict::Exception),
        ("def f(): return object()", Verdict::BadResult),
        ("import os\ndef f(): os._exit(0)", Verdict::NoResult),
        ("import os\ndef f(): os._exit(7)", Verdict::Exit),
        (
            "import os\ndef f(): os.kill(os.getpid(), 9)",
            Verdict::Signal,
        ),
        ("import os\ndef f(): os.abort()", Verdict::Signal),
    ];
    for (source, verdict) in table {
        for make in [Story::call, Story::reuse_call] {
            let outcome = scene.run(make(source, "[]")).await;
            assert_eq!(outcome.verdict, verdict, "{source}: {:?}", outcome.error);
            assert_eq!(outcome.error.is_none(), verdict == Verdict::Ok);
            assert!(outcome.metrics.wall_ns.is_some(), "{source}");
        }
    }
}

/// CL-74, EX-90, section 8
async fn each_end_of_a_command_has_its_verdict<F: Factory>(scene: &Scene<F>) {
    for (argv, verdict, exit) in [
        (&["true"][..], Verdict::Ok, Some(Exit::Code(0))),
        (&["sh", "-c", "exit 5"], Verdict::Exit, Some(Exit::Code(5))),
        (
            &["sh", "-c", "exit 137"],
            Verdict::Exit,
            Some(Exit::Code(137)),
        ),
        (
            &["sh", "-c", "kill -6 $$"],
            Verdict::Signal,
            Some(Exit::Signal(6)),
        ),
    ] {
        let outcome = scene.run(bare::command(argv.iter().copied())).await;
        assert_eq!((outcome.verdict, outcome.exit), (verdict, exit), "{argv:?}");
    }
}

/// CL-74
async fn a_deadline_is_the_verdict_of_what_it_stopped<F: Factory>(scene: &Scene<F>) {
    for call in [
        Story::call(HANG, "[]"),
        Story::reuse_call(HANG, "[]"),
        bare::command(["sleep", "600"]),
    ] {
        let outcome = scene.run(timed(call, Duration::from_millis(300))).await;
        assert_eq!((outcome.verdict, outcome.exit), (Verdict::Timeout, None));
        assert!(outcome.error.is_some());
    }
}

/// CL-74, EX-90, section 8
async fn each_limit_is_the_verdict_of_what_passed_it<F: Factory>(scene: &Scene<F>) {
    let mut cpu = Story::call("def f():\n    while True: pass", "[]");
    cpu.limits.cpu = Some(Duration::from_millis(200));
    let mut memory = Story::call(
        "import time\ndef f():\n    x = b'x' * (300 << 20)\n    time.sleep(20)",
        "[]",
    );
    memory.limits.memory_bytes = Some(150 << 20);
    let mut processes = Story::call(
        "import subprocess, time\ndef f():\n    x = [subprocess.Popen(['sleep', '20']) for _ in range(6)]\n    time.sleep(20)",
        "[]",
    );
    processes.limits.processes = Some(3);
    let mut file = Story::call("def f():\n    open('x', 'wb').write(b'x' * 5000)", "[]");
    file.limits.file_bytes = Some(1000);
    let mut output = bare::command(["yes"]);
    output.limits.output_bytes = Some(50_000);
    for (call, verdict) in [
        (cpu, Verdict::CpuLimit),
        (memory, Verdict::MemoryLimit),
        (processes, Verdict::ProcessLimit),
        (file, Verdict::DiskLimit),
        (output, Verdict::OutputLimit),
    ] {
        let outcome = scene.run(timed(call, Duration::from_secs(30))).await;
        assert_eq!(outcome.verdict, verdict, "{:?}", outcome.error);
        assert!(outcome.error.is_some(), "{verdict}");
    }
}

/// CL-22, CL-74
async fn what_cannot_be_set_up_says_so<F: Factory>(scene: &Scene<F>) {
    let mut nowhere = Story::call(ONE, "[]");
    nowhere.cwd = Some("/no/such/directory".into());
    let mut nobody = Story::call(ONE, "[]");
    nobody.python_mut().expect("a source call").python = "/no/such/python".into();
    let nothing = bare::command(["/no/such/program"]);
    let calls = [nowhere, nobody, nothing].map(|call| scene.run(call));
    let [nowhere, nobody, nothing] = calls;
    let (nowhere, nobody, nothing) = tokio::join!(nowhere, nobody, nothing);
    for (outcome, names) in [
        (nowhere, "/no/such/directory"),
        (nobody, "/no/such/python"),
        (nothing, "/no/such/program"),
    ] {
        let ended = (outcome.verdict, outcome.exit);
        assert_eq!(ended, (Verdict::SetupFailed, None), "{names}");
        let error = outcome.error.expect("it says why");
        assert!(error.message.contains(names), "{error:?}");
    }
}

/// CL-74
async fn a_reused_workers_failure_is_that_calls_alone<F: Factory>(scene: &Scene<F>) {
    let crash = "import os\ndef f(): os._exit(9)";
    for (source, verdict) in [
        (ONE, Verdict::Ok),
        (crash, Verdict::Exit),
        (ONE, Verdict::Ok),
    ] {
        let outcome = scene.run(Story::reuse_call(source, "[]")).await;
        assert_eq!(outcome.verdict, verdict);
    }
}

/// CL-1, CL-74
async fn the_level_asked_for_is_in_force<F: Factory>(scene: &Scene<F>) {
    for level in [Level::None, Level::Limits] {
        let mut call = Story::call(ONE, "[]");
        call.sandbox = Sandbox::new(level);
        let outcome = scene.run(call).await;
        assert_eq!(json(&outcome), 1);
        let had = (outcome.in_force.requested, outcome.in_force.effective);
        assert_eq!(had, (level, level));
        assert_eq!(outcome.in_force.mode, "fresh");
    }
}
