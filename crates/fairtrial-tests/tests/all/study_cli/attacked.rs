//! What a hostile tester found, and must not find again.

use fairtrial_tests::{Shell, wait_until};
use rustix::process::Signal;

use super::{ask, ends, files, python, run, table};

/// ST-49, ST-61: an interruption in the middle of a retry takes nothing away from the run.
#[tokio::test]
async fn a_retry_that_was_interrupted_is_gone_on_with() {
    let shell = Shell::new();
    let place = shell.path().display();
    shell.write(
        "agent.py",
        &format!(
            "import os, pathlib, time\ndef go(run):\n    place = pathlib.Path('{place}')\n    if run['attempt'] == 1: raise \
             ValueError('flaky')\n    if not (place / 'again').exists():\n        (place / 'waits').touch()\n        \
             time.sleep(60)\n    return {{'output': {{'attempt': run['attempt']}}}}\n"
        ),
    );
    shell.write(
        "study.yaml",
        "study_id: r\ntitle: R\nagents: {a: {python: 'agent.py:go', sandbox: none, retries: 1}}\n",
    );
    let running = shell
        .fairtrial(["run", "study.yaml", "--out", "out"])
        .start();
    wait_until("the second attempt began", || {
        shell.path().join("waits").exists()
    })
    .await;
    running.signal(Signal::INT);
    ends(&running.end(), 130);
    shell.write("again", "");
    ends(&run(&shell, &["resume", "out"]), 0);
    let statuses = ask(&shell, "out", "SELECT status FROM finishes ORDER BY id");
    assert_eq!(statuses, ["failed", "cancelled", "success"]);
    assert_eq!(table(&shell, "out/runs.csv")[0]["attempts"], "2");
}

/// FA-8: at `limits` a candidate can read the journal, and so lock it for reading. The lock is held for longer than the ten
/// seconds that other users of the journal have patience.
#[test]
fn a_candidate_that_locks_the_journal_costs_no_run() {
    let shell = Shell::new();
    let out = shell.path().join("out").display().to_string();
    shell.write(
        "agent.py",
        &format!(
            "import fcntl, os, time\ndef go(run):\n    held = []\n    if run['replicate'] == 1:\n        for name in \
             ('', '-shm', '-wal'):\n            held.append(os.open('{out}/journal.sqlite' + name, os.O_RDONLY))\n            \
             fcntl.lockf(held[-1], fcntl.LOCK_SH)\n        time.sleep(11)\n    return {{'output': {{'held': len(held)}}}}\n"
        ),
    );
    shell.write(
        "study.yaml",
        "study_id: l\ntitle: L\nrun_budget: {replicates: 6}\nagents: {a: {python: 'agent.py:go', sandbox: limits}}\n",
    );
    ends(
        &run(&shell, &["run", "study.yaml", "--out", "out", "-j", "2"]),
        0,
    );
    let held = ask(
        &shell,
        "out",
        "SELECT count(*) FROM finishes WHERE status = 'success'",
    );
    assert_eq!(held, ["6"]);
}

/// ST-65: a directory's name is no pattern.
#[test]
fn files_belong_to_the_program_whatever_the_directory_is_called() {
    let shell = Shell::new();
    shell.write("exp[1]/data.txt", "1");
    shell.write("exp[1]/agent.py", "def go(run): return {'output': {}}\n");
    shell.write(
        "exp[1]/study.yaml",
        "study_id: g\ntitle: G\nagents: {a: {python: 'agent.py:go', files: [data.txt]}}\n",
    );
    ends(
        &run(&shell, &["run", "exp[1]/study.yaml", "--out", "out"]),
        0,
    );
    shell.write("exp[1]/data.txt", "2");
    let refused = run(&shell, &["resume", "out"]);
    ends(&refused, 2);
    assert!(
        refused.stderr.contains("agent changed"),
        "{}",
        refused.stderr
    );
}

