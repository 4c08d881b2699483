//! Start-up is no part of a ratio where a bench command loops, and is told where it does not.

use serde_json::Value as Json;

use super::trial::{Trial, changes, ends, right};

const QUICK: &str = "measure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n";

/// A start of 300 ms, and loops of 4 ms each, which a candidate makes 1 ms. Only sleeps: no load makes them shorter.
fn sleeper() -> Trial {
    let trial = Trial::new();
    trial.write("repo/pause.py", "SECONDS = 0.004\n");
    trial.write(
        "repo/bench.py",
        "import sys, time\nimport pause\ntime.sleep(0.3)\nfor _ in range(int(sys.argv[1])):\n    time.sleep(pause.SECONDS)\n",
    );
    trial.commit();
    trial.candidates(&[changes("short", &[("pause.py", "SECONDS = 0.001\n")])]);
    trial
}

/// FA-18, FA-20, FA-22: whole runs of equal counts would give a ratio of 0.8 at best.
#[test]
fn start_up_is_not_part_of_a_ratio() {
    let trial = sleeper();
    trial.spec(&format!(
        "bench: [{{name: b, command: [python3, bench.py, '{{loops}}'], loops: auto}}]\n{QUICK}"
    ));
    let done = trial.run(&[]);
    ends(&done, 0);
    let report = trial.written();
    let short = report.of("short");
    let ratio = short["judgement"]["ratio"].as_f64().expect("a ratio");
    assert!(ratio < 0.6, "{ratio}");
    assert!(short["gross_startup"].is_null(), "{short}");
    let bench = &report.0["measurement"]["benches"]["b"];
    assert_eq!(bench["compared"], "net", "{bench}");
    assert!(
        bench["startup_s"]
            .as_f64()
            .is_some_and(|startup_s| startup_s > 0.25),
        "{bench}"
    );
    let (base, own) = (&bench["sides"]["base"], &bench["sides"][report.id("short")]);
    for times in [base, own] {
        let time = |key: &str| times[key].as_f64().expect("a time");
        assert_eq!(times["low_loops"], 0, "{times}");
        assert!(time("net_s") >= 0.05, "{times}");
        assert!(time("gross_s") > time("net_s") + 0.25, "{times}");
        let loops = times["loops"].as_f64().expect("a count");
        assert!(
            (time("net_s") / loops / time("per_loop_s") - 1.0).abs() < 1e-6,
            "{times}"
        );
    }
    assert!(
        own["loops"].as_u64() > base["loops"].as_u64(),
        "the faster one loops more: {bench}"
    );
    for run in trial.lines("runs.jsonl") {
        let times = if run["side"] == report.id("short") {
            own
        } else {
            base
        };
        assert!(
            run["loops"] == times["loops"] || run["loops"] == times["low_loops"],
            "{run}"
        );
    }
    let base_row = done.stdout.lines().nth(1).expect("the base's own row");
    assert!(
        base_row.contains(" base ") && base_row.contains(" per loop"),
        "{base_row}"
    );
    assert!(done.stdout.contains(" times faster"), "{}", done.stdout);
    // CA-81: the same verdict again, from the runs on record.
    let again = trial.shell.fairtrial(["rescore", "out", "--json"]).run();
    ends(&again, 0);
    let again: Json = serde_json::from_str(&again.stdout).expect("one JSON report");
    let judged = |report: &Json| report["evaluations"][0]["judgement"].clone();
    assert_eq!(judged(&again), judged(&report.0));
    assert_eq!(again["measurement"], report.0["measurement"]);
}

