//! Studies as a user runs them: `fairtrial run`, `resume`, `retry`, `status`, `export`.

use std::collections::BTreeMap;
use std::path::Path;

use fairtrial_tests::{Finished, Shell, wait_until};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

/// The rows of a CSV file of ours, by column.
fn table(shell: &Shell, name: &str) -> Vec<BTreeMap<String, String>> {
    let text = shell.read(name);
    let mut records = Vec::new();
    let (mut record, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => cell.push(chars.next().unwrap_or('"')),
            ('"', _) => quoted = !quoted,
            (',', false) => record.push(std::mem::take(&mut cell)),
            ('\r', false) => {}
            ('\n', false) => {
                record.push(std::mem::take(&mut cell));
                records.push(std::mem::take(&mut record));
            }
            (c, _) => cell.push(c),
        }
    }
    let header = records.remove(0);
    let named = |row: Vec<String>| header.iter().cloned().zip(row).collect();
    records.into_iter().map(named).collect()
}

fn run(shell: &Shell, args: &[&str]) -> Finished {
    shell.fairtrial(args.iter().copied()).run()
}

/// Ends with this code; else shows what it said.
fn ends(done: &Finished, code: i32) {
    assert_eq!(done.code, Some(code), "{}{}", done.stdout, done.stderr);
}

/// The journal's rows by a question that gives one column of text.
fn ask(shell: &Shell, directory: &str, question: &str) -> Vec<String> {
    let script = format!(
        "import sqlite3\nfor row in sqlite3.connect({:?}).execute({question:?}): print(row[0])",
        shell.path().join(directory).join("journal.sqlite")
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "a journal is read as a user would read it"
    )]
    let output = std::process::Command::new("python3")
        .args(["-c", &script])
        .output()
        .expect("python3 is there");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

const KINDS: &str = r#"
import asyncio, os, signal, sys, time

def fine(run):
    return {"output": {"seed": run["seed"]}, "metrics": {"latency_s": 9}}

async def awaited(run):
    await asyncio.sleep(0)
    return {"text": "hi"}

def raises(run):
    raise ValueError("no luck")

def type_error(run):
    open(run["agent_id"] + ".called", "a").write("x")
    return len(3)

def exits(run):
    sys.exit(3)

def leaves(run):
    os._exit(0)

def aborts(run):
    os.abort()

def recurses(run):
    return recurses(run)

def hangs(run):
    time.sleep(60)

def not_ok(run):
    return {"ok": False, "error": "I give up"}

def bare(run):
    return 3

def wrapped(run):
    return {"answer": 3}

def sets(run):
    return {"output": {"x": {1}}}

def overwrites(run):
    run["condition"]["factors"].clear()
    os.environ["HOME"] = "/nowhere"
    os.chdir("/")
    return {"output": {}}

def forks(run):
    if os.fork() == 0:
        time.sleep(60)
    return {"output": {}}
"#;

