//! What the first issue must show, tried as a new user would: through the binary.

use fairtrial_tests::{Running, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

/// EX-45, EX-47, EX-48, EX-51, EX-98: each hangs in its own way, and each ends the same way.
#[test]
fn a_call_that_hangs_ends_with_a_stack_and_exit_code_3_and_no_process_left() {
    let table = [
        ("hang.py", "File \"hang.py\", line 7 in wait_for_nothing"),
        ("double_fork.py", "File \"double_fork.py\", line 13 in f"),
        ("ignore_sigterm.py", "File \"ignore_sigterm.py\", line 1"),
        ("hold_the_gil.py", "File \"hold_the_gil.py\", line 7 in f"),
    ];
    for (program, frame) in table {
        let shell = Shell::new();
        shell.program(program);
        // Stacks are best effort: a busy machine may not run the interpreter in the 5 ms it has.
        let told = (0..10).any(|_| {
            let call = ["exec", program, "--function", "f", "--timeout", "1s"];
            let run = shell.fairtrial(call).run();
            assert_eq!((run.code, &*run.stdout), (Some(3), ""), "{program}");
            let headline = run.stderr.lines().next().unwrap();
            assert!(
                headline.starts_with("timeout: `f` was stopped "),
                "{headline}"
            );
            assert!(
                headline.contains(" after it began (limit 1 s; "),
                "{headline}"
            );
            assert!(headline.ends_with(" killed, none left"), "{headline}");
            shell.assert_nothing_left();
            run.stderr.contains(frame)
        });
        assert!(told, "{program}: no stack in ten tries");
    }
}

/// The kinds of the issue, two in five of them bad.
const KINDS: [(&str, &str); 5] = [
    ("hang.py", "timeout"),
    ("segfault.py", "signal"),
    ("exhaust_memory.py", "memory_limit"),
    ("print_100_mb.py", "output_limit"),
    ("", "ok"),
];

/// Ten of each sin among sixty that are right, well mixed.
fn wave() -> Vec<(Json, &'static str, Json)> {
    let call = |number: u64| {
        let (program, verdict) = match number % 10 {
            0 => KINDS[0],
            3 => KINDS[1],
            5 => KINDS[2],
            8 => KINDS[3],
            _ => KINDS[4],
        };
        let mut call = match program {
            "" => json!({"source": "def f(n): return n * n", "args": [number]}),
            program => json!({"file": program, "limits": {"memory_bytes": 256 << 20}}),
        };
        call["id"] = number.into();
        call["function"] = "f".into();
        if program == "hang.py" {
            call["timeout_s"] = 0.5.into();
        }
        let value = if program.is_empty() {
            json!(number * number)
        } else {
            Json::Null
        };
        (call, verdict, value)
    };
    (0..100).map(call).collect()
}

/// Slots of the descriptor table, and resident bytes.
fn size(engine: &Running) -> (u64, u64) {
    let status = format!("/proc/{}/status", engine.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(status).expect("it still runs");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|number| number.parse::<u64>().ok())
            .expect("the kernel writes it so")
    };
    (field("FDSize:"), field("VmRSS:") << 10)
}

/// EX-21, EX-23, EX-47, EX-70, EX-78: 200 calls in two halves, so that the second can be compared with the first.
#[test]
fn of_200_calls_exactly_the_80_that_sin_fail_and_nothing_is_left() {
    let shell = Shell::new();
    for (program, _) in &KINDS[..4] {
        shell.program(program);
    }
    let mut batch = shell.fairtrial(["batch", "-", "-j", "8"]).start();
    let mut sizes = Vec::new();
    for _ in 0..2 {
        let wave = wave();
        for (call, ..) in &wave {
            batch.say(&call.to_string());
        }
        for (call, verdict, value) in &wave {
            let record: Json = serde_json::from_str(&batch.line()).unwrap();
            assert_eq!(record["id"], call["id"]);
            assert_eq!(record["verdict"], *verdict, "{call}: {}", record["error"]);
            assert_eq!(record["value"], *value);
            if *verdict == "signal" {
                assert_eq!(record["exit"], json!({"code": null, "signal": 11}));
            }
        }
        sizes.push(size(&batch));
    }
    let [first, second] = sizes[..] else {
        unreachable!("two waves")
    };
    assert_eq!(first.0, second.0, "descriptors are flat");
    assert!(
        second.1 < first.1 + (16 << 20),
        "memory is flat: {first:?}, {second:?}"
    );
    let run = batch.end();
    assert_eq!((run.code, &*run.stdout, &*run.stderr), (Some(3), "", ""));
    shell.assert_nothing_left();
}

