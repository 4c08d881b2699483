//! A program that proposes: one process, a request a line in, an answer a line out (CA-84, CA-87).
//!
//! What follows from what is decided in `supervisor.rs`; threads of `process.rs` read and write, so that a program that
//! does not do its part keeps nobody waiting but them, and they end with it.

mod lines;
mod log_file;
mod process;
mod supervisor;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fairtrial_exec::LocalBackend;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::answer::{Answer, Failure, FailureKind};
use super::ask::RequestId;
use super::proposer::{Asking, News};
use super::secrets::Secrets;
use super::settings::CommandSettings;
use super::wire::Request;
use process::{End, Output, Process};
use supervisor::{Action, Event, Supervisor};

/// Where and as whom the program runs.
#[derive(Clone)]
pub struct CommandTerms {
    /// Its working directory.
    pub cwd: PathBuf,
    /// Its environment: the user's own.
    pub env: BTreeMap<OsString, OsString>,
    /// Where its standard error goes. Values of variables that are named like secrets are left out.
    pub log: PathBuf,
}

/// Says nothing of the environment, which may hold secrets.
impl fmt::Debug for CommandTerms {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("CommandTerms");
        shown.field("cwd", &self.cwd).field("log", &self.log);
        shown.finish_non_exhaustive()
    }
}

/// A program that proposes. It is started with the first question.
///
/// Must be made and asked within a tokio runtime. Dropping it ends the program; [`CommandProposer::close`] also waits.
#[derive(Debug)]
pub struct CommandProposer {
    messages: mpsc::UnboundedSender<Message>,
    news: Option<mpsc::UnboundedReceiver<News>>,
    driving: JoinHandle<()>,
}

type Reply = oneshot::Sender<Result<Answer, Failure>>;

enum Message {
    Asked(RequestId, Arc<[u8]>, Reply),
    GivenUp(RequestId),
    Close,
}

impl CommandProposer {
    /// A program that is not yet started. It keeps one of the backend's workers busy as long as it lives; so give it a
    /// backend of its own, or one with a worker to spare.
    #[must_use]
    pub fn new(backend: Arc<LocalBackend>, settings: CommandSettings, terms: CommandTerms) -> Self {
        let (messages, inbox) = mpsc::unbounded_channel();
        let (told, news) = mpsc::unbounded_channel();
        let variables = terms.env.iter().map(|(name, value)| (&**name, &**value));
        let secrets = Secrets::of_environment(variables);
        let supervisor = Supervisor::new(&settings, secrets.clone());
        let driver = Driver {
            supervisor,
            inbox,
            told,
            replies: HashMap::new(),
            process: None,
            launch: process::Launch {
                backend,
                argv: settings.argv,
                terms,
                secrets,
            },
        };
        Self {
            messages,
            news: Some(news),
            driving: tokio::spawn(driver.drive()),
        }
    }

    pub(super) fn ask(&self, request: &Request) -> Asking {
        let (reply, answer) = oneshot::channel();
        let (id, line) = (request.id, request.line().into());
        let given_up = GiveUp {
            id,
            messages: self.messages.clone(),
        };
        // A driver that is gone drops the reply, which is told below.
        self.messages.send(Message::Asked(id, line, reply)).ok();
        Box::pin(async move {
            let answer = answer.await;
            drop(given_up);
            answer.unwrap_or_else(|_| {
                let kind = FailureKind::ProposerDead;
                Err(Failure::new(kind, "the proposer was closed"))
            })
        })
    }

    pub(super) fn take_news(&mut self) -> Option<mpsc::UnboundedReceiver<News>> {
        self.news.take()
    }

    /// Ends the program and waits until it is gone.
    pub async fn close(mut self) {
        self.messages.send(Message::Close).ok(); // else it has ended
        (&mut self.driving).await.ok(); // a panic was reported where it happened
    }
}

impl Drop for CommandProposer {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

/// Tells the driver that nobody waits any more; too late, it changes nothing.
struct GiveUp {
    id: RequestId,
    messages: mpsc::UnboundedSender<Message>,
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.messages.send(Message::GivenUp(self.id)).ok(); // else nobody is left to be told
    }
}

/// Turns messages, output and time into events, and performs what follows.
struct Driver {
    supervisor: Supervisor,
    inbox: mpsc::UnboundedReceiver<Message>,
    told: mpsc::UnboundedSender<News>,
    replies: HashMap<RequestId, Reply>,
    process: Option<Process>,
    launch: process::Launch,
}

impl Driver {
    async fn drive(mut self) {
        loop {
            let event = tokio::select! {
                message = self.inbox.recv() => match message {
                    Some(Message::Asked(id, line, reply)) => {
                        self.replies.insert(id, reply);
                        Event::Asked { id, line }
                    }
                    Some(Message::GivenUp(id)) => Event::GivenUp(id),
                    Some(Message::Close) | None => break,
                },
                output = next_output(&mut self.process) => match output {
                    Output::Line(line) => Event::Line(line),
                    Output::TooLong { beginning, bytes } => Event::TooLong { beginning, bytes },
                    Output::Ended => {
                        let process = self.process.take().expect("its output has just ended");
                        process.end().await.into()
                    }
                },
                () = until(self.supervisor.wake_at()) => Event::TimePassed,
            };
            self.perform(event);
        }
        if let Some(process) = self.process.take() {
            process.kill();
            process.end().await;
        }
    }

    fn perform(&mut self, event: Event) {
        let mut actions = self.supervisor.step(event, now());
        // A program that cannot be started has ended.
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Start => match Process::start(&self.launch) {
                    Ok(process) => self.process = Some(process),
                    Err(problem) => {
                        actions = self.supervisor.step(Event::NotStarted(problem), now());
                    }
                },
                Action::Send(line) => {
                    if let Some(process) = &self.process {
                        process.send(line);
                    }
                }
                Action::StopReading => {
                    if let Some(process) = &mut self.process {
                        process.stop_reading();
                    }
                }
                Action::Kill => {
                    if let Some(process) = &self.process {
                        process.kill();
                    }
                }
                Action::Resolve(id, answer) => {
                    if let Some(reply) = self.replies.remove(&id) {
                        reply.send(answer).ok(); // given up meanwhile
                    }
                }
                Action::Tell(news) => _ = self.told.send(news), // or nobody wants to know
            }
        }
    }
}

impl From<End> for Event {
    fn from(end: End) -> Self {
        match end {
            End::Ran(how) => Self::Ended(how),
            End::NotStarted(why) => Self::NotStarted(why),
        }
    }
}

/// As the runtime has it, which tests may stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

async fn next_output(process: &mut Option<Process>) -> Output {
    match process {
        Some(process) => process.output().await,
        None => std::future::pending().await,
    }
}