/// FA-18: an evaluation that is killed in its race goes on with the counts that it had.
#[test]
fn loop_counts_are_kept_when_an_evaluation_goes_on() {
    let trial = sleeper();
    trial.spec(&format!(
        "bench: [{{name: b, command: [python3, bench.py, '{{loops}}'], loops: auto}}]\n{QUICK}"
    ));
    ends(&trial.run(&[]), 0);
    let counts = |report: &Json| report["measurement"]["benches"]["b"]["sides"].clone();
    let before = trial.written();
    // As if it had been killed after so many runs: the last records are not there.
    let cut = |name: &str, keep: &dyn Fn(&Json) -> bool| {
        let lines: Vec<Json> = trial
            .lines(name)
            .into_iter()
            .filter(|line| keep(line))
            .collect();
        trial.shell.write_lines(&format!("out/{name}"), &lines);
    };
    cut("runs.jsonl", &|run| {
        run["series"] != "1/race/1" || run["block"].as_u64() < Some(4)
    });
    let journal = trial.shell.read("out/journal.jsonl");
    let whole: Vec<&str> = journal.lines().collect();
    let kept = whole
        .iter()
        .position(|line| line.contains("\"raced\""))
        .expect("a race ended");
    trial.write("out/journal.jsonl", &(whole[..kept].join("\n") + "\n"));
    ends(&trial.run(&["--resume"]), 0);
    let after = trial.written();
    for side in ["base", before.id("short")] {
        for key in ["loops", "low_loops"] {
            let (one, other) = (&counts(&before.0)[side][key], &counts(&after.0)[side][key]);
            assert_eq!(one, other, "{side} {key}");
        }
    }
    let calibrations = trial.recorded("calibrated").len() + trial.recorded("looped").len();
    assert_eq!(calibrations, 2, "none was made again");
}

/// FA-18: 0 loops are not for every command; then the difference is to one.
#[test]
fn a_command_that_refuses_no_loops_is_compared_with_one() {
    let trial = Trial::new();
    trial.write(
        "repo/bench.sh",
        "test $1 -ge 1 || exit 2\nn=0; while test $n -lt $1; do n=$((n + 1)); sleep 0.01; done\n",
    );
    trial.commit();
    trial.candidates(&[right("one")]);
    trial.spec(&format!(
        "bench: [{{name: b, command: [sh, bench.sh, '{{loops}}'], loops: auto}}]\n{QUICK}"
    ));
    let report = trial.report(0, &[]);
    let base = &report.0["measurement"]["benches"]["b"]["sides"]["base"];
    assert_eq!(base["low_loops"], 1, "{base}");
    assert!(
        base["per_loop_s"]
            .as_f64()
            .is_some_and(|each_s| each_s >= 0.01),
        "{base}"
    );
}

/// FA-18: a search for a count has an end, and the fault is named where the command is written.
#[test]
fn a_command_that_does_not_loop_ends_the_evaluation_with_a_reason() {
    let trial = Trial::new();
    trial.candidates(&[right("one")]);
    trial.spec(&format!(
        "bench: [{{name: b, command: 'sh answer.sh {{loops}}', loops: auto}}]\n{QUICK}"
    ));
    let done = trial.run(&[]);
    ends(&done, 1);
    assert!(done.stderr.starts_with("EVAL.yaml:8:"), "{}", done.stderr);
    assert!(
        done.stderr.contains(" loops take no longer than 0"),
        "{}",
        done.stderr
    );
    trial.assert_nothing_left();
}

/// FA-19, FA-22: an interpreter that does next to nothing else.
#[test]
fn start_up_of_whole_runs_is_told_and_marked() {
    let trial = Trial::new();
    trial.write("repo/bench.py", "import work\n");
    trial.write("repo/work.py", "sum(range(1000))\n");
    trial.commit();
    trial.candidates(&[changes("other", &[("work.py", "sum(range(2, 1000))\n")])]);
    trial.spec(&format!(
        "bench: [{{name: b, command: [python3, bench.py]}}]\n{QUICK}"
    ));
    let done = trial.run(&[]);
    ends(&done, 0);
    let report = trial.written();
    let bench = &report.0["measurement"]["benches"]["b"];
    assert_eq!(
        (&bench["compared"], &bench["startup_source"]),
        (&"gross".into(), &"interpreter".into())
    );
    let share = bench["startup_share"].as_f64().expect("it is known");
    assert!((0.34..=1.0).contains(&share), "{bench}");
    assert_eq!(report.of("other")["gross_startup"], bench["startup_share"]);
    assert!(done.stdout.contains("gross: "), "{}", done.stdout);
    let warned = "of a run of the base is start-up, and whole runs are compared";
    assert!(done.stderr.contains(warned), "{}", done.stderr);
    assert!(
        report.0["warnings"].to_string().contains(warned),
        "{}",
        report.0["warnings"]
    );
    let page = trial.shell.read("out/report.html");
    assert!(
        page.contains("of the base’s is start-up"),
        "marked in the page too"
    );
}
