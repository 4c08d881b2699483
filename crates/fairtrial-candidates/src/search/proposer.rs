//! Who proposes: a program, a server, or a function of the caller's. One question, one end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tokio::sync::mpsc;

use super::answer::{Answer, Failure, Malformed};
use super::command::CommandProposer;
use super::function::FunctionProposer;
use super::http::HttpProposer;
use super::wire::Request;

/// A question under way. Dropping it gives the question up.
pub type Asking = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// What a proposer has to say besides answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It said something that belongs to no request.
    Stray(Malformed),
    /// It was started again, and why.
    Restarted(String),
}

/// Whoever proposes candidates. Several questions may be open at once, and end in any order.
pub enum Proposer {
    /// A program.
    Command(CommandProposer),
    /// A server.
    Http(HttpProposer),
    /// A function.
    Function(FunctionProposer),
}

impl Proposer {
    /// Asks. Ends exactly once; a failure of kind
    /// [`FailureKind::ProposerDead`](super::FailureKind::ProposerDead) means that there is no use in asking
    /// again.
    #[must_use]
    pub fn ask(&self, request: Request) -> Asking {
        match self {
            Self::Command(program) => program.ask(&request),
            Self::Http(server) => server.ask(request),
            Self::Function(function) => function.ask(request),
        }
    }

    /// Whether it works on this machine, so that races wait for it (CA-91). A function may do anything.
    #[must_use]
    pub fn shares_cpus(&self) -> bool {
        match self {
            Self::Command(_) | Self::Function(_) => true,
            Self::Http(_) => false,
        }
    }

    /// What it has to say besides answers; none after the first call, and none of those who never do.
    pub fn take_news(&mut self) -> Option<mpsc::UnboundedReceiver<News>> {
        match self {
            Self::Command(program) => program.take_news(),
            Self::Http(_) | Self::Function(_) => None,
        }
    }

    /// Ends it. A program is told to end, killed if it does not, and waited for.
    pub async fn close(self) {
        if let Self::Command(program) = self {
            program.close().await;
        }
    }
}

impl fmt::Debug for Proposer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Command(_) => "Proposer::Command",
            Self::Http(_) => "Proposer::Http",
            Self::Function(_) => "Proposer::Function",
        })
    }
}
