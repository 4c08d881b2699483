//! What an agent checks before it serves (CL-6): what would not work later is found now, and told in one line.

use fairtrial_cluster::{BlobStore, RedisDispatch};
use fairtrial_exec::{Backend as _, Call, Level, LocalBackend, Sandbox, Verdict};

use super::say;
use crate::cluster;
use crate::commands::doctor::LevelFindings;
use crate::failure::Failure;

/// The server, the store, and what calls are confined by: the digest of that.
pub(super) async fn check(
    dispatch: &RedisDispatch,
    store: Option<&BlobStore>,
    engine: &LocalBackend,
    floor: Level,
) -> Result<String, Failure> {
    let suited = dispatch.suited().await.map_err(cluster::failure)?;
    for warning in suited.warnings {
        say(&format!("warning: {warning}"));
    }
    let allowed = dispatch.may_serve().await;
    allowed.map_err(cluster::failure)?;
    if let Some(store) = store {
        store
            .check()
            .await
            .map_err(|error| Failure::Cluster(format!("{error}; name another with --blobs")))?;
    }
    level(engine, floor).await
}

/// The self-test of the level that all calls have; what was tried since this machine was started is not tried again.
async fn level(engine: &LocalBackend, level: Level) -> Result<String, Failure> {
    let report = engine.sandbox_report(level).await;
    let report = report.map_err(|error| error.to_string());
    let tried = match (LevelFindings { level, report }).problem() {
        Some(problem) => Err(problem),
        None => try_command(engine, level).await,
    };
    tried.map_err(|problem| {
        Failure::Cluster(format!(
            "level `{level}`: {problem}; see `fairtrial doctor`, or choose another with --sandbox"
        ))
    })
}

/// The digest of what a command was confined by; else what is wrong.
async fn try_command(engine: &LocalBackend, level: Level) -> Result<String, String> {
    let mut call = Call::command(["true"]);
    call.sandbox = Sandbox::new(level);
    match engine.execute(call).await {
        Ok(outcome) if outcome.verdict == Verdict::Ok => Ok(outcome.in_force.digest()),
        Ok(outcome) => Err(format!("`true` ended as `{}`", outcome.verdict)),
        Err(error) => Err(error.to_string()),
    }
}