/// ST-8, ST-10, ST-11, ST-12, ST-16, ST-17, ST-40, ST-44, ST-46
#[test]
fn every_kind_of_end_has_its_status_and_costs_its_own_run() {
    let cases = [
        ("fine", "success", "agent", "ok", ""),
        ("awaited", "success", "agent", "ok", ""),
        (
            "raises",
            "failed",
            "agent",
            "exception",
            "ValueError: no luck",
        ),
        (
            "type_error",
            "failed",
            "agent",
            "exception",
            "TypeError: object of type 'int'",
        ),
        ("exits", "failed", "agent", "exception", "SystemExit: 3"),
        ("leaves", "crashed", "agent", "no_result", ""),
        ("aborts", "crashed", "agent", "signal", ""),
        ("recurses", "failed", "agent", "exception", "RecursionError"),
        ("hangs", "timeout", "agent", "timeout", ""),
        ("not_ok", "failed", "agent", "ok", "AgentFailed: I give up"),
        (
            "bare",
            "failed",
            "result",
            "ok",
            "BadResult: the result is an integer",
        ),
        (
            "wrapped",
            "failed",
            "result",
            "ok",
            "{\"output\": {\"answer\": …}}",
        ),
        ("sets", "failed", "result", "ok", "`output.x` is a set"),
        ("overwrites", "success", "agent", "ok", ""),
        ("forks", "success", "agent", "ok", ""),
        ("command", "success", "agent", "ok", ""),
        ("chatty", "success", "agent", "ok", ""),
        ("garbage", "failed", "result", "ok", "stdout is no JSON"),
        ("fails", "failed", "agent", "exit", ""),
    ];
    let shell = Shell::new();
    shell.write("kinds.py", KINDS);
    let mut agents = String::new();
    for (name, ..) in cases {
        let entry = match name {
            "command" => {
                "command: [sh, -c, 'cat >/dev/null; echo \"{\\\"text\\\": \\\"x\\\"}\"']".into()
            }
            "chatty" => {
                "command: [sh, -c, 'echo log; echo \"{\\\"text\\\": \\\"x\\\"}\"; echo']".into()
            }
            "garbage" => "command: [echo, 'not json']".into(),
            "fails" => "command: [sh, -c, 'exit 4']".into(),
            python => format!("python: 'kinds.py:{python}'"),
        };
        agents += &format!("  {name}: {{{entry}, timeout: 3}}\n");
    }
    let study = format!(
        "study_id: kinds\ntitle: Kinds\nfactors: {{f: [1]}}\nagents:\n{agents}order: {{policy: plan}}\n"
    );
    shell.write("study.yaml", &study);
    let done = run(&shell, &["run", "study.yaml", "--out", "out", "-j", "4"]);
    ends(&done, 3);
    let runs = table(&shell, "out/runs.csv");
    assert_eq!(runs.len(), cases.len());
    for (row, (name, status, stage, verdict, error)) in runs.iter().zip(cases) {
        assert_eq!(row["agent_id"], name);
        let found = (&*row["status"], &*row["stage"], &*row["verdict"]);
        assert_eq!(found, (status, stage, verdict), "{name}: {row:?}");
        assert!(row["error_info"].contains(error), "{name}: {row:?}");
    }
    let latency: f64 = runs[0]["latency_s"].parse().expect("a number");
    assert!(latency < 5.0, "what an agent reports is no measurement");
    assert!(shell.processes().is_empty(), "nothing is left running");
    let starts = ask(&shell, "out", "SELECT count(*) FROM starts");
    let ends = ask(&shell, "out", "SELECT count(*) FROM finishes");
    assert_eq!(starts, ends); // ST-45
    let stderr = ask(
        &shell,
        "out",
        "SELECT outcome FROM finishes WHERE status = 'timeout'",
    );
    let outcome: Json = serde_json::from_str(&stderr[0]).expect("an outcome is JSON");
    assert!(
        outcome["error"]["traceback"]
            .as_str()
            .is_some_and(|text| text.contains("hangs")),
        "{outcome}"
    );
}

const DRAWS: &str = "
import random, time
def draw(run):
    first = random.random()
    time.sleep(random.random() * 0.002)
    try:
        import numpy
        third = float(numpy.random.random())
    except ImportError:
        third = 0
    return {'output': {'first': first, 'second': random.random(), 'third': third, 'set': str({'a', 'b', 'c'})}}
def score(task):
    return task['output']['first']
";

fn draws(shell: &Shell, isolation: &str) {
    shell.write("draws.py", DRAWS);
    let study = format!(
        "study_id: draws\ntitle: Draws\nfactors: {{f: [1, 2, 3]}}\nagents:\n  a: {{python: 'draws.py:draw', isolation: \
         {isolation}}}\nevaluator: 'draws.py:score'\nrun_budget: {{replicates: 4}}\n"
    );
    shell.write("study.yaml", &study);
}

/// Every file of a directory but the journal's.
fn files(shell: &Shell, directory: &str) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(shell.path().join(directory)).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        if path.is_file() {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            found.insert(name, std::fs::read(&path).expect("it can be read"));
        }
    }
    found
}

/// ST-30, ST-36, ST-38, ST-76
#[test]
fn masked_tables_are_the_same_bytes_at_any_parallelism() {
    for isolation in ["fresh", "reuse"] {
        let shell = Shell::new();
        draws(&shell, isolation);
        let mut seen = None;
        for jobs in ["1", "2", "8"] {
            let out = format!("out-{jobs}");
            ends(
                &run(&shell, &["run", "study.yaml", "--out", &out, "-j", jobs]),
                0,
            );
            let masked = format!("masked-{jobs}");
            ends(
                &run(
                    &shell,
                    &["export", &out, "--to", &masked, "--mask-volatile"],
                ),
                0,
            );
            let found = files(&shell, &masked);
            assert!(found.len() >= 8, "{:?}", found.keys());
            let firsts = table(&shell, &format!("{masked}/runs.csv"));
            let mut drawn: Vec<_> = firsts.iter().map(|row| &row["primary_outcome"]).collect();
            drawn.sort();
            drawn.dedup();
            assert_eq!(drawn.len(), 12, "each run draws its own numbers");
            match &seen {
                None => seen = Some(found),
                Some(seen) => assert_eq!(*seen, found, "{isolation}, -j {jobs}"),
            }
        }
    }
}

