//! A server that proposes: OpenAI-compatible chat completions (CA-85).
//!
//! Waiting and trying again happen here; one try is a thread of its own (`exchange.rs`), since the client blocks. A
//! question that is given up is forgotten at once; its thread ends with its try, within `timeout`.

mod completion;
mod exchange;
mod prompt;
mod retry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answer::{Answer, Failure, FailureKind};
use super::proposer::Asking;
use super::secrets::Secrets;
use super::settings::HttpSettings;
use super::wire::Request;
use exchange::{Exchange, Server};
use retry::{Pace, Reaction};

/// A server that cannot be asked as it is described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`proposer.{key}`: {problem}")]
pub struct BadServer {
    /// Which key of the evaluation file.
    pub key: &'static str,
    /// What is wrong; never the API key itself.
    pub problem: String,
}

/// A server that proposes.
#[derive(Debug)]
pub struct HttpProposer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: HttpSettings,
    server: Arc<Server>,
    secrets: Secrets,
    pace: Pace,
}

impl HttpProposer {
    /// A server. The key is the value of `api_key_env` in `env`; without one none is sent, as local servers need none.
    /// `SSL_CERT_FILE` there names certificates to trust instead of the built-in ones.
    ///
    /// # Errors
    /// The address, the key or the certificates cannot be used.
    pub fn new(
        settings: HttpSettings,
        env: &BTreeMap<OsString, OsString>,
    ) -> Result<Self, BadServer> {
        Self::at_pace(settings, env, Pace::default())
    }

    fn at_pace(
        settings: HttpSettings,
        env: &BTreeMap<OsString, OsString>,
        pace: Pace,
    ) -> Result<Self, BadServer> {
        let key = api_key(&settings.api_key_env, env)?;
        let roots = env
            .get(OsStr::new("SSL_CERT_FILE"))
            .filter(|file| !file.is_empty());
        let server = Server::new(
            &settings.base_url,
            key.clone(),
            roots.map(OsString::as_os_str),
        )?;
        Ok(Self(Arc::new(Inner {
            settings,
            server: Arc::new(server),
            secrets: Secrets::new(key),
            pace,
        })))
    }

    /// Whether it is sent a key.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.0.server.has_key()
    }

    pub(super) fn ask(&self, request: Request) -> Asking {
        Box::pin(self.0.clone().converse(request))
    }
}

fn api_key(name: &str, env: &BTreeMap<OsString, OsString>) -> Result<Option<String>, BadServer> {
    let Some(value) = env.get(OsStr::new(name)) else {
        return Ok(None);
    };
    let key = value.to_str().map(str::trim);
    match key.filter(|key| key.bytes().all(|byte| byte.is_ascii_graphic())) {
        Some("") => Ok(None),
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(BadServer {
            key: "api_key_env",
            problem: format!("the value of `{name}` has characters that no key has"),
        }),
    }
}

impl Inner {
    /// All tries together take no longer than `timeout` times their number.
    async fn converse(self: Arc<Self>, request: Request) -> Result<Answer, Failure> {
        let most = self
            .settings
            .timeout
            .saturating_mul(self.settings.retries.saturating_add(1));
        let deadline = Instant::now().checked_add(most);
        let tries = self.tries(&request, deadline);
        let Some(deadline) = deadline else {
            return tries.await;
        };
        tokio::time::timeout_at(deadline, tries)
            .await
            .unwrap_or_else(|_| {
                let message = format!("no answer within {} s", most.as_secs_f64());
                Err(Failure::new(FailureKind::Lost, message))
            })
    }

    async fn tries(&self, request: &Request, deadline: Option<Instant>) -> Result<Answer, Failure> {
        let body: Arc<[u8]> = prompt::body(request, &self.settings).into();
        let mut tried = 0;
        loop {
            let exchange = self.try_once(body.clone()).await;
            tried += 1;
            let (why, wait) = match retry::reaction(&exchange) {
                Reaction::Read => return completion::read(exchange, request.n, &self.secrets),
                Reaction::End(kind, why) => return Err(self.failure(kind, &why)),
                Reaction::TryAgain { why, wait } => (why, wait),
            };
            let wait = wait.unwrap_or_default().max(self.pace.wait(tried));
            if tried > self.settings.retries {
                let why = format!("{why}; tried {tried} times");
                return Err(self.failure(FailureKind::Lost, &why));
            }
            if deadline.is_some_and(|deadline| Instant::now() + wait >= deadline) {
                let why = format!("{why}; to wait {} s more would be too long", wait.as_secs());
                return Err(self.failure(FailureKind::Lost, &why));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// In a thread of its own and not in the runtime's pool: whoever ends the runtime would wait for it.
    async fn try_once(&self, body: Arc<[u8]>) -> Exchange {
        let (sender, receiver) = oneshot::channel();
        let (server, timeout): (_, Duration) = (self.server.clone(), self.settings.timeout);
        let spawned = std::thread::Builder::new()
            .name("proposer-http".to_owned())
            .spawn(move || {
                sender.send(server.exchange(&body, timeout)).ok(); // given up meanwhile
            });
        match spawned {
            Ok(_) => receiver
                .await
                .unwrap_or_else(|_| Exchange::Broken("the client failed".to_owned())),
            Err(error) => Exchange::Broken(format!("no thread could be started: {error}")),
        }
    }

    fn failure(&self, kind: FailureKind, message: &str) -> Failure {
        Failure::new(kind, self.secrets.scrubbed(message))
    }
}
