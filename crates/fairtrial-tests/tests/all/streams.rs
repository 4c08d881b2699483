//! Streams that are passed on as they come: by the engine's taps, and by `fairtrial exec -- ARGV` (EX-98).

use std::io::{Read, Write};
use std::process::{Child, Output};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairtrial_exec::{Outcome, Stream, Streams, Tap, Verdict};
use fairtrial_tests::bare;
use fairtrial_tests::{PATIENCE, Process, Shell, Story, running_with, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

/// What a pipe holds.
const PIPE: u64 = 64 << 10;

/// Waits for its end without touching its standard input, which is the caller's.
fn end(child: Child) -> Output {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let output = ended.recv_timeout(PATIENCE).expect("it ends in time");
    output.expect("it can be waited for")
}

/// EX-98: the command waits for a line that is sent only when its own has arrived.
#[test]
fn output_arrives_while_the_command_runs_and_input_while_it_waits() {
    let shell = Shell::new();
    let script =
        "echo first; read answer; echo $answer; read answer; echo $answer >&2; cat; echo end";
    let mut running = shell.fairtrial(["exec", "--", "sh", "-c", script]).start();
    assert_eq!(running.line(), "first\n");
    running.say("second");
    assert_eq!(running.line(), "second\n");
    running.say("third");
    let run = running.end();
    assert_eq!(
        (run.code, &*run.stdout, &*run.stderr),
        (Some(0), "end\n", "third\n")
    );
    shell.assert_nothing_left();
}

/// EX-98
#[test]
fn what_is_typed_at_a_terminal_reaches_the_command() {
    const TYPE: &str = r#"
import os, pty, sys
pid, screen = pty.fork()  # the child leads the terminal's foreground
if pid == 0:
    os.execv(sys.argv[1], ["fairtrial", "exec", "--", "head", "-n", "1"])
os.write(screen, b"typed\n")
shown = b""
try:
    while chunk := os.read(screen, 4096):
        shown += chunk
except OSError:
    pass  # how a terminal ends
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode().split())
"#;
    let shell = Shell::new();
    let binary = fairtrial_tests::binary();
    let binary = binary.to_str().expect("a plain path");
    let run = shell
        .fairtrial(["exec", "--", "python3", "-c", TYPE, binary])
        .run();
    assert_eq!(run.stdout, "0 ['typed', 'typed']\n", "{}", run.stderr);
}

/// EX-98: with `--json` the outcome holds what was written; input is passed on all the same.
#[test]
fn with_json_nothing_is_passed_through_but_input() {
    let shell = Shell::new();
    let script = "cat; echo told >&2";
    let run = shell
        .fairtrial(["exec", "--json", "--", "sh", "-c", script])
        .run_with("typed\n");
    let outcome: Json = serde_json::from_str(&run.stdout).expect("nothing but the outcome");
    assert_eq!(
        [&outcome["stdout"], &outcome["stderr"]],
        ["typed\n", "told\n"]
    );
    assert_eq!((run.code, &*run.stderr), (Some(0), ""));
}

/// EX-98: more than was ever held in memory, and binary.
#[test]
fn a_hundred_megabytes_arrive_byte_for_byte() {
    let block = |number: u64| {
        let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut bytes = Vec::with_capacity(1_000_000);
        while bytes.len() < 1_000_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes
    };
    let shell = Shell::new();
    let mut child = shell
        .fairtrial(["exec", "--output", "200M", "--", "cat"])
        .spawn();
    let mut input = child.stdin.take().expect("stdin is piped");
    let mut output = child.stdout.take().expect("stdout is piped");
    let status = format!("/proc/{}/status", child.id());
    let feed =
        thread::spawn(move || (0..100).try_for_each(|number| input.write_all(&block(number))));
    let mut got = vec![0; 1_000_000];
    let mut most = 0;
    for number in 0..100 {
        output.read_exact(&mut got).expect("all of it comes");
        assert!(got == block(number), "block {number} differs");
        if number == 98 {
            most = peak_in(&status).expect("it has more to write than a pipe holds");
        }
    }
    assert_eq!(output.read_to_end(&mut Vec::new()).expect("it ends"), 0);
    feed.join().expect("no panic").expect("all was taken");
    let ended = end(child);
    assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), &b""[..]));
    assert!(most < 64 << 20, "it held {most} bytes");
}