/// ST-64, ST-72
#[test]
fn a_directory_that_holds_a_study_is_not_overwritten() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let before = files(&shell, "out");
    let refused = run(&shell, &["run", "study.yaml", "--out", "out"]);
    ends(&refused, 2);
    assert!(refused.stderr.contains("--resume"), "{}", refused.stderr);
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "--resume"]),
        0,
    );
    ends(&run(&shell, &["resume", "out"]), 0);
    assert_eq!(files(&shell, "out"), before);
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "--fresh"]),
        0,
    );
    let moved = files(&shell, "out.old-1");
    assert_eq!(moved, before);
    // What holds no study is nobody's to move; what DRE left is not overwritten.
    shell.write("mine/notes.txt", "mine");
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "mine", "--fresh"]),
        0,
    );
    assert_eq!(shell.read("mine/notes.txt"), "mine");
    shell.write("theirs/artifacts/checkpoints/run-0000000000aa.json", "{}");
    ends(&run(&shell, &["run", "study.yaml", "--out", "theirs"]), 2);
    assert!(!shell.path().join("theirs/journal.sqlite").exists());
    std::fs::remove_file(shell.path().join("study.yaml")).expect("it is there");
    let gone = run(&shell, &["resume", "out"]);
    ends(&gone, 2);
    assert!(gone.stderr.contains("study.yaml"), "{}", gone.stderr);
}

const CHANGING: &str = "study_id: c
title: C
factors: {f: [1, 2]}
agents:
  a: agent_a.py:go
  b: agent_b.py:go
problems:
  p: {payload: {x: 1}}
  q: {payload: {x: 2}}
evaluator: score.py:score
seed_policy: {base_seed: 5}
";

/// ST-65, ST-66, ST-67, ST-71: exactly what changed acts.
#[test]
fn a_change_is_named_and_only_what_it_touches_runs_again() {
    let shell = Shell::new();
    let agent = "def go(run): return {'output': {'x': run['problem']['payload']['x']}}\n";
    shell.write("agent_a.py", agent);
    shell.write("agent_b.py", agent);
    shell.write("score.py", "def score(task): return task['output']['x']\n");
    shell.write("study.yaml", CHANGING);
    let plan = |actions: Json| {
        let done = run(&shell, &["plan", "study.yaml", "--json"]);
        ends(&done, 0);
        let found: Json = serde_json::from_str(&done.stdout).expect("a plan is JSON");
        for (key, count) in actions.as_object().expect("an object") {
            assert_eq!(found["counts"][key], *count, "{key}: {}", found["counts"]);
        }
        found
    };
    plan(json!({"run": 8, "reuse": 0}));
    ends(&run(&shell, &["run", "study.yaml"]), 0);
    plan(json!({"run": 0, "reuse": 8}));

    shell.write("agent_b.py", &agent.replace("'x':", "'y': 1, 'x':"));
    let found = plan(json!({"rerun": 4, "reuse": 4}));
    let reasons: Vec<_> = found["runs"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|run| run["agent_id"] == "b")
        .map(|run| run["reason"].as_str().expect("text"))
        .collect();
    assert!(
        reasons
            .iter()
            .all(|reason| reason.starts_with("agent changed (")),
        "{reasons:?}"
    );
    let refused = run(&shell, &["run", "study.yaml", "--resume"]);
    ends(&refused, 2);
    assert!(
        refused.stderr.contains("agent changed (4)"),
        "{}",
        refused.stderr
    );
    ends(
        &run(
            &shell,
            &["run", "study.yaml", "--resume", "--accept", "agent:b"],
        ),
        0,
    );
    plan(json!({"reuse": 8})); // that it was accepted is known
    assert_eq!(
        ask(
            &shell,
            "artifacts/c",
            "SELECT count(*) FROM decisions WHERE reason LIKE 'accepted: agent changed%'"
        ),
        ["4"]
    );
    shell.write("agent_b.py", &agent.replace("'x':", "'z': 1, 'x':"));
    let done = run(
        &shell,
        &["run", "study.yaml", "--resume", "--rerun", "changed"],
    );
    ends(&done, 0);
    assert!(
        done.stdout.contains("4 run now, 4 taken"),
        "{}",
        done.stdout
    );
    plan(json!({"reuse": 8}));

    shell.write("score.py", "def score(task): return -task['output']['x']\n");
    plan(json!({"evaluate": 8}));
    ends(&run(&shell, &["run", "study.yaml", "--resume"]), 0);
    let scores: Vec<_> = table(&shell, "artifacts/c/evaluations.csv")
        .iter()
        .map(|row| row["metric_value"].clone())
        .collect();
    assert_eq!(scores, ["-1", "-2", "-1", "-2", "-1", "-2", "-1", "-2"]);
    assert_eq!(
        ask(&shell, "artifacts/c", "SELECT count(*) FROM starts"),
        ["12"]
    );

    shell.write("study.yaml", &CHANGING.replace("x: 2", "x: 3"));
    plan(json!({"rerun": 4, "reuse": 4}));
    shell.write(
        "study.yaml",
        &CHANGING.replace("base_seed: 5", "base_seed: 6"),
    );
    plan(json!({"rerun": 8}));
    shell.write("study.yaml", &CHANGING.replace("f: [1, 2]", "f: [1, 3]"));
    plan(json!({"run": 4, "reuse": 4, "orphans": 4}));
    ends(&run(&shell, &["run", "study.yaml", "--resume"]), 0);
    assert_eq!(table(&shell, "artifacts/c/runs.csv").len(), 8);

    // Nothing is left to run, and the tables are still those of the study as it is now.
    shell.write("study.yaml", &CHANGING.replace("f: [1, 2]", "f: [3]"));
    let done = run(&shell, &["run", "study.yaml", "--resume"]);
    ends(&done, 0);
    assert!(done.stdout.contains("nothing to do"), "{}", done.stdout);
    assert_eq!(table(&shell, "artifacts/c/runs.csv").len(), 4);
    ends(&run(&shell, &["verify", "artifacts/c"]), 0);
    let before = files(&shell, "artifacts/c");
    ends(&run(&shell, &["run", "study.yaml", "--resume"]), 0);
    assert_eq!(files(&shell, "artifacts/c"), before);
}

