//! `fairtrial batch`: many calls from lines of JSON, results in input order, memory bounded.
//!
//! Three parties: the reader parses lines (`input.rs`), this event loop runs them, the writer writes (`output.rs`).
//! Whoever is slow slows the one before it; none of them can keep a signal waiting.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use fairtrial_exec::{Backend, Call, EngineError, LocalBackend, Outcome, SpillDir, Verdict};
use serde_json::Value as Json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::args::BatchArgs;
use crate::call_json::CallReader;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::input::{self, Line, READ_AHEAD, Source};
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::reorder::Reorder;
use crate::spool::{MEMORY_BUDGET, Record, Spool};
use crate::{engine, record};

/// Calls submitted ahead of the oldest unfinished one; with those only read, 1,024.
const WINDOW: u64 = 1024 - READ_AHEAD;
/// Text of unfinished calls beyond which only the slots themselves are kept busy.
const TEXT_BUDGET: u64 = 64 << 20;
/// An outcome with more bytes than this is put into JSON off the event loop, and straight to disk.
const LARGE: usize = 1 << 20;

/// Runs the calls in a file.
pub(crate) fn run(args: &BatchArgs) -> Result<ExitCode, Failure> {
    let source = Source::open(&args.calls)?;
    let target = output::open(args.out.as_deref(), &source)?;
    let config = engine::config(args.jobs)?;
    let calls = CallReader::new(source.base.clone(), engine::default_sandbox()?);
    let spool = Spool::new(SpillDir::new(&config.spill_dir), MEMORY_BUDGET);
    let progress = Progress::new(source.size, args.no_progress, args.out.is_none());
    let (name, workers) = (source.name.clone(), config.max_workers);
    engine::run(async move {
        let mut interrupt = Interrupt::listen()?;
        let output = Output::start(target)?;
        let lines = input::start(source, calls)?;
        let backend = Arc::new(LocalBackend::new(config));
        let mut batch = Batch::new(backend.clone(), spool, name, workers, progress);
        let ended = interrupt.or(batch.drive(lines, &output.sender)).await;
        batch.stop();
        // A reader of ours that is stuck keeps the last record from being whole; a second signal gives up on it.
        let closing = async {
            match ended {
                Ok(Ok(End::AllWritten)) => engine::finish(&*backend).await,
                _ => engine::stop(&backend).await,
            }
            output.finish().await
        };
        let closed = interrupt.or(closing).await?;
        ended??;
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

/// A line that has its record.
struct Finished {
    index: u64,
    length: u64,
    weight: u64,
    end: LineEnd,
    record: Record,
}

/// What became of one line.
enum LineEnd {
    Verdict(Verdict),
    /// No trial; the line for standard error.
    BadLine(String),
    EngineError(String),
}

/// The event loop's state.
struct Batch<B> {
    backend: Arc<B>,
    spool: Spool,
    /// The input, as messages call it.
    name: String,
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
            workers,
            progress,
            tally: Tally::default(),
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            text: 0,
            submitted: 0,
            window: Reorder::new(),
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

    /// Gives up whatever runs.
    fn stop(&mut self) {
        self.running.abort_all();
        self.waiting.clear();
        self.progress.end();
    }

    /// Starts waiting lines while there is room.
    fn submit(&mut self) {
        while self.has_room()
            && let Some(line) = self.waiting.pop_front()
        {
            let index = self.submitted;
            self.submitted += 1;
            self.text += line.weight();
            let task = finish_line(self.backend.clone(), self.spool.clone(), index, line);
            self.running.spawn(task);
        }
    }

    fn has_room(&self) -> bool {
        let ahead = self.submitted - self.window.next();
        ahead < WINDOW && (self.text < TEXT_BUDGET || self.running.len() < 2 * self.workers)
    }

    fn settle(
        &mut self,
        finished: Result<Finished, tokio::task::JoinError>,
    ) -> Result<(), Failure> {
        let finished = finished.map_err(Failure::attempting("a call's task failed"))?;
        self.text -= finished.weight;
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
            LineEnd::EngineError(message) => {
                self.tally.engine_errors += 1;
                self.progress.say(&format!("{}:{message}", self.name));
            }
        }
        Ok(())
    }
}

/// From a line to its record, wherever that is kept.
async fn finish_line<B: Backend>(
    backend: Arc<B>,
    spool: Spool,
    index: u64,
    line: Line,
) -> Finished {
    let (length, weight) = (line.length, line.weight());
    let (id, number) = (line.id, line.number);
    let (end, record) = match line.call {
        Err(bad) => {
            let message = format!("{number}:{}: {}", bad.column, bad.message);
            let record = record::no_trial(&id, number, "InvalidCall", &bad.message);
            (LineEnd::BadLine(message), spool.keep_anyway(record))
        }
        Ok(call) => match try_call(&*backend, &spool, call, &id).await {
            Ok((verdict, record)) => (LineEnd::Verdict(verdict), record),
            Err(error) => no_trial(&spool, &id, number, &error),
        },
    };
    Finished {
        index,
        length,
        weight,
        end,
        record,
    }
}

async fn try_call<B: Backend>(
    backend: &B,
    spool: &Spool,
    call: Call,
    id: &Json,
) -> Result<(Verdict, Record), record::RecordError> {
    let outcome = backend.execute(call).await?;
    let verdict = outcome.verdict;
    let record = keep_outcome(spool, id, outcome).await?;
    Ok((verdict, record))
}

/// The record of a call that the engine refused, or could not see through.
fn no_trial(
    spool: &Spool,
    id: &Json,
    number: u64,
    error: &record::RecordError,
) -> (LineEnd, Record) {
    let (kind, end) = match error.downcast_ref() {
        Some(EngineError::InvalidCall(invalid)) => (
            "InvalidCall",
            LineEnd::BadLine(format!("{number}:1: {invalid}")),
        ),
        _ => (
            "EngineError",
            LineEnd::EngineError(format!("{number}: error: {error}")),
        ),
    };
    let record = record::no_trial(id, number, kind, &error.to_string());
    (end, spool.keep_anyway(record))
}

/// Keeps an outcome: a large one straight on disk.
async fn keep_outcome(
    spool: &Spool,
    id: &Json,
    outcome: Outcome,
) -> Result<Record, record::RecordError> {
    if weight(&outcome) > LARGE {
        let id = id.clone();
        return store(spool, move |mut out| {
            record::write_outcome(&outcome, &id, &mut out)
        })
        .await;
    }
    let mut bytes = Vec::with_capacity(2048);
    record::write_outcome(&outcome, id, &mut bytes)?;
    bytes.shrink_to_fit();
    match spool.keep(bytes) {
        Ok(record) => Ok(record),
        Err(bytes) => store(spool, move |out| Ok(out.write_all(&bytes)?)).await,
    }
}

async fn store(
    spool: &Spool,
    write: impl FnOnce(&mut dyn io::Write) -> Result<(), record::RecordError> + Send + 'static,
) -> Result<Record, record::RecordError> {
    let spool = spool.clone();
    let stored = tokio::task::spawn_blocking(move || spool.store(write));
    stored.await?
}

/// About how many bytes an outcome holds.
fn weight(outcome: &Outcome) -> usize {
    let kept = |stream: &fairtrial_exec::Captured| stream.head.len() + stream.tail.len();
    let value = outcome.value.as_ref();
    value.map_or(0, |value| value.body.bytes().len())
        + kept(&outcome.stdout)
        + kept(&outcome.stderr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairtrial_exec::{
        Body, Captured, EncodedValue, Event, InForce, Level, Metrics, ResultFormat, Shutdown, Work,
    };
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// Answers by the program's name: `slow` after a while, `refuse` and `break` with an error, others at once.
    #[derive(Default)]
    struct Mock {
        started: AtomicU64,
    }

    impl Backend for Mock {
        async fn execute(&self, call: Call) -> Result<Outcome, EngineError> {
            self.started.fetch_add(1, Ordering::Relaxed);
            let Work::Command(work) = &call.work else {
                panic!("the mock runs commands")
            };
            match &*work.argv[0] {
                "slow" => tokio::time::sleep(Duration::from_millis(50)).await,
                "never" => std::future::pending().await,
                "break" => return Err(EngineError::LauncherLost),
                _ => {}
            }
            Ok(outcome(&work.argv))
        }
        async fn shutdown(&self, _how: Shutdown) {}
        fn subscribe(&self, _observer: Box<dyn FnMut(&Event) + Send>) {}
    }

    fn outcome(argv: &[String]) -> Outcome {
        let output = argv.get(1).map_or(0, |length| length.parse().unwrap());
        Outcome {
            verdict: if argv[0] == "fail" {
                Verdict::Exit
            } else {
                Verdict::Ok
            },
            value: (argv[0] == "value").then(|| EncodedValue {
                format: ResultFormat::Pickle,
                body: Body::Inline(b"pickle".to_vec()),
            }),
            error: None,
            exit: None,
            stdout: Captured {
                head: vec![b'x'; output],
                ..Captured::default()
            },
            stderr: Captured::default(),
            metrics: Metrics::default(),
            in_force: InForce {
                requested: Level::None,
                effective: Level::None,
                mode: "command",
                mechanisms: Vec::new(),
            },
        }
    }

    /// The lines of one run: where they come from, where their records go.
    struct Story {
        batch: Batch<Mock>,
        records: mpsc::Receiver<Vec<Record>>,
        sender: mpsc::Sender<Vec<Record>>,
        dir: tempfile::TempDir,
    }

    impl Story {
        fn new(memory: u64) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (sender, records) = mpsc::channel(4);
            let batch = Batch::new(
                Arc::default(),
                Spool::new(SpillDir::new(dir.path().join("spill")), memory),
                "calls.jsonl".into(),
                2,
                Progress::new(None, true, true),
            );
            Self {
                batch,
                records,
                sender,
                dir,
            }
        }

        fn started(&self) -> u64 {
            self.batch.backend.started.load(Ordering::Relaxed)
        }

        /// Runs `lines` to the end; the records as JSON.
        async fn run(&mut self, lines: Vec<Line>) -> Vec<Json> {
            let (feed, input) = mpsc::channel(1);
            let feeding = async move {
                let mut lines = lines.into_iter().peekable();
                while lines.peek().is_some() {
                    let batch: Vec<_> = lines.by_ref().take(32).collect();
                    feed.send(Ok(batch)).await.unwrap();
                }
            };
            let (sender, _) = mpsc::channel(1);
            let sender = std::mem::replace(&mut self.sender, sender);
            let driving = async {
                let end = self.batch.drive(input, &sender).await.unwrap();
                drop(sender);
                end
            };
            let mut out = Vec::new();
            let writing = async {
                while let Some(batch) = self.records.recv().await {
                    for record in batch {
                        record.write_to(&mut out).unwrap();
                    }
                }
            };
            let ((), end, ()) = tokio::join!(feeding, driving, writing);
            assert_eq!(end, End::AllWritten);
            let text = String::from_utf8(out).unwrap();
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        }
    }

    fn line(number: u64, text: &str) -> Line {
        let mut calls = CallReader::new("/".into(), Level::None);
        let (id, call) = calls.read(text, number);
        Line {
            number,
            id,
            length: text.len() as u64,
            call: call.map_err(|fault| input::BadLine {
                column: fault.place(text).1,
                message: fault.message,
            }),
        }
    }

    fn argv(number: u64, words: &[&str]) -> Line {
        line(number, &serde_json::json!({"argv": words}).to_string())
    }

    fn ids(records: &[Json]) -> Vec<u64> {
        records
            .iter()
            .map(|record| record["id"].as_u64().unwrap())
            .collect()
    }

    /// EX-100, EX-102, EX-103
    #[tokio::test(start_paused = true)]
    async fn every_line_has_its_record_in_its_place() {
        let mut story = Story::new(1 << 20);
        let lines = vec![
            argv(1, &["slow"]),
            line(2, r#"{"id": "two", "argv": 5}"#),
            argv(3, &["break"]),
            argv(5, &["fail"]),
            argv(6, &["ok"]),
        ];
        let records = story.run(lines).await;
        assert_eq!(records[0]["verdict"], "ok");
        assert_eq!(
            records[1].to_string(),
            r#"{"id":"two","line":2,"verdict":null,"error":{"type":"InvalidCall","message":"`argv`: must be an array of strings, not a number"}}"#
        );
        assert_eq!(records[2]["verdict"], Json::Null);
        assert_eq!(records[2]["error"]["type"], "EngineError");
        assert_eq!(
            (&records[3]["id"], &records[3]["verdict"]),
            (&5.into(), &"exit".into())
        );
        assert_eq!(
            (&records[4]["id"], &records[4]["verdict"]),
            (&6.into(), &"ok".into())
        );
        assert_eq!(story.batch.tally.exit_code(), ExitCode::EngineFailed);
        assert_eq!(story.started(), 4, "a bad line starts nothing");
    }

    /// EX-103
    #[test]
    fn the_exit_code_is_the_first_that_applies() {
        let code = |engine_errors, bad_lines, failed| {
            let tally = Tally {
                engine_errors,
                bad_lines,
                failed,
            };
            tally.exit_code().number()
        };
        assert_eq!(
            [code(1, 1, 1), code(0, 1, 1), code(0, 0, 1), code(0, 0, 0)],
            [1, 2, 3, 0]
        );
    }

    /// EX-101
    #[tokio::test(start_paused = true)]
    async fn reading_stops_1024_calls_ahead_of_the_oldest_unfinished() {
        let mut story = Story::new(1 << 30);
        let (feed, input) = mpsc::channel(1);
        let sender = story.sender.clone();
        let driving = story.batch.drive(input, &sender);
        let feeding = async {
            let mut sent = 0;
            for number in 0.. {
                let words: &[&str] = if number == 0 { &["never"] } else { &["ok"] };
                let batch = vec![argv(number, words)];
                let sending = tokio::time::timeout(Duration::from_secs(60), feed.send(Ok(batch)));
                if sending.await.is_err() {
                    break;
                }
                sent += 1;
            }
            sent
        };
        let sent = tokio::select! {
            _ = driving => panic!("the first call never ends"),
            sent = feeding => sent,
        };
        assert_eq!(story.started(), WINDOW);
        assert!(sent <= WINDOW + READ_AHEAD, "{sent}");
    }

    /// EX-101
    #[tokio::test(start_paused = true)]
    async fn records_beyond_the_budget_wait_on_disk_and_come_out_whole() {
        let mut story = Story::new(10_000);
        let mut lines = vec![argv(1, &["slow"])];
        lines.extend((2..200).map(|number| argv(number, &["ok", "500"])));
        lines.push(argv(200, &["ok", "3000000"]));
        let records = story.run(lines).await;
        assert_eq!(ids(&records), (1..=200).collect::<Vec<_>>());
        assert!(
            records[1..199]
                .iter()
                .all(|r| r["stdout"].as_str().unwrap().len() == 500)
        );
        assert_eq!(records[199]["stdout"].as_str().unwrap().len(), 3_000_000);
    }

    /// EX-103
    #[tokio::test(start_paused = true)]
    async fn a_record_that_cannot_be_kept_costs_only_itself() {
        let mut story = Story::new(0);
        std::fs::write(story.dir.path().join("spill"), "in the way").unwrap();
        let records = story.run(vec![argv(1, &["ok"]), argv(2, &["ok"])]).await;
        assert_eq!(ids(&records), [1, 2]);
        let message = records[0]["error"]["message"].as_str().unwrap();
        assert!(message.contains("is not a directory"), "{message}");
        assert_eq!(story.batch.tally.exit_code(), ExitCode::EngineFailed);
    }

    /// EX-104
    #[tokio::test(start_paused = true)]
    async fn a_reader_that_went_away_ends_the_run() {
        let Story {
            mut batch,
            records,
            sender,
            ..
        } = Story::new(1 << 20);
        drop(records);
        let (feed, input) = mpsc::channel(2);
        feed.send(Ok(vec![argv(1, &["ok"])])).await.unwrap();
        assert_eq!(batch.drive(input, &sender).await.unwrap(), End::OutputGone);
    }
}
