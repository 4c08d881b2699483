//! Proof of what is in force: processes confined like any command and any worker try what their level forbids (SB-41).

use std::io;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::{Level, Sandbox};
use crate::backend::Backend;
use crate::call::Call;
use crate::error::EngineError;
use crate::linux::selftest::{Exhaust, SelfTest};
use crate::local::LocalBackend;
use crate::outcome::Outcome;
use crate::value;
use crate::verdict::Verdict;

/// What a worker is given to run.
const PROGRAM: &str = include_str!("selftest.py");

/// The limits of the attempts to pass them, one at a time: where they are sampled, many processes are much memory too.
const MEMORY_BYTES: u64 = 48 << 20;
const PROCESSES: u64 = 24;

/// What was tried, and whether it was refused.
pub type Attempts = Vec<(String, bool)>;

/// The mechanism that an attempt puts to the proof, where a level has it.
const PROVES: [(&str, &str); 14] = [
    ("connect", "network"),
    ("kill_engine", "signal_scope"),
    ("limit_engine", "process_scope"),
    ("ptrace_engine", "environ_guard"),
    ("read_memory", "environ_guard"),
    ("read_environ", "environ_guard"),
    ("read_canary", "mountns"),
    ("read_canary", "read_scope"),
    ("write_canary", "write_scope"),
    ("gain_nice", "rlimits"),
    ("keep_descriptor", "closed_fds"),
    ("unshare", "seccomp"),
    ("memory_limit", "memory"),
    ("process_limit", "processes"),
];

/// Each of them once.
fn all_attempts() -> impl Iterator<Item = &'static str> {
    let is_first = |at: &usize| *at == 0 || PROVES[at - 1].0 != PROVES[*at].0;
    (0..PROVES.len()).filter(is_first).map(|at| PROVES[at].0)
}

/// What came of trying.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Proof {
    /// What was tried; refused if it was by each route that could be tried.
    pub attempts: Attempts,
    /// Routes by which nothing could be tried, and why not.
    pub untried: Vec<(String, String)>,
}

impl Proof {
    /// The mechanisms that did not keep an attempt from succeeding: all of them where nothing could be tried.
    pub(super) fn disproved(&self) -> Vec<&'static str> {
        let untried = self.attempts.is_empty() && !self.untried.is_empty();
        let held = |attempt: &str| match self.attempts.iter().find(|(what, _)| what == attempt) {
            Some((_, refused)) => *refused,
            None => !untried,
        };
        let failed = PROVES.iter().filter(|(attempt, _)| !held(attempt));
        failed.map(|(_, mechanism)| *mechanism).collect()
    }

    /// What is missing in an answer was not refused.
    fn add(&mut self, route: &str, tried: Result<Attempts, String>) {
        let attempts = match tried {
            Ok(attempts) => attempts,
            Err(problem) => return self.untried.push((route.to_owned(), problem)),
        };
        let refused = |list: &Attempts, what: &str| {
            let mut found = list.iter().filter(|(name, _)| name == what);
            found.next().is_some_and(|(_, refused)| *refused)
        };
        let before = std::mem::take(&mut self.attempts);
        let by_all =
            |what: &str| refused(&attempts, what) && (before.is_empty() || refused(&before, what));
        self.attempts = all_attempts()
            .map(|what| (what.to_owned(), by_all(what)))
            .collect();
    }
}

/// Tries it all at a level, by both routes.
pub(super) async fn prove(backend: &LocalBackend, level: Level) -> Result<Proof, EngineError> {
    let attempt = |error| EngineError::io("setting up a self-test")(error);
    let target = Target::new().map_err(attempt)?;
    let mut proof = Proof::default();
    // At once: each waits for a while until its limits have ended it.
    let (command, worker) = tokio::join!(
        target.by_command(backend, level),
        target.by_worker(backend, level)
    );
    proof.add("command", command?);
    proof.add("worker", worker?);
    Ok(proof)
}

/// Whom the attempts are made on.
struct Target {
    canary: Canary,
    port: u16,
    _listener: TcpListener,
}

