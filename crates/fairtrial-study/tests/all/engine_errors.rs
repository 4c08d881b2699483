//! What becomes of runs whose engine fails.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use fairtrial_exec::{
    Backend, Call, Captured, EngineError, Event, InForce, Metrics, Outcome, Shutdown, Verdict,
};
use fairtrial_study::JournalReader;
use fairtrial_study::{Mode, Pace, Plan, Request, Stop, Study, Wishes, execute};
use tokio::sync::watch;

/// Fails as it is told, and then is well.
struct Failing(Mutex<VecDeque<EngineError>>);

impl Backend for Failing {
    async fn execute(&self, _call: Call) -> Result<Outcome, EngineError> {
        if let Some(error) = self.0.lock().expect("no panic").pop_front() {
            return Err(error);
        }
        Ok(Outcome {
            verdict: Verdict::Exit,
            value: None,
            error: None,
            exit: None,
            killed_by: None,
            stdout: Captured::default(),
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

/// The statuses of all attempts of one run.
async fn attempts(errors: Vec<EngineError>, retries: u32) -> Vec<String> {
    let directory = tempfile::tempdir().expect("it can be made");
    let text =
        format!("study_id: s\ntitle: t\nagents: {{a: {{command: [sh], retries: {retries}}}}}\n");
    let study = Study::parse(Path::new("study.yaml"), &text, None).expect("valid");
    let plan = Arc::new(Plan::own(study, None).expect("valid"));
    let request = Request {
        plan: &plan,
        directory: directory.path(),
        mode: Mode::New,
        wishes: Wishes::default(),
        workers: 1,
        backend: "mock".into(),
        input: text.into_bytes(),
        argv: Vec::new(),
        host: "here".into(),
        provenance: None,
        formats: BTreeSet::new(),
        pace: Pace::default(),
        journal_id: "j".into(),
    };
    let backend = Arc::new(Failing(Mutex::new(errors.into())));
    let (_stop, stopped) = watch::channel(Stop::No);
    let done = execute(&request, || backend, stopped, |_| {}).await;
    done.unwrap_or_else(|error| panic!("{error}"));
    let reader = JournalReader::open(directory.path()).expect("a journal");
    let run_id = plan.runs().next().expect("one run").run_id.to_string();
    let starts = reader.starts_of(&run_id).expect("starts");
    let status = |id| {
        reader
            .finish(id)
            .expect("a journal")
            .map(|end| end.status.to_string())
    };
    starts
        .iter()
        .map(|start| status(start.id).unwrap_or_default())
        .collect()
}

fn passing() -> EngineError {
    EngineError::HostMemory
}

/// ST-50: tried again at most twice, unless it is final; it takes no retry away from the run.
#[tokio::test]
async fn an_engine_that_fails_is_asked_again_unless_that_is_of_no_use() {
    assert_eq!(attempts(vec![passing()], 0).await, ["lost", "failed"]);
    let always = (0..9).map(|_| passing()).collect();
    assert_eq!(attempts(always, 0).await, ["lost", "lost", "lost"]);
    assert_eq!(attempts(vec![EngineError::LauncherLost], 0).await, ["lost"]);
    assert_eq!(
        attempts(vec![passing()], 1).await,
        ["lost", "failed", "failed"]
    );
}

/// CL-57: what every run would end with is asked for once, and the run is not lost.
#[tokio::test]
async fn a_backend_that_fails_ends_the_study() {
    let broken = |code| EngineError::Elsewhere {
        code,
        problem: "no".into(),
    };
    for code in ["server", "store"] {
        assert_eq!(attempts(vec![broken(code)], 3).await, ["skipped"]);
    }
    assert_eq!(attempts(vec![broken("lost")], 3).await, ["lost"]);
}
