//! Warm interpreters: which one serves which call, and the loop that waits for one to be warm.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::call::{Call, HostTerms, Work};
use crate::clock::until;
use crate::dispatch::{PoolNews, Site, ZygoteEnd};
use crate::environment::{Changes, WORKER_ID_PLACE, is_read_at_startup};
use crate::launcher::News;
use crate::listener::Stream;
use crate::marshal::Dict;
use crate::outcome::ErrorReport;
use crate::protocol::Kind;
use crate::protocol::launcher::{Cause, FromLauncher, Program, Step, TaskId, ToLauncher};
use crate::sandbox::{Level, Means, groundwork};
use crate::value::{Value, decode_small};
use crate::worker::drive::STACK_SIGNAL;
use crate::worker::judge::{exit_of, was_killed_from_outside};
use crate::worker::link::Link;
use crate::worker::pipes::Output;

/// What the interpreter is told to run: reads the shim from its socket.
const BOOTSTRAP: &str = include_str!("../../../python/fairtrial/_shim/bootstrap.py");

/// The shim's files in the order they are read: one source text.
const SHIM: [&str; 11] = [
    include_str!("../../../python/fairtrial/_shim/codec.py"),
    include_str!("../../../python/fairtrial/_shim/report.py"),
    include_str!("../../../python/fairtrial/_shim/restore.py"),
    include_str!("../../../python/fairtrial/_shim/frames.py"),
    include_str!("../../../python/fairtrial/_shim/fork.py"),
    include_str!("../../../python/fairtrial/_shim/pickles.py"),
    include_str!("../../../python/fairtrial/_shim/imports.py"),
    include_str!("../../../python/fairtrial/_shim/preloads.py"),
    include_str!("../../../python/fairtrial/_shim/spawning.py"),
    include_str!("../../../python/fairtrial/_shim/worker.py"),
    include_str!("../../../python/fairtrial/_shim/serve.py"),
];

/// Output of a zygote that is kept for error messages.
const KEPT_OUTPUT_BYTES: u64 = 64 << 10;

/// An interpreter with its preloads gets the time of so many acknowledgements: imports from a cold disk are slow.
const ACKS_TO_READY: u32 = 10;

/// Calls with the same key can be forked from one zygote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) python: String,
    pub(crate) preload: Vec<String>,
    /// Modules whose memory its workers share.
    pub(crate) preload_shared: Vec<String>,
    /// What an interpreter reads once, at its start.
    pub(crate) startup_env: Changes,
    /// What a worker gets of its host, once.
    pub(crate) host: Option<Arc<HostTerms>>,
    /// Whether its workers are confined.
    pub(crate) confined: bool,
    /// Whether they have namespaces of their own.
    pub(crate) nest: bool,
}

impl Key {
    /// Whether it is a call's key, if that is quickly seen: most calls are like the one before.
    pub(crate) fn is_plainly_of(&self, call: &Call, means: &Means) -> bool {
        let plain_env = match &call.work {
            Work::Pickled(_) => self.startup_env.is_empty(),
            _ => self.startup_env == Self::source_env(),
        };
        plain_env
            && call.env.is_empty()
            && call.python().is_some_and(|terms| {
                self.host == terms.host
                    && self.confined == (call.sandbox.level > Level::None)
                    && self.nest == nests(call, means)
                    && self.python == terms.python
                    && self.preload == terms.preload
                    && self.preload_shared == terms.preload_shared
            })
    }

    /// Two runs of a candidate see sets and dicts in one order.
    fn source_env() -> Changes {
        Changes::from([("PYTHONHASHSEED".into(), Some("0".into()))])
    }

    /// The key of a Python call.
    pub(crate) fn of(call: &Call, means: &Means) -> Option<Self> {
        let terms = call.python()?;
        let mut startup_env = match call.work {
            Work::Source(_) => Self::source_env(),
            _ => Changes::new(),
        };
        let asked = call.env.iter().filter(|(name, _)| is_read_at_startup(name));
        startup_env.extend(asked.map(|(name, value)| (name.clone(), value.clone())));
        Some(Self {
            python: terms.python.clone(),
            preload: terms.preload.clone(),
            preload_shared: terms.preload_shared.clone(),
            startup_env,
            host: terms.host.clone(),
            confined: call.sandbox.level > Level::None,
            nest: nests(call, means),
        })
    }
}

/// Whether its worker has namespaces of its own.
fn nests(call: &Call, means: &Means) -> bool {
    means.namespaces_at(call.sandbox.level).is_some()
}

/// A zygote and all the engine holds of it.
pub(crate) struct Zygote {
    site: Site,
    number: u64,
    task: TaskId,
    python: String,
    news: mpsc::UnboundedReceiver<News>,
    end: mpsc::UnboundedReceiver<()>,
    link: Link,
    stdout: Output,
    stderr: Output,
    refused: Option<ErrorReport>,
    pid: Option<u32>,
    ready: bool,
    /// When it must be ready; none once it is, or has been given up.
    ready_by: Option<Instant>,
}

