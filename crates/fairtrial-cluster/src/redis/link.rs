//! Connections: one for operations, shared; others for what blocks (CL-73). Owns when one is made and thrown away, and
//! what its errors mean. Never waits before it tries again: callers choose how long.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError,
    ServerErrorKind, Value,
};
use tokio::sync::{Mutex, mpsc};

use super::endpoint::Endpoint;
use super::scripts::Operation;
use crate::dispatch::DispatchError;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long to wait for an answer to an operation.
const ANSWER: Duration = Duration::from_secs(10);
/// Connections for blocking reads that are kept for the next.
const IDLE: usize = 4;

/// What a server answers that may do it a while later: it starts, fails over, has no memory, disk or replica, or is busy.
const FOR_NOW: [&str; 10] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    // What waited in a server that became a replica.
    "UNBLOCKED",
];

/// Those of them that have nothing to do with the connection.
const STAY: [&str; 4] = ["BUSY", "MISCONF", "NOREPLICAS", "OOM"];

/// The way to one server.
pub(super) struct Link {
    endpoint: Endpoint,
    client: Client,
    pushing: Client,
    /// The connection for operations and its number. Locked while one is made, so that one is made at a time.
    shared: Mutex<(u64, Option<MultiplexedConnection>)>,
    /// Those for blocking reads that nobody uses now.
    idle: Mutex<Vec<MultiplexedConnection>>,
}

impl Link {
    /// Connects to nothing.
    pub(super) fn new(endpoint: Endpoint) -> Result<Self, DispatchError> {
        let (client, pushing) = endpoint.clients()?;
        Ok(Self {
            endpoint,
            client,
            pushing,
            shared: Mutex::new((0, None)),
            idle: Mutex::new(Vec::new()),
        })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Runs a script by its digest; loads it if the server does not know it (any more).
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        operation: &Operation,
        cmd: &Cmd,
    ) -> Result<T, DispatchError> {
        let (number, mut connection) = self.shared().await?;
        let mut reply = cmd.query_async(&mut connection).await;
        if matches!(&reply, Err(error) if is_unknown_script(error)) {
            reply = match operation.script.load_async(&mut connection).await {
                Ok(_) => cmd.query_async(&mut connection).await,
                Err(error) => Err(error),
            };
        }
        self.judged(number, operation.name, reply).await
    }

    /// Runs a plain command.
    pub(super) async fn query<T: FromRedisValue>(
        &self,
        name: &'static str,
        cmd: &Cmd,
    ) -> Result<T, DispatchError> {
        let (number, mut connection) = self.shared().await?;
        let reply = cmd.query_async(&mut connection).await;
        self.judged(number, name, reply).await
    }

