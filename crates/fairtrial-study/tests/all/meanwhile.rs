//! Tables while a study runs, by a backend that looks at them before it answers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairtrial_exec::{
    Backend, Call, Captured, EngineError, Event, InForce, Metrics, Outcome, Shutdown, Verdict,
};
use fairtrial_study::{Mode, Pace, Plan, Request, Stop, Study, Summary, Wishes, execute};
use tokio::sync::watch;

/// Of so many runs.
const RUNS: u64 = 12;

/// What the tables have to show when so many runs have ended, before the next one ends.
type Look = fn(&Path, u64) -> bool;

struct Onlooker {
    directory: PathBuf,
    begun: AtomicU64,
    look: Look,
}

impl Backend for Onlooker {
    async fn execute(&self, _call: Call) -> Result<Outcome, EngineError> {
        let ended = self.begun.fetch_add(1, Ordering::Relaxed);
        let seen = async {
            while !(self.look)(&self.directory, ended) {
                tokio::task::yield_now().await;
            }
        };
        let patience = Duration::from_secs(60);
        let seen = tokio::time::timeout(patience, seen).await;
        seen.unwrap_or_else(|_| panic!("after {ended} ends the tables do not show it"));
        Ok(Outcome {
            verdict: Verdict::Ok,
            value: None,
            error: None,
            exit: None,
            killed_by: None,
            stdout: Captured {
                head: b"{\"text\": \"x\"}".to_vec(),
                ..Captured::default()
            },
            stderr: Captured::default(),
            metrics: Metrics::default(),
            in_force: InForce::default(),
            tried_alone: None,
            upper: None,
        })
    }
    async fn shutdown(&self, _how: Shutdown) {}
    fn subscribe(&self, _observer: Box<dyn FnMut(&Event) + Send>) -> Result<(), EngineError> {
        Ok(())
    }
}

async fn run(directory: &Path, pace: Pace, look: Look) -> Summary {
    let text = format!(
        "study_id: s\ntitle: t\nagents: {{a: {{command: [sh]}}}}\norder: {{policy: plan}}\n\
         run_budget: {{replicates: {RUNS}}}\n"
    );
    let study = Study::parse(Path::new("study.yaml"), &text, None).expect("valid");
    let plan = Arc::new(Plan::own(study, None).expect("valid"));
    let request = Request {
        plan: &plan,
        directory,
        mode: Mode::New,
        wishes: Wishes::default(),
        workers: 1,
        backend: "mock".into(),
        input: text.into_bytes(),
        argv: Vec::new(),
        host: "here".into(),
        provenance: None,
        formats: BTreeSet::new(),
        pace,
        journal_id: "j".into(),
    };
    let backend = Arc::new(Onlooker {
        directory: directory.to_owned(),
        begun: AtomicU64::new(0),
        look,
    });
    let (_stop, stopped) = watch::channel(Stop::No);
    let summary = execute(&request, || backend, stopped, |_| {}).await;
    summary.unwrap_or_else(|error| panic!("{error}"))
}

/// The rows of a table that is there; whatever is there is whole.
fn rows(directory: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(directory.join(name)).ok()?;
    let columns = text.lines().next().expect("a header").split(',').count();
    assert!(text.ends_with("\r\n"), "{name} is cut: {text}");
    for line in text.lines() {
        assert!(line.split(',').count() >= columns, "{name}: {line}");
    }
    Some(text.lines().count() as u64 - 1)
}

/// ST-73, ST-60: a reader finds each table whole, and soon with every run that ended.
#[tokio::test]
async fn tables_follow_the_runs() {
    let directory = tempfile::tempdir().expect("it can be made");
    let at_once = Pace {
        every: Duration::ZERO,
        runs: 1,
        share: 1e9,
    };
    let summary = run(directory.path(), at_once, |directory, ended| {
        let of = |name| rows(directory, name);
        let manifest = std::fs::read_to_string(directory.join("manifest.json"));
        let said = format!("\"run_count\": {ended},");
        ended == 0
            || of("runs.csv") == Some(ended)
                && of("attempts.csv").is_some_and(|rows| rows >= ended)
                && of("events.csv") == Some(ended)
                && manifest.is_ok_and(|text| text.ends_with("}\n") && text.contains(&said))
    })
    .await;
    assert!(summary.warnings.is_empty(), "{:?}", summary.warnings);
    assert_eq!(rows(directory.path(), "runs.csv"), Some(RUNS));
    let left = std::fs::read_dir(directory.path()).expect("it is there");
    let mut names = left.map(|entry| entry.expect("it can be listed").file_name());
    assert!(names.all(|name| !name.to_string_lossy().starts_with('.')));
}

/// ST-73: until a batch is full, nothing is written; at the end all is.
#[tokio::test]
async fn what_is_no_batch_waits_for_the_end() {
    let directory = tempfile::tempdir().expect("it can be made");
    let patient = Pace {
        every: Duration::from_secs(3600),
        ..Pace::default()
    };
    run(directory.path(), patient, |directory, _| {
        assert!(!directory.join("runs.csv").exists());
        true
    })
    .await;
    assert_eq!(rows(directory.path(), "runs.csv"), Some(RUNS));
}

/// ST-73: a full batch is written though its time has not come.
#[tokio::test]
async fn so_many_runs_are_a_batch() {
    let directory = tempfile::tempdir().expect("it can be made");
    let by_fives = Pace {
        every: Duration::from_secs(3600),
        runs: 5,
        share: 1e9,
    };
    run(directory.path(), by_fives, |directory, ended| {
        let shown = rows(directory, "runs.csv").unwrap_or(0);
        assert_eq!(shown % 5, 0, "{ended} ended");
        shown == ended / 5 * 5
    })
    .await;
    assert_eq!(rows(directory.path(), "runs.csv"), Some(RUNS));
}
