//! The formats that tables are written in: `export --format`, `run --sqlite`, `export:` of a study file.

use fairtrial_tests::Shell;
use serde_json::{Value as Json, json};

use super::{ends, files, python, run, table};

/// Factors whose names are awkward, of every type, with a result that JSON has no words for.
const AWKWARD: &str = r#"study_id: awkward
title: Awkward
factors:
- {name: order, levels: [{name: one, value: 1}, {name: two, value: 2}]}
- {name: prompt-frame, levels: [{name: n, value: neutral}]}
- {name: 'a"b', levels: [{name: half, value: 0.5}, {name: three, value: 3}]}
- {name: flag, levels: [{name: 'yes', value: true}]}
- {name: mixed, levels: [{name: t, value: t}, {name: n, value: 7}]}
- {name: listed, levels: [{name: l, value: [1, {b: 2, a: 1}]}]}
blocks:
- {name: site, levels: [north]}
agents:
  good: 'agents.py:good'
  bad: 'agents.py:bad'
evaluator: 'agents.py:score'
"#;

const AGENTS: &str = "
def good(run):
    return {'output': {'v': [1, float('nan')], 'w': float('-inf')}, 'metrics': {'extra': 'é'},
            'events': [{'event_type': 'tool_call', 'step_id': 3}, {'event_type': 'step', 'meta_json': {'a': 1}}]}
def bad(run):
    raise ValueError('no, \"never\"')
def score(task):
    return {'score': task['run']['condition']['factors']['order'], 'fine': True}
";

fn awkward(shell: &Shell, more: &str) {
    shell.write("agents.py", AGENTS);
    shell.write("study.yaml", &format!("{AWKWARD}{more}"));
}

fn lines(shell: &Shell, name: &str) -> Vec<Json> {
    let text = shell.read(name);
    let line = |line: &str| serde_json::from_str(line).expect("strict JSON");
    text.lines().map(line).collect()
}

/// ST-74, ST-77, ST-1: the formats of the study file are written at the end.
#[test]
fn json_has_an_object_per_run_and_is_strict() {
    let shell = Shell::new();
    awkward(&shell, "export: [json]\n");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    let (objects, rows) = (
        lines(&shell, "out/runs.jsonl"),
        table(&shell, "out/runs.csv"),
    );
    assert_eq!((objects.len(), rows.len()), (16, 16));
    for (object, row) in objects.iter().zip(&rows) {
        assert_eq!(object["run_id"], row["run_id"], "in plan order");
        assert_eq!(object["seed"].to_string(), row["seed"]);
        assert_eq!(object["status"], row["status"]);
        assert_eq!(object["blocks"], json!({"site": "north"}));
    }
    let found = &objects[0];
    let factors = json!({"order": 1, "prompt-frame": "neutral", "a\"b": 0.5, "flag": true, "mixed": "t",
        "listed": [1, {"a": 1, "b": 2}]});
    assert_eq!(found["factors"], factors);
    assert_eq!(found["outputs"], json!({"v": [1, null], "w": null}));
    assert_eq!(
        found["non_finite"],
        json!({"/outputs/v/1": "nan", "/outputs/w": "-inf"})
    );
    assert_eq!(found["metrics"]["extra"], "é");
    assert_eq!(found["events"][0]["step_id"], 3);
    assert_eq!(found["evaluations"][1]["metric_value"], true);
    assert_eq!(objects[1]["error_info"], "ValueError: no, \"never\"");
    assert!(objects[1].get("non_finite").is_none());
}

/// ST-74: typed columns, keys, indexes, and names that are words of SQL or none at all.
#[test]
fn sqlite_is_typed_and_takes_any_name() {
    let shell = Shell::new();
    awkward(&shell, "");
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "--sqlite"]),
        3,
    );
    python(
        &shell,
        r#"
import csv, sqlite3
db = sqlite3.connect("out/study.sqlite")
assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
def columns(table):
    return {name: (kind, key) for _, name, kind, _, _, key in db.execute(f"PRAGMA table_info({table})")}
def header(table):
    return next(csv.reader(open(f"out/{table}.csv", newline="", encoding="utf-8")))
for table in ("conditions", "runs", "events", "evaluations", "attempts"):
    own = ["number"] if table in ("events", "evaluations", "attempts") else []
    assert list(columns(table)) == header(table) + own, (table, list(columns(table)))
    rows = len(list(csv.reader(open(f"out/{table}.csv", newline="", encoding="utf-8")))) - 1
    assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows,), table
