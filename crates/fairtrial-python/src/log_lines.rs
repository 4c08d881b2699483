//! What a cluster has to say (its server is away, nobody serves a class), for Python's logger `fairtrial`.

use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

use crate::process::generation;

/// A thread that has nothing to pass on ends after this long.
const QUIET: Duration = Duration::from_secs(1);

/// A level as Python counts them, and what is said.
type Line = (u32, String);

/// Lines are passed on by a thread of its own: those who have something to say hold leases and queues, and the interpreter's
/// lock may be somebody else's for long.
struct Lines {
    // A plain mutex: held for a channel send, or to start a thread.
    passing: Mutex<Option<Passing>>,
}

struct Passing {
    /// A forked child does not have its parent's thread.
    generation: u64,
    lines: mpsc::Sender<Line>,
}

static LINES: Lines = Lines {
    passing: Mutex::new(None),
};

/// From now on Python hears them. A host that has a logger of its own for Rust keeps it.
pub(crate) fn pass_on() {
    if log::set_logger(&LINES).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fairtrial_cluster")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = match record.level() {
            Level::Error => 40,
            Level::Warn => 30,
            Level::Info => 20,
            Level::Debug | Level::Trace => 10,
        };
        let mut passing = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        if passing.as_ref().map(|passing| passing.generation) != Some(generation()) {
            *passing = Passing::start();
        }
        if let Some(passing) = &*passing {
            let line = (level, record.args().to_string());
            passing.lines.send(line).ok(); // it has ended with the interpreter
        }
    }

    fn flush(&self) {}
}

impl Passing {
    /// None where no thread can be had: then nothing is said.
    fn start() -> Option<Self> {
        let (lines, taken) = mpsc::channel();
        let thread = std::thread::Builder::new().name("fairtrial-log".into());
        thread.spawn(move || pass(&taken)).ok()?;
        Some(Self {
            generation: generation(),
            lines,
        })
    }
}

/// Until nobody has had anything to say for a while, or there is no interpreter any more.
fn pass(lines: &mpsc::Receiver<Line>) {
    loop {
        while let Ok(line) = lines.recv_timeout(QUIET) {
            if tell(line).is_none() {
                return;
            }
        }
        // Whoever sends holds the lock, so nothing comes between the look and the end.
        let mut passing = LINES.passing.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(line) = lines.try_recv() else {
            *passing = None;
            return;
        };
        drop(passing);
        if tell(line).is_none() {
            return;
        }
    }
}

/// None when the interpreter has ended.
fn tell((level, line): Line) -> Option<()> {
    Python::try_attach(|py| {
        let told = py
            .import("logging")
            .and_then(|logging| logging.call_method1("getLogger", ("fairtrial",)))
            .and_then(|logger| logger.call_method1("log", (level, "%s", line)));
        if let Err(error) = told {
            error.write_unraisable(py, None); // a handler's, which nobody here can answer
        }
    })
}
