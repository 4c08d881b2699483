//! The builder that end-to-end tests read as: a backend of its own, in a directory of its own.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairtrial_exec::{
    Backend, Call, EngineError, Event, Isolation, LocalBackend, LocalConfig, Outcome, Shutdown,
    value,
};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::bare;

/// Longer than anything here may take; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A backend and the directory it may use.
pub struct Story {
    dir: TempDir,
    /// The backend under test.
    pub backend: LocalBackend,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Story {
    /// A backend with two slots.
    #[must_use]
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// A backend set up as `change` says.
    pub fn with(change: impl FnOnce(&mut LocalConfig)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let mut config = LocalConfig::from_env().expect("the test's environment is sound");
        config.max_workers = 2;
        config.spill_dir = dir.path().join("spill");
        let cache = dir.path().join("cache").into_os_string();
        config.host_env.insert("XDG_CACHE_HOME".into(), cache);
        change(&mut config);
        let backend = LocalBackend::new(config);
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = events.clone();
        backend
            .subscribe(Box::new(move |event| {
                sink.lock().expect("no panic").push(event.clone())
            }))
            .expect("a thread can be had");
        Self {
            dir,
            backend,
            events,
        }
    }

    /// The story's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file below the story's directory.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("below the directory"))
            .expect("a directory can be made");
        std::fs::write(&path, text).expect("a file can be written");
        path
    }

    /// Runs a call to its outcome, or fails the test.
    pub async fn run(&self, call: Call) -> Outcome {
        self.try_run(call).await.expect("the engine does its work")
    }

    /// Runs a call.
    pub async fn try_run(&self, call: Call) -> Result<Outcome, EngineError> {
        tokio::time::timeout(PATIENCE, self.backend.execute(call))
            .await
            .expect("the call resolves in time")
    }

    /// Runs `f(*args)` of a source text in a fresh worker.
    pub async fn source(&self, source: &str, args: &str) -> Outcome {
        self.run(Self::call(source, args)).await
    }

    /// Runs `f(*args)` of a source text in a worker that is kept.
    pub async fn reuse(&self, source: &str, args: &str) -> Outcome {
        self.run(Self::reuse_call(source, args)).await
    }

    /// A call of `f(*args)`.
    #[must_use]
    pub fn call(source: &str, args: &str) -> Call {
        bare::source(source, "f", arguments(args))
    }

    /// The same for a worker that is kept.
    #[must_use]
    pub fn reuse_call(source: &str, args: &str) -> Call {
        let mut call = Self::call(source, args);
        call.python_mut().expect("a source call").isolation = Isolation::Reuse;
        call
    }

    /// Shuts down and gives every event of the story.
    pub async fn end(self) -> Vec<Event> {
        tokio::time::timeout(PATIENCE, self.backend.shutdown(Shutdown::default()))
            .await
            .expect("shutdown returns in time");
        std::mem::take(&mut *self.events.lock().expect("no panic"))
    }

    /// The events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().expect("no panic").clone()
    }
}

impl Default for Story {
    fn default() -> Self {
        Self::new()
    }
}

/// `(args, {})` in the data codec, from a JSON array.
#[must_use]
pub fn arguments(args: &str) -> Vec<u8> {
    let args = value::parse_json(args).expect("a JSON array");
    value::arguments_from_json(&args, &serde_json::json!({})).expect("arguments")
}

/// The value of an outcome that has one; the test fails with the error otherwise.
#[must_use]
pub fn json(outcome: &Outcome) -> Json {
    match &outcome.value {
        Some(value) => value.to_json().expect("a well-formed value"),
        None => panic!("no value: {} {:?}", outcome.verdict, outcome.error),
    }
}
