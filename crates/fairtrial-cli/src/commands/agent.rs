//! `fairtrial agent`: serves calls on this node.

mod guard;
mod start;
mod sweep;

use std::io::{self, Write};
use std::sync::Arc;

use fairtrial_cluster::{Agent, Class, NodeAgent, NodeConfig, NodeError, Stop, TreeCache, nonce};
use fairtrial_exec::{LocalBackend, LocalConfig, MachineLock};
use serde_json::json;
use tokio::sync::watch;

use crate::args::AgentArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::{Shown, counted};
use crate::{cluster, engine, log_lines};

/// Unpacked directories that nobody uses, at most.
const CACHE_BYTES: u64 = 4 << 30;

/// Serves until it is told to end.
pub(crate) fn run(args: &AgentArgs) -> Result<ExitCode, Failure> {
    log_lines::show();
    let url = cluster::url("--redis", &args.redis)?;
    let dispatch = cluster::dispatch("--redis", &url)?;
    let blobs = blobs(args, &url)?;
    let Some(slots) = args.slots else {
        return sweep::run(&dispatch, blobs.as_deref());
    };
    let mut config = engine::config(usize::try_from(slots).ok())?;
    let name = args.name.clone().unwrap_or_else(|| config.node_id.clone());
    let agent = Agent::new(name, nonce()).map_err(|error| Failure::usage("--name", error))?;
    config.node_id = agent.name().to_owned();
    // Between two calls it waits for the server, and other agents may have work for the processor.
    config.stays_awake = false;
    let store = cluster::store("--blobs", blobs.as_deref(), &config)?;
    let cache = args.cache.clone().or_else(|| config.cache_dir());
    let cache = cache.ok_or_else(|| {
        Failure::usage(
            "--cache",
            "there is no cache directory for this user; name one",
        )
    })?;
    let mut node = NodeConfig {
        slots,
        classes: classes(&args.classes),
        lock: lock(args, &config)?,
        floor: args.sandbox,
        lease: args.lease,
        drain_timeout: args.drain_timeout,
        give_up: args.give_up,
        scratch: std::env::temp_dir(),
        about: json!({
            "node_id": config.node_id,
            "slots": slots,
            "version": env!("CARGO_PKG_VERSION"),
            "level": args.sandbox.to_string(),
        }),
        agent,
    };
    engine::run(async move {
        let mut interrupt = Interrupt::listen()?;
        let engine = Arc::new(LocalBackend::new(config));
        engine.start_here()?;
        let check = async {
            let report = start::check(&dispatch, store.as_ref(), &engine, args.sandbox).await?;
            guard::check(args, &dispatch, store.as_ref(), &engine).await?;
            Ok::<_, Failure>(report)
        };
        node.about["report"] = tokio::select! {
            report = check => report?.into(),
            int = interrupt.was_int() => return Ok(ended_by(int)),
        };
        let serves = format!(
            "agent {} serves {} with {}",
            node.agent.name(),
            dispatch.endpoint().address(),
            counted(u64::from(slots), "slot")
        );
        let (stop, stopped) = watch::channel(Stop::No);
        let cache = TreeCache::at(&cache, CACHE_BYTES);
        let agent = NodeAgent::new(dispatch, engine, store, cache, node, stopped);
        let serving = agent.run(|| say(&serves));
        tokio::pin!(serving);
        let mut by_int = false;
        loop {
            tokio::select! {
                ended = &mut serving => return ended.map_err(failure).map(|()| ended_by(by_int)),
                int = interrupt.was_int() => {
                    by_int |= int;
                    let next = match *stop.borrow() {
                        Stop::No => Stop::Drain,
                        Stop::Drain | Stop::Now => Stop::Now,
                    };
                    stop.send_replace(next);
                }
            }
        }
    })
}

/// CL-7
fn ended_by(int: bool) -> ExitCode {
    match int {
        true => ExitCode::Interrupted,
        false => ExitCode::AllWell,
    }
}

/// Each once, in the order given.
fn classes(given: &[Class]) -> Vec<Class> {
    let mut classes = Vec::new();
    for class in given {
        if !classes.contains(class) {
            classes.push(*class);
        }
    }
    match classes.is_empty() {
        true => vec![Class::Cpu],
        false => classes,
    }
}

fn lock(args: &AgentArgs, config: &LocalConfig) -> Result<MachineLock, Failure> {
    let Some(file) = &args.lock else {
        let lock = MachineLock::of(config);
        let usable = lock.check();
        usable.map_err(|error| Failure::Cluster(error.to_string()))?;
        return Ok(lock);
    };
    let file = std::path::absolute(file);
    let lock = file.map(MachineLock::at);
    let lock = lock.map_err(|error| Failure::usage("--lock", error))?;
    let usable = lock.check();
    usable.map_err(|error| Failure::Cluster(format!("--lock: {}", error.without_hint())))?;
    Ok(lock)
}

/// The store that a flag or the URL names.
fn blobs(args: &AgentArgs, url: &str) -> Result<Option<String>, Failure> {
    let named = cluster::options("--redis", url, &["blobs"])?.blobs;
    match (&args.blobs, named) {
        (Some(flag), Some(named)) if *flag != named => {
            let problem = "the URL of --redis names another store, by `?blobs=`";
            Err(Failure::usage("--blobs", problem))
        }
        (flag, named) => Ok(flag.clone().or(named)),
    }
}

fn failure(error: NodeError) -> Failure {
    match error {
        NodeError::NameTaken(_) => Failure::Cluster(error.to_string()),
        error => Failure::Cluster(format!("the agent ended: {error}")),
    }
}

fn say(line: &str) {
    writeln!(Shown::on(io::stderr()), "{line}").unwrap_or_default(); // nobody is there to be told
}
