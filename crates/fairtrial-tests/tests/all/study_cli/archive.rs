//! A directory as evidence: `verify` and `bundle`.

use fairtrial_tests::Shell;

use super::{draws, ends, python, run};

/// ST-78
#[test]
fn an_edited_value_is_found() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let verify = || run(&shell, &["verify", "out"]);
    ends(&verify(), 0);
    for name in [
        "runs.csv",
        "events.csv",
        "conditions.csv",
        "study.yaml",
        "study.input.yaml",
    ] {
        let path = format!("out/{name}");
        let before = shell.read(&path);
        shell.write(&path, &before.replacen('1', "2", 1));
        let found = verify();
        ends(&found, 3);
        assert_eq!(
            found.stdout,
            format!("{name}: changed since it was written\n")
        );
        shell.write(&path, &before);
    }
    // One that covers its traces: the table's hash is changed, too.
    let (runs, sealed) = (shell.read("out/runs.csv"), shell.read("out/fairtrial.json"));
    let forged = runs.replacen("success", "failed", 1);
    shell.write("out/runs.csv", &forged);
    let script = "import hashlib, json, sys\n\
        data = json.load(open('out/fairtrial.json'))\n\
        data['files']['runs.csv'] = hashlib.sha256(open('out/runs.csv', 'rb').read()).hexdigest()\n\
        json.dump(data, open('out/fairtrial.json', 'w'))\n";
    python(&shell, script);
    let found = verify();
    ends(&found, 3);
    assert_eq!(
        found.stdout,
        "fairtrial.json: a value of it was changed\nruns.csv: is not what the journal says\n"
    );
    shell.write("out/runs.csv", &runs);
    shell.write("out/fairtrial.json", &sealed);
    python(
        &shell,
        "import sqlite3\n\
         database = sqlite3.connect('out/journal.sqlite')\n\
         database.execute(\"UPDATE finishes SET stdout = 'x' WHERE id = 3\")\n\
         database.commit()\n",
    );
    let found = verify();
    ends(&found, 3);
    assert!(
        found.stdout.starts_with("journal.sqlite: "),
        "{}",
        found.stdout
    );
}

/// ST-78: of the journal and of the seal any value.
#[test]
fn every_part_of_the_evidence_is_sealed() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let sealed = shell.read("out/fairtrial.json");
    for edit in [
        "data['identities'] = {}",
        "data['invocations'] = []",
        "data['isolation'] = {}",
        "data['order'] = {}",
        "data['version'] = '9'",
    ] {
        let script = format!(
            "import json\ndata = json.load(open('out/fairtrial.json'))\n{edit}\njson.dump(data, open('out/fairtrial.json', 'w'))\n"
        );
        python(&shell, &script);
        let found = run(&shell, &["verify", "out"]);
        ends(&found, 3);
        assert!(
            found.stdout.starts_with("fairtrial.json: "),
            "{edit}: {}",
            found.stdout
        );
        shell.write("out/fairtrial.json", &sealed);
    }
    for edit in [
        "UPDATE invocations SET host = 'elsewhere'",
        "UPDATE invocation_ends SET reason = 'stopped'",
        "UPDATE meta SET value = '0' WHERE key = 'created_at_ns'",
        "UPDATE starts SET seed = 7 WHERE id = 1",
        "DELETE FROM decisions",
    ] {
        let script = format!(
            "import shutil, sqlite3\nshutil.copy('out/journal.sqlite', 'kept')\ndb = \
             sqlite3.connect('out/journal.sqlite')\ndb.execute({edit:?})\ndb.commit()\n"
        );
        python(&shell, &script);
        let found = run(&shell, &["verify", "out"]);
        ends(&found, 3);
        assert!(
            found.stdout.contains("journal.sqlite: "),
            "{edit}: {}",
            found.stdout
        );
        std::fs::rename(
            shell.path().join("kept"),
            shell.path().join("out/journal.sqlite"),
        )
        .expect("it was kept");
    }
    ends(&run(&shell, &["verify", "out"]), 0);
}

