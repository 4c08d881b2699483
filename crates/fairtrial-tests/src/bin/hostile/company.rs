//! The worst of them in one batch with honest calls, by the command line.

use std::fs;
use std::path::Path;

use fairtrial_tests::Cli;
use serde_json::{Value as Json, json};

use crate::engine::{DIR, Stage, with_prelude};
use crate::expect::Got;
use crate::places::Places;
use crate::show::Refusal;
use crate::table::{Source, source};

const HONEST: usize = 50;
const VILLAINS: [(Source, &str); 8] = [
    (source!("h01_fork_bomb.py"), ""),
    (source!("h14_memory.py"), "one process"),
    (source!("h22_fill_disk.py"), "big file"),
    (source!("h29_hunt.py"), ""),
    (source!("h31_tcp.py"), ""),
    (source!("h07_kill_others.py"), "everybody"),
    (source!("h03_daemon.py"), ""),
    (source!("h24_swap_scratch.py"), "contents"),
];

/// All honest calls must be `ok`, and every line must have its answer, in order.
pub(crate) fn keep_company(stage: &Stage<'_>) -> Result<Got, Refusal> {
    let file = Path::new(DIR).join("host/batch.jsonl");
    let calls = calls(stage);
    let lines: Vec<String> = calls.iter().map(Json::to_string).collect();
    fs::write(&file, lines.join("\n"))?;
    let words = ["batch", &file.display().to_string(), "-j", "4"];
    let ended = Cli::new(words)
        .env("FAIRTRIAL_SPILL_DIR", Path::new(DIR).join("spill"))
        .run();
    fs::remove_file(&file)?;
    let mut got = Got::default();
    let mut answers = ended.stdout.lines();
    for call in &calls {
        let answer: Json = serde_json::from_str(answers.next().unwrap_or("null"))?;
        let honest = call["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("honest"));
        if answer["id"] != call["id"] || (honest && answer["verdict"] != "ok") {
            let problem = format!("{} became {answer}; {}", call["id"], ended.stderr);
            got.problems.push(problem);
        }
    }
    Ok(got)
}

fn calls(stage: &Stage<'_>) -> Vec<Json> {
    let places = Places::new(Path::new(DIR).join("outside"), 3.0);
    let terms = |id: String, source: String, args: Json| {
        json!({
            "id": id, "source": source, "function": "attack", "args": args,
            "sandbox": stage.level.to_string(), "python": stage.plan.python,
            "timeout_s": 20, "limits": {"processes": 40, "memory_bytes": 96 << 20, "file_bytes": 64 << 20},
        })
    };
    let honest = |number: usize| {
        let source = "def attack(n):\n    return sum(range(n))\n";
        terms(format!("honest-{number}"), source.into(), json!([number]))
    };
    let mut calls = Vec::new();
    for (number, (source, what)) in VILLAINS.iter().enumerate() {
        let share = HONEST / VILLAINS.len();
        calls.extend((number * share..(number + 1) * share).map(honest));
        let mut villain = terms(
            source.name.into(),
            with_prelude(source),
            json!([places, what]),
        );
        villain["timeout_s"] = 3.into();
        calls.push(villain);
    }
    calls.extend((calls.len() - VILLAINS.len()..HONEST).map(honest));
    calls
}
