//! What calls write: captured from the first instruction, within a cap, shown safely (EX-76 to EX-80).

use std::time::Duration;

use fairtrial_exec::{Exit, Verdict};
use fairtrial_tests::bare;
use fairtrial_tests::{Story, anonymous_bytes, is_alone, note, running_with, stress, wait_until};
use serde_json::json as j;

use crate::verdicts::error;

/// EX-76
#[tokio::test]
async fn nothing_is_shortened_but_by_the_capture_cap_and_the_loss_is_counted() {
    let story = Story::new();
    let source = "def f(n):\n    print('o' * n)\n    raise ValueError('m' * n)";
    let whole = story.source(source, "[300000]").await;
    assert_eq!(
        (whole.stdout.bytes().len(), whole.stdout.dropped),
        (300_001, 0)
    );
    assert_eq!(error(whole).message.len(), 300_000);
    let mut call = Story::call(source, "[300000]");
    call.capture_bytes = 1000;
    let cut = story.run(call).await;
    assert_eq!(
        (cut.stdout.bytes().len(), cut.stdout.dropped),
        (1000, 299_001)
    );
    assert!(
        cut.stdout.text().contains("299001 bytes dropped"),
        "{}",
        cut.stdout.text()
    );
    let error = error(cut);
    for text in [&error.message, &error.traceback] {
        let counted = text
            .split("[... ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
        let kept = text.matches('m').count();
        assert!(kept <= 1000 && kept > 800, "{kept}");
        assert!(
            counted.is_some_and(|dropped| dropped + 1000 >= 300_000),
            "{counted:?}"
        );
    }
    story.end().await;
}

/// EX-77
#[tokio::test]
async fn all_output_is_captured_whoever_writes_it() {
    let story = Story::with(|config| config.max_workers = 1);
    let source = include_str!("../../programs/print_in_every_way.py");
    for make in [Story::call, Story::reuse_call] {
        let outcome = story.run(make(source, "[]")).await;
        let (out, err) = (outcome.stdout.text(), outcome.stderr.text());
        for said in [
            "module",
            "print",
            "write",
            "printf",
            "child",
            "thread",
            "grandchild",
        ] {
            assert!(out.contains(&format!("<{said}>")), "{said}: {out}");
        }
        for said in ["module", "error", "child"] {
            assert!(err.contains(&format!("<{said}>")), "{said}: {err}");
        }
        // Of the next call it is no part.
        assert!(
            story
                .run(make("def f():\n    pass", "[]"))
                .await
                .stdout
                .is_empty()
        );
    }
    story.end().await;
}

/// EX-77
#[tokio::test]
async fn output_survives_a_crash_a_deadline_a_limit_and_a_cancel() {
    let ends = [
        ("os.kill(os.getpid(), 11)", Verdict::Signal),
        ("os._exit(1)", Verdict::Exit),
        ("time.sleep(40)", Verdict::Timeout),
        (
            "x = b'x' * (300 << 20)\n    time.sleep(20)",
            Verdict::MemoryLimit,
        ),
        (
            "open(here, 'w').close()\n    time.sleep(40)",
            Verdict::Cancelled,
        ),
    ];
    let story = Story::new();
    for (number, (end, verdict)) in ends.into_iter().enumerate() {
        for (way, make) in [Story::call, Story::reuse_call].into_iter().enumerate() {
            let here = story.path().join(format!("here-{number}-{way}"));
            let source = format!(
                "import ctypes, os, sys, time\nprint('<module>')\ndef f(here):\n    print('<line>')\n    \
                 print('<half>', end='')\n    print('<error>', file=sys.stderr)\n    \
                 ctypes.CDLL(None).printf(b'<printf>')\n    {end}"
            );
            let mut call = make(&source, &j!([here]).to_string());
            match verdict {
                Verdict::Timeout => call.timeout = Some(Duration::from_millis(400)),
                Verdict::MemoryLimit => call.limits.memory_bytes = Some(150 << 20),
                _ => {}
            }
            let execution = story.backend.submit(call).expect("accepted");
            if verdict == Verdict::Cancelled {
                wait_until("the call runs", || here.exists()).await;
                execution.cancel();
            }
            let outcome = execution.await.expect("the engine does its work");
            assert_eq!(outcome.verdict, verdict, "{end}: {:?}", outcome.error);
            assert_eq!(
                outcome.stdout.text(),
                "<module>\n<line>\n<half><printf>",
                "{end}"
            );
            assert_eq!(outcome.stderr.text(), "<error>\n", "{end}");
        }
    }
    story.end().await;
}

/// EX-78
#[tokio::test]
async fn the_cap_keeps_head_and_tail_and_the_limit_ends_the_call() {
    let story = Story::new();
    let mut call = Story::call(
        "def f():\n    for n in range(100000):\n        print('%09d' % n)",
        "[]",
    );
    call.capture_bytes = 200;
    let outcome = story.run(call).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    let (head, tail) = (
        String::from_utf8_lossy(&outcome.stdout.head),
        String::from_utf8_lossy(&outcome.stdout.tail),
    );
    assert!(
        head.starts_with("000000000\n") && tail.ends_with("000099999\n"),
        "{head} {tail}"
    );
    assert_eq!(
        (head.len(), tail.len(), outcome.stdout.dropped),
        (100, 100, 1_000_000 - 200)
    );
    // Both streams count, and the default is 64 MiB.
    let both = "import os, time\ndef f():\n    block = b'x' * (1 << 20)\n    for _ in range(10 << 10):\n        \
        os.write(1, block)\n        os.write(2, block)";
    let outcome = story.source(both, "[]").await;
    assert_eq!(outcome.verdict, Verdict::OutputLimit);
    let seen = |stream: &fairtrial_exec::Captured| stream.bytes().len() as u64 + stream.dropped;
    assert!(seen(&outcome.stdout) + seen(&outcome.stderr) > 64 << 20);
    assert_eq!(outcome.stdout.bytes().len(), 1 << 20);
    story.end().await;
}

/// EX-70, EX-78: whether the engine saw the output or the reply first is nobody's luck.
#[tokio::test]
async fn a_call_that_wrote_too_much_and_ended_at_once_is_over_the_limit_all_the_same() {
    let story = Story::new();
    let calls = [
        Story::call("def f():\n    print('x' * 5000)\n    return 1", "[]"),
        Story::reuse_call("def f():\n    print('x' * 5000)\n    return 1", "[]"),
        Story::call("def f():\n    print('x' * 5000)\n    raise KeyError", "[]"),
        Story::call("import os\nprint('x' * 5000)\nos._exit(0)", "[]"),
        bare::command(["head", "-c", "5000", "/dev/zero"]),
    ];
    for (number, mut call) in calls.into_iter().enumerate() {
        call.limits.output_bytes = Some(4999);
        for _ in 0..10 {
            let outcome = story.run(call.clone()).await;
            assert_eq!(outcome.verdict, Verdict::OutputLimit, "call {number}");
            assert!(outcome.metrics.wall_ns.is_some(), "call {number}");
        }
    }
    story.end().await;
}

/// EX-78
#[test]
fn endless_output_costs_the_engine_no_memory_beyond_the_cap() {
    if !is_alone("output::endless_output_costs_the_engine_no_memory_beyond_the_cap") {
        return;
    }
    let blocks: u64 = if stress() { 10_000 } else { 300 };
    let source = "import os\ndef f(blocks):\n    block = b'x' * (1 << 20)\n    for _ in range(blocks):\n        \
        at = 0\n        while at < len(block):\n            at += os.write(1, block[at:])";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let story = Story::new();
        story.source(source, "[3]").await;
        let before = anonymous_bytes();
        let mut call = Story::call(source, &j!([blocks]).to_string());
        call.limits.output_bytes = None;
        let outcome = story.run(call).await;
        let grown = anonymous_bytes().saturating_sub(before);
        assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
        assert_eq!(outcome.stdout.dropped, (blocks << 20) - (1 << 20));
        assert!(grown < 8 << 20, "{grown} bytes");
        story.end().await;
    });
}