/// ST-49, ST-70
#[test]
fn retries_are_all_kept_and_the_last_is_shown() {
    let shell = Shell::new();
    let agent = "def go(run):\n    if run['attempt'] < 3: raise ValueError(f\"attempt {run['attempt']}\")\n    return \
                 {'output': {'seed': run['seed']}}\n";
    shell.write("agent.py", agent);
    shell.write(
        "study.yaml",
        "study_id: r\ntitle: R\nfactors: {f: [1]}\nagents:\n  a: {python: 'agent.py:go', retries: 1}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    assert_eq!(table(&shell, "out/runs.csv")[0]["status"], "failed");
    ends(&run(&shell, &["resume", "out"]), 3);
    ends(&run(&shell, &["retry", "out", "--status", "timeout"]), 3);
    ends(&run(&shell, &["retry", "out"]), 0);
    let row = &table(&shell, "out/runs.csv")[0];
    assert_eq!((&*row["status"], &*row["attempts"]), ("success", "3"));
    let attempts = table(&shell, "out/attempts.csv");
    let statuses: Vec<_> = attempts.iter().map(|row| &*row["status"]).collect();
    assert_eq!(statuses, ["failed", "failed", "success"]);
    assert_eq!(attempts[1]["error_message"], "attempt 2");
    let status = run(&shell, &["status", "out", "--json"]);
    let status: Json = serde_json::from_str(&status.stdout).expect("a status is JSON");
    assert_eq!(status["retried_successes"], 1);
}

/// ST-47, ST-53
#[test]
fn a_failed_evaluation_keeps_the_output_and_is_not_well() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "def go(run): return {'output': {'x': 1}}\ndef score(task): raise KeyError('x')\n",
    );
    shell.write(
        "study.yaml",
        "study_id: e\ntitle: E\nfactors: {f: [1, 2]}\nagents: {a: 'agent.py:go'}\nevaluator: 'agent.py:score'\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    for row in table(&shell, "out/runs.csv") {
        assert_eq!(
            (&*row["status"], &*row["evaluation_status"]),
            ("success", "failed")
        );
    }
    let outputs = table(&shell, "out/attempts.csv");
    assert_eq!(outputs[0]["output_json"], "{\"x\":1}");
    for (allowed, code) in [("1", 3), ("2", 0), ("50%", 3), ("100%", 0)] {
        let done = run(&shell, &["resume", "out", "--allow-failures", allowed]);
        ends(&done, code);
    }
}

/// ST-7
#[test]
fn a_passed_secret_is_found_nowhere() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import os, sys\ndef go(run):\n    key = os.environ['MY_KEY']\n    print(key)\n    print('x' + key, \
         file=sys.stderr)\n    return {'output': {'key': key, key: [key]}}\n",
    );
    shell.write(
        "study.yaml",
        "study_id: k\ntitle: K\nfactors: {f: [1]}\nagents:\n  a: {python: 'agent.py:go', pass_env: [MY_KEY]}\n",
    );
    let done = shell
        .fairtrial(["run", "study.yaml", "--out", "out"])
        .env("MY_KEY", "sk-1234567890")
        .run();
    ends(&done, 0);
    for (name, bytes) in files(&shell, "out") {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("sk-1234567890"), "{name}");
        assert!(name != "attempts.csv" || text.contains("***"), "{text}");
    }
}

const SLEEPERS: &str = "
import os, time
def go(run):
    if run['condition']['factors']['f'] == 0:
        raise ValueError('first')
    open('started-%s' % run['run_id'], 'w').close()
    time.sleep(60)