/// EX-3, EX-57: among the fifty are programs that ignore signals, that left a child in another session, and an
/// interpreter that is still starting.
#[tokio::test]
async fn when_the_binary_is_killed_with_50_calls_running_nothing_of_it_is_left() {
    let shell = Shell::new();
    let sins = ["hang.py", "double_fork.py", "ignore_sigterm.py"];
    for program in sins {
        let sin = std::fs::read_to_string(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("programs")
                .join(program),
        )
        .unwrap();
        let told = "def told(path):\n    open('scratch', 'w').close()\n    open(path, 'w').close()\n    f()\n";
        shell.write(program, &format!("{sin}\n\n{told}"));
    }
    let slow = shell.write("slow_python", "#!/bin/sh\nsleep 300\n");
    std::fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir(shell.path().join("running")).unwrap();
    let mut calls: Vec<_> = (0..49)
        .map(|number| {
            let told = shell.path().join("running").join(number.to_string());
            json!({"file": sins[number % 3], "function": "told", "args": [told]})
        })
        .collect();
    calls.push(json!({"source": "", "function": "f", "python": slow}));
    shell.write_lines("calls.jsonl", &calls);
    let batch = shell
        .fairtrial(["batch", "calls.jsonl", "-j", "50"])
        .start();
    let running = || {
        std::fs::read_dir(shell.path().join("running"))
            .unwrap()
            .count()
    };
    wait_until("49 calls run", || running() == 49).await;
    let starting = || !fairtrial_tests::running_with(&slow.display().to_string()).is_empty();
    wait_until("the last one starts", starting).await;
    assert!(
        !shell.spilled().is_empty(),
        "scratch directories are in use"
    );
    batch.signal(Signal::KILL);
    assert_eq!(batch.end().code, None);
    wait_until("no process is left", || shell.processes().is_empty()).await;
    wait_until("no file is left", || shell.spilled().is_empty()).await;
}

/// EX-101: a million lines if `FAIRTRIAL_STRESS` is set, else enough to show the slope.
#[test]
fn a_batch_runs_in_bounded_memory() {
    let stress = std::env::var("FAIRTRIAL_STRESS").is_ok_and(|set| set == "1");
    let lines: u64 = if stress { 1_000_000 } else { 20_000 };
    let shell = Shell::new();
    let line = json!({"source": "def f(): pass", "function": "f", "isolation": "reuse"});
    // The last line keeps it from ending before it is looked at.
    let last =
        json!({"argv": ["sh", "-c", "until test -e go; do sleep 0.01; done"], "cwd": shell.path()});
    let text = format!("{line}\n").repeat(lines as usize);
    shell.write("calls.jsonl", &format!("{text}{last}\n"));
    let mut batch = shell.fairtrial(["batch", "calls.jsonl", "-j", "2"]).start();
    let mut early = 0;
    for number in 1..=lines {
        let record = batch.line();
        let wanted = format!("{{\"id\":{number},\"verdict\":\"ok\",\"value\":null,");
        assert!(record.starts_with(&wanted), "{record}");
        if number == lines / 2 {
            early = size(&batch).1;
        }
    }
    let late = size(&batch).1;
    assert!(late < 100 << 20, "{late} bytes");
    assert!(
        late < early + (16 << 20),
        "flat: {early}, then {late} bytes"
    );
    shell.write("go", "");
    assert_eq!(batch.end().code, Some(0));
    shell.assert_nothing_left();
}
