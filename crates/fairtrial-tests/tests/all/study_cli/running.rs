//! Runs and what becomes of them: statuses, evaluations, secrets, the examples.

use std::path::Path;

use fairtrial_tests::Shell;
use serde_json::Value as Json;

use super::{ask, ends, files, fixtures, run, table};

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
    print("called")
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
    let finishes = ask(&shell, "out", "SELECT count(*) FROM finishes");
    assert_eq!(starts, finishes); // ST-45
    let said = "SELECT stdout FROM finishes WHERE outcome LIKE '%TypeError%'";
    assert_eq!(ask(&shell, "out", said), ["called", ""], "once (ST-8)");
    let conditions = table(&shell, "out/conditions.csv");
    assert_eq!((conditions.len(), &*conditions[0]["f"]), (1, "1")); // ST-17
    ends(&run(&shell, &["export", "out", "--format", "json"]), 0);
    let first = shell.read("out/runs.jsonl");
    let first = first.lines().next().expect("a line");
    let first: Json = serde_json::from_str(first).expect("strict JSON");
    assert_eq!(first["metrics"]["reported.latency_s"], 9); // ST-16
    assert!(first["metrics"]["latency_s"].as_f64().expect("measured") < 5.0);
    let outcomes = ask(
        &shell,
        "out",
        "SELECT outcome FROM finishes WHERE status = 'timeout'",
    );
    let outcome: Json = serde_json::from_str(&outcomes[0]).expect("an outcome is JSON");
    assert!(
        outcome["error"]["traceback"]
            .as_str()
            .is_some_and(|text| text.contains("hangs")),
        "{outcome}"
    );
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

/// ST-37: agent and evaluator are two calls, in two processes, and the first is gone when the second begins.
#[test]
fn an_evaluator_runs_when_the_agent_is_gone() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import os\ndef go(run): return {'output': {'pid': os.getpid(), 'worker': os.environ['FAIRTRIAL_WORKER_ID']}}\n",
    );
    shell.write(
        "score.py",
        "import os\ndef score(task):\n    seen = task['output']\n    gone = not os.path.exists('/proc/%d' % seen['pid'])\n    \
         other = os.environ['FAIRTRIAL_WORKER_ID'] != seen['worker']\n    return {'gone': gone, 'other': other, 'own': \
         os.getpid() != seen['pid']}\n",
    );
    shell.write(
        "study.yaml",
        "study_id: e\ntitle: E\nfactors: {f: [1, 2, 3]}\nagents: {a: {python: 'agent.py:go', sandbox: none}}\nevaluator: \
         {python: 'score.py:score', sandbox: none}\nproblems: {p: {}}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let rows = table(&shell, "out/evaluations.csv");
    assert_eq!(rows.len(), 9);
    for row in rows {
        assert_eq!(row["metric_value"], "True", "{row:?}");
    }
}

/// ST-48: what cannot be kept fails its own run.
#[test]
fn a_result_that_cannot_be_stored_fails_its_run_only() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "def go(run):\n    kind = run['condition']['factors']['f']\n    if kind == 'large': return {'output': {'v': \
         'x' * 3_000_000}}\n    if kind == 'bytes': return {'output': {'v': b'x'}}\n    if kind == 'deep':\n        value = []\n        for _ in range(5000): value = \
         [value]\n        return {'output': {'v': value}}\n    if kind == 'object': return {'output': {'v': object()}}\n    \
         return {'output': {'v': 1}}\n",
    );
    shell.write(
        "study.yaml",
        "study_id: s\ntitle: S\nfactors: {f: [large, bytes, deep, object, fine]}\nagents: {a: {python: 'agent.py:go', limits: \
         {file_size: 1M}}}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    let rows = table(&shell, "out/runs.csv");
    let statuses: Vec<_> = rows.iter().map(|row| &*row["status"]).collect();
    assert_eq!(
        statuses,
        ["failed", "failed", "failed", "failed", "success"]
    );
    for row in &rows[..4] {
        assert!(!row["error_info"].is_empty(), "{row:?}");
    }
}

