use super::*;
use fairtrial_exec::{DEFAULT_LEVEL, Isolation, Level, Network, OnMissing, ResultFormat};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn read(text: &str) -> (Json, Result<Call, Fault>) {
    CallReader::new("/base".into(), None).read(text, 9)
}

fn fault_of(text: &str) -> String {
    let fault = read(text).1.expect_err(text);
    let (_, column) = fault.place(text);
    format!("{column}: {}", fault.message)
}

/// EX-102
#[test]
fn each_fault_has_its_column_and_a_hint() {
    let table = [
        (
            r#"{"argv": ["true"], "timeout_s": 1"#,
            "33: EOF while parsing an object (a line is one JSON object)",
        ),
        (
            r#"{"argv" ["true"]}"#,
            "9: expected `:` (a line is one JSON object)",
        ),
        (
            r#"{"argv": ["true"]} x"#,
            "20: trailing characters (a line is one JSON object)",
        ),
        (
            "[1]",
            "1: expected an object, not an array (a line is one JSON object)",
        ),
        ("nope", "1: expected value (a line is one JSON object)"),
        (
            r#"{"argv": ["true"], "timeout": 1}"#,
            "20: unknown key `timeout` (did you mean `timeout_s`?)",
        ),
        (
            r#"{"argv": ["true"], "limits": {"memory": 1}}"#,
            "31: unknown key `memory` in `limits` (did you mean `memory_bytes`?)",
        ),
        (
            r#"{"argv": ["true"], "limits": {"zzz": 1}}"#,
            "31: unknown key `zzz` in `limits` (the keys are `memory_bytes`, `cpu_s`, `processes`, `open_files`, \
             `file_bytes`, `output_bytes`)",
        ),
        (
            r#"{"argv": ["true"], "argv": ["false"]}"#,
            "20: duplicate key `argv` (give it once)",
        ),
        (
            r#"{"argv": ["true"], "env": {"A": "1", "A": "2"}}"#,
            "38: duplicate key `A` in `env` (give it once)",
        ),
        (
            r#"{"source": "", "function": "f", "kwargs": {"a": 1, "a": 2}}"#,
            "52: duplicate key `a` (give it once)",
        ),
        (
            "{}",
            "1: nothing to run (give `source` or `file`, or `argv`)",
        ),
        (
            r#"{"source": "", "file": "a.py", "function": "f"}"#,
            "24: both `source` and `file` (give one of them)",
        ),
        (
            r#"{"source": ""}"#,
            "1: `function` is missing (name the function to call)",
        ),
        (
            r#"{"source": "", "function": ""}"#,
            "28: `function`: is empty; name the function to call",
        ),
        (
            r#"{"argv": ["true"], "preload": ["numpy"]}"#,
            "20: `preload` does not go with `argv` (remove it)",
        ),
        (
            r#"{"source": "", "function": "f", "stdin": ""}"#,
            "33: `stdin` goes with `argv` only (remove it)",
        ),
        (r#"{"argv": []}"#, "10: `argv`: names no program"),
        (
            r#"{"argv": "true"}"#,
            "10: `argv`: must be an array of strings, not a string",
        ),
        (
            r#"{"argv": ["true", 1]}"#,
            "19: `argv`: must hold strings only, not a number",
        ),
        (
            r#"{"argv": ["true"], "timeout_s": "5s"}"#,
            "33: `timeout_s`: must be a number of seconds, not a string",
        ),
        (
            r#"{"argv": ["true"], "timeout_s": -1}"#,
            "33: `timeout_s`: must be a positive number of seconds, not -1",
        ),
        (
            r#"{"argv": ["true"], "queue_timeout_s": 0}"#,
            "39: `queue_timeout_s`: must be a positive number of seconds, not 0",
        ),
        (
            r#"{"argv": ["true"], "timeout_s": 1, "time": "fast"}"#,
            "44: `time`: `fast` is neither `wall` nor `cpu`",
        ),
        (
            r#"{"argv": ["true"], "time": "cpu"}"#,
            "28: `time`: `cpu` says what a timeout counts: set `timeout_s`, too",
        ),
        (
            r#"{"argv": ["true"], "timeout_s": 1e999}"#,
            "37: number out of range",
        ),
        (
            r#"{"argv": ["true"], "timeout_s": NaN}"#,
            "33: expected value (a line is one JSON object)",
        ),
        (
            r#"{"argv": ["true"], "limits": {"memory_bytes": -5}}"#,
            "47: `limits.memory_bytes`: must not be negative, as -5 is",
        ),
        (
            r#"{"argv": ["true"], "limits": {"processes": 0}}"#,
            "44: `limits.processes`: must be greater than 0",
        ),
        (
            r#"{"argv": ["true"], "limits": {"open_files": 1.5}}"#,
            "45: `limits.open_files`: must be a whole number, not 1.5",
        ),
        (
            r#"{"argv": ["true"], "limits": {"file_bytes": 99999999999999999999}}"#,
            "45: `limits.file_bytes`: 99999999999999999999 is out of range",
        ),
        (
            r#"{"argv": ["true"], "limits": []}"#,
            "30: `limits`: must be an object, not an array",
        ),
        (
            r#"{"argv": ["true"], "env": {"A": 1}}"#,
            "33: `env.A`: must be a string, or null to unset it, not a number",
        ),
        (
            r#"{"argv": ["true"], "env": {"A=B": "x"}}"#,
            "27: `env.A=B`: a variable's name is not empty and has no `=` or NUL",
        ),
        (
            r#"{"argv": ["true"], "sandbox": "jail"}"#,
            "31: `sandbox`: unknown level `jail`; the levels are `none`, `limits`, `confined` and `strict`",
        ),
        (
            r#"{"source": "", "function": "f", "isolation": "new"}"#,
            "46: `isolation`: `new` is neither `fresh` nor `reuse`",
        ),
        (
            r#"{"source": "", "function": "f", "args": {}}"#,
            "41: `args`: must be an array, not an object",
        ),
        (
            r#"{"source": "", "function": "f", "args": [], "kwargs": {"a": [{"$bytes": 3}]}}"#,
            "55: `$.kwargs.a[0].$bytes`: expected base64 text",
        ),
        (
            r#"{"source": "", "function": "f", "kwargs": 3}"#,
            "43: `kwargs`: must be an object, not a number",
        ),
        (
            r#"{"file": "missing.py", "function": "f"}"#,
            "10: `file`: cannot read `/base/missing.py`: No such file or directory \
             (a relative path starts where the file of calls is)",
        ),
        (
            r#"{"é": 1, "id": 1.5}"#,
            "16: `id`: must be a string or an integer of at most 64 bits",
        ),
    ];
    for (line, fault) in table {
        assert_eq!(fault_of(line), fault, "{line}");
    }
}

/// EX-99
#[test]
fn the_id_is_echoed_wherever_it_can_be_read_and_else_is_the_line() {
    assert_eq!(read(r#"{"id": "a", "argv": ["true"]}"#).0, json!("a"));
    assert_eq!(read(r#"{"id": -3, "argv": 1}"#).0, json!(-3));
    assert_eq!(read(r#"{"id": 7, "argv": ["tr"#).0, json!(7));
    assert_eq!(read(r#"{"argv": ["true"]}"#).0, json!(9));
    assert_eq!(read(r#"{"id": [1], "argv": ["true"]}"#).0, json!(9));
    assert_eq!(read("x").0, json!(9));
}

/// EX-99
#[test]
fn every_key_reaches_the_call_and_relative_paths_are_those_of_the_base() {
    let line = r#"{"source": "def f(): pass", "function": "f", "args": [1], "kwargs": {"k": 2},
        "python": "bin/python", "python_path": ["lib", "/abs"], "env": {"A": "1", "B": null}, "cwd": "w",
        "timeout_s": 1.5, "queue_timeout_s": 2, "term_grace_s": 0, "sandbox": "none", "isolation": "reuse",
        "preload": ["math"], "preload_shared": ["math"], "result": "pickle", "capture_bytes": 0,
        "limits": {"memory_bytes": 1, "cpu_s": 0.5, "processes": 2, "open_files": 3, "file_bytes": 4,
                   "output_bytes": 5}}"#;
    let mut wanted = Call::source(
        "def f(): pass",
        "f",
        value::arguments_from_json(&json!([1]), &json!({"k": 2})).unwrap(),
    );
    wanted.env = BTreeMap::from([("A".into(), Some("1".into())), ("B".into(), None)]);
    wanted.cwd = Some("/base/w".into());
    wanted.sandbox = Sandbox::new(Level::None);
    wanted.timeout = Some(Duration::from_millis(1500));
    wanted.queue_timeout = Some(Duration::from_secs(2));
    wanted.capture_bytes = 0;
    wanted.limits = Limits {
        memory_bytes: Some(1),
        cpu: Some(Duration::from_millis(500)),
        processes: Some(2),
        open_files: Some(3),
        file_bytes: Some(4),
        output_bytes: Some(5),
        lifted: BTreeSet::new(),
    };
    *wanted.python_mut().unwrap() = PythonTerms {
        python: "/base/bin/python".into(),
        python_path: vec!["/base/lib".into(), "/abs".into()],
        preload: vec!["math".into()],
        preload_shared: vec!["math".into()],
        isolation: Isolation::Reuse,
        result: ResultFormat::Pickle,
        host: None,
    };
    assert_eq!(read(line).1, Ok(wanted));
}

#[test]
fn a_null_counts_as_not_given() {
    let line = r#"{"id": null, "argv": ["cat"], "stdin": "x", "timeout_s": null, "preload": null, "limits": null}"#;
    let (id, call) = read(line);
    let mut wanted = Call::command(["cat"]);
    wanted.work = Work::Command(CommandWork {
        argv: vec!["cat".into()],
        stdin: b"x".to_vec(),
    });
    assert_eq!((id, call), (json!(9), Ok(wanted)));
}

/// What `sandbox` in a line is read as, before it is asked what this version can do.
fn read_sandbox(text: &str) -> Result<Sandbox, String> {
    let line = format!(r#"{{"sandbox": {text}}}"#);
    let mut object = Object::new("");
    object.parse(Raw::whole(&line)).unwrap();
    let given = object.get("sandbox").expect(text);
    sandbox::sandbox(given, Path::new("/base")).map_err(|fault| {
        let (_, column) = fault.place(&line);
        format!("{column}: {}", fault.message)
    })
}

/// SB-14
#[test]
fn a_sandbox_is_a_level_or_an_object() {
    for level in Level::ALL {
        let wanted = Ok(Sandbox::new(level));
        assert_eq!(read_sandbox(&format!(r#""{level}""#)), wanted);
        assert_eq!(read_sandbox(&format!(r#"{{"level": "{level}"}}"#)), wanted);
    }
    let text = r#"{"level": "strict", "on_missing": "degrade", "network": "loopback", "read": ["/r", "r2"],
        "write": ["w"], "scratch_bytes": "512M", "scratch_inodes": null, "address_space": null,
        "devices": ["nvidia"], "cpus": [0, 3]}"#;
    let wanted = Sandbox {
        level: Level::Strict,
        on_missing: OnMissing::Degrade,
        network: Network::Loopback,
        read: vec!["/r".into(), "/base/r2".into()],
        write: vec!["/base/w".into()],
        scratch_bytes: Some(512 << 20),
        scratch_inodes: None,
        address_space: None,
        devices: vec!["nvidia".into()],
        cpus: Some(vec![0, 3]),
    };
    assert_eq!(read_sandbox(text), Ok(wanted));
    let sizes = read_sandbox(r#"{"level": "limits", "address_space": 4096}"#).unwrap();
    assert_eq!(sizes.address_space, Some(4096));
}

/// SB-14, SB-69
#[test]
fn each_fault_of_a_sandbox_has_its_column_and_a_hint() {
    let table = [
        (
            "3",
            "13: `sandbox`: must be a level or an object, not a number",
        ),
        (
            r#""jail""#,
            "13: `sandbox`: unknown level `jail`; the levels are `none`, `limits`, `confined` and `strict`",
        ),
        (
            r#"{"level": "jail"}"#,
            "23: `sandbox.level`: unknown level `jail`; the levels are `none`, `limits`, `confined` and `strict`",
        ),
        (
            r#"{"network": "none"}"#,
            "13: `sandbox`: `level` is missing (give `none`, `limits`, `confined` or `strict`)",
        ),
        (
            r#"{"level": "strict", "netwrk": "none"}"#,
            "33: unknown key `netwrk` in `sandbox` (did you mean `network`?)",
        ),
        (
            r#"{"level": "strict", "network": "none", "network": "host"}"#,
            "52: duplicate key `network` in `sandbox` (give it once)",
        ),
        (
            r#"{"level": "limits", "network": "none"}"#,
            "44: `sandbox.network`: level `limits` cannot do that; use `confined`, or leave it out",
        ),
        (
            r#"{"level": "none", "write": ["/w"]}"#,
            "40: `sandbox.write`: level `none` cannot do that; use `limits`, or leave it out",
        ),
        (
            r#"{"level": "strict", "network": true}"#,
            "44: `sandbox.network`: must be a string, not a boolean",
        ),
        (
            r#"{"level": "strict", "network": "lo"}"#,
            "44: `sandbox.network`: `lo` is none of `none`, `loopback` and `host`",
        ),
        (
            r#"{"level": "strict", "read": "/r"}"#,
            "41: `sandbox.read`: must be an array of strings, not a string",
        ),
        (
            r#"{"level": "strict", "read": [""]}"#,
            "41: `sandbox.read`: must be an absolute path, not ``",
        ),
        (
            r#"{"level": "strict", "scratch_bytes": "5X"}"#,
            "50: `sandbox.scratch_bytes`: unknown unit `x` in `5X`; use K, M, G or T, as in `512M`",
        ),
        (
            r#"{"level": "strict", "scratch_inodes": 0}"#,
            "51: `sandbox.scratch_inodes`: must be greater than 0",
        ),
        (
            r#"{"level": "strict", "devices": ["gpu"]}"#,
            "44: `sandbox.devices`: unknown device `gpu`; the only one is `nvidia`",
        ),
        (
            r#"{"level": "none", "cpus": [0, -1]}"#,
            "43: `sandbox.cpus`: must not be negative, as -1 is",
        ),
    ];
    for (text, fault) in table {
        assert_eq!(read_sandbox(text), Err(fault.to_owned()), "{text}");
    }
}

/// SB-15
#[test]
fn what_takes_the_place_of_the_default_leaves_an_explicit_choice_alone() {
    let mut other = Sandbox::new(Level::None);
    other.on_missing = OnMissing::Fail;
    let silent = r#"{"argv": ["true"]}"#;
    let null = r#"{"argv": ["true"], "sandbox": null}"#;
    let explicit = r#"{"argv": ["true"], "sandbox": "none"}"#;
    let default = Sandbox::new(DEFAULT_LEVEL);
    let table = [
        (None, silent, default.clone()),
        (None, null, default),
        (Some(other.clone()), silent, other.clone()),
        (Some(other.clone()), null, other.clone()),
        (Some(other), explicit, Sandbox::new(Level::None)),
    ];
    for (replaced, line, wanted) in table {
        let mut reader = CallReader::new("/base".into(), replaced);
        assert_eq!(reader.read(line, 1).1.unwrap().sandbox, wanted, "{line}");
    }
}

/// SB-16
#[test]
fn an_explicit_null_lifts_a_limit_and_no_other() {
    let line =
        r#"{"argv": ["true"], "limits": {"memory_bytes": null, "open_files": 5, "cpu_s": null}}"#;
    let limits = read(line).1.unwrap().limits;
    assert_eq!(limits.lifted, BTreeSet::from([Resource::Memory]));
    let filled = limits.filled(Level::Limits, 10 << 30, None);
    assert_eq!((filled.memory_bytes, filled.open_files), (None, Some(5)));
    assert_eq!((filled.processes, filled.cpu), (Some(512), None));
    assert_eq!(
        filled.output_bytes,
        Some(fairtrial_exec::DEFAULT_OUTPUT_BYTES)
    );
}

/// EX-36: a directory is named without detours, which may lead through what a confined call does not see.
#[test]
fn a_directory_to_run_in_is_named_without_detours() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    std::fs::create_dir(&here).unwrap();
    std::fs::create_dir(&there).unwrap();
    let reader = |base: PathBuf| CallReader::new(base, None);
    let line = r#"{"argv": ["true"], "cwd": "."}"#;
    let call = reader(here.join("../there")).read(line, 1).1.unwrap();
    assert_eq!(call.cwd, Some(there.canonicalize().unwrap()));
    // One that is not there is told of as it was given.
    let line = r#"{"argv": ["true"], "cwd": "../nowhere"}"#;
    let call = reader(here.clone()).read(line, 1).1.unwrap();
    assert_eq!(call.cwd, Some(here.join("../nowhere")));
}

/// EX-102: flags and study files call it so.
#[test]
fn the_interpreter_has_two_names() {
    let python = |text: &str| {
        let call = read(text).1.expect(text);
        call.python().map(|terms| terms.python.clone())
    };
    let named = r#"{"source": "", "function": "f", "interpreter": "bin/py"}"#;
    assert_eq!(
        python(named),
        python(&named.replace("interpreter", "python"))
    );
    let twice = r#"{"source": "", "function": "f", "python": "a", "interpreter": "b"}"#;
    let said = "48: `python` and `interpreter` say the same (give one of them)";
    assert_eq!(fault_of(twice), said);
}