/// ST-7: in no form, from no part of a result.
#[test]
fn a_secret_is_masked_in_warnings_and_in_json() {
    let secret = "s\u{e9}cr\u{e9}t\"key99";
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import json, os\ndef go(run):\n    key = os.environ['KEY']\n    if run['replicate'] == 1: raise ValueError('key ' + \
         key)\n    print(json.dumps(key), json.dumps(key, ensure_ascii=False))\n    return {'output': {key: key}, 'events': \
         [{'event_type': 'x', 'level': key}], 'metrics': {'cost_usd': key}}\n",
    );
    shell.write(
        "study.yaml",
        "study_id: k\ntitle: K\nrun_budget: {replicates: 2}\nagents: {a: {python: 'agent.py:go', pass_env: [KEY]}}\n",
    );
    let done = shell
        .fairtrial(["run", "study.yaml", "--out", "out", "--sqlite"])
        .env("KEY", secret)
        .run();
    ends(&done, 3);
    ends(&run(&shell, &["report", "out"]), 0);
    for (name, bytes) in files(&shell, "out") {
        let text = String::from_utf8_lossy(&bytes);
        for form in [
            secret,
            "s\u{e9}cr\u{e9}t\\\"key99",
            "s\\u00e9cr\\u00e9t",
            "key99",
        ] {
            assert!(!text.contains(form), "{name} holds {form}");
        }
    }
}

/// ST-64, ST-63, ST-80: what is there is not overwritten, taken over, or written into.
#[test]
fn tables_without_a_journal_are_not_overwritten() {
    let shell = Shell::new();
    shell.write("agent.py", "def go(run): return {'output': {}}\n");
    shell.write(
        "study.yaml",
        "study_id: t\ntitle: T\nagents: {a: 'agent.py:go'}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    ends(&run(&shell, &["bundle", "out/"]), 0);
    assert!(shell.path().join("out.tar.gz").exists());
    let manifest = shell.read("out/manifest.json");
    shell.write(
        "out/manifest.json",
        &manifest.replace("\"success\": 1", "\"success\": 7"),
    );
    let found = run(&shell, &["verify", "out"]);
    ends(&found, 3);
    assert_eq!(
        found.stdout,
        "manifest.json: changed since it was written\n"
    );
    shell.write("out/manifest.json", &manifest);
    // Killed when all was run and before that was written down.
    std::fs::remove_file(shell.path().join("out/fairtrial.json")).expect("it is there");
    std::fs::remove_file(shell.path().join("out/runs.csv")).expect("it is there");
    ends(&run(&shell, &["resume", "out"]), 0);
    assert_eq!(table(&shell, "out/runs.csv").len(), 1);
    ends(&run(&shell, &["verify", "out"]), 0);
    std::fs::remove_file(shell.path().join("out/journal.sqlite")).expect("it is there");
    let before = files(&shell, "out");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 2);
    assert_eq!(files(&shell, "out"), before);
}

