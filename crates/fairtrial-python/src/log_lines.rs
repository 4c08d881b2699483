//! What a cluster has to say (its server is away, nobody serves a class), for Python's logger `fairtrial`.

use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

use crate::process::{generation, is_exiting};

/// A thread that has nothing to pass on ends after this long.
const QUIET: Duration = Duration::from_secs(1);

/// A level as Python counts them, and what is said.
type Line = (u32, String);

/// Lines are passed on by a thread of its own: those who have something to say hold leases and queues, and the interpreter's
/// lock may be somebody else's for long.
struct Lines;

struct Passing {
    /// A forked child does not have its parent's thread.
    generation: u64,
    lines: mpsc::Sender<Line>,
    thread: JoinHandle<()>,
}

/// Of each process in a line of forks another: what another thread held when a child was made stays locked there for ever.
// Plain mutexes: held for a channel send, or to start a thread.
static PASSING: [Mutex<Option<Passing>>; 16] = [const { Mutex::new(None) }; 16];

/// From now on Python hears them. A host that has a logger of its own for Rust keeps it.
pub(crate) fn pass_on() {
    if log::set_logger(&Lines).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Passes on what was said so far, and nothing after it: the interpreter is about to end, and nobody may be waiting for its
/// lock then.
pub(crate) fn end(py: Python<'_>) {
    let passing = passing().take();
    if let Some(Passing { lines, thread, .. }) = passing.filter(Passing::is_ours) {
        drop(lines);
        py.detach(|| thread.join().ok()); // handlers' errors are written, not raised
    }
}

fn passing() -> MutexGuard<'static, Option<Passing>> {
    let at = usize::try_from(generation()).unwrap_or_default() % PASSING.len();
    PASSING[at].lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fairtrial_cluster")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) || is_exiting() {
            return;
        }
        let level = match record.level() {
            Level::Error => 40,
            Level::Warn => 30,
            Level::Info => 20,
            Level::Debug | Level::Trace => 10,
        };
        let mut passing = passing();
        if !passing.as_ref().is_some_and(Passing::is_ours) {
            // An ancestor's is not dropped: its channel may be locked.
            std::mem::forget(std::mem::replace(&mut *passing, Passing::start()));
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
        Some(Self {
            generation: generation(),
            lines,
            thread: thread.spawn(move || pass(&taken)).ok()?,
        })
    }

    fn is_ours(&self) -> bool {
        self.generation == generation()
    }
}

/// Until nobody has had anything to say for a while, or will have.
fn pass(lines: &mpsc::Receiver<Line>) {
    loop {
        match lines.recv_timeout(QUIET) {
            Ok(line) => tell(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // Whoever sends holds the lock, so nothing comes between the look and the end.
                let mut passing = passing();
                match lines.try_recv() {
                    Ok(line) => {
                        drop(passing);
                        tell(line);
                    }
                    Err(_) => {
                        *passing = None;
                        return;
                    }
                }
            }
        }
    }
}

fn tell((level, line): Line) {
    // An interpreter that has ended hears nothing more.
    _ = Python::try_attach(|py| {
        let told = py
            .import("logging")
            .and_then(|logging| logging.call_method1("getLogger", ("fairtrial",)))
            .and_then(|logger| logger.call_method1("log", (level, "%s", line)));
        if let Err(error) = told {
            error.write_unraisable(py, None); // a handler's, which nobody here can answer
        }
    });
}
