//! `fairtrial batch`: many calls from lines of JSON, results in input order, memory bounded.
//!
//! Three parties: the reader parses lines (`input.rs`), this event loop runs them, the writer writes (`output.rs`).
//! Whoever is slow slows the one before it; none of them can keep a signal waiting.

mod attempt;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use fairtrial_exec::{Backend, SpillDir, Verdict};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::any_backend::AnyBackend;
use crate::args::BatchArgs;
use crate::call_json::CallReader;
use crate::engine;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::input::{self, Line, READ_AHEAD, Source};
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::reorder::Reorder;
use crate::spool::{MEMORY_BUDGET, Record, Spool};
use attempt::{Finished, LineEnd, attempt};

/// Calls submitted ahead of the oldest unfinished one; with those only read, 1,024.
const WINDOW: u64 = 1024 - READ_AHEAD;
/// Calls in the engine's hands for each that can run: enough that it never waits for us, and as many outcomes as may
/// pile up when it is quicker than we are.
const IN_FLIGHT_PER_WORKER: usize = 32;
/// Text of unfinished calls beyond which only the slots themselves are kept busy.
const TEXT_BUDGET: u64 = 64 << 20;

/// Runs the calls in a file.
pub(crate) fn run(args: &BatchArgs) -> Result<ExitCode, Failure> {
    let source = Source::open(&args.calls)?;
    let target = output::open(args.out.as_deref(), &source)?;
    let config = engine::config(args.jobs)?;
    let calls = CallReader::new(source.base.clone(), engine::default_sandbox()?);
    let spool = Spool::new(SpillDir::new(&config.spill_dir), MEMORY_BUDGET);
    let progress = Progress::new(source.size, args.no_progress, args.out.is_none());
    let (url, jobs) = (args.backend.clone(), args.jobs);
    let name = source.name.clone();
    // Agents have other directories.
    let base = AnyBackend::is_local(url.as_deref()).then(|| Arc::from(source.base.as_path()));
    // How many can run at a time elsewhere is not known here: all that may be unfinished.
    let workers = match AnyBackend::is_local(url.as_deref()) {
        true => config.max_workers,
        false => WINDOW as usize,
    };
    engine::run(async move {
        let mut interrupt = Interrupt::listen()?;
        let output = Output::start(target)?;
        let lines = input::start(source, calls)?;
        let backend = Arc::new(AnyBackend::new(url.as_deref(), config, jobs, None)?);
        backend.spare_a_loop()?;
        let mut batch = Batch::new(backend.clone(), spool, name, workers, progress);
        batch.base = base;
        let ended = interrupt.or(batch.drive(lines, &output.sender)).await;
        batch.stop();
        // A reader of ours that is stuck keeps the last record from being whole; a second signal gives up on it.
        let closing = async {
            match ended {
                Ok(Ok(End::AllWritten)) => engine::finish(&*backend).await,
                _ => engine::stop_within(&backend, backend.patience()).await,
            }
            output.finish().await
        };
        let left = |_: Failure| backend.interrupted();
        let closed = interrupt.or(closing).await.map_err(left)?;
        ended.map_err(left)??;
        closed?;
        Ok(batch.tally.exit_code())
    })
}

/// Why the loop ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Every line has its record.
    AllWritten,
    /// Nobody reads our output any more.
    OutputGone,
}

/// What became of the lines so far.
#[derive(Debug, Default)]
struct Tally {
    engine_errors: u64,
    bad_lines: u64,
    failed: u64,
}

impl Tally {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self {
                engine_errors: 1.., ..
            } => ExitCode::EngineFailed,
            Self { bad_lines: 1.., .. } => ExitCode::BadUsage,
            Self { failed: 1.., .. } => ExitCode::CallFailed,
            _ => ExitCode::AllWell,
        }
    }
}

/// The event loop's state.
struct Batch<B> {
    backend: Arc<B>,
    spool: Spool,
    /// The input, as messages call it.
    name: String,
    /// Where relative paths of calls start, if they run on this machine.
    base: Option<Arc<Path>>,
    workers: usize,
    progress: Progress,
    tally: Tally,
    /// Lines read, not submitted.
    waiting: VecDeque<Line>,
    running: JoinSet<Finished>,
    /// Bytes of text held by `running`.
    text: u64,
    submitted: u64,
    window: Reorder<Record>,
    /// Why no call can be run any more.
    broken: Option<String>,
    /// The engine's error that was said last, and how many calls had it again since.
    last_error: String,
    repeated: u64,
}