    /// Sends several commands at once; what each answers, errors too.
    pub(super) async fn pipe(
        &self,
        name: &'static str,
        pipeline: &mut Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, DispatchError> {
        let (number, mut connection) = self.shared().await?;
        let reply = pipeline.ignore_errors().query_async(&mut connection).await;
        self.judged(number, name, reply).await
    }

    /// Sends several commands at once on a connection of their own, which may wait for so long.
    pub(super) async fn blocking(
        &self,
        name: &'static str,
        pipeline: &mut Pipeline,
        wait: Duration,
    ) -> Result<Vec<Result<Value, RedisError>>, DispatchError> {
        // Taken, not borrowed: if the caller gives up, it ends with its answer under way.
        let idle = self.idle.lock().await.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                let config = config().set_response_timeout(None);
                let made = self
                    .client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await;
                made.map_err(|error| self.explain("connect", &error))?
            }
        };
        let answer = tokio::time::timeout(
            wait + ANSWER,
            pipeline.ignore_errors().query_async(&mut connection),
        );
        let Ok(reply) = answer.await else {
            return Err(self.unreachable("no answer"));
        };
        let reply = reply.map_err(|error| self.explain(name, &error))?;
        let mut idle = self.idle.lock().await;
        if idle.len() < IDLE {
            idle.push(connection);
        }
        Ok(reply)
    }

    /// A connection that tells what the server says unasked.
    pub(super) async fn listening(
        &self,
    ) -> Result<
        (
            MultiplexedConnection,
            mpsc::UnboundedReceiver<redis::PushInfo>,
        ),
        DispatchError,
    > {
        let (sender, receiver) = mpsc::unbounded_channel();
        let config = config().set_push_sender(sender);
        let made = self
            .pushing
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        Ok((
            made.map_err(|error| self.explain("connect", &error))?,
            receiver,
        ))
    }

    /// The connection for operations, made if there is none.
    async fn shared(&self) -> Result<(u64, MultiplexedConnection), DispatchError> {
        let mut shared = self.shared.lock().await;
        if let (number, Some(connection)) = &*shared {
            return Ok((*number, connection.clone()));
        }
        let made = self
            .client
            .get_multiplexed_async_connection_with_config(&config())
            .await;
        let connection = made.map_err(|error| self.explain("connect", &error))?;
        shared.0 += 1;
        shared.1 = Some(connection.clone());
        Ok((shared.0, connection))
    }

    /// Throws the connection away if another may do better, unless that has taken its place by now.
    async fn judged<T>(
        &self,
        number: u64,
        name: &'static str,
        reply: Result<T, RedisError>,
    ) -> Result<T, DispatchError> {
        let error = match reply {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        let would_help = !error.code().is_some_and(|code| STAY.contains(&code));
        let error = self.explain(name, &error);
        if let (DispatchError::Unreachable { .. }, true) = (&error, would_help) {
            let mut shared = self.shared.lock().await;
            if shared.0 == number {
                shared.1 = None;
            }
        }
        Err(error)
    }

    /// What an error of the client's means to callers.
    pub(super) fn explain(&self, name: &'static str, error: &RedisError) -> DispatchError {
        let text = error.to_string();
        if let Some(command) = denied(error, &text) {
            let (user, command) = (
                self.endpoint.user().to_owned(),
                command.unwrap_or(name).to_owned(),
            );
            let hint = match (&*command, self.endpoint.has_password()) {
                ("AUTH", true) => ": wrong password, or no such user",
                ("AUTH", false) => ": it wants a password, as in `redis://:PASSWORD@host`",
                _ => "",
            };
            return DispatchError::Denied {
                user,
                command,
                hint,
            };
        }
        if let Some(problem) = mistrusted(&text) {
            let address = self.endpoint.address();
            return DispatchError::Unsuited { address, problem };
        }
        if let Some(code) = error.code().filter(|code| FOR_NOW.contains(code)) {
            return self.unreachable(format!("it refuses for now ({code}): {text}"));
        }
        match error.kind() {
            // What came is no reply of any Redis server; whatever is there stays there.
            ErrorKind::Parse => self.unsuited("no Redis server answers there"),
            ErrorKind::Io if self.endpoint.is_tls() && (error.is_timeout() || is_no_tls(&text)) => {
                self.unreachable(format!("{text}; does it speak TLS?"))
            }
            ErrorKind::Io => self.unreachable(text),
            ErrorKind::InvalidClientConfig => DispatchError::Address { problem: text },
            _ => DispatchError::Protocol {
                operation: name,
                problem: text,
            },
        }
    }

    fn unsuited(&self, problem: &str) -> DispatchError {
        DispatchError::Unsuited {
            address: self.endpoint.address(),
            problem: problem.to_owned(),
        }
    }

    fn unreachable(&self, problem: impl Into<String>) -> DispatchError {
        let address = self.endpoint.address();
        DispatchError::Unreachable {
            address,
            problem: problem.into(),
        }
    }
}

/// Whether what came in a handshake is of something else.
fn is_no_tls(text: &str) -> bool {
    text.contains("corrupt message")
}

/// Whether the script must be loaded first: a server that was restarted has forgotten it.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether the server denies something, and if it says so which command (CL-48).
fn denied<'a>(error: &RedisError, text: &'a str) -> Option<Option<&'a str>> {
    let login = [
        "WRONGPASS",
        "NOAUTH",
        "unauthenticated",
        "invalid username-password",
    ]
    .iter()
    .any(|word| text.contains(word));
    if login || error.kind() == ErrorKind::AuthenticationFailed {
        return Some(Some("AUTH"));
    }
    // As Redis and as Valkey say it.
    let scripted =
        text.contains("user executing the script can't") || text.contains("ACL failure in script");
    if scripted
        || text.contains("NOPERM")
        || error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
    {
        return Some(text.split('\'').nth(1).filter(|word| !word.contains(' ')));
    }
    None
}

/// Why one side does not believe the other's certificate: trying again would not help (CL-45).
fn mistrusted(text: &str) -> Option<String> {
    let (_, why) = text.split_once("invalid peer certificate: ").unzip();
    if let Some(why) = why {
        let hint = match why.contains("UnknownIssuer") {
            true => "; name who signed it with `?ca=FILE`",
            false => "",
        };
        return Some(format!("its certificate is not believed: {why}{hint}"));
    }
    let (_, alert) = text.split_once("received fatal alert: ").unzip();
    let ours = alert.filter(|alert| alert.contains("Certificate") || alert.contains("UnknownCA"));
    ours.map(|alert| {
        format!("it does not believe our certificate: {alert}; name one with `?cert=FILE&key=FILE`")
    })
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT))
        .set_response_timeout(Some(ANSWER))
}
