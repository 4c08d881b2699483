//! Studies that are stopped: by policy, by a signal, by a second engine, by death.

use fairtrial_tests::{Shell, wait_until};
use rustix::process::Signal;

use super::{ask, draws, ends, files, run, table};

const SLEEPERS: &str = "
import os, time
def go(run):
    if run['condition']['factors']['f'] == 0:
        raise ValueError('first')
    open('started-%s' % run['run_id'], 'w').close()
    time.sleep(60)
";

/// ST-51, ST-52, ST-69
#[test]
fn a_failure_can_stop_the_study_and_a_resume_finishes_it() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import time\ndef go(run):\n    if run['condition']['factors']['f'] == 0: raise ValueError('first')\n    \
         time.sleep(60)\n",
    );
    shell.write(
        "study.yaml",
        "study_id: f\ntitle: F\nfactors: {f: [1, 2, 3, 4, 0, 5, 6]}\nagents: {a: 'agent.py:go'}\norder: {policy: \
         plan}\non_failure: stop\n",
    );
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "-j", "5"]),
        3,
    );
    assert_eq!(
        ask(&shell, "out", "SELECT status FROM finishes ORDER BY status"),
        ["cancelled", "cancelled", "cancelled", "cancelled", "failed"]
    );
    assert_eq!(
        ask(&shell, "out", "SELECT reason FROM invocation_ends"),
        ["stopped"]
    );
    assert!(shell.processes().is_empty());
    shell.write("agent.py", "def go(run): return {'output': {}}\n");
    ends(&run(&shell, &["resume", "out"]), 3);
    let status = run(&shell, &["status", "out"]);
    assert!(
        status.stdout.contains("6 success") && status.stdout.contains("1 failed"),
        "{}",
        status.stdout
    );
}

/// ST-45, ST-54
#[tokio::test]
async fn an_interrupt_stops_what_runs_records_it_and_exports() {
    let shell = Shell::new();
    shell.write("agent.py", SLEEPERS);
    shell.write(
        "study.yaml",
        "study_id: i\ntitle: I\nfactors: {f: [1, 2]}\nagents: {a: {python: 'agent.py:go', sandbox: none}}\nrun_budget: \
         {replicates: 10}\n",
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
    running.signal(Signal::INT);
    let done = running.end();
    ends(&done, 130);
    assert_eq!(
        ask(&shell, "out", "SELECT status FROM finishes"),
        ["cancelled", "cancelled"]
    );
    assert_eq!(
        ask(&shell, "out", "SELECT reason FROM invocation_ends"),
        ["interrupted"]
    );
    assert!(shell.path().join("out/runs.csv").exists());
    let attempts = table(&shell, "out/attempts.csv"); // ST-45: also of runs that never came to an end of their own
    let statuses: Vec<_> = attempts.iter().map(|row| &*row["status"]).collect();
    assert_eq!(statuses, ["cancelled", "cancelled"]);
    assert!(shell.processes().is_empty());
    let found = run(&shell, &["plan", "study.yaml"]);
    ends(&found, 0);
}

const TIDY: &str = "
import pathlib, signal, time
def go(run):
    place = pathlib.Path(run['problem']['payload']['place'])
    if run['condition']['factors']['f'] == 'fails':
        while not (place / 'waits').exists():
            time.sleep(0.01)
        raise ValueError('first')
    def end(*_):
        (place / 'tidied').touch()
        if run['problem']['payload']['ends']:
            raise SystemExit
    signal.signal(signal.SIGTERM, end)
    (place / 'waits').touch()
    while True:
        time.sleep(60)
";

fn tidy(shell: &Shell, ends: bool) {
    let place = shell.path().display();
    shell.write("agent.py", TIDY);
    shell.write(
        "study.yaml",
        &format!(
            "study_id: t\ntitle: T\nfactors: {{f: [waits, fails]}}\norder: {{policy: plan}}\non_failure: {{after: 1, grace: \
             600s}}\nagents: {{a: {{python: 'agent.py:go', sandbox: none}}}}\nproblems: {{p: {{payload: {{place: '{place}', \
             ends: {ends}}}}}}}\n"
        ),
    );
}

/// ST-52: who is stopped is asked first, and has its grace.
#[test]
fn a_run_that_is_stopped_may_tidy_up() {
    let shell = Shell::new();
    tidy(&shell, true);
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "-j", "2"]),
        3,
    );
    assert!(shell.path().join("tidied").exists());
    assert_eq!(
        ask(&shell, "out", "SELECT status FROM finishes ORDER BY status"),
        ["cancelled", "failed"]
    );
    assert!(shell.processes().is_empty());
}

