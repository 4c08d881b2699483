//! What isolation costs and holds (SB-75, SB-76, SB-77, SB-78, SB-79).

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fairtrial_exec::{
    Backend, Event, Isolation, Level, LocalBackend, Resource, Sandbox, Shutdown, Verdict,
};
use rustix::fs::{CWD, Mode};
use serde_json::{Value as Json, json};
use tokio::net::unix::pipe;
use tokio::task::JoinSet;

use crate::{Bench, Failure, NO_OP, config, rss_of_launcher, run};

/// Children in sessions of their own that hold the pipe open; a byte says that all are there.
const TREE: &str = "
import os, signal
def f(pipe, count):
    held = os.open(pipe, os.O_WRONLY)
    os.set_inheritable(held, True)
    for _ in range(count):
        if os.fork() == 0:
            os.setsid()
            os.execv('/bin/sleep', ['sleep', '100'])
    os.write(held, b'x')
    signal.pause()
";
const BOMB: &str =
    "def f():\n    held = []\n    while True:\n        held.append(bytearray(1 << 20))\n";
const WORK: &str = "def f():\n    return sum(range(300_000))\n";
const WAIT: &str = "import time\ndef f(seconds):\n    time.sleep(seconds)\n";
const BOMB_BYTES: u64 = 256 << 20;
/// More than a machine takes for any of it.
const PATIENCE: Duration = Duration::from_secs(60);

impl Bench {
    /// Seconds of fresh calls at a level, one after the other.
    pub(crate) async fn level(&self, level: &str, count: usize) -> Result<Json, Failure> {
        let mut call = self.call(NO_OP, "[]", Isolation::Fresh, false);
        call.sandbox = Sandbox::new(level.parse()?);
        self.one_by_one(&call, count).await
    }

    /// Seconds from the end of anybody's interest in a call until none of its many processes is left.
    pub(crate) async fn tree(&self, level: &str, processes: usize) -> Result<Json, Failure> {
        let pipe = self.dir.path().join("tree");
        rustix::fs::mkfifoat(
            CWD,
            &pipe,
            Mode::RUSR | Mode::WUSR | Mode::WGRP | Mode::WOTH,
        )?;
        // A strict call of root's has a user of its own.
        let everybody =
            |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
        everybody(&pipe, 0o666)?;
        everybody(self.dir.path(), 0o711)?;
        let killed = self.kill_tree(level.parse()?, processes, &pipe).await;
        std::fs::remove_file(&pipe)?;
        killed
    }

    async fn kill_tree(
        &self,
        level: Level,
        processes: usize,
        path: &Path,
    ) -> Result<Json, Failure> {
        let reader = pipe::OpenOptions::new().open_receiver(path)?;
        let args = json!([path, processes]).to_string();
        let mut call = self.call(TREE, &args, Isolation::Fresh, false);
        call.sandbox = Sandbox::new(level);
        if level > Level::None {
            call.sandbox.write = vec![self.dir.path().to_path_buf()];
        }
        call.limits.set(Resource::Processes, None);
        call.timeout = Some(PATIENCE);
        let mut under_way = Box::pin(self.backend.submit(call)?);
        tokio::select! {
            outcome = &mut under_way => return Err(format!("the tree ended: {:?}", outcome?.error).into()),
            up = read(&reader) => if up? != 1 { return Err("no tree".into()) },
        }
        let began = Instant::now();
        drop(under_way);
        let left = tokio::time::timeout(PATIENCE, read(&reader)).await??;
        if left != 0 {
            return Err("a process of the tree writes".into());
        }
        Ok(json!([began.elapsed().as_secs_f64()]))
    }

    /// Run times of calls in one slot, while in another there is nothing, or one memory bomb after the other.
    pub(crate) async fn beside(&self, bombs: bool, count: usize) -> Result<Json, Failure> {
        let mut bomb = self.call(BOMB, "[]", Isolation::Fresh, false);
        bomb.sandbox = Sandbox::new(Level::Limits);
        bomb.limits.memory_bytes = Some(BOMB_BYTES);
        let mut work = self.call(WORK, "[]", Isolation::Fresh, false);
        work.sandbox = Sandbox::new(Level::Limits);
        let mut bombing = bombs
            .then(|| self.backend.submit(bomb.clone()))
            .transpose()?;
        let (mut seconds, mut stopped) = (Vec::new(), 0);
        while seconds.len() < count || (bombs && stopped == 0) {
            let mut working = Box::pin(run(&self.backend, work.clone()));
            let outcome = loop {
                let Some(exploding) = bombing.as_mut() else {
                    break working.await?;
                };
                tokio::select! {
                    outcome = &mut working => break outcome?,
                    end = exploding => {
                        let verdict = end?.verdict;
                        if verdict != Verdict::MemoryLimit {
                            return Err(format!("a bomb is {verdict}").into());
                        }
                        stopped += 1;
                        bombing = Some(self.backend.submit(bomb.clone())?);
                    }
                }
            };
            seconds.push(outcome.metrics.wall_ns.ok_or("no time")? as f64 / 1e9);
        }
        Ok(json!({"seconds": seconds, "stopped": stopped}))
    }

    /// The launcher's memory with so many calls under way, in KiB.
    pub(crate) async fn crowd(&self, calls: usize) -> Result<Json, Failure> {
        let backend = LocalBackend::new(config(&self.dir, calls)?);
        let mut call = self.call(WAIT, "[30]", Isolation::Fresh, false);
        call.sandbox = Sandbox::new(Level::Limits);
        let (starts, mut started) = tokio::sync::mpsc::unbounded_channel();
        backend.subscribe(Box::new(move |event| {
            if let Event::Start { .. } = event {
                starts.send(()).ok(); // nobody counts any more
            }
        }))?;
        let mut under_way = JoinSet::new();
        for _ in 0..calls {
            under_way.spawn(backend.submit(call.clone())?);
        }
        for _ in 0..calls {
            tokio::time::timeout(PATIENCE, started.recv()).await?;
        }
        let kib = rss_of_launcher()?;
        backend.shutdown(Shutdown::now()).await;
        Ok(json!(kib.ok_or("no launcher")?))
    }
}

/// How many bytes came, when some did or nobody is left to send any.
async fn read(pipe: &pipe::Receiver) -> io::Result<usize> {
    loop {
        pipe.readable().await?;
        match pipe.try_read(&mut [0; 64]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}