impl<B: Backend + 'static> Batch<B> {
    fn new(
        backend: Arc<B>,
        spool: Spool,
        name: String,
        workers: usize,
        progress: Progress,
    ) -> Self {
        Self {
            backend,
            spool,
            name,
            base: None,
            workers,
            progress,
            tally: Tally::default(),
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            text: 0,
            submitted: 0,
            window: Reorder::new(),
            broken: None,
            last_error: String::new(),
            repeated: 0,
        }
    }

    /// Runs every line that comes, and hands the records over in order.
    async fn drive(
        &mut self,
        mut lines: mpsc::Receiver<io::Result<Vec<Line>>>,
        records: &mpsc::Sender<Vec<Record>>,
    ) -> Result<End, Failure> {
        let mut reading = true;
        loop {
            while let Some(finished) = self.running.try_join_next() {
                self.settle(finished)?;
            }
            // What came before it is written first.
            if !self.window.is_ready()
                && let Some(problem) = self.broken.take()
            {
                return Err(Failure::Cluster(problem));
            }
            self.submit();
            if !reading && self.waiting.is_empty() && self.window.next() == self.submitted {
                return Ok(End::AllWritten);
            }
            tokio::select! {
                biased;
                room = records.reserve(), if self.window.is_ready() => match room {
                    Ok(room) => room.send(std::iter::from_fn(|| self.window.pop()).collect()),
                    Err(_) => return Ok(End::OutputGone),
                },
                Some(finished) = self.running.join_next() => self.settle(finished)?,
                batch = lines.recv(), if reading && self.waiting.is_empty() => match batch {
                    Some(Ok(batch)) => self.waiting.extend(batch),
                    Some(Err(error)) => {
                        let attempt = format!("cannot read on in `{}`", self.name);
                        return Err(Failure::attempting(attempt)(error));
                    }
                    None => reading = false,
                },
            }
        }
    }

    /// Says what the engine could not do. An error that the last call had too, as calls have on a host that lacks
    /// something, is counted.
    fn say_once(&mut self, message: &str) {
        let error = message.split_once(": ").map_or(message, |(_, error)| error);
        if self.last_error == error {
            self.repeated += 1;
            return;
        }
        self.say_repeated();
        error.clone_into(&mut self.last_error);
        self.progress.say(&format!("{}:{message}", self.name));
    }

    /// Says how many calls had the last error besides the one that was named.
    fn say_repeated(&mut self) {
        if self.repeated > 0 {
            let (name, count) = (&self.name, std::mem::take(&mut self.repeated));
            self.progress
                .say(&format!("{name}: {count} more with this error"));
        }
    }

    /// Gives up whatever runs.
    fn stop(&mut self) {
        self.say_repeated();
        self.running.abort_all();
        self.waiting.clear();
        self.progress.end();
    }

    /// Starts waiting lines while there is room.
    fn submit(&mut self) {
        while self.broken.is_none()
            && self.has_room()
            && let Some(line) = self.waiting.pop_front()
        {
            let index = self.submitted;
            self.submitted += 1;
            self.text += line.weight();
            let base = self.base.clone();
            let task = attempt(self.backend.clone(), self.spool.clone(), index, line, base);
            self.running.spawn(task);
        }
    }

    fn has_room(&self) -> bool {
        let ahead = self.submitted - self.window.next();
        let running = self.running.len();
        ahead < WINDOW
            && running < IN_FLIGHT_PER_WORKER * self.workers
            && (self.text < TEXT_BUDGET || running < 2 * self.workers)
    }

    fn settle(
        &mut self,
        finished: Result<Finished, tokio::task::JoinError>,
    ) -> Result<(), Failure> {
        let finished = finished.map_err(Failure::attempting("a call's task failed"))?;
        self.text -= finished.weight;
        if let LineEnd::BackendError(problem) = finished.end {
            self.broken.get_or_insert(problem);
            return Ok(());
        }
        self.window.insert(finished.index, finished.record);
        let ok = matches!(finished.end, LineEnd::Verdict(Verdict::Ok));
        self.progress.finished(ok, finished.length);
        match finished.end {
            LineEnd::Verdict(Verdict::Ok) => {}
            LineEnd::Verdict(_) => self.tally.failed += 1,
            LineEnd::BadLine(message) => {
                self.tally.bad_lines += 1;
                self.progress.say(&format!("{}:{message}", self.name));
            }
            LineEnd::BackendError(_) => unreachable!("seen above"),
            LineEnd::EngineError(message) => {
                self.tally.engine_errors += 1;
                self.say_once(&message);
            }
        }
        Ok(())
    }
}