";

/// ST-51, ST-52, ST-69
#[test]
fn a_failure_can_stop_the_study_and_a_resume_finishes_it() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import time\ndef go(run):\n    if run['condition']['factors']['f'] == 0: raise ValueError('first')\n    \
         time.sleep(60)\n",
    );
    shell.write(
        "study.yaml",
        "study_id: f\ntitle: F\nfactors: {f: [1, 2, 3, 4, 0, 5, 6]}\nagents: {a: 'agent.py:go'}\norder: {policy: \
         plan}\non_failure: stop\n",
    );
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "-j", "5"]),
        3,
    );
    assert_eq!(
        ask(&shell, "out", "SELECT status FROM finishes ORDER BY status"),
        ["cancelled", "cancelled", "cancelled", "cancelled", "failed"]
    );
    assert_eq!(
        ask(&shell, "out", "SELECT reason FROM invocation_ends"),
        ["stopped"]
    );
    assert!(shell.processes().is_empty());
    shell.write("agent.py", "def go(run): return {'output': {}}\n");
    ends(&run(&shell, &["resume", "out"]), 3);
    let status = run(&shell, &["status", "out"]);
    assert!(
        status.stdout.contains("6 success") && status.stdout.contains("1 failed"),
        "{}",
        status.stdout
    );
}

/// ST-45, ST-54
#[tokio::test]
async fn an_interrupt_stops_what_runs_records_it_and_exports() {
    let shell = Shell::new();
    shell.write("agent.py", SLEEPERS);
    shell.write(
        "study.yaml",
        "study_id: i\ntitle: I\nfactors: {f: [1, 2]}\nagents: {a: {python: 'agent.py:go', sandbox: none}}\nrun_budget: \
         {replicates: 10}\n",
    );
    let running = shell
        .fairtrial(["run", "study.yaml", "--out", "out", "-j", "2"])
        .start();
    wait_until("two runs began", || {
        shell.path().join("out/journal.sqlite").exists()
            && ask(
                &shell,
                "out",
                "SELECT count(*) FROM sqlite_master WHERE name = 'starts'",
            ) == ["1"]
            && ask(&shell, "out", "SELECT count(*) FROM starts") == ["2"]
    })
    .await;
    running.signal(Signal::INT);
    let done = running.end();
    ends(&done, 130);
    assert_eq!(
        ask(&shell, "out", "SELECT status FROM finishes"),
        ["cancelled", "cancelled"]
    );
    assert_eq!(
        ask(&shell, "out", "SELECT reason FROM invocation_ends"),
        ["interrupted"]
    );
    assert!(shell.path().join("out/runs.csv").exists());
    let attempts = table(&shell, "out/attempts.csv"); // ST-45: also of runs that never came to an end of their own
    let statuses: Vec<_> = attempts.iter().map(|row| &*row["status"]).collect();
    assert_eq!(statuses, ["cancelled", "cancelled"]);
    assert!(shell.processes().is_empty());
    let found = run(&shell, &["plan", "study.yaml"]);
    ends(&found, 0);
}

/// ST-63
#[tokio::test]
async fn a_second_engine_is_refused_and_changes_nothing() {
    let shell = Shell::new();
    shell.write("agent.py", "import time\ndef go(run): time.sleep(60)\n");
    shell.write(
        "study.yaml",
        "study_id: l\ntitle: L\nfactors: {f: [1, 2]}\nagents: {a: 'agent.py:go'}\n",
    );
    let first = shell
        .fairtrial(["run", "study.yaml", "--out", "out", "-j", "1"])
        .start();
    wait_until("it writes", || {
        run(&shell, &["status", "out"])
            .stdout
            .contains("being run by process")
    })
    .await;
    let second = run(&shell, &["run", "study.yaml", "--out", "out", "--resume"]);
    ends(&second, 2);
    let pid = first.pid().as_raw_nonzero().to_string();
    assert!(
        second.stderr.contains(&format!("process {pid}")),
        "{}",
        second.stderr
    );
    first.signal(Signal::KILL);
    drop(first.end());
    assert_eq!(
        ask(&shell, "out", "SELECT count(*) FROM invocations"),
        ["1"]
    );
}