/// ST-63: who only reads needs to write nothing, and may be somebody else.
#[test]
fn a_directory_that_cannot_be_written_is_read() {
    let shell = Shell::new();
    shell.write("agent.py", "def go(run): return {'output': {}}\n");
    shell.write(
        "study.yaml",
        "study_id: o\ntitle: O\nagents: {a: 'agent.py:go'}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    // Read-only also for root: a mount of its own, in a namespace of its own.
    let binary = fairtrial_tests::binary();
    let script = format!(
        "import subprocess, sys\n\
         line = 'mount --bind out out && mount -o remount,ro,bind out && {0} status out && {0} verify out'\n\
         done = subprocess.run(['unshare', '-rm', 'sh', '-c', line], capture_output=True, text=True)\n\
         if 'mount:' in done.stderr or 'unshare:' in done.stderr: sys.exit(0)  # not allowed here\n\
         assert done.returncode == 0 and 'all as it was left' in done.stdout, done\n",
        binary.display()
    );
    python(&shell, &script);
}

/// ST-73: a file is put in its place by its name; what is no file is written, and never replaced.
#[test]
fn a_pipe_or_a_device_is_not_replaced() {
    let shell = Shell::new();
    shell.write("agent.py", "def go(run): return {'output': {}}\n");
    shell.write(
        "study.yaml",
        "study_id: d\ntitle: D\nagents: {a: 'agent.py:go'}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let binary = fairtrial_tests::binary();
    let script = format!(
        "import os, stat, subprocess\n\
         os.mkfifo('pipe')\n\
         for words in (['report', 'out', '--out'], ['bundle', 'out', '--out'], ['plan', 'study.yaml', '--conditions']):\n    \
         reader = subprocess.Popen(['cat', 'pipe'], stdout=subprocess.PIPE)\n    \
         subprocess.run([{:?}, *words, 'pipe'], check=True, stdout=subprocess.DEVNULL, timeout=60)\n    \
         said = reader.communicate(timeout=60)[0]\n    \
         assert len(said) > 50, (words, said)\n    \
         assert stat.S_ISFIFO(os.stat('pipe').st_mode), words\n\
         assert not [name for name in os.listdir('.') if name.endswith('.new')]\n",
        binary.display().to_string()
    );
    python(&shell, &script);
}

/// ST-62: a journal that was taken away stops the study at once.
#[tokio::test]
async fn a_journal_that_is_gone_stops_the_study() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "import time\ndef go(run):\n    time.sleep(0.05)\n    return {'output': {}}\n",
    );
    shell.write(
        "study.yaml",
        "study_id: m\ntitle: M\nrun_budget: {replicates: 100000}\nagents: {a: 'agent.py:go'}\n",
    );
    let running = shell
        .fairtrial(["run", "study.yaml", "--out", "out", "-j", "1"])
        .start();
    let journal = shell.path().join("out/journal.sqlite-wal");
    wait_until("it is under way", || {
        std::fs::metadata(&journal).is_ok_and(|log| log.len() > 100_000)
    })
    .await;
    std::fs::rename(shell.path().join("out"), shell.path().join("away")).expect("it is there");
    let done = running.end();
    ends(&done, 1);
    assert!(
        done.stderr.contains("journal.sqlite-wal"),
        "{}",
        done.stderr
    );
    assert!(shell.processes().is_empty());
    let kept = ask(
        &shell,
        "away",
        "SELECT count(*) FROM finishes WHERE status = 'success'",
    );
    assert!(kept[0].parse::<u64>().expect("a number") > 0, "{kept:?}");
}

/// ST-62: a full disk, too; what was recorded is kept, and with more room it is gone on with.
#[test]
fn a_full_disk_stops_the_study_and_loses_nothing() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "def go(run):\n    print('x' * 20_000)\n    return {'output': {}}\n",
    );
    shell.write(
        "study.yaml",
        "study_id: u\ntitle: U\nrun_budget: {replicates: 60}\nagents: {a: 'agent.py:go'}\n",
    );
    let binary = fairtrial_tests::binary();
    let line = format!(
        "mkdir disk && mount -t tmpfs -o size=500k none disk && {0} run study.yaml --out disk/out --no-progress; echo code $?; \
         mount -o remount,size=50m disk && {0} resume disk/out --no-progress; echo code $?",
        binary.display()
    );
    let script = format!(
        "import subprocess, sys\n\
         done = subprocess.run(['unshare', '-rm', 'sh', '-c', {line:?}], capture_output=True, text=True)\n\
         if 'mount:' in done.stderr or 'unshare:' in done.stderr: sys.exit(0)  # not allowed here\n\
         codes = [line for line in done.stdout.splitlines() if line.startswith('code')]\n\
         assert codes == ['code 1', 'code 0'], done\n\
         assert 'journal.sqlite' in done.stderr and 'full' in done.stderr, done\n\
         assert '60 success' in done.stdout and ' 0 taken' not in done.stdout, done\n"
    );
    python(&shell, &script);
}