/// ST-55: a grace of ten minutes is not waited for by who asks again.
#[tokio::test]
async fn a_second_signal_ends_at_once_who_does_not_end_by_itself() {
    let shell = Shell::new();
    tidy(&shell, false);
    let running = shell
        .fairtrial(["run", "study.yaml", "--out", "out", "-j", "1"])
        .start();
    wait_until("the run began", || shell.path().join("waits").exists()).await;
    running.signal(Signal::INT);
    wait_until("it was asked to end, and did not", || {
        shell.path().join("tidied").exists()
    })
    .await;
    running.signal(Signal::INT);
    ends(&running.end(), 130);
    assert_eq!(
        ask(&shell, "out", "SELECT status FROM finishes"),
        ["cancelled"]
    );
    assert_eq!(
        ask(&shell, "out", "SELECT reason FROM invocation_ends"),
        ["interrupted"]
    );
    assert!(shell.processes().is_empty());
    assert!(!shell.path().join("out/runs.csv").exists(), "no export");
}

/// ST-55: nor is the last export waited for. What is there is whole, and a resume makes up for the rest.
#[tokio::test]
async fn a_second_signal_cuts_the_last_export_short() {
    let shell = Shell::new();
    shell.write("agent.py", "def go(run): return {'output': {}}\n");
    shell.write(
        "study.yaml",
        "study_id: e\ntitle: E\nfactors: {f: [1, 2]}\nagents: {a: 'agent.py:go'}\n",
    );
    std::fs::create_dir(shell.path().join("out")).expect("it can be made");
    // Whoever writes this file waits for us.
    let held = std::fs::File::create(shell.path().join("out/.runs.csv.new")).expect("a file");
    held.lock().expect("nobody else has it");
    let running = shell
        .fairtrial(["run", "study.yaml", "--out", "out"])
        .start();
    wait_until("the export began", || {
        shell.path().join("out/conditions.csv").exists()
            || shell.path().join("out/.conditions.csv.new").exists()
    })
    .await;
    running.signal(Signal::INT);
    running.signal(Signal::TERM); // another one: two that are the same may arrive as one
    ends(&running.end(), 130);
    let there = files(&shell, "out");
    assert!(!there.contains_key("runs.csv") && !there.contains_key("fairtrial.json"));
    drop(held);
    ends(&run(&shell, &["resume", "out"]), 0);
    assert_eq!(table(&shell, "out/runs.csv").len(), 2);
    assert_eq!(ask(&shell, "out", "SELECT count(*) FROM starts"), ["2"]);
    ends(&run(&shell, &["verify", "out"]), 0);
}

/// ST-46: a run that was stopped keeps what it had written by then, and how it ended.
#[tokio::test]
async fn what_a_stopped_run_had_written_is_kept() {
    let shell = Shell::new();
    let place = shell.path().display();
    shell.write(
        "agent.py",
        "import pathlib, sys, time\ndef go(run):\n    print('half way')\n    print('so far', file=sys.stderr)\n    \
         pathlib.Path(run['problem']['payload']['place'], 'waits').touch()\n    time.sleep(60)\n",
    );
    shell.write(
        "study.yaml",
        &format!(
            "study_id: w\ntitle: W\nagents: {{a: {{python: 'agent.py:go', sandbox: none}}}}\nproblems: {{p: {{payload: \
             {{place: '{place}'}}}}}}\n"
        ),
    );
    let running = shell
        .fairtrial(["run", "study.yaml", "--out", "out"])
        .start();
    wait_until("the run began", || shell.path().join("waits").exists()).await;
    running.signal(Signal::INT);
    ends(&running.end(), 130);
    let kept = |what: &str| ask(&shell, "out", &format!("SELECT {what} FROM finishes"));
    assert_eq!(kept("status || ' ' || verdict"), ["cancelled cancelled"]);
    assert_eq!(kept("trim(stdout, char(10))"), ["half way"]);
    assert_eq!(kept("trim(stderr, char(10))"), ["so far"]);
    let of_outcome = |path: &str| kept(&format!("json_extract(outcome, '{path}')"));
    assert_eq!(of_outcome("$.error.message"), ["stopped with the study"]);
    let wall: f64 = of_outcome("$.metrics.wall_s")[0].parse().expect("a number");
    assert!(wall > 0.0 && of_outcome("$.in_force.digest")[0] != "None");
    assert!(shell.processes().is_empty());
}

/// ST-63
#[tokio::test]
async fn a_second_engine_is_refused_and_changes_nothing() {
    let shell = Shell::new();
    shell.write("agent.py", "import time\ndef go(run): time.sleep(60)\n");
    shell.write(
        "study.yaml",
        "study_id: l\ntitle: L\nfactors: {f: [1, 2]}\nagents: {a: 'agent.py:go'}\n",
    );
    let first = shell
        .fairtrial(["run", "study.yaml", "--out", "out", "-j", "1"])
        .start();
    wait_until("it writes", || {
        run(&shell, &["status", "out"])
            .stdout
            .contains("being run by process")
    })
    .await;
    let second = run(&shell, &["run", "study.yaml", "--out", "out", "--resume"]);
    ends(&second, 2);
    let pid = first.pid().as_raw_nonzero().to_string();
    assert!(
        second.stderr.contains(&format!("process {pid}")),
        "{}",
        second.stderr
    );
    first.signal(Signal::KILL);
    drop(first.end());
    assert_eq!(
        ask(&shell, "out", "SELECT count(*) FROM invocations"),
        ["1"]
    );
}