kinds = {name: kind for name, (kind, _) in columns("conditions").items()}
assert kinds["order"] == "INTEGER" and kinds["prompt-frame"] == "TEXT" and kinds['a"b'] == "REAL", kinds
assert kinds["flag"] == "BOOLEAN" and kinds["mixed"] == "" and kinds["listed"] == "TEXT", kinds
assert kinds["admissible"] == "BOOLEAN" and kinds["block_site"] == "TEXT", kinds
found = set(db.execute('SELECT "order", "prompt-frame", "a""b", flag, mixed, listed, block_site FROM conditions'))
assert (1, "neutral", 0.5, 1, "t", '[1,{"a":1,"b":2}]', "north") in found, found
assert (2, "neutral", 3.0, 1, 7, '[1,{"a":1,"b":2}]', "north") in found, found
kinds = {name: kind for name, (kind, _) in columns("runs").items()}
assert kinds["seed"] == kinds["peak_rss_bytes"] == kinds["exit_code"] == "INTEGER", kinds
assert kinds["latency_s"] == kinds["primary_outcome"] == "REAL" and kinds["seed64"] == "TEXT", kinds
assert [name for name, (_, key) in columns("runs").items() if key] == ["run_id"]
assert [name for name, (_, key) in columns("conditions").items() if key] == ["condition_id"]
for table in ("events", "evaluations", "attempts"):
    keys = [name for name, (_, key) in sorted(columns(table).items(), key=lambda item: item[1][1]) if key]
    assert keys == ["run_id", "number"], (table, keys)
asked = 'EXPLAIN QUERY PLAN SELECT * FROM runs WHERE condition_id = "x"'
assert "runs_condition_id" in db.execute(asked).fetchone()[3]
scored = db.execute('''SELECT "order", avg(primary_outcome), count(*) FROM runs JOIN conditions USING (condition_id)
                       WHERE status = 'success' GROUP BY 1''').fetchall()
assert scored == [(1, 1.0, 4), (2, 2.0, 4)], scored
assert db.execute("SELECT step_id FROM events WHERE event_type = 'tool_call' AND number = 1").fetchone() == ("3",)
assert db.execute("SELECT DISTINCT metric_value FROM evaluations WHERE metric_name = 'fine'").fetchall() == [(1.0,)]
"#,
    );
}

/// SF-57: under `dre-0.2` every column is text, and a table without rows is not there.
#[test]
fn sqlite_of_dre_is_text() {
    let shell = Shell::new();
    shell.write(
        "agents.py",
        "def bad(*, problem_packet): raise ValueError('no')\n\
         def good(*, problem_packet): return {'output': {'text': 'x'}}\n",
    );
    let study = |agent: &str| {
        format!(
            "schema_version: 0.2.0\nstudy_id: d\ntitle: D\nfactors:\n\
             - {{name: order, levels: [{{name: a, value: true}}, {{name: b, value: 2.0}}, {{name: c, value: [1, {{b: 2, a: x}}]}}, \
             {{name: d, value: null}}]}}\n\
             problem_ids: [p]\nagent_specs: [a]\nproblems: {{p: {{}}}}\nagents: {{a: 'agents.py:{agent}'}}\n"
        )
    };
    shell.write("study.yaml", &study("good"));
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "--sqlite"]),
        0,
    );
    python(
        &shell,
        r#"
import csv, sqlite3
db = sqlite3.connect("out/study.sqlite")
tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master ORDER BY 1")]
assert tables == ["conditions", "events", "runs"], tables
for table in tables:
    described = [(name, kind, key) for _, name, kind, _, _, key in db.execute(f"PRAGMA table_info({table})")]
    header = next(csv.reader(open(f"out/{table}.csv", newline="")))
    assert described == [(name, "TEXT", 0) for name in header], described
levels = [level for (level,) in db.execute('SELECT "order" FROM conditions')]
assert levels == ["True", "2.0", '[1, {"a": "x", "b": 2}]', None], levels
assert db.execute("SELECT DISTINCT admissible, status, typeof(seed), error_info FROM runs JOIN conditions USING (condition_id)") \
    .fetchall() == [("True", "success", "text", None)]
"#,
    );
    // Where there are no events any more, their table goes, too.
    shell.write("study.yaml", &study("bad"));
    ends(
        &run(
            &shell,
            &[
                "run",
                "study.yaml",
                "--out",
                "out",
                "--resume",
                "--rerun",
                "changed",
            ],
        ),
        3,
    );
    python(
        &shell,
        r#"
import sqlite3
db = sqlite3.connect("out/study.sqlite")
tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master ORDER BY 1")]
assert tables == ["conditions", "runs"], tables
assert db.execute("SELECT DISTINCT status, error_info FROM runs").fetchall() == [("failed", "ValueError: no")]
"#,
    );
}