/// ST-57, ST-79: what is damaged is named, and nobody is asked to judge it.
#[test]
fn a_damaged_result_is_not_evaluated() {
    let shell = Shell::new();
    shell.write("agent.py", "def go(run): return {'output': {'x': 3}}\n");
    shell.write(
        "score.py",
        "def score(task): return len(task['output'] or [])\n",
    );
    shell.write(
        "study.yaml",
        "study_id: b\ntitle: B\nagents: {a: 'agent.py:go'}\nproblems: {p: {evaluator: 'score.py:score'}}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    python(
        &shell,
        "import sqlite3\n\
         database = sqlite3.connect('out/journal.sqlite')\n\
         database.execute('UPDATE finishes SET result = ?', ('[',))\n\
         database.commit()\n",
    );
    for args in [&["rescore", "out", "--all"][..], &["export", "out"]] {
        let done = run(&shell, args);
        assert_ne!(done.code, Some(0), "{args:?}");
        assert!(
            done.stderr.contains("cannot be read"),
            "{args:?}: {}",
            done.stderr
        );
    }
    assert_eq!(
        ask(&shell, "out", "SELECT count(*) FROM evaluations"),
        ["1"]
    );
}

/// ST-84: a checkpoint of another seed, or of other types, is not this run's.
#[test]
fn a_checkpoint_that_does_not_fit_is_named_and_its_run_executed() {
    let shell = Shell::new();
    shell.write(
        "agent.py",
        "def go(run): return {'output': {'seed': run['seed']}}\n",
    );
    let study = "study_id: i\ntitle: I\nfactors: {f: [1, 2]}\nagents: {a: 'agent.py:go'}\n";
    shell.write("study.yaml", study);
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    ends(
        &run(&shell, &["export", "out", "--format", "dre", "--to", "dre"]),
        0,
    );
    python(
        &shell,
        "import glob, json\n\
         first, second = sorted(glob.glob('dre/artifacts/checkpoints/run-*.json'))\n\
         for path, change in ((first, {'outputs': 'abc'}), (second, {'run_spec': {'seed': 5}})):\n    \
         data = {**json.load(open(path)), **change}\n    json.dump(data, open(path, 'w'))\n",
    );
    for name in ["runs.csv", "manifest.json"] {
        std::fs::remove_file(shell.path().join("dre").join(name)).expect("it is there");
    }
    let done = run(&shell, &["run", "study.yaml", "--resume", "--out", "dre"]);
    ends(&done, 0);
    assert!(
        done.stderr.contains("is no checkpoint") && done.stderr.contains("of another seed"),
        "{}",
        done.stderr
    );
    assert!(done.stdout.contains("2 run now"), "{}", done.stdout);
}

/// ST-57, ST-79: what cannot be read is not shown as nothing, nor run again for that.
#[test]
fn a_damaged_record_is_refused_by_who_reads_it() {
    let shell = Shell::new();
    shell.write("agent.py", "def go(run): raise ValueError('no')\n");
    shell.write(
        "study.yaml",
        "study_id: d\ntitle: D\nagents: {a: 'agent.py:go'}\noutput_dir: out\n",
    );
    ends(&run(&shell, &["run", "study.yaml"]), 3);
    let change = |to: &str| {
        let script = format!(
            "import sqlite3\nwith sqlite3.connect('out/journal.sqlite') as journal:\n    journal.execute({:?})",
            format!("UPDATE finishes SET {to}")
        );
        python(&shell, &script);
    };
    change("outcome = '{\"error\": '");
    let status = run(&shell, &["status", "out"]);
    ends(&status, 2);
    let place = "out/journal.sqlite` is no journal of a study: what it holds of run-";
    assert!(status.stderr.contains(place), "{}", status.stderr);
    assert!(status.stderr.contains("journal:1:11"), "{}", status.stderr);
    change("stage = 'nowhere'");
    for words in [
        &["plan", "study.yaml"][..],
        &["plan", "study.yaml", "--json"],
    ] {
        let plan = run(&shell, words);
        assert_ne!(plan.code, Some(0), "{}", plan.stdout);
        assert!(plan.stderr.contains("no stage"), "{}", plan.stderr);
    }
}
