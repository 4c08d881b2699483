//! Proof of what is in force: a process confined like any command tries what its level forbids (SB-41).

use std::net::TcpListener;
use std::time::Duration;

use super::{Level, Sandbox};
use crate::backend::Backend;
use crate::call::Call;
use crate::error::EngineError;
use crate::linux::selftest::{Exhaust, SelfTest};
use crate::local::LocalBackend;
use crate::verdict::Verdict;

/// More than enough to pass the limits of the attempts below.
const MEMORY_BYTES: u64 = 48 << 20;
const PROCESSES: u64 = 24;

/// What was tried, and whether it was refused.
pub type Attempts = Vec<(String, bool)>;

/// Tries it all at a level. `Err` holds why no process could be confined so.
pub async fn self_test(
    backend: &LocalBackend,
    level: Level,
) -> Result<Result<Attempts, String>, EngineError> {
    let attempt = |error| EngineError::io("setting up a self-test")(error);
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(attempt)?;
    let canary = Canary::new().map_err(attempt)?;
    let test = SelfTest {
        engine: std::process::id(),
        canary: canary.0.as_os_str().as_encoded_bytes().to_vec(),
        port: listener.local_addr().map_err(attempt)?.port(),
        exhaust: None,
    };
    let outcome = backend.execute(call(level, test.clone())).await?;
    if outcome.verdict != Verdict::Ok {
        let problem = outcome
            .error
            .map_or_else(String::new, |error| error.message);
        return Ok(Err(problem));
    }
    let mut attempts: Attempts = outcome
        .stdout
        .text()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(what, word)| (what.to_owned(), word == "denied"))
        .collect();
    for (name, exhaust, verdict) in [
        (
            "memory_limit",
            Exhaust::Memory(4 * MEMORY_BYTES),
            Verdict::MemoryLimit,
        ),
        (
            "process_limit",
            Exhaust::Processes(4 * PROCESSES),
            Verdict::ProcessLimit,
        ),
    ] {
        let exhaust = Some(exhaust);
        let outcome = backend
            .execute(call(
                level,
                SelfTest {
                    exhaust,
                    ..test.clone()
                },
            ))
            .await?;
        attempts.push((name.to_owned(), outcome.verdict == verdict));
    }
    Ok(Ok(attempts))
}

fn call(level: Level, test: SelfTest) -> Call {
    let mut call = Call::command(["fairtrial-self-test"]);
    call.sandbox = Sandbox::new(level);
    call.timeout = Some(Duration::from_secs(10));
    call.limits.memory_bytes = Some(MEMORY_BYTES);
    call.limits.processes = Some(PROCESSES);
    call.self_test = Some(test);
    call
}

/// A file that is gone with this.
struct Canary(std::path::PathBuf);

impl Canary {
    fn new() -> std::io::Result<Self> {
        let name = format!("fairtrial-canary-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        std::fs::remove_file(&path).ok(); // of a process that had our number
        std::io::Write::write_all(&mut options.open(&path)?, b"canary")?;
        Ok(Self(path))
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok(); // nobody else's concern
    }
}
