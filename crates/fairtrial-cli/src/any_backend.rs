//! Who runs calls: this machine, or agents.

use std::future::Future;
use std::time::Duration;

use fairtrial_cluster::{ClusterBackend, ClusterConfig, Options, QueueName, RedisDispatch, nonce};
use fairtrial_exec::{
    Answer, Backend, Call, EngineError, Event, LocalBackend, LocalConfig, Shutdown, SpillDir,
    SpillPolicy,
};

use crate::failure::Failure;
use crate::{cluster, engine, log_lines};

/// What `--backend` names.
pub(crate) enum AnyBackend {
    /// This machine.
    Local(Box<LocalBackend>),
    /// Agents that lease from a Redis server.
    Redis(Box<ClusterBackend<RedisDispatch>>),
}

const OPTION: &str = "--backend";

/// What was cancelled may take 5 s to say so (CL-56).
const REMOTE_PATIENCE: Duration = Duration::from_secs(6);

impl AnyBackend {
    /// The backend of this URL; without one, this machine. `queue` is a name that a later process may come back to.
    pub(crate) fn new(
        url: Option<&str>,
        config: LocalConfig,
        jobs: Option<usize>,
        queue: Option<&str>,
    ) -> Result<Self, Failure> {
        let url = match url {
            Some(given) if !Self::is_local(url) => cluster::url(OPTION, given)?,
            _ => return Ok(Self::Local(Box::new(LocalBackend::new(config)))),
        };
        log_lines::show();
        let options = Options::from_url(&url).map_err(|error| Failure::usage(OPTION, error))?;
        let named = queue.is_some() || options.queue.is_some();
        let queue = match (options.queue, queue) {
            (Some(queue), _) => queue,
            (None, name) => {
                let name = name.map_or_else(|| format!("batch-{}", nonce()), str::to_owned);
                QueueName::new(name).map_err(|error| Failure::usage(OPTION, error))?
            }
        };
        let store = cluster::store(OPTION, options.blobs.as_deref(), &config)?;
        let at_a_time = jobs.and_then(|jobs| u64::try_from(jobs).ok());
        let settings = ClusterConfig {
            queue,
            named,
            class: options.class,
            weight: options.weight,
            max_queue: options.max_queue,
            max_inflight: at_a_time.or(options.max_inflight),
            on_full: options.on_full,
            server_timeout: options.server_timeout,
            lease: options.lease,
            spill: SpillPolicy {
                dir: SpillDir::new(&config.spill_dir),
                memfd_cap_bytes: config.memfd_cap_bytes.unwrap_or(u64::MAX),
                memory_limit_bytes: None,
            },
            python: None,
        };
        let dispatch = cluster::dispatch(OPTION, &url)?;
        Ok(Self::Redis(Box::new(ClusterBackend::new(
            dispatch, store, settings,
        ))))
    }

    /// Whether it is this machine.
    pub(crate) fn is_local(url: Option<&str>) -> bool {
        matches!(url, None | Some("local"))
    }

    /// How long it may take to stop: agents are told by way of a server.
    pub(crate) fn patience(&self) -> Duration {
        match self {
            Self::Local(_) => engine::PATIENCE,
            Self::Redis(_) => REMOTE_PATIENCE,
        }
    }

    /// Why a command ended that this one ran calls for: whoever interrupts is told what became of them.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        match (failure, self) {
            (Failure::Interrupted, Self::Redis(backend)) if backend.has_left_calls() => {
                Failure::LeftCalls
            }
            (failure, _) => failure,
        }
    }

    /// As records name it: never with a password.
    pub(crate) fn name(url: Option<&str>) -> Result<String, Failure> {
        match url {
            Some(given) if !Self::is_local(url) => {
                let url = cluster::url(OPTION, given)?;
                let (scheme, _) = url.split_once("://").ok_or_else(|| {
                    Failure::usage(
                        OPTION,
                        "is no URL; write for example redis://127.0.0.1:6379",
                    )
                })?;
                Ok(scheme.to_owned())
            }
            _ => Ok("local".to_owned()),
        }
    }
}

impl Backend for AnyBackend {
    async fn execute(&self, call: Call) -> Answer {
        match self {
            Self::Local(backend) => backend.execute(call).await,
            Self::Redis(backend) => backend.execute(call).await,
        }
    }

    async fn execute_unless(
        &self,
        call: Call,
        cancelled: impl Future<Output = ()> + Send,
    ) -> Option<Answer> {
        match self {
            Self::Local(backend) => backend.execute_unless(call, cancelled).await,
            Self::Redis(backend) => backend.execute_unless(call, cancelled).await,
        }
    }

    async fn shutdown(&self, how: Shutdown) {
        match self {
            Self::Local(backend) => backend.shutdown(how).await,
            Self::Redis(backend) => backend.shutdown(how).await,
        }
    }

    fn subscribe(&self, observer: Box<dyn FnMut(&Event) + Send>) -> Result<(), EngineError> {
        match self {
            Self::Local(backend) => backend.subscribe(observer),
            Self::Redis(backend) => backend.subscribe(observer),
        }
    }
}
