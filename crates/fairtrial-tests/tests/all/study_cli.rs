//! Studies as a user runs them: `fairtrial run`, `resume`, `retry`, `status`, `export`.

mod archive;
mod attacked;
mod columns;
mod dre;
mod files;
mod formats;
mod resuming;
mod rules;
mod running;
mod shown;
mod stopping;
mod tables;

use std::collections::BTreeMap;
use std::path::Path;

use fairtrial_tests::{Finished, Shell};

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

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairtrial-study/tests/fixtures")
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
