//! The engine's end of the launcher: starts it, says, hears. Who is told what is the pool's business.

mod process;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::aside::aside;
use crate::clock::Alarm;
use crate::error::EngineError;
use crate::foreign_host;
use crate::linux::cgroup::Part;
use crate::linux::packet::{self, Packet};
use crate::linux::readiness::{Watched, room};
use crate::linux::socket;
use crate::protocol::launcher::{FromLauncher, Step, TaskId, ToLauncher, VERSION};
use process::{LOOK, LauncherProcess};

/// Longer than any machine takes to answer the greeting.
const GREETING: Duration = Duration::from_secs(30);

/// The launcher's program, built by `build.rs`.
const EMBEDDED: &[u8] = include_bytes!(env!("FAIRTRIAL_LAUNCHER"));

/// What a task hears.
#[derive(Debug)]
pub(crate) enum News {
    /// The launcher's word.
    Said(FromLauncher),
    /// The directory of what a process changed in its tree, told before its end.
    Upper(OwnedFd),
    /// The launcher is gone; nothing more will be said.
    Lost,
}

/// A running launcher. Cheap to share within the engine's thread.
#[derive(Clone)]
pub(crate) struct Launcher(Rc<Inner>);

struct Inner {
    socket: Watched,
    /// Messages that found the socket full, in order.
    waiting: RefCell<VecDeque<(ToLauncher, Vec<OwnedFd>)>>,
    buffer: RefCell<Vec<u8>>,
    flush: Notify,
    routes: RefCell<HashMap<TaskId, mpsc::UnboundedSender<News>>>,
    next_task: Cell<u64>,
    lost: Cell<bool>,
    /// There is a task again: somebody may wait for a word.
    wanted: Notify,
    /// After the socket, whose end it waits for when it is dropped.
    process: RefCell<Option<LauncherProcess>>,
}

impl Launcher {
    /// Starts one and shakes hands; tries twice, for whoever is short of memory may kill one. `program` is `None` for
    /// the embedded one.
    /// Parts of cgroups in `without` it does not use.
    pub(crate) async fn start(
        program: Option<&Path>,
        without: &[Part],
    ) -> Result<Self, EngineError> {
        match Self::start_once(program, without).await {
            Ok(launcher) => Ok(launcher),
            Err(error) => {
                log::warn!("{error}: trying once more");
                Self::start_once(program, without).await
            }
        }
    }

    async fn start_once(program: Option<&Path>, without: &[Part]) -> Result<Self, EngineError> {
        let name = program.map_or_else(
            || "(embedded)".to_owned(),
            |path| path.display().to_string(),
        );
        let failed = |problem: String| EngineError::Launcher {
            path: name.clone(),
            problem,
        };
        let (ours, theirs) = socket::pair_seqpacket().map_err(|error| failed(error.to_string()))?;
        socket::set_nonblocking(&ours).map_err(|error| failed(error.to_string()))?;
        let process = run(program, theirs).map(LauncherProcess::new);
        let process = process.map_err(|error| failed(error.to_string()))?;
        foreign_host::remember_launcher(process.pid(), &ours);
        let launcher = Self(Rc::new(Inner {
            socket: crate::linux::readiness::watch(ours)
                .map_err(EngineError::io("watching the launcher's socket"))?,
            waiting: RefCell::default(),
            buffer: RefCell::default(),
            flush: Notify::new(),
            routes: RefCell::default(),
            next_task: Cell::new(1),
            lost: Cell::new(false),
            wanted: Notify::new(),
            process: RefCell::new(Some(process)),
        }));
        let answered = tokio::time::timeout(
            GREETING,
            foreign_host::looking(launcher.shake_hands(without)),
        )
        .await;
        match answered.unwrap_or_else(|_| Err(format!("it did not answer within {GREETING:?}"))) {
            Ok(()) => Ok(launcher),
            Err(problem) => {
                if let Some(process) = &*launcher.0.process.borrow() {
                    process.kill();
                }
                launcher.end().await;
                Err(failed(problem))
            }
        }
    }

