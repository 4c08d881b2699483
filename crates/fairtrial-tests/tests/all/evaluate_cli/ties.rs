//! Ties broken by callgrind, and the metrics that a file may ask for (CA-72).

use fairtrial_exec::probe_counters;
use serde_json::{Value as Json, json};

use super::trial::{Report, Trial, answers, ends, right};

const BENCH: &str = "bench: [{name: b, command: [sh, answer.sh]}]\n";
const QUICK: &str = "max_blocks: 6, repeats: 0, min_effect: 0, confirm: false";

/// Counts to so many, then says 42.
fn counting(to: u32) -> String {
    format!("n=0; while test $n -lt {to}; do n=$((n + 1)); done; echo 42\n")
}

/// Three candidates that nobody can tell apart by time, all much faster than the base. By the size of their change `many`
/// would come first, then `hides`.
fn alike() -> Trial {
    let trial = Trial::new();
    trial.write("repo/answer.sh", &counting(150_000));
    trial.commit();
    trial.spec(&format!(
        "{BENCH}measure: {{max_blocks: 12, min_effect: 100%, tiebreak: callgrind}}\n"
    ));
    let few = format!("# one\n# two\n# three\n# four\n{}", counting(15_000));
    let hides = "test -z \"$FAIRTRIAL_CALLGRIND\" || exit 3\n".to_owned() + &counting(15_700);
    trial.candidates(&[
        answers("many", &counting(16_500)),
        answers("hides", &hides),
        answers("few", &few),
    ]);
    trial
}

fn counts(report: &Report, name: &str) -> u64 {
    let count = &report.of(name)["tiebreak"]["instructions"]["b"];
    count
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {}", report.of(name)))
}

fn judgements(report: &Report) -> Vec<(String, Json, Json)> {
    let all = report.0["evaluations"].as_array().expect("a list").iter();
    all.map(|one| {
        (
            one["name"].to_string(),
            one["judgement"].clone(),
            one["tiebreak"].clone(),
        )
    })
    .collect()
}

/// CA-72, CA-80, CA-81, CA-97: counts order those alike, are shown as counts, and are taken once.
#[test]
fn ties_are_broken_by_instructions_and_nothing_else_is() {
    if !std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|place| place.join("valgrind").exists())
    {
        fairtrial_tests::note("SKIPPED: valgrind is not installed (package `valgrind`)");
        return;
    }
    let trial = alike();
    let report = trial.report(0, &[]);
    assert_eq!(report.names(), ["few", "many", "hides"], "{}", report.0);
    assert_eq!(report.0["winner"], report.of("few")["id"]);
    assert_eq!(report.of("few")["confirmation"]["confirmed"], true);
    assert!(counts(&report, "few") < counts(&report, "many"));
    // Each turn of its loop is some hundred instructions.
    assert!(counts(&report, "few") > 15_000 * 100);
    for (name, used) in [("few", true), ("many", true), ("hides", false)] {
        let one = report.of(name);
        assert_eq!(one["judgement"]["verdict"], "faster", "{one}");
        assert_eq!(one["tiebreak"]["by"], "callgrind");
        assert_eq!(one["tiebreak"]["used"], used, "{one}");
    }
    let failed = report.of("hides")["tiebreak"]["failed"].as_str();
    assert!(
        failed.is_some_and(|why| why.contains("exit code 3")),
        "{failed:?}"
    );
    assert_eq!(trial.recorded("counted").len(), 3);
    let label = "instructions by callgrind, not measured time";
    assert_eq!(
        trial.shell.read("out/report.html").matches(label).count(),
        2
    );

    // Once more from the record: the table says the same, and nothing is counted again.
    let done = trial.run(&["--resume"]);
    ends(&done, 0);
    assert_eq!(done.stdout.matches(label).count(), 2, "{}", done.stdout);
    assert!(
        done.stdout
            .contains("not counted by callgrind: `b`: exit code 3")
    );
    assert_eq!(trial.recorded("counted").len(), 3);
    let rescored = trial.shell.fairtrial(["rescore", "out", "--json"]).run();
    ends(&rescored, 0);
    let rescored = Report(serde_json::from_str(&rescored.stdout).expect("JSON"));
    assert_eq!(judgements(&rescored), judgements(&report));
    assert_eq!(rescored.0["winner"], report.0["winner"]);

    // As if it had been killed before the confirmation.
    keep_until(&trial, "journal.jsonl", |line| {
        line["record"]["kind"] == "raced"
    });
    keep_until(&trial, "runs.jsonl", |line| {
        line["series"]
            .as_str()
            .expect("a series")
            .contains("confirm")
    });
    let report = trial.report(0, &["--resume"]);
    assert_eq!(report.names(), ["few", "many", "hides"], "{}", report.0);
    assert_eq!(trial.recorded("counted").len(), 3);
    trial.assert_nothing_left();
}