/// ST-42: workers by flag, by file, by variable; never more at once.
#[test]
fn as_many_runs_at_once_as_there_are_workers() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import os, pathlib, time\ndef go(run):\n    place = pathlib.Path(run['problem']['payload']['place'])\n    mine = \
         place / run['run_id']\n    mine.touch()\n    seen = len(list(place.iterdir()))\n    time.sleep(0.02)\n    \
         mine.unlink()\n    return {'output': {'seen': seen}, 'metrics': {'primary_outcome': seen}}\n",
    );
    let most = |file: &str, args: &[&str], variable: Option<&str>| {
        let out = tempfile::tempdir_in(shell.path()).expect("a directory");
        let place = tempfile::tempdir_in(shell.path()).expect("a directory");
        shell.write(
            "study.yaml",
            &format!(
                "study_id: j\ntitle: J\nrun_budget: {{replicates: 24{file}}}\nagents: {{a: {{python: 'agent.py:go', sandbox: \
                 none}}}}\nproblems: {{p: {{payload: {{place: '{}'}}}}}}\n",
                place.path().display()
            ),
        );
        let out = out.path().join("out").display().to_string();
        let mut all = vec!["run", "study.yaml", "--out", &out];
        all.extend(args);
        let mut command = shell.fairtrial(all);
        if let Some(count) = variable {
            command = command.env("FAIRTRIAL_MAX_WORKERS", count);
        }
        ends(&command.run(), 0);
        let name = out.strip_prefix(&shell.path().display().to_string());
        let name = format!("{}/runs.csv", name.expect("below").trim_start_matches('/'));
        let rows = table(&shell, &name);
        let seen = rows.iter().map(|row| row["primary_outcome"].parse::<f64>());
        seen.map(|seen| seen.expect("a number")).fold(0.0, f64::max)
    };
    assert!(most("", &["-j", "1"], None) == 1.0);
    assert!(most(", parallelism: 1", &[], None) == 1.0);
    assert!(most("", &[], Some("1")) == 1.0);
}

/// ST-42, ST-90: with `-j 3` three runs go on at once, each in a process of its own; the flag wins over the file.
#[test]
fn runs_go_on_at_the_same_time() {
    let shell = Shell::new();
    let place = shell.path().join("there");
    std::fs::create_dir(&place).expect("it can be made");
    shell.write(
        "agent.py",
        "import os, pathlib, time\ndef go(run):\n    place = pathlib.Path(run['problem']['payload']['place'])\n    (place / \
         str(os.getpid())).touch()\n    until = time.monotonic() + 30\n    while len(list(place.iterdir())) < 3:\n        if \
         time.monotonic() > until: raise TimeoutError('alone')\n        time.sleep(0.005)\n    return {'output': {}}\n",
    );
    shell.write(
        "study.yaml",
        &format!(
            "study_id: j\ntitle: J\nrun_budget: {{replicates: 3, parallelism: 1}}\nagents: {{a: {{python: 'agent.py:go', \
             sandbox: none}}}}\nproblems: {{p: {{payload: {{place: '{}'}}}}}}\n",
            place.display()
        ),
    );
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "-j", "3"]),
        0,
    );
}

/// ST-86: on a terminal how far it is; otherwise nothing but the summary, and with `--no-progress` not even there.
#[test]
fn progress_is_shown_on_a_terminal_only() {
    let shell = Shell::new();
    shell.write("agent.py", "def go(run): return {'output': {}}\n");
    shell.write(
        "study.yaml",
        "study_id: p\ntitle: P\nfactors: {f: [1, 2, 3]}\nagents: {a: 'agent.py:go'}\n",
    );
    let args = |out: &'static str| vec!["run", "study.yaml", "--out", out];
    let (code, shown) = shell.fairtrial(args("one")).run_on_terminal();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("3/3") && shown.contains("3 ok"), "{shown:?}");
    let mut quiet = args("two");
    quiet.push("--no-progress");
    let (code, shown) = shell.fairtrial(quiet).run_on_terminal();
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        !shown.contains("3/3") && shown.contains("3 success"),
        "{shown:?}"
    );
    let piped = run(&shell, &args("three"));
    ends(&piped, 0);
    assert_eq!(piped.stderr, "");
    assert_eq!(piped.stdout.lines().count(), 3, "{}", piped.stdout);
}
