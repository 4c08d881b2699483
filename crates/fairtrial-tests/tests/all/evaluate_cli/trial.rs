//! A small repository, candidates beside it, and the binary run on both.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairtrial_tests::{Cli, Finished, Shell};
use serde_json::{Value as Json, json};

/// A repository `repo` whose `answer.sh` says 42, and whose only test wants just that. The evaluation file, candidates,
/// cache, lock and output are beside it.
pub(super) struct Trial {
    pub(super) shell: Shell,
    /// How workspaces are to be had; none for what the machine does best.
    provider: Option<&'static str>,
}

/// Evaluations are silent, and measure for as long as a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(150);

/// A file, link or directory: what it is, what it holds, and when it was changed.
pub(super) type Seen = (u32, i64, i64, Vec<u8>);

impl Trial {
    pub(super) fn new() -> Self {
        let trial = Self::without_git();
        trial.git(&["init", "--quiet", "--initial-branch=main"]);
        trial.commit();
        trial
    }

    pub(super) fn without_git() -> Self {
        let trial = Self {
            shell: Shell::new(),
            provider: None,
        };
        trial.write("repo/answer.sh", "echo 42\n");
        trial.write(
            "repo/tests/check.sh",
            "test \"$(sh answer.sh)\" = 42 || { sh answer.sh; exit 1; }\n",
        );
        trial.spec("");
        trial
    }

    /// With workspaces of this kind in all evaluation files from now on.
    pub(super) fn on(mut self, provider: &'static str) -> Self {
        self.provider = Some(provider);
        self.spec("");
        self
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.shell.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        self.shell.write(name, text)
    }

    /// Writes the evaluation file: the shortest that works, with keys of `more` in the place of its own.
    pub(super) fn spec(&self, more: &str) {
        let workspace = self
            .provider
            .map(|provider| format!("workspace: {{provider: {provider}"));
        let more = &match &workspace {
            Some(workspace) => more.replace("workspace: {", &format!("{workspace}, ")),
            None => more.to_owned(),
        };
        let workspace = workspace.map(|text| text + "}");
        let own = [
            "version: 1",
            "repo: repo",
            "candidates: {jsonl: candidates.jsonl}",
            "tests: [{name: check, command: [sh, tests/check.sh]}]",
            "baseline: {runs: 1}",
            "parallel: 2",
            "output: out",
        ];
        let key = |line: &str| line.split(':').next().map(|key| format!("{key}:"));
        let given = |line: &&str| {
            let key = key(line).expect("a key");
            !more.lines().any(|line| line.starts_with(&key))
        };
        let own = own.into_iter().chain(workspace.as_deref());
        let own: Vec<&str> = own.filter(given).collect();
        self.write("EVAL.yaml", &format!("{}\n{more}", own.join("\n")));
    }

    /// Writes the candidates.
    pub(super) fn candidates(&self, all: &[Json]) {
        self.shell.write_lines("candidates.jsonl", all);
    }

    /// Git as the user runs it, without configuration of whoever runs the tests.
    pub(super) fn git(&self, args: &[&str]) -> String {
        self.git_in("repo", args)
    }

    pub(super) fn git_in(&self, place: &str, args: &[&str]) -> String {
        #[expect(clippy::disallowed_methods, reason = "the user runs git")]
        let output = std::process::Command::new("git")
            .args(["-c", "protocol.file.allow=always"])
            .args(args)
            .current_dir(self.path(place))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_AUTHOR_NAME", "somebody")
            .env("GIT_AUTHOR_EMAIL", "somebody@localhost")
            .env("GIT_COMMITTER_NAME", "somebody")
            .env("GIT_COMMITTER_EMAIL", "somebody@localhost")
            .output()
            .expect("git is there");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Commits all there is.
    pub(super) fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "-m", "all"]);
    }

    /// `fairtrial evaluate EVAL.yaml` with these arguments.
    pub(super) fn evaluate(&self, args: &[&str]) -> Cli {
        let all = ["evaluate", "EVAL.yaml"];
        let cli = self
            .shell
            .fairtrial(all.into_iter().chain(args.iter().copied()));
        cli.patience(PATIENCE)
            .env("FAIRTRIAL_CACHE_DIR", self.path("cache"))
            .env("FAIRTRIAL_MACHINE_LOCK", self.path("machine.lock"))
    }

    pub(super) fn run(&self, args: &[&str]) -> Finished {
        self.evaluate(args).run()
    }

    /// Runs it to the end, which has this code; gives the report.
    pub(super) fn report(&self, code: i32, args: &[&str]) -> Report {
        let args: Vec<&str> = ["--json"].iter().chain(args).copied().collect();
        let done = self.run(&args);
        ends(&done, code);
        Report(serde_json::from_str(&done.stdout).expect("one JSON report"))
    }

    /// The report in the output directory.
    pub(super) fn written(&self) -> Report {
        let text = self.shell.read("out/evaluation.json");
        Report(serde_json::from_str(&text).expect("JSON"))
    }

    /// Lines of a file in the output directory; none if it is not there.
    pub(super) fn lines(&self, name: &str) -> Vec<Json> {
        let text = std::fs::read_to_string(self.path("out").join(name)).unwrap_or_default();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .collect()
    }

    /// What the journal has of a kind.
    pub(super) fn recorded(&self, kind: &str) -> Vec<Json> {
        let records = self.lines("journal.jsonl").into_iter();
        let records = records.map(|mut line| line["record"].take());
        records.filter(|record| record["kind"] == kind).collect()
    }

    /// All that is below a directory, with modes, times and contents.
    pub(super) fn census(&self, name: &str) -> BTreeMap<PathBuf, Seen> {
        let mut found = BTreeMap::new();
        look(&self.path(name), &mut found);
        found
    }

    /// Files and links below a directory, by path.
    pub(super) fn files(&self, name: &str) -> Vec<PathBuf> {
        let found = self.census(name).into_iter();
        found
            .filter(|(_, seen)| seen.0 & 0o170_000 != 0o040_000)
            .map(|(path, _)| path)
            .collect()
    }

    /// Fails the test if anything of an evaluation is left: processes, workspaces, mounts.
    pub(super) fn assert_nothing_left(&self) {
        self.shell.assert_nothing_left();
        let workspaces = self.files("cache/workspaces");
        assert!(workspaces.is_empty(), "workspaces are left: {workspaces:?}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is there");
        let here = self.shell.path().display().to_string();
        assert!(!mounts.contains(&here), "mounts are left: {mounts}");
    }
}

