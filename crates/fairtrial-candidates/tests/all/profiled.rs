//! Winner and base profiled after a race, in workspaces of their own (CA-83).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fairtrial_candidates::spec::Spec;
use fairtrial_candidates::{EvaluationReport, Evaluator, Onset, Rescoring, SideProfile};
use fairtrial_exec::{Backend, LocalConfig, Shutdown};
use tokio::sync::mpsc;

const BASE: &str = "\
def work(n):
    total = 0
    for i in range(n):
        total += i
    return total
";

const FAST: &str = "\
def work(n):
    return n * (n - 1) // 2
";

/// Fast, unless somebody watches.
const SHY: &str = "\
import sys

def work(n):
    tools = getattr(sys, 'monitoring', None)
    watched = sys.gettrace() or tools and any(tools.get_tool(tool) for tool in range(6))
    while watched:
        pass
    return n * (n - 1) // 2
";

struct Trial {
    directory: tempfile::TempDir,
}

impl Trial {
    /// A repository of two files, and a candidate that replaces one.
    fn new(candidate: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let place = directory.path().join(name);
            fs::create_dir_all(place.parent().expect("below the directory")).expect("made");
            fs::write(place, text).expect("written");
        };
        write("repo/work.py", BASE);
        write(
            "repo/bench.py",
            "import work\nassert work.work(4_000_000) == 7999998000000\n",
        );
        write("repo/check.py", "import work\nassert work.work(5) == 10\n");
        write("trees/quick/work.py", candidate);
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    async fn evaluate(&self, output: &str, profile: &str) -> EvaluationReport {
        let text = format!(
            "version: 1\nrepo: repo\ncandidates: {{trees: trees}}\nprofile: {profile}\noutput: {output}\n\
             tests: [{{name: check, command: [python3, check.py]}}]\n\
             bench: [{{name: loop, command: [python3, bench.py], timeout: 20s}}]\n\
             baseline: {{runs: 1}}\nparallel: 1\n\
             measure: {{metric: cpu, max_blocks: 8, confirm: false, racing: false}}\n"
        );
        let spec = Spec::parse(&self.path().join("EVAL.yaml"), &text).expect("a good file");
        let mut variables: BTreeMap<_, _> = std::env::vars_os().collect();
        variables.insert("XDG_CACHE_HOME".into(), self.path().join("cache").into());
        variables.remove(std::ffi::OsStr::new("FAIRTRIAL_CACHE_DIR"));
        let config = LocalConfig::from_vars(variables).expect("a good environment");
        let evaluator = Evaluator::new(spec, config).expect("it has a cache directory");
        let (events, _told) = mpsc::unbounded_channel();
        let report = evaluator.evaluate(Onset::Begin, events).await;
        evaluator.backend().shutdown(Shutdown::now()).await;
        report.expect("an evaluation that can be made")
    }

    /// Everything in the repository, by path.
    fn repository(&self) -> BTreeMap<String, Vec<u8>> {
        let files = fs::read_dir(self.path().join("repo")).expect("there");
        let file = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry.expect("listed");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("a file"))
        };
        files.map(file).collect()
    }
}

fn sides(report: &EvaluationReport) -> &[SideProfile] {
    &report.profile.as_ref().expect("a profile").sides
}

/// CA-83
#[tokio::test]
async fn lines_of_winner_and_base_are_counted_and_the_repository_stays_as_it_is() {
    let trial = Trial::new(FAST);
    let before = trial.repository();
    let report = trial.evaluate("out", "auto").await;
    assert_eq!(trial.repository(), before);
    let [base, winner] = sides(&report) else {
        panic!("{:?}", report.profile)
    };
    assert_eq!(
        (&*base.side, Some(&winner.side)),
        ("base", report.winner.as_ref())
    );
    assert_eq!(winner.note, None);
    // On a busy machine the base is not traced to its end.
    let note = base.note.as_deref().unwrap_or("traced for");
    assert!(note.starts_with("traced for"), "{note}");
    let hits = |side: &SideProfile| -> Vec<_> {
        let lines = side.functions[0].lines.iter();
        lines.map(|line| (line.line, line.hits)).collect()
    };
    assert_eq!(hits(winner), [(1, 0), (2, 1)]);
    assert_eq!(hits(base)[1], (2, 1));
    assert!(hits(base)[3].1 > 1000, "{:?}", hits(base));
    let output = trial.path().join("out");
    let page = fs::read_to_string(output.join("report.html")).expect("a page");
    assert!(page.contains("id=\"profile\"") && page.contains("total += i"));
    let (kept, _) = EvaluationReport::read(&output).expect("a report");
    assert_eq!(kept, report);
}

/// CA-83: a hang is a note, and results are those of the runs alone.
#[tokio::test]
async fn a_winner_that_hangs_while_it_is_watched_has_won_all_the_same() {
    let trial = Trial::new(SHY);
    let report = trial.evaluate("out", "auto").await;
    let [_, winner] = sides(&report) else {
        panic!("{:?}", report.profile)
    };
    let note = winner.note.as_deref().unwrap_or_default();
    assert!(note.contains("timeout"), "{note}");
    assert_eq!(winner.functions, []);
    let (_, runs) = EvaluationReport::read(&trial.path().join("out")).expect("a report");
    let again = report
        .rescore(&runs, &Rescoring::default())
        .expect("judged");
    assert_eq!(again, report);
    let without = trial.evaluate("without", "off").await;
    assert_eq!(without.profile, None);
    assert_eq!(without.winner, report.winner);
    let facts = |report: &EvaluationReport| -> Vec<_> {
        let all = report.evaluations.iter();
        all.map(|one| (one.id.clone(), one.rank, one.state, one.cases, one.size))
            .collect()
    };
    assert_eq!(facts(&without), facts(&report));
}

/// CA-83
#[tokio::test]
async fn a_profiler_of_the_users_runs_on_both_sides_and_what_it_writes_is_kept() {
    let trial = Trial::new(FAST);
    let profile = "{command: 'wc -l < work.py; echo scratch > work.py; exit 3'}";
    let report = trial.evaluate("out", profile).await;
    let [base, winner] = sides(&report) else {
        panic!("{:?}", report.profile)
    };
    assert_eq!((base.stdout.trim(), winner.stdout.trim()), ("5", "2"));
    let note = winner.note.as_deref().unwrap_or_default();
    assert!(note.starts_with("exit code 3"), "{note}");
    assert_eq!(trial.repository()["work.py"], BASE.as_bytes());
}
