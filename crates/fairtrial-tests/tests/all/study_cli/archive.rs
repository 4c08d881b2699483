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
    assert_eq!(found.stdout, "runs.csv: is not what the journal says\n");
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
    let missing = run(&shell, &["bundle", "nowhere"]);
    ends(&missing, 2);
    assert!(!shell.path().join("nowhere.tar.gz").exists());
}
