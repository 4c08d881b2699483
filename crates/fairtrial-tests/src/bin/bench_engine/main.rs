//! The engine's side of `make bench`: one experiment for each line of its input, its samples as one line of JSON.
//!
//! `bench/run.py` drives it, so that engine and bare limits take turns. Decides nothing and compares nothing. What is named
//! after the interpreter (`landlock,cgroups`) the engine does without: so the fallbacks of isolation are measured.

mod levels;
mod workspaces;

use std::io::{self, BufRead, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fairtrial_exec::{
    Backend, Call, Facility, Isolation, Level, LocalBackend, LocalConfig, ResultFormat, Sandbox,
    Shutdown, Verdict,
};
use fairtrial_tests::arguments;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error>;

const NO_OP: &str = "def f():\n    return None\n";
const HANG: &str = "def f():\n    while True:\n        pass\n";
const LARGE: &str =
    "import numpy\n\ndef f(mebibytes):\n    return numpy.ones(mebibytes << 17, dtype='f8')\n";
/// Answers every byte with a byte: what a worker would cost that did nothing else.
const ECHO: &str = "import os\nwhile True:\n    byte = os.read(0, 1)\n    if not byte:\n        break\n    os.write(0, byte)\n";
/// Calls under way at once where many are wanted: enough to keep two workers busy.
const IN_FLIGHT: usize = 256;

fn main() -> Result<(), Failure> {
    let python = std::env::args()
        .nth(1)
        .ok_or("usage: bench_engine PYTHON [WITHOUT,...], experiments on standard input")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut bench = Bench::new(python)?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = runtime.block_on(bench.run(&words))?;
        writeln!(io::stdout(), "{answer}")?;
    }
    runtime.block_on(bench.backend.shutdown(Shutdown::now()));
    Ok(())
}

struct Bench {
    python: String,
    dir: TempDir,
    /// Two slots, kept warm from one experiment to the next.
    backend: LocalBackend,
    echo: Echo,
}

