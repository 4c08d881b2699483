//! What is wrong with a file, word for word. A row of a table is what is written (`\n` for a new line), then the lines
//! that come of it; keys that a row leaves out and must not are added below it.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::spec::Spec;

const REQUIRED: [(&str, &str); 3] = [
    ("version:", "version: 1"),
    ("candidates:", "candidates: {patches: p}"),
    ("tests:", "tests: [{command: t}]"),
];

fn faults(text: &str) -> String {
    match Spec::parse(Path::new("EVAL.yaml"), text) {
        Ok(_) => String::new(),
        Err(invalid) => invalid.to_string(),
    }
}

fn completed(row: &str) -> String {
    let mut lines: Vec<_> = row.split("\\n").collect();
    for (key, line) in REQUIRED {
        if !lines.iter().any(|line| line.starts_with(key)) {
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// Every row of a table, and what is expected of it.
fn rows(table: &str) -> Vec<(&str, String)> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    for line in table.lines() {
        match (line.strip_prefix("    "), rows.last_mut()) {
            (Some(fault), Some((_, faults))) if faults.is_empty() => faults.push_str(fault),
            (Some(fault), Some((_, faults))) => *faults += &format!("\n{fault}"),
            _ => rows.push((line, String::new())),
        }
    }
    rows
}

fn check(table: &str) {
    let rows = rows(table);
    assert!(rows.len() > 2, "a table has rows");
    for (row, expected) in rows {
        assert!(!expected.is_empty(), "{row} has a fault");
        assert_eq!(faults(&completed(row)), expected, "{row}");
    }
}

/// CA-6
#[test]
fn each_unknown_key_is_named_with_the_nearest_known_one() {
    check(include_str!("broken/unknown_keys.txt"));
}

/// CA-6
#[test]
fn each_value_of_another_kind_is_refused() {
    check(include_str!("broken/wrong_kinds.txt"));
}

/// CA-6
#[test]
fn each_value_out_of_range_is_refused_with_the_range() {
    check(include_str!("broken/out_of_range.txt"));
}

/// CA-6
#[test]
fn a_key_that_is_given_twice_is_refused_at_the_second() {
    check(include_str!("broken/repeated_keys.txt"));
}

/// CA-7
#[test]
fn keys_that_contradict_each_other_are_refused_at_the_second() {
    check(include_str!("broken/together.txt"));
}

/// CA-9
#[test]
fn a_key_to_a_service_is_refused_and_never_shown() {
    let table = include_str!("broken/secrets.txt");
    check(table);
    for (row, expected) in rows(table) {
        assert!(row.contains("SECRET") || row.contains("api_key_env: 5"));
        assert!(!expected.contains("SECRET"), "{expected}");
    }
}

/// CA-9
#[test]
fn names_that_only_look_a_little_like_keys_are_taken() {
    for row in [
        "tests: [{command: [bench, sk-learn-benchmarks-2024-long-name, task-0123456789abcdef0]}]",
        "tests: [{command: t, env: {API_KEY: dummy, TOKEN: x}}]",
        "env: {pass: [OPENAI_API_KEY], set: {MY_API_KEY: none}}",
        "search: {proposer: {base_url: 'http://127.0.0.1:1', model: m, api_key_env: my_key_2}}",
    ] {
        assert_eq!(faults(&completed(row)), "");
    }
}

/// CA-6
#[test]
fn a_file_as_a_whole_can_be_wrong() {
    let missing = "EVAL.yaml:1:1: `version` is missing in the evaluation; add `version: 1`\n\
        EVAL.yaml:1:1: `candidates` is missing in the evaluation; name a source, as in `candidates: {patches: DIR}`\n\
        EVAL.yaml:1:1: `tests` is missing in the evaluation; add a command that tests, as in `tests: [{command: ...}]`";
    let table = [
        ("", missing),
        ("# nothing", missing),
        ("{}", missing),
        (
            "[1]",
            "EVAL.yaml:1:1: the evaluation must be a mapping, not a list",
        ),
        ("tests: null", missing),
        (
            "a: 1\n---\nb: 2",
            "EVAL.yaml:2:1: a second document begins here; keep one document per file",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(faults(text), expected, "{text}");
    }
    assert!(faults("tests: [\n").starts_with("EVAL.yaml:2:1: not YAML: "));
}

/// CA-6: all that is wrong, in the order it was written.
#[test]
fn every_fault_of_a_file_is_found_at_once() {
    let text = "tests:\n  - {command: [t, 1], timeout: 0}\nversion: 1\nparallel: 0\ncandidate: {patches: p}\n";
    let expected = "EVAL.yaml:2:19: `command[1]` must be text, not an integer; quote it\n\
        EVAL.yaml:2:32: `timeout` must be greater than 0; as in `30s` or `5m`\n\
        EVAL.yaml:4:11: `parallel` must be from 1 to 1024, not 0\n\
        EVAL.yaml:5:1: unknown key `candidate` in the evaluation; did you mean `candidates`?";
    assert_eq!(faults(text), expected);
}

/// CA-6
#[test]
fn the_extension_says_the_format() {
    let parse = |name: &str, text: &str| Spec::parse(Path::new(name), text);
    let wrong = parse("e.json", "{\n  \"version\": 1, \"paralel\": 2}").unwrap_err();
    let last = wrong.faults.last().unwrap().to_string();
    assert_eq!(
        last,
        "e.json:2:17: unknown key `paralel` in the evaluation; did you mean `parallel`?"
    );
    let wrong = parse("e.toml", "").unwrap_err().to_string();
    assert_eq!(
        wrong,
        "e.toml:1:1: a file ending in `.toml` is not read; name it `.yaml`, `.yml` or `.json`"
    );
}

/// CA-6
#[test]
fn a_file_that_cannot_be_read_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let fault = |name: &str| {
        let path = directory.path().join(name);
        let fault = Spec::load(&path).unwrap_err().to_string();
        fault.replace(&path.display().to_string(), name)
    };
    let hint = "name an evaluation file";
    let absent = format!("no.yaml:1:1: cannot read it: No such file or directory; {hint}");
    assert_eq!(fault("no.yaml"), absent);
    fs::create_dir(directory.path().join("dir.yaml")).unwrap();
    let not_a_file = format!("dir.yaml:1:1: cannot read it: it is not a file; {hint}");
    assert_eq!(fault("dir.yaml"), not_a_file);
    fs::write(
        directory.path().join("latin.yaml"),
        b"version: 1\nrepo: \xe9\n",
    )
    .unwrap();
    let latin = "latin.yaml:2:7: not UTF-8 text; save the file as UTF-8";
    assert_eq!(fault("latin.yaml"), latin);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "nothing was made");
}

/// CA-4, CA-6, CA-7
#[test]
fn what_a_program_gives_wrong_is_named_by_its_path_of_keys() {
    let faults = |json| {
        let given = Spec::from_json(json, Path::new("/here"));
        given.unwrap_err().to_string()
    };
    let tests = json!([{"command": "t"}]);
    let table = [
        (
            json!(3),
            "spec: the evaluation must be a mapping, not an integer",
        ),
        (
            json!({"version": 1, "tests": tests}),
            "spec: `candidates` is missing in the evaluation; name a source, as in `candidates: {patches: DIR}`",
        ),
        (
            json!({"version": 1, "tests": [{"command": "t", "timout": 3}], "candidates": {"patches": "p"}}),
            "tests[0].timout: unknown key `timout` in `tests[0]`; did you mean `timeout`?",
        ),
        (
            json!({"version": 1, "tests": tests, "candidates": [{"patches": "p"}, {"trees": 4}], "parallel": 0}),
            "candidates[1].trees: `trees` must be text, not an integer; quote it\n\
             parallel: `parallel` must be from 1 to 1024, not 0",
        ),
        (
            json!({"version": 1, "tests": [{"results": "junit", "command": "t"}], "candidates": {"patches": "p"}}),
            "tests[0].results: `results: junit` needs a `junit_path`; say where the file is",
        ),
        (
            json!({"version": 1, "tests": [{"command": "t", "judge": {"command": "j"}}], "bench": "reuse-tests",
                "candidates": {"patches": "p"}}),
            "bench: `bench: reuse-tests` cannot measure `test-1`, which has a judge; write bench commands, or `none`",
        ),
        (
            json!({"version": 1, "env": {"set": {"sk-SECRET000000000000000": 1}}}),
            "env.set: this looks like an API key, and a file is no place for one; put it into a variable and name that: \
             `api_key_env: NAME`, or for commands `env: {pass: [NAME]}`",
        ),
    ];
    for (json, expected) in table {
        assert_eq!(faults(json.clone()), expected, "{json}");
    }
    let secret = faults(json!({"search": {"proposer": {"api_key: SECRET": 1}}}));
    assert!(secret.starts_with("search.proposer: this would put an API key into the file;"));
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    assert!(faults(deep).ends_with("nested deeper than 100 levels"));
}

/// CA-8: those who look at the machine can point, too.
#[test]
fn a_fault_of_the_machine_stands_where_its_key_does() {
    let text = "version: 1\ncandidates: {patches: nowhere}\nshared:\n  - .venv\n  - {path: gone}\n\
        tests: [{command: t}]\n";
    let spec = Spec::parse(Path::new("EVAL.yaml"), text).unwrap();
    let table = [
        (
            "candidates[0].patches",
            "EVAL.yaml:2:23: `nowhere` is not there",
        ),
        ("shared[0].path", "EVAL.yaml:4:5: `nowhere` is not there"),
        ("shared[1].path", "EVAL.yaml:5:12: `nowhere` is not there"),
        ("repo", "EVAL.yaml:1:1: `nowhere` is not there"),
        (
            "tests[0].judge.files",
            "EVAL.yaml:6:9: `nowhere` is not there",
        ),
    ];
    for (key, expected) in table {
        let fault = spec.places.fault(key, "`nowhere` is not there");
        assert_eq!(fault.to_string(), expected);
    }
    assert!(spec.places.is_given("shared") && !spec.places.is_given("sandbox"));
    let given = Spec::from_json(spec.to_json(), Path::new("/")).unwrap();
    let fault = given.places.fault("candidates[0].patches", "gone");
    assert_eq!(fault.to_string(), "candidates[0].patches: gone");
}
