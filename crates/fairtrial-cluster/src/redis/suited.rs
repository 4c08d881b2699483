//! Whether a server is one we can work with (CL-6, CL-11, CL-70, CL-72). The judgement is pure.

use super::link::Link;
use super::{Answered, RedisDispatch};
use crate::answers::ServerStatus;
use crate::dispatch::{Dispatch, DispatchError};

/// A server that can be worked with, and what is to be said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suited {
    /// As it describes itself.
    pub status: ServerStatus,
    /// What is worth a word: one sentence each, with a hint.
    pub warnings: Vec<String>,
}

impl RedisDispatch {
    /// Asks the server what it is. [`DispatchError::Unsuited`] if it is too old, forgets what it was given, or is part of
    /// a Redis Cluster.
    pub async fn suited(&self) -> Answered<Suited> {
        let status = self.server_status().await?;
        let address = self.endpoint().address();
        match judged(&status) {
            Ok(warnings) => Ok(Suited { status, warnings }),
            Err(problem) => Err(DispatchError::Unsuited { address, problem }),
        }
    }

    /// Whether it lets this user in: all is well but for a denial. A server that is away, or denies the question alone, is
    /// for whoever asks for more.
    pub async fn enter(&self) -> Answered<()> {
        let ping = redis::cmd("PING");
        let error = match self.link.query::<redis::Value>("PING", &ping).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        match &error {
            DispatchError::Unsuited { .. } => Err(error),
            DispatchError::Denied { command, .. } if command == "AUTH" => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the server serves whoever comes, without user, password and key (CL-44).
    pub async fn serves_strangers(&self) -> Answered<bool> {
        let stranger = Link::new(self.endpoint().as_stranger())?;
        match stranger
            .query::<redis::Value>("PING", &redis::cmd("PING"))
            .await
        {
            Ok(_) => Ok(true),
            Err(DispatchError::Denied { .. } | DispatchError::Unsuited { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The warnings, or why it cannot be used.
fn judged(status: &ServerStatus) -> Result<Vec<String>, String> {
    let ServerStatus {
        name,
        version,
        memory_policy,
        ..
    } = status;
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|part| part.parse().ok())
        .unwrap_or(0);
    let oldest = if name == "valkey" { 8 } else { 7 };
    if major < oldest {
        return Err(format!(
            "it is {name} {version}; Redis 7.0 or later, or Valkey 8 or later, is needed"
        ));
    }
    if status.cluster_mode {
        return Err(
            "it is part of a Redis Cluster, which is not supported yet; use a single server"
                .to_owned(),
        );
    }
    let mut warnings = Vec::new();
    match status.max_memory {
        Some(0) => {}
        _ if memory_policy == "noeviction" => {}
        Some(_) => {
            return Err(format!(
                "it forgets keys when memory is short (`maxmemory-policy {memory_policy}`); set it to `noeviction`"
            ));
        }
        None => warnings.push(
            "the server does not say what it does when memory is short: set `maxmemory-policy noeviction`"
                .to_owned(),
        ),
    }
    if !status.append_only {
        warnings
            .push("what is queued does not survive the server: set `appendonly yes`".to_owned());
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::super::status::server_status;
    use super::judged;

    fn says(info: &str) -> Result<Vec<String>, String> {
        judged(&server_status(info))
    }

    /// CL-70
    #[test]
    fn an_old_server_is_refused_by_its_version() {
        assert!(
            says("redis_version:6.2.14\r\naof_enabled:1\r\n")
                .unwrap_err()
                .contains("redis 6.2.14")
        );
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.9\r\naof_enabled:1\r\n";
        assert!(says(valkey).unwrap_err().contains("valkey 7.2.9"));
        let well = "maxmemory:0\r\naof_enabled:1\r\n";
        for new in [
            "redis_version:7.0.15",
            "redis_version:7.2.4\r\nvalkey_version:8.0.1",
        ] {
            assert_eq!(says(&format!("{new}\r\n{well}")), Ok(vec![]));
        }
    }

    /// CL-72
    #[test]
    fn a_server_that_evicts_is_refused_and_one_that_forgets_is_told_of() {
        let evicts = "redis_version:7.0.15\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n";
        assert!(says(evicts).unwrap_err().contains("allkeys-lru"));
        let unlimited = "redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\n";
        let warnings = says(unlimited).unwrap();
        assert!(warnings[0].contains("appendonly"), "{warnings:?}");
    }

    /// CL-72: what was not measured is not taken for unlimited.
    #[test]
    fn a_server_that_hides_its_memory_is_told_of() {
        let hides = "redis_version:7.0.15\r\naof_enabled:1\r\n";
        let warnings = says(hides).unwrap();
        assert!(warnings[0].contains("noeviction"), "{warnings:?}");
        let says_so = format!("{hides}maxmemory_policy:noeviction\r\n");
        assert_eq!(says(&says_so), Ok(vec![]));
    }

    /// CL-11
    #[test]
    fn a_redis_cluster_is_refused() {
        let problem = says("redis_version:7.0.15\r\ncluster_enabled:1\r\n").unwrap_err();
        assert!(problem.contains("not supported yet"), "{problem}");
    }
}