impl Bench {
    fn new(python: String) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let backend = LocalBackend::new(config(&dir, 2)?);
        let echo = Echo::start(&python)?;
        Ok(Self {
            python,
            dir,
            backend,
            echo,
        })
    }

    async fn run(&mut self, words: &[&str]) -> Result<Json, Failure> {
        let word = |index: usize| words.get(index).copied().ok_or("a word is missing");
        let number = |index: usize| -> Result<usize, Failure> { Ok(word(index)?.parse()?) };
        match words.first().copied() {
            Some("fresh") => {
                let call = self.call(NO_OP, "[]", Isolation::Fresh, true);
                self.one_by_one(&call, number(1)?).await
            }
            Some("fresh_bare") => {
                let call = self.call(NO_OP, "[]", Isolation::Fresh, false);
                self.one_by_one(&call, number(1)?).await
            }
            Some("warm") => {
                let call = self.call(NO_OP, "[]", Isolation::Reuse, false);
                self.one_by_one(&call, number(1)?).await
            }
            Some("pingpong") => self.echo.round_trips(number(1)?),
            Some("throughput") => {
                let call = self.call(NO_OP, "[]", Isolation::Reuse, false);
                let began = Instant::now();
                many(&self.backend, &call, number(1)?).await?;
                Ok(json!([began.elapsed().as_secs_f64()]))
            }
            Some("large") => self.large(number(1)?, words.get(2) == Some(&"reuse")).await,
            Some("cold") => self.cold(number(1)?).await,
            Some("deadline") => self.deadline(number(1)?).await,
            Some("level") => self.level(word(1)?, number(2)?).await,
            Some("tree") => self.tree(word(1)?, number(2)?).await,
            Some("beside") => self.beside(word(1)? == "bombs", number(2)?).await,
            Some("crowd") => self.crowd(number(1)?).await,
            Some("workspace") => self.workspace(word(1)?, number(2)?).await,
            Some("flat") => self.flat(number(1)?, number(2)?).await,
            other => Err(format!("no experiment is called {other:?}").into()),
        }
    }

    fn call(&self, source: &str, args: &str, isolation: Isolation, numpy: bool) -> Call {
        let mut call = Call::source(source, "f", arguments(args));
        call.sandbox = Sandbox::new(Level::None); // what isolation costs has rows of its own
        let terms = call.python_mut().expect("a source call");
        terms.python.clone_from(&self.python);
        terms.isolation = isolation;
        terms.result = ResultFormat::Data;
        if numpy {
            terms.preload = vec!["numpy".into()];
        }
        call
    }

    /// Seconds of each of `count` calls, the next submitted when the last is answered; two uncounted ones first.
    async fn one_by_one(&self, call: &Call, count: usize) -> Result<Json, Failure> {
        for _ in 0..2 {
            run(&self.backend, call.clone()).await?;
        }
        let mut seconds = Vec::with_capacity(count);
        for _ in 0..count {
            let call = call.clone();
            let began = Instant::now();
            run(&self.backend, call).await?;
            seconds.push(began.elapsed().as_secs_f64());
        }
        Ok(json!(seconds))
    }

    /// Seconds until a large array is in the caller's hands, and until the caller has read one byte of each page.
    async fn large(&self, mebibytes: usize, reuse: bool) -> Result<Json, Failure> {
        let isolation = if reuse {
            Isolation::Reuse
        } else {
            Isolation::Fresh
        };
        let call = self.call(LARGE, &format!("[{mebibytes}]"), isolation, true);
        let began = Instant::now();
        let outcome = run(&self.backend, call).await?;
        let had = began.elapsed().as_secs_f64();
        let value = outcome.value.ok_or("no value")?;
        let pages = value.body.bytes().iter().step_by(4096);
        let sum: u64 = pages.map(|byte| u64::from(*byte)).sum();
        let read = began.elapsed().as_secs_f64();
        if value.body.len() < mebibytes << 20 || sum == u64::MAX {
            return Err("the value is not the one asked for".into());
        }
        Ok(json!([had, read]))
    }

    /// Seconds from making an engine to its first answer, without numpy, then with.
    async fn cold(&self, count: usize) -> Result<Json, Failure> {
        let mut seconds = Vec::with_capacity(count);
        for _ in 0..count {
            let call = self.call(NO_OP, "[]", Isolation::Fresh, false);
            let began = Instant::now();
            let backend = LocalBackend::new(config(&self.dir, 2)?);
            run(&backend, call).await?;
            seconds.push(began.elapsed().as_secs_f64());
            backend.shutdown(Shutdown::now()).await;
        }
        Ok(json!(seconds))
    }

    /// A hung call takes one of two slots while siblings take the other. Seconds from the hung call's deadline to its
    /// outcome, to the next call's start in the freed slot, and how many siblings failed.
    async fn deadline(&self, count: usize) -> Result<Json, Failure> {
        let timeout = Duration::from_millis(100);
        let mut hang = self.call(HANG, "[]", Isolation::Fresh, false);
        hang.timeout = Some(timeout);
        let mut sibling = self.call(
            "import time\ndef f():\n    time.sleep(0.3)\n",
            "[]",
            Isolation::Fresh,
            false,
        );
        sibling.timeout = Some(Duration::from_secs(30));
        let next = self.call(NO_OP, "[]", Isolation::Fresh, false);
        let (mut ended, mut freed, mut failed) = (Vec::new(), Vec::new(), 0);
        for _ in 0..count {
            // Both slots are taken before `next` is submitted, so it can only start in the one that the kill frees.
            let submitted = [&sibling, &hang, &next].map(|call| self.backend.submit(call.clone()));
            let [sibling, hang, next] = submitted;
            let (sibling, hang, next) = tokio::join!(sibling?, hang?, next?);
            let (sibling, hang, next) = (sibling?, hang?, next?);
            if hang.verdict != Verdict::Timeout || next.verdict != Verdict::Ok {
                return Err(format!("{} and {}", hang.verdict, next.verdict).into());
            }
            failed += u32::from(sibling.verdict != Verdict::Ok);
            let metrics = |time: Option<u64>| time.ok_or("a time was not measured");
            let deadline = metrics(hang.metrics.started_at_ns)? + timeout.as_nanos() as u64;
            let after = |time: u64| (time as f64 - deadline as f64) / 1e9;
            ended.push(after(metrics(hang.metrics.finished_at_ns)?));
            freed.push(after(metrics(next.metrics.started_at_ns)?));
        }
        Ok(json!({"ended": ended, "freed": freed, "siblings_failed": failed}))
    }

    /// Memory and descriptors of this process and its launcher, over `count` calls in a worker that is kept and
    /// `fresh` ones.
    async fn flat(&self, count: usize, fresh: usize) -> Result<Json, Failure> {
        let kept = self.call(NO_OP, "[]", Isolation::Reuse, false);
        let once = self.call(NO_OP, "[]", Isolation::Fresh, false);
        let began = Instant::now();
        let mut points = Vec::new();
        let mut done = 0;
        let first = count.min(10_000);
        let step = count.saturating_sub(first).div_ceil(10).max(1);
        while done < count {
            let batch = if done == 0 { first } else { step }.min(count - done);
            many(&self.backend, &kept, batch).await?;
            done += batch;
            points.push(size_of_self(done)?);
        }
        let kept_s = began.elapsed().as_secs_f64();
        many(&self.backend, &once, fresh).await?;
        let after_fresh = size_of_self(done + fresh)?;
        Ok(json!({"points": points, "after_fresh": after_fresh, "seconds": kept_s}))
    }
}

