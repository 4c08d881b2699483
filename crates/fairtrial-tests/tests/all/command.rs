//! Command calls (EX-95, EX-96), by the engine and through the binary.

use fairtrial_exec::{Call, Exit, Level, Sandbox, Verdict, Work};
use fairtrial_tests::bare;
use fairtrial_tests::{Shell, Story, note, wait_until};
use serde_json::{Value as Json, json};

/// The outcome of `fairtrial exec --json` with these words.
fn outcome<'a>(shell: &Shell, words: impl IntoIterator<Item = &'a str>) -> Json {
    let run = shell
        .fairtrial(["exec", "--json"].into_iter().chain(words))
        .run();
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
}

/// EX-95
#[test]
fn the_program_is_searched_in_the_path_of_the_call() {
    let shell = Shell::new();
    let tool = shell.write("tools/tool", "#!/bin/sh\necho found\n");
    let tools = tool.parent().unwrap().display();
    let path = format!("PATH={tools}:/usr/bin:/bin");
    let told = outcome(&shell, ["--env", &path, "--", "tool"]);
    assert_eq!(told["verdict"], "setup_failed", "not executable: {told}");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let told = outcome(&shell, ["--env", &path, "--", "tool"]);
    assert_eq!([&told["verdict"], &told["stdout"]], ["ok", "found\n"]);
    let told = outcome(&shell, ["--", "tool"]);
    assert_eq!(
        told["verdict"], "setup_failed",
        "not in the usual PATH: {told}"
    );
    let message = told["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("cannot run `tool`: No such file or directory"),
        "{message}"
    );
    assert_eq!(told["metrics"]["wall_s"], Json::Null, "nothing ran");
}

/// EX-95
#[test]
fn terms_of_python_with_argv_are_an_invalid_call() {
    let shell = Shell::new();
    for (key, value) in [
        ("isolation", json!("fresh")),
        ("preload", json!(["math"])),
        ("result", json!("data")),
    ] {
        let mut call = json!({"argv": ["true"]});
        call[key] = value;
        let run = shell.fairtrial(["batch", "-"]).run_with(&call.to_string());
        let record: Json = serde_json::from_str(&run.stdout).unwrap();
        let message = format!("`{key}` does not go with `argv` (remove it)");
        assert_eq!(
            record["error"],
            json!({"type": "InvalidCall", "message": message})
        );
        assert_eq!(run.code, Some(2));
    }
    assert!(!shell.path().join("spill").exists(), "nothing was started");
}

/// EX-95: a command and all it left die at its end and at its deadline.
#[tokio::test]
async fn what_a_command_leaves_in_another_session_dies_with_it() {
    let shell = Shell::new();
    let script = "setsid sh -c 'sleep 300 & sleep 300' & ";
    let ended = outcome(&shell, ["--", "sh", "-c", &format!("{script} exit 0")]);
    assert_eq!(ended["verdict"], "ok");
    shell.assert_nothing_left();
    let stopped = outcome(
        &shell,
        [
            "--timeout",
            "300ms",
            "--",
            "sh",
            "-c",
            &format!("trap '' TERM; {script} wait"),
        ],
    );
    assert_eq!(stopped["verdict"], "timeout");
    shell.assert_nothing_left();
    wait_until("nothing is left running", || shell.processes().is_empty()).await;
}