/// ST-63: nor does `--fresh` take a directory from under its writer.
#[tokio::test]
async fn a_directory_that_is_written_is_not_moved_aside() {
    let shell = Shell::new();
    tidy(&shell, true);
    let first = shell
        .fairtrial(["run", "study.yaml", "--out", "out", "-j", "1"])
        .start();
    wait_until("the run began", || shell.path().join("waits").exists()).await;
    let second = run(&shell, &["run", "study.yaml", "--out", "out", "--fresh"]);
    ends(&second, 2);
    assert!(second.stderr.contains("process"), "{}", second.stderr);
    assert!(!shell.path().join("out.old-1").exists());
    first.signal(Signal::INT);
    ends(&first.end(), 130);
    assert!(shell.path().join("out/runs.csv").exists());
}

/// ST-44, ST-66: what waited in the engine when the study was stopped never began, and says so.
#[test]
fn what_had_not_begun_when_the_study_was_stopped_is_skipped() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import time\ndef go(run):\n    f = run['condition']['factors']['f']\n    if f == 3: raise ValueError('third')\n    if \
         f > 3: time.sleep(60)\n    return {'output': {}}\n",
    );
    shell.write(
        "study.yaml",
        "study_id: k\ntitle: K\nfactors: {f: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}\nagents: {a: 'agent.py:go'}\norder: \
         {policy: plan}\non_failure: stop\n",
    );
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "-j", "1"]),
        3,
    );
    let statuses = ask(&shell, "out", "SELECT status FROM finishes ORDER BY id");
    assert_eq!(statuses[..3], ["success", "success", "failed"]);
    let rest = &statuses[3..];
    assert!(rest.contains(&"skipped".to_owned()), "{rest:?}");
    let began = rest.iter().filter(|status| *status == "cancelled").count();
    assert!(began <= 1, "one worker began one of them at most: {rest:?}");
    let plan = run(&shell, &["plan", "study.yaml", "--json"]);
    ends(&plan, 0);
    shell.write("agent.py", "def go(run): return {'output': {}}\n");
    ends(
        &run(
            &shell,
            &["resume", "out", "--accept", "agent:a", "--retry", "all"],
        ),
        0,
    );
    let again = ask(
        &shell,
        "out",
        "SELECT reason FROM decisions WHERE invocation = 2",
    );
    assert!(again.contains(&"skipped".to_owned()), "{again:?}");
}

/// ST-60, ST-61: a few points of what `make torture` does at two hundred.
#[tokio::test]
async fn what_was_recorded_survives_a_kill_and_is_not_run_again() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    let whole = shell
        .read("study.yaml")
        .replace("replicates: 4", "replicates: 250");
    shell.write("study.yaml", &whole);
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "calm", "-j", "2"]),
        0,
    );
    let mut recorded = 0;
    for kill in 0..4 {
        let running = shell
            .fairtrial(["run", "study.yaml", "--out", "out", "--resume", "-j", "2"])
            .start();
        wait_until("it went on", || {
            shell.path().join("out/journal.sqlite").exists()
                && ask(
                    &shell,
                    "out",
                    "SELECT count(*) FROM sqlite_master WHERE name = 'starts'",
                ) == ["1"]
                && finished(&shell) > recorded + 10
        })
        .await;
        running.signal(Signal::KILL);
        drop(running.end());
        let now = finished(&shell);
        assert!(now > recorded, "kill {kill}");
        recorded = now;
    }
    ends(&run(&shell, &["resume", "out", "-j", "2"]), 0);
    let twice = ask(
        &shell,
        "out",
        "SELECT run_id FROM finishes GROUP BY run_id HAVING count(*) > 1",
    );
    assert!(twice.is_empty(), "{twice:?}");
    let lost = ask(
        &shell,
        "out",
        "SELECT count(*) FROM starts LEFT JOIN finishes USING (id) WHERE finishes.id IS NULL",
    );
    assert!(
        lost[0].parse::<u64>().expect("a number") <= 2 * (1 + 4) * 4, // workers, what waits for each, kills
        "{lost:?}"
    );
    for name in ["calm", "out"] {
        let masked = format!("{name}-masked");
        ends(
            &run(
                &shell,
                &["export", name, "--to", &masked, "--mask-volatile"],
            ),
            0,
        );
    }
    assert_eq!(files(&shell, "calm-masked"), files(&shell, "out-masked"));
}

fn finished(shell: &Shell) -> u64 {
    let count = ask(shell, "out", "SELECT count(*) FROM finishes");
    count[0].parse().expect("a number")
}
