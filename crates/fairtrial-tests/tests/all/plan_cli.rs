//! `fairtrial plan` and `fairtrial design` as a binary.

use std::path::Path;

use fairtrial_tests::Shell;
use serde_json::{Value as Json, json};

fn studies() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairtrial-study/tests/fixtures/studies")
}

/// SF-63, ST-28
#[test]
fn every_fixture_is_planned_as_dre_plans_it() {
    let shell = Shell::new();
    let mut planned = 0;
    for entry in std::fs::read_dir(studies()).expect("the fixtures are there") {
        let dir = entry.expect("it can be listed").path();
        let study = dir.join("study.yaml").display().to_string();
        let done = shell
            .fairtrial(["plan", &study, "--compat", "dre-0.2", "--json"])
            .run();
        assert_eq!((done.code, &*done.stderr), (Some(0), ""), "{study}");
        let found: Json = serde_json::from_str(&done.stdout).expect("a plan is JSON");
        let expected = std::fs::read(dir.join("plan.json")).expect("the fixture has a plan");
        let expected: Json = serde_json::from_slice(&expected).expect("the fixture is JSON");
        for key in [
            "study_id",
            "standalone",
            "conditions",
            "digest_conditions",
            "digest_runs",
        ] {
            assert_eq!(found[key], expected[key], "{study}: {key}");
        }
        let runs = found["runs"].as_array().expect("a list");
        let wanted = expected["runs"].as_array().expect("a list");
        assert_eq!(runs.len(), wanted.len(), "{study}");
        for (run, wanted) in runs.iter().zip(wanted) {
            for (key, value) in wanted.as_object().expect("a run is an object") {
                assert_eq!(run[key], *value, "{study}");
            }
        }
        planned += 1;
    }
    assert_eq!(planned, 20);
}

const STUDY: &str = "study_id: s
title: t
factors: {x: [1, 2], y: [a, b]}
constraints: [{constraint_id: c, description: no b at 2, expression: not (x == 2 and y == 'b')}]
problem_ids: [p]
agent_specs: [fast, slow]
";

/// ST-27
#[test]
fn a_plan_is_shown_for_people() {
    let shell = Shell::new();
    shell.write("study.yaml", STUDY);
    let done = shell.fairtrial(["plan", "study.yaml"]).run();
    assert_eq!(done.code, Some(0));
    let expected = "\
study s: full_factorial, compat native
4 conditions, 3 admissible, 6 runs
order: interleaved, seed 0
actions: run 6 (new); 0 orphans
conditions, runs planned/possible:
  2/2  cond-dedf3a22f74f  x=1 y=a
  2/2  cond-d36badb15565  x=1 y=b
  2/2  cond-8504c0cf590f  x=2 y=a
  0/0  cond-af2533ae858f  x=2 y=b not admissible: c: no b at 2
agents, runs planned/possible:
  3/3  fast
  3/3  slow
problems, runs planned/possible:
  6/6  p
";
    assert_eq!(done.stdout, expected);
    let warnings = "\
study.yaml:1:1: warning: the file has no `agents`: the host program must bind them
study.yaml:1:1: warning: the file has no `problems`: the host program must bind them
";
    assert_eq!(done.stderr, warnings);
}

