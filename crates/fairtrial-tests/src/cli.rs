//! The `fairtrial` binary as a user runs it: piped, line by line, or on a terminal.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::story::PATIENCE;

/// A run of the binary to be.
pub struct Cli(Command, Duration);

/// A run under way. Dropped before its end, it is killed.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    patience: Duration,
}

/// A run that ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; `None` for a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Cli {
    /// `fairtrial` with these arguments.
    pub fn new<'a>(args: impl IntoIterator<Item = &'a str>) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "tests run the binary as a user does"
        )]
        let mut command = Command::new(binary());
        command.args(args).stdin(Stdio::null());
        command.env("FAIRTRIAL_SANDBOX", "none"); // as in `bare`
        Self(command, PATIENCE)
    }

    /// For a run that may be silent for so long on a machine with much else to do.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.1 = patience;
        self
    }

    /// In this directory.
    #[must_use]
    pub fn current_dir(mut self, dir: &std::path::Path) -> Self {
        self.0.current_dir(dir);
        self
    }

    /// With this variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Without this variable.
    #[must_use]
    pub fn env_remove(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    /// Run by `program`, such as `nohup`, which becomes it.
    #[must_use]
    pub fn under(self, program: &str) -> Self {
        self.under_all(&[program])
    }

    /// As [`Cli::under`], by a program with arguments of its own before.
    #[must_use]
    pub fn under_all(self, argv: &[&str]) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "tests run the binary as a user does"
        )]
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]);
        command.arg(self.0.get_program()).args(self.0.get_args());
        for (name, value) in self.0.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.0.get_current_dir().expect("it has one"));
        Self(command, self.1)
    }

    /// As the leader of a process group of its own, as a shell starts a job.
    #[must_use]
    pub fn own_group(mut self) -> Self {
        std::os::unix::process::CommandExt::process_group(&mut self.0, 0);
        self
    }

    /// Starts it with pipes on all three streams.
    #[must_use]
    pub fn spawn(mut self) -> Child {
        self.0
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.0
            .spawn()
            .expect("the binary starts; build it with `cargo build -p fairtrial-cli`")
    }

    /// Starts it, to be talked with.
    #[must_use]
    pub fn start(self) -> Running {
        let patience = self.1;
        let mut child = self.spawn();
        Running {
            patience,
            stdin: child.stdin.take(),
            stdout: lines(child.stdout.take().expect("stdout is piped")),
            stderr: lines(child.stderr.take().expect("stderr is piped")),
            child,
        }
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(self) -> Finished {
        self.run_with("")
    }

    /// Runs it to its end with this input.
    #[must_use]
    pub fn run_with(self, stdin: &str) -> Finished {
        let mut running = self.start();
        let mut pipe = running.stdin.take().expect("stdin is piped");
        let text = stdin.to_owned();
        // A command that does not read its input closes the pipe early.
        let feed = thread::spawn(move || pipe.write_all(text.as_bytes()).ok());
        let finished = running.end();
        feed.join().expect("feeding does not panic");
        finished
    }

    /// Runs it to its end with standard output and standard error on one terminal; gives all that was shown.
    #[must_use]
    pub fn run_on_terminal(self) -> (Option<i32>, String) {
        self.start_on_terminal().end()
    }

    /// Starts it with standard output and standard error on one terminal.
    #[must_use]
    pub fn start_on_terminal(mut self) -> OnTerminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = openpt(flags).expect("a terminal can be made");
        grantpt(&screen).expect("it is ours");
        unlockpt(&screen).expect("it is ours");
        let name = ptsname(&screen, Vec::new()).expect("it has a name");
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            std::os::unix::fs::OpenOptionsExt::custom_flags(
                options.read(true).write(true),
                OpenptFlags::NOCTTY.bits() as i32,
            );
            options
                .open(name.to_str().expect("terminals have plain names"))
                .expect("it can be opened")
        };
        self.0.env("TERM", "xterm").stdout(open()).stderr(open());
        // Our own ends of the terminal's other side go with the command.
        let child = self.0.spawn().expect("the binary starts");
        OnTerminal {
            child,
            screen: screen.into(),
            shown: Vec::new(),
            patience: self.1,
        }
    }
}

/// A run on a terminal. Dropped before its end, it is killed.
pub struct OnTerminal {
    child: Child,
    screen: std::fs::File,
    shown: Vec<u8>,
    patience: Duration,
}

impl OnTerminal {
    /// Takes what is there to be read; then waits for more, so long at most. Whether more came.
    pub fn shows_more_within(&mut self, time: Duration) -> bool {
        while self.is_readable(Duration::ZERO) && self.read() {}
        self.is_readable(time)
    }

    /// Whether this was shown by now.
    pub fn has_shown(&mut self, text: &str) -> bool {
        while self.is_readable(Duration::ZERO) && self.read() {}
        self.text().contains(text)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is ours and not reaped");
    }

    /// Waits for its end; gives all that was shown.
    #[must_use]
    pub fn end(mut self) -> (Option<i32>, String) {
        while self.is_readable(self.patience) {
            if !self.read() {
                let status = self.child.wait().expect("it can be waited for");
                return (status.code(), self.text());
            }
        }
        panic!("it does not end; so far: {}", self.text());
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    fn is_readable(&self, time: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let time = Timespec::try_from(time).expect("a short time");
        let mut screen = [PollFd::new(&self.screen, PollFlags::IN)];
        poll(&mut screen, Some(&time)).expect("it can be waited for") > 0
    }

    /// Whether there was anything. A terminal ends with an error, when nobody holds its other side any more.
    fn read(&mut self) -> bool {
        let mut piece = [0; 4096];
        match self.screen.read(&mut piece) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.shown.extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // After its end there is nothing left to kill.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Running {
    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Writes a line to its standard input.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{line}").expect("it reads on");
        stdin.flush().expect("it reads on");
    }

    /// The next line of its standard output.
    #[must_use]
    pub fn line(&mut self) -> String {
        self.stdout
            .recv_timeout(PATIENCE)
            .expect("a line comes in time")
    }

    /// The next line of its standard error.
    #[must_use]
    pub fn error_line(&mut self) -> String {
        self.stderr
            .recv_timeout(PATIENCE)
            .expect("a line comes in time")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is ours and not reaped");
    }

    /// Closes its standard input and waits for its end; gives the output not taken yet.
    #[must_use]
    pub fn end(mut self) -> Finished {
        drop(self.stdin.take());
        let stdout = rest(&self.stdout, self.patience);
        let stderr = rest(&self.stderr, self.patience);
        Finished {
            code: self.wait().code(),
            stdout,
            stderr,
        }
    }

    fn wait(&mut self) -> ExitStatus {
        // Both its streams are closed: it ends now, or was killed.
        self.child.wait().expect("it can be waited for")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `end` there is nothing left to kill; a failed test leaves nothing running either.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The binary under test, beside the test binary's directory: `.ci/test` builds it first.
#[must_use]
pub fn binary() -> PathBuf {
    let mut path = std::env::current_exe().expect("this process has a program");
    path.pop(); // the test's file name
    path.pop(); // deps
    path.join("fairtrial")
}

/// The lines of a stream, as they come.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            let read = stream.read_until(b'\n', &mut line).unwrap_or(0);
            let line = String::from_utf8_lossy(&line).into_owned();
            if read == 0 || sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn rest(lines: &Receiver<String>, patience: Duration) -> String {
    let mut text = String::new();
    loop {
        match lines.recv_timeout(patience) {
            Ok(line) => text += &line,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return text,
            Err(timeout) => panic!("{timeout}: it does not end; so far: {text}"),
        }
    }
}