/// The pool's hold on a zygote: dropping `end` ends it.
pub(crate) struct ZygoteHandle {
    pub(crate) number: u64,
    pub(crate) task: TaskId,
    #[expect(dead_code, reason = "held only so that dropping it ends the zygote")]
    pub(crate) end: mpsc::UnboundedSender<()>,
}

/// Starts warming an interpreter; the pool hears of it by news.
pub(crate) fn start(site: &Site, number: u64, key: &Key) -> std::io::Result<ZygoteHandle> {
    let (ours, theirs) = crate::linux::socket::pair_stream()?;
    let (stdout, stdout_theirs) = Output::open(Stream::Stdout)?;
    let (mut stderr, stderr_theirs) = Output::open(Stream::Stderr)?;
    stderr.take(KEPT_OUTPUT_BYTES);
    let null: OwnedFd = std::fs::File::open("/dev/null")?.into();
    let (news_sender, news) = mpsc::unbounded_channel();
    let (end_sender, end) = mpsc::unbounded_channel();
    let task = site.launcher.open(news_sender);
    let mut link = Link::new(ours)?;
    match &site.context.config.shim_code {
        Some((python, code)) if *python == key.python => link.send(Kind::ShimCode, 0, code, None),
        _ => link.send(Kind::Shim, 0, SHIM.join("\n").as_bytes(), None),
    }
    link.send(Kind::Configure, 0, &configure(key), None);
    let program = program(site, key);
    site.launcher.send(
        ToLauncher::Spawn { task, program },
        vec![null, stdout_theirs, stderr_theirs, theirs],
    );
    let zygote = Zygote {
        site: site.clone(),
        number,
        task,
        python: key.python.clone(),
        news,
        end,
        link,
        stdout,
        stderr,
        refused: None,
        pid: None,
        ready: false,
        ready_by: Some(Instant::now() + site.context.config.ack_timeout * ACKS_TO_READY),
    };
    site.context.spawn(zygote.drive());
    Ok(ZygoteHandle {
        number,
        task,
        end: end_sender,
    })
}

fn configure(key: &Key) -> Vec<u8> {
    let configure = Dict::new()
        .texts("preload", key.preload.iter())
        .texts("preload_shared", key.preload_shared.iter())
        .integer("signal", STACK_SIGNAL as u64);
    let host = key.host.as_ref();
    let configure = match host.and_then(|host| host.authkey.as_deref()) {
        Some(authkey) => configure.text("authkey", authkey),
        None => configure,
    };
    let configure = match host.and_then(|host| host.logging.as_deref()) {
        Some(logging) => configure.text("logging", logging),
        None => configure,
    };
    let configure = match host {
        Some(host) => configure
            .texts("sys_path", host.sys_path.iter())
            .texts("argv", host.argv.iter())
            .boolean("faulthandler", host.faulthandler),
        None => configure,
    };
    configure.finish()
}

fn program(site: &Site, key: &Key) -> Program {
    let mut changes = key.startup_env.clone();
    changes.insert("FAIRTRIAL_WORKER_ID".into(), Some(WORKER_ID_PLACE.into()));
    Program {
        paths: site.context.environment.search(&key.python, &changes),
        argv: [key.python.as_str(), "-c", BOOTSTRAP]
            .map(|word| word.as_bytes().to_vec())
            .into(),
        env: site.context.environment.entries(&changes),
        cwd: b"/".to_vec(),
        rlimits: Vec::new(),
        ahead: false,
        zygote: true,
        confine: key.confined.then(|| Box::new(groundwork())),
        nest: key.nest,
        self_test: None,
        counted: Vec::new(),
        alone: false,
    }
}

impl Zygote {
    async fn drive(mut self) {
        loop {
            tokio::select! {
                news = self.news.recv() => {
                    if let Some(why) = self.hear_launcher(news.unwrap_or(News::Lost)) {
                        let zygote = self.number;
                        self.tell(PoolNews::ZygoteGone { zygote, why });
                        return;
                    }
                }
                _ = self.end.recv(), if !self.end.is_closed() || !self.end.is_empty() => {
                    self.end.close();
                    let (task, cause) = (self.task, Cause::Retired);
                    self.site.launcher.send(ToLauncher::Kill { task, cause }, Vec::new());
                }
                () = self.link.turn() => self.read_frames(),
                () = self.stdout.fill() => {}
                () = self.stderr.fill() => {}
                () = until(self.ready_by) => self.give_up(),
            }
        }
    }