    async fn shake_hands(&self, without: &[Part]) -> Result<(), String> {
        self.send(
            ToLauncher::Hello {
                version: VERSION,
                engine_pid: std::process::id(),
                without: without.to_vec(),
            },
            Vec::new(),
        );
        match self
            .receive()
            .await
            .map(|packet| packet.map(|packet| packet.message))
        {
            Ok(Some(FromLauncher::Ready { version: VERSION })) => Ok(()),
            Ok(Some(FromLauncher::Ready { version })) => Err(format!(
                "it speaks protocol version {version}, this engine speaks {VERSION}"
            )),
            Ok(Some(other)) => Err(format!("it answered the greeting with {other:?}")),
            Ok(None) => Err("it ended before it answered".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A name for a process to be, and where its news goes.
    pub(crate) fn open(&self, news: mpsc::UnboundedSender<News>) -> TaskId {
        let task = TaskId(self.0.next_task.replace(self.0.next_task.get() + 1));
        if self.0.lost.get() {
            news.send(News::Lost).ok(); // the receiver made this sender; if it is gone, so is the wish to know
        } else {
            let mut routes = self.0.routes.borrow_mut();
            if routes.is_empty() {
                self.0.wanted.notify_one();
            }
            routes.insert(task, news);
        }
        task
    }

    /// Says something, in order; waits in memory if the socket is full. Nobody hears it if the launcher is lost.
    pub(crate) fn send(&self, message: ToLauncher, fds: Vec<OwnedFd>) {
        let mut waiting = self.0.waiting.borrow_mut();
        waiting.push_back((message, fds));
        if waiting.len() == 1 {
            drop(waiting);
            self.flush();
        }
    }

    fn flush(&self) {
        let mut waiting = self.0.waiting.borrow_mut();
        while let Some((message, fds)) = waiting.front() {
            let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match packet::send(self.0.socket.get_ref().as_fd(), message, &borrowed) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.0.flush.notify_one();
                    return;
                }
                // Sent; or the launcher is gone, which `serve` learns from the socket and tells everybody.
                Ok(()) => drop(waiting.pop_front()),
                Err(error) => {
                    foreign_host::check_all();
                    if let Some((message, _)) = waiting.pop_front() {
                        self.unsaid(&message, &error);
                    }
                }
            }
        }
    }

    /// Without descriptors or memory a message may not go out. Whoever waits for its process would wait for ever.
    fn unsaid(&self, message: &ToLauncher, error: &io::Error) {
        let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        if let ToLauncher::Spawn { task, .. } | ToLauncher::Fork { task, .. } = message
            && !gone.contains(&error.kind())
        {
            let failed = FromLauncher::Failed {
                task: *task,
                step: Step::Clone,
                errno: error.raw_os_error().unwrap_or(0),
            };
            self.route(failed, Vec::new());
        }
    }

    async fn receive(&self) -> io::Result<Option<Packet<FromLauncher>>> {
        loop {
            let mut ready = self.0.socket.readable().await?;
            match ready.try_io(|socket| {
                packet::receive_what_fits(socket.get_ref().as_fd(), &mut self.0.buffer.borrow_mut())
            }) {
                Ok(packet) => return packet,
                Err(_would_block) => {}
            }
        }
    }

    /// Passes on what the launcher says until it is gone; then everybody hears [`News::Lost`].
    pub(crate) async fn serve(&self) {
        let (mut look_at, mut alarm) = (None, Alarm::default());
        loop {
            tokio::select! {
                said = self.receive() => match said {
                    Ok(Some(Packet { message, fds })) => {
                        if let Some(process) = &mut *self.0.process.borrow_mut() {
                            process.heard();
                        }
                        self.route(message, fds);
                    }
                    Ok(None) | Err(_) => break,
                },
                () = self.0.wanted.notified(), if look_at.is_none() => {
                    look_at = Some(Instant::now() + LOOK);
                }
                () = alarm.until(look_at) => look_at = self.look(),
                () = self.0.flush.notified() => {
                    room(self.0.socket.get_ref().as_fd()).await;
                    self.flush();
                }
            }
        }
        foreign_host::check_all();
        self.0.lost.set(true);
        for (_, news) in self.0.routes.borrow_mut().drain() {
            news.send(News::Lost).ok(); // a task that already ended does not mind
        }
    }

    /// While somebody may wait for its word; gives when to look next.
    fn look(&self) -> Option<Instant> {
        foreign_host::check_all();
        if self.0.routes.borrow().is_empty() {
            return None;
        }
        self.0.process.borrow_mut().as_mut()?.look();
        Some(Instant::now() + LOOK)
    }

    fn route(&self, said: FromLauncher, fds: Vec<OwnedFd>) {
        let (task, last) = match &said {
            FromLauncher::Ready { .. } => return,
            FromLauncher::Spawned { task, .. } | FromLauncher::Hit { task, .. } => (*task, false),
            FromLauncher::Failed { task, .. } | FromLauncher::Exited { task, .. } => (*task, true),
        };
        if last {
            foreign_host::check_all(); // a process ends if its host closes what leads to it
        }
        let mut routes = self.0.routes.borrow_mut();
        if let Some(news) = routes.get(&task) {
            for upper in fds {
                news.send(News::Upper(upper)).ok(); // as above
            }
            news.send(News::Said(said)).ok();
        }
        if last {
            routes.remove(&task);
        }
    }

    /// Whether it is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.lost.get()
    }

    /// Ends it and everything below it; waits until it is reaped.
    pub(crate) async fn end(&self) {
        rustix::net::shutdown(self.0.socket.get_ref(), rustix::net::Shutdown::Both).ok(); // it may be gone already
        let process = self.0.process.borrow_mut().take();
        let guard = foreign_host::here();
        aside(move || {
            drop(process);
            foreign_host::forget_launcher(guard.as_ref());
        })
        .await;
    }
}

/// Its socket is its standard input; the rest it is given is nothing.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one process the engine starts itself"
)]
fn run(program: Option<&Path>, socket: OwnedFd) -> io::Result<std::process::Child> {
    let null = || {
        let opened = File::options().read(true).write(true).open("/dev/null");
        opened.map_err(|error| missing("/dev/null", "`/dev`", &error))
    };
    let embedded;
    let path = match program {
        Some(path) => path.to_owned(),
        None => {
            embedded = embedded_program()?;
            PathBuf::from(format!("/proc/self/fd/{}", embedded.as_raw_fd()))
        }
    };
    Command::new(path)
        .env_clear()
        .current_dir("/")
        .stdin(socket)
        .stdout(null()?)
        .stderr(null()?)
        .spawn()
}

/// What every host has, but for a container that was put together by hand.
fn missing(file: &str, mount: &str, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot open `{file}`: {error} (it needs {mount} mounted)"),
    )
}

/// The embedded program as something to execute.
fn embedded_program() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Newer kernels want to be told that a memfd is to be executed, older ones refuse the flag.
    let file = rustix::fs::memfd_create("fairtrial-launcher", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create("fairtrial-launcher", flags))?;
    let mut rest = EMBEDDED;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    // Executing what is open for writing is refused (ETXTBSY): reopen it for reading.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = File::open(&path);
    Ok(opened
        .map_err(|error| missing(&path, "`/proc`", &error))?
        .into())
}
