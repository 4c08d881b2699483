//! Evaluations that go on where an earlier process was stopped.

use std::time::Instant;

use fairtrial_tests::{stress, wait_until};
use rustix::process::Signal;
use serde_json::Value as Json;

use super::trial::{Report, Trial, ends, right, wrong};

/// A proposer whose answers follow from what it is asked, and from nothing else.
const PROPOSER: &str = "
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    parent = asked['parents'][0]
    text = parent['sources']['answer.sh']
    kind = asked['kind']
    new = {'repair': text.replace('41', '42') + '# repaired\\n'}.get(kind, text + '# ' + kind + '\\n')
    print(json.dumps({'id': asked['id'], 'tokens': 7, 'candidates': [{'files': {'answer.sh': new}, 'note': kind}]}), flush=True)
";

fn searching() -> Trial {
    let trial = Trial::new();
    trial.write("proposer.py", PROPOSER);
    trial.spec(
        "parallel: 1\nbaseline: {runs: 2}\nbench: [{name: b, command: [sh, answer.sh]}]\n\
         measure: {max_blocks: 6, repeats: 0, min_effect: 50%, confirm: false}\n\
         search: {proposer: {command: [python3, proposer.py]}, concurrency: 1, repair: {max_diff_share: 100%, stop_at_correct: 5}}\n",
    );
    trial.candidates(&[
        right("one"),
        wrong("two"),
        right("three"),
        wrong("four"),
        right("one"),
    ]);
    trial
}

/// The ledger without its times.
fn ledger(report: &Report) -> Json {
    let mut ledger = report.0["proposals"].clone();
    for entry in ledger["entries"].as_array_mut().expect("a list") {
        for key in ["asked_s", "ended_s"] {
            entry.as_object_mut().expect("an entry").remove(key);
        }
    }
    ledger
}

/// CA-97: killed at any moment and gone on with, it ends as if nothing had happened.
#[tokio::test]
async fn a_killed_evaluation_goes_on_to_the_same_end() {
    let kills: u32 = if stress() { 100 } else { 10 };
    let trial = searching();
    let begun = Instant::now();
    ends(&trial.run(&["--json"]), 0);
    let whole = begun.elapsed();
    let calm = trial.written();
    assert_eq!(
        calm.0["proposals"]["answered"], 2,
        "{}",
        calm.0["proposals"]
    );
    std::fs::rename(trial.path("out"), trial.path("calm")).expect("it is ours");
    let before = trial.census("repo");
    let mut done = 0;
    for kill in 0..kills {
        let running = trial.evaluate(&["--json", going_on(&trial)]).start();
        let moment = Instant::now() + whole * (10 + (kill * 61 % 90)) / 100;
        wait_until("its moment has come", || {
            Instant::now() >= moment || trial.path("out/evaluation.json").exists()
        })
        .await;
        running.signal(Signal::KILL);
        drop(running.end());
        if trial.path("out/evaluation.json").exists() {
            same(&trial, &calm);
            done += 1;
            std::fs::remove_dir_all(trial.path("out")).expect("it is ours");
        }
    }
    ends(&trial.run(&["--json", going_on(&trial)]), 0);
    same(&trial, &calm);
    assert_eq!(trial.census("repo"), before);
    wait_until("the last one is gone", || {
        trial.shell.processes().is_empty()
    })
    .await;
    trial.assert_nothing_left();
    fairtrial_tests::note(format!("{kills} kills, {done} ends before the last"));
}

/// CA-97: a proposal that was tested, and whose end was not written down any more, is not tested again.
#[test]
fn a_proposal_that_was_tested_is_not_tested_again() {
    let trial = searching();
    ends(&trial.run(&["--json"]), 0);
    let calm = trial.written();
    let journal = trial.shell.read("out/journal.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    let is_last_test = |pair: &[&str]| {
        pair[0].contains(r#""kind":"checked""#) && pair[1].contains(r#""record":"settled""#)
    };
    let at = lines.windows(2).rposition(is_last_test);
    let killed = lines[..=at.expect("a proposal was tested")].concat();
    trial.write("out/journal.jsonl", &killed);
    trial.write("out/runs.jsonl", "");
    std::fs::remove_file(trial.path("out/evaluation.json")).expect("it is ours");
    ends(&trial.run(&["--json", "--resume"]), 0);
    same(&trial, &calm);
}

/// Before its first file there is nothing to go on with.
fn going_on(trial: &Trial) -> &'static str {
    match trial.files("out").is_empty() {
        true => "--no-progress",
        false => "--resume",
    }
}