    /// It had its time. Calls that wait for it are told now, whenever it can be ended.
    fn give_up(&mut self) {
        self.ready_by = None;
        let limit = self.site.context.config.ack_timeout * ACKS_TO_READY;
        let message = format!("`{}` was not ready within {limit:?}", self.python);
        let (zygote, why) = (self.number, ZygoteEnd::Refused(setup_error(message)));
        self.tell(PoolNews::ZygoteGone { zygote, why }); // who then drops its handle, which ends it
    }

    fn hear_launcher(&mut self, news: News) -> Option<ZygoteEnd> {
        match news {
            News::Said(FromLauncher::Spawned { pid, .. }) => {
                self.pid = Some(pid);
                None
            }
            News::Said(FromLauncher::Failed {
                step: Step::Exec,
                errno,
                ..
            }) => {
                let problem = std::io::Error::from_raw_os_error(errno);
                let message = format!("cannot run the interpreter `{}`: {problem}", self.python);
                Some(ZygoteEnd::Refused(setup_error(message)))
            }
            News::Said(FromLauncher::Failed { step, errno, .. }) => {
                Some(ZygoteEnd::Spawn { step, errno })
            }
            News::Said(FromLauncher::Exited { end, .. }) => {
                self.link.drain();
                self.read_frames();
                self.stderr.drain(u64::MAX);
                if let Some(report) = self.refused.take() {
                    return Some(ZygoteEnd::Refused(report));
                }
                if self.end.is_closed() || self.ready {
                    return Some(ZygoteEnd::Ended);
                }
                if was_killed_from_outside(&end) {
                    return Some(ZygoteEnd::Killed);
                }
                let said = self.stderr.take(0).text();
                let how = match exit_of(end.status) {
                    crate::outcome::Exit::Code(code) => format!("exit code {code}"),
                    crate::outcome::Exit::Signal(signal) => format!("signal {signal}"),
                };
                let said = if said.trim().is_empty() {
                    String::new()
                } else {
                    format!(": {}", said.trim())
                };
                Some(ZygoteEnd::Died(format!(
                    "`{}` ended ({how}) before it answered as a Python interpreter{said}",
                    self.python
                )))
            }
            News::Said(FromLauncher::Hit { .. } | FromLauncher::Ready { .. }) | News::Upper(_) => {
                None
            }
            News::Lost => Some(ZygoteEnd::Ended),
        }
    }

    fn read_frames(&mut self) {
        while let Ok(Some(frame)) = self.link.next() {
            match frame.header.kind {
                Kind::Ready => {
                    if let Some(warm) = Warm::read(&frame.payload) {
                        self.ready = true;
                        self.ready_by = None;
                        let zygote = self.number;
                        self.tell(PoolNews::ZygoteReady { zygote, warm });
                    }
                }
                Kind::Error => self.refused = read_refusal(&frame.payload).or(self.refused.take()),
                _ => {}
            }
        }
    }

    fn tell(&self, news: PoolNews) {
        self.site.context.news.send(news).ok(); // the pool outlives its zygotes but for a dropped backend
    }
}

/// What a zygote says of itself when it is warm.
#[derive(Debug)]
pub(crate) struct Warm {
    pub(crate) threads: u32,
    /// Where its modules are.
    pub(crate) paths: Vec<PathBuf>,
    /// Descriptors that its preloads hold and its workers do not have: their numbers and targets.
    pub(crate) closed_fds: BTreeMap<u32, String>,
}

impl Warm {
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let record = decode_small(payload).ok()?;
        let threads = record.get("threads").and_then(Value::as_i64);
        let threads = threads.and_then(|n| u32::try_from(n).ok());
        let paths = record.get("paths").and_then(Value::as_list);
        let paths = paths.unwrap_or_default().iter().filter_map(Value::to_text);
        let closed_fds = match record.get("closed_fds") {
            Some(Value::Dict(pairs)) => pairs.as_slice(),
            _ => &[],
        };
        let closed_fds = closed_fds.iter().filter_map(|(number, target)| {
            let number = u32::try_from(number.as_i64()?).ok()?;
            Some((number, target.to_text()?))
        });
        Some(Self {
            threads: threads.unwrap_or(1),
            paths: paths.map(PathBuf::from).collect(),
            closed_fds: closed_fds.collect(),
        })
    }
}

/// Why a zygote cannot serve, in its own words.
pub(crate) fn read_refusal(payload: &[u8]) -> Option<ErrorReport> {
    let record = decode_small(payload).ok()?;
    let text = |key| record.get(key).and_then(Value::to_text).unwrap_or_default();
    Some(ErrorReport {
        kind: text("type"),
        message: text("message"),
        traceback: text("traceback"),
        exception: None,
    })
}

/// An error of the set-up, in the engine's own words.
pub(crate) fn setup_error(message: impl Into<String>) -> ErrorReport {
    ErrorReport::new("SetupError", message)
}
