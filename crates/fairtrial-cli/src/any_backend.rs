//! Who runs calls: this machine, or agents.

use std::future::Future;
use std::time::Duration;

use fairtrial_cluster::{ClusterBackend, Endpoint, Options, QueueName, RedisDispatch};
use fairtrial_exec::{
    Answer, Backend, Call, EngineError, Event, LocalBackend, LocalConfig, Shutdown,
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
            Some(given) if !Self::is_local(url) => {
                cluster::warn_of_password(OPTION, given);
                cluster::url(OPTION, given)?
            }
            _ => return Ok(Self::Local(Box::new(LocalBackend::new(config)))),
        };
        log_lines::show();
        endpoint(&url)?;
        let mut options = Options::from_url(&url).map_err(usage)?;
        if let (None, Some(name)) = (&options.queue, queue) {
            options.queue = Some(QueueName::new(name).map_err(usage)?);
        }
        let at_a_time = jobs.and_then(|jobs| u64::try_from(jobs).ok());
        options.max_inflight = at_a_time.or(options.max_inflight);
        let store = cluster::store(OPTION, options.blobs.as_deref(), &config)?;
        let settings = options.config("batch", config.spill_policy());
        let settings = settings.map_err(usage)?;
        let dispatch = cluster::dispatch(OPTION, &url)?;
        Ok(Self::Redis(Box::new(ClusterBackend::new(
            dispatch, store, settings,
        ))))
    }

    /// As [`engine::spare_a_loop`], if calls run on this machine.
    pub(crate) fn spare_a_loop(&self) -> Result<(), Failure> {
        match self {
            Self::Local(backend) => engine::spare_a_loop(backend),
            Self::Redis(_) => Ok(()),
        }
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

    /// What is told when a signal ended its use.
    pub(crate) fn interrupted(&self) -> Failure {
        match self {
            Self::Redis(backend) if backend.has_left_calls() => Failure::Left,
            Self::Local(_) | Self::Redis(_) => Failure::Interrupted,
        }
    }

    /// As records name it: never with a password.
    pub(crate) fn name(url: Option<&str>) -> Result<String, Failure> {
        match url {
            Some(given) if !Self::is_local(url) => {
                let url = cluster::url(OPTION, given)?;
                endpoint(&url)?;
                let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
                Ok(scheme.to_owned())
            }
            _ => Ok("local".to_owned()),
        }
    }
}

/// What would fail every call is found before anything is written down: who may not come in, a store of no use. A server
/// that is away is waited for later (CL-57).
pub(crate) async fn reach(url: Option<&str>, config: &LocalConfig) -> Result<(), Failure> {
    let url = match url {
        Some(given) if !AnyBackend::is_local(url) => cluster::url(OPTION, given)?,
        _ => return Ok(()),
    };
    let dispatch = cluster::dispatch(OPTION, &url)?;
    if let Err(error) = dispatch.enter().await {
        return Err(cluster::failure(error));
    }
    let options = Options::from_url(&url).map_err(usage)?;
    match options.blobs {
        Some(named) => cluster::check_store(OPTION, &named, config).await,
        None => Ok(()),
    }
}

fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::usage(OPTION, error)
}

fn endpoint(url: &str) -> Result<Endpoint, Failure> {
    Endpoint::parse(url)
        .map_err(|error| Failure::usage(OPTION, format!("{error}; on this machine alone: `local`")))
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