/// ST-76: the same study gives the same bytes in every format.
#[test]
fn masked_formats_are_the_same_bytes() {
    let shell = Shell::new();
    awkward(&shell, "run_budget: {replicates: 2}\n");
    let mut seen = None;
    for jobs in ["1", "4"] {
        let (out, masked) = (format!("out-{jobs}"), format!("masked-{jobs}"));
        ends(
            &run(&shell, &["run", "study.yaml", "--out", &out, "-j", jobs]),
            3,
        );
        let export = [
            "export",
            &out,
            "--to",
            &masked,
            "--format",
            "csv,json,sqlite",
            "--mask-volatile",
        ];
        ends(&run(&shell, &export), 0);
        let found = files(&shell, &masked);
        let object = &lines(&shell, &format!("{masked}/runs.jsonl"))[0];
        for name in ["start_time", "latency_s", "node_id", "manifest_path"] {
            assert!(object[name].is_null(), "{name}: {object}");
        }
        assert!(object["metrics"]["latency_s"].is_null(), "{object}");
        assert!(object["events"][0]["timestamp"].is_null(), "{object}");
        match &seen {
            None => seen = Some(found),
            Some(seen) => {
                assert_eq!(
                    seen.keys().collect::<Vec<_>>(),
                    found.keys().collect::<Vec<_>>()
                );
                for (name, bytes) in seen {
                    assert!(found[name] == *bytes, "{name} differs");
                }
            }
        }
    }
    // What is not asked for is not written.
    let only = ["export", "out-1", "--to", "only", "--format", "sqlite"];
    ends(&run(&shell, &only), 0);
    assert_eq!(
        files(&shell, "only").into_keys().collect::<Vec<_>>(),
        ["study.sqlite"]
    );
}

/// ST-78, ST-80: further formats are hashed, made again to compare, and bundled.
#[test]
fn an_edited_value_of_any_format_is_found() {
    let shell = Shell::new();
    awkward(&shell, "");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    let verify = || run(&shell, &["verify", "out"]);
    ends(&verify(), 0);
    ends(
        &run(&shell, &["export", "out", "--format", "json,sqlite"]),
        0,
    );
    ends(&verify(), 0);
    let (text, sealed) = (
        shell.read("out/runs.jsonl"),
        shell.read("out/fairtrial.json"),
    );
    shell.write("out/runs.jsonl", &text.replacen("success", "failed!", 1));
    let found = verify();
    ends(&found, 3);
    assert_eq!(found.stdout, "runs.jsonl: changed since it was written\n");
    shell.write("out/runs.jsonl", &text);
    python(
        &shell,
        r#"
import hashlib, json, sqlite3
db = sqlite3.connect("out/study.sqlite")
db.execute("UPDATE runs SET status = 'success'")
db.commit()
db.close()
data = json.load(open("out/fairtrial.json"))
data["files"]["study.sqlite"] = hashlib.sha256(open("out/study.sqlite", "rb").read()).hexdigest()
json.dump(data, open("out/fairtrial.json", "w"))
"#,
    );
    let found = verify();
    ends(&found, 3);
    assert_eq!(
        found.stdout,
        "fairtrial.json: a value of it was changed\nstudy.sqlite: is not what the journal says\n"
    );
    ends(&run(&shell, &["export", "out", "--format", "sqlite"]), 0);
    ends(&verify(), 0);
    assert_eq!(shell.read("out/fairtrial.json"), sealed);
    std::fs::remove_file(shell.path().join("out/runs.jsonl")).expect("it is there");
    assert_eq!(verify().stdout, "runs.jsonl: gone\n");
    ends(&run(&shell, &["export", "out", "--format", "json"]), 0);
    ends(&run(&shell, &["bundle", "out"]), 0);
    python(
        &shell,
        "import tarfile\n\
         names = [m.name for m in tarfile.open('out.tar.gz')]\n\
         assert 'out/study.sqlite' in names and 'out/runs.jsonl' in names, names\n\
         assert not any('/.' in n or n.endswith('.new') for n in names), names\n",
    );
}

