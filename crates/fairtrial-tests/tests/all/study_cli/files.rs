//! What users write in study files, and what they are told of it.

use std::mem::MaybeUninit;

use fairtrial_tests::Shell;
use rustix::fs::inotify;

use super::{ask, ends, run};

/// A study of one agent with these lines of its own.
fn study(agent: &str, more: &str) -> Shell {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import os\ndef go(run):\n    open(os.path.join(run['problem']['payload']['place'], 'made'), 'w').close()\n    \
         return {'output': {}}\ndef key(run): return {'output': {'key': os.environ['KEY']}}\n",
    );
    let place = shell.path().join("data").display().to_string();
    std::fs::create_dir(&place).expect("a directory");
    shell.write(
        "study.yaml",
        &format!(
            "study_id: f\ntitle: F\nproblems: {{p: {{payload: {{place: '{place}'}}}}}}\nagents:\n  a:\n{agent}{more}"
        ),
    );
    shell
}

/// RE-14, SF-6: as calls have it, its paths relative to the file.
#[test]
fn a_sandbox_may_be_a_mapping() {
    let agent = "    python: agent.py:go\n    sandbox: {level: limits, on_missing: degrade, write: [data]}\n";
    let shell = study(agent, "");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    assert!(shell.path().join("data/made").exists());
    for (sandbox, says) in [
        (
            "{level: jail}",
            "study.yaml:7:22: `level` of `sandbox`: unknown level `jail`; the levels are `none`, `limits`, `confined` and `strict`",
        ),
        (
            "{level: strict, netwrk: none}",
            "study.yaml:7:30: unknown key `netwrk` in `sandbox`; did you mean `network`?",
        ),
        (
            "{network: none}",
            "study.yaml:7:14: `level` is missing in `sandbox`",
        ),
        (
            "[strict]",
            "study.yaml:7:14: `sandbox` must be a level or a mapping, not a list",
        ),
        ("{level: limits, network: none}", "study.yaml:7:14: "),
    ] {
        let shell = study(
            &format!("    python: agent.py:go\n    sandbox: {sandbox}\n"),
            "",
        );
        let refused = run(&shell, &["plan", "study.yaml"]);
        ends(&refused, 2);
        assert!(refused.stderr.starts_with(says), "{refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    }
}

/// RE-14, FA-23: a variable that is not set is named beforehand, with its place, and it is what `run` ends with.
#[test]
fn an_unset_variable_is_told_before_and_after() {
    let agent = "    python: agent.py:key\n    pass_env: [KEY]\n";
    let shell = study(agent, "run_budget: {replicates: 48}\n");
    let plan = |more: &[&str]| {
        let words = ["plan", "study.yaml"].iter().chain(more);
        shell.fairtrial(words.copied()).env_remove("KEY").run()
    };
    let planned = plan(&[]);
    ends(&planned, 0);
    let says =
        "study.yaml:7:15: warning: `pass_env` names `KEY`, which is not set here; set it where";
    assert!(planned.stderr.starts_with(says), "{planned:?}");
    ends(&plan(&["--strict"]), 2);
    let words = ["run", "study.yaml", "--out", "out"];
    let done = shell.fairtrial(words).env_remove("KEY").run();
    ends(&done, 3);
    assert!(done.stdout.contains("48 runs: 48 failed\n"), "{done:?}");
    let last = done.stdout.lines().last().expect("a line");
    let says = "commonest error (48 of 48 failures): SetupError: `pass_env`: not set in the environment of ";
    assert!(
        last.starts_with(says) && last.ends_with(": `KEY`"),
        "{last}"
    );
}

/// RE-14: a level of numbers is called by its value.
#[test]
fn a_contrast_names_levels_by_their_values() {
    let agent = "    {source: 'def f(run): return {\"output\": {\"v\": run[\"replicate\"] % 2}}', function: f}\n";
    for (left, right) in [("0.0", "0.5"), ("0", "0.5"), ("'0.0'", "'0.5'")] {
        let more = format!(
            "factors: [{{name: x, dtype: float, levels: [0.0, 0.5]}}]\nrun_budget: {{replicates: 4}}\n\
             outcomes: [{{name: v, source_table: runs, column: v, aggregation: mean}}]\n\
             hypotheses: [{{hypothesis_id: H, label: l, statement: s, independent_vars: [x], dependent_vars: [v], \
             contrast: {{left: {left}, right: {right}}}}}]\n\
             analysis_plans: [{{analysis_plan_id: A, hypothesis_ids: [H], tests: [difference_in_means]}}]\n"
        );
        let shell = study(agent, &more);
        ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
        ends(&run(&shell, &["report", "out"]), 0);
        let report = shell.read("out/report.html");
        assert!(!report.contains("Not computed"), "{left}");
        assert!(report.contains("Fisher’s exact"), "{left}");
        assert!(
            report.contains("[0.1500, 0.8500]") || report.contains("[0.15, 0.85]"),
            "{left}"
        );
    }
}

/// RE-14, ST-25: `plan` says that it starts nothing; of a faulty study nothing is called either. Where there is no interpreter,
/// whoever calls one says so.
#[test]
fn reading_a_faulty_study_calls_no_constraint() {
    let rule = "factors: {x: [1, 2]}\nconstraints: [{constraint_id: c, description: d, callable_ref: 'rules:fits'}]\n";
    for (agent, fault) in [
        ("    python: missing.py:go\n", "cannot read `missing.py`"),
        (
            "    python: agent.py:go\n    retries: many\n",
            "`retries` must be",
        ),
    ] {
        let shell = study(agent, rule);
        shell.write("rules.py", "def fits(factors, blocks): return True\n");
        let nowhere = shell.path().join("nowhere");
        let plan = shell.fairtrial(["plan", "study.yaml"]).env("PATH", nowhere);
        let refused = plan.run();
        ends(&refused, 2);
        assert!(refused.stderr.contains(fault), "{refused:?}");
        assert!(!refused.stderr.contains("rules:fits"), "{refused:?}");
    }
}

/// RE-14, ST-62: what is recorded is what was planned, whatever becomes of the file meanwhile: it is opened once.
#[test]
fn a_study_is_read_once() {
    let shell = study("    {command: ['true']}\n", "on_failure: stop\n");
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("the kernel has it");
    // Equal events in a row are told as one: between two openings is a closing.
    let events = inotify::WatchFlags::OPEN | inotify::WatchFlags::CLOSE_NOWRITE;
    inotify::add_watch(&watch, shell.path().join("study.yaml"), events).expect("a watch");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(&watch, &mut room);
    let told = std::iter::from_fn(|| reader.next().ok().map(|event| event.events()));
    let opened = told.filter(|event| event.contains(inotify::ReadFlags::OPEN));
    assert_eq!(opened.count(), 1);
    let recorded = ask(&shell, "out", "SELECT CAST(bytes AS TEXT) FROM blobs");
    assert_eq!(recorded.join("\n"), shell.read("study.yaml"));
}

/// RE-14: one word for one thing; those of calls are understood, too.
#[test]
fn times_are_read_under_the_name_that_calls_have_for_them() {
    let slow = "    source: 'import time; f = lambda run: time.sleep(60)'\n    function: f\n    timeout_s: 0.2\n";
    let shell = study(slow, "defaults: {timeout: 50s}\n");
    let done = run(&shell, &["run", "study.yaml", "--output", "out"]);
    ends(&done, 3);
    assert!(done.stdout.contains("1 run: 1 timeout\n"), "{done:?}");
    let shell = study(&format!("{slow}    timeout: 3s\n"), "");
    let refused = run(&shell, &["plan", "study.yaml"]);
    ends(&refused, 2);
    assert!(
        refused
            .stderr
            .contains("`timeout` and `timeout_s` in agent `a` say the same"),
        "{refused:?}"
    );
}