/// ST-60, ST-61: a few points of what `make torture` does at two hundred.
#[tokio::test]
async fn what_was_recorded_survives_a_kill_and_is_not_run_again() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    let whole = shell
        .read("study.yaml")
        .replace("replicates: 4", "replicates: 250");
    shell.write("study.yaml", &whole);
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "calm", "-j", "2"]),
        0,
    );
    let mut recorded = 0;
    for kill in 0..4 {
        let running = shell
            .fairtrial(["run", "study.yaml", "--out", "out", "--resume", "-j", "2"])
            .start();
        wait_until("it went on", || {
            shell.path().join("out/journal.sqlite").exists()
                && ask(
                    &shell,
                    "out",
                    "SELECT count(*) FROM sqlite_master WHERE name = 'starts'",
                ) == ["1"]
                && finished(&shell) > recorded + 10
        })
        .await;
        running.signal(Signal::KILL);
        drop(running.end());
        let now = finished(&shell);
        assert!(now > recorded, "kill {kill}");
        recorded = now;
    }
    ends(&run(&shell, &["resume", "out", "-j", "2"]), 0);
    let twice = ask(
        &shell,
        "out",
        "SELECT run_id FROM finishes GROUP BY run_id HAVING count(*) > 1",
    );
    assert!(twice.is_empty(), "{twice:?}");
    let lost = ask(
        &shell,
        "out",
        "SELECT count(*) FROM starts LEFT JOIN finishes USING (id) WHERE finishes.id IS NULL",
    );
    assert!(
        lost[0].parse::<u64>().expect("a number") <= 2 * 4,
        "{lost:?}"
    );
    for name in ["calm", "out"] {
        let masked = format!("{name}-masked");
        ends(
            &run(
                &shell,
                &["export", name, "--to", &masked, "--mask-volatile"],
            ),
            0,
        );
    }
    assert_eq!(files(&shell, "calm-masked"), files(&shell, "out-masked"));
}

fn finished(shell: &Shell) -> u64 {
    let count = ask(shell, "out", "SELECT count(*) FROM finishes");
    count[0].parse().expect("a number")
}

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairtrial-study/tests/fixtures")
}

const GOLDEN_AGENTS: &str = r#"
def good(*, problem_packet, seed, condition):
    return {
        "output": {"text": f'hello, "{seed}"\nline2', "v": condition.factor_assignments["n"]},
        "metrics": {"cost_usd": 0.1, "input_tokens": "12", "extra": True},
        "events": [
            {"event_type": "tool_call", "text": "é", "actor_id": "me", "meta_json": {"b": 1, "a": [1.0, None]},
             "timestamp": "2026-01-01T00:00:00+00:00"},
            {"event_type": "step", "level": "tool-call", "timestamp": "2026-01-01T00:00:01+00:00"},
        ],
        "metadata": {"model_name": "m1"},
        "trace_refs": ["t/1.json"],
    }

def bad(*, problem_packet, seed):
    raise ValueError('nope, "quoted"')

def evaluate(output):
    return {"score": float(output["v"]), "ok": True, "higher_is_better": True, "skipme": "str"}
"#;

/// The study of the fixtures, its agents bound.
fn golden_study(shell: &Shell) {
    let study = fixtures().join("studies/golden_mini/study.yaml");
    let study = std::fs::read_to_string(study).expect("the fixture is there");
    shell.write("agents.py", GOLDEN_AGENTS);
    shell.write(
        "study.yaml",
        &format!(
            "{study}agents: {{good: 'agents.py:good', bad: 'agents.py:bad'}}\nproblems:\n  p1: {{family: fam, brief: \
             brief, evaluator: 'agents.py:evaluate'}}\n"
        ),
    );
}

/// By the fixtures' own comparison.
fn equals_golden(shell: &Shell, python: &std::ffi::OsStr, out: &str) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the fixtures' own comparison is run as it is"
    )]
    let compared = std::process::Command::new(python)
        .arg(fixtures().join("compare_artifacts.py"))
        .arg(fixtures().join("golden_mini_artifacts"))
        .arg(shell.path().join(out))
        .output()
        .expect("the interpreter runs");
    let said = [compared.stdout, compared.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&said).trim(), "equal");
}

/// SF-66, SF-45 to SF-58
#[test]
fn artifacts_equal_those_of_dre() {
    let Some(python) = std::env::var_os("FAIRTRIAL_TEST_NUMPY") else {
        fairtrial_tests::note(
            "FAIRTRIAL_TEST_NUMPY names no interpreter with PyYAML: artifacts are not compared",
        );
        return;
    };
    let shell = Shell::new();
    golden_study(&shell);
    for jobs in ["1", "4"] {
        let out = format!("out-{jobs}");
        let done = run(
            &shell,
            &[
                "run",
                "study.yaml",
                "--compat",
                "dre-0.2",
                "--out",
                &out,
                "-j",
                jobs,
            ],
        );
        ends(&done, 3);
        equals_golden(&shell, &python, &out);
    }
}