/// EX-79, SB-54: the grandchild would hold the stream for 40 s.
#[tokio::test]
async fn a_grandchild_that_holds_the_output_open_delays_nothing() {
    let story = Story::new();
    let script = "echo here; (setsid sleep 41.379 &) ; exit 0";
    let begin = std::time::Instant::now();
    let outcome = story.run(bare::command(["sh", "-c", script])).await;
    assert_eq!(
        (outcome.verdict, outcome.stdout.text()),
        (Verdict::Ok, "here\n".to_owned())
    );
    let source = "import os, subprocess\ndef f():\n    subprocess.Popen(['sleep', '41.379'])\n    os._exit(4)";
    let outcome = story.source(source, "[]").await;
    assert_eq!(outcome.exit, Some(Exit::Code(4)));
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "it waited for the stream to end"
    );
    assert_eq!(running_with("41.379"), [0; 0]);
    story.end().await;
}

/// EX-80
#[tokio::test]
async fn output_is_bytes_and_its_text_replaces_what_is_not_utf_8() {
    let story = Story::new();
    let source = "import os\ndef f():\n    os.write(1, b'a\\xff\\x00b\\x1b[31m')";
    let outcome = story.source(source, "[]").await;
    assert_eq!(outcome.stdout.bytes(), b"a\xff\0b\x1b[31m");
    assert_eq!(outcome.stdout.text(), "a\u{fffd}\0b\u{1b}[31m");
    story.end().await;
}

/// EX-80
#[test]
fn on_a_terminal_control_characters_are_shown_and_not_obeyed() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("paint.py");
    std::fs::write(
        &file,
        "def f():\n    print('\\x1b]0;title\\x07\\x1b[31mred')\n",
    )
    .expect("a file");
    let mut binary = std::env::current_exe().expect("this process has a program");
    binary.pop();
    binary.pop();
    let binary = binary.join("fairtrial");
    let line = format!(
        "'{}' exec '{}' --function f",
        binary.display(),
        file.display()
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "`script` gives the binary a terminal"
    )]
    let mut command = std::process::Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env("FAIRTRIAL_SPILL_DIR", dir.path().join("s"))
        .stdin(std::process::Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            note(format_args!(
                "skipped: no `script` to make a terminal with: {error}"
            ));
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("red") && text.contains("title"), "{text:?}");
    assert!(
        !text.contains("\u{1b}[31mred") && !text.contains("\u{1b}]0;title"),
        "{text:?}"
    );
}
