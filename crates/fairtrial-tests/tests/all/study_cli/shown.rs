//! What a user is shown of a study: what runs, what failed and why, what to do next.

use fairtrial_tests::{Shell, wait_until};
use rustix::process::Signal;
use serde_json::Value as Json;

use super::{ask, ends, run};

fn status_json(shell: &Shell, directory: &str) -> Json {
    let done = run(shell, &["status", directory, "--json"]);
    ends(&done, 0);
    serde_json::from_str(&done.stdout).expect("JSON")
}

fn status(shell: &Shell, directory: &str) -> String {
    let done = run(shell, &["status", directory]);
    ends(&done, 0);
    done.stdout
}

fn report(shell: &Shell, directory: &str) -> String {
    ends(
        &run(shell, &["report", directory, "--out", "report.html"]),
        0,
    );
    shell.read("report.html")
}

/// ST-79
#[tokio::test]
async fn a_run_is_running_while_its_writer_lives_and_lost_when_it_is_killed() {
    let shell = Shell::new();
    shell.write("agent.py", "import time\ndef go(run): time.sleep(600)\n");
    shell.write(
        "study.yaml",
        "study_id: r\ntitle: R\nfactors: {f: [1, 2, 3]}\nagents: {a: {python: 'agent.py:go', sandbox: none}}\n",
    );
    let running = shell
        .fairtrial(["run", "study.yaml", "--out", "out", "-j", "2"])
        .start();
    wait_until("two runs began", || {
        shell.path().join("out/journal.sqlite").exists()
            && ask(
                &shell,
                "out",
                "SELECT count(*) FROM sqlite_master WHERE name = 'starts'",
            ) == ["1"]
            && ask(&shell, "out", "SELECT count(*) FROM starts") == ["2"]
    })
    .await;
    let text = status(&shell, "out");
    assert!(text.contains("  2 running\n  1 to run\n"), "{text}");
    assert!(!text.contains("lost"), "{text}");
    let json = status_json(&shell, "out");
    assert_eq!(json["counts"], serde_json::json!({"running": 2}), "{json}");
    assert_eq!((&json["running"], &json["lost"]), (&2.into(), &0.into()));
    running.signal(Signal::KILL);
    assert_eq!(running.end().code, None);
    let json = status_json(&shell, "out");
    assert_eq!(json["counts"], serde_json::json!({"lost": 2}), "{json}");
    assert_eq!((&json["running"], &json["lost"]), (&0.into(), &2.into()));
}

/// ST-79, ST-81
#[test]
fn why_an_evaluation_failed_is_shown() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "def go(run): return {'output': {'x': run['condition']['factors']['f']}}\ndef score(task):\n    if \
         task['output']['x'] == 1: raise KeyError('no such score')\n    return 1\n",
    );
    shell.write(
        "study.yaml",
        "study_id: e\ntitle: E\nfactors: {f: [1, 2]}\nagents: {solver: 'agent.py:go'}\nevaluator: 'agent.py:score'\n",
    );
    let done = run(&shell, &["run", "study.yaml", "--out", "out"]);
    ends(&done, 3);
    assert!(
        done.stdout
            .contains("2 runs: 2 success, 1 evaluation not well"),
        "{}",
        done.stdout
    );
    let json = status_json(&shell, "out");
    let failed = &json["last_evaluation_failures"][0];
    for (key, expected) in [
        ("agent_id", "solver"),
        ("status", "failed"),
        ("stage", "evaluation"),
        ("error_type", "KeyError"),
        ("message", "'no such score'"),
    ] {
        assert_eq!(failed[key], expected, "{json}");
    }
    let run_id = failed["run_id"].as_str().expect("text");
    let text = status(&shell, "out");
    assert!(
        text.contains(&format!("{run_id} evaluation failed (agent solver"))
            && text.contains("): KeyError: 'no such score'")
            && text.contains("1 evaluation not well"),
        "{text}"
    );
    let html = report(&shell, "out");
    for part in [
        "KeyError: &#39;no such score&#39;",
        run_id,
        "agent solver",
        "1 failed evaluation by error",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

/// ST-79, ST-81
#[test]
fn failures_name_their_agents_and_say_how_many_more_there_are() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "def bad(run): return 3\ndef raises(run): raise ValueError('no luck')\n",
    );
    shell.write(
        "study.yaml",
        "study_id: n\ntitle: N\nfactors: {f: [1]}\nagents: {careless: 'agent.py:bad', unlucky: 'agent.py:raises'}\n\
         problems: {p: {}}\nrun_budget: {replicates: 4}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    let text = status(&shell, "out");
    assert!(text.ends_with("\n… and 3 more\n"), "{text}");
    assert!(
        text.contains(" failed (agent unlucky, problem p): ValueError: no luck"),
        "{text}"
    );
    let json = status_json(&shell, "out");
    let stages: Vec<_> = json["last_failures"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|failure| (failure["agent_id"].clone(), failure["stage"].clone()))
        .collect();
    assert_eq!(stages.len(), 5);
    assert!(
        stages.contains(&("careless".into(), "result".into())),
        "{json}"
    );
    let html = report(&shell, "out");
    assert!(
        html.contains(
            "agent careless · problem p · all runs <span class=\"status\">BadResult, after"
        )
    );
    assert!(
        html.contains(
            "agent unlucky · problem p · all runs <span class=\"status\">exception, after"
        )
    );
}