/// ST-84, ST-85, SF-56: a half-done directory of DRE's is finished, and equals a whole one.
#[test]
fn a_half_done_directory_of_dre_is_finished() {
    let Some(python) = std::env::var_os("FAIRTRIAL_TEST_NUMPY") else {
        fairtrial_tests::note(
            "FAIRTRIAL_TEST_NUMPY names no interpreter with PyYAML: artifacts are not compared",
        );
        return;
    };
    let shell = Shell::new();
    golden_study(&shell);
    let theirs = fixtures().join("golden_mini_artifacts/artifacts/checkpoints");
    let mut kept = Vec::new();
    for (number, entry) in std::fs::read_dir(theirs)
        .expect("the fixture is there")
        .enumerate()
    {
        let path = entry.expect("it can be listed").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let place = format!("out/artifacts/checkpoints/{name}");
        match number % 3 {
            _ if name == "runs.jsonl" => {}
            0 => {}
            1 => _ = shell.write(&place, &text[..text.len() / 2]),
            _ => {
                shell.write(&place, &text);
                kept.push(name);
            }
        }
    }
    let done = run(
        &shell,
        &[
            "run",
            "study.yaml",
            "--compat",
            "dre-0.2",
            "--out",
            "out",
            "--resume",
        ],
    );
    ends(&done, 3);
    assert!(done.stderr.contains("is no checkpoint"), "{}", done.stderr);
    let imported = ask(
        &shell,
        "out",
        "SELECT count(*) FROM finishes WHERE stage = 'imported'",
    );
    assert_eq!(imported, [kept.len().to_string()]);
    equals_golden(&shell, &python, "out");
    let again = run(
        &shell,
        &[
            "run",
            "study.yaml",
            "--compat",
            "dre-0.2",
            "--out",
            "out",
            "--resume",
        ],
    );
    assert!(again.stdout.contains("nothing to do"), "{}", again.stdout);
}

const MONTY: &str = r#"
import random
def play(run):
    draw, wins = random.Random(run["seed"]), 0
    switches = "switch" in run["condition"]["factors"].values()
    for _ in range(100):
        prize, pick = draw.choice("ABC"), draw.choice("ABC")
        opened = draw.choice([door for door in "ABC" if door not in (prize, pick)])
        if switches:
            pick = next(door for door in "ABC" if door not in (pick, opened))
        wins += pick == prize
    return {"output": {"wins": wins}, "metrics": {"primary_outcome": wins}}
"#;

/// SF-64, ST-15
#[test]
fn monty_hall_gives_the_published_result() {
    let shell = Shell::new();
    let study = fixtures().join("studies/example_monty_hall/study.yaml");
    let study = std::fs::read_to_string(study).expect("the fixture is there");
    shell.write("monty.py", MONTY);
    shell.write(
        "study.yaml",
        &format!("{study}runner: {{python: 'monty.py:play', contract: run}}\n"),
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let wins: Vec<_> = table(&shell, "out/runs.csv")
        .iter()
        .map(|row| (row["seed"].clone(), row["primary_outcome"].clone()))
        .collect();
    let expected = [("397132767", "32"), ("867881480", "70")];
    assert_eq!(
        wins,
        expected.map(|(seed, wins)| (seed.to_owned(), wins.to_owned()))
    );
}

/// ST-78
#[test]
fn an_edited_value_is_found() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let verify = || run(&shell, &["verify", "out"]);
    ends(&verify(), 0);
    for name in [
        "runs.csv",
        "events.csv",
        "conditions.csv",
        "study.yaml",
        "study.input.yaml",
    ] {
        let path = format!("out/{name}");
        let before = shell.read(&path);
        shell.write(&path, &before.replacen('1', "2", 1));
        let found = verify();
        ends(&found, 3);
        assert_eq!(
            found.stdout,
            format!("{name}: changed since it was written\n")
        );
        shell.write(&path, &before);
    }
    // One that covers its traces: the table's hash is changed, too.
    let (runs, sealed) = (shell.read("out/runs.csv"), shell.read("out/fairtrial.json"));
    let forged = runs.replacen("success", "failed", 1);
    shell.write("out/runs.csv", &forged);
    let script = "import hashlib, json, sys\n\
        data = json.load(open('out/fairtrial.json'))\n\
        data['files']['runs.csv'] = hashlib.sha256(open('out/runs.csv', 'rb').read()).hexdigest()\n\
        json.dump(data, open('out/fairtrial.json', 'w'))\n";
    python(&shell, script);
    let found = verify();
    ends(&found, 3);
    assert_eq!(found.stdout, "runs.csv: is not what the journal says\n");
    shell.write("out/runs.csv", &runs);
    shell.write("out/fairtrial.json", &sealed);
    python(
        &shell,
        "import sqlite3\n\
         database = sqlite3.connect('out/journal.sqlite')\n\
         database.execute(\"UPDATE finishes SET stdout = 'x' WHERE id = 3\")\n\
         database.commit()\n",
    );
    let found = verify();
    ends(&found, 3);
    assert!(
        found.stdout.starts_with("journal.sqlite: "),
        "{}",
        found.stdout
    );
}