/// EX-98: whoever does not read stops the command, and costs no memory.
#[tokio::test]
async fn a_reader_that_does_not_read_stops_the_command_not_the_machine() {
    const ALL: usize = 200_000_000;
    let shell = Shell::new();
    let script = format!("head -c {ALL} /dev/zero; echo done >&2");
    let mut child = shell
        .fairtrial(["exec", "--output", "1G", "--", "sh", "-c", &script])
        .spawn();
    let mut output = child.stdout.take().expect("stdout is piped");
    let full = || rustix::io::ioctl_fionread(&output).expect("it is a pipe") == PIPE;
    wait_until("nothing more fits in", full).await;
    let mut last = None;
    // Still means: for twenty looks. Looked at too early, this shows less, but nothing false.
    let mut still = 0;
    wait_until("the command has stopped writing", || {
        let written = written_by_head(&shell);
        still = if written == last { still + 1 } else { 0 };
        last = written;
        still >= 20
    })
    .await;
    let written = last.expect("it has not ended: nobody read");
    assert!(written < 8 << 20, "{written} bytes were taken from it");
    let rest = thread::spawn(move || {
        let mut chunk = vec![0; 1 << 16];
        let mut count = 0;
        while let Ok(read @ 1..) = output.read(&mut chunk) {
            count += read;
        }
        count
    });
    let most = {
        let status = format!("/proc/{}/status", child.id());
        let mut most = 0;
        wait_until("it has ended", || {
            most = peak_in(&status).unwrap_or(most);
            rest.is_finished()
        })
        .await;
        most
    };
    let ended = end(child);
    assert_eq!(rest.join().expect("no panic"), ALL, "nothing is lost");
    assert_eq!(
        (ended.status.code(), &*ended.stderr),
        (Some(0), &b"done\n"[..])
    );
    assert!(0 < most && most < 64 << 20, "it held {most} bytes");
}

/// EX-98: neither a command that closes its input nor one that ignores it waits for that to end.
#[test]
fn an_input_that_never_ends_delays_nothing() {
    let shell = Shell::new();
    for script in ["exec <&-; echo ok", "echo ok", "read line; echo ok"] {
        let mut child = shell.fairtrial(["exec", "--", "sh", "-c", script]).spawn();
        let mut input = child.stdin.take().expect("stdin is piped");
        // More than the two pipes hold; refused, or never written to its end.
        let feed = thread::spawn(move || {
            let written = input.write_all(&b"typed\n".repeat(1_000_000));
            (input, written)
        });
        let ended = end(child);
        assert_eq!(
            (ended.status.code(), &*ended.stdout, &*ended.stderr),
            (Some(0), &b"ok\n"[..], &b""[..]),
            "{script}"
        );
        assert!(feed.join().expect("no panic").1.is_err());
        let mut child = shell.fairtrial(["exec", "--", "sh", "-c", script]).spawn();
        let mut quiet = child.stdin.take().expect("stdin is piped");
        quiet.write_all(b"typed\n").expect("a pipe holds a line");
        let ended = end(child);
        assert_eq!(ended.status.code(), Some(0), "{script}");
        drop(quiet); // open until now
    }
    shell.assert_nothing_left();
}

/// EX-98: nobody reads what it says, but how it ended is told.
#[test]
fn a_closed_output_loses_no_verdict() {
    let shell = Shell::new();
    let script = "yes | head -c 1000000; echo told >&2; exit 7";
    let mut child = shell.fairtrial(["exec", "--", "sh", "-c", script]).spawn();
    drop(child.stdout.take());
    let ended = end(child);
    assert_eq!(
        (
            ended.status.code(),
            &*String::from_utf8_lossy(&ended.stderr)
        ),
        (Some(3), "told\nexit: `sh` exited with code 7\n")
    );
    let mut child = shell.fairtrial(["exec", "--", "sh", "-c", script]).spawn();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(end(child).status.code(), Some(3));
    shell.assert_nothing_left();
}