/// EX-95: environment, scratch directory, limits, capture and metrics are those of every call.
#[test]
fn a_command_runs_on_the_terms_of_every_call() {
    let shell = Shell::new();
    let script = "echo $OPENAI_API_KEY$SECRET_OF_MINE$GIVEN; test \"$PWD\" = \"$TMPDIR\" && stat -c %a . && ls -A";
    let run = shell
        .fairtrial([
            "exec",
            "--env",
            "GIVEN=given",
            "--json",
            "--",
            "sh",
            "-c",
            script,
        ])
        .env("OPENAI_API_KEY", "leak")
        .env("SECRET_OF_MINE", "leak")
        .run();
    let told: Json = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["stdout"], "given\n700\n", "{told}");
    assert_eq!(told["in_force"]["mode"], "command");
    let metrics = &told["metrics"];
    for measured in [
        "wall_s",
        "queue_s",
        "user_s",
        "system_s",
        "peak_rss_bytes",
        "worker_pid",
    ] {
        assert!(metrics[measured].is_number(), "{measured}: {metrics}");
    }
    assert_eq!(metrics["measured_by"], "engine");
    let wall_ns =
        metrics["finished_at_ns"].as_u64().unwrap() - metrics["started_at_ns"].as_u64().unwrap();
    assert_eq!(metrics["wall_s"], wall_ns as f64 / 1e9);

    let loud = outcome(
        &shell,
        [
            "--output",
            "10K",
            "--",
            "sh",
            "-c",
            "head -c 1000000 /dev/zero",
        ],
    );
    assert_eq!(loud["verdict"], "output_limit", "{loud}");
    let kept = outcome(
        &shell,
        ["--capture", "10", "--", "printf", "abcdefghijklmnop"],
    );
    assert_eq!(kept["dropped"], json!({"stdout": 6, "stderr": 0}));
    let greedy = "x = b'x' * (600 << 20); import time; time.sleep(300)";
    let greedy = outcome(&shell, ["--memory", "300M", "--", "python3", "-c", greedy]);
    assert_eq!(greedy["verdict"], "memory_limit", "{greedy}");
}

/// EX-96
#[test]
fn exit_code_and_signal_are_reported_apart() {
    let shell = Shell::new();
    let told = outcome(&shell, ["--", "sh", "-c", "exit 137"]);
    assert_eq!(told["verdict"], "exit");
    assert_eq!(told["exit"], json!({"code": 137, "signal": null}));
    let told = outcome(&shell, ["--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(told["verdict"], "signal");
    let killed = json!({"code": null, "signal": 9, "killed_by": "outside"});
    assert_eq!(told["exit"], killed);
}

/// EX-96
#[tokio::test]
async fn an_exit_code_of_137_is_no_signal() {
    let story = Story::new();
    let outcome = story.run(bare::command(["sh", "-c", "exit 137"])).await;
    assert_eq!(
        (outcome.verdict, outcome.exit),
        (Verdict::Exit, Some(Exit::Code(137)))
    );
    story.end().await;
}

/// EX-96
#[tokio::test]
async fn input_is_written_without_deadlock_and_an_early_close_is_no_error() {
    let story = Story::new();
    for (script, expected) in [
        ("cat", 5_000_000),
        ("head -c 10", 10),
        ("exec <&-; echo ok", 3),
    ] {
        let mut call = bare::command(["sh", "-c", script]);
        let Work::Command(work) = &mut call.work else {
            unreachable!()
        };
        work.stdin = vec![b'x'; 5_000_000];
        call.capture_bytes = 8 << 20;
        let outcome = story.run(call).await;
        assert_eq!(
            (outcome.verdict, outcome.stdout.bytes().len()),
            (Verdict::Ok, expected),
            "{script}"
        );
    }
    story.end().await;
}

/// CA-73, CA-99: what is measured does not wait for its turn behind a busy process, nor do those it starts; the next
/// command does as usual.
#[tokio::test]
async fn a_measured_command_goes_ahead_of_others_where_the_kernel_lets_it() {
    const ROUND_ROBIN: &str = "2";
    if !fairtrial_exec::linux::scheduling::can_go_ahead() {
        note("skipped: this user may let no process go ahead of others");
        return;
    }
    let story = Story::new();
    for (ahead, policy) in [(true, ROUND_ROBIN), (false, "0"), (true, ROUND_ROBIN)] {
        for level in Level::ALL {
            let mut call = Call::command(["sh", "-c", "cut -d ' ' -f 41 /proc/self/stat; true"]);
            call.ahead = ahead;
            call.sandbox = Sandbox::new(level);
            if level == Level::Confined {
                call.sandbox.read = vec!["/proc".into()];
            }
            let outcome = story.run(call).await;
            assert_eq!(outcome.stdout.text().trim(), policy, "{level}");
        }
    }
    story.end().await;
}
