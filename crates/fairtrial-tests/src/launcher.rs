//! The launcher alone, spoken to as an engine does.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use fairtrial_exec::linux::packet::{self, Packet};
use fairtrial_exec::linux::socket::{pair_seqpacket, send_with_fds};
use fairtrial_exec::protocol::launcher::{End, FromLauncher, Program, TaskId, ToLauncher, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Process;
use crate::story::PATIENCE;

/// A launcher whose engine is this process. Dropped, it is left to see that by itself.
pub struct Launcher {
    child: Child,
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Launcher {
    /// Starts the one that was built beside the tests, and shakes hands.
    #[must_use]
    pub fn start() -> Self {
        let (ours, theirs) = pair_seqpacket().expect("a socket can be had");
        #[expect(
            clippy::disallowed_methods,
            reason = "what an engine does is done here by hand"
        )]
        let child = Command::new(crate::binary().with_file_name("fairtrial-launcher"))
            .env_clear()
            .current_dir("/")
            .stdin(theirs)
            .spawn()
            .expect("`cargo build --workspace --bins` made it");
        let mut launcher = Self {
            child,
            socket: ours,
            buffer: Vec::new(),
        };
        launcher.say(&ToLauncher::Hello {
            version: VERSION,
            engine_pid: std::process::id(),
            without: Vec::new(),
        });
        assert_eq!(
            launcher.hear(),
            Some(FromLauncher::Ready { version: VERSION })
        );
        launcher
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> Process {
        Process::find(self.child.id()).expect("it is not reaped yet")
    }

    /// Says something.
    pub fn say(&self, message: &ToLauncher) {
        self.say_with(message, &[]);
    }

    /// Says something with descriptors; whoever is gone does not hear it.
    pub fn say_with(&self, message: &ToLauncher, fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        packet::send(self.socket.as_fd(), message, &fds).ok(); // its end is what such a test is about
    }

    /// Says what is no message.
    pub fn say_bytes(&self, bytes: &[u8]) {
        let wait = fairtrial_exec::linux::socket::Wait::AsOpened;
        send_with_fds(self.socket.as_fd(), bytes, &[], wait).expect("it listens");
    }

    /// Has it start a program that can read nothing, its output going nowhere.
    pub fn spawn(&self, task: u64, program: Program) {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("always there"));
        self.spawn_with(task, program, [null(), null(), null()]);
    }

    /// Has it start a program with these as standard input, output and error.
    pub fn spawn_with(&self, task: u64, program: Program, fds: [OwnedFd; 3]) {
        let task = TaskId(task);
        self.say_with(&ToLauncher::Spawn { task, program }, &fds);
    }

    /// The next thing it says; `None` once it is gone. Fails the test if it says nothing for long.
    pub fn hear(&mut self) -> Option<FromLauncher> {
        assert!(self.has_news_within(PATIENCE), "the launcher says nothing");
        let packet = packet::receive(self.socket.as_fd(), &mut self.buffer);
        packet.ok()?.map(|Packet { message, .. }| message)
    }

    /// Whether it says something, or ends, within this time.
    #[must_use]
    pub fn has_news_within(&self, time: Duration) -> bool {
        is_readable(&self.socket, time)
    }

    /// All that it says until this task is over, and the task's end; fails the test if it could not be started.
    pub fn hear_the_end_of(&mut self, task: u64) -> (Vec<FromLauncher>, End) {
        let mut said = Vec::new();
        loop {
            match self.hear().expect("the launcher lives") {
                FromLauncher::Exited { task: of, end } if of == TaskId(task) => {
                    return (said, end);
                }
                FromLauncher::Failed {
                    task: of,
                    step,
                    errno,
                } if of == TaskId(task) => {
                    panic!("it could not be started: {}, error {errno}", step.name())
                }
                other => said.push(other),
            }
        }
    }

    /// Hangs up.
    pub fn hang_up(&self) {
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both).expect("it is connected");
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        let handle = handle.expect("it is not reaped yet");
        assert!(is_readable(&handle, PATIENCE), "the launcher goes on");
        self.child.wait().expect("it is a child of ours")
    }
}

fn is_readable(file: &OwnedFd, within: Duration) -> bool {
    let time = Timespec {
        tv_sec: within.as_secs().cast_signed(),
        tv_nsec: within.subsec_nanos().into(),
    };
    let mut news = [PollFd::new(file, PollFlags::IN)];
    poll(&mut news, Some(&time)).expect("a descriptor can be waited for") > 0
}

/// A program found in the usual places, with this for its arguments and nothing else.
#[must_use]
pub fn program(argv: &[&str]) -> Program {
    let places = ["/bin/", "/usr/bin/"].map(|place| format!("{place}{}", argv[0]).into_bytes());
    Program {
        paths: places.into(),
        argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
        env: Vec::new(),
        cwd: b"/".to_vec(),
        rlimits: Vec::new(),
        ahead: false,
        zygote: false,
        confine: None,
        self_test: None,
        nest: false,
        counted: Vec::new(),
        alone: false,
    }
}