/// ST-49, ST-79
#[test]
fn what_ran_again_since_it_changed_is_not_called_a_retry() {
    let shell = Shell::new();
    let agent = |first: &str| {
        let text = format!("def go(run):\n    {first}\n    return {{'output': {{}}}}\n");
        shell.write("agent.py", &text);
    };
    agent("if run['condition']['factors']['f'] == 1: raise ValueError");
    shell.write(
        "study.yaml",
        "study_id: c\ntitle: C\nfactors: {f: [1, 2, 3]}\nagents: {a: 'agent.py:go'}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    agent("pass");
    let again = ["resume", "out", "--rerun", "changed", "--retry", "failed"];
    ends(&run(&shell, &again), 0);
    assert_eq!(ask(&shell, "out", "SELECT count(*) FROM finishes"), ["6"]);
    let text = status(&shell, "out");
    assert!(
        text.contains("  1 success after an attempt that failed\n"),
        "{text}"
    );
    assert_eq!(status_json(&shell, "out")["retried_successes"], 1);
    let html = report(&shell, "out");
    assert!(html.contains("1 run succeeded only after an attempt that failed."));
    assert!(
        html.contains("3 runs took more than one attempt; 1 succeeded only after one that failed.")
    );
}

/// ST-71
#[test]
fn a_rescore_says_how_many_it_evaluated() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "def go(run): return {'output': {}}\ndef score(task): return 1\n",
    );
    shell.write(
        "study.yaml",
        "study_id: s\ntitle: S\nfactors: {f: [1]}\nagents: {a: 'agent.py:go'}\nevaluator: 'agent.py:score'\n",
    );
    let done = run(&shell, &["run", "study.yaml", "--out", "out"]);
    assert!(
        done.stdout.contains("\n1 run: 1 success\n"),
        "{}",
        done.stdout
    );
    assert!(status(&shell, "out").starts_with("study s: 1 run planned\n"));
    let done = run(&shell, &["rescore", "out", "--all"]);
    ends(&done, 0);
    assert!(
        done.stdout
            .starts_with("study s: 1 evaluated, 0 taken from the record\n"),
        "{}",
        done.stdout
    );
}

/// ST-51
#[test]
fn a_study_that_was_stopped_says_how_to_go_on() {
    let shell = Shell::new();
    shell.write("agent.py", "def go(run): raise ValueError\n");
    shell.write(
        "study.yaml",
        "study_id: g\ntitle: G\nfactors: {f: [1, 2]}\nagents: {a: 'agent.py:go'}\non_failure: stop\n",
    );
    let done = run(
        &shell,
        &["run", "study.yaml", "--out", "the out", "-j", "1"],
    );
    ends(&done, 3);
    assert!(
        done.stdout.contains("stopped after 1 run by")
            && done
                .stdout
                .ends_with("\ngo on with: fairtrial resume 'the out'\n"),
        "{}",
        done.stdout
    );
}

/// ST-78
#[test]
fn before_the_first_end_nothing_is_estimated() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import time\ndef go(run):\n    time.sleep(1)\n    return {'output': {}}\n",
    );
    shell.write(
        "study.yaml",
        "study_id: b\ntitle: B\nfactors: {f: [1]}\nagents: {a: 'agent.py:go'}\n",
    );
    let (code, screen) = shell
        .fairtrial(["run", "study.yaml", "--out", "out"])
        .run_on_terminal();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("0/1"), "{screen:?}");
    for line in screen
        .split(['\r', '\n'])
        .filter(|line| line.contains("0/1"))
    {
        assert!(!line.contains("left") && !line.contains(" ,"), "{line:?}");
    }
}