/// ST-18, SF-4: every fault a line, exit 2, nothing on standard output and nothing made.
#[test]
fn faults_are_lines_with_places_and_nothing_is_made() {
    let shell = Shell::new();
    let broken = STUDY.replace("title: t", "titel: t\nrun_budget: {replicate: 2}");
    shell.write("study.yaml", &broken);
    let done = shell
        .fairtrial(["plan", "study.yaml", "--conditions", "c.csv"])
        .run();
    let expected = "\
study.yaml:1:1: `title` is missing in the study; add it
study.yaml:2:1: unknown key `titel` in the study; did you mean `title`?
study.yaml:3:14: unknown key `replicate` in `run_budget`; did you mean `replicates`?
";
    assert_eq!(
        (done.code, &*done.stdout, &*done.stderr),
        (Some(2), "", expected)
    );
    let left: Vec<_> = std::fs::read_dir(shell.path())
        .expect("it can be listed")
        .map(|entry| entry.expect("it can be listed").file_name())
        .collect();
    assert_eq!(left, ["study.yaml"]);
    let missing = shell.fairtrial(["plan", "missing.yaml"]).run();
    assert_eq!(missing.code, Some(2));
    assert_eq!(
        missing.stderr,
        "missing.yaml:1:1: cannot read it: No such file or directory; name a study file\n"
    );
    let mode = shell
        .fairtrial(["plan", "study.yaml", "--compat", "dre"])
        .run();
    assert_eq!((mode.code, mode.stderr.lines().count()), (Some(2), 1));
}

/// ST-22: `--strict` makes warnings errors.
#[test]
fn strictly_a_warning_is_an_error() {
    let shell = Shell::new();
    shell.write("study.yaml", &STUDY.replace("[a, b]", "[no, b]"));
    let done = shell.fairtrial(["plan", "study.yaml", "--json"]).run();
    assert_eq!((done.code, &*done.stderr), (Some(0), ""));
    let plan: Json = serde_json::from_str(&done.stdout).expect("a plan is JSON");
    let warnings = plan["warnings"].as_array().expect("a list");
    let warning = warnings
        .iter()
        .find(|warning| warning["code"] == "yaml_version");
    let warning = warning.expect("there is one");
    assert_eq!(
        (&warning["line"], &warning["column"]),
        (&json!(3), &json!(26))
    );
    let strict = shell.fairtrial(["plan", "study.yaml", "--strict"]).run();
    assert_eq!((strict.code, &*strict.stdout), (Some(2), ""));
    assert!(
        strict
            .stderr
            .starts_with("study.yaml:3:26: `no` is false here"),
        "{}",
        strict.stderr
    );
    shell.write("study.yaml", STUDY);
    let clean = shell.fairtrial(["plan", "study.yaml", "--strict"]).run();
    assert_eq!(clean.code, Some(0), "that the host binds is no fault");
}

/// ST-32, SF-52, SF-59
#[test]
fn conditions_are_written_by_the_writer_of_the_tables() {
    let shell = Shell::new();
    shell.write("study.yaml", STUDY);
    let done = shell
        .fairtrial(["plan", "study.yaml", "--conditions", "c.csv"])
        .run();
    assert_eq!(done.code, Some(0));
    let table = std::fs::read_to_string(shell.path().join("c.csv")).expect("it was written");
    let lines: Vec<&str> = table.split("\r\n").collect();
    assert_eq!(lines.len(), 6);
    assert_eq!(
        lines[0],
        "study_id,condition_id,admissible,constraint_messages,assignment_meta_json,x,y"
    );
    assert!(
        lines[4].contains(",False,\"[\"\"c: no b at 2\"\"]\","),
        "{}",
        lines[4]
    );
    assert!(lines[4].ends_with(",2,b"), "{}", lines[4]);
    let bad = shell
        .fairtrial(["plan", "study.yaml", "--conditions", "no/c.csv"])
        .run();
    assert_eq!(bad.code, Some(2));
    assert!(
        bad.stderr.starts_with("--conditions: cannot write"),
        "{}",
        bad.stderr
    );
}

