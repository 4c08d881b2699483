//! Phase 2: who is measured, how, and what counts as a gain.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use super::trial::{Trial, answers, ends, right, wrong};

const QUICK: &str = "measure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n";

/// CA-63, CA-64, CA-75, CA-78: each run is of the side it is recorded as, on equal terms, in an order of its own.
#[test]
fn what_is_recorded_of_a_run_is_what_ran() {
    let trial = Trial::new();
    let place = trial.path("log");
    // The whole file, then all that could differ between sides.
    let command = "{ tail -n 1 answer.sh; echo \"$PYTHONHASHSEED $(env | grep -v HASHSEED | sort | md5sum) $PWD $*\"; } | tr '\\n' ' ' >> \"$LOG\"; echo >> \"$LOG\"";
    trial.spec(&format!(
        "parallel: 4\nenv: {{set: {{LOG: {place:?}}}}}\nbench: [{{name: b, command: {command:?}}}]\n{QUICK}"
    ));
    let names: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
    let all: Vec<Json> = names.iter().map(|name| right(name)).collect();
    trial.candidates(&all);
    let report = trial.report(0, &[]);
    let named: BTreeMap<&str, &str> = names
        .iter()
        .map(|name| (report.id(name), &**name))
        .collect();
    let (log, runs) = (trial.shell.read("log"), trial.lines("runs.jsonl"));

    let mut terms = BTreeSet::new();
    let mut blocks: BTreeMap<(String, u64), Vec<(String, u64)>> = BTreeMap::new();
    let mut hashes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // Whoever asks how many processors the base uses runs it before.
    let before = log.lines().count() - runs.len();
    assert!(before <= 1, "every measured run is on record");
    for (line, run) in log.lines().skip(before).zip(&runs) {
        let side = run["side"].as_str().expect("a side");
        match named.get(side) {
            Some(name) => assert!(
                line.contains(&format!("# {name} ")),
                "{side} {name}: {line}"
            ),
            None => assert!(!line.contains('#'), "{side}: {line}"),
        }
        let (_, said) = line.split_once("42 ").expect("an answer");
        let said = match named.get(side) {
            Some(name) => said.trim_start_matches(&format!("# {name} ")),
            None => said,
        };
        let (seed, others) = said.split_once(' ').expect("a seed");
        assert_eq!(seed, run["hash_seed"].to_string(), "{line}");
        terms.insert(others.to_owned());
        let hash = run["tree_hash"].as_str().expect("a hash").to_owned();
        let owner = if named.contains_key(side) {
            side
        } else {
            "base"
        };
        hashes.entry(owner.to_owned()).or_default().insert(hash);
        assert!(run["wall_s"].as_f64().is_some_and(|wall_s| wall_s > 0.0));
        assert!(!run["isolation"].is_null() && !run["position"].is_null());
        if run["repeat"] == 0 && run["partner_of"].is_null() {
            let block = (
                run["series"].to_string(),
                run["block"].as_u64().expect("a block"),
            );
            let seed = run["hash_seed"].as_u64().expect("a seed");
            blocks
                .entry(block)
                .or_default()
                .push((side.to_owned(), seed));
        }
    }
    assert_eq!(terms.len(), 1, "all sides have the same terms: {terms:?}");
    assert!(
        hashes.values().all(|hashes| hashes.len() == 1),
        "{hashes:?}"
    );
    assert_eq!(hashes.values().flatten().collect::<BTreeSet<_>>().len(), 9);
    let races: Vec<_> = blocks
        .iter()
        .filter(|(block, _)| block.0 == "\"1/race/1\"")
        .collect();
    assert_eq!(races.len(), 6, "{races:?}");
    let mut orders = BTreeSet::new();
    let mut seeds = BTreeSet::new();
    for (block, sides) in races {
        let who: BTreeSet<&str> = sides.iter().map(|(side, _)| &**side).collect();
        assert_eq!(
            (who.len(), sides.len()),
            (10, 10),
            "{block:?}: each side once: {sides:?}"
        );
        let of_block: BTreeSet<u64> = sides.iter().map(|(_, seed)| *seed).collect();
        assert_eq!(of_block.len(), 1, "one seed per block");
        seeds.extend(of_block);
        orders.insert(
            sides
                .iter()
                .map(|(side, _)| side.clone())
                .collect::<Vec<_>>(),
        );
    }
    assert!(orders.len() > 1, "orders differ");
    assert_eq!(seeds.len(), 6, "seeds differ");
    // CA-53, CA-63: the order comes of the seed alone.
    let order = |runs: &[Json]| -> Vec<String> {
        runs.iter()
            .filter(|run| run["repeat"] == 0 && run["partner_of"].is_null())
            .map(|run| run["side"].to_string())
            .collect()
    };
    let first = order(&runs);
    ends(&trial.run(&["--output", "second", "-j", "1"]), 0);
    let second = trial.shell.read("second/runs.jsonl");
    let second: Vec<Json> = second
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(order(&second)[..60], first[..60]);
}

