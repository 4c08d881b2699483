//! Going on with a study: what runs again, what does not, and who is asked.

use fairtrial_tests::Shell;
use serde_json::{Value as Json, json};

use super::{ask, draws, ends, files, run, table};

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

/// ST-79, ST-67: what is not there cannot be meant.
#[test]
fn a_wish_that_names_nothing_is_refused() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let before = files(&shell, "out");
    for (args, said) in [
        (
            ["retry", "out", "--run", "run-000000000000"],
            "no run `run-000000000000`",
        ),
        (["retry", "out", "--condition", "f=1"], "no condition `f=1`"),
        (
            ["resume", "out", "--accept", "nonsense"],
            "no change `nonsense`",
        ),
        (
            ["resume", "out", "--accept", "seeds"],
            "did you mean `seed`?",
        ),
        (
            ["rescore", "out", "--problem", "nowhere"],
            "no problem `nowhere`",
        ),
    ] {
        let done = run(&shell, &args);
        ends(&done, 2);
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    assert_eq!(files(&shell, "out"), before);
}

/// ST-65: the script that an interpreter is given belongs to the program.
#[test]
fn a_changed_script_of_a_command_is_a_changed_agent() {
    let shell = Shell::new();
    shell.write("agent.sh", "echo '{\"output\": {\"v\": 1}}'\n");
    shell.write(
        "study.yaml",
        "study_id: s\ntitle: S\nagents: {a: {command: [sh, ./agent.sh]}}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    shell.write("agent.sh", "echo '{\"output\": {\"v\": 2}}'\n");
    let refused = run(&shell, &["resume", "out"]);
    ends(&refused, 2);
    assert!(
        refused.stderr.contains("agent changed"),
        "{}",
        refused.stderr
    );
    std::fs::remove_file(shell.path().join("agent.sh")).expect("it is there");
    let missing = run(&shell, &["plan", "study.yaml"]);
    ends(&missing, 2);
    assert!(
        missing.stderr.contains("no `./agent.sh`"),
        "{}",
        missing.stderr
    );
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