fn python(shell: &Shell, script: &str) {
    #[expect(clippy::disallowed_methods, reason = "somebody else changes a file")]
    let status = std::process::Command::new("python3")
        .args(["-c", script])
        .current_dir(shell.path())
        .status()
        .expect("python3 is there");
    assert!(status.success());
}

/// ST-80
#[test]
fn a_bundle_has_the_same_bytes_each_time() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out.v1"]), 0);
    ends(&run(&shell, &["bundle", "out.v1"]), 0);
    let first = std::fs::read(shell.path().join("out.v1.tar.gz")).expect("it is there");
    ends(
        &run(&shell, &["bundle", "out.v1", "--out", "again.tar.gz"]),
        0,
    );
    assert_eq!(
        std::fs::read(shell.path().join("again.tar.gz")).expect("it is there"),
        first
    );
    python(
        &shell,
        "import tarfile\n\
         names = [m.name for m in tarfile.open('out.v1.tar.gz')]\n\
         assert names == sorted(names) and 'out.v1/journal.sqlite' in names and 'out.v1/runs.csv' in names, names\n\
         assert not any('wal' in n or 'lock' in n for n in names), names\n\
         tarfile.open('out.v1.tar.gz').extractall('unpacked')\n",
    );
    ends(&run(&shell, &["status", "unpacked/out.v1"]), 0);
    let missing = run(&shell, &["bundle", "nowhere"]);
    ends(&missing, 2);
    assert!(!shell.path().join("nowhere.tar.gz").exists());
}

/// ST-79
#[test]
fn a_rescore_evaluates_and_never_runs_an_agent() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "def go(run): return {'output': {'x': 2}}\ndef broken(run): raise ValueError\n",
    );
    shell.write("score.py", "def score(task): return task['output']['x']\n");
    shell.write(
        "study.yaml",
        "study_id: s\ntitle: S\nfactors: {f: [1]}\nagents: {a: 'agent.py:go', b: 'agent.py:broken'}\nproblems: {p: {}, q: \
         {}}\nevaluator: 'score.py:score'\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    let scores = || -> Vec<String> {
        let rows = table(&shell, "out/evaluations.csv");
        rows.iter().map(|row| row["metric_value"].clone()).collect()
    };
    assert_eq!(scores(), ["2", "2"]);
    shell.write(
        "score.py",
        "def score(task): return 10 * task['output']['x']\n",
    );
    ends(&run(&shell, &["rescore", "out", "--problem", "q"]), 3);
    assert_eq!(scores(), ["2", "20"]);
    ends(&run(&shell, &["rescore", "out"]), 3);
    assert_eq!(scores(), ["20", "20"]);
    ends(&run(&shell, &["rescore", "out", "--all"]), 3);
    assert_eq!(ask(&shell, "out", "SELECT count(*) FROM starts"), ["4"]);
    assert_eq!(
        ask(&shell, "out", "SELECT count(*) FROM evaluations"),
        ["6"]
    );
}

/// The examples do what they show.
#[test]
fn the_examples_run() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/studies");
    let shell = Shell::new();
    for (name, code, said) in [
        ("monty_hall", 0, "40 runs: 40 success"),
        ("tours", 3, "3 evaluations not well"),
        ("shell", 0, "8 runs: 8 success"),
    ] {
        let study = examples.join(name).join("study.yaml").display().to_string();
        let done = run(&shell, &["run", &study, "--out", name, "-j", "2"]);
        ends(&done, code);
        assert!(done.stdout.contains(said), "{}", done.stdout);
    }
    let wins = |strategy: &str| -> f64 {
        let conditions = table(&shell, "monty_hall/conditions.csv");
        let condition = conditions.iter().find(|row| row["strategy"] == strategy);
        let id = &condition.expect("there is one")["condition_id"];
        let runs = table(&shell, "monty_hall/runs.csv");
        let rates = runs.iter().filter(|row| row["condition_id"] == *id);
        let rates: Vec<f64> = rates
            .map(|row| row["primary_outcome"].parse().expect("a number"))
            .collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    };
    assert!(wins("stay") < 0.4 && wins("switch") > 0.6);
    // Paths are the file's, wherever one is.
    let here = shell.path().join("here");
    std::fs::create_dir(&here).expect("it can be made");
    for file in ["study.yaml", "loop.sh", "sum.awk"] {
        std::fs::copy(examples.join("shell").join(file), here.join(file)).expect("it is there");
    }
    let done = shell
        .fairtrial(["run", "study.yaml", "--out", "out"])
        .current_dir(&here)
        .run();
    ends(&done, 0);
}