/// ST-10, ST-46
#[test]
fn an_exit_says_its_code_and_what_was_said_last() {
    let shell = Shell::new();
    shell.write(
        "study.yaml",
        "study_id: x\ntitle: X\nfactors: {f: [1]}\nagents:\n  quiet: {command: [sh, -c, 'exit 4']}\n  loud: {command: \
         [sh, -c, 'echo one >&2; echo no licence >&2; echo >&2; exit 5']}\norder: {policy: plan}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    let errors: Vec<_> = super::table(&shell, "out/runs.csv")
        .into_iter()
        .map(|row| row["error_info"].clone())
        .collect();
    assert_eq!(
        errors,
        [
            "Exit: exited with code 4",
            "Exit: exited with code 5: no licence"
        ]
    );
}

/// ST-1, SF-7
#[test]
fn a_study_id_is_a_plain_name() {
    let shell = Shell::new();
    for (id, compat, named) in [
        (
            "'../x'",
            "native",
            "2:11: `study_id` is no plain name: `../x`; name it",
        ),
        ("'a/b'", "native", "is no plain name"),
        ("'..'", "native", "is no plain name"),
        ("\"a\\nb\"", "native", "is no plain name: `a\\nb`"),
        (
            "'a/../../x'",
            "dre-0.2",
            "2:11: `study_id` names no directory inside `artifacts`",
        ),
        ("'.'", "dre-0.2", "names no directory inside"),
        ("'a/b'", "dre-0.2", ""),
        ("'a b.c'", "native", ""),
    ] {
        let text = format!(
            "schema_version: 0.2.0\nstudy_id: {id}\ntitle: T\nfactors: [{{name: f, levels: [{{name: a, value: 1}}]}}]\nagent_specs: [a]\nproblem_ids: [p]\ncompat: {compat}\n"
        );
        shell.write("study.yaml", &text);
        let done = run(&shell, &["plan", "study.yaml"]);
        match named {
            "" => ends(&done, 0),
            named => {
                ends(&done, 2);
                assert!(done.stderr.contains(named), "{}", done.stderr);
            }
        }
    }
}

/// SF-15, SF-16
#[test]
fn words_that_the_report_does_not_know_are_warned_of() {
    let shell = Shell::new();
    let study = "study_id: w\ntitle: W\nfactors: [{name: f, levels: [{name: a, value: 1}]}]\nagent_specs: [a]\nproblem_ids: [p]\noutcomes:\n- {name: o, \
                 source_table: rns, column: c, aggregation: men}\nhypotheses:\n- {hypothesis_id: h, label: l, statement: s, \
                 independent_vars: [f], dependent_vars: [o]}\nanalysis_plans:\n- {analysis_plan_id: p, hypothesis_ids: [h], \
                 tests: [tttest, anova]}\n";
    shell.write("study.yaml", study);
    let done = run(&shell, &["plan", "study.yaml", "--strict"]);
    ends(&done, 2);
    for named in [
        "`source_table` knows no `rns`; the column is looked for in runs; did you mean `runs`?",
        "`aggregation` knows no `men`; the report shows the mean; did you mean `mean`?",
        "`tests` knows no `tttest`; the report does not compute it; did you mean `ttest`?",
        "`tests` knows no `anova`; the report does not compute it; known are `difference_in_means`, `ttest`",
    ] {
        assert!(done.stderr.contains(named), "{named}\n{}", done.stderr);
    }
    ends(&run(&shell, &["plan", "study.yaml"]), 0);
    let dre = run(&shell, &["plan", "study.yaml", "--compat", "dre-0.2"]);
    ends(&dre, 0);
    assert!(!dre.stderr.contains("knows no"), "{}", dre.stderr);
}

/// SF-10, ST-1
#[test]
fn hints_show_an_item_and_where_a_key_belongs() {
    let shell = Shell::new();
    shell.write(
        "study.yaml",
        "study_id: h\ntitle: H\nfactors: {f: [1]}\nblocks: {c: [1, 2]}\nmax_runs: 3\ntimeout: 5\n",
    );
    let done = run(&shell, &["plan", "study.yaml"]);
    ends(&done, 2);
    for named in [
        "`blocks` must be a list, not a mapping; write items as in `- {name: day, levels: [1, 2]}`",
        "unknown key `max_runs` in the study; it belongs in `run_budget`",
        "unknown key `timeout` in the study; it belongs in `defaults`",
    ] {
        assert!(done.stderr.contains(named), "{named}\n{}", done.stderr);
    }
}