/// CA-61: who is not correct is not measured.
#[test]
fn only_the_correct_are_measured() {
    let trial = Trial::new();
    trial.spec(&format!(
        "bench: [{{name: b, command: [sh, answer.sh]}}]\n{QUICK}"
    ));
    trial.candidates(&[right("good"), wrong("bad")]);
    let report = trial.report(0, &[]);
    let sides: BTreeSet<String> = trial
        .lines("runs.jsonl")
        .iter()
        .map(|run| run["side"].to_string())
        .collect();
    let wanted = ["base", "control", report.id("good")].map(|side| json!(side).to_string());
    assert_eq!(sides, BTreeSet::from(wanted));
    assert!(report.of("bad")["judgement"].is_null());
    assert!(report.0["noise_floor"].as_f64().is_some());
}

/// CA-76: what fails, hangs or reports nothing is no gain.
#[test]
fn a_bench_that_fails_is_no_gain() {
    let trial = Trial::new();
    trial.write("repo/bench.sh", ". ./work.sh\n");
    trial.write("repo/work.sh", "true\n");
    trial.commit();
    trial.spec(&format!(
        "bench: [{{name: b, command: [sh, bench.sh], timeout: 5s}}]\n{QUICK}"
    ));
    let work = |name: &str, text: &str| super::trial::changes(name, &[("work.sh", text)]);
    trial.candidates(&[
        work("fails", "exit 3\n"),
        work("hangs", "sleep 600\n"),
        work("dies", "kill -9 $$\n"),
        work("good", "true # yes\n"),
    ]);
    let report = trial.report(0, &[]);
    for name in ["fails", "hangs", "dies"] {
        assert_eq!(report.failure(name), "bench_failed", "{}", report.of(name));
        assert!(report.of(name)["rank"].is_null());
    }
    assert_eq!(report.failure("good"), "");
    trial.assert_nothing_left();
}

/// CA-3: 1, CA-76: in the base it is an end of the whole, in a line that says where, before any candidate is tested.
#[test]
fn a_bench_that_fails_in_the_base_ends_the_evaluation() {
    let cases = [
        (
            "'echo no bench here >&2; exit 3 # {loops}'",
            "1",
            "exit code 3: no bench here",
        ),
        (
            "'echo no bench here >&2; exit 3 # {loops}'",
            "auto",
            "exit code 3: no bench here",
        ),
        ("[sh, absent.sh, '{loops}']", "auto", "absent.sh"),
        ("[no-such-program]", "1", "no-such-program"),
        ("[./absent]", "1", "absent"),
    ];
    for (command, loops, words) in cases {
        let trial = Trial::new();
        let spec = format!("bench: [{{name: b, loops: {loops}, command: {command}}}]\n{QUICK}");
        trial.spec(&spec);
        trial.candidates(&[right("good")]);
        let done = trial.run(&[]);
        ends(&done, 1);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        let place = format!("EVAL.yaml:8:{}: baseline unusable: ", 37 + loops.len());
        assert!(done.stderr.starts_with(&place), "{place} {}", done.stderr);
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
        assert!(done.stderr.contains("; mend it"), "{}", done.stderr);
        assert_eq!(trial.recorded("checked").len(), 0);
        trial.assert_nothing_left();
        // CA-96: nothing of it is in the way of the next.
        trial.spec(&format!(
            "bench: [{{name: b, command: [sh, answer.sh]}}]\n{QUICK}"
        ));
        ends(&trial.run(&[]), 0);
    }
}