fn look(path: &Path, found: &mut BTreeMap<PathBuf, Seen>) {
    let Ok(facts) = std::fs::symlink_metadata(path) else {
        return;
    };
    let content = if facts.is_symlink() {
        let target = std::fs::read_link(path).expect("a link");
        target.as_os_str().as_bytes().to_vec()
    } else if facts.is_file() {
        std::fs::read(path).expect("a file of ours")
    } else {
        Vec::new()
    };
    let seen = (facts.mode(), facts.mtime(), facts.mtime_nsec(), content);
    found.insert(path.to_owned(), seen);
    if facts.is_dir() {
        for entry in std::fs::read_dir(path).expect("a directory of ours") {
            look(&entry.expect("it can be listed").path(), found);
        }
    }
}

/// A report, as JSON.
#[derive(Debug)]
pub(super) struct Report(pub(super) Json);

impl Report {
    /// The evaluation of that name.
    pub(super) fn of(&self, name: &str) -> &Json {
        let all = self.0["evaluations"].as_array().expect("a list");
        let found = all.iter().find(|one| one["name"] == name);
        found.unwrap_or_else(|| panic!("no `{name}` in {}", self.0))
    }

    /// Why it failed: the kind; empty if it did not.
    pub(super) fn failure(&self, name: &str) -> &str {
        self.of(name)["failure"]["kind"].as_str().unwrap_or("")
    }

    /// What is said of its failure.
    pub(super) fn message(&self, name: &str) -> &str {
        self.of(name)["failure"]["message"].as_str().unwrap_or("")
    }

    pub(super) fn id(&self, name: &str) -> &str {
        self.of(name)["id"].as_str().expect("an id")
    }

    /// Names in the order of the ranking.
    pub(super) fn names(&self) -> Vec<&str> {
        let all = self.0["evaluations"].as_array().expect("a list");
        all.iter()
            .map(|one| one["name"].as_str().expect("a name"))
            .collect()
    }

    /// What does not depend on time: who failed why, in which cases, with which differences.
    pub(super) fn correctness(&self) -> BTreeMap<String, Json> {
        let all = self.0["evaluations"].as_array().expect("a list");
        let facts = all.iter().map(|one| {
            let keys = [
                "id",
                "parent",
                "origin",
                "generation",
                "duplicate_of",
                "failure",
                "cases",
                "state",
                "size",
            ];
            let facts = keys.map(|key| (key.to_owned(), one[key].clone()));
            let name = one["name"].as_str().expect("a name");
            (name.to_owned(), Json::from_iter(facts))
        });
        facts.collect()
    }
}

/// A candidate that says something else in `answer.sh`.
pub(super) fn answers(name: &str, script: &str) -> Json {
    changes(name, &[("answer.sh", script)])
}

/// A candidate with these files.
pub(super) fn changes(name: &str, files: &[(&str, &str)]) -> Json {
    let files = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), Json::from(*text)));
    json!({"name": name, "files": Json::from_iter(files)})
}

/// Right, and unlike the base.
pub(super) fn right(name: &str) -> Json {
    answers(name, &format!("echo 42 # {name}\n"))
}

/// Wrong.
pub(super) fn wrong(name: &str) -> Json {
    answers(name, &format!("echo 41 # {name}\n"))
}

/// Ends with this code; else shows what it said.
pub(super) fn ends(done: &Finished, code: i32) {
    assert_eq!(done.code, Some(code), "{}{}", done.stdout, done.stderr);
}
