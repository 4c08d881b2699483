//! `fairtrial batch` as a binary (EX-99 to EX-104), and its progress on a terminal.

use fairtrial_tests::{Finished, Running, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

const HELP: &str = "\
Run many calls, one JSON object a line; results in input order

Each line is a call: {\"id\", \"source\" or \"file\", \"function\", \"args\", \"kwargs\", ...} or {\"id\", \"argv\",
\"stdin\", ...}. Each result is one line, written as soon as those before it are. A bad line starts
nothing and has a record with a null verdict in its place; all others run. Relative paths are
relative to the file of calls.

Usage: fairtrial batch [OPTIONS] <CALLS.jsonl>

Arguments:
  <CALLS.jsonl>
          File of calls, or `-` for standard input

Options:
  -o, --out <RESULTS.jsonl>
          File for the results, replaced and then written as they come [default: standard output]

  -j, --jobs <N>
          Calls that run at a time [default: FAIRTRIAL_MAX_WORKERS, else the processors there are;
          by agents, their free slots]

      --backend <URL>
          Who runs them: `local`, or agents that lease them from a server, as in
          `redis://127.0.0.1:6379`; `@FILE` or `@-` reads that from a file or standard input's first
          line

      --no-progress
          Show no progress

  -h, --help
          Print help (see a summary with '-h')

Examples:
  fairtrial batch calls.jsonl --out results.jsonl -j 8
  generate | fairtrial batch - | jq -c 'select(.verdict != \"ok\")'

A line:
  {\"id\": 1, \"file\": \"solve.py\", \"function\": \"solve\", \"args\": [3], \"timeout_s\": 5}
";

fn records(text: &str) -> Vec<Json> {
    let record = |line| serde_json::from_str(line).expect("each line is a whole record");
    text.lines().map(record).collect()
}

/// What each record says under `key`.
fn column(run: &Finished, key: &str) -> Json {
    let records = records(&run.stdout);
    records.iter().map(|record| record[key].clone()).collect()
}

fn ok(number: u64) -> Json {
    json!({"id": number, "argv": ["true"]})
}

/// A call that says that it runs, then waits until it may end.
fn gate(shell: &Shell) -> Json {
    let source = "import os, time\n\
        def f(running, go):\n    \
            open(running, 'w').close()\n    \
            end = time.monotonic() + 120\n    \
            while not os.path.exists(go) and time.monotonic() < end:\n        \
                time.sleep(0.01)\n";
    let [running, go] = ["running", "go"].map(|name| shell.path().join(name));
    json!({"id": "gate", "source": source, "function": "f", "args": [running, go]})
}

async fn gate_is_reached(shell: &Shell) {
    wait_until("the gate is reached", || {
        shell.path().join("running").exists()
    })
    .await;
}

#[test]
fn the_help_says_how_to_use_it() {
    let shown = Shell::new().fairtrial(["batch", "--help"]).run();
    assert_eq!((shown.code, &*shown.stdout), (Some(0), HELP));
    assert_eq!(shown.stderr, "");
}

/// EX-99
#[test]
fn ids_are_echoed_default_to_the_line_and_may_repeat_and_blank_lines_and_a_bom_are_skipped() {
    let shell = Shell::new();
    let text = "\u{feff}{\"id\": \"a\", \"argv\": [\"true\"]}\n\
                \n  \t\r\n\
                {\"argv\": [\"true\"]}\r\n\
                {\"id\": \"a\", \"argv\": [\"true\"]}\n\
                {\"id\": -7, \"argv\": [\"true\"]}";
    shell.write("calls.jsonl", text);
    let wanted = json!(["a", 4, "a", -7]);
    let file = shell.fairtrial(["batch", "calls.jsonl"]).run();
    assert_eq!((file.code, &*file.stderr), (Some(0), ""));
    assert_eq!(column(&file, "id"), wanted);
    let piped = shell.fairtrial(["batch", "-"]).run_with(text);
    assert_eq!((piped.code, &*piped.stderr), (Some(0), ""));
    assert_eq!(column(&piped, "id"), wanted);
    shell.assert_nothing_left();
}

/// EX-99
#[test]
fn relative_paths_are_those_of_the_files_directory_and_of_ours_for_standard_input() {
    let shell = Shell::new();
    let line = json!({"file": "solve.py", "function": "f", "cwd": "desk", "python_path": ["lib"]});
    for (dir, answer) in [("here", 1), ("there", 2)] {
        shell.write(
            &format!("{dir}/solve.py"),
            "import os, helper\ndef f(): return [os.path.basename(os.path.dirname(os.getcwd())), helper.x]\n",
        );
        shell.write(&format!("{dir}/lib/helper.py"), &format!("x = {answer}\n"));
        shell.write(&format!("{dir}/desk/keep"), "");
        shell.write_lines(&format!("{dir}/calls.jsonl"), std::slice::from_ref(&line));
    }
    let here = shell.path().join("here");
    let file = shell
        .fairtrial(["batch", "../there/calls.jsonl"])
        .current_dir(&here)
        .run();
    assert_eq!(column(&file, "value"), json!([["there", 2]]), "{file:?}");
    let piped = shell
        .fairtrial(["batch", "-"])
        .current_dir(&here)
        .run_with(&line.to_string());
    assert_eq!(column(&piped, "value"), json!([["here", 1]]), "{piped:?}");
}

/// EX-100
#[test]
fn record_1_is_readable_before_line_3_is_written() {
    let shell = Shell::new();
    let mut batch = shell.fairtrial(["batch", "-"]).start();
    batch.say(&ok(1).to_string());
    batch.say(&ok(2).to_string());
    assert_eq!(records(&batch.line())[0]["id"], 1);
    assert_eq!(records(&batch.line())[0]["id"], 2);
    batch.say(&ok(3).to_string());
    let run = batch.end();
    assert_eq!((run.code, column(&run, "id")), (Some(0), json!([3])));
}

/// EX-100
#[tokio::test]
async fn a_record_that_is_ready_waits_for_its_predecessors_and_for_nothing_else() {
    let shell = Shell::new();
    let mut batch = shell.fairtrial(["batch", "-", "-j", "2"]).start();
    batch.say(&ok(1).to_string());
    batch.say(&gate(&shell).to_string());
    let told = shell.path().join("told");
    batch.say(&json!({"id": 3, "argv": ["touch", told]}).to_string());
    assert_eq!(records(&batch.line())[0]["id"], 1);
    gate_is_reached(&shell).await;
    wait_until("the third call runs", || told.exists()).await;
    shell.write("go", "");
    let run = batch.end();
    assert_eq!(
        (run.code, column(&run, "id")),
        (Some(0), json!(["gate", 3]))
    );
}

/// The most the process ever had in memory.
fn peak_bytes(running: &Running) -> u64 {
    let status = format!("/proc/{}/status", running.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(status).expect("it still runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    peak.and_then(|kb| kb.parse::<u64>().ok())
        .expect("the kernel writes it so")
        << 10
}

/// EX-101: 64 MiB of records wait in memory, the rest in a file without a name.
#[tokio::test]
async fn records_that_wait_for_a_slow_predecessor_take_no_memory_beyond_the_budget() {
    const CALLS: u64 = 300;
    let shell = Shell::new();
    let done = shell.path().join("done");
    let source = "def f(done):\n    \
                      print('x' * 1_000_000)\n    \
                      with open(done, 'a') as file:\n        \
                          file.write('.')\n";
    let mut calls = vec![gate(&shell)];
    calls.extend((0..CALLS).map(|id| {
        json!({"id": id, "source": source, "function": "f", "args": [&done], "isolation": "reuse"})
    }));
    let mut batch = shell.fairtrial(["batch", "-", "-j", "2"]).start();
    for call in &calls {
        batch.say(&call.to_string());
    }
    wait_until("all but the first have ended", || {
        shell.size("done") == CALLS
    })
    .await;
    assert_eq!(
        shell.spilled().iter().filter(|path| path.is_file()).count(),
        0,
        "the file has no name"
    );
    shell.write("go", "");
    assert_eq!(records(&batch.line())[0]["id"], "gate");
    for id in 0..CALLS {
        let record: Json = serde_json::from_str(&batch.line()).unwrap();
        assert_eq!(record["id"], id);
        assert_eq!(record["stdout"].as_str().unwrap().len(), 1_000_001);
    }
    let peak = peak_bytes(&batch);
    // The budget, what is in flight, and the engine itself; with all the records it would be well over 300 MB.
    assert!(peak < 200 << 20, "{peak} bytes");
    assert_eq!(batch.end().code, Some(0));
}

/// EX-102, and the "bad input": place, what, and what to do instead, one line each; the others run.
#[test]
fn a_bad_line_has_its_record_in_its_place_and_one_line_with_place_and_hint() {
    let shell = Shell::new();
    let base = shell.path().display();
    let table = [
        ("{\"id\": 1, \"argv\": [\"true\"]}", None, String::new()),
        (
            "{\"id\": 2, \"argv\": [\"true\"]",
            Some(26),
            "EOF while parsing an object (a line is one JSON object)".into(),
        ),
        (
            "{\"id\": 3, \"argv\": [\"touch\", \"started\"], \"timeout\": 1}",
            Some(41),
            "unknown key `timeout` (did you mean `timeout_s`?)".into(),
        ),
        (
            "{\"id\": 4, \"argv\": [\"touch\"], \"argv\": [\"true\"]}",
            Some(30),
            "duplicate key `argv` (give it once)".into(),
        ),
        (
            "{\"id\": 5, \"argv\": \"true\"}",
            Some(19),
            "`argv`: must be an array of strings, not a string".into(),
        ),
        (
            "{\"id\": 6, \"argv\": [\"true\"], \"timeout_s\": -1}",
            Some(42),
            "`timeout_s`: must be a positive number of seconds, not -1".into(),
        ),
        (
            "{\"id\": 7, \"argv\": [\"true\"], \"limits\": {\"memory_bytes\": -5}}",
            Some(56),
            "`limits.memory_bytes`: must not be negative, as -5 is".into(),
        ),
        (
            "{\"id\": 8, \"source\": \"\", \"file\": \"a.py\", \"function\": \"f\"}",
            Some(33),
            "both `source` and `file` (give one of them)".into(),
        ),
        (
            "{\"id\": 9, \"function\": \"f\"}",
            Some(1),
            "nothing to run (give `source` or `file`, or `argv`)".into(),
        ),
        (
            "{\"id\": 10, \"file\": \"missing.py\", \"function\": \"f\"}",
            Some(20),
            format!(
                "`file`: cannot read `{base}/missing.py`: No such file or directory \
                 (a relative path starts where the file of calls is)"
            ),
        ),
        (
            "{\"id\": 11, \"argv\": [\"true\"], \"preload\": [\"math\"]}",
            Some(30),
            "`preload` does not go with `argv` (remove it)".into(),
        ),
        (
            "{\"id\": 12, \"argv\": [\"true\"], \"sandbox\": \"strickt\"}",
            Some(41),
            "`sandbox`: unknown level `strickt`; the levels are `none`, `limits`, `confined` and `strict`"
                .into(),
        ),
        (
            "{\"id\": 13, \"argv\": [\"true\"], \"sandbox\": {\"level\": \"limits\", \"read\": [\"/r\"]}}",
            Some(69),
            "`sandbox.read`: level `limits` cannot do that; use `confined`, or leave it out".into(),
        ),
        ("{\"id\": 14, \"argv\": [\"true\"]}", None, String::new()),
    ];
    let text: Vec<_> = table.iter().map(|(line, ..)| *line).collect();
    shell.write("calls.jsonl", &text.join("\n"));
    let run = shell.fairtrial(["batch", "calls.jsonl"]).run();
    assert_eq!(run.code, Some(2));
    let mut told: Vec<_> = run.stderr.lines().collect();
    let records = records(&run.stdout);
    assert_eq!(records.len(), table.len());
    for (index, ((_, column, message), record)) in table.iter().zip(&records).enumerate() {
        let line = index + 1;
        let Some(column) = column else {
            assert_eq!(
                [&record["id"], &record["verdict"]],
                [&json!(line), &json!("ok")]
            );
            continue;
        };
        let error = json!({"type": "InvalidCall", "message": message});
        let wanted = json!({"id": line, "line": line, "verdict": null, "error": error});
        assert_eq!(record.to_string(), wanted.to_string());
        assert_eq!(
            told.remove(0),
            format!("calls.jsonl:{line}:{column}: {message}")
        );
    }
    assert!(told.is_empty(), "{told:?}");
    assert!(!shell.path().join("started").exists());
}

/// EX-103: 0 all well, 3 a verdict but `ok`, 2 a bad line.
#[test]
fn the_exit_code_is_the_first_that_applies() {
    let shell = Shell::new();
    let [good, failed, bad] = [
        "{\"argv\": [\"true\"]}",
        "{\"argv\": [\"false\"]}",
        "nonsense",
    ];
    let table: [(&[&str], i32); 5] = [
        (&[], 0),
        (&[good], 0),
        (&[good, failed], 3),
        (&[failed, bad], 2),
        (&[bad, good], 2),
    ];
    for (lines, code) in table {
        let run = shell.fairtrial(["batch", "-"]).run_with(&lines.join("\n"));
        assert_eq!(run.code, Some(code), "{lines:?}: {run:?}");
    }
    let missing = shell.fairtrial(["batch", "missing.jsonl"]).run();
    assert_eq!(
        (missing.code, &*missing.stderr),
        (
            Some(2),
            "missing.jsonl: cannot read it: No such file or directory \
             (give a file of JSON lines, or `-` for standard input)\n"
        )
    );
}

/// EX-103: an engine that fails is 1, whatever else there is, and a record that says so.
#[tokio::test]
async fn an_engine_error_is_a_record_without_a_verdict_and_exits_1() {
    let shell = Shell::new();
    let mut batch = shell.fairtrial(["batch", "-", "-j", "1"]).start();
    batch.say(&gate(&shell).to_string());
    gate_is_reached(&shell).await;
    kill_launcher(&batch);
    let record: Json = serde_json::from_str(&batch.line()).unwrap();
    let message =
        "the launcher died while the call was running; what was found of the call was killed";
    let error = json!({"type": "EngineError", "message": message});
    assert_eq!(
        record,
        json!({"id": "gate", "line": 1, "verdict": null, "error": error})
    );
    batch.say("nonsense");
    batch.say("{\"argv\": [\"false\"]}");
    let run = batch.end();
    assert_eq!(run.code, Some(1));
    assert_eq!(column(&run, "verdict"), json!([null, "exit"]));
    let told: Vec<_> = run.stderr.lines().collect();
    assert_eq!(told[0], format!("<stdin>:1: error: {message}"));
    assert_eq!(
        told[1..],
        ["<stdin>:2:1: expected value (a line is one JSON object)"]
    );
    wait_until("nothing is left running", || shell.processes().is_empty()).await;
}

fn kill_launcher(batch: &Running) {
    let pid = batch.pid().as_raw_nonzero();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten();
    let children = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap());
    let children: String = children.collect();
    let pids: Vec<i32> = children
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 1, "the launcher is the only child");
    let launcher = rustix::process::Pid::from_raw(pids[0]).unwrap();
    rustix::process::kill_process(launcher, Signal::KILL).unwrap();
}

/// EX-103, EX-104
#[tokio::test]
async fn an_interrupt_exits_130_with_whole_records_that_are_a_prefix_of_the_input() {
    for signal in [Signal::INT, Signal::TERM] {
        let shell = Shell::new();
        let mut calls: Vec<_> = (0..20).map(ok).collect();
        calls.push(gate(&shell));
        calls.extend((20..2000).map(ok));
        shell.write_lines("calls.jsonl", &calls);
        let batch = shell
            .fairtrial(["batch", "calls.jsonl", "--out", "out.jsonl", "-j", "4"])
            .start();
        gate_is_reached(&shell).await;
        wait_until("records come", || shell.size("out.jsonl") > 0).await;
        batch.signal(signal);
        let run = batch.end();
        assert_eq!(
            (run.code, &*run.stdout, &*run.stderr),
            (
                Some(130),
                "",
                "interrupted: what was running has been killed\n"
            ),
            "{signal:?}"
        );
        let text = shell.read("out.jsonl");
        assert!(text.ends_with('\n'), "the last record is whole");
        let records = records(&text);
        assert!(records.len() <= 20, "the gate never ended");
        for (record, call) in records.iter().zip(&calls) {
            assert_eq!(record["id"], call["id"]);
        }
        wait_until("nothing is left running", || shell.processes().is_empty()).await;
        assert!(shell.spilled().is_empty(), "{:?}", shell.spilled());
    }
}

/// EX-104
#[tokio::test]
async fn a_closed_standard_output_ends_the_run_quietly() {
    let shell = Shell::new();
    let calls: Vec<_> = (0..5000).map(ok).collect();
    shell.write_lines("calls.jsonl", &calls);
    let mut child = shell.fairtrial(["batch", "calls.jsonl"]).spawn();
    drop(child.stdout.take());
    wait_until("it ends long before its input does", || {
        child.try_wait().unwrap().is_some()
    })
    .await;
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    shell.assert_nothing_left();
}

/// EX-104
#[test]
fn an_output_that_cannot_be_written_exits_2_before_anything_starts() {
    let shell = Shell::new();
    shell.write_lines(
        "calls.jsonl",
        &[json!({"argv": ["touch", shell.path().join("started")]})],
    );
    std::fs::create_dir(shell.path().join("dir")).unwrap();
    let table = [
        ("missing/out.jsonl", "No such file or directory"),
        ("dir", "Is a directory"),
        // Nobody, not even root, makes files there.
        ("/sys/out.jsonl", "Permission denied"),
    ];
    for (place, reason) in table {
        let run = shell
            .fairtrial(["batch", "calls.jsonl", "--out", place])
            .run();
        let hint = "name a file in a directory that exists and can be written";
        assert_eq!(
            (run.code, run.stderr),
            (
                Some(2),
                format!("--out: cannot write `{place}`: {reason} ({hint})\n")
            )
        );
    }
    let run = shell
        .fairtrial(["batch", "calls.jsonl", "--out", "calls.jsonl"])
        .run();
    assert_eq!(
        (run.code, &*run.stderr),
        (
            Some(2),
            "--out: `calls.jsonl` is the file of calls itself (name another file)\n"
        )
    );
    assert!(!shell.path().join("started").exists());
    assert!(!shell.path().join("spill").exists());
}

/// EX-104: there is no resume; an old file is replaced.
#[test]
fn results_replace_those_of_the_run_before() {
    let shell = Shell::new();
    shell.write_lines("calls.jsonl", &[ok(1)]);
    shell.write("out.jsonl", &"old\n".repeat(1000));
    let run = shell
        .fairtrial(["batch", "calls.jsonl", "-o", "out.jsonl"])
        .run();
    assert_eq!((run.code, &*run.stdout), (Some(0), ""));
    assert_eq!(records(&shell.read("out.jsonl")).len(), 1);
}

#[test]
fn progress_is_shown_on_a_terminal_that_records_do_not_share_and_nowhere_else() {
    let shell = Shell::new();
    let calls: Vec<_> = (0..20).map(ok).collect();
    shell.write_lines("calls.jsonl", &calls);
    let apart = ["batch", "calls.jsonl", "--out", "out.jsonl"];
    let (code, shown) = shell.fairtrial(apart).run_on_terminal();
    assert_eq!(code, Some(0));
    assert!(
        shown.contains(" ok, 0 failed, ") && shown.contains(" calls/s"),
        "{shown:?}"
    );
    let quiet = apart.into_iter().chain(["--no-progress"]);
    assert_eq!(
        shell.fairtrial(quiet).run_on_terminal(),
        (Some(0), String::new())
    );
    let (_, shared) = shell.fairtrial(["batch", "calls.jsonl"]).run_on_terminal();
    assert_eq!(records(&shared).len(), 20, "records and nothing else");
    let piped = shell.fairtrial(apart).run();
    assert_eq!((&*piped.stdout, &*piped.stderr), ("", ""));
}

/// EX-80: also where a bad line names what it found.
#[test]
fn on_a_terminal_a_hostile_key_is_escaped() {
    let shell = Shell::new();
    shell.write("calls.jsonl", "{\"\\u001b[2Jevil\": 1}\n");
    let call = [
        "batch",
        "calls.jsonl",
        "--out",
        "out.jsonl",
        "--no-progress",
    ];
    let (code, shown) = shell.fairtrial(call).run_on_terminal();
    assert_eq!(code, Some(2));
    assert!(
        shown.starts_with("calls.jsonl:1:2: unknown key `\\u001b[2Jevil`"),
        "{shown:?}"
    );
}
