//! The program's process, and the two threads that read and write it. Decides nothing.

use std::io::{PipeWriter, Write};
use std::sync::Arc;
use std::sync::mpsc as thread_mpsc;
use std::thread;
use std::time::Duration;

use fairtrial_exec::{
    Call, Execution, Exit, Level, LocalBackend, Outcome, Resource, Sandbox, Stream, Streams, Tap,
    TapReader, Verdict,
};
use tokio::sync::mpsc;

use super::super::secrets::Secrets;
use super::CommandTerms;
use super::lines::Lines;
use super::log_file::LogFile;

/// Lines that may wait here before the program has to. Each may be long.
const LINES_AHEAD: usize = 1;

/// Between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(1);

/// The engine has killed it long before; this bounds only our waiting.
const END_BOUND: Duration = Duration::from_secs(30);

/// So much of each stream is kept for the message that says how it ended.
const KEPT_BYTES: u64 = 4 << 10;

/// What a process is started from.
pub(super) struct Launch {
    pub(super) backend: Arc<LocalBackend>,
    pub(super) argv: Vec<String>,
    pub(super) terms: CommandTerms,
    pub(super) secrets: Secrets,
}

/// What came of the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// A line of its standard output.
    Line(Vec<u8>),
    /// A line that is longer than any answer.
    TooLong { beginning: Vec<u8>, bytes: u64 },
    /// It is gone, and there is no more to read.
    Ended,
}

/// How a program ended, for people.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It ran.
    Ran(String),
    /// It did not even start.
    NotStarted(String),
}

/// A running program.
#[derive(Debug)]
pub(super) struct Process {
    output: mpsc::Receiver<Output>,
    input: thread_mpsc::Sender<Arc<[u8]>>,
    execution: Execution,
}

impl Process {
    pub(super) fn start(launch: &Launch) -> Result<Self, String> {
        let problem = |error: &dyn std::fmt::Display| format!("cannot be started: {error}");
        let log = &launch.terms.log;
        let log_file = LogFile::open(log, launch.secrets.clone())
            .map_err(|error| format!("its log `{}` cannot be written: {error}", log.display()))?;
        let (theirs, ours) = std::io::pipe().map_err(|error| problem(&error))?;
        let (tap, tapped) = Tap::new();
        let streams = Streams {
            output: Some(tap),
            input: Some(theirs.into()),
        };
        let execution = launch.backend.submit_with(launch.call(), streams);
        let execution = execution.map_err(|error| problem(&error))?;
        let (input, to_write) = thread_mpsc::channel();
        let (lines, output) = mpsc::channel(LINES_AHEAD);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(work)
        };
        spawn("proposer-input", Box::new(|| write(ours, to_write)))
            .map_err(|error| problem(&error))?;
        spawn(
            "proposer-output",
            Box::new(|| read(tapped, lines, log_file)),
        )
        .map_err(|error| problem(&error))?;
        Ok(Self {
            output,
            input,
            execution,
        })
    }

    /// Has a line written, when the program reads it.
    pub(super) fn send(&self, line: Arc<[u8]>) {
        self.input.send(line).ok(); // it no longer reads; its end is told otherwise
    }

    pub(super) fn kill(&self) {
        self.execution.cancel();
    }

    /// What it writes from now on is dropped.
    pub(super) fn stop_reading(&mut self) {
        self.output.close();
    }

    pub(super) async fn output(&mut self) -> Output {
        self.output.recv().await.unwrap_or(Output::Ended)
    }

    /// How it ended. Its input is closed, its output no longer read.
    pub(super) async fn end(self) -> End {
        let Self {
            output,
            input,
            execution,
        } = self;
        drop((output, input));
        match tokio::time::timeout(END_BOUND, execution).await {
            Ok(Ok(outcome)) => how(&outcome),
            Ok(Err(error)) => End::Ran(format!("could not be run: {error}")),
            Err(_) => End::Ran("does not end".to_owned()),
        }
    }
}

impl Launch {
    /// The user's own program: unconfined, in the user's environment, for as long as it is needed.
    fn call(&self) -> Call {
        let mut call = Call::command(&self.argv);
        call.sandbox = Sandbox::new(Level::None);
        call.cwd = Some(self.terms.cwd.clone());
        let env = self.terms.env.iter();
        call.env = env
            .map(|(name, value)| (name.clone(), Some(value.clone())))
            .collect();
        call.cancel_grace = GRACE;
        call.limits.set(Resource::Output, None);
        call.capture_bytes = KEPT_BYTES;
        call
    }
}

/// Ends when nobody sends any more, or the program is gone. It may hang in a write to a program that does not read; then
/// that program is killed in time, which ends the write.
fn write(mut pipe: PipeWriter, lines: thread_mpsc::Receiver<Arc<[u8]>>) {
    for line in lines {
        if pipe.write_all(&line).is_err() {
            return;
        }
    }
}

/// Ends with the program, or when nobody wants to know any more.
fn read(tapped: TapReader, lines: mpsc::Sender<Output>, mut log: LogFile<std::fs::File>) {
    let mut cut = Lines::default();
    for (stream, bytes) in tapped {
        match stream {
            Stream::Stderr => log.push(&bytes),
            Stream::Stdout => {
                for line in cut.push(&bytes) {
                    if lines.blocking_send(line).is_err() {
                        return log.flush();
                    }
                }
            }
        }
    }
    log.flush();
    if let Some(last) = cut.finish() {
        lines.blocking_send(last).ok(); // nobody waits for it
    }
}

fn how(outcome: &Outcome) -> End {
    End::Ran(match (outcome.verdict, outcome.exit, &outcome.error) {
        (Verdict::SetupFailed, _, Some(error)) => {
            return End::NotStarted(format!("cannot be started: {}", error.message));
        }
        (Verdict::Cancelled, ..) => "was ended".to_owned(),
        (_, Some(Exit::Code(code)), _) => format!("exited with code {code}"),
        (_, Some(Exit::Signal(signal)), _) => format!("was ended by signal {signal}"),
        (Verdict::Ok, None, _) => "exited".to_owned(),
        (verdict, None, _) => format!("ended: {verdict}"),
    })
}