impl Target {
    fn new() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        Ok(Self {
            canary: Canary::new()?,
            port: listener.local_addr()?.port(),
            _listener: listener,
        })
    }

    async fn by_command(
        &self,
        backend: &LocalBackend,
        level: Level,
    ) -> Result<Result<Attempts, String>, EngineError> {
        let test = SelfTest {
            engine: std::process::id(),
            canary: self.canary.path.as_os_str().as_encoded_bytes().to_vec(),
            port: self.port,
            exhaust: None,
        };
        let run = async |exhaust| {
            let mut call = confined(level, Call::command(["fairtrial-self-test"]));
            match exhaust {
                Some(Exhaust::Memory(_)) => call.limits.memory_bytes = Some(MEMORY_BYTES),
                Some(Exhaust::Processes(_)) => call.limits.processes = Some(PROCESSES),
                None => {}
            }
            call.self_test = Some(SelfTest {
                exhaust,
                ..test.clone()
            });
            backend.execute(call).await
        };
        let outcome = run(None).await?;
        if outcome.verdict != Verdict::Ok {
            return Ok(Err(problem(&outcome)));
        }
        let text = outcome.stdout.text();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let mut attempts: Attempts = lines
            .map(|(what, word)| (what.to_owned(), word == "denied"))
            .collect();
        let memory = run(Some(Exhaust::Memory(4 * MEMORY_BYTES))).await?;
        let processes = run(Some(Exhaust::Processes(4 * PROCESSES))).await?;
        attempts.extend(limits(&memory, &processes));
        Ok(Ok(attempts))
    }

    async fn by_worker(
        &self,
        backend: &LocalBackend,
        level: Level,
    ) -> Result<Result<Attempts, String>, EngineError> {
        let run = async |function: &str, arguments: Json| {
            let arguments = value::arguments_from_json(&arguments, &json!({}));
            let arguments = arguments.expect("numbers and a path are arguments");
            let mut call = confined(level, Call::source(PROGRAM, function, arguments));
            match function {
                "use_memory" => call.limits.memory_bytes = Some(MEMORY_BYTES),
                "use_processes" => call.limits.processes = Some(PROCESSES),
                _ => {}
            }
            backend.execute(call).await
        };
        let engine = std::process::id();
        let (path, port) = (self.canary.path.to_string_lossy(), self.port);
        let (device, inode) = self.canary.number;
        let outcome = run("attempts", json!([engine, path, port, device, inode])).await?;
        let value = outcome.value.as_ref().map(|value| value.to_json());
        let Some(Ok(Json::Object(tried))) = value else {
            return Ok(Err(problem(&outcome)));
        };
        let mut attempts: Attempts = tried
            .into_iter()
            .map(|(what, refused)| (what, refused == json!(true)))
            .collect();
        let memory = run("use_memory", json!([4 * MEMORY_BYTES])).await?;
        let processes = run("use_processes", json!([4 * PROCESSES])).await?;
        attempts.extend(limits(&memory, &processes));
        Ok(Ok(attempts))
    }
}

fn limits(memory: &Outcome, processes: &Outcome) -> Attempts {
    vec![
        (
            "memory_limit".to_owned(),
            memory.verdict == Verdict::MemoryLimit,
        ),
        (
            "process_limit".to_owned(),
            processes.verdict == Verdict::ProcessLimit,
        ),
    ]
}

fn problem(outcome: &Outcome) -> String {
    match &outcome.error {
        Some(error) if !error.message.is_empty() => error.message.clone(),
        _ => format!("it ended with the verdict `{}`", outcome.verdict),
    }
}

fn confined(level: Level, mut call: Call) -> Call {
    call.sandbox = Sandbox::new(level);
    call.timeout = Some(Duration::from_secs(10));
    call
}

/// A file that the host has open, and that is gone with this.
struct Canary {
    path: std::path::PathBuf,
    /// Device and inode.
    number: (u64, u64),
    _open: std::fs::File,
}

impl Canary {
    fn new() -> io::Result<Self> {
        let name = format!("fairtrial-canary-{:016x}", crate::locked_dir::random());
        let path = std::env::temp_dir().join(name);
        let mut options = std::fs::OpenOptions::new();
        let mut open = options.write(true).create_new(true).open(&path)?;
        io::Write::write_all(&mut open, b"canary")?;
        let facts = open.metadata()?;
        Ok(Self {
            path,
            number: (facts.dev(), facts.ino()),
            _open: open,
        })
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok(); // nobody else's concern
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(list: &[(&str, bool)]) -> Attempts {
        let named = list
            .iter()
            .map(|(what, refused)| ((*what).to_owned(), *refused));
        named.collect()
    }

    fn all_but(allowed: &str) -> Attempts {
        let names = all_attempts().map(|what| (what, what != allowed));
        attempts(&names.collect::<Vec<_>>())
    }

    /// SB-41
    #[test]
    fn what_one_route_allows_was_not_refused() {
        let mut proof = Proof::default();
        proof.add("command", Ok(all_but("")));
        assert_eq!(proof.disproved(), [""; 0]);
        proof.add("worker", Ok(all_but("unshare")));
        assert_eq!(proof.attempts, all_but("unshare"));
        assert_eq!(proof.disproved(), ["seccomp"]);
        proof.add("another", Err("no such thing".into()));
        assert_eq!(
            proof.untried,
            [("another".to_owned(), "no such thing".to_owned())]
        );
    }

    /// SB-41: by whichever route, in whichever order.
    #[test]
    fn what_an_answer_does_not_tell_of_was_not_refused() {
        let mut short = all_but("");
        short.retain(|(what, _)| what != "kill_engine");
        for answers in [[short.clone(), all_but("")], [all_but(""), short.clone()]] {
            let mut proof = Proof::default();
            for answer in answers {
                proof.add("a route", Ok(answer));
            }
            assert_eq!(proof.attempts, all_but("kill_engine"));
            assert_eq!(proof.disproved(), ["signal_scope"]);
        }
        let mut nothing = Proof::default();
        nothing.add("command", Ok(Vec::new()));
        assert_eq!(nothing.disproved().len(), PROVES.len());
        let mut untried = Proof::default();
        untried.add("command", Err("refused".into()));
        assert_eq!(untried.disproved().len(), PROVES.len());
    }
}