/// Cuts a file where such a line is.
fn keep_until(trial: &Trial, name: &str, is_end: impl Fn(&Json) -> bool) {
    let text = trial.shell.read(&format!("out/{name}"));
    let goes_on = |line: &&str| !is_end(&serde_json::from_str(line).expect("a line of JSON"));
    let kept: String = text.split_inclusive('\n').take_while(goes_on).collect();
    assert!(kept.len() < text.len(), "{name} has such a line");
    trial.write(&format!("out/{name}"), &kept);
}

/// CA-72: without valgrind nothing is begun.
#[test]
fn without_valgrind_it_says_what_to_install_before_anything_runs() {
    let trial = alike();
    for args in [&[][..], &["--check"]] {
        let done = trial.evaluate(args).env("PATH", "/nowhere").run();
        ends(&done, 1);
        assert!(
            done.stderr.contains("the package `valgrind`"),
            "{}",
            done.stderr
        );
        assert!(!trial.path("out").exists(), "nothing is written");
    }
}

/// CA-72: the first metric of a list that can be had is taken, and told.
#[test]
fn the_first_metric_that_can_be_had_is_taken_and_recorded() {
    let counters = probe_counters();
    let counted = if counters.is_ok() {
        "instructions"
    } else {
        "cpu"
    };
    for (asked, taken) in [
        ("wall", "wall"),
        ("cpu", "cpu"),
        ("[cpu, wall]", "cpu"),
        ("[instructions, cpu, wall]", counted),
    ] {
        let trial = Trial::new();
        trial.spec(&format!("{BENCH}measure: {{metric: {asked}, {QUICK}}}\n"));
        trial.candidates(&[right("one")]);
        let report = trial.report(0, &[]);
        let measured = &report.0["measurement"];
        assert_eq!(measured["metric"], taken, "{asked}");
        let why = counters.as_ref().err().map(ToString::to_string);
        assert_eq!(measured["counters"], json!(why));
        assert_eq!(trial.recorded("race")[0]["metric"], taken);
        for run in trial.lines("runs.jsonl") {
            for key in ["instructions", "cycles"] {
                let is_told = match &counters {
                    Ok(()) => run[key].as_u64().is_some_and(|count| count > 0),
                    Err(_) => run[key].is_null(),
                };
                assert!(is_told, "{run}");
            }
        }
    }
}

/// CA-3: 1, CA-72: what cannot be measured is said before anything runs.
#[test]
fn no_metric_is_no_evaluation() {
    let Err(why) = probe_counters() else {
        fairtrial_tests::note("SKIPPED: here every metric can be measured");
        return;
    };
    let trial = Trial::new();
    trial.spec(&format!(
        "{BENCH}measure: {{metric: instructions, {QUICK}}}\n"
    ));
    trial.candidates(&[right("one")]);
    for args in [&[][..], &["--check"]] {
        let done = trial.run(args);
        ends(&done, 1);
        let line = format!("no metric of `instructions` can be measured here: {why}");
        assert!(done.stderr.contains(&line), "{}", done.stderr);
        assert!(!trial.path("out").exists(), "nothing is written");
    }
}