/// ST-57: what reads a directory shows the study as it was run, and says when its file is another by now.
#[test]
fn a_directory_is_read_by_its_own_record() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let before = shell.read("out/runs.csv");
    let other = shell
        .read("study.yaml")
        .replace("replicates: 4", "replicates: 2");
    shell.write("study.yaml", &other);
    let done = run(&shell, &["export", "out"]);
    ends(&done, 0);
    assert!(
        done.stderr.contains("has changed since it was last run"),
        "{}",
        done.stderr
    );
    assert_eq!(shell.read("out/runs.csv"), before);
    ends(&run(&shell, &["verify", "out"]), 0);
}

/// ST-80
#[test]
fn a_bundle_has_the_same_bytes_each_time() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out.v1"]), 0);
    ends(&run(&shell, &["bundle", "out.v1"]), 0);
    let first = std::fs::read(shell.path().join("out.v1.tar.gz")).expect("it is there");
    ends(
        &run(&shell, &["bundle", "out.v1", "--out", "again.tar.gz"]),
        0,
    );
    assert_eq!(
        std::fs::read(shell.path().join("again.tar.gz")).expect("it is there"),
        first
    );
    python(
        &shell,
        "import tarfile\n\
         names = [m.name for m in tarfile.open('out.v1.tar.gz')]\n\
         assert names == sorted(names) and 'out.v1/journal.sqlite' in names and 'out.v1/runs.csv' in names, names\n\
         assert not any('wal' in n or 'lock' in n for n in names), names\n\
         tarfile.open('out.v1.tar.gz').extractall('unpacked')\n",
    );
    ends(&run(&shell, &["status", "unpacked/out.v1"]), 0);
    // Whoever receives it has neither the study file nor the place.
    std::fs::remove_file(shell.path().join("study.yaml")).expect("it is there");
    let whole = shell.path().join("unpacked/out.v1").display().to_string();
    for place in ["unpacked/out.v1", "unpacked/out.v1/", &whole] {
        let found = run(&shell, &["verify", place]);
        ends(&found, 0);
        ends(&run(&shell, &["report", place]), 0);
    }
    let missing = run(&shell, &["bundle", "nowhere"]);
    ends(&missing, 2);
    assert!(!shell.path().join("nowhere.tar.gz").exists());
}

/// FA-13: tables of a journal that was changed or damaged would look like any others.
#[test]
fn a_damaged_journal_is_not_exported_in_silence() {
    let shell = Shell::new();
    draws(&shell, "fresh");
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    let (journal, runs) = (
        shell.path().join("out/journal.sqlite"),
        shell.read("out/runs.csv"),
    );
    let sound = std::fs::read(&journal).expect("it is there");
    python(
        &shell,
        "import sqlite3\n\
         database = sqlite3.connect('out/journal.sqlite')\n\
         database.execute(\"UPDATE finishes SET status = 'failed' WHERE id = 3\")\n\
         database.commit()\n",
    );
    let refused = run(&shell, &["export", "out"]);
    ends(&refused, 3);
    let says = "out/journal.sqlite: damaged: its records are not those of the last orderly end\nnothing was exported";
    assert!(refused.stderr.starts_with(says), "{refused:?}");
    assert_eq!(shell.read("out/runs.csv"), runs);
    // What can be read may be had elsewhere, and is said to be of a damaged journal all the same.
    let elsewhere = run(&shell, &["export", "out", "--to", "else"]);
    ends(&elsewhere, 3);
    assert!(elsewhere.stderr.contains("damaged"), "{elsewhere:?}");
    assert_ne!(shell.read("else/runs.csv"), runs);
    ends(&run(&shell, &["verify", "out"]), 3);
    for (from, what) in [(4096, "its second page"), (sound.len() / 2, "its middle")] {
        let mut torn = sound.clone();
        let end = (from + 4096).min(torn.len());
        torn[from..end].fill(0xa5);
        std::fs::write(&journal, &torn).expect("it can be written");
        let refused = run(&shell, &["export", "out"]);
        assert!(
            refused.code == Some(3) && refused.stderr.contains("damaged: "),
            "{what}: {refused:?}"
        );
        assert_eq!(shell.read("out/runs.csv"), runs, "{what}");
    }
    std::fs::write(&journal, &sound).expect("it can be written");
    ends(&run(&shell, &["export", "out"]), 0);
}