fn config(dir: &TempDir, max_workers: usize) -> Result<LocalConfig, Failure> {
    let mut config = LocalConfig::from_env()?;
    config.max_workers = max_workers;
    config.spill_dir = dir.path().join("spill");
    let without = std::env::args().nth(2).unwrap_or_default();
    let named = |facility: &Facility| without.split(',').any(|name| name == facility.name());
    config.without = Facility::ALL.into_iter().filter(named).collect();
    Ok(config)
}

async fn run(backend: &LocalBackend, call: Call) -> Result<fairtrial_exec::Outcome, Failure> {
    let outcome = backend.execute(call).await?;
    match outcome.verdict {
        Verdict::Ok => Ok(outcome),
        verdict => Err(format!("a call is {verdict}: {:?}", outcome.error).into()),
    }
}

/// Runs `count` calls, a bounded number of them under way.
async fn many(backend: &LocalBackend, call: &Call, count: usize) -> Result<(), Failure> {
    let mut under_way = JoinSet::new();
    let mut answered = 0;
    let mut submitted = 0;
    while answered < count {
        while submitted < count && under_way.len() < IN_FLIGHT {
            under_way.spawn(backend.submit(call.clone())?);
            submitted += 1;
        }
        let outcome = under_way.join_next().await.ok_or("nothing under way")??;
        if outcome?.verdict != Verdict::Ok {
            return Err("a call failed".into());
        }
        answered += 1;
    }
    Ok(())
}

fn size_of_self(calls: usize) -> Result<Json, Failure> {
    let launcher_fds = match launcher()? {
        Some(pid) => Some(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count()),
        None => None,
    };
    Ok(json!({
        "calls": calls,
        "rss_kib": rss("self")?,
        "fds": std::fs::read_dir("/proc/self/fd")?.count(),
        "launcher_rss_kib": rss_of_launcher()?,
        "launcher_fds": launcher_fds,
    }))
}

fn rss(pid: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.ok_or("no VmRSS")?.parse()?)
}

fn rss_of_launcher() -> Result<Option<u64>, Failure> {
    launcher()?.map(|pid| rss(&pid)).transpose()
}

/// The last child of ours that is no echo.
fn launcher() -> Result<Option<String>, Failure> {
    let mut found = None;
    for task in std::fs::read_dir("/proc/self/task")? {
        let children = std::fs::read_to_string(task?.path().join("children"))?;
        for pid in children.split_whitespace() {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if !name.starts_with("python") {
                found = found.max(Some(pid.parse::<u32>()?));
            }
        }
    }
    Ok(found.map(|pid| pid.to_string()))
}

/// A bare interpreter at the other end of a socket.
struct Echo {
    child: Child,
    socket: UnixStream,
}

impl Echo {
    fn start(python: &str) -> Result<Self, Failure> {
        let (ours, theirs) = UnixStream::pair()?;
        #[expect(
            clippy::disallowed_methods,
            reason = "a bare limit: what the engine would cost if it did nothing"
        )]
        let child = Command::new(python)
            .args(["-I", "-c", ECHO])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        Ok(Self {
            child,
            socket: ours,
        })
    }

    fn round_trips(&mut self, count: usize) -> Result<Json, Failure> {
        let mut seconds = Vec::with_capacity(count);
        for index in 0..count + 2 {
            let began = Instant::now();
            self.socket.write_all(b"x")?;
            self.socket.read_exact(&mut [0])?;
            if index >= 2 {
                seconds.push(began.elapsed().as_secs_f64());
            }
        }
        Ok(json!(seconds))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // It ends by itself when the socket closes; both fail only if it is gone already.
        self.socket
            .shutdown(std::net::Shutdown::Both)
            .unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}
