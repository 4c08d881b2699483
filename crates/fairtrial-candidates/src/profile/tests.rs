use std::fs;
use std::path::Path;

use super::*;

const BASE: &str = "\
def same(x):
    return x

def slow(n):
    total = 0
    for i in range(n):
        total += same(i)
    return total

class Deep:
    def held(self):
        yield 1
        yield 2
";

const WINNER: &str = "\
def same(x):
    return x

def slow(n):
    return sum(range(n))

class Deep:
    def held(self):
        yield 2
        yield 1
";

const MAIN: &str = "\
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import work
assert not any('FAIRTRIAL' in name for name in os.environ), 'children would be traced'
print(work.slow(100), sum(work.Deep().held()), os.environ.get('PYTHONPATH'), sys.modules['sitecustomize'].__name__)
";

/// Runs `main.py` beside `work.py` with the tracer before it; gives what it printed, and what the tracer said.
fn traced(side: &'static str, main: &str, seconds: f64) -> (String, Option<Vec<u8>>) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for place in ["repo", "tracer", "theirs"] {
        fs::create_dir(at(place)).unwrap();
    }
    let text = if side == "base" { BASE } else { WINNER };
    fs::write(at("repo/work.py"), text).unwrap();
    fs::write(at("repo/main.py"), main).unwrap();
    fs::write(at("theirs/sitecustomize.py"), "print('their own')\n").unwrap();
    let texts = Texts {
        base: Some(BASE.to_owned()),
        winner: Some(WINNER.to_owned()),
    };
    let theirs = at("theirs").display().to_string();
    let terms = Terms {
        files: &BTreeMap::from([("work.py".to_owned(), texts)]),
        side,
        other: if side == "base" { "winner" } else { "base" },
        pythonpath: Some(theirs.clone()),
        seconds,
    };
    fs::write(at("tracer").join(TRACER_FILE), TRACER).unwrap();
    fs::write(
        at("tracer").join(TERMS_FILE),
        serde_json::to_string(&terms).unwrap(),
    )
    .unwrap();
    let path = format!("{}:{theirs}", at("tracer").display());
    let printed = run(&at("repo"), &path);
    let said = fs::read(at("repo").join(PROFILE_FILE)).ok();
    (printed.replace(&theirs, "THEIRS"), said)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test of a program, without the engine"
)]
fn run(repo: &Path, path: &str) -> String {
    let mut command = std::process::Command::new("python3");
    command
        .arg("main.py")
        .current_dir(repo)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"))
        .env("PYTHONPATH", path);
    command.env(PROFILE_VARIABLE, repo.join(PROFILE_FILE));
    let output = command.output().expect("python3 is there");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap()
}

/// CA-83
#[test]
fn lines_of_changed_functions_are_counted_and_no_others() {
    let (_, said) = traced("base", MAIN, 60.0);
    let (functions, note) = read(&said.unwrap(), 60.0).unwrap();
    assert_eq!(note, None);
    let names: Vec<_> = functions.iter().map(|function| &*function.name).collect();
    assert_eq!(names, ["slow", "Deep.held"]);
    let slow = &functions[0];
    assert_eq!((&*slow.file, slow.calls), ("work.py", 1));
    let hits: Vec<_> = slow
        .lines
        .iter()
        .map(|line| (line.line, line.hits))
        .collect();
    assert_eq!(hits, [(4, 0), (5, 1), (6, 101), (7, 100), (8, 1)]);
    assert_eq!(slow.lines[3].text, "        total += same(i)");
    assert!(slow.total_s > 0.0 && slow.lines.iter().all(|line| line.total_s >= 0.0));
    let (_, said) = traced("winner", MAIN, 60.0);
    let (functions, _) = read(&said.unwrap(), 60.0).unwrap();
    let hits: Vec<_> = functions[0]
        .lines
        .iter()
        .map(|line| (line.line, line.hits))
        .collect();
    assert_eq!(hits, [(4, 0), (5, 1)]);
}

/// CA-83: the program's own `sitecustomize` is loaded, and its environment is its own.
#[test]
fn a_traced_program_finds_what_it_would_have_found() {
    let (printed, _) = traced("base", MAIN, 60.0);
    assert_eq!(printed, "their own\n4950 3 THEIRS sitecustomize\n");
}

/// CA-83
#[test]
fn a_long_program_is_traced_for_a_while_and_runs_on() {
    let main = "import sys, os\nsys.path.insert(0, '.')\nimport work\nfor _ in range(300): work.slow(1000)\nprint('done')\n";
    let (printed, said) = traced("base", main, 0.01);
    assert!(printed.ends_with("done\n"), "{printed}");
    let (functions, note) = read(&said.unwrap(), 0.01).unwrap();
    assert_eq!(note.as_deref(), Some("traced for 0 s only"));
    assert!(functions[0].calls < 300, "{}", functions[0].calls);
}

/// CA-83
#[test]
fn what_a_candidate_may_have_written_is_not_believed() {
    for broken in [
        &b"\xff"[..],
        b"[]",
        b"{\"functions\": 7, \"is_cut\": false}",
    ] {
        assert!(read(broken, 1.0).is_err());
    }
    let (functions, note) = read(b"{\"functions\": [], \"is_cut\": false}", 1.0).unwrap();
    assert_eq!(
        (functions.len(), note.as_deref()),
        (0, Some("no function is changed"))
    );
}