/// CA-74: what a candidate says about time is nothing to us.
#[test]
fn a_candidate_that_lies_about_time_is_as_slow_as_it_is() {
    let trial = Trial::new();
    trial.write("repo/bench.py", "import work\n");
    trial.write("repo/work.py", "");
    trial.commit();
    let lies = "import time\nreal = time.sleep\ntime.time = time.perf_counter = time.monotonic = lambda: 0.0\nprint('0.000 s')\nreal(0.4)\n";
    trial.spec(&format!(
        "bench: [{{name: b, command: [python3, bench.py]}}]\n{QUICK}"
    ));
    trial.candidates(&[super::trial::changes("lies", &[("work.py", lies)])]);
    let report = trial.report(0, &[]);
    let said = &report.of("lies")["judgement"];
    let wall_s = report.of("lies")["metrics"]["wall_s"].as_f64();
    assert!(wall_s.is_some_and(|wall_s| wall_s >= 0.4), "{wall_s:?}");
    assert!(
        said["ratio"].as_f64().is_some_and(|ratio| ratio > 1.0),
        "{said}"
    );
    assert_eq!(report.0["winner"], Json::Null);
}

/// CA-77, CA-79: the winner is measured once more.
#[test]
fn a_winner_is_confirmed_in_a_series_of_its_own() {
    let trial = Trial::new();
    trial.write("repo/answer.sh", "sleep 0.2; echo 42\n");
    trial.commit();
    trial.spec(
        "bench: [{name: b, command: [sh, answer.sh]}]\nmeasure: {max_blocks: 6, repeats: 0}\n",
    );
    trial.candidates(&[
        answers("fast", "echo 42\n"),
        answers("slow", "sleep 0.6; echo 42\n"),
    ]);
    let report = trial.report(0, &[]);
    assert_eq!(report.0["winner"], report.of("fast")["id"], "{}", report.0);
    assert_eq!(report.of("fast")["confirmation"]["confirmed"], true);
    assert_eq!(report.names(), ["fast", "slow"]);
    let series: BTreeSet<String> = trial
        .lines("runs.jsonl")
        .iter()
        .map(|run| run["series"].to_string())
        .collect();
    assert!(
        series.contains(&format!("\"1/confirm/{}/1\"", report.id("fast"))),
        "{series:?}"
    );
}

/// CA-7: tests can be what is measured.
#[test]
fn tests_can_be_measured() {
    let trial = Trial::new();
    trial.spec(&format!("bench: reuse-tests\n{QUICK}"));
    trial.candidates(&[right("good")]);
    let report = trial.report(0, &[]);
    assert_eq!(report.of("good")["judgement"]["blocks"], 6);
}

/// CA-81: terms that make no sense are named as they were given.
#[test]
fn a_rescoring_names_the_flags_that_make_no_sense() {
    let trial = Trial::new();
    trial.spec(&format!(
        "bench: [{{name: b, command: [sh, answer.sh]}}]\n{QUICK}"
    ));
    trial.candidates(&[right("good")]);
    let report = trial.report(0, &[]);
    let mut cases = vec![
        (["--alpha", "2"], "--alpha: must be "),
        (["--alpha", "0"], "--alpha: must be "),
        (["--alpha", "1e-6"], "--alpha: is too small: "),
        (["--min-effect", "150%"], "--min-effect: must be "),
    ];
    if !report.0["measurement"]["counters"].is_null() {
        cases.push((["--metric", "instructions"], "--metric: cannot be "));
    }
    for (flags, words) in cases {
        let args = ["rescore", "out"].into_iter().chain(flags);
        let done = trial.shell.fairtrial(args).run();
        ends(&done, 2);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        assert!(done.stderr.starts_with(words), "{words} {}", done.stderr);
        assert!(!done.stderr.contains("measure."), "{}", done.stderr);
    }
}