/// EX-98: also while nobody reads what the command writes without end.
#[tokio::test]
async fn an_interrupt_is_heard_while_output_is_stuck() {
    let shell = Shell::new();
    let mut child = shell
        .fairtrial(["exec", "--output", "1G", "--", "yes"])
        .spawn();
    let output = child.stdout.take().expect("stdout is piped");
    let full = || rustix::io::ioctl_fionread(&output).expect("it is a pipe") == PIPE;
    wait_until("nothing more fits in", full).await;
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is ours and not reaped");
    let ended = end(child);
    assert_eq!(
        (
            ended.status.code(),
            &*String::from_utf8_lossy(&ended.stderr)
        ),
        (Some(130), "interrupted: what was running has been killed\n")
    );
    drop(output); // unread to the end
    shell.assert_nothing_left();
}

/// EX-45, EX-98: a tap that nobody reads stops the engine's reading, so the flood; not the deadline.
#[tokio::test]
async fn a_tap_that_nobody_reads_does_not_keep_the_deadline() {
    let story = Story::new();
    let flood = "import os\ndef f():\n    while True: os.write(1, b'x' * 65536)\n";
    let calls = [
        bare::command(["sh", "-c", "yes >&2 & exec yes"]),
        Story::call(flood, "[]"),
        Story::reuse_call(flood, "[]"),
    ];
    for mut call in calls {
        call.timeout = Some(Duration::from_millis(300));
        call.limits.output_bytes = None;
        call.capture_bytes = 100;
        let (tap, reader) = Tap::new();
        let streams = Streams {
            output: Some(tap),
            input: None,
        };
        let execution = story.backend.submit_with(call, streams).expect("taken");
        let answer = tokio::time::timeout(PATIENCE, execution).await;
        let outcome = answer.expect("it resolves").expect("an outcome");
        assert_eq!(outcome.verdict, Verdict::Timeout);
        let pieces = thread::spawn(move || reader.collect::<Vec<_>>());
        let pieces = pieces.join().expect("no panic");
        let bytes: u64 = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        assert!(bytes < 4 << 20, "{bytes} bytes were waiting");
        assert_eq!(seen(&outcome), bytes, "each byte once");
    }
    story.end().await;
}

/// What the engine read of both streams.
fn seen(outcome: &Outcome) -> u64 {
    [&outcome.stdout, &outcome.stderr]
        .map(|stream| stream.bytes().len() as u64 + stream.dropped)
        .iter()
        .sum()
}

/// A tap has what was written and by which stream, whichever way the call ends.
#[tokio::test]
async fn a_tap_is_told_which_stream_wrote_what() {
    let story = Story::new();
    let source = "import os\ndef f():\n    print('out', flush=True)\n    os.write(2, b'err')\n    return 1\n";
    let calls = [
        bare::command(["sh", "-c", "echo out; printf err >&2; exit 3"]),
        Story::call(source, "[]"),
        Story::reuse_call(source, "[]"),
        Story::reuse_call(source, "[]"),
    ];
    for call in calls {
        let (tap, reader) = Tap::new();
        let streams = Streams {
            output: Some(tap),
            input: None,
        };
        let reading = thread::spawn(move || reader.collect::<Vec<_>>());
        let execution = story.backend.submit_with(call, streams).expect("taken");
        execution.await.expect("an outcome");
        let reading = tokio::task::spawn_blocking(|| reading.join().expect("no panic"));
        let pieces = tokio::time::timeout(PATIENCE, reading).await;
        let pieces = pieces.expect("it ends with its call").expect("no panic");
        let of = |wanted| {
            let pieces = pieces.iter().filter(|(stream, _)| *stream == wanted);
            pieces
                .flat_map(|(_, bytes)| bytes.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (of(Stream::Stdout), of(Stream::Stderr)),
            (b"out\n".to_vec(), b"err".to_vec())
        );
    }
    story.end().await;
}

fn written_by_head(shell: &Shell) -> Option<u64> {
    let head = running_with(&shell.path().display().to_string())
        .into_iter()
        .filter_map(Process::find)
        .find(|process| process.name().as_deref() == Some("head"))?;
    let io = std::fs::read_to_string(format!("/proc/{}/io", head.pid)).ok()?;
    let count = io.lines().find_map(|line| line.strip_prefix("wchar: "))?;
    count.parse().ok()
}

/// The most it ever had; nothing of a zombie.
fn peak_in(status: &str) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}