/// ST-72, ST-74: what is there is kept current, what is asked for and not there is written, and else nothing changes.
#[test]
fn a_resume_keeps_every_format_current() {
    let shell = Shell::new();
    awkward(&shell, "");
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "--sqlite"]),
        3,
    );
    shell.write(
        "agents.py",
        &AGENTS.replace("raise ValueError", "return good"),
    );
    let counts = |expected: &str| {
        python(
            &shell,
            &format!(
                "import sqlite3\n\
                 rows = sqlite3.connect('out/study.sqlite').execute('SELECT status, count(*) FROM runs GROUP BY 1 ORDER BY 1')\n\
                 assert rows.fetchall() == {expected}\n"
            ),
        );
    };
    counts("[('failed', 8), ('success', 8)]");
    let again = ["resume", "out", "--retry", "failed", "--accept", "changed"];
    ends(&run(&shell, &again), 0);
    counts("[('success', 16)]");
    ends(&run(&shell, &["verify", "out"]), 0);
    let before = files(&shell, "out");
    ends(&run(&shell, &["resume", "out"]), 0);
    assert_eq!(files(&shell, "out"), before);
    std::fs::remove_file(shell.path().join("out/study.sqlite")).expect("it is there");
    let done = run(&shell, &["resume", "out", "--sqlite"]);
    ends(&done, 0);
    assert!(done.stdout.contains("nothing to do"), "{}", done.stdout);
    assert_eq!(files(&shell, "out"), before);
}

/// ST-1, ST-18, ST-74: a format that is none, or is not built in, is told with its place before anything is made.
#[test]
fn a_format_that_cannot_be_written_is_refused() {
    let shell = Shell::new();
    for (formats, said) in [
        (
            "[sqlit]",
            "study.yaml:16:10: `export` cannot be `sqlit`; did you mean `sqlite`?\n",
        ),
        (
            "[json, json]",
            "study.yaml:16:16: `json` is given twice; keep one\n",
        ),
        ("sqlite", "study.yaml:16:9: "),
    ] {
        awkward(&shell, &format!("export: {formats}\n"));
        for command in ["plan", "run"] {
            let refused = run(&shell, &[command, "study.yaml"]);
            ends(&refused, 2);
            assert!(refused.stderr.starts_with(said), "{}", refused.stderr);
            assert_eq!(refused.stderr.lines().count(), 1);
        }
        assert!(!shell.path().join("artifacts").exists());
    }
    awkward(&shell, "");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    ends(&run(&shell, &["export", "out", "--format", "xls"]), 2);
    let parquet = ["export", "out", "--format", "csv,parquet", "--to", "new"];
    let refused = run(&shell, &parquet);
    if refused.code == Some(0) {
        fairtrial_tests::note(
            "this `fairtrial` has Parquet built in: that it is refused is not seen",
        );
        return;
    }
    ends(&refused, 2);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("parquet is not built in"));
    assert!(!shell.path().join("new").exists());
    awkward(&shell, "export: [csv, parquet]\n");
    let refused = run(&shell, &["run", "study.yaml"]);
    ends(&refused, 2);
    let said = "study.yaml:16:15: `parquet` is not built into this fairtrial; ";
    assert!(refused.stderr.starts_with(said), "{}", refused.stderr);
    assert!(!shell.path().join("artifacts").exists());
}