fn same(trial: &Trial, calm: &Report) {
    let report = trial.written();
    assert_eq!(report.correctness(), calm.correctness());
    assert_eq!(ledger(&report), ledger(calm));
    // Only what was in flight runs twice: nothing is on record twice.
    let mut seen = std::collections::BTreeSet::new();
    for record in trial.recorded("checked") {
        assert!(seen.insert(record["id"].to_string()), "{record}");
    }
    for record in trial.recorded("baseline") {
        assert!(
            seen.insert(format!("{} {}", record["test"], record["run"])),
            "{record}"
        );
    }
    for run in trial.lines("runs.jsonl") {
        let keys = ["series", "block", "side", "bench", "repeat", "partner_of"];
        let key = keys.map(|key| run[key].to_string()).join(" ");
        assert!(seen.insert(key), "{run}");
    }
}

/// CA-97: what ended is read, and nothing is run again.
#[test]
fn an_evaluation_that_ended_is_only_read() {
    let trial = searching();
    ends(&trial.run(&[]), 0);
    let first = trial.written();
    let (runs, checked) = (trial.lines("runs.jsonl"), trial.recorded("checked"));
    trial.write("repo/tests/check.sh", "exit 1\n"); // nobody would pass now
    let done = trial.run(&["--resume", "--json"]);
    ends(&done, 0);
    // CA-96: and the base is the one it began with.
    assert!(
        done.stderr.contains("has changed since")
            || trial.written().0["warnings"]
                .to_string()
                .contains("has changed since")
    );
    let again = trial.written();
    assert_eq!(again.correctness(), first.correctness());
    assert_eq!(again.names(), first.names());
    assert_eq!(ledger(&again), ledger(&first));
    assert_eq!(trial.lines("runs.jsonl"), runs);
    assert_eq!(trial.recorded("checked"), checked);
    for name in first.names() {
        assert_eq!(
            again.of(name)["judgement"],
            first.of(name)["judgement"],
            "{name}"
        );
    }
}

/// CA-96
#[test]
fn a_changed_file_is_refused_and_its_keys_are_named() {
    let trial = Trial::new();
    trial.candidates(&[right("good")]);
    ends(&trial.run(&[]), 0);
    let before = trial.census("out");
    trial.spec("baseline: {runs: 2}\nprotect: []\n");
    let done = trial.run(&["--resume"]);
    ends(&done, 2);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    assert!(
        done.stderr.contains("`baseline.runs`") && done.stderr.contains("`protect`"),
        "{}",
        done.stderr
    );
    assert_eq!(trial.census("out"), before);
    trial.spec("parallel: 1\n");
    ends(&trial.run(&["--resume", "-j", "3"]), 0);
}

/// CA-95: a torn end is dropped, in the journal and beside it; damage elsewhere ends it, and names the line.
#[test]
fn a_torn_end_is_dropped_and_damage_elsewhere_is_named() {
    let trial = Trial::new();
    trial.spec("bench: [{name: b, command: [sh, answer.sh]}]\nmeasure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n");
    trial.candidates(&[right("good"), wrong("bad")]);
    ends(&trial.run(&[]), 0);
    let calm = trial.written();
    for name in ["out/journal.jsonl", "out/runs.jsonl"] {
        let text = trial.shell.read(name);
        trial.write(name, &text[..text.len() - 20]);
        ends(&trial.run(&["--resume"]), 0);
        ends(&trial.run(&["--resume"]), 0);
        assert_eq!(trial.written().correctness(), calm.correctness());
    }
    // As if killed while the last block was written: the race goes on, and what follows the torn line can be read.
    let text = trial.shell.read("out/journal.jsonl");
    let lines = text.split_inclusive('\n');
    let in_race: String = lines
        .take_while(|line| !line.contains("\"kind\":\"raced\""))
        .collect();
    trial.write("out/journal.jsonl", &in_race);
    let text = trial.shell.read("out/runs.jsonl");
    trial.write("out/runs.jsonl", &text[..text.len() - 20]);
    ends(&trial.run(&["--resume"]), 0);
    ends(&trial.run(&["--resume"]), 0);
    assert_eq!(trial.written().correctness(), calm.correctness());
    let text = trial.shell.read("out/journal.jsonl");
    let second = text.lines().nth(1).expect("a second line").to_owned();
    trial.write(
        "out/journal.jsonl",
        &text.replace(&second, &second.replace("record", "recrod")),
    );
    let done = trial.run(&["--resume"]);
    ends(&done, 1);
    assert!(done.stderr.contains("journal.jsonl:2"), "{}", done.stderr);
}

