//! Candidates that a program proposes.

use fairtrial_tests::wait_until;
use serde_json::{Value as Json, json};

use super::trial::{Trial, answers, ends, right, wrong};

/// A proposer that keeps what it is asked, and answers with `answer(asked)`.
fn proposer(trial: &Trial, answer: &str) {
    let text = format!(
        "import json, os, sys, time\ndef patched(asked, old, new):\n    text = asked['parents'][0]['sources']['answer.sh']\n    \
         return {{'files': {{'answer.sh': text.replace(old, new)}}}}\n{answer}\n\
         log = open('asked.jsonl', 'a')\nfor line in sys.stdin:\n    log.write(line); log.flush()\n    asked = json.loads(line)\n    \
         print(json.dumps({{'id': asked['id'], **answer(asked)}}), flush=True)\n"
    );
    trial.write("proposer.py", &text);
}

fn asked(trial: &Trial) -> Vec<Json> {
    let text = std::fs::read_to_string(trial.path("asked.jsonl")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

const SEARCH: &str =
    "search: {proposer: {command: [python3, proposer.py]}, repair: {max_diff_share: 100%}}\n";

/// CA-84, CA-88
#[test]
fn a_wrong_candidate_is_sent_back_with_all_that_is_known_of_it() {
    let trial = Trial::new();
    proposer(
        &trial,
        "def answer(asked): return {'candidates': [patched(asked, '41', '42')], 'tokens': 5}",
    );
    trial.spec(SEARCH);
    trial.candidates(&[wrong("bad"), json!({"name": "torn", "patch": "no patch"})]);
    let report = trial.report(0, &[]);
    let asked = asked(&trial);
    assert_eq!(
        asked.len(),
        1,
        "only differences can be repaired: {asked:?}"
    );
    let (one, parent) = (&asked[0], &asked[0]["parents"][0]);
    assert_eq!(
        (&one["v"], &one["kind"], &one["n"]),
        (&json!(1), &json!("repair"), &json!(1))
    );
    assert_eq!(one["base"]["sources"]["answer.sh"], "echo 42\n");
    assert_eq!(parent["id"], report.of("bad")["id"]);
    assert_eq!(parent["sources"]["answer.sh"], "echo 41 # bad\n");
    assert_eq!(parent["failure"]["kind"], "mismatch");
    assert_eq!(parent["diffs"].as_array().map(Vec::len), Some(1));
    let ledger = &report.0["proposals"];
    assert_eq!(
        (
            &ledger["requests"],
            &ledger["answered"],
            &ledger["evaluated"],
            &ledger["tokens"]
        ),
        (&json!(1), &json!(1), &json!(1), &json!(5))
    );
    let repaired = report.0["evaluations"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["origin"] == "repair")
        .expect("a repaired one");
    assert_eq!(repaired["parent"], report.of("bad")["id"]);
    assert_eq!(
        (&repaired["generation"], &repaired["rank"]),
        (&json!(2), &json!(1))
    );
    // What was proposed can be had, and given again.
    let proposed = trial.lines("proposed.jsonl");
    assert_eq!(proposed.len(), 1);
    assert_eq!(proposed[0]["name"], repaired["name"]);
    assert_eq!(proposed[0]["files"]["answer.sh"], "echo 42 # bad\n");
    trial.candidates(&proposed);
    trial.spec("output: again\n");
    let again = trial.report(0, &[]);
    assert_eq!(again.0["evaluations"][0]["id"], repaired["id"]);
}

/// CA-88: not once enough are correct, nor more often than is allowed.
#[test]
fn repairs_are_asked_for_only_where_they_are_wanted() {
    let trial = Trial::new();
    proposer(
        &trial,
        "def answer(asked): return {'candidates': [patched(asked, '41', '40')]}",
    );
    trial.candidates(&[wrong("a"), wrong("b"), wrong("c")]);
    trial.spec("parallel: 1\nsearch: {proposer: {command: [python3, proposer.py]}, repair: {max: 2, max_diff_share: 100%}}\n");
    trial.report(3, &[]);
    assert_eq!(asked(&trial).len(), 2);
    trial.candidates(&[right("r1"), right("r2"), wrong("a")]);
    trial.spec("parallel: 1\noutput: second\nsearch: {proposer: {command: [python3, proposer.py]}, repair: {stop_at_correct: 2, max_diff_share: 100%}}\n");
    trial.report(0, &[]);
    assert_eq!(asked(&trial).len(), 2, "none more");
    trial.candidates(&[wrong("a"), right("r1")]);
    trial.spec("output: third\nsearch: {proposer: {command: [python3, proposer.py]}}\n");
    trial.report(0, &[]);
    assert_eq!(asked(&trial).len(), 2, "all of its cases differ: too many");
}

/// CA-87: whatever the proposer does, given candidates are evaluated to the end, and the exit code is theirs.
#[test]
fn a_proposer_that_does_not_do_its_part_changes_nothing_else() {
    let sins = [
        ("dies", "import sys; sys.exit(3)"),
        (
            "dies when asked",
            "import sys; sys.stdin.readline(); sys.exit(3)",
        ),
        ("hangs", "import time; time.sleep(600)"),
        (
            "floods",
            "import sys\nwhile True: sys.stdout.write('x' * 65536)",
        ),
        (
            "babbles",
            "import sys\nfor line in sys.stdin: print('no JSON', flush=True)",
        ),
    ];
    for (sin, text) in sins {
        let trial = Trial::new();
        trial.write("proposer.py", text);
        trial.spec("search: {proposer: {command: [python3, proposer.py], timeout: 500ms, restarts: 1}, repair: {max_diff_share: 100%}}\n");
        trial.candidates(&[right("good"), wrong("bad")]);
        let report = trial.report(0, &[]);
        assert_eq!(report.failure("good"), "", "{sin}");
        assert_eq!(report.failure("bad"), "mismatch", "{sin}");
        let ledger = &report.0["proposals"];
        assert_eq!(
            (&ledger["requests"], &ledger["answered"], &ledger["open"]),
            (&json!(1), &json!(0), &json!(0)),
            "{sin}: {ledger}"
        );
        let why = ledger["proposer_dead"].as_str();
        assert!(why.is_some_and(|why| !why.is_empty()), "{sin}: {ledger}");
        trial.assert_nothing_left();
    }
    let trial = Trial::new();
    trial.spec("search: {proposer: {command: [/no/such/program], restarts: 1}, repair: {max_diff_share: 100%}}\n");
    trial.candidates(&[wrong("bad")]);
    let report = trial.report(3, &[]);
    let ledger = &report.0["proposals"];
    assert_eq!(
        (&ledger["requests"], &ledger["failed"]),
        (&json!(1), &json!(1)),
        "{ledger}"
    );
    let why = ledger["proposer_dead"].as_str().unwrap_or_default();
    assert!(why.contains("cannot be started"), "{ledger}");
    let page = trial.shell.read("out/report.html");
    assert!(page.contains("cannot be started"));
    trial.assert_nothing_left();
}

/// CA-86: what is not understood is kept, and the rest of an answer counts.
#[test]
fn what_is_not_understood_of_an_answer_is_kept() {
    let trial = Trial::new();
    proposer(
        &trial,
        "def answer(asked): return {'candidates': [{'note': 'no patch'}, patched(asked, '41', '42')]}",
    );
    trial.spec(SEARCH);
    trial.candidates(&[wrong("bad")]);
    let report = trial.report(0, &[]);
    let entry = &report.0["proposals"]["entries"][0];
    assert_eq!(
        entry["malformed"].as_array().map(Vec::len),
        Some(1),
        "{entry}"
    );
    assert_eq!(report.0["proposals"]["evaluated"], 1);
}

/// CA-91: tests never wait for a proposer.
#[tokio::test]
async fn tests_go_on_while_a_proposer_thinks() {
    let trial = Trial::new();
    proposer(
        &trial,
        "def answer(asked):\n    while not os.path.exists('think'): time.sleep(0.01)\n    return {'candidates': [patched(asked, '41', '42')]}",
    );
    trial.spec(&format!("parallel: 1\n{SEARCH}"));
    trial.candidates(&[wrong("bad"), right("r1"), right("r2")]);
    let running = trial.evaluate(&["--json"]).start();
    wait_until("all who are given are tested", || {
        trial.recorded("checked").len() == 3
    })
    .await;
    trial.write("think", "");
    ends(&running.end(), 0);
    assert_eq!(trial.written().0["proposals"]["evaluated"], 1);
}

/// CA-89, CA-92: after a race the faster ones are refined, then taken further; the best runs in every race.
#[test]
fn faster_candidates_are_refined_and_the_best_runs_again() {
    let trial = Trial::new();
    trial.write("repo/answer.sh", "sleep 0.1; echo 42\n");
    trial.commit();
    proposer(
        &trial,
        "def answer(asked): return {'candidates': [patched(asked, 'echo', ': ' + asked['kind'] + '; echo')]}",
    );
    trial.spec(
        "bench: [{name: b, command: [sh, answer.sh]}]\nmeasure: {max_blocks: 6, repeats: 0, confirm: false}\n\
         search: {proposer: {command: [python3, proposer.py]}, adaptive: {per_lineage: 1, total: 1}}\n",
    );
    trial.candidates(&[
        answers("fast", "echo 42\n"),
        answers("slow", "sleep 0.3; echo 42\n"),
    ]);
    let report = trial.report(0, &[]);
    let asked = asked(&trial);
    let kinds: Vec<&str> = asked
        .iter()
        .map(|one| one["kind"].as_str().expect("a kind"))
        .collect();
    assert_eq!(kinds, ["refine", "adaptive"], "{asked:?}");
    assert_eq!(asked[0]["parents"].as_array().map(Vec::len), Some(1));
    assert_eq!(asked[0]["parents"][0]["id"], report.of("fast")["id"]);
    assert_eq!(asked[0]["parents"][0]["result"]["verdict"], "faster");
    assert_eq!(
        asked[1]["ancestry"][0]["id"],
        report.of("fast")["id"],
        "{}",
        asked[1]
    );
    let races = trial.recorded("race");
    assert_eq!(races.len(), 3);
    let bests = trial
        .recorded("search")
        .into_iter()
        .filter(|one| one["record"]["record"] == "raced");
    let bests: Vec<Json> = bests.map(|one| one["record"]["best"].clone()).collect();
    for (race, best) in races[1..].iter().zip(&bests) {
        let entrants = race["entrants"].as_array().expect("a list");
        assert!(entrants.contains(best), "{best} in {entrants:?}");
    }
    let origins: Vec<&Json> = report.0["evaluations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["origin"])
        .collect();
    assert!(
        origins.contains(&&json!("refine")) && origins.contains(&&json!("adaptive")),
        "{origins:?}"
    );
    assert_eq!(report.names().last(), Some(&"slow"));
}

/// CA-92: a spent budget stops the asking; what is there is evaluated and ranked.
#[test]
fn a_spent_budget_ends_the_search_and_not_the_evaluation() {
    let trial = Trial::new();
    proposer(
        &trial,
        "def answer(asked): return {'candidates': [patched(asked, '41', '42 #%d' % n) for n in range(5)]}",
    );
    trial.spec(
        "search: {proposer: {command: [python3, proposer.py]}, repair: {max_diff_share: 100%}, budget: {requests: 1, candidates: 2}}\n",
    );
    trial.candidates(&[wrong("a"), wrong("b"), right("good")]);
    let report = trial.report(0, &[]);
    let ledger = &report.0["proposals"];
    assert_eq!(asked(&trial).len(), 1);
    assert_eq!(
        (&ledger["requests"], &ledger["proposed"]),
        (&json!(1), &json!(5)),
        "{ledger}"
    );
    assert_eq!(
        (&ledger["evaluated"], &ledger["not_run"]),
        (&json!(1), &json!(4)),
        "{ledger}"
    );
    assert_eq!(report.failure("good"), "");
}

/// Python that says 42, slowly; a candidate that is as long and fast; and a proposer whose answer is that one, shorter.
fn shorter_comes_late(test: &str) -> Trial {
    let trial = Trial::new();
    let base = "import time\ntime.sleep(0.2)\nprint(42)\n";
    trial.write("repo/answer.py", base);
    trial.commit();
    proposer(
        &trial,
        "def answer(asked): return {'candidates': [{'files': {'answer.py': 'import time\\nprint(42)\\n'}}]}",
    );
    trial.spec(&format!(
        "parallel: 1\ntests: [{{name: check, command: {test:?}, output: compare}}]\n\
         bench: [{{name: b, command: [python3, answer.py]}}]\nmeasure: {{max_blocks: 8, repeats: 0, confirm: false}}\n\
         search: {{proposer: {{command: [python3, proposer.py]}}, repair: {{max_diff_share: 100%}}, budget: {{requests: 1}}}}\n"
    ));
    let long = "import time\n# It need not sleep.\nprint(42)\n\n\n";
    trial.candidates(&[
        super::trial::changes("long", &[("answer.py", long)]),
        super::trial::changes("bad", &[("answer.py", "print(41)\n")]),
    ]);
    trial
}

/// CA-17, CA-18: of equal ones the shorter is delivered, once it has passed its own tests; it is not measured again.
#[test]
fn a_shorter_equal_that_comes_late_is_tested_and_then_delivered() {
    let trial = shorter_comes_late("python3 answer.py");
    let report = trial.report(0, &[]);
    let short = delivered(&report, "repair");
    assert_eq!(
        (&short["rank"], &short["failure"]),
        (&json!(1), &Json::Null)
    );
    assert!(!short["judgement"].is_null(), "{short}");
    assert_eq!(report.of("long")["duplicate_of"], short["id"]);
    assert!(report.of("long")["rank"].is_null());
    let checked = trial.recorded("checked");
    let ids: Vec<&Json> = checked.iter().map(|one| &one["id"]).collect();
    assert!(ids.contains(&&short["id"]), "it was tested itself: {ids:?}");
    assert_eq!(ids.len(), 3);
    let runs = trial.shell.read("out/runs.jsonl");
    let is_measured = |one: &Json| runs.contains(one["id"].as_str().expect("an id"));
    assert!(is_measured(report.of("long")) && !is_measured(short));
}

/// CA-18: one that fails by itself is not.
#[test]
fn a_shorter_equal_that_fails_its_tests_is_not_delivered() {
    let trial = shorter_comes_late("test $(wc -l < answer.py) -ne 2 && python3 answer.py");
    let report = trial.report(0, &[]);
    let short = delivered(&report, "repair");
    assert_eq!(short["failure"]["kind"], "mismatch", "{short}");
    assert_eq!(report.of("long")["rank"], 1);
    assert!(report.of("long")["duplicate_of"].is_null());
}

fn delivered<'a>(report: &'a super::trial::Report, origin: &str) -> &'a Json {
    let all = report.0["evaluations"].as_array().expect("a list");
    let found = all.iter().find(|one| one["origin"] == origin);
    found.unwrap_or_else(|| panic!("none of {origin} in {}", report.0))
}

/// CA-84: what was given as files is told as a patch, too.
#[test]
fn a_candidate_of_files_is_told_as_a_patch() {
    let trial = Trial::new();
    proposer(
        &trial,
        "def answer(asked): return {'candidates': [{'patch': asked['parents'][0]['patch'].replace('41', '42')}]}",
    );
    trial.spec(SEARCH);
    trial.candidates(&[wrong("bad")]);
    let report = trial.report(0, &[]);
    let asked = asked(&trial);
    assert_eq!(
        asked[0]["parents"][0]["patch"],
        "diff --git a/answer.sh b/answer.sh\n--- a/answer.sh\n+++ b/answer.sh\n@@ -1 +1 @@\n-echo 42\n+echo 41 # bad\n"
    );
    assert_eq!(delivered(&report, "repair")["failure"], Json::Null);
}