/// SF-35, SF-59, ST-33
#[test]
fn a_design_table_is_csv_or_json() {
    let shell = Shell::new();
    let factors = r#"{"a": [0, 1], "b": ["u", "v"]}"#;
    let done = shell
        .fairtrial([
            "design",
            "full",
            "--factors",
            factors,
            "--no-randomize",
            "--center-points",
            "3",
        ])
        .run();
    assert_eq!(done.code, Some(0));
    let expected = "a,b\r\n0,u\r\n0,v\r\n1,u\r\n1,v\r\n0.5,u\r\n0.5,u\r\n0.5,u\r\n";
    assert_eq!(done.stdout, expected);
    assert_eq!(
        done.stderr,
        "warning: some values of `b` occur more than twice as often as others\n"
    );
    shell.write("f.json", r#"{"x": [0, 1], "y": [10, 20]}"#);
    let arguments = [
        "design",
        "lhs",
        "--factors",
        "f.json",
        "--n-samples",
        "4",
        "--seed",
        "7",
    ];
    let json = shell
        .fairtrial(arguments.into_iter().chain(["--json"]))
        .run();
    let table: Json = serde_json::from_str(&json.stdout).expect("a table is JSON");
    assert_eq!(table["design"][0]["x"], json!(0.080_958_191_208_290_59));
    assert_eq!(table["summary"]["n_runs"], json!(4));
    let file = shell
        .fairtrial(arguments.into_iter().chain(["--out", "t.csv"]))
        .run();
    assert_eq!((file.code, &*file.stdout), (Some(0), ""));
    let written = std::fs::read_to_string(shell.path().join("t.csv")).expect("it was written");
    assert!(
        written.starts_with("x,y\r\n0.08095819120829059,13.036745452089153\r\n"),
        "{written}"
    );
    for (arguments, message) in [
        (
            &["design", "lhs", "--factors", "f.json"][..],
            "design: n_samples: ",
        ),
        (
            &["design", "cube", "--factors", "f.json"],
            "<KIND>: unknown kind `cube`",
        ),
        (
            &["design", "full", "--factors", "{\"a\": []}"],
            "design: factors: ",
        ),
        (
            &["design", "full", "--factors", "{"],
            "--factors:1:2: not JSON",
        ),
        (
            &[
                "design",
                "lhs",
                "--factors",
                "f.json",
                "--n-samples",
                "2",
                "--backend",
                "scipy",
            ],
            "design: backend: ",
        ),
    ] {
        let done = shell.fairtrial(arguments.iter().copied()).run();
        assert_eq!(done.code, Some(2), "{arguments:?}");
        assert!(done.stderr.starts_with(message), "{}", done.stderr);
    }
}

/// ST-4, ST-18, ST-65: what `files` name belongs to an agent, so a name that leads nowhere is told.
#[test]
fn files_that_are_not_there_are_told_and_patterns_that_are_none_refused() {
    let shell = Shell::new();
    shell.write("agent.py", "def go(run): return {'output': {}}\n");
    shell.write("data/one.txt", "1");
    let study = |files: &str| {
        let text = format!(
            "study_id: s\ntitle: t\nagents:\n  a: {{python: 'agent.py:go', files: [{files}]}}\nproblems: {{p: {{files: \
             ['data/*']}}}}\n"
        );
        shell.write("study.yaml", &text);
    };
    study("'data/*.txt', 'data/*.csv'");
    let warning = "study.yaml:4:6: warning: `files` names `data/*.csv`, and there is none; patterns are relative to the \
                   study file\n";
    for words in [
        &["plan", "study.yaml"][..],
        &["run", "study.yaml", "--out", "out"],
    ] {
        let done = shell.fairtrial(words.iter().copied()).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(done.stderr.starts_with(warning), "{}", done.stderr);
    }
    let strict = shell.fairtrial(["plan", "study.yaml", "--strict"]).run();
    assert_eq!(strict.code, Some(2), "{}", strict.stderr);
    study("'data/[*'");
    for words in [
        &["plan", "study.yaml"][..],
        &["run", "study.yaml", "--out", "other"],
    ] {
        let done = shell.fairtrial(words.iter().copied()).run();
        assert_eq!(done.code, Some(2), "{}", done.stdout);
        let fault = "study.yaml:4:6: `files`: `data/[*`: it is no pattern: at 5: ";
        assert!(done.stderr.contains(fault), "{}", done.stderr);
    }
    assert!(!shell.path().join("other").exists());
}