/// CA-97: blocks are gone on with, unless the machine was started anew since.
#[tokio::test]
async fn whole_blocks_count_unless_they_are_of_another_boot() {
    for same_boot in [true, false] {
        let trial = Trial::new();
        trial.write(
            "repo/bench.sh",
            "while test -e \"$PLACE/stop\" -a -e \"$PLACE/out/runs.jsonl\"; do sleep 0.01; done\n",
        );
        let place = trial.shell.path();
        trial.spec(&format!(
            "env: {{set: {{PLACE: {place:?}}}}}\nbench: [{{name: b, command: [sh, bench.sh]}}]\n\
             measure: {{max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}}\n"
        ));
        trial.candidates(&[right("good")]);
        let running = trial.evaluate(&[]).start();
        let in_race = || {
            let runs = trial.lines("runs.jsonl").into_iter();
            runs.filter(|run| run["series"] == "1/race/1").count()
        };
        wait_until("a block is measured", || in_race() > 0).await;
        trial.write("stop", "");
        running.signal(Signal::KILL);
        drop(running.end());
        std::fs::remove_file(trial.path("stop")).expect("it is ours");
        let before = trial.lines("runs.jsonl");
        if !same_boot {
            as_of_another_boot(&trial);
        }
        ends(&trial.run(&["--resume"]), 0);
        let after = trial.lines("runs.jsonl");
        assert_eq!(after[..before.len()], before, "nothing is taken back");
        let first_block = |run: &&Json| run["series"] == "1/race/1" && run["block"] == 1;
        let again = after[before.len()..].iter().filter(first_block).count();
        assert_eq!(again == 0, same_boot, "{again} runs of the first block");
        assert_eq!(trial.recorded("race").len(), if same_boot { 1 } else { 2 });
    }
}

/// As if the machine had been started anew since.
fn as_of_another_boot(trial: &Trial) {
    let script = "
import hashlib, re, sys
def sealed(line):
    record = re.sub('\"boot_id\":\"[^\"]*\"', '\"boot_id\":\"another\"', line.split('\",\"record\":', 1)[1].rstrip()[:-1])
    return '{\"sha256\":\"%s\",\"record\":%s}\\n' % (hashlib.sha256(record.encode()).hexdigest()[:16], record)
lines = open(sys.argv[1]).readlines()
open(sys.argv[1], 'w').writelines(map(sealed, lines))
";
    #[expect(clippy::disallowed_methods, reason = "somebody else changes a file")]
    let status = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(trial.path("out/journal.jsonl"))
        .status()
        .expect("python3 is there");
    assert!(status.success());
}

/// CA-56, CA-97: what was not a candidate's fault in a race is not its fault after a resume either.
#[tokio::test]
async fn a_misfortune_in_a_race_stays_one() {
    let trial = Trial::new();
    // It is tried first when no candidate is there yet.
    trial.write(
        "repo/bench.sh",
        "if test -e \"$PLACE/tried\"; then\n\
         touch \"$PLACE/at-bench\"; while test -e \"$PLACE/stop\"; do sleep 0.01; done\n\
         fi; touch \"$PLACE/tried\"\n",
    );
    let place = trial.shell.path();
    trial.spec(&format!(
        "env: {{set: {{PLACE: {place:?}}}}}\nbench: [{{name: b, command: [sh, bench.sh]}}]\n\
         measure: {{max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}}\n"
    ));
    trial.candidates(&[right("spoiled"), right("good")]);
    trial.write("stop", "");
    let running = trial.evaluate(&["--json"]).start();
    wait_until("the base is measured", || trial.path("at-bench").exists()).await;
    // Somebody changes what was staged of a candidate.
    let staged = trial.files("cache/workspaces").into_iter();
    let staged = staged.filter(|path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.contains("# spoiled")
    });
    let staged: Vec<_> = staged.collect();
    assert!(!staged.is_empty());
    for path in staged {
        std::fs::write(path, "echo 42 # other\n").expect("it is ours");
    }
    std::fs::remove_file(trial.path("stop")).expect("it is ours");
    ends(&running.end(), 0);
    for round in 0..2 {
        let report = trial.written();
        assert_eq!(
            report.failure("spoiled"),
            "infra",
            "{round}: {}",
            report.of("spoiled")
        );
        assert!(report.message("spoiled").contains("staged"));
        assert_eq!(report.failure("good"), "");
        ends(&trial.run(&["--resume", "--json"]), 0);
    }
}
